
  // Selection.
  function select(box, origins, groups) {
    state.box = box; state.edge = null;
    state.chosen = new Set(origins);
    const call = data.calls.find((c) => groups.includes(c.group));
    state.kernel = call ? call.kernel : null;
    mark(); inspect(); link();
    if (state.view !== "graph") table();
  }
  function choose(i) {
    const n = state.scene.boxes[i].n;
    select(n.key, n.origins, n.groups);
  }
  function chooseEdge(i) { clear(); state.edge = i; mark(); inspect(); }
  function clear() { state.box = null; state.edge = null; state.kernel = null; state.chosen = new Set(); mark(); inspect(); link(); }
  // Chooses the box that `is` holds for, opens what it is in, and moves the picture there.
  function go(is) {
    const key = reveal(is);
    if (key === null) return false;
    const i = state.scene.boxes.findIndex((b) => b.n.key === key);
    choose(i);
    if (state.view === "graph") show(i);
    return true;
  }
  function chooseGroup(i) {
    const g = data.groups[i];
    const own = (n) => n.category === "group" && n.groups.length === 1 && n.groups[0] === i;
    if (!go(own) && !go((n) => n.category !== "layer" && n.groups.includes(i))) select(null, g.origins, [i]);
  }
  const holds = (o) => (n) => n.category !== "layer" && n.category !== "control" && n.origins.includes(o);
  function chooseSource(o) {
    if (!go(holds(o))) select(null, [o], groupsOf(new Set([o])));
  }
  function chooseKernel(k) {
    const groups = [...new Set(data.calls.filter((c) => c.kernel === k).map((c) => c.group))];
    select(null, groups.flatMap((g) => data.groups[g].origins), groups);
    state.kernel = k;
    inspect(); table();
  }
  function groupsOf(chosen) {
    const out = [];
    data.groups.forEach((g, i) => { if (g.origins.some((o) => chosen.has(o))) out.push(i); });
    return out;
  }

  // The inspector.
  function more(list, most, one) {
    const e = make("div");
    list.slice(0, most).forEach((x) => e.append(one(x)));
    if (list.length > most) {
      const rest = make("details", {}, make("summary", {}, `and ${list.length - most} more`));
      rest.addEventListener("toggle", () => { if (rest.children.length === 1) list.slice(most).forEach((x) => rest.append(one(x))); });
      e.append(rest);
    }
    return e;
  }
  const chip = (text, act, title) => make("span", { class: "chip", onclick: act, title, tabindex: 0, role: "button", onkeydown: (e) => { if (e.key === "Enter") act(); } }, text);
  const chips = (list) => more(list, 12, (o) => chip(source(o).name, () => chooseSource(o), source(o).op));
  function facts(rows) {
    const e = make("dl");
    for (const [k, v] of rows) if (v !== null && v !== undefined && v !== "") e.append(make("dt", {}, k), make("dd", {}, v));
    return e;
  }
  function errorText(e) {
    return e ? `${scientific(e.rel_l2)} relative, ${scientific(e.max_abs)} at most, magnitude ${scientific(e.max_magnitude)}${e.pass ? "" : ": FAIL"}` : null;
  }
  function sums(groups) {
    const t = totals(groups), all = data.times ? data.times.dispatches_ms * 1000 : 0;
    return [["time", t.us === null ? null : `${ms(t.us)}, ${((100 * t.us) / all).toFixed(1)} % of all dispatches`], ["work", `${flops(t.flops)}, ${bytes(t.bytes)}`],
      ["rates", t.us ? `${(t.flops / t.us / 1e3).toFixed(1)} GFLOP/s, ${(t.bytes / t.us / 1e3).toFixed(1)} GB/s` : null], ["error", errorText(t.error)]];
  }
  function groupPart(i) {
    const g = data.groups[i], calls = data.calls.filter((c) => c.group === i);
    const e = make("div", {}, make("h2", {}, `Group ${i}: ${g.ops.join(" + ")}`));
    e.append(facts([["runs as", g.kind + (g.rule ? `, rule ${g.rule}` : "")], ["layer", g.layer], ["anchor", g.anchor], ["layout", g.layout], ["stores", g.dtype], ...sums([i])]));
    for (const c of calls) e.append(chip(`${data.kernels[c.kernel].name} ${c.grid.join("x")}`, () => { state.kernel = c.kernel; inspect(); }));
    e.append(make("h2", {}, "Why it ends there"), list(g.ends));
    return e;
  }
  const list = (texts, of) => { const e = make("ul", { class: "remarks" }); texts.forEach((t) => e.append(make("li", {}, of ? of(t) : t))); return e; };
  function edgePart(e) {
    const [a, b] = [state.scene.boxes[e.from].n, state.scene.boxes[e.to].n];
    const out = [make("h2", {}, `${a.lines[0]} → ${b.lines[0]}`), facts([["tensor", e.type]])];
    const found = data.borders.filter((x) => x.from !== x.to && a.groups.includes(x.from) && b.groups.includes(x.to));
    if (!found.length) out.push(make("p", { class: "weak" }, a.groups.some((g) => b.groups.includes(g)) ? "Both ends are in one kernel." : "No two kernels meet here."));
    for (const x of found) {
      out.push(make("h2", {}, "Why both are not one kernel: ", chip(`group ${x.from}`, () => chooseGroup(x.from)), " → ", chip(`group ${x.to}`, () => chooseGroup(x.to))));
      out.push(list(x.why.length ? x.why : ["No rule joins them."]));
    }
    return out;
  }
  function kernelPart(k) {
    const e = data.kernels[k], out = [make("h2", {}, `Kernel ${e.name}`)];
    out.push(facts([["workgroup", e.workgroup.join(" x ")], ["bindings", String(e.bindings)], ["shared memory", bytes(e.shared_bytes)],
      ["bounds", e.bounds_proved ? "proved" : "checked by the driver"], ["called", `${data.calls.filter((c) => c.kernel === k).length} times`], ["only where", e.when.join(" and ")]]));
    for (const d of e.driver) {
      const figures = ["subgroup_size", "registers", "scalar_registers", "live_registers", "spills", "fills", "scratch_bytes", "occupancy", "code_bytes", "instructions", "latency_cycles"];
      const said = figures.filter((f) => d[f] !== null).map((f) => [f.replace("_", " "), String(d[f]) + (f === "occupancy" ? ` subgroups a ${d.occupancy_of}` : "")]);
      out.push(make("h2", {}, `What the driver made of it: ${d.name}`), facts(said));
      if (d.isa) out.push(make("details", {}, make("summary", {}, "ISA"), make("pre", {}, d.isa)));
    }
    out.push(make("div", { class: "beside" },
      make("div", {}, make("h2", {}, "Schedule"), make("pre", { id: "schedule" }, e.schedule.join("\n") || "none")),
      make("div", {}, make("h2", {}, "WGSL"), make("pre", { id: "wgsl" }, e.wgsl))));
    return out;
  }
  function inspect() {
    const out = [];
    const b = state.scene.boxes.find((x) => x.n.key === state.box), n = b && b.n;
    if (n) {
      out.push(make("h2", {}, `${n.op} `, make("span", { class: "weak" }, n.name)));
      if (b.at.inside.length) out.push(make("button", { onclick: () => toggle(n.key) }, b.open ? "Close" : "Open"));
      out.push(facts([["result", n.results.join(", ")], ["layout", n.layout], ["attributes", n.category === "group" ? "" : n.attributes],
        ["constants", n.constants.map((c) => `${c.name}: ${c.type}`).join("; ")], ...(n.groups.length && n.category === "layer" ? sums(n.groups) : [])]));
    }
    if (state.edge !== null) out.push(...edgePart(state.scene.edges[state.edge]));
    const layer = n && n.category === "layer", groups = n ? n.groups : groupsOf(state.chosen);
    if (state.kernel !== null && !layer) out.push(...kernelPart(state.kernel));
    if (layer) {
      const order = groups.slice().sort((x, y) => (us(y) || 0) - (us(x) || 0));
      out.push(make("h2", {}, `${groups.length} groups`), more(order, 20, (i) => chip(`${data.groups[i].label}${us(i) === null ? "" : " " + ms(us(i))}`, () => chooseGroup(i), data.groups[i].ops.join(" + "))));
    } else if (groups.length) out.push(more(groups, 4, groupPart));
    if (state.chosen.size) out.push(make("h2", {}, "Source nodes"), chips([...state.chosen]));
    const remarks = layer ? [] : data.remarks.filter((r) => r.nodes.some((o) => state.chosen.has(o)));
    if (remarks.length) {
      out.push(make("h2", {}, "What passes say"));
      out.push(more(remarks, 12, (r) => make("p", { class: "remark " + r.kind }, make("b", {}, `${r.pass} ${r.kind}: `), r.message)));
    }
    if (!out.length) out.push(make("p", { class: "weak" }, "Choose a box: its source nodes, its group, the reasons and the kernel are shown here. + opens a layer, a line says why two kernels are not one. Arrows left and right step through the passes; / searches."));
    at("inspector").replaceChildren(...out);
  }

  // Tables. A column is a title and whether it holds numbers.
  const bar = (share) => make("span", { class: "bar", style: `--share:${Math.max(0, Math.min(1, share))};--c:${heat(Math.sqrt(share))}` });
  const TABLES = {
    groups: {
      head: [["group", true], ["layer", false], ["ops", false], ["time, ms", true], ["", false], ["FLOPs", true], ["bytes", true], ["runs as", false], ["layout", false], ["stores", false], ["error", true]],
      rows: () => {
        const most = Math.max(1e-9, ...data.groups.map((_, i) => us(i) || 0));
        return data.groups.map((g, i) => ({
          cells: [i, g.label, g.ops.join(" + "), us(i) === null ? null : us(i) / 1000, us(i), g.flops, g.bytes, g.kind + (g.rule ? ", " + g.rule : ""), g.layout || "", g.dtype || "", g.error ? g.error.rel_l2 : null],
          text: { 3: us(i) === null ? "" : (us(i) / 1000).toFixed(3), 4: us(i) === null ? "" : bar(us(i) / most), 10: g.error ? scientific(g.error.rel_l2) : "" },
          pick: () => chooseGroup(i), on: g.origins.some((o) => state.chosen.has(o)),
        }));
      },
      foot: () => data.times && make("div", {}, facts([["dispatches", `${data.times.dispatches_ms.toFixed(2)} ms, each timed alone (${data.times.source})`], ...data.times.rest.map((r) => [r.what, `${r.ms.toFixed(2)} ms`]), ["a run, end to end", `${data.times.latency_ms.toFixed(2)} ms on ${data.times.device}`]])),
    },
    kernels: {
      head: [["kernel", false], ["calls", true], ["time, ms", true], ["workgroup", false], ["shared bytes", true], ["bindings", true], ["type", false], ["bounds", false]],
      rows: () => data.kernels.map((k, i) => {
        const calls = data.calls.filter((c) => c.kernel === i), known = calls.filter((c) => c.us).map((c) => c.us.median);
        return { cells: [k.name, calls.length, known.length ? sum(known) / 1000 : null, k.workgroup.join("x"), k.shared_bytes, k.bindings, k.dtype, k.bounds_proved ? "proved" : "checked"],
          text: { 2: known.length ? (sum(known) / 1000).toFixed(3) : "" }, pick: () => chooseKernel(i), on: state.kernel === i };
      }),
    },
    memory: {
      head: [["constant", false], ["bytes", true]],
      top: () => memoryChart(),
      rows: () => data.memory.constants.map((c) => ({ cells: [c.name, c.bytes], pick: () => {}, on: false })),
    },
    remarks: {
      head: [["pass", false], ["kind", false], ["what", false], ["nodes", false]],
      rows: () => data.remarks.map((r) => ({ cells: [r.pass, r.kind, r.message, r.nodes.map((o) => source(o).name).slice(0, 4).join(", ")], pick: () => { if (r.nodes.length) select(null, r.nodes, groupsOf(new Set(r.nodes))); }, on: false })),
    },
  };
  function cell(v) {
    if (v === null || v === undefined) return "";
    return typeof v === "number" ? (Number.isInteger(v) ? number(v) : v.toFixed(1)) : v;
  }
  function rowsOf(t, name) {
    const sort = state.sort[name], rows = t.rows();
    if (!sort) return rows;
    const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : a === null ? -1 : b === null ? 1 : String(a).localeCompare(String(b)));
    return rows.sort((a, b) => compare(a.cells[sort.column], b.cells[sort.column]) * (sort.down ? -1 : 1));
  }
  function tableOf(t, name) {
    const sort = state.sort[name], head = make("tr");
    t.head.forEach(([title, numeric], c) => head.append(make("th", { class: numeric ? "n" : null, onclick: () => {
      state.sort[name] = { column: c, down: sort && sort.column === c ? !sort.down : numeric };
      table();
    } }, title + (sort && sort.column === c ? (sort.down ? " ▼" : " ▲") : ""))));
    const body = make("tbody");
    for (const r of rowsOf(t, name)) {
      const e = make("tr", { class: r.on ? "chosen" : null, onclick: r.pick });
      r.cells.forEach((v, c) => e.append(make("td", { class: t.head[c][1] ? "n" : null }, r.text && r.text[c] !== undefined && r.text[c] !== null ? r.text[c] : cell(v))));
      body.append(e);
    }
    return make("div", { class: "wide" }, make("table", {}, make("thead", {}, head), body));
  }
  function table() {
    const t = TABLES[state.view];
    if (!t) return;
    at("table").replaceChildren(...[t.top && t.top(), t.head && tableOf(t, state.view), t.foot && t.foot()].filter(Boolean));
  }

  // Memory: across the steps of a run, down the buffers of the pool, each as high as it is large.
  function memoryChart() {
    const m = data.memory, W = 1000, H = 420, steps = Math.max(1, m.steps.length);
    const used = m.steps.map((_, i) => sum(m.spans.filter((s) => s.first <= i && i <= s.last).map((s) => s.bytes)));
    const peak = used.indexOf(Math.max(...used, 0));
    const all = Math.max(1, sum(m.spans.map((s) => s.bytes)));
    const svg = shape("svg", { viewBox: `0 0 ${W} ${H}`, class: "chart", id: "memory" });
    let y = 0;
    for (const s of m.spans) {
      const h = (s.bytes / all) * H;
      const held = { x: (s.first / steps) * W, y, width: ((s.last + 1 - s.first) / steps) * W, height: Math.max(0.5, h - 0.5) };
      svg.append(shape("rect", { ...held, class: "held" }, shape("title", {}, `buffer ${s.buffer}: ${bytes(s.bytes)}, steps ${s.first} to ${s.last}`)));
      for (let i = s.first; i <= s.last; i += 1) {
        const step = m.steps[i];
        if (step.group === null || !step.buffers.includes(s.buffer)) continue;
        const r = shape("rect", { x: (i / steps) * W, y, width: Math.max(0.5, W / steps - 0.3), height: Math.max(0.5, h - 0.5), fill: pastel(step.group), "data-group": step.group }, shape("title", {}, `step ${i}: ${data.groups[step.group].label}, buffer ${s.buffer}: ${bytes(s.bytes)}`));
        r.addEventListener("click", () => chooseGroup(step.group));
        svg.append(r);
      }
      y += h;
    }
    const most = Math.max(...used, 1), line = used.map((u, i) => `${i ? "L" : "M"}${((i + 0.5) / steps) * W} ${120 - (u / most) * 110}`).join("");
    const curveOf = shape("svg", { viewBox: `0 0 ${W} 124`, class: "chart" }, shape("path", { d: line, class: "curve" }));
    const at_ = m.spans.filter((s) => s.first <= peak && peak <= s.last);
    return make("div", {},
      make("p", {}, `${bytes(m.weights)} of constants; activations ${bytes(m.activations_peak)} at the peak, ${bytes(m.activations_naive)} without sharing buffers.`),
      make("h2", {}, `Bytes in use, step by step; most at step ${peak}${m.steps[peak] && m.steps[peak].group !== null ? " (" + data.groups[m.steps[peak].group].label + ")" : ""}`), curveOf,
      make("h2", {}, "Buffers of the pool"), svg,
      make("p", { class: "weak" }, "Across: the steps of a run. Down: buffers, each as high as it is large. Coloured: a group reads or writes it."),
      make("h2", {}, `In use at the peak: ${at_.map((s) => `buffer ${s.buffer} (${bytes(s.bytes)})`).join(", ")}`), make("h2", {}, "Constants"));
  }
