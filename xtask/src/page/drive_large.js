// Drives the compiler's page with a model of 1.6 GB, and tells the server what it saw.
import { compiled, weights } from "./compiler.js";
import { $, drive, drop, expect, page, until, values } from "./seen.js";

drive(async () => {
  await until(() => $("state").textContent === "ready for a model" || !$("error").hidden);
  const [model, data] = await Promise.all(["large.onnx", "large.onnx.data"].map(async (name) => (await fetch(name)).blob()));
  const begun = performance.now();
  await drop("large.onnx", model, new File([data], "large.onnx.data"));
  const seconds = (performance.now() - begun) / 1e3;
  await page();
  const { files, plan, ms, memory } = compiled();
  expect("it is large", plan.weightBytes > 1.5e9);
  expect(`${(memory / 1e6).toFixed(0)} MB of the compiler's memory are at most 300 for ${(plan.weightBytes / 1e6).toFixed(0)} MB of weights`, memory <= 300e6);
  expect(`compiled in ${(ms / 1e3).toFixed(1)} s, open in ${seconds.toFixed(1)} s`, true);
  const texts = plan.kernels.map((k) => new TextDecoder().decode(files.find((f) => f.path === k.file).bytes));
  const { network } = await values({ plan, weights, texts });
  network.destroy();
});
