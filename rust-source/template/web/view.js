// What a page shows of a network: inputs, results, and a table of what each dispatch takes.
import { ARRAYS, elementsFor, readNpy, readNpz, writeNpz } from "./arrays.js";
import { computations, open } from "./runner.js";

export const $ = (id) => document.getElementById(id);
export const made = (tag, text, parent) => parent.appendChild(Object.assign(document.createElement(tag), { textContent: text }));
const size = (t) => t.shape.reduce((a, b) => a * b, 1);
const type = (t) => `${t.dtype}[${t.shape.join(", ")}]`;
const given = new Map();
let network, texts, times = null, latency = null, order = 0;

$("network").innerHTML = `
<section id="inputs" hidden>
  <h2>Inputs</h2>
  <p>Drawn from a seed, or from a file .npy, or from a file .npz that has all of them. Nothing leaves this machine.</p>
  <ul id="tensors"></ul>
  <label>.npz <input type="file" id="npz" accept=".npz"></label>
  <p><button id="run">Run</button> <button id="time">Time each kernel</button></p>
</section>
<section id="results" hidden><h2>Results</h2><ul id="outputs"></ul><p><button id="save">Save as .npz</button></p></section>
<section id="kernels" hidden>
  <h2>Dispatches</h2>
  <p id="method"></p>
  <div id="wide"><table><thead><tr></tr></thead><tbody></tbody></table></div>
</section>
<section id="shader" hidden><h2 id="entry"></h2><pre id="wgsl"></pre></section>`;

