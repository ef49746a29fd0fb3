"use strict";
// Drives a report as a reader would, and tells the page around it what it saw.
(async function () {
  const seen = [];
  function expect(what, holds) {
    if (!holds) throw new Error(what);
    seen.push(what);
  }
  const all = (selector) => [...document.querySelectorAll(selector)];
  const one = (selector) => document.querySelector(selector);
  const place = () => one("#world").getAttribute("transform");
  const button = (text) => all("#tools button").find((b) => b.textContent === text);
  const click = (e) => e.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  const boxes = () => all("#graph g.box").length;
  const fills = () => all("#graph g.box:not(.frame) > rect").map((r) => r.getAttribute("fill")).join();
  const data = JSON.parse(one("#data").textContent);
  const narrow = innerWidth <= 720;
  function type(text) { one("#search").value = text; one("#search").dispatchEvent(new Event("input")); }
  function press(key, target) { (target || document.body).dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })); }
  function pointer(type, x, y) {
    one("#graph").dispatchEvent(new PointerEvent(type, { bubbles: true, clientX: x, clientY: y, pointerId: 1, isPrimary: true }));
  }
  const fits = () => document.documentElement.scrollWidth <= innerWidth;

  function camera() {
    const start = place();
    one("#graph").setPointerCapture = () => {};
    const r = one("#graph").getBoundingClientRect(), [x, y] = [r.left + r.width / 2, r.top + r.height / 2];
    pointer("pointerdown", x, y); pointer("pointermove", x + 60, y + 70); pointer("pointerup", x + 60, y + 70);
    const panned = place();
    expect("dragging pans", panned !== start);
    click(one("#graph"));
    one("#graph").dispatchEvent(new WheelEvent("wheel", { bubbles: true, cancelable: true, deltaY: -240, clientX: x, clientY: y }));
    expect("the wheel zooms", place() !== panned && !place().endsWith(panned.split(" ").pop()));
  }
  // Boxes beside each other never overlap, whatever is open.
  function apart() {
    const list = all("#graph g.box:not(.frame) > rect:first-of-type").map((r) => ["x", "y", "width", "height"].map((a) => +r.getAttribute(a)));
    return list.every(([x, y, w, h], i) => list.slice(i + 1).every(([p, q, v, u]) => x + w <= p + 0.1 || p + v <= x + 0.1 || y + h <= q + 0.1 || q + u <= y + 0.1));
  }
  function folding() {
    button("Close all").click();
    const closed = boxes();
    expect("closed layers are few boxes", closed > 2);
    button("Open all").click();
    const stage = data.stages.length - 1, leaves = new Set();
    const visit = (l) => data.levels[l].boxes.forEach((b) => {
      const n = data.nodes[b.node];
      leaves.add(n.key);
      if (n.category !== "group") b.inside.forEach(visit);
    });
    visit(data.graphs[data.stages[stage].graph].level);
    expect(`all ${leaves.size} boxes are drawn when every layer is open`, boxes() === leaves.size);
    expect("no two boxes overlap", apart());
    const group = one("#graph g.group text.fold"), before = boxes();
    click(group);
    expect("+ opens a group in place", boxes() > before && apart());
    click(one("#graph g.frame text.fold"));
    expect("− closes a box", boxes() < before + 30 && apart());
    button("Close all").click();
    expect("all layers close", boxes() === closed);
    const layer = one("#graph g.layer text.fold");
    if (layer) { click(layer); expect("+ opens a layer", boxes() > closed && apart()); }
    button("Close all").click();
  }
  function searching() {
    type("conv");
    expect("a search marks what it finds", all("#graph g.found").length > 0 && /^[1-9]\d* found$/.test(one("#found").textContent));
    type("no such node");
    expect("a search for nothing finds nothing", all("#graph g.found").length === 0 && one("#found").textContent === "0 found");
    type("op:conv"); press("Enter", one("#search"));
    expect("enter opens the layers around what it found, and chooses it", all("#graph g.chosen").length > 0);
    expect("its group is shown", /Group \d+/.test(one("#inspector").textContent));
    expect("its kernel is shown, the schedule beside it", one("#wgsl").textContent.includes("@compute") && one("#schedule").textContent.length > 0);
    expect("its estimate is shown by part, and what other choices would cost", !data.schedules.length || one("#inspector .stack .part") && one("#others td"));
    expect("reasons are shown", one("#inspector ul.remarks li") !== null);
    type("");
  }
  function passes() {
    const steps = all("#passes button"), on = steps.findIndex((b) => b.classList.contains("on"));
    expect("passes are listed", steps.length > 3 && on > 0);
    button("Open all").click();
    const after = boxes();
    button("before").click();
    expect("before shows the graph before the pass", boxes() !== after && button("before").classList.contains("on"));
    button("after").click();
    expect("after shows the other one again", boxes() === after);
    button("Close all").click();
    const closed = boxes();
    button("Open all").click(); press("ArrowLeft"); press("ArrowRight");
    expect("layers stay open from pass to pass", boxes() === after && closed <= after);
    steps[0].click();
    expect("a click goes to a pass", all("#passes button")[0].classList.contains("on"));
    expect("the first graph is another one", boxes() !== after);
    press("ArrowRight");
    expect("an arrow steps", all("#passes button")[1].classList.contains("on"));
    const choice = one("#passes select");
    choice.value = data.start; choice.dispatchEvent(new Event("change"));
    expect("the list of passes steps too", all("#passes button")[data.start].classList.contains("on"));
  }
  function colours() {
    const looks = new Set(), choice = one("#colour");
    const kinds = [...choice.options].map((o) => o.value);
    expect("six colours", ["time", "error", "layout", "dtype", "group", "work"].every((k) => kinds.includes(k)));
    for (const kind of kinds) {
      choice.value = kind; choice.dispatchEvent(new Event("change"));
      expect(`colour ${kind} has a legend`, all("#legend span").length > 0);
      looks.add(fills());
    }
    expect("colours differ", looks.size >= 4 && !fills().includes("undefined"));
  }
  function edges() {
    const border = data.borders.find((b) => b.why.length);
    for (const e of all("#graph path.hit")) {
      click(e);
      const why = one("#inspector").textContent.includes("Why both are not one kernel") && one("#inspector ul.remarks li");
      if (why && why.textContent.length > 40) {
        expect("a line says why both kernels are not one", border.why.length > 0);
        return;
      }
    }
    expect("no line has a reason, as no border has one", !border);
  }
  function links() {
    const group = data.groups.findIndex((g) => g.kind === "kernel" && g.anchor), layer = data.groups[group].layer;
    button("Close all").click();
    history.replaceState(null, "", "#" + encodeURI(`fuse-ops/${layer}`));
    dispatchEvent(new HashChangeEvent("hashchange"));
    expect(`a link leads to ${layer}`, all("#graph g.chosen").length === 1 && one("#inspector").textContent.includes(`Group ${group}:`));
    const address = location.hash;
    expect("the address names it", address.startsWith("#fuse-ops/") && address.length > "#fuse-ops/".length);
    press("Escape");
    button("Close all").click();
    history.replaceState(null, "", address);
    dispatchEvent(new HashChangeEvent("hashchange"));
    expect(`${decodeURI(address)} leads there too`, one("#inspector").textContent.includes(`Group ${group}:`));
    const source = data.sources[data.groups[group].origins[0]].name;
    history.replaceState(null, "", "#" + encodeURI(`${data.stages[0].id}/${source}`));
    dispatchEvent(new HashChangeEvent("hashchange"));
    expect("a link leads to a node of the model", all("#graph g.chosen").length > 0 && all("#passes button")[0].classList.contains("on"));
    history.replaceState(null, "", "#fuse-ops/no such node");
    dispatchEvent(new HashChangeEvent("hashchange"));
    expect("a wrong link is said", one("#found").textContent.includes("no such node"));
  }
  function tables() {
    for (const b of all("#views button").filter((b) => b.dataset.view !== "graph")) {
      b.click();
      expect(`${b.dataset.view} shows something`, one("#table").textContent.length > 20 && one("#canvas").hidden);
      expect(`${b.dataset.view} is not wider than the page`, fits());
    }
    one("#views [data-view=left]").click();
    expect("every result that goes through memory is in a row", data.left.length > 0 && all("#table tbody td:nth-child(4)").reduce((n, td) => n + +td.textContent, 0) === data.left.length);
    one("#views [data-view=precision]").click();
    const compared = data.errors.accumulated || data.errors.alone;
    expect("errors are drawn along the run", !compared || one("#errors-chart .dot, #errors-chart .curve") && one("#keep td"));
    one("#views [data-view=groups]").click();
    const column = (n) => all(`#table tbody td:nth-child(${n})`).map((td) => +td.textContent.replaceAll(",", ""));
    all("#table th")[5].click();
    const flops = column(6);
    expect("a column sorts", flops.length === data.groups.length && flops.every((v, i) => i === 0 || flops[i - 1] >= v));
    click(one("#table tbody tr"));
    expect("a row chooses its group", all("#table tr.chosen").length > 0);
    one("#views [data-view=graph]").click();
    expect("the graph marks it too", all("#graph g.chosen").length > 0);
  }
  function difference() {
    one("#views [data-view=difference]").click();
    expect("two compilations have a verdict", / dispatches, .* times as /.test(one("#verdict").textContent));
    expect("every layer of both is in a row", all("#table tbody tr").length === data.difference.rows.length && data.difference.rows.length > 0);
    click(one("#table tbody tr"));
    expect("a row shows the kernels of both sides", one("#both").textContent.includes(" | "));
    const choice = one("#colour");
    one("#views [data-view=graph]").click();
    choice.value = "difference"; choice.dispatchEvent(new Event("change"));
    expect("the graph says where time is lost", new Set(fills().split(",")).size > 1);
    press("Escape");
  }
  function timeline() {
    one("#views [data-view=timeline]").click();
    if (!data.timeline) { expect("without times the timeline says how to get them", one("#table").textContent.includes("weft bench")); return; }
    const tools = all("#timeline-tools button"), chart = () => one("#timeline-chart"), shown = () => one("#timeline-sums dd").textContent, whole = shown();
    const lanes = new Set(data.timeline.spans.map((s) => s.lane));
    expect("every lane has its name", all("#timeline-chart text.lane").map((t) => t.textContent).every((l) => lanes.delete(l)) && lanes.size === 0);
    expect("the axis has a scale", all("#timeline-chart text:not(.lane):not(.name)").length > 1);
    const sums = () => [...one("#timeline-sums dl").children].map((e) => e.textContent);
    const calls = data.timeline.spans.filter((s) => s.call !== null).length;
    expect("all dispatches are summed up", sums().includes("kernels") && sums()[sums().indexOf("kernels") + 1].startsWith(`${calls} dispatches`));
    tools[0].click();
    expect("+ shows less of the run", shown() !== whole);
    tools[4].click();
    expect("All shows all of it again", shown() === whole);
    const r = chart().getBoundingClientRect();
    chart().setPointerCapture = () => {};
    const drag = (type, part) => chart().dispatchEvent(new PointerEvent(type, { bubbles: true, clientX: r.left + part * r.width, clientY: r.top + 30, pointerId: 1, pointerType: "mouse" }));
    drag("pointerdown", 0.25); drag("pointermove", 0.5); drag("pointerup", 0.5);
    expect("a drag goes to a range", shown() !== whole);
    chart().dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
    expect("a double-click shows all of it", shown() === whole);
    click(one("#timeline-chart [data-call]"));
    expect("a bar chooses its group", /Group \d+/.test(one("#inspector").textContent) && one("#timeline-chart rect.chosen"));
    expect("the timeline is not wider than the page", fits());
    one("#views [data-view=graph]").click();
  }
  function drive() {
    expect("boxes are drawn", boxes() > 3);
    expect("edges are drawn", all("#graph path").length > 3);
    expect("the page is no wider than the window", fits());
    expect("a phone has a list of passes, a desk has buttons", (getComputedStyle(one("#passes select")).display !== "none") === narrow);
    camera(); folding(); searching(); passes(); colours(); edges(); links(); tables(); difference(); timeline();
    expect("the page is still no wider than the window", fits());
  }
  let result;
  // A report reads its data in parts.
  while (!one("#world")) await new Promise((done) => setTimeout(done, 20));
  try {
    drive();
    result = `ok, ${seen.length} things seen in ${innerWidth} x ${innerHeight}`;
  } catch (e) {
    result = `not so: ${e.message} (after: ${seen.join("; ")})`;
  }
  parent.postMessage(result, "*");
})();
