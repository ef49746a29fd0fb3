// Runs a network that Weft compiled, on WebGPU alone.
//
//   import { load, open } from "./runner.js";
//   const network = await open(await load("."));
//   const { outputs } = await network.run({ input: new Float32Array(...) });
//
// Whatever fails is an Error whose message is a sentence.
import { ARRAYS } from "./arrays.js";

/** Fetches plan, weights and kernels from a folder. `progress(what, done, all)` hears of it. */
export async function load(folder, progress = () => {}) {
  const get = async (path) => {
    const answer = await fetch(`${folder}/${path}`);
    if (!answer.ok) throw Error(`${path}: ${answer.status} ${answer.statusText}`);
    return answer;
  };
  const plan = await (await get("plan.json")).json();
  let done = 0;
  const all = plan.kernels.length + 1;
  const counted = async (fetched) => {
    const result = await fetched;
    progress("fetching", ++done, all);
    return result;
  };
  const [weights, ...texts] = await Promise.all([
    counted(get("weights.bin").then((a) => a.arrayBuffer())),
    ...plan.kernels.map((k) => counted(get(k.file).then((a) => a.text()))),
  ]);
  if (weights.byteLength !== plan.weightBytes) {
    throw Error(`weights.bin has ${weights.byteLength} bytes, and plan.json wants ${plan.weightBytes}`);
  }
  return { plan, weights, texts };
}

/** What an adapter lacks for a plan; an empty list if nothing. */
export function lacks(plan, adapter) {
  const out = plan.features.filter((f) => !adapter.features.has(f)).map((f) => `it lacks ${f}`);
  for (const [name, need] of Object.entries(plan.limits)) {
    if (adapter.limits[name] < need) out.push(`${name} is ${adapter.limits[name]}, the kernels need ${need}`);
  }
  const { subgroupMinSize: least, subgroupMaxSize: most } = adapter.info ?? {};
  const [low, high] = plan.subgroups;
  if (plan.features.includes("subgroups") && least !== undefined && (least < low || most > high)) {
    out.push(`it has subgroups of ${least} to ${most} threads, the kernels are for ${low} to ${high}`);
  }
  return out;
}

/** Opens a network. `gpu` is the browser's, or that of another implementation. */
export async function open({ plan, weights, texts }, { gpu = globalThis.navigator?.gpu, progress = () => {} } = {}) {
  if (!gpu) {
    const why = globalThis.isSecureContext === false ? ": pages have it on https and on localhost" : "";
    throw Error(`this browser offers no WebGPU here${why}`);
  }
  const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) throw Error("this browser has WebGPU, and no adapter for it");
  const missing = lacks(plan, adapter);
  if (missing.length) {
    throw Error(`this adapter does not run kernels for the profile ${plan.profile}: ${missing.join(", ")}`);
  }
  const timed = adapter.features.has("timestamp-query");
  const device = await adapter.requestDevice({
    requiredFeatures: timed ? [...plan.features, "timestamp-query"] : plan.features,
    requiredLimits: plan.limits,
  });
  const network = new Network(plan, adapter, device, timed);
  try {
    await network.allocate(weights);
    await network.compile(texts, progress);
  } catch (e) {
    device.destroy();
    throw e;
  }
  return network;
}

const USAGE = { STORAGE: 128, COPY_SRC: 4, COPY_DST: 8, MAP_READ: 1, UNIFORM: 64, QUERY_RESOLVE: 512 };
const aligned = (n) => Math.ceil(n / 4) * 4;
const elements = (t) => t.shape.reduce((a, b) => a * b, 1);
/** Bytes of an element in a buffer. */
const storedSize = (t) => (t.form === "plain" ? t.size : t.form.truth ? t.form.truth.bytes : 4);
const storedBytes = (t) => aligned(elements(t) * storedSize(t));

/** A network on a device. One run happens at a time: others wait for it. */
export class Network {
  #last = Promise.resolve();
  #lost = null;

  constructor(plan, adapter, device, timed) {
    Object.assign(this, { plan, adapter, device, timed });
    device.lost.then(({ reason, message }) => {
      this.#lost = `the device was lost (${reason})${message ? `: ${message}` : ""}`;
    });
  }

