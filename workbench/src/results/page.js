(() => {
  "use strict";
  const at = (id) => document.getElementById(id);
  const data = JSON.parse(at("data").textContent);
  // An element with attributes and children; texts are never read as HTML.
  function make(tag, attributes = {}, ...children) {
    const e = tag === "svg" || tag === "circle" || tag === "text" || tag === "path" ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [k, v] of Object.entries(attributes)) if (v !== null) k.startsWith("on") ? e.addEventListener(k.slice(2), v) : e.setAttribute(k, v);
    e.append(...children.filter((c) => c !== null && c !== undefined));
    return e;
  }
  const ms = (v) => (v === null || v === undefined ? "" : v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v >= 1 ? v.toFixed(2) : v.toFixed(3));
  const day = (seconds) => (seconds ? new Date(seconds * 1000).toISOString().slice(0, 10) : "");
  const precision = (e) => (e.dtype === "f16" ? "fp16" : "f32");
  const build = (e) => [e.env.weft, e.env.commit, e.env.profile === "release" ? null : e.env.profile && `${e.env.profile} build`].filter(Boolean).join(", ");

  // Options that are not the default, since rows with other options are other rows.
  const DEFAULTS = { amp: null, layout: "auto", fuse: "full", opt_level: 3, seed: null, device: null, swept: null };
  function options(e) {
    const all = { ...e.settings, threads: e.method.threads }, own = [];
    for (const [k, v] of Object.entries(all)) {
      if (v === null || v === undefined || DEFAULTS[k] === null || v === DEFAULTS[k] || (Array.isArray(v) && !v.length)) continue;
      own.push(`${k} ${v}`);
    }
    return own.join(", ");
  }
  const network = (e) => `${e.model} ${e.work.inputs.join(" ")}`;
  const place = (e) => [e.device.name, e.device.backend, precision(e), options(e)].filter(Boolean).join(", ");
  const numbers = (v) => v.split(/[.+-]/).map((n) => (/^\d+$/.test(n) ? +n : 0));
  function older(a, b) {
    const [x, y] = [numbers(a.env.weft), numbers(b.env.weft)], i = x.findIndex((n, k) => n !== (y[k] ?? 0));
    return i < 0 ? a.machine.before.at - b.machine.before.at : x[i] - (y[i] ?? 0);
  }

  // A row for each network, place and precision: its newest entry, with the others as its history.
  const rows = new Map();
  for (const e of data.entries) {
    const key = JSON.stringify([network(e), place(e)]);
    if (!rows.has(key)) rows.set(key, { key, network: network(e), place: place(e), history: [] });
    rows.get(key).history.push(e);
  }
  const all = [...rows.values()];
  for (const r of all) { r.history.sort(older); r.now = r.history[r.history.length - 1]; }
  const places = [...new Set(all.map((r) => r.place))].sort();
  const state = { base: places.find((p) => p.includes("f32")) ?? places[0], open: null, sort: null, down: false };

  const baseOf = (r) => all.find((o) => o.network === r.network && o.place === state.base);
  const ratio = (r) => { const b = baseOf(r); return b ? r.now.latency_ms.median / b.now.latency_ms.median : null; };
  // Deviation of the samples, as a part of the median.
  const spread = (e) => (e.latency_ms.plus_minus ?? e.latency_ms.stddev) / e.latency_ms.median;
  const COLUMNS = [
    ["network", (r) => r.now.model, "name"], ["input", (r) => r.now.work.inputs.join(" ")], ["device", (r) => r.now.device.name + (options(r.now) ? ` (${options(r.now)})` : "")],
    ["precision", (r) => precision(r.now)], ["ms", (r) => r.now.latency_ms.median, "n", ms], ["+-", (r) => spread(r.now), "n", (v) => `${(100 * v).toFixed(1)} %`],
    ["on the device", (r) => r.now.device_ms?.median ?? null, "n", ms], ["first run", (r) => r.now.compile_ms?.cold ?? null, "n", ms],
    ["GFLOP/s", (r) => (r.now.flops ? r.now.flops / r.now.latency_ms.median / 1e6 : null), "n", (v) => (v === null ? "" : v.toFixed(1))],
    ["error of fp16", (r) => r.now.against_f32?.rel_l2 ?? null, "n", (v) => (v === null ? "" : v.toExponential(1))],
    ["ratio", ratio, "n", (v) => (v === null ? "" : v.toFixed(2))], ["version", (r) => build(r.now)],
  ];

  function words(r) {
    const e = r.now;
    return [r.network, r.place, e.device.driver, e.device.type, build(e), e.env.os, e.env.system ?? ""].join(" ").toLowerCase();
  }
  function shown() {
    const wanted = at("search").value.toLowerCase().split(/\s+/).filter(Boolean), kind = at("precision").value;
    const list = all.filter((r) => (!kind || precision(r.now) === kind) && wanted.every((w) => words(r).includes(w)));
    const value = state.sort === null ? null : COLUMNS[state.sort][1];
    const by = (a, b) => (a === null ? 1 : b === null ? -1 : typeof a === "number" ? a - b : String(a).localeCompare(String(b)));
    const plain = (a, b) => by(a.network, b.network) || by(a.place, b.place);
    return list.sort((a, b) => (value ? (state.down ? -1 : 1) * by(value(a), value(b)) : 0) || plain(a, b));
  }

  function inner(head, lines) {
    const cell = (tag, text, i) => make(tag, { class: head[i][1] ? "n" : null }, text);
    return make("div", { class: "wide" }, make("table", { class: "inner" }, make("thead", {}, make("tr", {}, ...head.map((h, i) => cell("th", h[0], i)))),
      make("tbody", {}, ...lines.map((l) => make("tr", {}, ...l.map((c, i) => cell("td", c ?? "", i)))))));
  }
  const bar = (share) => make("span", { class: "share", style: `--share:${Math.min(1, share)}` });
  function layers(e) {
    if (!e.per_kernel.length) return [make("p", { class: "weak" }, "The file has no layers.")];
    const list = [...e.per_kernel].sort((a, b) => b.us_total - a.us_total), sum = list.reduce((s, l) => s + l.us_total, 0);
    const whole = e.spent ? e.spent.run_ms * 1e3 : sum, share = (us) => make("span", {}, `${((100 * us) / whole).toFixed(1)} %`, bar(us / whole));
    const lines = list.map((l) => [make("span", {}, (l.part ? `${l.part}: ` : "") + l.name), l.calls, (l.us_total / 1e3).toFixed(3), share(l.us_total), l.gflops.toFixed(1), l.gb_s.toFixed(1)]);
    const others = (e.spent?.rows ?? []).filter((r) => r.kind !== "kernel").map((r) => [make("span", { class: "weak" }, r.name), r.count || "", r.ms.toFixed(3), share(r.ms * 1e3), "", ""]);
    lines.push(...others);
    return [make("h2", {}, `Layers: ${list.length} kernels, ${ms(sum / 1e3)} ms together` + (e.spent ? `, in a run of ${ms(e.spent.run_ms)} ms` : "")), inner([["kernel", false], ["calls", true], ["ms", true], [e.spent ? "of the run" : "of all kernels", true], ["GFLOP/s", true], ["GB/s", true]], lines)];
  }
  function history(r) {
    const most = Math.max(...r.history.map((e) => e.latency_ms.median)), last = r.now.latency_ms.median;
    const lines = [...r.history].reverse().map((e) => [build(e), day(e.machine.before.at), e.device.driver, make("span", {}, ms(e.latency_ms.median), bar(e.latency_ms.median / most)), `${(100 * spread(e)).toFixed(1)} %`, (e.latency_ms.median / last).toFixed(2)]);
    return [make("h2", {}, `History: ${r.history.length === 1 ? "one entry" : `${r.history.length} entries`}`), inner([["version", false], ["day", false], ["driver", false], ["ms", true], ["+-", true], ["to the newest", true]], lines)];
  }
  function samples(e) {
    const list = e.latency_ms.samples, top = Math.max(...list) * 1.05, [w, h] = [560, 110];
    const x = (i) => 44 + ((w - 54) * (i + 0.5)) / list.length, y = (v) => h - 14 - ((h - 24) * v) / top;
    const m = y(e.latency_ms.median);
    return [make("h2", {}, `Samples: ${list.length} runs after ${e.method.warmup ?? "some"} for warming up`),
      make("svg", { class: "chart", viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": "The time of each run, in order" }, make("path", { class: "rule", d: `M44 ${m}H${w - 10}` }), make("text", { x: 4, y: m + 4 }, ms(e.latency_ms.median)), make("text", { x: 4, y: h - 4 }, "0 ms"), ...list.map((v, i) => make("circle", { class: "dot", cx: x(i), cy: y(v) }, make("title", {}, `${ms(v)} ms`))))];
  }
  function facts(e) {
    const c = e.ceilings, m = e.machine, list = make("dl", {});
    const sensors = (s) => [s.load === undefined ? null : `load ${s.load.toFixed(2)} of ${e.env.cpus} threads`, s.governor, ...(s.sensors ?? []).map((r) => `${r.sensor} ${r.value.toFixed(r.unit === "MHz" ? 0 : 1)} ${r.unit}`)].filter(Boolean).join(", ");
    const a = e.against_f32;
    const all = [
      ["device", `${e.device.name}: ${e.device.backend}, ${e.device.type}`], ["driver", e.device.driver], ["system", [e.env.system ?? e.env.os, e.env.arch].join(", ")], ["Weft", build(e)],
      ["options", options(e) || "the default ones"], ["runs", `shortest ${ms(e.latency_ms.min)}, 90 % below ${ms(e.latency_ms.p90)}, 99 % below ${ms(e.latency_ms.p99)} ms`],
      ["cold and warm", e.compile_ms ? `${ms(e.compile_ms.cold)} ms with compilation and the first run` + (e.compile_ms.warm ? `, ${ms(e.compile_ms.warm)} ms once more in the same process` : "") : ""],
      ["a second", e.throughput_per_s ? `${e.throughput_per_s.toFixed(1)} inputs with ${e.in_flight ?? 1} in flight` : ""],
      ["fp16", a ? `error ${a.rel_l2.toExponential(2)} of the results' norm, ${a.max_abs.toExponential(2)} at most; ${a.beyond ? `${a.beyond} of ${a.outputs} results are beyond the tolerance` : "within the tolerance"}` : ""],
      ["before", sensors(m.before)], ["after", sensors(m.after)],
      ["peaks", c ? `${c.fma_gflops.toFixed(0)} GFLOP/s, ${c.copy_gb_s.toFixed(0)} GB/s` : "not measured"], ["peaks are", e.doubt ?? ""],
      ["network", `digest ${e.work.digest.slice(0, 16)}, ${(e.flops / 1e9).toFixed(3)} GFLOP a run`], ["file", e.file],
    ];
    for (const [k, v] of all) if (v) list.append(make("dt", {}, k), make("dd", {}, v));
    return [make("h2", {}, `${e.model}, ${precision(e)}`), list];
  }
  function detail(r) {
    const base = make("button", { onclick: () => { state.base = r.place; draw(); } }, "Ratios to this row");
    return make("tr", {}, make("td", { class: "detail", colspan: COLUMNS.length }, make("div", { class: "halves" }, make("div", {}, ...facts(r.now), make("p", { class: "buttons" }, base)), make("div", {}, ...samples(r.now), ...history(r))), ...layers(r.now)));
  }

  function draw() {
    const list = shown(), body = [];
    for (const r of list) {
      const cells = COLUMNS.map(([head, value, kind, text]) => make("td", { class: kind ?? null, "data-head": head }, (text ?? String)(value(r))));
      const open = state.open === r.key, toggle = () => { state.open = open ? null : r.key; draw(); };
      const pressed = (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); toggle(); } };
      body.push(make("tr", { class: open ? "open" : null, tabindex: 0, "aria-expanded": open, "data-key": r.key, onclick: toggle, onkeydown: pressed }, ...cells));
      if (open) body.push(detail(r));
    }
    const sort = (i) => () => { state.down = state.sort === i && !state.down; state.sort = i; draw(); };
    const head = COLUMNS.map(([name, , kind], i) => make("th", { class: kind ?? null, "aria-sort": state.sort === i ? (state.down ? "descending" : "ascending") : null, onclick: sort(i) }, name));
    at("rows").tHead.replaceChildren(make("tr", {}, ...head));
    at("rows").tBodies[0].replaceChildren(...body);
    at("base").value = state.base;
    at("found").textContent = `${list.length} of ${all.length} rows`;
  }
  at("base").append(...places.map((p) => make("option", { value: p }, p)));
  at("precision").append(...[["", "all"], ["f32", "f32"], ["fp16", "fp16"]].map(([v, t]) => make("option", { value: v }, t)));
  at("base").addEventListener("change", (e) => { state.base = e.target.value; draw(); });
  for (const id of ["search", "precision"]) at(id).addEventListener("input", draw);
  // `#search=...` and `#open=N` are links to a search and to a row of it.
  const link = new URLSearchParams(location.hash.slice(1));
  at("search").value = link.get("search") ?? "";
  state.open = shown()[link.get("open") ?? -1]?.key ?? null;
  draw();
})();
