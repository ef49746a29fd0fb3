// Drives the compiler's page and its report with a network of 10,000 nodes: each step is a mark in Chromium's trace.
import { $, drive, drop, expect, idle, until } from "./seen.js";

const LAYERS = 5000, WIDTH = 8;
const lines = (count, line) => Array.from({ length: count }, (_, i) => line(i)).join("\n");
const type = `f32[1,${WIDTH}]`;
const network = `${lines(16, (i) => `const @w${i} : f32[${WIDTH},${WIDTH}] = random(${i})`)}
graph @main(%t0: ${type}) -> ("y": ${type}) {
${lines(16, (i) => `  %w${i} = const @w${i}`)}
${lines(LAYERS, (i) => `  %p${i} = matmul %t${i}, %w${i % 16}\n  %t${i + 1} = tanh %p${i}`)}
  return %t${LAYERS}
}`;

/** Does one thing, and waits until it is drawn. */
async function step(name, act) {
  performance.mark(name);
  await act();
  for (let i = 0; i < 4; i++) await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 20)));
}
drive(async () => {
  await until(() => $("state").textContent === "ready for a model" || !$("error").hidden);
  await step("the network is dropped, compiled and opened", () => drop("large.weft", network));
  expect("it is compiled and opened", $("error").hidden && /ready$/.test($("state").textContent));
  const inside = () => $("frame").contentDocument, all = (s) => [...inside().querySelectorAll(s)], one = (s) => inside().querySelector(s);
  await step("the report is opened", async () => {
    $("report").click();
    await idle();
    await until(() => inside()?.querySelector("#graph .box"));
    $("frame").scrollIntoView();
  });
  const boxes = () => all("#graph g.box").length, graph = () => one("#graph").getBoundingClientRect();
  const tool = (text) => all("#tools button").find((b) => b.textContent === text).click();
  const { MouseEvent, WheelEvent, KeyboardEvent, Event } = $("frame").contentWindow;
  const mouse = (Kind, type, more) => one("#graph").dispatchEvent(new Kind(type, { bubbles: true, cancelable: true, ...more }));
  const middle = () => { const r = graph(); return { clientX: r.left + r.width / 2, clientY: r.top + r.height / 2 }; };
  const few = () => boxes() > 3 && boxes() < 2000;
  expect("what is seen is drawn, and not all", few());
  await step("all of it is seen", () => tool("Fit"));
  expect("more boxes than can be read are patches", boxes() === 0 && all("#graph .patch").length > 0);
  // The middle of a box that is one of a patch.
  const [, x, y, w, h] = /M(\S+) (\S+)h(\S+)v(\S+)h\S+z$/.exec(all("#graph .patch").at(-1).getAttribute("d")).map(Number);
  const place = new DOMPoint(x + w / 2, y + h / 2).matrixTransform(one("#world").getScreenCTM());
  await step("a patch is chosen", () => mouse(MouseEvent, "click", { clientX: place.x, clientY: place.y }));
  expect("the box under the pointer is shown", /Group \d+/.test(one("#inspector").textContent) && one("#graph .chosen").getAttribute("d"));
  await step("the wheel zooms", () => mouse(WheelEvent, "wheel", { ...middle(), deltaY: -2000 }));
  expect("nearer they are boxes again", few());
  for (const key of ["ArrowDown", "ArrowRight", "ArrowUp"]) {
    await step("the picture moves", () => { for (let i = 0; i < 9; i++) mouse(KeyboardEvent, "keydown", { key }); });
    expect("what comes into view is drawn", few());
  }
  await step("a search", () => { one("#search").value = "tanh"; one("#search").dispatchEvent(new Event("input")); });
  expect("it finds all", /^5000 found$/.test(one("#found").textContent));
  await step("the next that is found", () => one("#search").dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true })));
  expect("it is chosen", all("#graph g.chosen").length === 1);
  const choice = one("#colour");
  for (const { value } of [...choice.options]) {
    await step(`colour ${value}`, () => { choice.value = value; choice.dispatchEvent(new Event("change")); });
  }
  await step("every layer is opened", () => tool("Open all"));
  await step("the first pass", () => one("#passes button").click());
  expect("its graph is drawn", few());
  await step("all of the first graph", () => tool("Fit"));
  for (const view of all("#views button").map((b) => b.dataset.view).filter((v) => v !== "graph")) {
    await step(`table ${view}`, () => one(`#views [data-view=${view}]`).click());
    const rows = () => all("#table table.rows tbody:not(.widest) tr");
    expect(`${view} has few rows at once`, rows().length < 1000);
    await step(`the end of ${view}`, () => one("#table").scrollTo(0, 1e9));
    await step(`the end of ${view}`, () => one("#table").scrollTo(0, 1e9));
    const last = rows().at(-1);
    expect(`the last row of ${view} is there`, !last || last.cells.length > 1);
    if (last) await step(`${view} is sorted`, () => one("#table th").click());
  }
  await step("the last pass", () => all("#passes button").at(-1).click());
  await step("a row is chosen", () => { one("#views [data-view=groups]").click(); all("#table tbody:not(.widest) tr").find((r) => r.cells.length > 1).click(); });
  expect("its group is shown", /Group \d+/.test(one("#inspector").textContent));
  await step("the graph again", () => one("#views [data-view=graph]").click());
  expect("it is marked", one("#graph .chosen"));
});
