// Drives a page of `weft export --web` as a reader would, and tells the server what it saw.
import { load, open } from "./runner.js";
import { $, drive, expect, page, put, sentence, until, values } from "./seen.js";

async function runner() {
  const files = await load(".");
  const { network, inputs, first, bits } = await values(files);
  const name = network.inputs[0].name;
  expect("a wrong size is a sentence", /bytes, and got 2 bytes/.test(await sentence(() => network.run({ ...inputs, [name]: new Uint8Array(2) }))));
  expect("an unknown input is a sentence", /there is no input `other`/.test(await sentence(() => network.run({ ...inputs, other: inputs[name] }))));
  expect("runs go on after it", bits(await network.run(inputs)) === bits(first));
  const { popErrorScope } = GPUDevice.prototype;
  let kind = 0;
  GPUDevice.prototype.popErrorScope = async function () {
    const found = await popErrorScope.call(this);
    return ++kind === 2 ? new GPUOutOfMemoryError("no room") : found;
  };
  expect("too little memory is a sentence", /^the run: there is not enough memory$/.test(await sentence(() => network.run(inputs))));
  Object.assign(GPUDevice.prototype, { popErrorScope });
  expect("runs go on after that", bits(await network.run(inputs)) === bits(first));
  const running = network.run(inputs);
  network.device.destroy();
  expect("a device that is lost in the middle is a sentence", /the device was lost/.test(await sentence(() => running)));
  expect("a lost device is a sentence", /the device was lost/.test(await sentence(() => network.run(inputs))));
  expect("no WebGPU is a sentence", /no WebGPU/.test(await sentence(() => open(files, { gpu: null }))));
  expect("no adapter is a sentence", /no adapter/.test(await sentence(() => open(files, { gpu: { requestAdapter: async () => null } }))));
  const plan = { ...files.plan, features: ["shader-f16", "nothing"], limits: { ...files.plan.limits, maxComputeWorkgroupSizeX: 1 << 30 } };
  expect("what an adapter lacks is said", /lacks nothing.*maxComputeWorkgroupSizeX/.test(await sentence(() => open({ ...files, plan }))));
  const texts = files.texts.map(() => "@compute @workgroup_size(1) fn");
  expect("a refused kernel is named", /kernel `.+` is refused/.test(await sentence(() => open({ ...files, texts }))));
}

/** The browser's process that has the device ends. */
async function ended() {
  const { network, inputs } = await values(await load("."), "ended/");
  await put("end-the-gpu", "");
  expect("a GPU process that ends is a sentence", /the device was lost/.test(await sentence(async () => {
    for (;;) await network.run(inputs);
  })));
  await until(() => !$("error").hidden);
  expect("and the page says it", /the device was lost/.test($("error").textContent));
}

drive(async () => {
  await page();
  await runner();
  await ended();
});
