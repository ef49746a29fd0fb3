// For scripts that drive the compiler's page: compiles and runs one network, and keeps its digests.
import { compiled, host, weights } from "./compiler.js";
import { page, put, rounded, values } from "./seen.js";

const digest = async (bytes) => [...new Uint8Array(await crypto.subtle.digest("SHA-256", bytes))].map((b) => b.toString(16).padStart(2, "0")).join("");

/** The file of all weights, which a page never has at once. */
async function blob() {
  const { plan } = compiled(), all = new Uint8Array(plan.weightBytes);
  for (const { weights: at } of plan.buffers) if (at !== null) all.set(await weights(at), at);
  return all;
}
/** Compiles and runs a network; puts what it was compiled to into the folder. */
export async function one(name, take, given) {
  await take();
  await page();
  const { files, request, plan } = compiled();
  const made = files.filter((f) => f.path !== "open.json");
  const lines = await Promise.all([...made, { path: "weights.bin", bytes: await blob() }].map(async (f) => `${f.path} ${await digest(f.bytes)}`));
  await put(`${name}/digests`, lines.sort().join("\n"));
  await put(`${name}/profile.json`, JSON.stringify(request.profile));
  const of = (path) => files.find((f) => f.path === path).bytes;
  const texts = plan.kernels.map((k) => new TextDecoder().decode(of(k.file)));
  const { network } = await values({ plan, weights, texts }, `${name}/`, { host }, given);
  if (network.dispatches.length >= 10) await rounded(network);
  network.destroy();
}
