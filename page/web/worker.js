// The compiler in a Web Worker: takes calls with bytes, gives files, says how far it is.
let instance, why, files = [];
const reader = new FileReaderSync();
const decoder = new TextDecoder();
const bytes = (at, length) => new Uint8Array(instance.exports.memory.buffer, at, length);
const text = (at, length) => decoder.decode(bytes(at, length));

async function begin() {
  postMessage({ progress: ["fetching the compiler", 0, 1] });
  const answer = await fetch("compiler.wasm");
  if (!answer.ok) throw Error(`compiler.wasm: ${answer.status} ${answer.statusText}`);
  const page = {
    now: () => performance.now(),
    progress: (at, length, done, all) => postMessage({ progress: [text(at, length), done, all] }),
    read: (file, offset, length, at) => {
      try {
        const part = reader.readAsArrayBuffer(files[file].slice(offset, offset + length));
        if (part.byteLength === length) bytes(at, length).set(new Uint8Array(part));
        return Number(part.byteLength === length);
      } catch {
        return 0;
      }
    },
    said: (at, length) => { why = text(at, length); },
  };
  ({ instance } = await WebAssembly.instantiate(await answer.arrayBuffer(), { page }));
  instance.exports.start();
}

/** Calls the compiler; gives the files that it leaves. */
function call(name, given) {
  const { exports } = instance;
  why = undefined;
  let failed;
  try {
    for (const g of given) {
      const at = exports.room(g.byteLength);
      bytes(at, g.byteLength).set(g);
    }
    failed = exports[name]();
  } catch (e) {
    // Its memory is not to be trusted any more: the next call gets a new one.
    instance = undefined;
    if (!(e instanceof WebAssembly.RuntimeError)) throw e;
    throw Error(why ? `the compiler has a bug: ${why}` : `the compiler ended, most likely for want of memory (${e.message})`);
  }
  const left = Array.from({ length: exports.files() }, (_, i) => {
    const [path, pathLength, content, length] = new Uint32Array(exports.memory.buffer, exports.file(i), 4);
    return { path: text(path, pathLength), bytes: bytes(content, length).slice() };
  });
  exports.forget();
  if (failed) throw Error(decoder.decode(left[0].bytes));
  return left;
}

onmessage = async ({ data: { id, name, given, from } }) => {
  try {
    if (!instance) await begin();
    // They are read again when weights are asked for.
    if (from) files = from;
    const left = call(name, given);
    const memory = instance.exports.memory.buffer.byteLength;
    postMessage({ id, files: left, memory }, left.map((f) => f.bytes.buffer));
  } catch (e) {
    postMessage({ id, error: e.message });
  }
};
