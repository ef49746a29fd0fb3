"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const at = (id) => document.getElementById(id);
  const state = { view: "graph", stage: data.start, chosen: new Set(), box: null, kernel: null, found: new Set(), camera: null, sort: {} };

  function make(tag, attributes, ...inside) {
    const e = document.createElement(tag);
    for (const [k, v] of Object.entries(attributes || {})) {
      if (k === "onclick") e.addEventListener("click", v);
      else if (v !== null && v !== undefined && v !== false) e.setAttribute(k, v);
    }
    e.append(...inside.filter((x) => x !== null && x !== undefined));
    return e;
  }
  function shape(tag, attributes, ...inside) {
    const e = document.createElementNS(SVG, tag);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    e.append(...inside);
    return e;
  }
  const source = (i) => data.sources[i];
  const graph = () => data.graphs[data.stages[state.stage].graph];
  const number = (n) => n.toLocaleString("en-US");
  function bytes(n) {
    const units = ["B", "kB", "MB", "GB"];
    let u = 0;
    while (n >= 1000 && u < units.length - 1) { n /= 1000; u += 1; }
    return (u ? n.toFixed(1) : n) + " " + units[u];
  }

  // The graph.
  function curve(p) {
    let d = `M${p[0]} ${p[1]}`;
    for (let i = 2; i < p.length; i += 2) {
      const [x0, y0, x1, y1] = [p[i - 2], p[i - 1], p[i], p[i + 1]];
      const m = (y0 + y1) / 2;
      d += Math.abs(x0 - x1) < 0.05 ? `V${y1}` : `C${x0} ${m} ${x1} ${m} ${x1} ${y1}`;
    }
    return d;
  }
  function draw() {
    const g = graph(), root = shape("g", { id: "world" });
    const boxes = (open) => g.boxes.forEach((b, i) => { if (!!b.open === open) root.append(box(b, i)); });
    boxes(true);
    for (const c of g.captions) root.append(shape("text", { x: c.x, y: c.y + 11, class: "caption" }, c.text));
    g.edges.forEach((e, i) => {
      const path = shape("path", { d: e.p ? curve(e.p) : `M${e.cut[0]} ${e.cut[1]}v8M${e.cut[2]} ${e.cut[3]}v-8`, "data-edge": i });
      path.append(shape("title", {}, `${g.boxes[e.a].name} to ${g.boxes[e.b].name}: ${e.t}`));
      root.append(path);
      if (e.cut) {
        root.append(shape("text", { x: e.cut[0] + 3, y: e.cut[1] + 8, class: "portal" }, "to " + g.boxes[e.b].name));
        root.append(shape("text", { x: e.cut[2] + 3, y: e.cut[3] - 3, class: "portal" }, "from " + g.boxes[e.a].name));
      }
    });
    boxes(false);
    at("graph").replaceChildren(root);
    mark();
  }
  function box(b, i) {
    const e = shape("g", { class: "box" + (b.open ? " frame" : b.cat === "group" ? " group" : ""), "data-box": i }, shape("title", {}, b.name));
    const rect = { x: b.r[0], y: b.r[1], width: b.r[2], height: b.r[3], rx: 4 };
    if (!b.open) rect.fill = data.colours[b.work];
    e.append(shape("rect", rect));
    const lines = b.open ? b.lines.slice(0, 1) : b.lines;
    lines.forEach((t, n) => {
      const text = shape("text", { x: b.r[0] + 8, y: b.r[1] + 15 + 15 * n }, t);
      if (n === 0) text.setAttribute("font-weight", "bold");
      e.append(text);
    });
    return e;
  }
  function related(b) { return b.org.some((o) => state.chosen.has(o)); }
  function mark() {
    const g = graph();
    for (const e of at("graph").querySelectorAll("[data-box]")) {
      const i = +e.dataset.box, b = g.boxes[i];
      e.classList.toggle("chosen", state.box === i || (!b.open && related(b)));
      e.classList.toggle("found", state.found.has(i));
    }
    for (const e of at("graph").querySelectorAll("[data-edge]")) {
      const edge = g.edges[+e.dataset.edge];
      e.classList.toggle("near", state.box !== null && (edge.a === state.box || edge.b === state.box));
    }
  }
  function look() {
    const c = state.camera, world = at("world");
    if (world && c) world.setAttribute("transform", `translate(${c.x} ${c.y}) scale(${c.z})`);
  }
  function fit() {
    const g = graph(), r = at("graph").getBoundingClientRect();
    const z = Math.min(1.5, Math.max(0.02, Math.min((r.width - 40) / g.size[0], (r.height - 40) / g.size[1])));
    state.camera = { z, x: (r.width - g.size[0] * z) / 2, y: Math.max(20, (r.height - g.size[1] * z) / 2) };
    look();
  }
  function top() {
    const g = graph(), r = at("graph").getBoundingClientRect();
    const z = Math.min(1, Math.max(0.35, (r.width - 40) / g.size[0]));
    state.camera = { z, x: (r.width - g.size[0] * z) / 2, y: 20 };
    look();
  }
  function zoom(factor, x, y) {
    const c = state.camera, z = Math.min(6, Math.max(0.02, c.z * factor)), f = z / c.z;
    state.camera = { z, x: x - (x - c.x) * f, y: y - (y - c.y) * f };
    look();
  }
  function show(i) {
    const b = graph().boxes[i], r = at("graph").getBoundingClientRect();
    const z = Math.max(state.camera.z, 0.6);
    state.camera = { z, x: r.width / 2 - (b.r[0] + b.r[2] / 2) * z, y: r.height / 2 - (b.r[1] + b.r[3] / 2) * z };
    look();
  }
  function steer() {
    const svg = at("graph");
    let from = null, moved = false;
    svg.addEventListener("wheel", (e) => {
      e.preventDefault();
      const r = svg.getBoundingClientRect();
      if (e.ctrlKey || !e.shiftKey) zoom(Math.exp(-e.deltaY * 0.0015), e.clientX - r.left, e.clientY - r.top);
      else { state.camera.x -= e.deltaY; look(); }
    }, { passive: false });
    svg.addEventListener("pointerdown", (e) => { from = [e.clientX, e.clientY]; moved = false; });
    svg.addEventListener("pointermove", (e) => {
      if (!from) return;
      const dx = e.clientX - from[0], dy = e.clientY - from[1];
      if (!moved && Math.hypot(dx, dy) < 4) return;
      if (!moved) svg.setPointerCapture(e.pointerId);
      moved = true;
      svg.classList.add("moving");
      state.camera.x += dx; state.camera.y += dy;
      from = [e.clientX, e.clientY];
      look();
    });
    const end = () => { from = null; svg.classList.remove("moving"); };
    svg.addEventListener("pointerup", end);
    svg.addEventListener("pointercancel", end);
    svg.addEventListener("click", (e) => {
      if (moved) return;
      const hit = e.target.closest("[data-box]");
      hit ? choose(+hit.dataset.box) : clear();
    });
    svg.addEventListener("keydown", (e) => {
      const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[e.key];
      if (step) { state.camera.x += step[0]; state.camera.y += step[1]; look(); e.preventDefault(); }
    });
  }

  // Selection.
  function choose(i) {
    const b = graph().boxes[i];
    state.box = i;
    state.chosen = new Set(b.org);
    const group = groupsOf(state.chosen)[0];
    const call = group === undefined ? undefined : data.calls.find((c) => c.group === group);
    state.kernel = call ? call.kernel : null;
    mark(); inspect(); if (state.view !== "graph") table();
  }
  function clear() { state.box = null; state.kernel = null; state.chosen = new Set(); mark(); inspect(); }
  function chooseGroup(i) {
    state.box = null;
    state.chosen = new Set(data.groups[i].org);
    const call = data.calls.find((c) => c.group === i);
    state.kernel = call ? call.kernel : null;
    mark(); inspect();
    if (state.view === "graph") {
      const b = graph().boxes.findIndex((x) => !x.open && related(x));
      if (b >= 0) show(b);
    } else table();
  }
  function chooseSource(o) {
    state.chosen = new Set([o]); state.box = null;
    const b = graph().boxes.findIndex((x) => !x.open && related(x));
    if (b >= 0) { state.box = b; if (state.view === "graph") show(b); }
    const group = groupsOf(state.chosen)[0];
    const call = data.calls.find((c) => c.group === group);
    state.kernel = call ? call.kernel : null;
    mark(); inspect();
  }
  function chooseKernel(k) {
    state.kernel = k; state.box = null;
    state.chosen = new Set(data.calls.filter((c) => c.kernel === k).flatMap((c) => data.groups[c.group].org));
    mark(); inspect(); table();
  }
  function groupsOf(chosen) {
    const out = [];
    data.groups.forEach((g, i) => { if (g.org.some((o) => chosen.has(o))) out.push(i); });
    return out;
  }

  // The inspector.
  function chips(list) {
    const most = 24, e = make("div");
    for (const o of list.slice(0, most)) e.append(make("span", { class: "chip", onclick: () => chooseSource(o), title: source(o).op }, source(o).name));
    if (list.length > most) e.append(make("span", { class: "weak" }, `and ${list.length - most} more`));
    return e;
  }
  function facts(rows) {
    const e = make("dl");
    for (const [k, v] of rows) if (v !== null && v !== undefined && v !== "") e.append(make("dt", {}, k), make("dd", {}, v));
    return e;
  }
  function inspect() {
    const out = [];
    const b = state.box === null ? null : graph().boxes[state.box];
    if (b) {
      out.push(make("h2", {}, `${b.op} `, make("span", { class: "weak" }, b.name)));
      out.push(facts([["result", b.out.join(", ")], ["layout", b.layout], ["attributes", b.cat === "group" ? "" : b.attrs], ["constants", b.weights.join("; ")]]));
    }
    const groups = groupsOf(state.chosen);
    if (state.chosen.size) {
      out.push(make("h2", {}, "Source nodes"), chips([...state.chosen]));
    }
    for (const i of groups.slice(0, 6)) {
      const g = data.groups[i];
      const calls = data.calls.filter((c) => c.group === i);
      out.push(make("h2", {}, `Group ${i}: ${g.ops.join(" + ")}`));
      out.push(facts([["runs as", g.kind + (g.rule ? `, rule ${g.rule}` : "")], ["anchor", g.anchor], ["layout", g.layout],
        ["work", `${number(g.flops)} FLOPs, ${bytes(g.bytes)}`],
        ["time", time(calls.map((c) => c.us))], ["error", error(data.errors.filter((e) => g.org.includes(e.node)))]]));
      const kernels = make("div");
      for (const c of calls) kernels.append(make("span", { class: "chip", onclick: () => { state.kernel = c.kernel; inspect(); } }, `${data.kernels[c.kernel].name} ${c.grid.join("x")}`));
      if (calls.length) out.push(kernels);
    }
    if (groups.length > 6) out.push(make("p", { class: "weak" }, `and ${groups.length - 6} more groups`));
    const remarks = data.remarks.filter((r) => r.nodes.some((o) => state.chosen.has(o)));
    if (remarks.length) {
      const list = make("ul", { class: "remarks" });
      for (const r of remarks.slice(0, 40)) list.append(make("li", { class: r.kind }, make("b", {}, `${r.pass} ${r.kind}: `), r.message));
      out.push(make("h2", {}, "Why, and why not"), list);
    }
    if (state.kernel !== null) {
      const k = data.kernels[state.kernel];
      out.push(make("h2", {}, `Kernel ${k.name}`));
      out.push(facts([["workgroup", k.workgroup.join(" x ")], ["bindings", String(k.bindings)], ["shared memory", bytes(k.shared)],
        ["bounds", k.proved ? "proved" : "checked by the driver"], ["called", `${data.calls.filter((c) => c.kernel === state.kernel).length} times`]]));
      for (const e of k.driver) {
        const figures = ["subgroup_size", "registers", "scalar_registers", "live_registers", "spills", "fills", "scratch_bytes", "occupancy", "code_bytes", "instructions", "latency_cycles"];
        const said = figures.filter((f) => e[f] !== null).map((f) => [f.replace("_", " "), String(e[f]) + (f === "occupancy" ? ` subgroups a ${e.occupancy_of}` : "")]);
        out.push(make("h2", {}, `What the driver made of it: ${e.name}`), facts(said));
        if (e.isa) out.push(make("details", {}, make("summary", {}, "ISA"), make("pre", {}, e.isa)));
      }
      out.push(make("h2", {}, "Schedule"), make("pre", {}, k.schedule.join("\n") || "none"));
      out.push(make("h2", {}, "WGSL"), make("pre", { id: "wgsl" }, k.wgsl));
    }
    if (!out.length) out.push(make("p", { class: "weak" }, "Choose a box: its source nodes, its group, the reasons and the kernel are shown here. Arrows left and right step through the passes; / searches."));
    at("inspector").replaceChildren(...out);
  }
  function time(list) {
    const known = list.filter((t) => t !== null && t !== undefined);
    return known.length ? known.reduce((a, b) => a + b, 0).toFixed(1) + " us" : null;
  }

  const scientific = (x) => x === null ? "not finite" : x.toExponential(2);
  function error(list) {
    if (!list.length) return null;
    const worst = list.reduce((a, b) => (b.rel === null || b.rel > a.rel ? b : a));
    return `${scientific(worst.rel)} relative, ${scientific(worst.abs)} at most${worst.pass ? "" : ": FAIL"}`;
  }

  // Tables.
  const TABLES = {
    groups: {
      head: [["group", true], ["ops", false], ["runs as", false], ["rule", false], ["layout", false], ["FLOPs", true], ["bytes", true], ["us", true]],
      rows: () => data.groups.map((g, i) => {
        const us = data.calls.filter((c) => c.group === i && c.us !== null && c.us !== undefined).map((c) => c.us);
        return { cells: [i, g.ops.join(" + "), g.kind, g.rule, g.layout || "", g.flops, g.bytes, us.length ? us.reduce((a, b) => a + b, 0) : null], pick: () => chooseGroup(i), on: g.org.some((o) => state.chosen.has(o)) };
      }),
    },
    kernels: {
      head: [["kernel", false], ["calls", true], ["workgroup", false], ["shared bytes", true], ["bindings", true], ["bounds", false], ["us", true]],
      rows: () => data.kernels.map((k, i) => {
        const calls = data.calls.filter((c) => c.kernel === i), us = calls.map((c) => c.us).filter((t) => t !== null && t !== undefined);
        return { cells: [k.name, calls.length, k.workgroup.join("x"), k.shared, k.bindings, k.proved ? "proved" : "checked", us.length ? us.reduce((a, b) => a + b, 0) : null], pick: () => chooseKernel(i), on: state.kernel === i };
      }),
    },
    errors: {
      head: [["node or result", false], ["op", false], ["relative", true], ["at most", true], ["", false]],
      rows: () => data.errors.map((e) => ({ cells: [e.name, e.node === null ? "result" : source(e.node).op, e.rel, e.abs, e.pass ? "ok" : "FAIL"], text: [null, null, scientific(e.rel), scientific(e.abs), null], pick: () => { if (e.node !== null) chooseSource(e.node); table(); }, on: state.chosen.has(e.node) })),
    },
    remarks: {
      head: [["pass", false], ["kind", false], ["what", false], ["nodes", false]],
      rows: () => data.remarks.map((r) => ({ cells: [r.pass, r.kind, r.message, r.nodes.map((o) => source(o).name).slice(0, 4).join(", ")], pick: () => { if (r.nodes.length) { state.chosen = new Set(r.nodes); state.box = null; inspect(); table(); } }, on: false })),
    },
  };
  function cell(v) {
    if (v === null || v === undefined) return "";
    return typeof v === "number" ? (Number.isInteger(v) ? number(v) : v.toFixed(1)) : v;
  }
  function table() {
    const t = TABLES[state.view];
    if (!t) return;
    const sort = state.sort[state.view];
    let rows = t.rows();
    if (sort) {
      const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : a === null ? -1 : b === null ? 1 : String(a).localeCompare(String(b)));
      rows = rows.slice().sort((a, b) => compare(a.cells[sort.column], b.cells[sort.column]) * (sort.down ? -1 : 1));
    }
    const head = make("tr");
    t.head.forEach(([title, numeric], c) => head.append(make("th", { class: numeric ? "n" : null, onclick: () => {
      state.sort[state.view] = { column: c, down: sort && sort.column === c ? !sort.down : numeric };
      table();
    } }, title + (sort && sort.column === c ? (sort.down ? " ▼" : " ▲") : ""))));
    const body = make("tbody");
    for (const r of rows) {
      const e = make("tr", { class: r.on ? "chosen" : null, onclick: r.pick });
      r.cells.forEach((v, c) => e.append(make("td", { class: t.head[c][1] ? "n" : null }, (r.text && r.text[c]) || cell(v))));
      body.append(e);
    }
    at("table").replaceChildren(make("table", {}, make("thead", {}, head), body));
  }

  // Passes, views, search.
  function step(to) {
    if (to < 0 || to >= data.stages.length) return;
    const keep = state.box === null ? null : graph().boxes[state.box];
    const same = data.stages[to].graph === data.stages[state.stage].graph;
    state.stage = to;
    if (!same) {
      state.box = null;
      const before = keep ? [keep.r[0] + keep.r[2] / 2, keep.r[1] + keep.r[3] / 2] : null;
      draw();
      const i = keep ? graph().boxes.findIndex((b) => b.key === keep.key) : -1;
      if (i >= 0) {
        // What was chosen stays where it is on the screen.
        const b = graph().boxes[i];
        state.camera.x += (before[0] - b.r[0] - b.r[2] / 2) * state.camera.z;
        state.camera.y += (before[1] - b.r[1] - b.r[3] / 2) * state.camera.z;
        state.box = i;
        mark();
      }
      search();
    }
    look(); passes(); inspect();
  }
  function passes() {
    const list = data.stages.map((s, i) => make("button", {
      class: [i === state.stage ? "on" : "", s.changed ? "" : "same"].join(" ").trim() || null, "aria-current": i === state.stage ? "step" : null, onclick: () => { view("graph"); step(i); },
    }, s.label, make("small", {}, s.about)));
    at("passes").replaceChildren(make("h2", {}, "Passes"), ...list);
    const on = at("passes").querySelector(".on");
    if (on) on.scrollIntoView({ block: "nearest" });
  }
  function view(name) {
    state.view = name;
    at("canvas").hidden = name !== "graph";
    at("table").hidden = name === "graph";
    for (const b of at("views").children) { b.classList.toggle("on", b.dataset.view === name); b.setAttribute("aria-selected", b.dataset.view === name); }
    if (name === "graph") { mark(); look(); } else table();
  }
  function matches(b, words) {
    return words.every((w) => {
      const [, key, value] = /^(op|name|group|dtype|layout|cat):(.*)$/.exec(w) || [null, null, w];
      if (key === "group") return groupsOf(new Set(b.org)).includes(+value);
      const field = { op: b.op, name: b.name, dtype: b.dtype, layout: b.layout || "", cat: b.cat }[key];
      if (key) return String(field).toLowerCase().includes(value);
      return (b.name + " " + b.op + " " + b.org.map((o) => source(o).name).join(" ")).toLowerCase().includes(value);
    });
  }
  function search() {
    const words = at("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    state.found = new Set();
    if (words.length) graph().boxes.forEach((b, i) => { if (matches(b, words)) state.found.add(i); });
    at("found").textContent = words.length ? `${state.found.size} found` : "";
    mark();
  }
  function next() {
    const list = [...state.found];
    if (!list.length) return;
    const i = list[(list.indexOf(state.box) + 1) % list.length];
    view("graph"); choose(i); show(i);
  }

  function start() {
    at("model").textContent = data.model;
    at("about").textContent = data.about;
    const views = ["graph", "groups", "kernels", ...(data.errors.length ? ["errors"] : []), "remarks"];
    for (const name of views) at("views").append(make("button", { role: "tab", "data-view": name, onclick: () => view(name) }, name[0].toUpperCase() + name.slice(1)));
    for (const [title, act] of [["+", () => zoom(1.3, at("graph").clientWidth / 2, at("graph").clientHeight / 2)], ["−", () => zoom(1 / 1.3, at("graph").clientWidth / 2, at("graph").clientHeight / 2)], ["Fit", fit], ["Top", top]]) at("tools").append(make("button", { onclick: act }, title));
    for (const [cat, title] of data.legend) at("legend").append(make("span", { style: `--c:${data.colours[cat]}` }, title));
    at("search").addEventListener("input", search);
    at("search").addEventListener("keydown", (e) => { if (e.key === "Enter") next(); if (e.key === "Escape") { at("search").value = ""; search(); at("graph").focus(); } });
    document.addEventListener("keydown", (e) => {
      if (e.target === at("search")) return;
      if (e.key === "/" || (e.key === "f" && (e.ctrlKey || e.metaKey))) { e.preventDefault(); at("search").focus(); }
      if (e.target !== at("graph") && e.key === "ArrowRight" || e.key === "n") step(state.stage + 1);
      if (e.target !== at("graph") && e.key === "ArrowLeft" || e.key === "p") step(state.stage - 1);
      if (e.key === "Escape") clear();
    });
    steer(); draw(); passes(); inspect(); view("graph"); top();
    window.addEventListener("resize", look);
  }
  if (data.stages.length) start();
  else {
    at("model").textContent = data.model;
    at("about").textContent = data.about;
    at("inspector").textContent = "This trace holds no stages: write one with `weft compile MODEL -o F.trace`.";
  }
})();