export function state(text) { $("state").textContent = text; }
export function progress(what, done, all) {
  state(`${what}: ${done} of ${all}`);
  Object.assign($("progress"), { hidden: done === all, max: all, value: done });
}
export function failed(e) {
  Object.assign($("error"), { hidden: false, textContent: e.message ?? String(e) });
  state("failed");
}
/** Does `f` alone, with the buttons off; an error becomes a sentence. */
export async function busy(f) {
  const buttons = [...document.querySelectorAll("button:not(.always)")];
  buttons.forEach((b) => (b.disabled = true));
  $("error").hidden = true;
  try {
    await f();
  } catch (e) {
    failed(e);
  }
  $("progress").hidden = true;
  buttons.forEach((b) => (b.disabled = false));
  [$("run"), $("time")].forEach((b) => (b.disabled = network === undefined || network.lost !== null));
}
/** Gives the reader a file. */
export function download(name, bytes, type = "application/octet-stream") {
  const url = URL.createObjectURL(new Blob([bytes], { type }));
  Object.assign(document.createElement("a"), { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1e4);
}

/** Numbers from a seed: the same in every browser. */
function drawn(t, seed) {
  let s = seed >>> 0;
  const next = () => {
    s = (s + 0x6d2b79f5) >>> 0;
    let x = Math.imul(s ^ (s >>> 15), 1 | s);
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
  const numbers = new ARRAYS[t.dtype](size(t));
  for (let i = 0; i < numbers.length; i++) {
    const x = next();
    // Halves between 1 and 2 in size, by their bits; small integers.
    if (t.dtype === "f16") numbers[i] = 0x3c00 | ((x * 1024) & 0x3ff);
    else if (t.dtype === "bf16") numbers[i] = 0x3f80 | ((x * 128) & 0x7f);
    else if (t.dtype === "f32" || t.dtype === "f64") numbers[i] = 2 * x - 1;
    else numbers[i] = t.size === 8 ? BigInt(Math.floor(2 * x)) : Math.floor(2 * x);
  }
  return numbers;
}

function showInputs() {
  $("tensors").replaceChildren();
  for (const t of network.inputs) {
    const row = made("li", `${t.name}: ${type(t)} `, $("tensors"));
    const file = Object.assign(made("input", "", row), { type: "file", accept: ".npy", ariaLabel: `file for ${t.name}` });
    file.onchange = () => busy(async () => {
      given.set(t.name, elementsFor(t, readNpy(new Uint8Array(await file.files[0].arrayBuffer()))));
      state(`${t.name} is from ${file.files[0].name}`);
    });
  }
  $("npz").onchange = () => busy(async () => take(await readNpz(new Uint8Array(await $("npz").files[0].arrayBuffer()))));
  $("inputs").hidden = false;
}
function take(arrays) {
  for (const t of network.inputs) {
    const array = arrays.get(t.name);
    if (!array) throw Error(`the file has no array \`${t.name}\`; it has ${[...arrays.keys()].join(", ")}`);
    given.set(t.name, elementsFor(t, array));
  }
  state("the inputs are from the file");
}
function inputs() {
  return Object.fromEntries(network.inputs.map((t, i) => [t.name, given.get(t.name) ?? drawn(t, i)]));
}

function half(bits) {
  const [e, f] = [(bits >> 10) & 31, bits & 1023];
  const x = e === 0 ? f * 2 ** -24 : e === 31 ? (f ? NaN : Infinity) : (1 + f / 1024) * 2 ** (e - 15);
  return bits & 0x8000 ? -x : x;
}
function numbers(t, array) {
  if (t.dtype === "f16") return Array.from(array, half);
  if (t.dtype === "bf16") return [...new Float32Array(Uint32Array.from(array, (b) => b << 16).buffer)];
  return array;
}
function showResults({ outputs, shapes, ms }) {
  $("outputs").replaceChildren();
  const results = network.outputs.map((t) => ({ ...t, shape: shapes[t.name] }));
  for (const t of results) {
    const values = numbers(t, outputs[t.name]);
    const first = Array.from(values.slice(0, 6), (x) => (typeof x === "bigint" ? x : +Number(x).toPrecision(5))).join(", ");
    made("li", `${t.name}: ${type(t)} = ${first}${values.length > 6 ? ", ..." : ""} `, $("outputs"));
  }
  $("save").onclick = () => download("results.npz", writeNpz(results, outputs));
  latency = ms;
  showTable();
  $("results").hidden = false;
  state(`a run took ${ms.toFixed(2)} ms, with upload's end, readback and the browser's part`);
}

const COLUMNS = [
  ["#", (r) => r.i, (n) => n + 1],
  ["us", (r) => r.us, (x) => x?.toFixed(1) ?? ""],
  ["share", (r) => r.share, (x) => (x === undefined ? "" : `${(100 * x).toFixed(1)}%`)],
  ["layer", (r) => r.label, String],
  ["GFLOP/s", (r) => (r.us && r.grid ? r.flops / r.us / 1e3 : undefined), (x) => x?.toFixed(1) ?? ""],
  ["GB/s", (r) => (r.us && r.grid ? r.bytes / r.us / 1e3 : undefined), (x) => x?.toFixed(1) ?? ""],
  ["workgroups", (r) => r.grid?.reduce((a, b) => a * b, 1), (n) => n ?? "on the host"],
];
/** Rows of the table that are made at once. */
const ROWS = 400;
function showTable() {
  const { plan } = network, all = times?.us.reduce((a, b) => a + b, 0);
  let dispatched = 0;
  const rows = computations(plan.steps).map(({ run, host }, i) => {
    const group = plan.groups[(run ?? host).group], nodes = group?.nodes ?? [];
    if (host) return { ...host, i, label: group?.label ?? host.name, nodes, us: network.hostMs.has(host.node) ? 1e3 * network.hostMs.get(host.node) : undefined };
    const us = times?.us[dispatched++];
    return { ...run, i, label: group?.label ?? plan.kernels[run.kernel].name, nodes, us, share: times ? us / all : undefined };
  });
  const key = COLUMNS[order][1];
  // Numbers from the largest on; positions and names upwards.
  const up = ["#", "layer"].includes(COLUMNS[order][0]);
  rows.sort((a, b) => (up ? (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : a.i - b.i) : (key(b) ?? 0) - (key(a) ?? 0)));
  const table = $("wide").firstElementChild, [head, body] = [table.tHead.rows[0], table.tBodies[0]];
  head.replaceChildren();
  COLUMNS.forEach(([name], c) => {
    const cell = made("th", name, head);
    if (c === order) cell.ariaSort = up ? "ascending" : "descending";
    cell.onclick = () => { order = c; showTable(); };
  });
  body.replaceChildren();
  const add = (r) => {
    const row = made("tr", "", body);
    COLUMNS.forEach(([, value, text]) => made("td", text(value(r)), row));
    row.title = r.nodes.join("\n");
    row.onclick = () => {
      body.querySelectorAll("[aria-selected]").forEach((e) => e.removeAttribute("aria-selected"));
      row.setAttribute("aria-selected", "true");
      $("entry").textContent = [r.grid ? plan.kernels[r.kernel].name : r.name, r.nodes.join(", ")].filter(Boolean).join(": ");
      $("wgsl").textContent = r.grid ? texts[r.kernel] : "The plan gives this node to the host: the compiler's interpreter computes it, on the processor.\nIts time is that of the last run, with the way there and back.";
      $("shader").hidden = false;
    };
  };
  // The rest of a long table comes on a click.
  const part = (from) => {
    rows.slice(from, from + ROWS).forEach(add);
    const left = rows.length - from - ROWS;
    if (left <= 0) return;
    const end = made("tr", "", body);
    Object.assign(made("td", `${Math.min(left, ROWS)} more of ${left}`, end), { colSpan: COLUMNS.length });
    end.onclick = () => { end.remove(); part(from + ROWS); };
  };
  part(0);
  if (times) {
    const step = times.step ? `, whose steps are ${times.step} ns` : "";
    $("method").textContent = `${(all / 1e3).toFixed(3)} ms in all, by ${times.method}${step}: each dispatch repeated alone`;
  }
  $("kernels").hidden = false;
}

/** What was measured last: microseconds of each dispatch, by what, and of a run; null before. */
export function measured() {
  return times && { ...times, latency };
}

/** Ends what is shown. */
export function close() {
  network?.destroy();
  [network, times, latency, order] = [undefined, null, null, 0];
  given.clear();
  ["inputs", "results", "kernels", "shader"].forEach((id) => ($(id).hidden = true));
  $("method").textContent = "";
}

/** Shows a network, then opens it; `options` are those of the runner's `open`. */
export async function show(files, options = {}) {
  close();
  const { plan } = files;
  texts = files.texts;
  document.title = $("model").textContent = plan.model;
  $("about").textContent = `${plan.kernels.length} kernels for the profile ${plan.profile}, ${(plan.weightBytes / 1e6).toFixed(2)} MB of weights, by ${plan.writtenBy}`;
  const opened = await open(files, { progress, ...options });
  network = opened;
  const { vendor, architecture, description } = network.adapter.info ?? {};
  $("about").textContent += `; on ${[description, vendor, architecture].filter(Boolean).join(", ") || "an adapter without a name"}`;
  showInputs();
  showTable();
  state("ready");
  opened.device.lost.then(() => { if (network === opened) failed(Error(opened.lost)); });
  return opened;
}

/** Takes the plan for other sizes. */
export async function resize(plan) {
  if (!network) throw Error("no network is open");
  await network.resize(plan);
  [times, latency] = [null, null];
  given.clear();
  showInputs();
  showTable();
}

$("run").onclick = () => busy(async () => showResults(await network.run(inputs())));
$("time").onclick = () => busy(async () => {
  latency = (await network.run(inputs())).ms;
  times = await network.measure({ progress });
  order = 1;
  showTable();
  state("each kernel was timed");
});
