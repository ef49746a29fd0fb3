"use strict";
(async function () {
  const pause = () => new Promise((done) => setTimeout(done));
  // Each field has a line: they are parsed one by one, so that a large report never stops the page for long.
  async function read() {
    const out = {}, fields = document.getElementById("data").textContent.slice(1, -1).split(",\n");
    for (let i = 0, since = performance.now(); i < fields.length; i += 1) {
      if (performance.now() - since > 20) { await pause(); since = performance.now(); }
      Object.assign(out, JSON.parse(`{${fields[i]}}`));
    }
    return out;
  }
  const data = await read();
  const SVG = "http://www.w3.org/2000/svg";
  const PAD = 14, HEADER = 22, CAPTION = 15;
  const at = (id) => document.getElementById(id);
  const state = {
    view: "graph", stage: data.start, before: false, colour: "work", open: new Set(), closed: new Set(), all: null,
    box: null, edge: null, chosen: new Set(), kernel: null, found: new Set(), camera: null, sort: {}, scene: null, paint: null, near: null, patches: null, wanted: null, time: null, row: null,
  };

  function make(tag, attributes, ...inside) {
    const e = document.createElement(tag);
    for (const [k, v] of Object.entries(attributes || {})) {
      if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
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
  const sum = (list) => list.reduce((a, b) => a + b, 0);
  const source = (i) => data.sources[i];
  const number = (n) => n.toLocaleString("en-US");
  function scaled(n, units, step) {
    let u = 0;
    while (n >= step && u < units.length - 1) { n /= step; u += 1; }
    return (u ? n.toFixed(n < 10 ? 2 : 1) : String(n)) + " " + units[u];
  }
  const bytes = (n) => scaled(n, ["B", "kB", "MB", "GB"], 1000);
  const flops = (n) => scaled(n, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"], 1000);
  const scientific = (x) => (x === null || x === undefined ? "not finite" : x.toExponential(2));
  const ms = (us) => (us / 1000).toFixed(us < 1000 ? 3 : 2) + " ms";

  // What is known of groups and boxes.
  const shown = () => (state.before ? Math.max(0, state.stage - 1) : state.stage);
  const graphOf = (stage) => data.graphs[data.stages[stage].graph];
  const us = (g) => (data.groups[g].us ? data.groups[g].us.run : null);
  function totals(groups) {
    const known = groups.map(us).filter((t) => t !== null);
    const errors = groups.map((g) => data.groups[g].error).filter(Boolean);
    return {
      us: known.length ? sum(known) : null,
      flops: sum(groups.map((g) => data.groups[g].flops)),
      bytes: sum(groups.map((g) => data.groups[g].bytes)),
      error: errors.length ? errors.reduce((a, b) => (b.rel_l2 === null || b.rel_l2 > a.rel_l2 ? b : a)) : null,
    };
  }
  // Boxes inside a box that are no layers themselves; a group is one.
  function leaves(box) {
    const n = data.nodes[box.node];
    if (!box.inside.length || n.category === "group") return [n];
    return box.inside.flatMap((l) => data.levels[l].boxes.filter((b) => data.nodes[b.node].category !== "terminal").flatMap(leaves));
  }
  // Layers are open as the graph begins, or all, or none; single boxes differ from that.
  const isOpen = (n, graph) => {
    const first = n.category === "layer" && state.all !== null ? state.all : graph.open.includes(n.key);
    return (first || state.open.has(n.key)) && !state.closed.has(n.key);
  };

  // Opens boxes in place: around each open box the places stretch until its inside fits. A map that only stretches keeps
  // the order of boxes, and none overlap.
  function stretch(spans) {
    const ends = [...new Set(spans.flatMap((s) => [s.from, s.to]))].sort((a, b) => a - b);
    const moved = new Map();
    ends.forEach((e, i) => {
      let place = i ? moved.get(ends[i - 1]) + e - ends[i - 1] : e;
      for (const s of spans) if (s.to === e) place = Math.max(place, moved.get(s.from) + s.need);
      moved.set(e, place);
    });
    return (v) => {
      if (!ends.length || v <= ends[0]) return v;
      let i = ends.findIndex((e) => e >= v);
      if (i < 0) return v + moved.get(ends[ends.length - 1]) - ends[ends.length - 1];
      const [a, b] = [ends[i - 1], ends[i]], [p, q] = [moved.get(a), moved.get(b)];
      return p + ((v - a) / (b - a)) * (q - p);
    };
  }
  function arrange(index, graph, depth) {
    const level = data.levels[index], inner = [], across = [], down = [];
    level.boxes.forEach((b, i) => {
      if (!b.inside.length || !isOpen(data.nodes[b.node], graph)) return;
      const parts = b.inside.map((l) => arrange(l, graph, depth + 1));
      const caption = parts.length > 1 ? CAPTION : 0;
      const width = sum(parts.map((p) => p.size[0] + PAD)) + PAD, height = Math.max(...parts.map((p) => p.size[1])) + HEADER + 2 * PAD + caption;
      inner[i] = { parts, caption, size: [Math.max(b.rect[2], width), Math.max(b.rect[3], height)] };
      // Each half by itself: boxes with one middle keep it.
      const middle = b.rect[0] + b.rect[2] / 2, need = inner[i].size[0] / 2;
      across.push({ from: b.rect[0], to: middle, need }, { from: middle, to: b.rect[0] + b.rect[2], need });
      down.push({ from: b.rect[1], to: b.rect[1] + b.rect[3], need: inner[i].size[1] });
    });
    const x = stretch(across), y = stretch(down);
    const out = { boxes: [], edges: [], captions: [], size: [x(level.size[0]), y(level.size[1])] };
    const place = [];
    const order = level.boxes.map((_, i) => i).sort((a, b) => (inner[b] ? 1 : 0) - (inner[a] ? 1 : 0));
    for (const i of order) {
      const b = level.boxes[i], [w, h] = inner[i] ? inner[i].size : [b.rect[2], b.rect[3]];
      const middle = [(x(b.rect[0]) + x(b.rect[0] + b.rect[2])) / 2, (y(b.rect[1]) + y(b.rect[1] + b.rect[3])) / 2];
      const rect = [middle[0] - w / 2, middle[1] - h / 2, w, h];
      place[i] = out.boxes.length;
      out.boxes.push({ at: b, n: data.nodes[b.node], rect, open: !!inner[i], depth });
      if (!inner[i]) continue;
      let left = rect[0] + PAD;
      inner[i].parts.forEach((p, k) => {
        const top = rect[1] + HEADER + PAD + inner[i].caption, base = out.boxes.length;
        if (inner[i].caption) out.captions.push({ x: left, y: top - CAPTION, text: data.levels[b.inside[k]].title });
        for (const c of p.boxes) out.boxes.push({ ...c, rect: [c.rect[0] + left, c.rect[1] + top, c.rect[2], c.rect[3]] });
        for (const e of p.edges) out.edges.push({ ...e, from: e.from + base, to: e.to + base, path: e.path.map((v, j) => v + (j % 2 ? top : left)) });
        for (const c of p.captions) out.captions.push({ ...c, x: c.x + left, y: c.y + top });
        left += p.size[0] + PAD;
      });
    }
    for (const e of level.edges) {
      const path = e.path.map((v, j) => (j % 2 ? y(v) : x(v)));
      const attach = (end, box, old, bottom) => {
        path[end] = box.rect[0] + ((e.path[end] - old[0]) / old[2]) * box.rect[2];
        path[end + 1] = box.rect[1] + (bottom ? box.rect[3] : 0);
      };
      attach(0, out.boxes[place[e.from]], level.boxes[e.from].rect, true);
      attach(path.length - 2, out.boxes[place[e.to]], level.boxes[e.to].rect, false);
      out.edges.push({ from: place[e.from], to: place[e.to], type: e.type, portal: e.portal, path });
    }
    return out;
  }

  // Colours.
  const HEAT = ["#fff7ec", "#fdd49e", "#fc8d59", "#d7301f", "#7f0000"], NONE = "#d5d9de";
  const mix = (a, b, t) => "#" + [1, 3, 5].map((i) => Math.round(parseInt(a.slice(i, i + 2), 16) * (1 - t) + parseInt(b.slice(i, i + 2), 16) * t).toString(16).padStart(2, "0")).join("");
  function heat(share) {
    const v = Math.min(1, Math.max(0, share)) * (HEAT.length - 1), i = Math.min(HEAT.length - 2, Math.floor(v));
    return mix(HEAT[i], HEAT[i + 1], v - i);
  }
  const pastel = (i) => `hsl(${Math.round(((i * 0.618034 + 0.58) % 1) * 360)} 62% 80%)`;
  const ink = (colour) => (/^#/.test(colour) && sum([1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16))) < 330 ? "#ffffff" : "#1c2430");
  const words = (of) => {
    const list = [...new Set(state.scene.boxes.flatMap((b) => leaves(b.at)).map(of).filter(Boolean))].sort();
    return { one: (n) => (of(n) ? pastel(list.indexOf(of(n))) : NONE), legend: [...list.map((w, i) => [pastel(i), w]), [NONE, "none"]] };
  };
  const category = (name) => data.categories.find((c) => c.name === name);
  function byError(e) {
    if (!e) return { one: () => NONE, legend: [[NONE, "no errors here: weft compare MODEL -o F.trace stores them"]] };
    const by = new Map(e.nodes.map((n) => [n.node, n]));
    const known = e.nodes.map((n) => n.rel_l2).filter((r) => r > 0);
    const [low, high] = [Math.log10(Math.min(...known, 1e-2)), Math.log10(Math.max(...known, 1e-8))];
    const of = (r) => heat((Math.log10(Math.max(r, 1e-12)) - low) / Math.max(high - low, 1e-9));
    const worst = (n) => n.origins.map((o) => by.get(o)).filter(Boolean).reduce((a, b) => (!a || b.rel_l2 === null || b.rel_l2 > a.rel_l2 ? b : a), null);
    return { one: (n) => { const w = worst(n); return w ? (w.rel_l2 === null ? "#7f0000" : of(w.rel_l2)) : NONE; }, whole: (b) => { const w = worst(b.n); return w ? (w.rel_l2 === null ? "#7f0000" : of(w.rel_l2)) : NONE; },
      legend: [0, 0.25, 0.5, 0.75, 1].map((p) => [heat(p), (10 ** (low + (high - low) * p)).toExponential(1)]).concat([[NONE, "stays in its kernel"]]) };
  }
  // From blue, where the other compilation is faster, to red, where it is slower; what changed less than the noise is pale.
  const FASTER = [22, 100, 200], SAME = [244, 244, 244], SLOWER = [200, 32, 26];
  function diverging(share) {
    const end = share < 0 ? FASTER : SLOWER, part = Math.min(1, Math.abs(share));
    return `rgb(${SAME.map((c, i) => Math.round(c + (end[i] - c) * part)).join(",")})`;
  }
  function byDifference() {
    // A row of several groups counts in the first of them.
    const delta = new Map(data.difference.rows.filter((r) => r.groups.length).map((r) => [r.groups[0], r.changed ? (r.us_beside || 0) - (r.us || 0) : 0]));
    const of = (groups) => { const own = groups.filter((g) => delta.has(g)); return own.length ? sum(own.map((g) => delta.get(g))) : null; };
    const most = Math.max(...state.scene.boxes.filter((b) => !b.open).map((b) => Math.abs(of(b.n.groups) || 0)), 1e-9);
    const share = (d) => Math.sign(d) * Math.sqrt(Math.abs(d) / most);
    const legend = [-1, -0.25, 0, 0.25, 1].map((p) => [diverging(share(p * most)), p === 0 ? "as fast" : `${p > 0 ? "+" : "-"}${ms(Math.abs(p) * most)}`]);
    return { whole: (b) => { const d = of(b.n.groups); return d === null ? NONE : diverging(share(d)); }, legend: [...legend, [NONE, "not timed"]] };
  }
  // Each gives the colour of a box and a legend; `one` colours nodes, `whole` boxes by their sums.
  const COLOURS = {
    work: () => ({ one: (n) => category(n.work).colour, legend: data.categories.filter((c) => state.scene.boxes.some((b) => b.n.work === c.name)).map((c) => [c.colour, c.title]) }),
    time: () => {
      if (!data.times) return { one: () => NONE, legend: [[NONE, "no times here: weft bench MODEL -o F.trace stores them"]] };
      const closed = state.scene.boxes.filter((b) => !b.open).map((b) => totals(b.n.groups).us || 0);
      const most = Math.max(...closed, 1e-9);
      const of = (t) => (t === null ? NONE : heat(Math.sqrt(t / most)));
      return { whole: (b) => of(totals(b.n.groups).us), legend: [0, 0.0625, 0.25, 0.5625, 1].map((p) => [heat(Math.sqrt(p)), ms(most * p)]) };
    },
    error: () => byError(data.errors.alone || data.errors.accumulated),
    ...(data.errors.alone && data.errors.accumulated ? { "error so far": () => byError(data.errors.accumulated) } : {}),
    ...(data.difference ? { difference: () => byDifference() } : {}),
    layout: () => words((n) => n.layout),
    dtype: () => words((n) => n.dtype),
    group: () => ({ one: (n) => (n.groups.length ? pastel(n.groups[0]) : NONE), legend: [[pastel(0), "one colour for each group"], [NONE, "in none"]] }),
  };

  // Drawing.
  function curve(p) {
    let d = `M${p[0]} ${p[1]}`;
    for (let i = 2; i < p.length; i += 2) {
      const [x0, y0, x1, y1] = [p[i - 2], p[i - 1], p[i], p[i + 1]], m = (y0 + y1) / 2;
      d += Math.abs(x0 - x1) < 0.05 ? `V${y1}` : `C${x0} ${m} ${x1} ${m} ${x1} ${y1}`;
    }
    return d;
  }
  function draw() {
    const graph = graphOf(shown());
    state.scene = arrange(graph.level, graph, 0);
    const palette = COLOURS[state.colour]();
    const [marks, kinds] = marksShown();
    state.paint = { palette, marks };
    at("graph").replaceChildren(shape("g", { id: "world" }));
    state.near = state.patches = null;
    at("legend").replaceChildren(...palette.legend.map(([c, title]) => make("span", { style: `--c:${c}` }, title)), ...kinds.map((k) => make("span", { class: "mark " + k }, k)));
    look(); search();
  }
  // A scene of at most so many boxes is drawn at once. Of a larger one that part is drawn which is near to what is seen;
  // where more boxes than that are seen, all of them as plain patches of colour.
  const MANY = 600, ALL = [-Infinity, -Infinity, Infinity, Infinity];
  const meets = ([x, y, w, h], [left, top, right, bottom]) => x <= right && x + w >= left && y <= bottom && y + h >= top;
  // The part of the scene that is seen, and so much of its size more on each side: left, top, right, bottom.
  function seenPart(around) {
    const c = state.camera, r = window_(), [x, y, w, h] = [-c.x / c.z, -c.y / c.z, r.width / c.z, r.height / c.z];
    return [x - around * w, y - around * h, x + (1 + around) * w, y + (1 + around) * h];
  }
  function reaches(e, part) {
    const end = (i) => [e.path[i], e.path[i + 1], 0, 0], n = e.path.length;
    if (part === ALL || e.portal) return part === ALL || meets(end(0), part) || meets(end(n - 2), part);
    let [l, t, r, b] = [Infinity, Infinity, -Infinity, -Infinity];
    for (let i = 0; i < n; i += 2) { l = Math.min(l, e.path[i]); r = Math.max(r, e.path[i]); t = Math.min(t, e.path[i + 1]); b = Math.max(b, e.path[i + 1]); }
    return meets([l, t, r - l, b - t], part);
  }
  function drawNear() {
    state.wanted = null;
    const s = state.scene, whole = s.boxes.length <= MANY, part = whole ? ALL : seenPart(0), held = state.near;
    const many = !whole && s.boxes.filter((b) => meets(b.rect, part)).length > MANY;
    if (held && !!state.patches === many && held[0] <= part[0] && held[1] <= part[1] && held[2] >= part[2] && held[3] >= part[3]) return;
    state.near = whole || many ? ALL : seenPart(0.25);
    state.patches = many ? drawPatches() : null;
    at("world").replaceChildren(...(many ? [state.patches] : drawPart(state.near)));
    mark();
  }
  function drawPart(part) {
    const s = state.scene, { palette, marks } = state.paint, out = [];
    const boxes = (open) => s.boxes.forEach((b, i) => { if (b.open === open && (part === ALL || meets(b.rect, part))) out.push(box(b, i, palette, marks)); });
    boxes(true);
    for (const c of s.captions) if (part === ALL || meets([c.x, c.y, 0, CAPTION], part)) out.push(shape("text", { x: c.x, y: c.y + 11, class: "caption" }, c.text));
    s.edges.forEach((e, i) => {
      if (!reaches(e, part)) return;
      const [p, n] = [e.path, e.path.length];
      const d = e.portal ? `M${p[0]} ${p[1]}v8M${p[n - 2]} ${p[n - 1]}v-8` : curve(p);
      const [a, b] = [s.boxes[e.from].n, s.boxes[e.to].n];
      const wide = shape("path", { d, class: "hit", "data-edge": i });
      wide.append(shape("title", {}, `${a.name} to ${b.name}: ${e.type}`));
      out.push(shape("path", { d, "data-line": i }), wide);
      if (e.portal) {
        out.push(shape("text", { x: p[0] + 3, y: p[1] + 8, class: "portal" }, "to " + b.name));
        out.push(shape("text", { x: p[n - 2] + 3, y: p[n - 1] - 3, class: "portal" }, "from " + a.name));
      }
    });
    boxes(false);
    return out;
  }
  const outlines = (boxes) => boxes.map(({ rect: [x, y, w, h] }) => `M${x} ${y}h${w}v${h}h${-w}z`).join("");
  // One path for all boxes of a colour, one for all edges.
  function drawPatches() {
    const s = state.scene, by = new Map();
    for (const b of s.boxes) {
      const colour = b.open ? "var(--side)" : colourOf(b, state.paint.palette);
      if (!by.has(colour)) by.set(colour, []);
      by.get(colour).push(b);
    }
    const lines = s.edges.filter((e) => !e.portal).map((e) => curve(e.path)).join("");
    return shape("g", { class: "patches" }, ...[...by].map(([c, boxes]) => shape("path", { d: outlines(boxes), style: `fill:${c}`, class: "patch" })), shape("path", { d: lines }),
      shape("path", { class: "found" }), shape("path", { class: "chosen" }));
  }
  // What the pass did to boxes, by key; nothing where it touched most of them, as fusion does.
  function marksShown() {
    const stage = data.stages[state.stage], marks = state.before ? stage.removed : stage.added;
    const all = state.scene.boxes.flatMap((b) => leaves(b.at)).filter((n) => n.category !== "terminal");
    const own = all.map((n) => marks[n.key]).filter(Boolean);
    return own.length * 3 > all.length * 2 ? [{}, []] : [marks, [...new Set(own)].sort()];
  }
  function colourOf(b, palette) {
    if (palette.whole) return palette.whole(b);
    return palette.one(b.n);
  }
  function box(b, i, palette, marks) {
    const n = b.n, [x, y, w, h] = b.rect;
    const key = (m) => marks[m.key];
    const marked = n.category === "layer" ? (b.open ? null : leaves(b.at).map(key).find(Boolean)) : key(n);
    const kind = b.open ? " frame" : n.category === "group" ? " group" : n.category === "layer" ? " layer" : "";
    const e = shape("g", { class: "box" + kind + (marked ? " " + marked : ""), "data-box": i }, shape("title", {}, n.name));
    const fill = b.open ? null : colourOf(b, palette);
    const rect = { x, y, width: w, height: h, rx: 4 };
    if (fill) rect.fill = fill;
    e.append(shape("rect", rect));
    if (n.category === "layer" && !b.open && palette.one) {
      // The parts of what is inside, as a stripe.
      const counts = new Map();
      leaves(b.at).forEach((m) => counts.set(palette.one(m), (counts.get(palette.one(m)) || 0) + 1));
      const all = sum([...counts.values()]);
      let left = x;
      for (const [colour, count] of counts) {
        e.append(shape("rect", { x: left, y: y + h - 5, width: (w * count) / all, height: 5, fill: colour, class: "stripe" }));
        left += (w * count) / all;
      }
    }
    const lines = b.open ? n.lines.slice(0, 1) : n.lines;
    lines.forEach((t, k) => {
      const text = shape("text", { x: x + 8, y: y + 15 + 15 * k }, t);
      if (k === 0) text.setAttribute("font-weight", "bold");
      if (fill) text.setAttribute("style", `fill:${ink(fill)}`);
      e.append(text);
    });
    if (b.at.inside.length) e.append(shape("text", { x: x + w - 12, y: y + 14, class: "fold", "data-fold": i, ...(fill ? { style: `fill:${ink(fill)}` } : {}) }, b.open ? "−" : "+"));
    return e;
  }
  const related = (n) => n.origins.some((o) => state.chosen.has(o));
  function mark() {
    const s = state.scene, chosen = (b) => state.box === b.n.key || (!state.box && !b.open && related(b.n));
    for (const e of at("graph").querySelectorAll("[data-box]")) {
      const i = +e.dataset.box;
      e.classList.toggle("chosen", chosen(s.boxes[i]));
      e.classList.toggle("found", state.found.has(i));
    }
    if (state.patches) {
      state.patches.querySelector(".found").setAttribute("d", outlines([...state.found].map((i) => s.boxes[i])));
      state.patches.querySelector(".chosen").setAttribute("d", outlines(s.boxes.filter(chosen)));
    }
    const own = s.boxes.findIndex((b) => b.n.key === state.box);
    for (const e of at("graph").querySelectorAll("[data-line]")) {
      const edge = s.edges[+e.dataset.line];
      e.classList.toggle("near", state.edge === +e.dataset.line || (own >= 0 && (edge.from === own || edge.to === own)));
    }
  }

  // The camera.
  function look() {
    const c = state.camera, world = at("world");
    if (!world || !c) return;
    world.setAttribute("transform", `translate(${c.x} ${c.y}) scale(${c.z})`);
    if (state.scene.boxes.length <= MANY) drawNear();
    else if (!state.wanted) state.wanted = requestAnimationFrame(drawNear);
  }
  const window_ = () => at("graph").getBoundingClientRect();
  function fit() {
    const s = state.scene, r = window_();
    const z = Math.min(1.5, Math.max(0.02, Math.min((r.width - 24) / s.size[0], (r.height - 40) / s.size[1])));
    state.camera = { z, x: (r.width - s.size[0] * z) / 2, y: Math.max(20, (r.height - s.size[1] * z) / 2) };
    look();
  }
  function top() {
    const s = state.scene, r = window_();
    const z = Math.min(1, Math.max(0.6, (r.width - 24) / s.size[0]));
    state.camera = { z, x: (r.width - s.size[0] * z) / 2, y: 12 };
    look();
  }
  function zoom(factor, x, y) {
    const c = state.camera, z = Math.min(6, Math.max(0.02, c.z * factor)), f = z / c.z;
    state.camera = { z, x: x - (x - c.x) * f, y: y - (y - c.y) * f };
    look();
  }
  function show(i) {
    const b = state.scene.boxes[i], r = window_(), z = Math.max(state.camera.z, 0.6);
    // On a phone what is known of it covers the lower part.
    const middle = innerWidth <= 720 ? r.height / 4 : r.height / 2;
    state.camera = { z, x: r.width / 2 - (b.rect[0] + b.rect[2] / 2) * z, y: middle - (b.rect[1] + Math.min(b.rect[3], r.height / z) / 2) * z };
    look();
  }
  // Draws anew; the box `key` stays where it is on the screen.
  function redraw(key) {
    const find = () => { const i = state.scene.boxes.findIndex((b) => b.n.key === key); return i < 0 ? null : state.scene.boxes[i].rect; };
    const old = key === null ? null : find();
    draw();
    const now = old && find();
    if (now) {
      state.camera.x += (old[0] + old[2] / 2 - now[0] - now[2] / 2) * state.camera.z;
      state.camera.y += (old[1] - now[1]) * state.camera.z;
      look();
    }
  }
  function change(n, graph) {
    const open = isOpen(n, graph);
    state.open.delete(n.key); state.closed.delete(n.key);
    if (isOpen(n, graph) === open) (open ? state.closed : state.open).add(n.key);
  }
  function toggle(key) {
    change(data.nodes.find((n) => n.key === key), graphOf(shown()));
    redraw(key);
  }
  // Opens or closes every layer. Fused groups close.
  function openAll(open) {
    state.all = open; state.open.clear(); state.closed.clear();
    draw(); open ? top() : fit();
  }
  // Opens the boxes around the first box that `is` holds for, and gives its key.
  function reveal(is) {
    const graph = graphOf(shown());
    const visit = (l) => {
      const level = data.levels[l].boxes.map((b) => [b, data.nodes[b.node]]), own = level.find(([, n]) => is(n));
      if (own) return [own[1]];
      for (const [b, n] of level) for (const inner of b.inside) { const path = visit(inner); if (path) return [n, ...path]; }
      return null;
    };
    const path = visit(graph.level);
    if (!path) return null;
    path.slice(0, -1).filter((n) => !isOpen(n, graph)).forEach((n) => change(n, graph));
    draw();
    return path[path.length - 1].key;
  }
  // The box under the pointer; where boxes are patches, the nearest one, or the innermost frame there.
  function boxUnder(e) {
    const own = e.target.closest("[data-box]"), { boxes } = state.scene;
    if (own || !state.patches) return own ? +own.dataset.box : -1;
    const r = window_(), c = state.camera, [x, y] = [(e.clientX - r.left - c.x) / c.z, (e.clientY - r.top - c.y) / c.z];
    const near = 4 / c.z, middle = ([left, top, w, h]) => Math.hypot(left + w / 2 - x, top + h / 2 - y);
    let best = -1;
    boxes.forEach((b, i) => { if (!b.open && meets(b.rect, [x - near, y - near, x + near, y + near]) && (best < 0 || middle(b.rect) < middle(boxes[best].rect))) best = i; });
    return best >= 0 ? best : boxes.findLastIndex((b) => meets(b.rect, [x, y, x, y]));
  }
  function steer() {
    const svg = at("graph"), pointers = new Map();
    let moved = false, start = null;
    svg.addEventListener("wheel", (e) => {
      e.preventDefault();
      const r = window_();
      if (e.ctrlKey || !e.shiftKey) zoom(Math.exp(-e.deltaY * 0.0015), e.clientX - r.left, e.clientY - r.top);
      else { state.camera.x -= e.deltaY; look(); }
    }, { passive: false });
    svg.addEventListener("pointerdown", (e) => { pointers.set(e.pointerId, [e.clientX, e.clientY]); start = [e.clientX, e.clientY]; if (pointers.size === 1) moved = false; });
    svg.addEventListener("pointermove", (e) => {
      const from = pointers.get(e.pointerId);
      if (!from) return;
      if (!moved && Math.hypot(e.clientX - start[0], e.clientY - start[1]) < 4) return;
      if (!moved) svg.setPointerCapture(e.pointerId);
      moved = true;
      svg.classList.add("moving");
      const other = [...pointers].filter(([id]) => id !== e.pointerId).map(([, p]) => p)[0], r = window_();
      if (other) zoom(Math.hypot(e.clientX - other[0], e.clientY - other[1]) / Math.max(1, Math.hypot(from[0] - other[0], from[1] - other[1])), other[0] - r.left, other[1] - r.top);
      else { state.camera.x += e.clientX - from[0]; state.camera.y += e.clientY - from[1]; look(); }
      pointers.set(e.pointerId, [e.clientX, e.clientY]);
    });
    const end = (e) => { pointers.delete(e.pointerId); svg.classList.remove("moving"); };
    svg.addEventListener("pointerup", end);
    svg.addEventListener("pointercancel", end);
    svg.addEventListener("click", (e) => {
      if (moved) { moved = false; return; }
      const fold = e.target.closest("[data-fold]"), hit = boxUnder(e), edge = e.target.closest("[data-edge]");
      if (fold) toggle(state.scene.boxes[+fold.dataset.fold].n.key);
      else if (edge) chooseEdge(+edge.dataset.edge);
      else hit >= 0 ? choose(hit) : clear();
    });
    svg.addEventListener("dblclick", (e) => {
      const hit = state.scene.boxes[boxUnder(e)];
      if (hit && hit.at.inside.length) toggle(hit.n.key);
    });
    svg.addEventListener("keydown", (e) => {
      const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[e.key];
      if (step) { state.camera.x += step[0]; state.camera.y += step[1]; look(); e.preventDefault(); }
      if (e.key === "Enter" && state.box) toggle(state.box);
    });
  }
