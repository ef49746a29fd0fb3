
  // Passes, views, links, search.
  function step(to) {
    if (to < 0 || to >= data.stages.length) return;
    state.stage = to; state.edge = null;
    redraw(state.box);
    passes(); inspect(); link();
  }
  function side(before) {
    state.before = before; state.edge = null;
    redraw(state.box);
    sides(); inspect();
  }
  function sides() {
    const s = data.stages[state.stage], first = state.stage === 0;
    for (const b of document.querySelectorAll("[data-side]")) {
      b.classList.toggle("on", (b.dataset.side === "before") === state.before);
      b.setAttribute("aria-pressed", (b.dataset.side === "before") === state.before);
      b.disabled = first;
      b.title = `the graph ${b.dataset.side} ${s.label}`;
    }
  }
  function about(s, i) {
    if (i === 0) return "the model as it came";
    const time = s.ms === null ? "" : `, ${s.ms.toFixed(1)} ms`;
    if (!s.changed) return `no change${time}`;
    return s.nodes_before === null ? "" : `${s.nodes_before} to ${s.nodes_after} nodes${time}`;
  }
  function passes() {
    const buttons = data.stages.map((s, i) => make("button", {
      class: [i === state.stage ? "on" : "", s.changed ? "" : "same"].join(" ").trim() || null, "aria-current": i === state.stage ? "step" : null, onclick: () => { view("graph"); step(i); },
    }, s.label, make("small", {}, about(s, i))));
    const choice = make("select", { "aria-label": "Pass", onchange: (e) => { view("graph"); step(+e.target.value); } }, ...data.stages.map((s, i) => make("option", { value: i, selected: i === state.stage ? "" : null }, `${s.label}: ${about(s, i)}`)));
    // Passes in a row that changed nothing are one line that opens.
    const rows = [], same = (i) => i < buttons.length && !data.stages[i].changed;
    for (let i = 0, end; i < buttons.length; i = end) {
      for (end = i + 1; same(i) && same(end); ) end += 1;
      const run = buttons.slice(i, end), own = i <= state.stage && state.stage < end;
      rows.push(run.length < 2 ? run[0] : make("details", { open: own ? "" : null }, make("summary", {}, `${run.length} without changes`), ...run));
    }
    at("passes").replaceChildren(make("h2", {}, "Passes"), choice, ...rows);
    const on = at("passes").querySelector("button.on");
    if (on) at("passes").scrollTop = on.offsetTop - at("passes").clientHeight / 2;
    sides();
  }
  function view(name) {
    state.view = name;
    at("canvas").hidden = name !== "graph";
    at("table").hidden = name === "graph";
    document.body.dataset.view = name;
    for (const b of at("views").children) { b.classList.toggle("on", b.dataset.view === name); b.setAttribute("aria-selected", b.dataset.view === name); }
    if (name === "graph") { mark(); look(); } else table();
  }
  function colour(name) {
    state.colour = name;
    at("colour").value = name;
    draw();
  }

  // `#TABLE`; or `#PASS/NODE`: a key, the name of a box, a source node, a layer, or the layer of a group.
  // A group by the layer in its label, where no group before it has the same.
  const labelled = (i) => data.groups[i].label.split("+")[0];
  // A layer's path is its name without the number of its equal layers.
  const layerPath = (n) => n.op.replace(/ x[0-9]+$/, "");
  const groupName = (i) => (data.groups.findIndex((_, k) => labelled(k) === labelled(i)) === i ? labelled(i) : data.groups[i].layer);
  function link() {
    const n = state.box === null ? null : data.nodes.find((x) => x.key === state.box);
    const name = !n ? "" : n.category === "layer" ? layerPath(n) : n.category === "group" ? groupName(n.groups[0]) : n.name;
    const hash = state.view !== "graph" && !name ? "#" + state.view : "#" + encodeURI(data.stages[state.stage].id + (name ? "/" + name : ""));
    if (location.hash !== hash) history.replaceState(null, "", hash);
  }
  function follow() {
    const text = decodeURI(location.hash.slice(1));
    if (!text) return false;
    if (TABLES[text]) { view(text); return true; }
    const cut = text.indexOf("/"), id = cut < 0 ? text : text.slice(0, cut), name = cut < 0 ? "" : text.slice(cut + 1);
    const stage = data.stages.findIndex((s) => s.id === id);
    if (stage < 0) return false;
    view("graph");
    state.before = false;
    step(stage);
    if (!name) return true;
    const number_ = data.sources.findIndex((s) => s.name === name);
    const group = [(g, i) => labelled(i) === name, (g, i) => labelled(i).split(":")[0] === name, (g) => g.layer === name].map((is) => data.groups.findIndex(is)).find((i) => i >= 0);
    const tries = [(n) => n.key === name, (n) => n.category === "layer" && layerPath(n) === name, (n) => n.category === "layer" && layerPath(n).startsWith(name + "."),
      (n) => n.category === "group" && n.groups[0] === group, (n) => n.category !== "layer" && n.name === name,
      ...(number_ < 0 ? [] : [holds(number_)])];
    if (!tries.some(go)) at("found").textContent = `no ${name} in ${id}`;
    return true;
  }

  function matches(n, words) {
    return words.every((w) => {
      const [, key, value] = /^(op|name|group|dtype|layout|cat):(.*)$/.exec(w) || [null, null, w];
      if (key === "group") return n.groups.includes(+value);
      const field = { op: n.op, name: n.name, dtype: n.dtype, layout: n.layout || "", cat: n.category }[key];
      if (key) return String(field).toLowerCase().includes(value);
      return (n.name + " " + n.op + " " + n.origins.map((o) => source(o).name).join(" ")).toLowerCase().includes(value);
    });
  }
  const asked = () => at("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  // The boxes of a graph that a search finds, in layers and outside of them; what is in a fused group counts as the group.
  function hits(words) {
    const out = [], seen = new Set();
    const inner = (b) => matches(data.nodes[b.node], words) || b.inside.some((l) => data.levels[l].boxes.some(inner));
    const visit = (l) => data.levels[l].boxes.forEach((b) => {
      const n = data.nodes[b.node];
      if (n.category === "layer" || n.category === "control") b.inside.forEach(visit);
      if (n.category === "layer" || seen.has(n.key)) return;
      if (n.category === "group" ? inner(b) : matches(n, words)) { seen.add(n.key); out.push(n.key); }
    });
    visit(graphOf(shown()).level);
    return out;
  }
  function search() {
    const words_ = asked(), keys = words_.length ? hits(words_) : [], set = new Set(keys);
    state.found = new Set();
    const has = (b) => set.has(b.n.key) || (b.n.category === "layer" && !b.open && leaves(b.at).some((n) => set.has(n.key)));
    if (keys.length) state.scene.boxes.forEach((b, i) => { if (has(b)) state.found.add(i); });
    at("found").textContent = words_.length ? `${keys.length} found` : "";
    mark();
  }
  function next() {
    const keys = hits(asked());
    if (!keys.length) return;
    const key = keys[(keys.indexOf(state.box) + 1) % keys.length];
    view("graph");
    go((n) => n.key === key);
  }

  function tools() {
    const half = () => [at("graph").clientWidth / 2, at("graph").clientHeight / 2];
    const buttons = [["+", () => zoom(1.3, ...half()), "nearer"], ["−", () => zoom(1 / 1.3, ...half()), "farther"], ["Fit", fit, "all of it"], ["Top", top, "the beginning"],
      ["Open all", () => openAll(true), "open every layer"], ["Close all", () => openAll(false), "close every layer"]];
    const choice = make("select", { id: "colour", "aria-label": "Colours", onchange: (e) => colour(e.target.value) }, ...Object.keys(COLOURS).map((c) => make("option", { value: c }, `colour: ${c}`)));
    at("tools").append(choice, ...["before", "after"].map((s) => make("button", { "data-side": s, onclick: () => side(s === "before") }, s)), ...buttons.map(([title, act, say]) => make("button", { onclick: act, title: say }, title)));
  }
  // The file's name; its folder stands in the title.
  function heading() {
    at("model").textContent = data.model.split(/[/\\]/).pop() || data.model;
    at("model").title = data.model;
    at("about").textContent = data.about;
  }
  function start() {
    heading();
    for (const name of ["graph", ...Object.keys(TABLES)]) at("views").append(make("button", { role: "tab", "data-view": name, onclick: () => { view(name); link(); } }, (TABLES[name] && TABLES[name].title) || name[0].toUpperCase() + name.slice(1)));
    tools();
    at("search").addEventListener("input", search);
    at("search").addEventListener("keydown", (e) => { if (e.key === "Enter") next(); if (e.key === "Escape") { at("search").value = ""; search(); at("graph").focus(); } });
    document.addEventListener("keydown", (e) => {
      if (/^(INPUT|SELECT)$/.test(e.target.tagName)) return;
      if (e.key === "/" || (e.key === "f" && (e.ctrlKey || e.metaKey))) { e.preventDefault(); at("search").focus(); }
      if (e.target !== at("graph") && e.key === "ArrowRight" || e.key === "n") step(state.stage + 1);
      if (e.target !== at("graph") && e.key === "ArrowLeft" || e.key === "p") step(state.stage - 1);
      if (e.key === "b") side(!state.before);
      if (e.key === "Escape") clear();
    });
    state.camera = { x: 0, y: 0, z: 1 };
    const wanted = new URLSearchParams(location.search).get("colour");
    state.colour = COLOURS[wanted] ? wanted : data.times ? "time" : "work";
    at("colour").value = state.colour;
    steer(); draw(); view("graph"); passes(); inspect(); top();
    follow();
    window.addEventListener("hashchange", follow);
    window.addEventListener("resize", () => { look(); if (state.view === "timeline") timelineParts(); });
  }
  if (data.stages.length) start();
  else {
    heading();
    at("inspector").textContent = "This trace holds no stages: write one with `weft compile MODEL -o F.trace`.";
  }
})();
