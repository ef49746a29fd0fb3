"use strict";
// Drives a report as a reader would, and writes what it saw into the page.
(function () {
  const seen = [];
  function expect(what, holds) {
    if (!holds) throw new Error(what);
    seen.push(what);
  }
  const all = (selector) => [...document.querySelectorAll(selector)];
  const one = (selector) => document.querySelector(selector);
  const place = () => one("#world").getAttribute("transform");
  function pointer(type, x, y) {
    one("#graph").dispatchEvent(new PointerEvent(type, { bubbles: true, clientX: x, clientY: y, pointerId: 1, isPrimary: true }));
  }
  function drive() {
    expect("boxes are drawn", all("#graph g.box").length > 3);
    expect("edges are drawn", all("#graph path").length > 3);
    const start = place();
    one("#graph").setPointerCapture = () => {};
    pointer("pointerdown", 500, 400); pointer("pointermove", 560, 470); pointer("pointerup", 560, 470);
    const panned = place();
    expect("dragging pans", panned !== start);
    one("#graph").dispatchEvent(new MouseEvent("click", { bubbles: true }));
    one("#graph").dispatchEvent(new WheelEvent("wheel", { bubbles: true, cancelable: true, deltaY: -240, clientX: 500, clientY: 400 }));
    expect("the wheel zooms", place() !== panned && !place().endsWith(panned.split(" ").pop()));

    const box = one("#search");
    box.value = "conv"; box.dispatchEvent(new Event("input"));
    const found = all("#graph g.found").length;
    expect("a search marks what it finds", found > 0 && one("#found").textContent === `${found} found`);
    box.value = "no such node"; box.dispatchEvent(new Event("input"));
    expect("a search for nothing finds nothing", all("#graph g.found").length === 0);
    box.value = "op:conv"; box.dispatchEvent(new Event("input"));
    box.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
    expect("enter chooses the next found", all("#graph g.chosen").length > 0);
    expect("its group is shown", /Group \d+/.test(one("#inspector").textContent));
    expect("its kernel is shown", one("#wgsl") !== null && one("#wgsl").textContent.includes("@compute"));
    expect("reasons are shown", one("#inspector ul.remarks") !== null);

    const steps = all("#passes button"), on = steps.findIndex((b) => b.classList.contains("on"));
    expect("passes are listed", steps.length > 3 && on > 0);
    const fused = all("#graph g.box").length;
    steps[0].click();
    expect("a click goes to a pass", all("#passes button")[0].classList.contains("on"));
    expect("the first graph is another one", all("#graph g.box").length !== fused);
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
    expect("an arrow steps", all("#passes button")[1].classList.contains("on"));
    const inner = all("#graph g.box:not(.frame)")[2];
    inner.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    expect("a box can be chosen", one("#inspector h2") !== null);

    for (const view of ["groups", "kernels", "remarks"]) {
      one(`#views [data-view=${view}]`).click();
      expect(`${view} are a table`, all("#table tbody tr").length > 0 && one("#canvas").hidden);
    }
    one("#views [data-view=groups]").click();
    const column = (n) => all(`#table tbody td:nth-child(${n})`).map((td) => +td.textContent.replaceAll(",", ""));
    all("#table th")[5].click();
    const flops = column(6);
    expect("a column sorts", flops.every((v, i) => i === 0 || flops[i - 1] >= v));
    one("#table tbody tr").click();
    expect("a row chooses its group", all("#table tr.chosen").length > 0);
    one("#views [data-view=graph]").click();
    expect("the graph marks it too", all("#graph g.chosen").length > 0);
  }
  const result = document.createElement("pre");
  result.id = "driven";
  try {
    drive();
    result.textContent = `ok, ${seen.length} things seen`;
  } catch (e) {
    result.textContent = `not so: ${e.message} (after: ${seen.join("; ")})`;
  }
  document.body.append(result);
})();