  get inputs() { return this.plan.inputs; }
  get outputs() { return this.plan.outputs; }
  /** Why the device is of no use any more; null while it is. */
  get lost() { return this.#lost; }
  /** The dispatches of a run in order, those of both sides of a branch. */
  get dispatches() {
    const list = (rows) => rows.flatMap((r) => (r.run ? [r.run] : r.branch ? [...list(r.branch.then), ...list(r.branch.otherwise)] : []));
    return list(this.plan.steps);
  }

  /** Runs `f`; what WebGPU finds wrong with it becomes an error. */
  async #checked(what, f) {
    this.#live();
    const kinds = ["validation", "out-of-memory", "internal"];
    kinds.forEach((k) => this.device.pushErrorScope(k));
    let result, failed;
    try {
      result = await f();
    } catch (e) {
      failed = e;
    }
    const found = [];
    for (const kind of [...kinds].reverse()) {
      const e = await this.device.popErrorScope();
      if (e) found.push(kind === "out-of-memory" ? "there is not enough memory" : e.message);
    }
    this.#live();
    if (failed) throw failed;
    if (found.length) throw Error(`${what}: ${found.join("; ")}`);
    return result;
  }
  #live() {
    if (this.#lost) throw Error(this.#lost);
  }

  async allocate(weights, kept = new Map()) {
    await this.#checked("buffers", async () => {
      this.buffers = this.plan.buffers.map(({ bytes, weights: at }) => {
        if (kept.has(at)) return kept.get(at);
        const usage = at === null ? USAGE.STORAGE | USAGE.COPY_SRC | USAGE.COPY_DST : USAGE.STORAGE;
        const buffer = this.device.createBuffer({ size: bytes, usage, mappedAtCreation: at !== null });
        if (at !== null) {
          new Uint8Array(buffer.getMappedRange()).set(new Uint8Array(weights, at, bytes));
          buffer.unmap();
        }
        return buffer;
      });
    });
  }

  async compile(texts, progress) {
    const { device, plan } = this;
    let done = 0;
    const one = async (k, i) => {
      const entries = k.writes.map((writes, binding) => ({
        binding, visibility: 4, buffer: { type: writes ? "storage" : "read-only-storage" },
      }));
      if (k.sizeBytes) entries.push({ binding: entries.length, visibility: 4, buffer: { type: "uniform" } });
      const layout = device.createBindGroupLayout({ label: k.name, entries });
      const module = device.createShaderModule({ label: k.name, code: texts[i] });
      try {
        const pipeline = await device.createComputePipelineAsync({
          label: k.name,
          layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
          compute: { module, entryPoint: k.entry },
        });
        progress("compiling kernels", ++done, plan.kernels.length);
        return { layout, pipeline };
      } catch (e) {
        const info = await module.getCompilationInfo();
        const said = info.messages.filter((m) => m.type === "error").map((m) => `line ${m.lineNum}: ${m.message}`);
        throw Error(`kernel \`${k.name}\` is refused: ${[...said, e.message].join("; ")}`);
      }
    };
    await this.#checked("kernels", async () => {
      this.pipelines = await Promise.all(plan.kernels.map(one));
    });
    await this.bind();
  }

  async bind() {
    const { device, plan } = this;
    const bind = (rows) => rows.map((r) => {
      if (r.branch) return { ...r.branch, sides: [r.branch.otherwise, r.branch.then].map(bind) };
      if (!r.run) return r;
      const { layout, pipeline } = this.pipelines[r.run.kernel];
      const entries = r.run.buffers.map((b, binding) => ({ binding, resource: { buffer: this.buffers[b] } }));
      if (r.run.sizes) entries.push({ binding: entries.length, resource: { buffer: this.#uniform(r.run.sizes) } });
      return { row: r.run, pipeline, group: device.createBindGroup({ layout, entries }) };
    });
    await this.#checked("bindings", async () => {
      this.steps = bind(plan.steps);
    });
  }
  /** A small buffer with the sizes of a run, for kernels that serve several. */
  #uniform(sizes) {
    const buffer = this.device.createBuffer({ size: Math.ceil(sizes.length / 4) * 16, usage: USAGE.UNIFORM, mappedAtCreation: true });
    new Int32Array(buffer.getMappedRange()).set(sizes);
    buffer.unmap();
    return buffer;
  }

  /** Takes the plan of the same kernels and weights for other sizes. */
  resize(plan) {
    return this.#alone(async () => {
      const kept = new Map(this.plan.buffers.map((b, i) => [b.weights, this.buffers[i]]).filter(([at]) => at !== null));
      const lost = this.buffers.filter((_, i) => this.plan.buffers[i].weights === null);
      if (plan.buffers.some((b) => b.weights !== null && kept.get(b.weights)?.size !== b.bytes)) {
        throw Error("the plan is of another network");
      }
      this.plan = plan;
      lost.forEach((b) => b.destroy());
      await this.allocate(null, kept);
      await this.bind();
    });
  }

  /**
   * Runs the network on typed arrays by name of the input (halves as bits, truth values as bytes). Gives `{outputs, ms}`
   * with typed arrays by name, and the time from submission to results.
   */
  run(inputs) {
    return this.#alone(async () => {
      this.#upload(inputs);
      const start = performance.now();
      const ms = () => performance.now() - start;
      return this.#checked("the run", async () => {
        await this.#steps(this.steps, inputs);
        const outputs = {};
        const arrays = await this.#read(this.plan.outputs, inputs);
        this.plan.outputs.forEach((t, i) => (outputs[t.name] = arrays[i]));
        return { outputs, ms: ms() };
      });
    });
  }

  /**
   * Times each dispatch on what lies in the buffers: repeated until a sample takes `least` milliseconds, the median of
   * `samples`. Gives `{method, step, us}`: `us` for each of `dispatches`, `step` the resolution of timestamps in
   * nanoseconds. Runs after it find other intermediate values, and write them anew.
   */
  measure({ least = 4, samples = 3, progress = () => {} } = {}) {
    return this.#alone(async () => {
      const list = (steps) => steps.flatMap((s) => (s.row ? [s] : s.sides ? [...list(s.sides[1]), ...list(s.sides[0])] : []));
      const us = [], marks = [], all = list(this.steps);
      const own = this.timed ? 0 : await this.#sample(null, 0, marks);
      for (const [i, step] of all.entries()) {
        let times = 1, ms = await this.#sample(step, times, marks) - own;
        while (ms < least && times < 4096) {
          times = Math.min(4096, Math.max(2 * times, Math.ceil((1.2 * times * least) / Math.max(ms, least / 64))));
          ms = await this.#sample(step, times, marks) - own;
        }
        const found = [ms];
        while (found.length < samples) found.push(await this.#sample(step, times, marks) - own);
        found.sort((a, b) => a - b);
        us.push((1e3 * found[found.length >> 1]) / times);
        progress("timing kernels", i + 1, all.length);
      }
      const step = marks.reduce((least, ns) => { while (ns % least) least /= 2; return least; }, 2 ** 20);
      return { method: this.timed ? "timestamps" : "the clock", step: this.timed ? step : null, us };
    });
  }
  /** Milliseconds of so many dispatches one after another. */
  async #sample(step, times, marks) {
    const { device } = this;
    return this.#checked("a measurement", async () => {
      const encoder = device.createCommandEncoder();
      const querySet = this.timed ? device.createQuerySet({ type: "timestamp", count: 2 }) : null;
      const timestampWrites = { querySet, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 };
      const pass = encoder.beginComputePass(this.timed ? { timestampWrites } : {});
      if (step) {
        pass.setPipeline(step.pipeline);
        pass.setBindGroup(0, step.group);
      }
      for (let i = 0; i < times; i++) pass.dispatchWorkgroups(...step.row.grid);
      pass.end();
      if (!this.timed) {
        const start = performance.now();
        device.queue.submit([encoder.finish()]);
        await device.queue.onSubmittedWorkDone();
        return performance.now() - start;
      }
      const resolved = device.createBuffer({ size: 16, usage: USAGE.QUERY_RESOLVE | USAGE.COPY_SRC });
      const staging = device.createBuffer({ size: 16, usage: USAGE.MAP_READ | USAGE.COPY_DST });
      encoder.resolveQuerySet(querySet, 0, 2, resolved, 0);
      encoder.copyBufferToBuffer(resolved, 0, staging, 0, 16);
      device.queue.submit([encoder.finish()]);
      await staging.mapAsync(1);
      const [start, end] = new BigUint64Array(staging.getMappedRange());
      [querySet, resolved, staging].forEach((o) => o.destroy());
      const ns = end > start ? Number(end - start) : 0;
      marks.push(ns);
      return ns / 1e6;
    });
  }

  /** Ends the device; waiting runs end with an error. */
  destroy() {
    this.#lost ??= "the network was destroyed";
    this.device.destroy();
  }

  #alone(f) {
    const mine = this.#last.then(() => { this.#live(); return f(); });
    this.#last = mine.catch(() => {});
    return mine;
  }
  #upload(inputs) {
    for (const t of this.plan.inputs) {
      const array = inputs[t.name];
      const need = elements(t) * t.size;
      if (!ArrayBuffer.isView(array) || array.byteLength !== need) {
        const got = ArrayBuffer.isView(array) ? `${array.byteLength} bytes` : array === undefined ? "nothing" : "no typed array";
        throw Error(`input \`${t.name}\` is ${t.dtype}[${t.shape}], ${need} bytes, and got ${got}`);
      }
      let bytes = stored(t, array), at = 0;
      for (const b of t.place.buffers ?? []) {
        const size = Math.min(bytes.byteLength - at, this.plan.buffers[b].bytes);
        this.device.queue.writeBuffer(this.buffers[b], 0, bytes, at, size);
        at += size;
      }
    }
    const known = new Set(this.plan.inputs.map((t) => t.name));
    const other = Object.keys(inputs).find((name) => !known.has(name));
    if (other !== undefined) throw Error(`there is no input \`${other}\`; there are ${[...known].join(", ")}`);
  }
  async #steps(steps, inputs) {
    const { device, plan } = this;
    let encoder = device.createCommandEncoder(), pass = null;
    const ended = () => { pass?.end(); pass = null; };
    const submit = () => { ended(); device.queue.submit([encoder.finish()]); };
    for (const s of steps) {
      if (s.row) {
        pass ??= encoder.beginComputePass();
        pass.setPipeline(s.pipeline);
        pass.setBindGroup(0, s.group);
        pass.dispatchWorkgroups(...s.row.grid);
      } else if (s.copy) {
        ended();
        const { from, to } = s.copy;
        const size = Math.min(plan.buffers[from].bytes, plan.buffers[to].bytes);
        encoder.copyBufferToBuffer(this.buffers[from], 0, this.buffers[to], 0, size);
      } else {
        submit();
        const [[condition]] = await this.#read([s.condition], inputs);
        await this.#steps(s.sides[condition ? 1 : 0], inputs);
        encoder = device.createCommandEncoder();
      }
    }
    submit();
  }
  /** The elements of tensors. */
  async #read(tensors, inputs) {
    const { device, plan } = this;
    const there = tensors.filter((t) => t.place.buffers && elements(t));
    const size = there.reduce((n, t) => n + storedBytes(t), 0);
    let bytes = new ArrayBuffer(0), at = 0;
    if (size) {
      const staging = device.createBuffer({ size, usage: USAGE.MAP_READ | USAGE.COPY_DST });
      const encoder = device.createCommandEncoder();
      for (const t of there) {
        let left = storedBytes(t);
        for (const b of t.place.buffers) {
          const n = Math.min(left, plan.buffers[b].bytes);
          encoder.copyBufferToBuffer(this.buffers[b], 0, staging, at, n);
          [at, left] = [at + n, left - n];
        }
      }
      device.queue.submit([encoder.finish()]);
      await staging.mapAsync(1);
      bytes = staging.getMappedRange().slice(0);
      staging.destroy();
      at = 0;
    }
    return tensors.map((t) => {
      if (t.place.input !== undefined) return inputs[plan.inputs[t.place.input].name].slice();
      if (!elements(t)) return new ARRAYS[t.dtype](0);
      const array = loaded(t, bytes.slice(at, at + storedBytes(t)));
      at += storedBytes(t);
      return array;
    });
  }
}

