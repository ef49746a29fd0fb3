// Reads every .wgsl file of some folders with Tint, the WGSL front end of Chromium, as the npm package `webgpu` carries it.
//
//     node scripts/tint.mjs node_modules/webgpu/index.js FOLDER...
//
// Dawn's null backend takes part in everything but execution, so no GPU and no driver is needed. The exit code is 1 when
// Tint refuses a file; each refusal is a line.
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const [library, ...folders] = process.argv.slice(2);
const { create, globals } = await import(pathToFileURL(path.resolve(library)));
Object.assign(globalThis, globals);
// Dawn ends with the object that made it, so it is kept.
const gpu = create(['backend=null']);
const adapter = await gpu.requestAdapter();
if (!adapter) {
  console.error('Dawn gives no null adapter');
  process.exit(2);
}
const wanted = ['shader-f16', 'subgroups'].filter((f) => adapter.features.has(f));
const device = await adapter.requestDevice({ requiredFeatures: wanted });
let read = 0;
let refused = 0;
for (const folder of folders) {
  for (const name of fs.readdirSync(folder).filter((n) => n.endsWith('.wgsl')).sort()) {
    const file = path.join(folder, name);
    device.pushErrorScope('validation');
    const module = device.createShaderModule({ code: fs.readFileSync(file, 'utf8') });
    const { messages } = await module.getCompilationInfo();
    await device.popErrorScope();
    read += 1;
    const errors = messages.filter((m) => m.type === 'error');
    if (errors.length > 0) {
      refused += 1;
      console.log(`${file}:${errors[0].lineNum}: ${errors[0].message}`);
    }
  }
}
console.log(`Tint read ${read} kernels and refused ${refused}`);
process.exit(refused > 0 || read === 0 ? 1 : 0);
