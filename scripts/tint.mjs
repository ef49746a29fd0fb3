// Makes a compute pipeline of every .wgsl file of some folders with Dawn, the WebGPU of Chromium, as the npm package
// `webgpu` carries it. Its front end Tint reads the text, and Dawn holds the kernel against the limits of the device.
//
//     node scripts/tint.mjs node_modules/webgpu/index.js LIST.json
//
// LIST.json has objects: `folder`, and `profile` (as `weft devices --profiles --json` writes one) if the kernels must be
// pipelines with the features and limits of that profile and no other; without it, Tint reads the text alone. Dawn's null
// backend takes part in everything but execution, so no GPU and no driver is needed. Its device has 16 KiB of workgroup
// memory and 8 buffers: a kernel that takes more is held against the profile, and counted apart. The exit code is 1 when a file is
// refused; each refusal is a line.
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const [library, list] = process.argv.slice(2);
const { create, globals } = await import(pathToFileURL(path.resolve(library)));
Object.assign(globalThis, globals);
// Dawn ends with the object that made it, so it is kept.
const gpu = create(['backend=null']);

// A device with the features and limits of a profile; without one, with every feature that kernels may name.
async function open(profile) {
  const adapter = await gpu.requestAdapter();
  if (!adapter) {
    console.error('Dawn gives no null adapter');
    process.exit(2);
  }
  const features = [];
  if (!profile || profile.f16) features.push('shader-f16');
  if (!profile || profile.subgroup[0] > 0) features.push('subgroups');
  const wanted = profile && {
    maxComputeWorkgroupStorageSize: profile.shared_memory,
    maxComputeInvocationsPerWorkgroup: profile.max_invocations,
    maxComputeWorkgroupSizeX: profile.max_workgroup_size[0],
    maxComputeWorkgroupSizeY: profile.max_workgroup_size[1],
    maxComputeWorkgroupSizeZ: profile.max_workgroup_size[2],
    maxStorageBuffersPerShaderStage: profile.max_storage_buffers,
  };
  const requiredLimits = {};
  for (const name in wanted) requiredLimits[name] = Math.min(wanted[name], adapter.limits[name]);
  return adapter.requestDevice({ requiredFeatures: features.filter((f) => adapter.features.has(f)), requiredLimits });
}

// The first error of a kernel; null where there is none.
async function refusal(device, code, pipeline) {
  device.pushErrorScope('validation');
  const module = device.createShaderModule({ code });
  const { messages } = await module.getCompilationInfo();
  const error = messages.find((m) => m.type === 'error');
  if (!error && pipeline) device.createComputePipeline({ layout: 'auto', compute: { module } });
  const made = await device.popErrorScope();
  return error ? `${error.lineNum}: ${error.message}` : made ? ` ${made.message.split('\n')[0]}` : null;
}

// Whether a refusal is one of the null device alone: the profile has that much workgroup memory, or so many buffers.
function fits(why, profile) {
  const bytes = /total use of workgroup storage \((\d+) bytes\)/.exec(why ?? '');
  const buffers = /number of storage buffers \((\d+)\)/.exec(why ?? '');
  return (bytes && Number(bytes[1]) <= profile.shared_memory) || (buffers && Number(buffers[1]) <= profile.max_storage_buffers);
}

const devices = new Map();
let [read, pipelines, beyond, refused] = [0, 0, 0, 0];
for (const { folder, profile } of JSON.parse(fs.readFileSync(list, 'utf8'))) {
  const name = profile?.name;
  if (!devices.has(name)) devices.set(name, await open(profile));
  for (const file of fs.readdirSync(folder).filter((n) => n.endsWith('.wgsl')).sort()) {
    const place = path.join(folder, file);
    const why = await refusal(devices.get(name), fs.readFileSync(place, 'utf8'), profile !== undefined);
    read += 1;
    if (profile && fits(why, profile)) {
      beyond += 1;
    } else if (profile && !why) {
      pipelines += 1;
    } else if (why) {
      refused += 1;
      console.log(`${place}:${why}`);
    }
  }
}
const larger = beyond > 0 ? ` (${beyond} more need memory or buffers that its null device lacks and the profile has)` : '';
console.log(`Tint read ${read} kernels, Dawn made pipelines of ${pipelines} of them${larger}; refused: ${refused}`);
process.exit(refused > 0 || read === 0 ? 1 : 0);