/** The bytes of buffers for these elements. */
function stored(t, array) {
  const out = new Uint8Array(storedBytes(t));
  const own = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  if (t.form === "plain") {
    out.set(own);
  } else if (t.form.truth) {
    own.forEach((x, i) => (out[i * t.form.truth.bytes] = x ? 1 : 0));
  } else {
    const numbers = new ARRAYS[t.dtype](own.slice().buffer), words = new DataView(out.buffer);
    numbers.forEach((x, i) => {
      const n = Number(x);
      if (n < -(2 ** 31) || n >= 2 ** 31) throw Error(`input \`${t.name}\`: ${x} does not fit 32 bits`);
      words.setInt32(4 * i, n, true);
    });
  }
  return out;
}

/** The elements in these bytes of buffers. */
function loaded(t, bytes) {
  const n = elements(t), Type = ARRAYS[t.dtype];
  if (t.form === "plain") return new Type(bytes, 0, n);
  if (t.form.truth) {
    const size = t.form.truth.bytes, all = new Uint8Array(bytes);
    return Uint8Array.from({ length: n }, (_, i) => (all.subarray(i * size, (i + 1) * size).some((b) => b) ? 1 : 0));
  }
  const words = t.form.words.signed ? new Int32Array(bytes, 0, n) : new Uint32Array(bytes, 0, n);
  return Type.from(words, t.size === 8 ? BigInt : undefined);
}
