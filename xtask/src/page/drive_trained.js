// Compiles and runs whole networks in the compiler's page, and tells the server what it saw.
import { readNpz } from "./arrays.js";
import { compiled } from "./compiler.js";
import { one } from "./one.js";
import { $, drive, drop, expect, until } from "./seen.js";

drive(async () => {
  await until(() => $("state").textContent === "ready for a model" || !$("error").hidden);
  for (const { name, sizes } of await (await fetch("models.json")).json()) {
    const inputs = await fetch(`${name}.in.npz`), given = inputs.ok ? await readNpz(new Uint8Array(await inputs.arrayBuffer())) : new Map();
    const model = await (await fetch(`${name}.onnx`)).arrayBuffer();
    const bytes = Object.fromEntries([...given].map(([input, array]) => [input, array.bytes]));
    $("sizes").value = sizes;
    await one(name, () => drop(`${name}.onnx`, model), bytes);
    const { plan, ms } = compiled();
    expect(`${name}: ${plan.kernels.length} kernels, compiled in ${(ms / 1e3).toFixed(2)} s`, true);
  }
});
