//! `weft bench --ceilings`: the peak rates of a device, measured by kernels of Weft and kept in the user's cache
//! folder.
//!
//! Two scheduled tensor functions are compiled like all others: one copies more than any cache holds, one multiplies
//! and adds in registers only. On the processor these are an elementwise function and a product, scheduled by its rules. The efficiency of a kernel is that of the roofline model (Williams, Waterman, Patterson,
//! 2009): the larger of its fractions of both peaks.

use crate::args::Common;
use crate::error::{CliError, CliResult, Code};
use crate::output::{Progress, log_once, print_text, table, write_file, write_json};
use compiler::compile::MeasureKernel;
use compiler::compile::{CompileOptions, compile};
use compiler::interpreter::HostFunctions;
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use compiler::trace::Ceilings;
use runtime_cpu::Processor;
use runtime_gpu::{AdapterDescription, Gpu, KernelTimer};
use serde_json::json;
use shaders_gen::Emitter;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use weft::{Device, cache_dir};

/// Timed runs of each kernel; the fastest counts.
const RUNS: usize = 10;

/// Prints them alone.
pub fn show(c: &Ceilings, device: &Device, common: &Common) -> CliResult<()> {
    if write_json(common, &json!({ "schema": 1, "device": crate::device::describe(device), "ceilings": c }))? {
        return Ok(());
    }
    let mut t = table(&["ceiling", ""]);
    t.add_row(["copy".to_string(), format!("{:.1} GB/s", c.copy_gb_s)]);
    t.add_row(["multiply-add in f32".to_string(), format!("{:.1} GFLOP/s", c.fma_gflops)]);
    print_text(&t.to_string())
}

/// Measures a device and keeps the result in the user's cache folder.
///
/// # Errors
/// No device, or one that cannot run the kernels.
pub fn measure(device: &Device, common: &Common) -> CliResult<Ceilings> {
    match device {
        Device::Gpu(gpu) => measure_gpu(gpu, common),
        Device::Cpu(processor) => measure_processor(processor, device, common),
        Device::Interpreter => Err(CliError::new(
            Code::Device,
            format!("--ceilings measures a device by its kernels; {} runs none", device.label()),
        )
        .help("`weft devices` lists what is there")),
    }
}

fn measure_processor(processor: &Arc<Processor>, device: &Device, common: &Common) -> CliResult<Ceilings> {
    let mut progress = Progress::new(common, &[]);
    let profile = processor.profile();
    let mut rate = |stage: usize, name: &str, kernel: Kernel| {
        progress.report(name, stage, 2);
        let ns = fastest(processor, &profile, &kernel)
            .map_err(|e| CliError::new(e.code, format!("{name}: {}", e.message)))?;
        Ok::<f64, CliError>(kernel.work / ns.max(1.0))
    };
    let fma_gflops = possible(rate(0, "multiply-add", tiles(&profile))?, 1e6, "GFLOP/s")?;
    let copy_gb_s = possible(rate(1, "copy", plain_copy())?, 1e5, "GB/s")?;
    let found = Ceilings { copy_gb_s, fma_gflops, matrix_gflops: None };
    drop(progress);
    store(&key_of(device), found)?;
    Ok(found)
}

/// Nanoseconds of the kernels of a module on the processor, the fastest of several runs.
fn fastest(processor: &Arc<Processor>, profile: &DeviceProfile, kernel: &Kernel) -> CliResult<f64> {
    let bug = |e: String| CliError::new(Code::Bug, e);
    let module = compiler::text::parse_module(&kernel.text).map_err(|e| bug(e.to_string()))?;
    let options = CompileOptions::default();
    let compiled = compile(module, &options, profile, &runtime_cpu::Emitter, &mut |_, _, _| ());
    let compiled = compiled.map_err(|e| bug(e.to_string()))?;
    let none = |name| Err(format!("the kernel has a constant {name}"));
    let session = runtime_cpu::Session::open(processor.clone(), &compiled.plan, &none)?;
    let inputs = &session.plan().inputs;
    let inputs: Vec<Tensor> = inputs.iter().map(|v| Tensor::zeros(v.dtype, v.shape.clone())).collect();
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        let (_, times) = session.run_measured(&inputs, &HostFunctions::default())?;
        best = best.min(times.iter().map(|t| t.ns).sum());
    }
    Ok(best)
}

/// A product whose tiles find their operands in the first cache. An odd number of tiles of columns: rows a power of two
/// apart would share a set of it.
fn tiles(p: &DeviceProfile) -> Kernel {
    let [rows, columns] = p.register_tile.map(|n| n as usize);
    let (m, n, k) = (8 * rows, columns * (32 * p.cores as usize + 1), 128);
    let text = format!(
        "graph @main(%a: f32[{m},{k}], %b: f32[{k},{n}]) -> (y: f32[{m},{n}]) {{
  %y = matmul %a, %b : f32[{m},{n}]
  return %y
}}
"
    );
    Kernel { text, work: 2.0 * (m * n * k) as f64 }
}

