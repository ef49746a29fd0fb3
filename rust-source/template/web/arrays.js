// Arrays of NumPy: files .npy, and .npz as `numpy.savez` and `weft run -o` write them.

/** The typed array of each element type; halves are bits. */
export const ARRAYS = {
  f64: Float64Array, f32: Float32Array, f16: Uint16Array, bf16: Uint16Array, bool: Uint8Array, u8: Uint8Array, i8: Int8Array,
  u16: Uint16Array, i16: Int16Array, u32: Uint32Array, i32: Int32Array, u64: BigUint64Array, i64: BigInt64Array,
};

const NUMPY = {
  f64: "<f8", f32: "<f4", f16: "<f2", bf16: "<u2", bool: "|b1", u8: "|u1", i8: "|i1",
  u16: "<u2", i16: "<i2", u32: "<u4", i32: "<i4", u64: "<u8", i64: "<i8",
};

/** The array in the bytes of a file .npy: `{shape, type, bytes}`, where `type` is NumPy's. */
export function readNpy(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < 12 || String.fromCharCode(...bytes.subarray(1, 6)) !== "NUMPY") throw Error("this is no .npy file");
  const [start, length] = bytes[6] > 1 ? [12, view.getUint32(8, true)] : [10, view.getUint16(8, true)];
  const header = new TextDecoder().decode(bytes.subarray(start, start + length));
  const type = /'descr':\s*'([^']+)'/.exec(header)?.[1];
  const shape = /'shape':\s*\(([^)]*)\)/.exec(header)?.[1];
  if (type === undefined || shape === undefined || /'fortran_order':\s*True/.test(header)) {
    throw Error("arrays of plain numbers in C's order are read, and this file has something else");
  }
  return { shape: shape.split(",").filter((n) => n.trim()).map(Number), type, bytes: bytes.slice(start + length) };
}

/** The arrays of a file .npz by name. */
export async function readNpz(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let end = bytes.length - 22;
  while (end >= 0 && view.getUint32(end, true) !== 0x06054b50) end--;
  if (end < 0) throw Error("this is no .npz file");
  const out = new Map();
  let at = view.getUint32(end + 16, true);
  for (let n = view.getUint16(end + 10, true); n > 0; n--) {
    const [method, packed] = [view.getUint16(at + 10, true), view.getUint32(at + 20, true)];
    const [name, extra, comment] = [28, 30, 32].map((i) => view.getUint16(at + i, true));
    const own = view.getUint32(at + 42, true);
    const text = new TextDecoder().decode(bytes.subarray(at + 46, at + 46 + name));
    const data = own + 30 + view.getUint16(own + 26, true) + view.getUint16(own + 28, true);
    let content = bytes.subarray(data, data + packed);
    if (method !== 0) {
      const plain = new Blob([content]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
      content = new Uint8Array(await new Response(plain).arrayBuffer());
    }
    out.set(text.replace(/\.npy$/, ""), readNpy(content));
    at += 46 + name + extra + comment;
  }
  return out;
}

/** The bytes of a file .npy for the elements of a tensor of the plan. */
function npy(tensor, array) {
  const shape = tensor.shape.length === 1 ? `${tensor.shape[0]},` : tensor.shape.join(", ");
  let header = `{'descr': '${NUMPY[tensor.dtype]}', 'fortran_order': False, 'shape': (${shape}), }`;
  header += " ".repeat(63 - ((10 + header.length) % 64)) + "\n";
  const start = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, header.length & 255, header.length >> 8];
  const elements = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  return joined([Uint8Array.from(start), new TextEncoder().encode(header), elements]);
}

function joined(parts) {
  const out = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of parts) {
    out.set(p, at);
    at += p.length;
  }
  return out;
}

function crc32(bytes) {
  let crc = ~0;
  for (const b of bytes) {
    crc ^= b;
    for (let i = 0; i < 8; i++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}

/** The bytes of a file .npz for tensors of the plan, with typed arrays by name. */
export function writeNpz(tensors, arrays) {
  const parts = [], index = [];
  let at = 0;
  for (const t of tensors) {
    const [name, data] = [new TextEncoder().encode(`${t.name}.npy`), npy(t, arrays[t.name])];
    const fields = new DataView(new ArrayBuffer(26));
    [[0, 20], [2, 0x800], [22, name.length]].forEach(([i, x]) => fields.setUint16(i, x, true));
    [[10, crc32(data)], [14, data.length], [18, data.length]].forEach(([i, x]) => fields.setUint32(i, x, true));
    const common = new Uint8Array(fields.buffer);
    const entry = new DataView(new ArrayBuffer(14));
    entry.setUint32(10, at, true);
    index.push(Uint8Array.of(0x50, 0x4b, 1, 2, 20, 0), common, new Uint8Array(entry.buffer), name);
    const own = [Uint8Array.of(0x50, 0x4b, 3, 4), common, name, data];
    parts.push(...own);
    at += own.reduce((n, p) => n + p.length, 0);
  }
  const end = new DataView(new ArrayBuffer(22));
  end.setUint32(0, 0x06054b50, true);
  [8, 10].forEach((i) => end.setUint16(i, tensors.length, true));
  end.setUint32(12, index.reduce((n, p) => n + p.length, 0), true);
  end.setUint32(16, at, true);
  return joined([...parts, ...index, new Uint8Array(end.buffer)]);
}

/** The elements for an input of the plan, from a file's array. */
export function elementsFor(tensor, array) {
  const same = tensor.shape.length === array.shape.length && tensor.shape.every((n, i) => n === array.shape[i]);
  if (array.type !== NUMPY[tensor.dtype] || !same) {
    throw Error(`\`${tensor.name}\` is ${tensor.dtype}[${tensor.shape}], and the file has ${array.type}[${array.shape}]`);
  }
  return new ARRAYS[tensor.dtype](array.bytes.buffer, 0, array.bytes.byteLength / tensor.size);
}
