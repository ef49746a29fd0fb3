//! The peak rates of a device, measured by kernels of Weft.
//!
//! Scheduled tensor functions are compiled like all others: one copies more than any cache holds, one multiplies and
//! adds in registers only, others read from caches or from workgroup memory, or do next to nothing. On the processor
//! the first two are an elementwise function and a product, scheduled by its rules. They are timed by races with
//! themselves. The efficiency of a kernel is that of the roofline model (Williams, Waterman, Patterson, 2009): the
//! larger of its fractions of both peaks.

use crate::races::{Failure, Place};
use crate::speed::product_in_tiles;
use compiler::compile::{CompileOptions, compile};
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use compiler::trace::Ceilings;

/// Timed runs of each kernel; the fastest counts.
const RUNS: usize = 10;
/// Dispatches of a chain whose time is divided by their number.
const CHAIN: usize = 64;

/// Measurements of a GPU, at most.
const STAGES: usize = 9;

/// Measures a device, which takes some seconds.
///
/// # Errors
/// Kernels that it cannot run; times that no device has.
pub fn measure(machine: &Place, progress: &mut dyn FnMut(&str, usize, usize)) -> Result<Ceilings, Failure> {
    let profile = machine.profile();
    let kernels = match machine {
        Place::Gpu(_) => [multiply_add(&profile), copy(&profile)],
        Place::Cpu(_) => [tiles(&profile), plain_copy()],
    };
    let mut ns = |stage: usize, name: &str, kernel: &Kernel| {
        progress(name, stage, STAGES);
        let ns = fastest(machine, kernel).map_err(|e| Failure::Refused(format!("{name}: {}", e.why())))?;
        Ok::<f64, Failure>(ns.max(1.0))
    };
    // First the measurement that needs little memory: if times are wrong, the other one is not started. Operations in a
    // nanosecond are 10^9 in a second.
    let fma_gflops = possible(kernels[0].work / ns(0, "multiply-add", &kernels[0])?, 1e6, "GFLOP/s")?;
    let copy_gb_s = possible(kernels[1].work / ns(1, "copy", &kernels[1])?, 1e5, "GB/s")?;
    let mut found = Ceilings { copy_gb_s, fma_gflops, ..Ceilings::default() };
    if let Place::Gpu(_) = machine {
        let [one, all] = [ns(2, "a dispatch", &dispatches(1))?, ns(3, "dispatches", &dispatches(1 + CHAIN))?];
        let own = (all - one).max(100.0) / CHAIN as f64;
        let cached = cached(&profile);
        let rate = cached.work / (ns(4, "caches", &cached)? - own).max(1.0);
        found = Ceilings { launch_us: Some(own / 1e3), cache_gb_s: Some(rate.max(copy_gb_s)), ..found };
        let mut rate = |stage: usize, name: &str, kernel: &Kernel, unit: &str| {
            possible(kernel.work / (ns(stage, name, kernel)? - own).max(1.0), 1e7, unit).map(Some)
        };
        found.workgroup_gb_s = rate(5, "workgroup memory", &workgroup_memory(&profile, true), "GB/s")?;
        found.conflicting_gb_s = rate(6, "one bank", &workgroup_memory(&profile, false), "GB/s")?;
        if let Some(kernel) = combination(&profile) {
            found.subgroup_gops = rate(7, "subgroups", &kernel, "10^9 values/s")?;
        }
        if let Some(kernel) = product(&profile) {
            found.matrix_gflops = rate(8, "matrix units", &kernel, "GFLOP/s")?;
        }
    }
    Ok(found)
}

/// Nanoseconds of the kernels of a module, the fastest of several rounds of a race.
fn fastest(machine: &Place, kernel: &Kernel) -> Result<f64, Failure> {
    let module = compiler::text::parse_module(&kernel.text).map_err(|e| e.to_string())?;
    let (options, profile) = (CompileOptions::default(), machine.profile());
    let compiled = compile(module, &options, &profile, machine.emitter(), &mut |_, _, _| ());
    let compiled = compiled.map_err(|e| e.to_string())?;
    let inputs: Vec<Tensor> = compiled.plan.inputs.iter().map(|v| Tensor::zeros(v.dtype, v.shape.clone())).collect();
    let times = machine.time(&compiled, &inputs, RUNS)?;
    Ok(times.into_iter().fold(f64::INFINITY, f64::min))
}

