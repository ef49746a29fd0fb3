// The compiler's page: takes a model, compiles it in a Worker, shows and runs it as the page of an export does.
import { computations } from "./runner.js";
import { $, busy, close, download, failed, made, measured, progress, resize, show, state } from "./view.js";

const encode = (value) => new TextEncoder().encode(JSON.stringify(value));
const parse = (file) => JSON.parse(new TextDecoder().decode(file.bytes));
let worker, waiting = null, calls = 0, memory = 0;
/** A model: its name, and its files, the model's own first; none for a network of the zoo. */
let model = null, current = null;
const profiles = new Map([["baseline", "baseline"], ["webgpu", "webgpu"]]);

function begin() {
  worker?.terminate();
  worker = new Worker("worker.js", { type: "module" });
  worker.onmessage = ({ data: { id, progress: done, files, memory: bytes, error } }) => {
    memory = bytes ?? memory;
    if (done) return waiting && progress(...done);
    if (id !== waiting?.id) return;
    const { resolve, reject } = waiting;
    waiting = null;
    if (error === undefined) resolve(files); else reject(Error(error));
  };
  worker.onerror = (e) => waiting && end(`the compiler does not start: ${e.message ?? "worker.js cannot be loaded"}`);
}
/** Ends what the compiler is at. */
function end(why) {
  const was = waiting;
  waiting = null;
  begin();
  was?.reject(Error(why));
}
/** Calls the compiler with these bytes; gives the files that it makes. */
function ask(name, ...given) {
  return askFrom(undefined, name, ...given);
}
/** The same, with files that it may read from now on. */
function askFrom(from, name, ...given) {
  return new Promise((resolve, reject) => {
    waiting = { id: ++calls, resolve, reject };
    $("cancel").hidden = false;
    worker.postMessage({ id: calls, name, given, from });
  }).finally(() => ($("cancel").hidden = true));
}

/** The part of the weights that begins at `at`. */
export const weights = async (at) => (await ask("weights", encode(at)))[0].bytes;

/** Computes what plans give to the host: the compiler's interpreter does. */
export const host = {
  node: async (number, arrays) => {
    const given = arrays.map((a) => new Uint8Array(a.buffer, a.byteOffset, a.byteLength));
    return (await ask("host", encode(number), ...given)).map((f) => ({ buffer: f.bytes.buffer, shape: JSON.parse(f.path) }));
  },
  constant: async (buffer) => (await ask("constant", encode(buffer)))[0].bytes.buffer,
};

/** What this browser says of its adapter, and why it says nothing. */
async function adapter() {
  if (!navigator.gpu) return { why: `this browser offers no WebGPU here${isSecureContext ? "" : ": pages have it on https and on localhost"}` };
  const found = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!found) return { why: "this browser has WebGPU, and no adapter for it" };
  const { vendor = "", architecture = "", description = "", subgroupMinSize, subgroupMaxSize, isFallbackAdapter } = found.info ?? {};
  const limits = {};
  for (const name in found.limits) limits[name] = found.limits[name];
  return {
    said: {
      name: [vendor, architecture, description].filter(Boolean).join(" "), features: [...found.features],
      subgroupMinSize: subgroupMinSize ?? 0, subgroupMaxSize: subgroupMaxSize ?? 0,
      software: isFallbackAdapter ?? found.isFallbackAdapter ?? false, limits,
    },
  };
}

async function start() {
  begin();
  const [list] = await ask("networks");
  for (const { name, description, parameters } of parse(list)) {
    Object.assign(made("option", `${name}: ${description}, ${(parameters / 1e6).toFixed(1)} M parameters`, $("zoo")), { value: name });
  }
  const { said, why } = await adapter();
  if (said) {
    const [file] = await ask("profile", encode(said));
    profiles.set("this adapter", parse(file));
  }
  for (const name of profiles.keys()) made("option", name, $("profile")).value = name;
  $("profile").value = said ? "this adapter" : "baseline";
  state(why ?? "ready for a model");
  if (why) failed(Error(`${why}: networks are compiled, and do not run`));
}

/** The sizes of `batch=1 sequence=64`, by name. */
function sizes(text) {
  const words = text.split(/[\s,]+/).filter(Boolean);
  const wrong = words.find((w) => !/^[^=]+=[^=]+$/.test(w));
  if (wrong) throw Error(`sizes are written as NAME=SIZE, and \`${wrong}\` is not`);
  return Object.fromEntries(words.map((w) => w.split("=")));
}

/** Compiles the model, shows what came of it, and opens it on the GPU. */
async function compile() {
  if (!model) throw Error("drop a model, choose a file, or take a network of the zoo");
  close();
  $("panes").hidden = $("made").hidden = $("resize").hidden = true;
  current = null;
  const { name, files: from } = model, profile = profiles.get($("profile").value);
  const request = { model: name, files: from.map((f) => ({ name: f.webkitRelativePath || f.name, size: f.size })), profile, dims: sizes($("sizes").value), record: true };
  const begun = performance.now();
  const files = await askFrom(from, "compile", encode(request));
  const ms = performance.now() - begun;
  const of = new Map(files.map((f) => [f.path, f]));
  const plan = parse(of.get("plan.json")), decoder = new TextDecoder();
  const texts = plan.kernels.map((k) => decoder.decode(of.get(k.file).bytes));
  current = { request, files, plan, ms };
  $("made").hidden = false;
  const open = Object.entries(parse(of.get("open.json")));
  $("resize").hidden = open.length === 0;
  $("now").value = open.map(([name, range]) => `${name}=${range.split("..")[0]}`).join(" ");
  await show({ plan, weights, texts }, { host });
  state(`compiled in ${(ms / 1e3).toFixed(2)} s; ready`);
}

