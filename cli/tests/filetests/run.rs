//! `test run`: runs the same random inputs in every way of running a module; the results must agree.
//!
//! A module with graph functions: the interpreter on the input, on the module after the passes (those of the header's
//! `; passes a,b`, or the standard ones), on the compiled module, and the device; and the compiled tensor functions,
//! printed, parsed and scheduled again, must give the same WGSL. A module of tensor functions alone: each unscheduled
//! function against its scheduled form, in the interpreter and on the device. The device runs kernels of its own
//! profile, or of the header's `; profile NAME` as far as it can, with the rules of `; rules A,B`. `; seed N` draws
//! other inputs, `; dim n=4 m=2` sets symbols (3 without it), `; device off` leaves out the device.

use crate::file::TestFile;
use crate::gpu;
use crate::verbs::context;
use benches::test_device::test_device;
use compiler::agreement::{REORDERED, Tolerance, agree_in_slices};
use compiler::attr::Attrs;
use compiler::compile::{CompileError, Compiled, lower_module};
use compiler::dtype::DType;
use compiler::graph::{Module, bind_dims, open_dims};
use compiler::int::Int;
use compiler::interpreter::{run_function, run_scheduled, run_scheduled_with, run_tensor_function_with};
use compiler::name::Name;
use compiler::passes::{AmpMode, PassContext, PipelineOptions, Sequential, default_pipeline};
use compiler::plan::EmitKernel;
use compiler::profile::DeviceProfile;
use compiler::schedule::apply_pending;
use compiler::tensor::Tensor;
use compiler::text::{compare_modules, parse_module, parse_pipeline, print_module, random_tensor};
use compiler::tir::{BufferId, TensorFunction};
use runtime_gpu::Gpu;
use shaders_gen::Emitter;
use std::sync::Arc;

const DEFAULT_DIM: i64 = 3;

/// How a report names results from the device.
const ON_DEVICE: &str = "on the device";

/// Runs the test; the output has a line for each result.
///
/// # Errors
/// When something does not run, or two ways differ.
pub fn run(t: &TestFile<'_>, m: &Module) -> Result<String, String> {
    let seed = t.setting("seed").map_or(Ok(0), str::parse).map_err(|e| format!("seed: {e}"))?;
    if !m.functions.is_empty() {
        return run_graph(t, m.clone(), seed);
    }
    let mut out = String::new();
    for f in m.tensor_functions.values() {
        out.push_str(&run_tensor(t, f, seed)?);
    }
    Ok(out)
}

/// Values of the header's `dim` line.
fn dims(t: &TestFile<'_>) -> Result<Vec<(Name, i64)>, String> {
    let words = t.setting("dim").unwrap_or("").split_whitespace();
    words
        .map(|w| {
            let (name, value) = w.split_once('=').ok_or_else(|| format!("`{w}` is not NAME=VALUE"))?;
            Ok((Name::new(name), value.parse().map_err(|e| format!("{w}: {e}"))?))
        })
        .collect()
}