/// A product in register tiles.
fn tiles(p: &DeviceProfile) -> Kernel {
    let (text, work) = product_in_tiles(p);
    Kernel { text, work }
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

/// The rate, if it is possible: a driver with a broken clock, or one that skips work, reports impossible times.
fn possible(rate: f64, most: f64, unit: &str) -> Result<f64, Failure> {
    let why = || format!("its driver's times would mean {rate:.1e} {unit}, which no device has");
    if (0.1..most).contains(&rate) { Ok(rate) } else { Err(Failure::Refused(why())) }
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
    let (most, rows) = if p.model().on_host { (64 << 20, 16) } else { (256 << 20, 4) };
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
    let (n, depth) = if p.model().on_host { (4096, 4096) } else { (1 << 17, 4096) };
    // On the host one subgroup, which is one vector register: more would wait for each other.
    let t = if p.model().on_host { p.subgroup.1.max(4) as usize } else { threads(p) };
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

/// Threads that read words of workgroup memory again and again: neighbours read neighbouring words, or words a power of
/// two apart, which the same bank has. All workgroups fill their memory from the same few KiB, which caches hold, so
/// that filling it takes next to no time.
fn workgroup_memory(p: &DeviceProfile, neighbours: bool) -> Kernel {
    let t = p.subgroup.1.clamp(32, 64) as usize;
    let words = 64;
    let (groups, turns) = if p.model().on_host { (64, 16) } else { (4096, 256) };
    let order = if neighbours { "[step,word]" } else { "[]" };
    let text = format!(
        "graph @main(%x: f32[{t},{words}]) -> (y: f32[{groups},{t}]) {{
  %y = call_tensor @read %x : f32[{groups},{t}]
  return %y
}}
tensor @read(%x: f32[{t},{words}], out %y: f32[{groups},{t}]) {{
  buffer %sum: f32[{groups},{t}] global
  for g in 0..{groups} {{ for p in 0..{t} {{ for turn in 0..{turns} {{ for k in 0..{words} {{
    block sum reduce sum init {{ %sum[g, p] <- %x[p, k] }}
  }} }} }} }}
  for group in 0..{groups} {{ for thread in 0..{t} {{ block y {{ %y[group, thread] <- %sum[group, thread] }} }} }}
  schedule {{
    bind {{loop=group, axis=group_x}}
    bind {{loop=thread, axis=local_x}}
    compute-at {{block=sum, at=thread}}
    split {{loop=k, factors=[0,8], into=[step,word]}}
    decompose-reduction {{block=sum, at=turn}}
    stage-in-shared {{block=sum, operand=\"\", at=group, into=tile, order={order}}}
    bind {{loop=tile_thread, axis=local_x}}
    unroll {{loop=word}}
    cut-kernel
  }}
}}
"
    );
    Kernel { text, work: 4.0 * (groups * t * words * turns) as f64 }
}

/// Repeated sums over the lanes of a subgroup; `None` without subgroup operations. Each sum has different values, so
/// the driver cannot drop or hoist one.
fn combination(p: &DeviceProfile) -> Option<Kernel> {
    let t = p.subgroup.0.next_power_of_two() as usize;
    let (groups, turns) = if p.model().on_host { (256, 64) } else { (8192, 256) };
    let text = format!(
        "graph @main(%x: f32[8,{t}], %w: f32[{turns}]) -> (y: f32[{groups}]) {{
  %y = call_tensor @combine %x, %w : f32[{groups}]
  return %y
}}
tensor @combine(%x: f32[8,{t}], %w: f32[{turns}], out %y: f32[{groups}]) {{
  buffer %part: f32[{groups},{turns},8,{t}] global
  buffer %sum: f32[{groups},{turns},8] global
  buffer %all: f32[{groups}] global
  for pg in 0..{groups} {{ for pt in 0..{turns} {{ for ps in 0..8 {{ for pl in 0..{t} {{
    block part {{ %part[pg, pt, ps, pl] <- %x[ps, pl] * %w[pt] }}
  }} }} }} }}
  for sg in 0..{groups} {{ for st in 0..{turns} {{ for ss in 0..8 {{ for lane in 0..{t} {{
    block sum reduce sum init {{ %sum[sg, st, ss] <- %part[sg, st, ss, lane] }}
  }} }} }} }}
  for g in 0..{groups} {{ for turn in 0..{turns} {{ for step in 0..8 {{
    block all reduce sum init {{ %all[g] <- %sum[g, turn, step] }}
  }} }} }}
  for group in 0..{groups} {{ block y {{ %y[group] <- %all[group] }} }}
  schedule {{
    bind {{loop=group, axis=group_x}}
    compute-at {{block=all, at=group, scope=register}}
    compute-at {{block=sum, at=step, scope=register}}
    compute-at {{block=part, at=step, scope=shared}}
    bind {{loop=part_lane, axis=local_x}}
    decompose-reduction {{block=all, at=turn}}
    decompose-reduction {{block=sum, at=lane}}
    combine {{loop=lane}}
    unroll {{loop=step}}
    cut-kernel
  }}
}}
"
    );
    (p.subgroup.0 > 1).then(|| Kernel { text, work: (groups * t * turns * 8) as f64 })
}

