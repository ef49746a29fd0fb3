//! Whole networks on the device: every network of the zoo, in its smallest form, against the interpreter on the graph
//! as written.
//!
//! Every run of the tests takes NCHW in f32 and NHWC in f16. `cargo test -p weft-benches --test whole_networks --
//! --include-ignored` (`cargo xtask test --full`) takes every layout in every precision, and the schedules of every
//! named profile.

use benches::test_device::test_device;
use benches::zoo::{self, Input, ZooEntry};
use compiler::agreement::{Tolerance, agree};
use compiler::calibrate::{Limits, calibrate};
use compiler::compile::{CompileOptions, compile, split_network};
use compiler::dtype::DType;
use compiler::graph::Module;
use compiler::interpreter::run_function;
use compiler::passes::{AmpMode, LayoutMode, PipelineOptions};
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use compiler::text::random_tensor;
use libtest_mimic::{Arguments, Failed, Trial};
use runtime_gpu::{Gpu, Session, SessionOptions};
use shaders_gen::{Emitter, GeneratedModule, WgslDialect};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use weft::{Device, Model, Options};

/// What every run of the tests takes.
const ALWAYS: [(LayoutMode, AmpMode); 2] = [(LayoutMode::Nchw, AmpMode::Off), (LayoutMode::Nhwc, AmpMode::Fp16)];
/// Weights and images come from this seed.
const SEED: u64 = 0;

/// A network, an image, and what the interpreter makes of it.
struct Reference {
    module: Module,
    inputs: Vec<Tensor>,
    want: Vec<Tensor>,
}

impl Reference {
    fn new(entry: &ZooEntry) -> Result<Reference, String> {
        let module = zoo::build(&format!("{}:smallest", entry.name), 1, SEED).map_err(|e| e.to_string())?;
        let f = module.main();
        let image = f.ty(f.params()[0]).const_shape().ok_or("an open image")?;
        // Evenly drawn from -1 to 1: times the square root of 3 that has the variance of 1 that the zoo's weights
        // expect.
        let even = random_tensor(DType::F32, &image, SEED).to_f64_vec();
        let inputs = vec![match entry.input {
            Input::Image(_) => Tensor::from_f64(DType::F32, image, even.into_iter().map(|x| x * 3f64.sqrt())),
            Input::Tokens(_) => {
                Tensor::from_f64(DType::I64, image, even.into_iter().map(|x| ((x + 1.0) * 4000.0).floor()))
            }
        }];
        let want = run_function(&module, module.entry, &inputs).map_err(|e| e.to_string())?;
        Ok(Reference { module, inputs, want })
    }
}

/// The reference of a network, made once.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Option<Arc<Reference>>>>);
impl Shared {
    fn get(&self, entry: &ZooEntry) -> Result<Arc<Reference>, String> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reference) = &*made {
            return Ok(reference.clone());
        }
        let reference = Arc::new(Reference::new(entry)?);
        *made = Some(reference.clone());
        Ok(reference)
    }
}