/// A copy of more than any cache holds.
fn plain_copy() -> Kernel {
    let n = 16 << 20;
    let text = format!(
        "graph @main(%x: f32[{n}]) -> (y: f32[{n}]) {{
  %y = neg %x : f32[{n}]
  return %y
}}
"
    );
    Kernel { text, work: 8.0 * f64::from(n) }
}

/// Fills in figures of a device that neither the driver nor the table of products has: from an earlier measurement, or
/// by one measurement now. If that fails, the guesses stay, and the reason is reported.
pub fn complete(gpu: Gpu, common: &Common) -> Arc<Gpu> {
    let mut gpu = Arc::new(gpu);
    if !gpu.description.figures.lacking() {
        return gpu;
    }
    let found = stored_of(&gpu.description).map_or_else(
        || {
            let name = &gpu.description.name;
            log_once(common, format!("device: measuring {name} once, as its cores or rates are not known"));
            measure_gpu(&gpu, common)
        },
        Ok,
    );
    match (found, Arc::get_mut(&mut gpu)) {
        (Ok(c), Some(gpu)) => gpu.set_measured(c.fma_gflops, c.copy_gb_s),
        (Err(e), _) => log_once(common, format!("device: guessed, since it cannot be measured: {}", e.message)),
        (Ok(_), None) => {}
    }
    gpu
}

/// The rate, if it is possible: a driver with a broken clock, or one that skips work, reports impossible times.
fn possible(rate: f64, most: f64, unit: &str) -> CliResult<f64> {
    let why = || format!("its driver's times would mean {rate:.1e} {unit}, which no device has");
    if (0.1..most).contains(&rate) { Ok(rate) } else { Err(CliError::new(Code::Device, why())) }
}

fn measure_gpu(gpu: &Arc<Gpu>, common: &Common) -> CliResult<Ceilings> {
    gpu.check_computes()?;
    let mut progress = Progress::new(common, &[]);
    let mut timer = KernelTimer::new(gpu.clone(), RUNS);
    let mut rate = |stage: usize, name: &str, kernel: Kernel| {
        progress.report(name, stage, 2);
        let module = compiler::text::parse_module(&kernel.text)
            .map_err(|e| CliError::new(Code::Bug, format!("the kernel of {name}: {e}")))?;
        let compiled = compile(module, &CompileOptions::default(), &gpu.profile, &Emitter, &mut |_, _, _| ())
            .map_err(|e| CliError::new(Code::Bug, format!("the kernel of {name}: {e}")))?;
        let ns = timer.measure(&compiled).map_err(|e| CliError::new(Code::Device, format!("{name}: {e}")))?;
        // Operations in a nanosecond are 10^9 in a second.
        Ok::<f64, CliError>(kernel.work / ns.max(1.0))
    };
    // First the measurement that needs little memory: if times are wrong, the other one is not started.
    let fma_gflops = possible(rate(0, "multiply-add", multiply_add(&gpu.profile))?, 1e6, "GFLOP/s")?;
    let copy_gb_s = possible(rate(1, "copy", copy(&gpu.profile))?, 1e5, "GB/s")?;
    let found = Ceilings { copy_gb_s, fma_gflops, matrix_gflops: None };
    drop(progress);
    store(&key(&gpu.description), found)?;
    Ok(found)
}

/// A module of one kernel, and its bytes or operations.
struct Kernel {
    text: String,
    work: f64,
}

/// Threads of a workgroup.
fn threads(p: &DeviceProfile) -> usize {
    p.max_invocations.min(256) as usize
}

/// Each thread copies `rows` vectors, a workgroup apart.
fn copy(p: &DeviceProfile) -> Kernel {
    let (most, rows) = if p.software { (64 << 20, 16) } else { (256 << 20, 4) };
    let n = (p.max_binding.min(p.max_buffer).min(most) / 4) as usize;
    let t = threads(p);
    let n = n / (rows * t * 4) * (rows * t * 4);
    let text = format!(
        "graph @main(%x: f32[{n}]) -> (y: f32[{n}]) {{
  %y = call_tensor @copy %x : f32[{n}]
  return %y
}}
tensor @copy(%x: f32[{n}], out %y: f32[{n}]) {{
  for i in 0..{n} {{ block y {{ %y[i] <- %x[i] }} }}
  schedule {{
    split {{loop=i, factors=[0,{rows},{t},4], into=[group,row,thread,lane]}}
    bind {{loop=group, axis=group_x}}
    bind {{loop=thread, axis=local_x}}
    vectorize {{loop=lane}}
    cut-kernel
  }}
}}
"
    );
    Kernel { text, work: 8.0 * n as f64 }
}