/// A large product of f16, if the device has matrix units: scheduled by its rules.
fn product(p: &DeviceProfile) -> Option<Kernel> {
    let n: usize = if p.model().on_host { 256 } else { 4096 };
    let text = format!(
        "graph @main(%a: f16[{n},{n}], %b: f16[{n},{n}]) -> (y: f16[{n},{n}]) {{
  %y = matmul %a, %b : f16[{n},{n}]
  return %y
}}
"
    );
    (!p.matrix_shapes.is_empty()).then(|| Kernel { text, work: 2.0 * (n as f64).powi(3) })
}

/// So many dispatches of a subgroup or two, each of which reads what the one before wrote.
fn dispatches(count: usize) -> Kernel {
    let steps: Vec<String> =
        (0..count).map(|i| format!("  %{} = call_tensor @step {} : f32[64]", i + 1, before(i))).collect();
    let text = format!(
        "graph @main(%x: f32[64]) -> (y: f32[64]) {{
{}
  return %{count}
}}
tensor @step(%x: f32[64], out %y: f32[64]) {{
  for i in 0..64 {{ block y {{ %y[i] <- %x[i] }} }}
  schedule {{
    split {{loop=i, factors=[0,64], into=[group,thread]}}
    bind {{loop=group, axis=group_x}}
    bind {{loop=thread, axis=local_x}}
    cut-kernel
  }}
}}
",
        steps.join("\n")
    );
    Kernel { text, work: 0.0 }
}

/// The value before step `i`.
fn before(i: usize) -> String {
    if i == 0 { "%x".into() } else { format!("%{i}") }
}

/// Threads that read a MiB again and again, each from another place on: more than the caches of a core hold, and less
/// than the last-level cache.
fn cached(p: &DeviceProfile) -> Kernel {
    let (n, t, turns) = (1 << 18, threads(p), 64);
    let text = format!(
        "graph @main(%x: f32[{n}]) -> (y: f32[{n}]) {{
  %y = call_tensor @read %x : f32[{n}]
  return %y
}}
tensor @read(%x: f32[{n}], out %y: f32[{n}]) {{
  buffer %sum: f32[{n}] global
  for p in 0..{n} {{ for k in 0..{turns} {{
    block sum reduce sum init {{ %sum[p] <- %x[(p + k * 16448) % {n}] }}
  }} }}
  for i in 0..{n} {{ block y {{ %y[i] <- %sum[i] }} }}
  schedule {{
    split {{loop=i, factors=[0,{t},4], into=[group,thread,lane]}}
    bind {{loop=group, axis=group_x}}
    bind {{loop=thread, axis=local_x}}
    vectorize {{loop=lane}}
    compute-at {{block=sum, at=thread}}
    split {{loop=k, factors=[0,8], into=[turn,step]}}
    decompose-reduction {{block=sum, at=turn}}
    unroll {{loop=step}}
    cut-kernel
  }}
}}
"
    );
    Kernel { text, work: 4.0 * f64::from(n) * f64::from(turns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_are_for_every_profile() {
        for p in DeviceProfile::all() {
            for (kernel, vectors) in [
                (copy(&p), true),
                (multiply_add(&p), true),
                (cached(&p), true),
                (workgroup_memory(&p, true), false),
                (workgroup_memory(&p, false), false),
            ]
            .into_iter()
            .chain(combination(&p).map(|k| (k, false)))
            {
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
                assert_eq!(k.emitted.wgsl.contains("vec4"), vectors, "{}", k.emitted.wgsl);
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
        let c = Ceilings { copy_gb_s: 100.0, fma_gflops: 1000.0, ..Ceilings::default() };
        assert_eq!((c.fraction(500.0, 10.0), c.fraction(10.0, 90.0)), (0.5, 0.9));
    }
}