fn main() -> ExitCode {
    let mut trials = Vec::new();
    for entry in zoo::list() {
        let reference = Shared::default();
        for &layout in LayoutMode::ALL {
            for &amp in AmpMode::ALL {
                let reference = reference.clone();
                let name = format!("{} --layout {layout} --amp {amp}", entry.name);
                let test = move || check(entry, &reference, (layout, amp), None).map_err(Failed::from);
                trials.push(Trial::test(name, test).with_ignored_flag(!ALWAYS.contains(&(layout, amp))));
            }
        }
        for amp in [AmpMode::Off, AmpMode::Fp16] {
            let test = move || for_browsers(entry, amp).map_err(Failed::from);
            trials.push(Trial::test(format!("{} for browsers --amp {amp}", entry.name), test));
        }
        for profile in DeviceProfile::all() {
            let (reference, name) = (reference.clone(), format!("{} --target {}", entry.name, profile.name));
            let modes = (LayoutMode::Auto, AmpMode::Off);
            let test = move || check(entry, &reference, modes, Some(&profile)).map_err(Failed::from);
            trials.push(Trial::test(name, test).with_ignored_flag(true));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Every kernel of the network in its full size for the profile `webgpu` is a shader of the standard, and within the
/// profile's limits. Of a network in parts, the first one counts.
fn for_browsers(entry: &ZooEntry, amp: AmpMode) -> Result<(), String> {
    let profile = DeviceProfile::webgpu();
    let module = zoo::build(entry.name, 1, SEED).map_err(|e| e.to_string())?;
    let module = split_network(&module).map_err(|e| e.to_string())?.map_or(module, |parts| parts.head);
    let pipeline = PipelineOptions { amp, ..PipelineOptions::default() };
    let options = CompileOptions { pipeline, ..CompileOptions::default() };
    let c = compile(module, &options, &profile, &Emitter, &mut |_, _, _| ()).map_err(|e| format!("compile: {e}"))?;
    if c.plan.kernels.is_empty() {
        return Err("nothing was compiled for the device".into());
    }
    for k in &c.plan.kernels {
        let module = k.emitted.module.downcast_ref::<GeneratedModule>().ok_or("a kernel is no shader")?;
        let text = module.emit_wgsl_in(WgslDialect::Standard).map_err(|e| format!("{}: {e}", k.name))?;
        let threads = k.emitted.workgroup.iter().product::<u32>();
        let taken = (k.emitted.shared_bytes, threads, k.emitted.bindings.len());
        let most = (profile.shared_memory, profile.max_invocations, profile.max_storage_buffers as usize);
        if taken.0 > most.0 || taken.1 > most.1 || taken.2 > most.2 || !text.contains("@compute") {
            return Err(format!("{} takes {taken:?} of {most:?}", k.name));
        }
    }
    Ok(())
}

/// Compiles for the device (or for another profile as far as the device can run it), runs there, and compares with the
/// interpreter.
fn check(
    entry: &ZooEntry,
    shared: &Shared,
    (layout, amp): (LayoutMode, AmpMode),
    target: Option<&DeviceProfile>,
) -> Result<(), String> {
    let gpu = test_device()?;
    let profile = target.map_or_else(|| gpu.profile.clone(), |p| p.limited_to(&gpu.profile));
    let reference = shared.get(entry)?;
    let Reference { module, inputs, want } = &*reference;
    let mut pipeline = PipelineOptions { layout, amp, ..PipelineOptions::default() };
    if amp == AmpMode::Auto {
        let found = calibrate(module, &pipeline, &profile, inputs, &Limits::default(), &mut |_| ());
        found.map_err(|e| format!("calibration: {e}"))?.apply(&mut pipeline);
    }
    if split_network(module).map_err(|e| e.to_string())?.is_some() {
        return check_in_parts(module, (inputs, want), gpu, profile, pipeline);
    }
    let options = CompileOptions { pipeline, ..CompileOptions::default() };
    let c = compile(module.clone(), &options, &profile, &Emitter, &mut |_, _, _| ())
        .map_err(|e| format!("compile: {e}"))?;
    if c.plan.kernels.is_empty() {
        return Err("nothing was compiled for the device".into());
    }
    let session = Session::open(gpu, &c.plan, &c.module, &SessionOptions::default(), &mut |_, _, _| ());
    let got = session.and_then(|s| s.run(inputs)).map_err(|e| e.to_string())?;
    let storage = if amp == AmpMode::Off { DType::F32 } else { DType::F16 };
    for ((w, g), view) in want.iter().zip(&got).zip(&c.plan.outputs) {
        let found = agree(g, w, &Tolerance::new(storage, None, None));
        if !found.pass {
            return Err(format!("{}: {}", view.name, found.why));
        }
    }
    if want.len() == got.len() { Ok(()) } else { Err(format!("{} results, {} expected", got.len(), want.len())) }
}

/// The same for a network that decides sizes. Which boxes a detector keeps turns on the last bit of their overlap, so
/// below f32 all that is held is that a run gives results of the right kind.
fn check_in_parts(
    module: &Module,
    (inputs, want): (&[Tensor], &[Tensor]),
    gpu: Arc<Gpu>,
    profile: DeviceProfile,
    pipeline: PipelineOptions,
) -> Result<(), String> {
    let single = pipeline.amp == AmpMode::Off;
    let options = Options { profile: Some(profile), pipeline, ..Options::default() };
    let session = Model::from_module(module.clone())
        .compile(&options)
        .and_then(|c| c.session(&Device::Gpu(gpu)))
        .map_err(|e| e.to_string())?;
    let (got, place) = session.run_placed(inputs).map_err(|e| e.to_string())?;
    if !place.starts_with("device") {
        return Err(format!("it ran on: {place}"));
    }
    if want.iter().map(Tensor::dtype).ne(got.iter().map(Tensor::dtype)) {
        return Err("results of other types".into());
    }
    for (w, g) in want.iter().zip(&got).filter(|_| single) {
        let found = agree(g, w, &Tolerance::new(DType::F32, None, None));
        if !found.pass {
            return Err(found.why);
        }
    }
    Ok(())
}
