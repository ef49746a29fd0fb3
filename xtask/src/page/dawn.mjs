// Runs exported pages' networks by npm's Dawn for Node: `node dawn.mjs FOLDER`; what it saw is its last line.
import { create, globals } from "webgpu";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

Object.assign(globalThis, globals);
const folder = process.argv[2];
const module = (name) => import(pathToFileURL(`${folder}/${name}`));
const [{ open }, { writeNpz }] = [await module("runner.js"), await module("arrays.js")];
const plan = JSON.parse(await readFile(`${folder}/plan.json`, "utf8"));
const { buffer, byteOffset, byteLength } = await readFile(`${folder}/weights.bin`);
const weights = buffer.slice(byteOffset, byteOffset + byteLength);
const texts = await Promise.all(plan.kernels.map((k) => readFile(`${folder}/${k.file}`, "utf8")));
const files = { plan, weights, texts }, gpu = create(["backend=vulkan"]);
const expect = (what, holds) => { if (!holds) throw Error(`${what} does not hold`); };
const sentence = async (f) => { try { await f(); } catch (e) { return e.message; } throw Error("nothing failed"); };

const adapter = await gpu.requestAdapter();
expect("there is an adapter", adapter);
const here = `${adapter.info.description || adapter.info.vendor}`;
const halves = plan.features.includes("shader-f16");
if (halves) {
  // The same adapter, without halves.
  const features = new Set([...adapter.features].filter((f) => f !== "shader-f16"));
  const without = { requestAdapter: async () => ({ features, limits: adapter.limits, info: adapter.info }) };
  expect("halves that are not granted are a sentence", /lacks shader-f16/.test(await sentence(() => open(files, { gpu: without }))));
}
if (halves && !adapter.features.has("shader-f16")) {
  console.log(`${here}: shader-f16 is not granted, and that is said`);
  process.exit(0);
}
const network = await open(files, { gpu });
const inputs = {};
for (const t of network.inputs) {
  const out = new DataView(new ArrayBuffer(t.shape.reduce((a, b) => a * b, t.size)));
  for (let i = 0; i < out.byteLength / t.size; i++) {
    const x = Math.sin(i + 1) * 43758.5453 % 1;
    if (t.dtype === "f32") out.setFloat32(4 * i, x, true); else out.setUint8(i * t.size, Math.abs(x) * 3);
  }
  inputs[t.name] = new { f32: Float32Array, i64: BigInt64Array, i32: Int32Array, u8: Uint8Array, bool: Uint8Array }[t.dtype](out.buffer);
}
const { outputs, shapes } = await network.run(inputs);
const times = await network.measure({ least: 1 });
expect("each dispatch has a time", times.us.length === network.dispatches.length && times.us.every((x) => x >= 0));
await mkdir(`${folder}/run`, { recursive: true });
await writeFile(`${folder}/run/inputs.npz`, writeNpz(network.inputs, inputs));
await writeFile(`${folder}/run/outputs.npz`, writeNpz(network.outputs.map((t) => ({ ...t, shape: shapes[t.name] })), outputs));
console.log(`${here}: ${network.dispatches.length} dispatches${halves ? ", shader-f16 granted" : ""}`);
process.exit(0);
