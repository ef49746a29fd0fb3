// Drives a page of `weft export --web` as a reader would, and tells the server what it saw.
import { load, open } from "./runner.js";
import { drive, expect, page, sentence, values } from "./seen.js";

async function runner() {
  const files = await load(".");
  const { network, inputs, first, bits } = await values(files);
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

drive(async () => {
  await page();
  await runner();
});