fn run_graph(t: &TestFile<'_>, mut m: Module, seed: u64) -> Result<String, String> {
    let given = dims(t)?;
    let value = |n: Name| given.iter().find(|d| d.0 == n).map_or(DEFAULT_DIM, |d| d.1);
    let all: Vec<(Name, i64)> = open_dims(&m).into_iter().map(|n| (n, value(n))).collect();
    bind_dims(&mut m, &all).map_err(|e| e.to_string())?;
    let main = m.main();
    let mut inputs = Vec::new();
    for (i, &p) in main.params().iter().enumerate() {
        let shape = main.ty(p).const_shape().ok_or_else(|| format!("input {i} has no constant shape"))?;
        inputs.push(random_tensor(main.ty(p).dtype, &shape, seed.wrapping_add(i as u64)));
    }
    let names: Vec<String> = main.result_names.iter().map(Name::to_string).collect();
    let want = run_function(&m, m.entry, &inputs).map_err(|e| e.to_string())?;
    let mut cx = context(t)?;
    let half = cx.amp != AmpMode::Off || t.setting("passes").is_some_and(|p| p.contains("mixed-precision"));
    let optimised = optimise(t, m.clone(), &mut cx)?;
    let got = run_function(&optimised, optimised.entry, &inputs).map_err(|e| e.to_string())?;
    let out = report(&names, &want, &got, "after the passes", half)?;
    let compile = |profile: &DeviceProfile| {
        lower_module(optimised.clone(), cx.scheduling.on(profile), &Emitter, vec![], &mut |_, _, _| ())
    };
    match compile(&cx.profile) {
        // Recursion and sizes that depend on data.
        Err(CompileError::NeedsCpu(_)) => return Ok(out),
        Err(e) => return Err(e.to_string()),
        Ok(c) => {
            let got = run_function(&c.module, c.module.entry, &inputs).map_err(|e| e.to_string())?;
            report(&names, &want, &got, "compiled", half)?;
            replay(&c, &cx.profile)?;
        }
    }
    if let Some(gpu) = device(t)? {
        let named = t.setting("profile").map(|_| cx.profile.limited_to(&gpu.profile));
        let profile = named.unwrap_or_else(|| gpu.profile.clone());
        let f16 = profile.f16 && t.setting("f16") != Some("off");
        let profile = DeviceProfile { f16, ..profile };
        let c = compile(&profile).map_err(|e| e.to_string())?;
        let got = gpu::run_plan(gpu, &c.plan, &c.module, &inputs)?;
        report(&names, &want, &got, ON_DEVICE, half)?;
    }
    Ok(out)
}

/// The unscheduled functions as text, parsed and scheduled again: every kernel must come out with the same WGSL.
fn replay(c: &Compiled, profile: &DeviceProfile) -> Result<(), String> {
    let mut m = Module::new("main");
    m.tensor_functions = c.unscheduled.clone();
    let text = print_module(&m);
    let mut again = parse_module(&text).map_err(|e| format!("{e}\n{text}"))?;
    compare_modules(&m, &again)?;
    again.tensor_functions.values_mut().try_for_each(apply_pending).map_err(|e| e.to_string())?;
    for k in &c.plan.kernels {
        let f = again.tensor_functions.get(&k.function).ok_or_else(|| format!("@{} is not in the text", k.function))?;
        let named = f.kernels().into_iter().map(|k| k.0);
        let texts: Vec<String> = named
            .map(|n| Emitter.emit(f, n, profile).map(|k| k.wgsl).map_err(|e| e.to_string()))
            .collect::<Result<_, _>>()?;
        if !texts.contains(&k.emitted.wgsl) {
            return Err(format!("@{} replayed gives other kernels than {}:\n{text}", k.function, k.emitted.name));
        }
    }
    Ok(())
}

/// The module after its passes.
fn optimise(t: &TestFile<'_>, mut m: Module, cx: &mut PassContext) -> Result<Module, String> {
    let list = match t.setting("passes") {
        Some(text) => parse_pipeline(text).map_err(|e| e.to_string())?,
        None => {
            let options =
                PipelineOptions { fuse: cx.fuse, layout: cx.layout, amp: cx.amp, ..PipelineOptions::default() };
            default_pipeline(&options).into_iter().map(|name| (name, Attrs::new())).collect()
        }
    };
    let sequence = list.iter().fold(Sequential::default(), |s, (name, options)| s.then_with(name, options.clone()));
    sequence.run(&mut m, cx).map_err(|e| e.to_string())?;
    Ok(m)
}

/// The device, but for a test that does without.
fn device(t: &TestFile<'_>) -> Result<Option<Arc<Gpu>>, String> {
    if t.setting("device") == Some("off") { Ok(None) } else { test_device().map(Some) }
}

