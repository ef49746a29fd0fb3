// Drives a page of `weft export --web` as a reader would, and tells the server what it saw.
import { writeNpz } from "./arrays.js";
import { load, open } from "./runner.js";

const $ = (id) => document.getElementById(id);
const seen = [];
const expect = (what, holds) => { if (!holds) throw Error(`${what} does not hold: ${$("state").textContent} ${$("error").textContent}`); seen.push(what); };
const until = async (holds) => { while (!holds()) await new Promise((done) => setTimeout(done, 20)); };
const put = (path, body) => fetch(path, { method: "POST", body });
/** The sentence of what fails. */
const sentence = async (f) => { try { await f(); } catch (e) { return e.message; } throw Error("nothing failed"); };
async function page() {
  await until(() => $("state").textContent === "ready" || !$("error").hidden);
  expect("the page opens", $("error").hidden && !$("inputs").hidden);
  const head = () => [...document.querySelectorAll("th")];
  const rows = () => [...document.querySelectorAll("tbody tr")].map((r) => [...r.cells].map((c) => c.textContent));
  const count = rows().length;
  expect("each dispatch has a row", count > 0 && rows().every((r) => r[3]));
  $("run").click();
  await until(() => !$("run").disabled);
  expect("results are shown", !$("results").hidden && $("outputs").children.length > 0 && $("error").hidden);
  $("time").click();
  await until(() => !$("run").disabled);
  const us = rows().map((r) => Number(r[1]));
  expect("each dispatch has a time", us.length === count && us.every((x) => x >= 0) && us.some((x) => x > 0));
  expect("the longest is first", us.every((x, i) => i === 0 || x <= us[i - 1]));
  expect("the method is said", /timestamps/.test($("method").textContent));
  head()[0].click();
  expect("a click sorts", rows().every((r, i) => Number(r[0]) === i + 1));
  document.querySelector("tbody tr").click();
  expect("a kernel is shown", /@compute/.test($("wgsl").textContent));
  expect("the page fits", document.documentElement.scrollWidth <= innerWidth);
}

async function runner() {
  const files = await load(".");
  const network = await open(files);
  const drawn = (t) => {
    const bytes = new Uint8Array(t.shape.reduce((a, b) => a * b, t.size));
    const out = new DataView(bytes.buffer);
    for (let i = 0; i < bytes.length / t.size; i++) {
      const x = Math.sin(i + 1) * 43758.5453 % 1;
      if (t.dtype === "f32") out.setFloat32(4 * i, x, true); else bytes[i * t.size] = Math.abs(x) * 3;
    }
    const Type = { f32: Float32Array, i64: BigInt64Array, i32: Int32Array, bool: Uint8Array }[t.dtype];
    return new Type(bytes.buffer);
  };
  const inputs = Object.fromEntries(network.inputs.map((t) => [t.name, drawn(t)]));
  const [first, second] = await Promise.all([network.run(inputs), network.run(inputs)]);
  const bits = (r) => network.outputs.map((t) => [...new Uint8Array(r.outputs[t.name].buffer)].join()).join();
  expect("two runs are equal", bits(first) === bits(second));
  await put("inputs.npz", writeNpz(network.inputs, inputs));
  await put("outputs.npz", writeNpz(network.outputs, first.outputs));
  const name = network.inputs[0].name;
  expect("a wrong size is a sentence", /bytes, and got 2 bytes/.test(await sentence(() => network.run({ ...inputs, [name]: new Uint8Array(2) }))));
  expect("an unknown input is a sentence", /there is no input `other`/.test(await sentence(() => network.run({ ...inputs, other: inputs[name] }))));
  expect("runs go on after it", bits(await network.run(inputs)) === bits(first));
  network.device.destroy();
  await network.device.lost;
  expect("a lost device is a sentence", /the device was lost/.test(await sentence(() => network.run(inputs))));
  expect("no WebGPU is a sentence", /no WebGPU/.test(await sentence(() => open(files, { gpu: null }))));
  expect("no adapter is a sentence", /no adapter/.test(await sentence(() => open(files, { gpu: { requestAdapter: async () => null } }))));
  const plan = { ...files.plan, features: ["shader-f16", "nothing"], limits: { ...files.plan.limits, maxComputeWorkgroupSizeX: 1 << 30 } };
  expect("what an adapter lacks is said", /lacks nothing.*maxComputeWorkgroupSizeX/.test(await sentence(() => open({ ...files, plan }))));
  const texts = files.texts.map(() => "@compute @workgroup_size(1) fn");
  expect("a refused kernel is named", /kernel `.+` is refused/.test(await sentence(() => open({ ...files, texts }))));
}

try {
  await page();
  await runner();
  await put("said", `ok ${seen.join(", ")}`);
} catch (e) {
  await put("said", `failed: ${e.stack ?? e}; before it: ${seen.join(", ")}`);
}