/// Each thread adds products of registers to eight sums, `depth` times: enough chains to hide the latency of an
/// addition, and few enough for the registers of a CPU.
fn multiply_add(p: &DeviceProfile) -> Kernel {
    let (n, depth) = if p.software { (4096, 4096) } else { (1 << 17, 4096) };
    // On a software device one subgroup, which is one vector register: more would wait for each other.
    let t = if p.software { p.subgroup.1.max(4) as usize } else { threads(p) };
    let text = format!(
        "graph @main(%x: f32[{n}], %w: f32[8]) -> (y: f32[{n},8]) {{
  %y = call_tensor @multiply_add %x, %w : f32[{n},8]
  return %y
}}
tensor @multiply_add(%x: f32[{n}], %w: f32[8], out %y: f32[{n},8]) {{
  buffer %sum: f32[{n},8] global
  for p in 0..{n} {{ for c in 0..8 {{ for k in 0..{depth} {{
    block sum reduce sum init {{ %sum[p, c] <- %x[p] * %w[c] }}
  }} }} }}
  for i in 0..{n} {{ for j in 0..8 {{ block y {{ %y[i, j] <- %sum[i, j] }} }} }}
  schedule {{
    split {{loop=i, factors=[0,{t}], into=[group,thread]}}
    bind {{loop=group, axis=group_x}}
    bind {{loop=thread, axis=local_x}}
    split {{loop=j, factors=[0,4], into=[vector,lane]}}
    vectorize {{loop=lane}}
    unroll {{loop=vector}}
    compute-at {{block=sum, at=thread}}
    split {{loop=k, factors=[0,16], into=[turn,step]}}
    reorder {{loops=[turn,step,sum_vector,sum_lane]}}
    decompose-reduction {{block=sum, at=turn}}
    stage-in-registers {{block=sum, operand=\"0\", at=thread, into=xr}}
    stage-in-registers {{block=sum, operand=\"1\", at=thread, into=wr}}
    vectorize {{loop=sum_lane}}
    unroll {{loop=sum_vector}}
    unroll {{loop=step}}
    vectorize {{loop=wr_sum_lane}}
    unroll {{loop=wr_sum_vector}}
    vectorize {{loop=sum_init_sum_lane}}
    unroll {{loop=sum_init_sum_vector}}
    cut-kernel
  }}
}}
"
    );
    Kernel { text, work: 2.0 * 8.0 * f64::from(n) * f64::from(depth) }
}

/// The file of all devices' ceilings.
fn file() -> Option<PathBuf> {
    Some(cache_dir()?.join("ceilings.json"))
}

/// A device with its driver: another driver has other ceilings.
fn key(d: &AdapterDescription) -> String {
    format!("{} ({}, {})", d.name, d.backend, d.driver)
}

fn all() -> BTreeMap<String, Ceilings> {
    let text = file().and_then(|f| std::fs::read_to_string(f).ok());
    text.and_then(|t| serde_json::from_str(&t).ok()).unwrap_or_default()
}

/// The same of an opened device.
fn key_of(device: &Device) -> String {
    match device {
        Device::Gpu(gpu) => key(&gpu.description),
        _ => {
            let about = crate::device::describe(device);
            let text = |field: &str| about[field].as_str().unwrap_or_default().to_string();
            format!("{} ({}, {})", text("name"), text("backend"), text("driver"))
        }
    }
}

/// Earlier measurements on this device.
pub fn stored_of(device: &AdapterDescription) -> Option<Ceilings> {
    all().get(&key(device)).copied()
}

/// Earlier measurements on an opened device.
pub fn stored(device: &Device) -> Option<Ceilings> {
    all().get(&key_of(device)).copied()
}

fn store(key: &str, found: Ceilings) -> CliResult<()> {
    let Some(path) = file() else { return Ok(()) };
    let mut list = all();
    list.insert(key.to_string(), found);
    let text = serde_json::to_string_pretty(&list).map_err(|e| CliError::new(Code::Bug, e.to_string()))?;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .map_err(|e| CliError::usage(format!("cannot make {}: {e}", folder.display())))?;
    }
    write_file(&path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_are_for_every_profile() {
        for p in DeviceProfile::all() {
            for kernel in [copy(&p), multiply_add(&p)] {
                let module = compiler::text::parse_module(&kernel.text).expect("the text parses");
                let options = compiler::compile::CompileOptions::default();
                let c = compiler::compile::compile(
                    module,
                    &options,
                    &p,
                    &shaders_gen::Emitter,
                    &mut |_: &str, _: usize, _: usize| (),
                );
                let c = c.unwrap_or_else(|e| panic!("{}: {e}", p.name));
                let [k] = c.plan.kernels.as_slice() else { panic!("{}: {} kernels", p.name, c.plan.kernels.len()) };
                assert!(k.emitted.bounds_proved, "{}", p.name);
                assert!(k.emitted.wgsl.contains("vec4"), "{}", k.emitted.wgsl);
            }
        }
    }

    #[test]
    fn times_that_no_device_can_have_are_refused() {
        let may = |rate| possible(rate, 1e6, "GFLOP/s").is_ok();
        assert!(may(60_000.0) && may(20.0));
        assert!(!may(8.6e9) && !may(f64::INFINITY) && !may(f64::NAN) && !may(0.0));
    }

    #[test]
    fn the_ceiling_that_binds() {
        let c = Ceilings { copy_gb_s: 100.0, fma_gflops: 1000.0, matrix_gflops: None };
        assert_eq!((c.fraction(500.0, 10.0), c.fraction(10.0, 90.0)), (0.5, 0.9));
    }
}
