
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
  // Where the time goes, for a reader who has chosen nothing.
  function longest() {
    const list = data.groups.map((g, i) => [us(i) || 0, i]).filter(([t]) => t > 0).sort((a, b) => b[0] - a[0]), all = sum(list.map(([t]) => t));
    if (!list.length) return [];
    return [make("h2", {}, "What takes longest"), ...list.slice(0, 8).map(([t, i]) => make("p", { class: "remark" }, chip(data.groups[i].label, () => chooseGroup(i)), ` ${(t / 1e3).toFixed(2)} ms, ${((100 * t) / all).toFixed(1)}\u00a0%`))];
  }
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
  // Milliseconds with their share of the run that all figures are of.
  const ofRun = (ms) => `${ms.toFixed(2)} ms, ${((100 * ms) / data.times.run_ms).toFixed(1)} %`;
  function facts(rows) {
    const e = make("dl");
    for (const [k, v] of rows) if (v !== null && v !== undefined && v !== "") e.append(make("dt", {}, k), make("dd", {}, v));
    return e;
  }
  function errorText(e) {
    return e ? `${scientific(e.rel_l2)} relative, ${scientific(e.max_abs)} at most, magnitude ${scientific(e.max_magnitude)}${e.pass ? "" : ": FAIL"}` : null;
  }
  function sums(groups) {
    const t = totals(groups), all = data.times ? data.times.run_ms * 1000 : 0;
    return [["time", t.us === null ? null : `${ms(t.us)}, ${((100 * t.us) / all).toFixed(1)} % of the run`], ["work", `${flops(t.flops)}, ${bytes(t.bytes)}`],
      ["rates", t.us ? `${(t.flops / t.us / 1e3).toFixed(1)} GFLOP/s, ${(t.bytes / t.us / 1e3).toFixed(1)} GB/s` : null], ["error", errorText(t.error)]];
  }
  function groupPart(i) {
    const g = data.groups[i], calls = data.calls.filter((c) => c.group === i);
    const e = make("div", {}, make("h2", {}, `Group ${i}: ${g.ops.join(" + ")}`));
    e.append(facts([["runs as", g.kind + (g.rule ? `, rule ${g.rule}` : "")], ["layer", g.layer], ["anchor", g.anchor], ["layout", g.layout], ["stores", g.stores], ...sums([i])]));
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
  // Why a kernel takes its time: the estimate by part beside what was measured, what bounds it, and the other choices.
  const PARTS = { arithmetic: "#4575b4", issue: "#74add1", shared_passes: "#fdae61", sectors: "#d73027", waves: "#999999", launch: "#542788" };
  function rates(k) {
    const calls = data.calls.filter((c) => c.kernel === k && c.us);
    const t = sum(calls.map((c) => c.us.median));
    if (!t) return null;
    const r = data.roofs, g = sum(calls.map((c) => c.flops)) / t / 1e3, b = sum(calls.map((c) => c.bytes)) / t / 1e3;
    const shares = [["arithmetic", r.f32_gflops ? g / r.f32_gflops : null], ["memory", r.gb_s ? b / r.gb_s : null]].filter((x) => x[1] !== null);
    return { us: t, calls: calls.length, gflops: g, gb_s: b, nearest: shares.sort((x, y) => y[1] - x[1])[0] || null };
  }
  function stack(parts, all) {
    const e = make("div", { class: "stack" });
    for (const [name, v] of Object.entries(parts)) if (v > 0) e.append(make("span", { class: "part", style: `width:${(100 * v) / all}%;background:${PARTS[name] || "#1565d8"}`, title: `${name.replace("_", " ")}: ${v.toFixed(1)} us` }));
    return e;
  }
  function slowPart(k) {
    const e = data.kernels[k], est = e.estimate, m = rates(k), out = [];
    if (!est && !m) return out;
    const each = m ? m.us / e.dispatches : null, all = Math.max(each || 0, est ? sum(Object.values(est.parts_us)) : 0);
    out.push(make("h2", {}, "Why it takes its time"));
    if (m) out.push(make("div", { class: "weak" }, `measured: ${each.toFixed(1)} us a dispatch${e.dispatches > 1 ? `, the mean of ${e.dispatches}` : ""}`), stack({ measured: each }, all));
    if (est) {
      out.push(make("div", { class: "weak" }, `estimated: ${est.us.toFixed(1)} us, most of it ${est.bound}` + (est.hidden_us > 0 ? `; ${est.hidden_us.toFixed(1)} us of the parts overlap` : "") + (m ? `; measured is ${(each / est.us).toFixed(2)} times that` : "")), stack(est.parts_us, all));
      out.push(make("div", { class: "keys" }, ...Object.entries(est.parts_us).filter((p) => p[1] > 0).map(([name, v]) => make("span", { style: `--c:${PARTS[name]}` }, `${name.replace("_", " ")} ${v.toFixed(1)} us`))));
    }
    const r = data.roofs, driver = e.driver.find((d) => d.occupancy !== null), call = data.calls.find((c) => c.kernel === k);
    const roof = (v, of, unit) => (of ? `${v.toFixed(1)} of ${of.toFixed(0)} ${unit} (${((100 * v) / of).toFixed(1)} %)` : `${v.toFixed(1)} ${unit}`);
    out.push(facts([
      ["arithmetic", m && roof(m.gflops, r.f32_gflops, "GFLOP/s") + (r.matrix_gflops ? `; matrix units reach ${r.matrix_gflops.toFixed(0)}` : "")],
      ["traffic", m && roof(m.gb_s, r.gb_s, "GB/s")],
      ["intensity", call && call.bytes ? `${(call.flops / call.bytes).toFixed(1)} FLOP a byte` + (r.f32_gflops && r.gb_s ? `; above ${(r.f32_gflops / r.gb_s).toFixed(1)} arithmetic is the roof, below it memory` : "") : null],
      ["roofs", m && (r.f32_gflops || r.gb_s) ? (r.from === "measured" ? r.taken : "those the profile says") : null],
      ["occupancy", driver ? `${driver.occupancy} subgroups a ${driver.occupancy_of}, says the driver` : est ? `${number(est.workgroups)} workgroups of ${est.threads} threads` : null],
    ]));
    const s = data.schedules.find((x) => x.function === e.function);
    if (s) {
      const more_ = s.others.filter((o) => o.us !== null), no = s.others.filter((o) => o.us === null);
      out.push(make("h2", {}, "Its choices, and what others would cost"), make("p", { class: "choices" }, s.choices.join(", ") || "none"));
      const t = make("table", { class: "others", id: "others" });
      for (const o of more_) t.append(make("tr", {}, make("td", {}, o.choice), make("td", { class: "n" }, `${o.us.toFixed(1)} us`), make("td", { class: "n" + (s.us && o.us < s.us ? " good" : "") }, s.us ? `x ${(o.us / s.us).toFixed(2)}` : ""), make("td", { class: "weak" }, o.bound)));
      out.push(make("div", { class: "wide" }, t));
      if (no.length) out.push(make("details", {}, make("summary", {}, `${no.length} that are not possible`), list(no.map((o) => `${o.choice}: ${o.refused}`))));
    }
    return out;
  }
  function kernelPart(k) {
    const e = data.kernels[k], out = [make("h2", {}, `Kernel ${e.name}`)];
    out.push(facts([["workgroup", e.workgroup.join(" x ")], ["bindings", String(e.bindings)], ["shared memory", bytes(e.shared_bytes)],
      ["bounds", e.bounds_proved ? "proved" : "checked by the driver"], ["dispatches", e.dispatches], ["only where", e.when.join(" and ")]]));
    out.push(...slowPart(k));
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
        ["constants", n.constants.map((c) => `${c.name}: ${c.type}`).join("; ")], ...(n.groups.length && /^(layer|control)$/.test(n.category) ? sums(n.groups) : [])]));
    }
    if (state.edge !== null) out.push(...edgePart(state.scene.edges[state.edge]));
    const row = state.view === "difference" && state.row;
    if (row) out.push(make("h2", {}, `${row.name} on both sides`), ...(row.reason ? [make("p", {}, row.reason)] : []), make("pre", { id: "both" }, row.kernels.join("\n") || "No kernels to compare."));
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
    document.body.toggleAttribute("data-chosen", out.length > 0);
    if (!out.length) out.push(make("p", { class: "weak" }, "Choose a box: its source nodes, its group, the reasons and the kernel are shown here. + opens a layer, a line says why two kernels are not one. Arrows left and right step through the passes; / searches."), ...longest());
    at("inspector").replaceChildren(...out);
  }

  // Tables. A column is a title and whether it holds numbers.
  // The end of a long name, which tells more than its beginning.
  const tail = (name) => make("span", { title: name }, name.length > 42 ? "…" + name.slice(-40) : name);
  const names = (list) => make("span", { title: list.join("\n") }, ...list.slice(0, 2).flatMap((n, i) => (i ? [", ", tail(n)] : [tail(n)])), list.length > 2 ? ` and ${list.length - 2} more` : "");
  // Results of one type that the same kernels make and read, as in equal layers: lists of them.
  function alike(list) {
    const own = Map.groupBy(data.calls, (c) => c.group), kernels = (g) => (own.get(g) || []).map((c) => c.kernel).join();
    const by = new Map();
    for (const l of list) {
      const key = [l.type, kernels(l.from), ...l.to.map(kernels)].join("|");
      if (!by.has(key)) by.set(key, []);
      by.get(key).push(l);
    }
    return [...by.values()].sort((a, b) => sum(b.map((l) => l.bytes)) - sum(a.map((l) => l.bytes)));
  }
  const bar = (share) => make("span", { class: "bar", style: `--share:${Math.max(0, Math.min(1, share))};--c:${heat(Math.sqrt(share))}` });
  const TABLES = {
    groups: {
      head: [["group", true], ["layer", false, "name"], ["ops", false, "name"], ["time, ms", true], ["", false], ["FLOPs", true], ["bytes", true], ["runs as", false], ["layout", false], ["stores", false], ["error", true]],
      rows: () => {
        const most = Math.max(1e-9, ...data.groups.map((_, i) => us(i) || 0));
        return data.groups.map((g, i) => ({
          cells: [i, g.label, g.ops.join(" + "), us(i) === null ? null : us(i) / 1000, us(i), g.flops, g.bytes, g.kind + (g.rule ? ", " + g.rule : ""), g.layout || "", g.stores || "", g.error ? g.error.rel_l2 : null],
          text: () => ({ 1: tail(g.label), 3: us(i) === null ? "" : (us(i) / 1000).toFixed(3), 4: us(i) === null ? "" : bar(us(i) / most), 10: g.error ? scientific(g.error.rel_l2) : "" }),
          pick: () => chooseGroup(i), on: g.origins.some((o) => state.chosen.has(o)),
        }));
      },
      foot: () => data.times && make("div", {}, facts([["dispatches", `${ofRun(data.times.dispatches_ms)} (${data.times.source})`], ...data.times.rest.map((r) => [r.count > 1 ? `${r.what} x${r.count}` : r.what, ofRun(r.ms)]), ["the run that these are of", `${data.times.run_ms.toFixed(2)} ms`], ["a run, end to end (median)", `${data.times.latency_ms.toFixed(2)} ms on ${data.times.device}`]])),
    },
    kernels: {
      head: [["kernel", false, "name"], ["calls", true], ["time, ms", true], ["estimate, ms", true], ["measured / estimate", true], ["most of it", false], ["GFLOP/s", true], ["GB/s", true], ["of the nearest roof", true], ["workgroup", false], ["shared bytes", true], ["type", false], ["bounds", false]],
      top: () => make("p", { class: "weak" }, "Choose a kernel: its estimate by part beside the time, roofs, occupancy, and what other choices of its schedule would cost." + (data.roofs.from === "measured" ? "" : " Roofs are those of the profile; weft bench --ceilings measures them.") + (data.roofs.doubt ? ` ${data.roofs.doubt}.` : "")),
      rows: () => data.kernels.map((k, i) => {
        const m = rates(i), est = k.estimate ? (k.estimate.us * k.dispatches) / 1000 : null;
        const near = m && m.nearest;
        return { cells: [k.name, k.dispatches, m ? m.us / 1000 : null, est, m && est ? m.us / 1000 / est : null, k.estimate ? k.estimate.bound : "", m ? m.gflops : null, m ? m.gb_s : null, near ? near[1] : null, k.workgroup.join("x"), k.shared_bytes, k.dtype, k.bounds_proved ? "proved" : "checked"],
          text: () => ({ 0: tail(k.name), 2: m ? (m.us / 1000).toFixed(3) : "", 3: est === null ? "" : est.toFixed(3), 4: m && est ? (m.us / 1000 / est).toFixed(2) : "", 8: near ? make("span", { title: near[1] > 1 ? "Above the roof: the data comes from caches, or the roof was measured while the device had other work." : null }, near[1] > 1 ? `above (${near[0]})` : `${(100 * near[1]).toFixed(1)} % (${near[0]})`) : "" }), pick: () => chooseKernel(i), on: state.kernel === i };
      }),
    },
    left: {
      title: "Left on the table",
      head: [["result of", false, "name"], ["read by", false, "name"], ["type", false], ["times", true], ["bytes in all", true], ["reads of an element", true], ["the trips, ms", true], ["again, ms", true], ["gain, ms", true], ["why it is not fused", false, "text"]],
      top: () => {
        const gains = data.left.map((l) => l.gain_ms).filter((g) => g > 0);
        return make("p", {}, data.left.length ? `${data.left.length} results go from kernel to kernel through memory: ${bytes(sum(data.left.map((l) => l.bytes)))} written and read again. ` +
          `${gains.length} of them would gain something, were both one kernel that is as fast in all else: ${sum(gains).toFixed(3)} ms at most, by the estimate. ` +
          "For the others, computing the result again where it is read several times costs more than the trip." : "No result goes from kernel to kernel through memory.");
      },
      rows: () => alike(data.left).map((all) => {
        const l = all[0], total = (of) => (of(l) === null ? null : sum(all.map(of)));
        const [size, trip, again, gain] = [total((x) => x.bytes), total((x) => x.moving_ms), total((x) => x.again_ms), total((x) => x.gain_ms)];
        return {
          cells: [data.groups[l.from].label, l.to.map((g) => data.groups[g].label).join(", "), l.type, all.length, size, l.reads, trip, again, gain, l.why.join(" ")],
          text: () => ({ 0: tail(data.groups[l.from].label), 1: names(l.to.map((g) => data.groups[g].label)), 4: bytes(size), 5: l.reads === null ? "not known" : l.reads.toFixed(1), 6: trip.toFixed(3), 7: again === null ? "" : again.toFixed(3), 8: gain === null ? "" : make("span", { class: gain > 0 ? "good" : "" }, gain > 0 ? gain.toFixed(3) : "none"), 9: l.why.length ? null : "no rule joins them" }),
          pick: () => chooseGroup(l.from), on: data.groups[l.from].origins.some((o) => state.chosen.has(o)),
        };
      }),
    },
    precision: {
      head: [["node", false, "name"], ["op", false], ["alone", true], ["accumulated", true], ["times that before", true], ["largest magnitude", true], ["of 65504", true], ["stores", false], ["f32 costs, ms", true], ["", false]],
      top: () => precisionTop(),
      rows: () => precision().map((p) => ({
        cells: [p.name, p.op, p.alone, p.sum, p.growth, p.magnitude, p.magnitude === null ? null : p.magnitude / 65504, p.stores, p.f32_ms, p.pass ? "ok" : "FAIL"],
        text: () => ({ 0: tail(p.name), 2: p.alone === undefined ? "" : scientific(p.alone), 3: p.sum === undefined ? "" : scientific(p.sum), 4: p.growth === null ? "" : p.growth.toFixed(2), 5: scientific(p.magnitude), 6: p.magnitude === null ? "" : make("span", { class: p.magnitude > 65504 ? "bad" : "" }, `${((100 * p.magnitude) / 65504).toFixed(2)} %`), 8: p.f32_ms === null ? "" : p.f32_ms.toFixed(4), 9: p.pass ? "ok" : make("span", { class: "bad" }, "FAIL") }),
        pick: () => { if (p.node !== null) chooseSource(p.node); }, on: p.node !== null && state.chosen.has(p.node),
      })),
    },
    difference: {
      head: [["layer", false, "name"], ["dispatches", false], ["here, ms", true], ["beside, ms", true], ["difference, ms", true], ["ratio", true], ["noise", true], ["why", false, "text"]],
      top: () => make("div", {}, make("p", { id: "verdict" }, make("b", {}, data.difference.line)), make("p", { class: "weak" }, `Here: ${data.difference.titles[0]}; beside: ${data.difference.titles[1]}. Times are ${data.difference.times}. Choose a layer for its kernels on both sides.`)),
      rows: () => data.difference.rows.map((r) => {
        const thousandths = (t) => (t === null ? null : t / 1e3), delta = ((r.us_beside || 0) - (r.us || 0)) / 1e3, text = (t) => (t === null ? "" : t.toFixed(3));
        return {
          cells: [r.name, r.dispatches.join(" → "), thousandths(r.us), thousandths(r.us_beside), delta, r.ratio, r.noise, r.reason || ""],
          text: () => ({ 0: tail(r.name), 2: text(thousandths(r.us)), 3: text(thousandths(r.us_beside)), 4: make("span", { class: r.changed ? (delta > 0 ? "bad" : "good") : "weak" }, `${delta > 0 ? "+" : ""}${delta.toFixed(3)}`), 5: r.ratio === null ? "" : r.ratio.toFixed(2), 6: data.difference.times !== "measured" || r.noise === null ? "" : `±${(100 * r.noise).toFixed(0)} %` }),
          pick: () => { state.row = r; if (r.groups.length) chooseGroup(r.groups[0]); else { inspect(); table(); } }, on: state.row === r,
        };
      }),
    },
    timeline: { top: () => timeline() },
    memory: {
      head: [["constant", false], ["bytes", true]],
      top: () => memoryChart(),
      rows: () => data.memory.constants.map((c) => ({ cells: [c.name, c.bytes], pick: () => {}, on: false })),
    },
    remarks: {
      head: [["pass", false], ["kind", false], ["what", false, "text"], ["nodes", false]],
      rows: () => data.remarks.map((r) => ({ cells: [r.pass, r.kind, r.message, r.nodes.map((o) => source(o).name).slice(0, 4).join(", ")], pick: () => { if (r.nodes.length) select(null, r.nodes, groupsOf(new Set(r.nodes))); }, on: false })),
    },
  };
  if (!data.difference) delete TABLES.difference;
  // The compared nodes: each error alone and with those before it, and by how much it grows there.
  function precision() {
    const [one, all] = [data.errors.alone, data.errors.accumulated], base = all || one;
    if (!base) return [];
    const by = (e) => new Map((e ? e.nodes : []).map((n) => [n.node, n]));
    const [alone, total] = [by(one), by(all)];
    const last = new Map(data.groups.flatMap((g, i) => g.origins.map((o) => [o, i]))), group = (node) => (last.has(node) ? last.get(node) : null);
    const of = new Map(base.nodes.map((n) => [group(n.node), n]));
    return base.nodes.map((n) => {
      const g = group(n.node), a = alone.get(n.node), s = total.get(n.node);
      const before = g === null ? [] : data.groups[g].reads.map((r) => of.get(r)).filter(Boolean).map((m) => total.get(m.node)).filter(Boolean).map((m) => m.rel_l2 || 0);
      return { node: n.node, group: g, name: n.name, op: n.node === null ? "" : source(n.node).op, alone: a && a.rel_l2, sum: s && s.rel_l2, growth: s && s.rel_l2 !== null && Math.max(0, ...before) > 0 ? s.rel_l2 / Math.max(...before) : null,
        magnitude: n.max_magnitude, dtype: (g !== null && data.groups[g].dtype) || "", stores: (g !== null && data.groups[g].stores) || "", f32_ms: g === null ? null : data.groups[g].f32_ms, keep: g === null ? n.name : data.groups[g].layer, pass: (!a || a.pass) && (!s || s.pass) };
    });
  }
  const CUT = 65504;
  function precisionTop() {
    const out = [], e = data.errors.alone || data.errors.accumulated, rows = precision();
    const kernels = data.groups.map((g, i) => [g, i]).filter(([g]) => g.dtype);
    const share = (of) => { const all = sum(kernels.map(of)); return all ? `${((100 * sum(kernels.filter(([g]) => g.dtype === "f16").map(of))) / all).toFixed(1)} %` : null; };
    out.push(make("h2", {}, "The part of kernels that read or write f16"), facts([["mixed precision", data.options.amp], ["of FLOPs", share(([g]) => g.flops)], ["of bytes", share(([g]) => g.bytes)], ["of the time", data.times ? share(([, i]) => us(i) || 0) : null]]));
    const graph = graphOf(data.stages.length - 1), casts = [];
    const visit = (l) => data.levels[l].boxes.forEach((b) => { const n = data.nodes[b.node]; if (n.category === "cast" && !casts.includes(n)) casts.push(n); b.inside.forEach(visit); });
    visit(graph.level);
    out.push(make("h2", {}, `${casts.length} casts in the program`), more(casts, 12, (n) => chip(`${n.name} to ${n.results.join(", ")}`, () => { step(data.stages.length - 1); view("graph"); go((m) => m.key === n.key); })));
    const kept = data.remarks.filter((r) => r.pass === "mixed-precision" && r.kind === "missed");
    if (kept.length) out.push(make("h2", {}, "What stays in f32, and why"), more(kept, 8, (r) => make("p", { class: "remark" }, r.message)));
    if (!e) return make("div", {}, ...out, make("p", { class: "weak" }, "No errors here: weft compare MODEL -o F.trace stores those of each node alone, with --cumulative the accumulated ones; weft report takes both traces."));
    const results = (data.errors.accumulated || e).results, large = rows.filter((r) => r.magnitude > CUT / 4);
    out.push(make("h2", {}, `Errors on ${e.device} against ${e.against}`));
    out.push(list([
      ...results.map((r) => `result ${r.name}: ${errorText(r)}`),
      ...[data.errors.alone, data.errors.accumulated].filter(Boolean).map((k) => k.beyond),
      ...lostRows(rows).slice(0, 1).map((r) => `in the run, ${r.name} is the first whose result is not finite`),
      large.length ? `${large.length} nodes have magnitudes beyond a quarter of 65504, where f16 ends; the largest is ${scientific(Math.max(...large.map((r) => r.magnitude)))} in ${large.reduce((a, b) => (b.magnitude > a.magnitude ? b : a)).name}` : `magnitudes end at ${scientific(Math.max(0, ...rows.map((r) => r.magnitude || 0)))}; f16 ends at 65504`,
    ]));
    out.push(errorChart(rows));
    out.push(...keepPart(rows, results));
    out.push(make("h2", {}, "Every compared node"));
    return make("div", {}, ...out);
  }
  // The first node of the run whose result is not finite, and those that read it in f16: everything behind it is lost.
  // Alone it does not show where its result is stored in f32.
  function lostRows(rows) {
    const first = rows.find((r) => r.sum === null);
    if (!first) return [];
    return [first, ...rows.filter((r) => r !== first && r.dtype === "f16" && r.group !== null && data.groups[r.group].reads.includes(first.group))];
  }
  // The nodes whose own error is largest, with what the result's error would be without it: errors of nodes that do not
  // depend on each other add as squares.
  const ROUNDING = 2 ** -11;
  function keepPart(rows, results) {
    const lost = lostRows(rows), own = rows.filter((r) => r.alone > 0 && r.f32_ms !== null && !lost.includes(r)).sort((a, b) => b.alone - a.alone), first = [...lost, ...own].slice(0, Math.max(8, lost.length));
    if (!first.length) return data.errors.alone ? [] : [make("p", { class: "weak" }, "Which nodes to keep in f32 is told from the errors of nodes alone: weft compare MODEL -o F.trace stores them.")];
    const whole = Math.max(0, ...results.map((r) => r.rel_l2 || 0)), out = first.filter((r) => r.alone > 2 * ROUNDING);
    const t = make("table", { id: "keep" }, make("tr", {}, ...["node", "alone", "result without it", "f32 costs"].map((h) => make("th", {}, h))));
    for (const r of first) {
      const left = results.some((x) => x.rel_l2 === null) ? null : Math.sqrt(Math.max(0, whole ** 2 - r.alone ** 2));
      t.append(make("tr", { onclick: () => r.node !== null && chooseSource(r.node) }, make("td", {}, r.keep), make("td", { class: "n" }, scientific(r.alone)), make("td", { class: "n" }, left === null ? "" : scientific(left)), make("td", { class: "n" }, r.f32_ms === null ? "" : `${r.f32_ms.toFixed(4)} ms`)));
    }
    const many = own.filter((r) => r.alone > ROUNDING / 4).length;
    const verdict = lost.length ? `Behind ${lost[0].name} nothing is finite: it reaches ${scientific(lost[0].magnitude)}, and f16 ends at 65504. Keep it first${lost.length > 1 ? `, and what reads it: ${lost.slice(1).map((r) => r.name).join(", ")}` : ""}.`
      : out.length ? `${out.length} nodes have more error of their own than two roundings of f16 (${scientific(2 * ROUNDING)}): keep these first.`
      : `No node has more error of its own than two roundings of f16 (${scientific(2 * ROUNDING)}): that of the result comes from ${many} nodes together.`;
    return [make("h2", {}, "Nodes to keep in f32 first"), make("p", {}, verdict), make("div", { class: "wide" }, t),
      make("p", { class: "weak" }, "The time is the estimate for results and constants in f32. weft compare --write-keep F finds the smallest list that passes, by measuring; --amp auto calibrates one."),
      make("pre", {}, first.map((r) => `--keep-f32 ${r.keep}`).join(" \\\n"))];
  }
  // Along the run: the accumulated error as a line, that of each node alone as dots, on a scale of powers of ten.
  function errorChart(rows) {
    const W = innerWidth <= 720 ? 420 : 1000, H = 220, all = rows.flatMap((r) => [r.alone, r.sum]).filter((v) => v > 0);
    if (!all.length) return make("p", { class: "weak" }, "All errors are 0.");
    const low = Math.floor(Math.log10(Math.min(...all))), high = Math.ceil(Math.log10(Math.max(...all)) + 1e-9) || low + 1;
    const x = (i) => 50 + ((i + 0.5) / rows.length) * (W - 60), y = (v) => 10 + (1 - (Math.log10(Math.max(v, 10 ** low)) - low) / Math.max(1, high - low)) * (H - 30);
    const svg = shape("svg", { viewBox: `0 0 ${W} ${H}`, class: "chart", id: "errors-chart" });
    for (let p = low; p <= high; p += 1) svg.append(shape("path", { d: `M50 ${y(10 ** p)}H${W - 10}`, class: "rule" }), shape("text", { x: 6, y: y(10 ** p) + 4 }, `1e${p}`));
    const line = rows.map((r, i) => [r.sum, i]).filter(([v]) => v > 0).map(([v, i], k) => `${k ? "L" : "M"}${x(i)} ${y(v)}`).join("");
    svg.append(shape("path", { d: line || "M0 0", class: "curve" }));
    rows.forEach((r, i) => { if (r.alone > 0) svg.append(shape("circle", { cx: x(i), cy: y(r.alone), r: 3, class: r.pass ? "dot" : "dot off" }, shape("title", {}, `${r.name}: alone ${scientific(r.alone)}`))); });
    svg.append(shape("text", { x: 50, y: H - 4 }, "nodes in the order they run; dots: alone, line: accumulated"));
    return svg;
  }
  function cell(v) {
    if (v === null || v === undefined) return "";
    return typeof v === "number" ? (Number.isInteger(v) ? number(v) : v.toFixed(1)) : v;
  }
  function rowsOf(t, name) {
    const sort = state.sort[name], rows = t.rows();
    if (!sort) return rows;
    const { compare: words } = new Intl.Collator();
    const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : a === null ? -1 : b === null ? 1 : words(String(a), String(b)));
    return rows.sort((a, b) => compare(a.cells[sort.column], b.cells[sort.column]) * (sort.down ? -1 : 1));
  }
  function tableOf(t, name) {
    const sort = state.sort[name], head = make("tr");
    t.head.forEach(([title, numeric], c) => head.append(make("th", { class: numeric ? "n" : null, onclick: () => {
      state.sort[name] = { column: c, down: sort && sort.column === c ? !sort.down : numeric };
      table();
    } }, title + (sort && sort.column === c ? (sort.down ? " ▼" : " ▲") : ""))));
    return make("div", { class: "wide" }, make("table", { class: "rows" }, make("thead", {}, head), ...bodies(t, rowsOf(t, name))));
  }
  function rowOf(t, r) {
    const e = make("tr", { class: r.on ? "chosen" : null, onclick: r.pick }), text = r.text ? r.text() : {};
    r.cells.forEach((v, c) => e.append(make("td", { "data-head": t.head[c][0], class: t.head[c][1] ? "n" : t.head[c][2] || null }, text[c] !== undefined && text[c] !== null ? text[c] : cell(v))));
    return e;
  }
  // So many rows are made at once; others when they come into view, or are found or printed. Until then an empty row has
  // their height, and their text where a browser's search finds it.
  const ROWS = 200;
  let parts = [];
  const nears = new IntersectionObserver((seen) => seen.forEach((e) => parts.find((p) => p.body === e.target)?.fill(e.isIntersecting)), { rootMargin: "400px", scrollMargin: "400px" });
  function bodies(t, rows) {
    nears.disconnect();
    parts = [];
    for (let from = 0; from === 0 || from < rows.length; from += ROWS) {
      const own = rows.slice(from, from + ROWS), body = make("tbody");
      let full = null, height = 24 * own.length;
      const fill = (wanted) => {
        if (wanted === full) return;
        if (full) height = body.offsetHeight;
        full = wanted;
        if (wanted) return body.replaceChildren(...own.map((r) => rowOf(t, r)));
        const text = make("div", { hidden: "until-found", onbeforematch: () => fill(true) }, own.map((r) => r.cells.join(" ")).join("\n"));
        body.replaceChildren(make("tr", { style: `height:${height}px` }, make("td", { colspan: t.head.length }, text)));
      };
      fill(from === 0);
      parts.push({ body, fill });
    }
    if (parts.length < 2) return [parts[0].body];
    parts.forEach((p) => nears.observe(p.body));
    // Columns are as wide as their longest cells, whatever rows are there.
    const longest = t.head.map((_, c) => rows.reduce((a, r) => (String(r.cells[c]).length > String(a.cells[c]).length ? r : a)));
    const widest = make("tbody", {}, ...[...new Set(longest)].map((r) => rowOf(t, { ...r, pick: () => {} })));
    widest.className = "widest";
    return [widest, ...parts.map((p) => p.body)];
  }
  addEventListener("beforeprint", () => parts.forEach((p) => p.fill(true)));
  addEventListener("afterprint", () => table());
  function table() {
    const t = TABLES[state.view];
    if (!t) return;
    at("table").replaceChildren(...[t.top && t.top(), t.head && tableOf(t, state.view), t.foot && t.foot()].filter(Boolean));
    if (state.view === "timeline") timelineParts();
  }

  // Does it for each of a list, and lets the page go on in between; the rest is left out once `owner` is not shown.
  async function inSlices(owner, list, each) {
    let since = performance.now();
    for (const x of list) {
      if (performance.now() - since > 10) {
        await pause();
        if (!owner.isConnected) return;
        since = performance.now();
      }
      each(x);
    }
  }
  // Memory: across the steps of a run, down the buffers of the pool, each as high as it is large.
  function memoryChart() {
    const m = data.memory, W = 1000, H = 420, steps = Math.max(1, m.steps.length);
    const used = new Array(m.steps.length).fill(0);
    for (const s of m.spans) for (let i = s.first; i <= s.last; i += 1) used[i] += s.bytes;
    const peak = used.indexOf(Math.max(...used, 0));
    const sizes = new Map(m.spans.map((s) => [s.buffer, s.bytes])), all = Math.max(1, sum([...sizes.values()]));
    const svg = shape("svg", { viewBox: `0 0 ${W} ${H}`, class: "chart", id: "memory-chart" });
    const tops = new Map();
    let below = 0;
    for (const [buffer, size] of sizes) { tops.set(buffer, below); below += (size / all) * H; }
    const label = (i) => (m.steps[i].group === null ? "a copy" : data.groups[m.steps[i].group].label);
    inSlices(svg, m.spans, (s) => {
      const y = tops.get(s.buffer), height = Math.max(0.5, (s.bytes / all) * H - 0.5);
      const told = (i) => shape("title", {}, `step ${i}: ${label(i)}; buffer ${s.buffer}, ${bytes(s.bytes)}, holds what ${label(s.first)} writes from step ${s.first} to ${s.last}`);
      svg.append(shape("rect", { x: (s.first / steps) * W, y, width: ((s.last + 1 - s.first) / steps) * W, height, class: "held" }, told(s.first)));
      for (let i = s.first; i <= s.last; i += 1) {
        const group = m.steps[i].group;
        if (group === null || !m.steps[i].buffers.includes(s.buffer)) continue;
        const r = shape("rect", { x: (i / steps) * W, y, width: Math.max(0.5, W / steps - 0.3), height, fill: pastel(group), "data-group": group }, told(i));
        r.addEventListener("click", () => chooseGroup(group));
        svg.append(r);
      }
    });
    const most = Math.max(...used, 1), line = used.map((u, i) => `${i ? "L" : "M"}${((i + 0.5) / steps) * W} ${120 - (u / most) * 110}`).join("");
    const curveOf = shape("svg", { viewBox: `0 0 ${W} 124`, class: "chart" }, shape("path", { d: line, class: "curve" }));
    const at_ = m.spans.filter((s) => s.first <= peak && peak <= s.last);
    return make("div", {},
      make("p", {}, `${bytes(m.weights)} of constants; activations ${bytes(m.activations_peak)} at the peak, ${bytes(m.activations_naive)} without sharing buffers.`),
      make("h2", {}, `Bytes in use, step by step; most at step ${peak}${m.steps[peak] && m.steps[peak].group !== null ? " (" + data.groups[m.steps[peak].group].label + ")" : ""}`), curveOf,
      make("h2", {}, "Buffers of the pool"), svg,
      make("p", { class: "weak" }, "Across: the steps of a run. Down: buffers, each as high as it is large. Grey: what a step wrote is still needed. Coloured: a group reads or writes it."),
      make("h2", {}, "In use at the peak"), list(at_.map((s) => `${bytes(s.bytes)}, buffer ${s.buffer}: written by ${label(s.first)} in step ${s.first}, used until step ${s.last} by ${label(s.last)}`)), make("h2", {}, "Constants"));
  }
