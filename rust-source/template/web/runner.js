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

/** The dispatches and the nodes on the host of these rows of a plan, in order: those of both sides of a branch. */
export function computations(rows) {
  return rows.flatMap((r) => {
    if (r.run || r.host) return [r];
    if (r.branch) return [...computations(r.branch.then), ...computations(r.branch.otherwise)];
    return r.loop ? computations(r.loop.body) : [];
  });
}

/**
 * Opens a network. `weights` is their file, or gives the part of it that begins at a place. `gpu` is the browser's, or that of another implementation. `host` computes nodes that the plan gives
 * to the host: `node(number, arrays)` gives `{buffer, shape}` for each result, `constant(buffer)` one with the elements.
 */
export async function open({ plan, weights, texts }, { gpu = globalThis.navigator?.gpu, progress = () => {}, host = null } = {}) {
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
  const network = new Network(plan, adapter, device, timed, host);
  try {
    await network.allocate(weights, progress);
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

/** Commands that are not yet submitted. */
class Commands {
  #encoder = null;
  #pass = null;
  constructor(device) { this.device = device; }
  #begun() { return (this.#encoder ??= this.device.createCommandEncoder()); }
  dispatch({ pipeline, group, row }) {
    const pass = (this.#pass ??= this.#begun().beginComputePass());
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    pass.dispatchWorkgroups(...row.grid);
  }
  copy(from, fromOffset, to, toOffset, size) {
    this.#pass?.end();
    this.#pass = null;
    this.#begun().copyBufferToBuffer(from, fromOffset, to, toOffset, size);
  }
  /** The device gets them, before what is written after it. */
  submit() {
    this.#pass?.end();
    if (this.#encoder) this.device.queue.submit([this.#encoder.finish()]);
    [this.#encoder, this.#pass] = [null, null];
  }
}

/** A network on a device. One run happens at a time: others wait for it. */
export class Network {
  #last = Promise.resolve();
  #lost = null;
  /** Tensors in host memory by the plan's buffer, with their shapes, and rows of buffers that grow. */
  #held = new Map();
  #shapes = new Map();
  #rows = new Map();
  /** Milliseconds of each node on the host in the last run: the sum over the iterations of a loop. */
  hostMs = new Map();

  constructor(plan, adapter, device, timed, host) {
    Object.assign(this, { plan, adapter, device, timed, host });
    device.lost.then(({ reason, message }) => {
      this.#lost = `the device was lost (${reason})${message ? `: ${message}` : ""}`;
    });
  }

  get inputs() { return this.plan.inputs; }
  get outputs() { return this.plan.outputs; }
  /** Why the device is of no use any more; null while it is. */
  get lost() { return this.#lost; }
  /** The dispatches of a run in order, those of both sides of a branch. */
  get dispatches() { return computations(this.plan.steps).flatMap((r) => r.run ?? []); }

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
    try {
      for (const kind of [...kinds].reverse()) {
        const e = await this.device.popErrorScope();
        if (e) found.push(kind === "out-of-memory" ? "there is not enough memory" : e.message);
      }
    } catch (e) {
      failed ??= e;
    }
    // Calls that are under way may end before the device is said to be lost.
    if (failed instanceof DOMException) await Promise.race([this.device.lost, new Promise((done) => setTimeout(done, 1000))]);
    this.#live();
    if (failed) throw failed;
    if (found.length) throw Error(`${what}: ${found.join("; ")}`);
    return result;
  }
  #live() {
    if (this.#lost) throw Error(this.#lost);
  }

  async allocate(weights, progress = () => {}, kept = new Map()) {
    await this.#checked("buffers", async () => {
      this.buffers = [];
      // One by one: neither a page nor its Worker has room for all weights at once.
      for (const [i, { bytes, weights: at }] of this.plan.buffers.entries()) {
        if (kept.has(at)) {
          this.buffers.push(kept.get(at));
          continue;
        }
        const data = at === null ? null : typeof weights === "function" ? await weights(at) : new Uint8Array(weights, at, bytes);
        const usage = USAGE.STORAGE | USAGE.COPY_SRC | (at === null ? USAGE.COPY_DST : 0);
        const buffer = this.device.createBuffer({ size: bytes, usage, mappedAtCreation: at !== null });
        if (at !== null) {
          new Uint8Array(buffer.getMappedRange()).set(data);
          buffer.unmap();
          progress("weights", i + 1, this.plan.buffers.length);
        }
        this.buffers.push(buffer);
      }
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
      if (r.loop) return { loop: { ...r.loop, body: bind(r.loop.body) } };
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
      await this.allocate(null, undefined, kept);
      await this.bind();
    });
  }

  /**
   * Runs the network on typed arrays by name of the input (halves as bits, truth values as bytes). Gives
   * `{outputs, shapes, ms}` with typed arrays and their shapes by name, and the time from submission to results.
   */
  run(inputs) {
    return this.#alone(async () => {
      this.#upload(inputs);
      const start = performance.now();
      const ms = () => performance.now() - start;
      return this.#checked("the run", async () => {
        const commands = new Commands(this.device);
        [this.#held, this.#shapes, this.#rows, this.hostMs].forEach((m) => m.clear());
        await this.#steps(this.steps, inputs, commands);
        const outputs = {}, shapes = {};
        const arrays = await this.#read(this.plan.outputs, inputs, commands);
        commands.submit();
        this.plan.outputs.forEach((t, i) => { [outputs[t.name], shapes[t.name]] = [arrays[i], this.#shaped(t).shape]; });
        return { outputs, shapes, ms: ms() };
      });
    });
  }

  /**
   * Times each dispatch on what lies in the buffers: repeated until a sample takes `least` milliseconds and 64 steps of
   * the timestamps, the median of `samples`. Gives `{method, step, us}`: `us` for each of `dispatches`, `step` the
   * resolution of timestamps in nanoseconds: browsers round them. Runs after it find other intermediate values, and
   * write them anew.
   */
  measure({ least = 4, samples = 3, progress = () => {} } = {}) {
    return this.#alone(async () => {
      const inside = (s) => (s.loop ? list(s.loop.body) : s.sides ? [...list(s.sides[1]), ...list(s.sides[0])] : []);
      const list = (steps) => steps.flatMap((s) => (s.row ? [s] : inside(s)));
      const us = [], all = list(this.steps);
      const own = this.timed ? 0 : await this.#sample(null, 0);
      // All that was measured is a multiple of the step.
      let step = 0;
      const sample = async (s, times) => {
        const ms = await this.#sample(s, times) - own;
        if (this.timed) for (let n = Math.round(ms * 1e6); n; ) [step, n] = [n, step % n];
        return ms;
      };
      // The first samples do not tell the step yet.
      const enough = () => Math.max(least, (64 * step) / 1e6 < 16 ? (64 * step) / 1e6 : 0);
      for (const [i, s] of all.entries()) {
        let times = 1, ms = await sample(s, times);
        while (ms < enough() && times < 4096) {
          times = Math.min(4096, Math.max(2 * times, Math.ceil((1.2 * times * enough()) / Math.max(ms, enough() / 64))));
          ms = await sample(s, times);
        }
        const found = [ms];
        while (found.length < samples) found.push(await sample(s, times));
        found.sort((a, b) => a - b);
        us.push((1e3 * found[found.length >> 1]) / times);
        progress("timing kernels", i + 1, all.length);
      }
      return { method: this.timed ? "timestamps" : "the clock", step: this.timed ? step : null, us };
    });
  }
  /** Milliseconds of so many dispatches one after another. */
  async #sample(step, times) {
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
      return end > start ? Number(end - start) / 1e6 : 0;
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
      this.#write(t, array);
    }
    const known = new Set(this.plan.inputs.map((t) => t.name));
    const other = Object.keys(inputs).find((name) => !known.has(name));
    if (other !== undefined) throw Error(`there is no input \`${other}\`; there are ${[...known].join(", ")}`);
  }
  /** Writes the elements of a tensor, behind all that is submitted. */
  #write(t, array) {
    if (t.place.host !== undefined) this.#held.set(t.place.host, array);
    const bytes = t.place.buffers ? stored(t, array) : null;
    let at = 0;
    for (const b of t.place.buffers ?? []) {
      const size = Math.min(bytes.byteLength - at, this.plan.buffers[b].bytes);
      this.device.queue.writeBuffer(this.buffers[b], 0, bytes, at, size);
      at += size;
    }
  }
  async #steps(steps, inputs, commands) {
    for (const s of steps) {
      if (s.row) {
        commands.dispatch(s);
      } else if (s.copy) {
        const { from, to } = s.copy;
        commands.copy(this.buffers[from], 0, this.buffers[to], 0, Math.min(this.buffers[from].size, this.buffers[to].size));
      } else if (s.move) {
        this.#held.set(s.move.to.host, await this.#own(s.move.from, inputs));
      } else if (s.loop) {
        await this.#loop(s.loop, inputs, commands);
      } else if (s.host) {
        await this.#compute(s.host, inputs, commands);
      } else {
        const [[condition]] = await this.#read([s.condition], inputs, commands);
        await this.#steps(s.sides[condition ? 1 : 0], inputs, commands);
      }
    }
  }
  /** The elements of a tensor in host memory. */
  async #own({ input, host, constant }, inputs) {
    if (input !== undefined) return inputs[this.plan.inputs[input].name].slice();
    if (host !== undefined) return this.#held.get(host);
    return this.host.constant(constant);
  }
  /** Computes a node on the host. */
  async #compute(h, inputs, commands) {
    if (!this.host) throw Error(`\`${h.name}\` runs on the host, and nothing here runs it`);
    // Its constants are where it is computed.
    const operands = await this.#read(h.inputs.filter((t) => t.place.constant === undefined), inputs, commands);
    const start = performance.now();
    const results = await this.host.node(h.node, operands);
    this.hostMs.set(h.node, (this.hostMs.get(h.node) ?? 0) + performance.now() - start);
    commands.submit();
    h.outputs.forEach((t, i) => {
      if (t.place.host !== undefined) this.#shapes.set(t.place.host, results[i].shape);
      this.#write(t, new ARRAYS[t.dtype](results[i].buffer));
    });
  }
  /** Takes the body of a loop again and again. */
  async #loop(l, inputs, commands) {
    const before = [l.count, l.begin].filter((t) => t);
    const read = before.length ? await this.#read(before, inputs, commands) : [];
    const trips = l.count ? Number(read.shift()[0]) : l.trips ?? Infinity;
    const rows = l.collected.map(() => []);
    let done = 0, more = trips > 0 && (!l.begin || Boolean(read[0][0]));
    while (more) {
      this.#live();
      if (l.index) {
        commands.submit();
        this.#write(l.index, BigInt64Array.of(BigInt(done)));
      }
      await this.#steps(l.body, inputs, commands);
      for (const [i, c] of l.collected.entries()) {
        if (c.all.host === undefined) this.#collect(c, done, commands);
        else rows[i].push((await this.#read([c.row], inputs, commands))[0]);
      }
      more = ++done < trips;
      if (more && l.goOn) more = Boolean((await this.#read([l.goOn], inputs, commands))[0][0]);
      await this.#steps(l.carried, inputs, commands);
      if (done % 64 === 0) commands.submit();
      // A page lives on, and neither does the device's queue grow without end.
      if (done % 1024 === 0) await this.device.queue.onSubmittedWorkDone();
    }
    for (const [i, c] of l.collected.entries()) {
      if (c.grows) this.#rows.set(c.all.buffers[0], done);
      if (c.all.host === undefined) continue;
      const n = elements(c.row), all = new ARRAYS[c.row.dtype](n * done);
      rows[i].forEach((row, at) => all.set(row, at * n));
      this.#held.set(c.all.host, all);
    }
  }
  /** Copies the row of an iteration behind those before it. */
  #collect({ row, all, rowBytes, grows }, at, commands) {
    const list = all.buffers, end = (at + 1) * rowBytes;
    if (grows && this.buffers[list[0]].size < end) {
      const old = this.buffers[list[0]], size = Math.ceil(Math.max(end, 2 * old.size) / 16) * 16;
      this.buffers[list[0]] = this.device.createBuffer({ size, usage: USAGE.STORAGE | USAGE.COPY_SRC | USAGE.COPY_DST });
      commands.copy(old, 0, this.buffers[list[0]], 0, old.size);
    }
    // All slices but the last are as long as the first.
    const [from, to] = [this.buffers[row.place.buffers[0]].size, grows ? Infinity : this.buffers[list[0]].size];
    for (let done = 0; done < rowBytes; ) {
      const start = at * rowBytes + done;
      const [a, b] = [done % from, grows ? start : start % to];
      const n = Math.min(rowBytes - done, from - a, to - b);
      const source = this.buffers[row.place.buffers[Math.floor(done / from)]];
      commands.copy(source, a, this.buffers[list[Math.floor(start / to)]], b, n);
      done += n;
    }
  }
  /** A tensor with the shape that it has in this run. */
  #shaped(t) {
    const rows = this.#rows.get(t.place.buffers?.[0]), shape = this.#shapes.get(t.place.host);
    return rows !== undefined ? { ...t, shape: [rows, ...t.shape.slice(1)] } : shape ? { ...t, shape } : t;
  }
  /** The elements of tensors, behind the commands. */
  async #read(planned, inputs, commands) {
    const { device } = this, tensors = planned.map((t) => this.#shaped(t));
    const there = tensors.filter((t) => t.place.buffers && elements(t));
    const size = there.reduce((n, t) => n + storedBytes(t), 0);
    let bytes = new ArrayBuffer(0), at = 0;
    if (size) {
      const staging = device.createBuffer({ size, usage: USAGE.MAP_READ | USAGE.COPY_DST });
      for (const t of there) {
        let left = storedBytes(t);
        for (const b of t.place.buffers) {
          const n = Math.min(left, this.buffers[b].size);
          commands.copy(this.buffers[b], 0, staging, at, n);
          [at, left] = [at + n, left - n];
        }
      }
      commands.submit();
      await staging.mapAsync(1);
      bytes = staging.getMappedRange().slice(0);
      staging.destroy();
      at = 0;
    }
    return Promise.all(tensors.map((t) => {
      if (!t.place.buffers) return this.#own(t.place, inputs).then((own) => (own instanceof ArrayBuffer ? new ARRAYS[t.dtype](own) : own));
      if (!elements(t)) return new ARRAYS[t.dtype](0);
      const array = loaded(t, bytes.slice(at, at + storedBytes(t)));
      at += storedBytes(t);
      return array;
    }));
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