$("resize").onsubmit = (e) => {
  e.preventDefault();
  busy(async () => {
    const wanted = Object.fromEntries(Object.entries(sizes($("now").value)).map(([name, n]) => [name, Number(n)]));
    const [file] = await ask("resize", encode(wanted));
    current.plan = parse(file);
    await resize(current.plan);
    state(`${$("now").value}, with the same kernels and weights: ready`);
  });
};

/** What was compiled last: the request, the files, the plan, milliseconds, the compiler's memory; null before. */
export function compiled() {
  return current && { ...current, memory };
}

/** What was measured, for a trace; no bytes before a measurement. */
function times() {
  const m = measured();
  if (!m) return new Uint8Array(0);
  const { name } = current.request.profile;
  const source = m.step === null ? "host-clock" : "gpu-timestamps";
  return encode({ device: name ?? current.request.profile, source, us: m.us, latency_ms: m.latency ?? 0 });
}
async function report() {
  state("writing the report");
  return ask("report", times());
}
function pane(html) {
  if ($("frame").src) URL.revokeObjectURL($("frame").src);
  $("frame").src = URL.createObjectURL(new Blob([html.bytes], { type: "text/html" }));
  $("panes").hidden = false;
  state("the report is below");
}
$("report").onclick = () => busy(async () => pane((await report())[1]));
$("trace").onclick = () => busy(async () => {
  const [trace] = await report();
  download(trace.path, trace.bytes);
  state(`${trace.path} is written`);
});
$("times").onclick = () => busy(async () => {
  const m = measured();
  if (!m) throw Error("nothing is timed yet: `Time each kernel` does it");
  const { plan, ms, request } = current;
  const dispatches = computations(plan.steps).flatMap((r) => r.run ?? []).map((d, i) => ({
    kernel: plan.kernels[d.kernel].name, layer: plan.groups[d.group]?.label, us: m.us[i], flops: d.flops, bytes: d.bytes,
  }));
  const out = { schema: 1, model: plan.model, weft: plan.writtenBy, browser: navigator.userAgent, profile: request.profile, compile_ms: ms, latency_ms: m.latency, method: m.method, step_ns: m.step, dispatches };
  download(`${plan.model}.times.json`, JSON.stringify(out, null, 1), "application/json");
});
$("save-profile").onclick = () => {
  const { profile } = current.request;
  if (typeof profile === "string") return state(`the profile is one of the command's: --target ${profile}`);
  download("browser.json", JSON.stringify(profile, null, 1), "application/json");
};

/** Takes a model, with the files of its external data beside it; or a trace. */
async function take(given) {
  const files = [...given], is = (end) => files.findIndex((f) => f.name.endsWith(end));
  const first = files.length > 1 ? [".onnx", ".weft", ".trace"].map(is).find((i) => i >= 0) : 0;
  if (first === undefined) throw Error(`none of these files is a model (.onnx or .weft): ${files.map((f) => f.name).join(", ")}`);
  files.unshift(...files.splice(first, 1));
  const { name } = files[0];
  if (name.endsWith(".trace")) {
    state(`reading ${name}`);
    return pane((await ask("opened", new Uint8Array(await files[0].arrayBuffer())))[0]);
  }
  model = { name, files };
  $("zoo").value = "";
  await compile();
}
$("file").onchange = () => $("file").files.length && busy(() => take($("file").files));
$("zoo").onchange = () => { model = $("zoo").value ? { name: $("zoo").value, files: [] } : null; };
$("ask").onsubmit = (e) => { e.preventDefault(); busy(compile); };
$("cancel").onclick = () => end("cancelled");
addEventListener("dragover", (e) => { e.preventDefault(); document.body.classList.add("over"); });
addEventListener("dragleave", () => document.body.classList.remove("over"));
addEventListener("drop", (e) => {
  e.preventDefault();
  document.body.classList.remove("over");
  const files = [...e.dataTransfer.files];
  if (files.length && !$("compile").disabled) busy(() => take(files));
});

busy(async () => {
  await start();
  const wanted = new URL(location).searchParams.get("model");
  if (!wanted) return;
  // A form of a network may follow behind a colon.
  if ([...$("zoo").options].some((o) => o.value && o.value === wanted.split(":")[0])) {
    model = { name: wanted, files: [] };
    return compile();
  }
  const address = new URL(wanted, location);
  const answer = await fetch(address).catch((e) => { throw Error(`${address}: ${e.message}; its server has to allow other pages to read it`); });
  if (!answer.ok) throw Error(`${address}: ${answer.status} ${answer.statusText}`);
  const name = address.pathname.split("/").pop();
  model = { name, files: [new File([await answer.blob()], name)] };
  await compile();
});