fn run_tensor(t: &TestFile<'_>, f: &TensorFunction, seed: u64) -> Result<String, String> {
    let given = dims(t)?;
    let symbols: Vec<(Name, i64)> = f
        .symbols
        .iter()
        .map(|(n, low, high)| {
            let value = given.iter().find(|d| d.0 == *n).map_or(DEFAULT_DIM.clamp(*low, *high), |d| d.1);
            (*n, value)
        })
        .collect();
    let mut inputs = Vec::new();
    for (i, b) in f.inputs().enumerate() {
        let (shape, dtype) = source_shape(f, b, &symbols)?;
        inputs.push(random_tensor(dtype, &shape, seed.wrapping_add(i as u64)));
    }
    let mut scheduled = f.clone();
    apply_pending(&mut scheduled).map_err(|e| e.to_string())?;
    let want = run_tensor_function_with(f, &symbols, &inputs)?;
    let got = run_scheduled_with(&scheduled, &symbols, &inputs)?;
    let names: Vec<String> = f.outputs().map(|b| format!("@{} {}", f.name, f.buffers[b].name)).collect();
    let out = report(&names, &want, &got, "scheduled", false)?;
    if let Some(gpu) = device(t)?.filter(|_| symbols.is_empty() && !scheduled.kernels().is_empty()) {
        let packed = pack(&scheduled, &inputs)?;
        let got = gpu::run_tensor_function(gpu, &scheduled, &packed)?;
        report(&names, &want, &got, ON_DEVICE, false)?;
    }
    Ok(out)
}

/// The operands as kernels read them.
fn pack(f: &TensorFunction, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let packed = f.inputs().zip(inputs).map(|(b, t)| match f.prepacks.iter().find(|p| p.buffer == b) {
        Some(p) => pack(&p.packer, std::slice::from_ref(t))
            .and_then(|t| run_scheduled(&p.packer, &t))
            .and_then(|mut r| r.pop().ok_or_else(|| "a packer without result".to_string())),
        None => Ok(t.clone()),
    });
    packed.collect()
}

/// Shape that a caller passes for a read parameter: what its packer reads, where it has one.
fn source_shape(f: &TensorFunction, b: BufferId, symbols: &[(Name, i64)]) -> Result<(Vec<usize>, DType), String> {
    if let Some(p) = f.prepacks.iter().find(|p| p.buffer == b) {
        let source = p.packer.inputs().next().ok_or("a packer reads nothing")?;
        return source_shape(&p.packer, source, symbols);
    }
    let buffer = &f.buffers[b];
    let value = |d: &Int| d.eval(&|n| symbols.iter().find(|s| s.0 == n).map(|s| s.1));
    let shape = buffer.shape.iter().map(|d| value(d).and_then(|v| usize::try_from(v).ok()));
    let shape = shape.collect::<Option<_>>().ok_or_else(|| format!("%{} has no shape", buffer.name))?;
    Ok((shape, buffer.dtype))
}

/// A line for each result, or the first that differs.
fn report(names: &[String], want: &[Tensor], got: &[Tensor], how: &str, half: bool) -> Result<String, String> {
    if want.len() != got.len() {
        return Err(format!("{} results {how}, {} before", got.len(), want.len()));
    }
    let mut out = String::new();
    for (i, (w, g)) in want.iter().zip(got).enumerate() {
        let name = names.get(i).filter(|n| !n.is_empty()).cloned().unwrap_or_else(|| format!("result {i}"));
        compare(w, g, how, half).map_err(|e| format!("{name} {how}: {e}"))?;
        out.push_str(&format!("{name}: {}{:?} agrees\n", w.dtype(), w.shape()));
    }
    Ok(out)
}

/// [`compiler::agreement`] of floats, in slices too: as f16 where the passes made that (`half`), and as the same sums
/// in another order where the interpreter ran both in f32 (`how` is not on a device); other elements must be equal.
fn compare(want: &Tensor, got: &Tensor, how: &str, half: bool) -> Result<(), String> {
    if want.dtype() != got.dtype() || want.shape() != got.shape() {
        return Err(format!("{}{:?} instead of {}{:?}", got.dtype(), got.shape(), want.dtype(), want.shape()));
    }
    if !want.dtype().is_float() {
        let differ = want.bytes() != got.bytes();
        return if differ { Err(format!("{got:?} instead of {want:?}")) } else { Ok(()) };
    }
    let dtype = if half { DType::F16 } else { want.dtype() };
    let tolerance = match dtype {
        DType::F32 if how != ON_DEVICE => Tolerance::uniform(REORDERED),
        _ => Tolerance::new(dtype, None, None),
    };
    let found = agree_in_slices(got, want, &tolerance);
    if found.pass { Ok(()) } else { Err(found.why) }
}
