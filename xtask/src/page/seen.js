// What scripts that drive pages share: what they saw, what a page of a network does, what a network computes.
import { writeNpz } from "./arrays.js";
import { open } from "./runner.js";

export const $ = (id) => document.getElementById(id);
export const seen = [];
export const expect = (what, holds) => { if (!holds) throw Error(`${what} does not hold: ${$("state").textContent} ${$("error").textContent}`); seen.push(what); };
export const until = async (holds) => { while (!holds()) await new Promise((done) => setTimeout(done, 20)); };
export const put = (path, body) => fetch(path, { method: "POST", body });
/** The compiler is at nothing. */
export const idle = () => until(() => !$("compile").disabled);
/** Drops a file on the compiler's page, with others, and waits until it is compiled and open, or refused. */
export async function drop(name, content, ...others) {
  const dataTransfer = new DataTransfer();
  for (const f of [...others, new File([content], name)]) dataTransfer.items.add(f);
  dispatchEvent(new DragEvent("drop", { dataTransfer, cancelable: true }));
  await idle();
}
/** The sentence of what fails. */
export const sentence = async (f) => { try { await f(); } catch (e) { return e.message; } throw Error("nothing failed"); };
/** Runs and times a network as a reader would. */
export async function page() {
  await until(() => /ready$/.test($("state").textContent) || !$("error").hidden);
  expect("the network opens", $("error").hidden && !$("inputs").hidden);
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
  expect("all that is shown is a number or a name", rows().flat().every((text) => !/NaN|undefined|Infinity/.test(text)));
  expect("the method is said", /timestamps/.test($("method").textContent));
  head()[0].click();
  expect("a click sorts", rows().every((r, i) => Number(r[0]) === i + 1));
  [...document.querySelectorAll("tbody tr")].find((r) => !/host/.test(r.lastChild.textContent)).click();
  expect("a kernel is shown", /@compute/.test($("wgsl").textContent));
  expect("the page fits", document.documentElement.scrollWidth <= innerWidth);
}

/** Runs a network twice, on these bytes or drawn ones, and puts what went in and came out into the folder. */
export async function values(files, folder = "", options = {}, given = {}) {
  const network = await open(files, options);
  const drawn = (t) => {
    const bytes = given[t.name] ?? new Uint8Array(t.shape.reduce((a, b) => a * b, t.size));
    const out = new DataView(bytes.buffer, bytes.byteOffset);
    for (let i = 0; i < bytes.length / t.size && !given[t.name]; i++) {
      const x = Math.sin(i + 1) * 43758.5453 % 1;
      if (t.dtype === "f32") out.setFloat32(4 * i, x, true); else bytes[i * t.size] = Math.abs(x) * 3;
    }
    const Type = { f32: Float32Array, i64: BigInt64Array, i32: Int32Array, u8: Uint8Array, bool: Uint8Array }[t.dtype];
    return new Type(bytes.buffer);
  };
  const inputs = Object.fromEntries(network.inputs.map((t) => [t.name, drawn(t)]));
  const [first, second] = await Promise.all([network.run(inputs), network.run(inputs)]);
  const bits = (r) => network.outputs.map((t) => [...new Uint8Array(r.outputs[t.name].buffer)].join()).join();
  expect("two runs are equal", bits(first) === bits(second));
  await put(`${folder}inputs.npz`, writeNpz(network.inputs, inputs));
  await put(`${folder}outputs.npz`, writeNpz(network.outputs.map((t) => ({ ...t, shape: first.shapes[t.name] })), first.outputs));
  return { network, inputs, first, bits };
}

/**
 * Times each dispatch by timestamps that are rounded to steps of 65536 ns, as many browsers have them, and by the same
 * ones unrounded: they are as far apart as the rounding of a sample can put them, and no further.
 */
export async function rounded(network) {
  const STEP = 65536n, [buffer, pass] = [GPUBuffer.prototype, GPUComputePassEncoder.prototype];
  const { getMappedRange } = buffer, { dispatchWorkgroups } = pass;
  const samples = [], exact = [];
  let times = 0;
  pass.dispatchWorkgroups = function (...grid) { times++; return dispatchWorkgroups.apply(this, grid); };
  buffer.getMappedRange = function (...part) {
    const range = getMappedRange.apply(this, part);
    // A buffer of two timestamps that is read back.
    if (this.size !== 16 || this.usage !== (GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST)) return range;
    const marks = new BigUint64Array(range);
    samples.push({ us: Number(marks[1] - marks[0]) / 1e3 / times, off: Number(STEP) / 1e3 / times });
    times = 0;
    marks.forEach((ns, i) => (marks[i] = ns - ns % STEP));
    return range;
  };
  const progress = () => exact.push(samples.splice(0).slice(-3).sort((a, b) => a.us - b.us)[1]);
  const m = await network.measure({ progress });
  Object.assign(pass, { dispatchWorkgroups });
  Object.assign(buffer, { getMappedRange });
  expect("the resolution of timestamps is found", m.step > 0 && m.step % Number(STEP) === 0);
  const most = Math.max(...exact.map((e) => e.off));
  expect("rounded times are those of the kernels", m.us.every((us, i) => Math.abs(us - exact[i].us) <= Math.max(exact[i].off, most / 1e6)));
  const apart = (i, j) => Math.abs(exact[i].us - exact[j].us) > exact[i].off + exact[j].off;
  const agree = (i, j) => !apart(i, j) || (exact[i].us < exact[j].us) === (m.us[i] < m.us[j]);
  expect("the ranking of at least ten is that of unrounded times", m.us.length >= 10 && m.us.every((_, i) => m.us.every((_, j) => agree(i, j))));
}

/** Does it, and tells the server what was seen. */
export async function drive(f) {
  try {
    await f();
    await put("said", `ok ${seen.join(", ")}`);
  } catch (e) {
    await put("said", `failed: ${e.stack ?? e}; before it: ${seen.join(", ")}`);
  }
}
