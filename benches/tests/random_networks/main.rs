//! Random networks: the interpreter on the graph as written, on the optimised graph, on the compiled module, and the device
//! must agree, under every mode of layout and fusion, and in mixed precision with native and with packed f16.
//!
//! A network is drawn as a list of [`recipe::Step`]s, so that a failing one shrinks to the few that matter; what a step asks for is
//! made to fit the values that are there. Odd sizes, axes of size 1, groups, dilation, asymmetric padding, and broadcasting
//! from every side come out of the draw.

mod recipe;
mod rounding;

use compiler::agreement::{REORDERED, Tolerance, agree_in_slices};
use compiler::compile::{CompileOptions, compile};
use compiler::cpu::run_function;
use compiler::dtype::DType;
use compiler::graph::Module;
use compiler::passes::{AmpMode, FuseMode, LayoutMode, PipelineOptions};
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use compiler::text::{print_module, random_tensor};
use proptest::prelude::*;
use recipe::{Network, build};
use runtime_gpu::{DeviceChoice, Gpu, Session, SessionOptions};
use shaders_gen::Emitter;
use std::sync::{Arc, OnceLock};

/// The first adapter, opened once. `cargo xtask test` installs a driver, and fails in CI where it cannot.
fn device() -> Option<Arc<Gpu>> {
    static GPU: OnceLock<Option<Arc<Gpu>>> = OnceLock::new();
    GPU.get_or_init(|| {
        let gpu = Gpu::open(&DeviceChoice::Auto).ok().map(Arc::new);
        if gpu.is_none() {
            eprintln!("NOT RUN on a device: there is no adapter");
        }
        gpu
    })
    .clone()
}

fn inputs_of(m: &Module, seed: u64) -> Vec<Tensor> {
    let f = m.main();
    let tensor = |(i, &p): (usize, &compiler::graph::ValueId)| {
        let shape = f.ty(p).const_shape().expect("constant sizes");
        random_tensor(f.ty(p).dtype, &shape, seed + i as u64)
    };
    f.params().iter().enumerate().map(tensor).collect()
}

fn check(want: &[Tensor], got: &[Tensor], tolerance: &Tolerance, how: &str, m: &Module) -> Result<(), TestCaseError> {
    for (i, (w, g)) in want.iter().zip(got).enumerate() {
        prop_assert_eq!(w.dtype(), g.dtype());
        let d = agree_in_slices(g, w, tolerance);
        prop_assert!(d.pass, "result {i} {how}: {}\n{}", d.why, print_module(m));
    }
    prop_assert_eq!(want.len(), got.len());
    Ok(())
}

/// Compiles for a profile and holds the compiled module against `want`, in the interpreter and, where there is one, on a device.
fn check_compiled(
    m: &Module,
    options: PipelineOptions,
    packed: bool,
    inputs: &[Tensor],
    want: &[Tensor],
) -> Result<(), TestCaseError> {
    let form = if packed { " with packed f16" } else { "" };
    let how = format!("under --layout {} --fuse {} --amp {}{form}", options.layout, options.fuse, options.amp);
    let half = options.amp != AmpMode::Off;
    let storage = Tolerance::new(if half { DType::F16 } else { DType::F32 }, None, None);
    let itself = if half { storage } else { Tolerance::uniform(REORDERED) };
    let options = CompileOptions { pipeline: options, verify: true, ..CompileOptions::default() };
    let gpu = device();
    let profile = gpu.as_ref().map_or_else(DeviceProfile::baseline, |g| g.profile.clone());
    let profile = DeviceProfile { f16: profile.f16 && !packed, ..profile };
    let fail = |what: &str, e: String| TestCaseError::fail(format!("{what} {how}: {e}\n{}", print_module(m)));
    let c = compile(m.clone(), &options, &profile, &Emitter, &mut |_, _, _| ())
        .map_err(|e| fail("compile", e.to_string()))?;
    let got = run_function(&c.module, c.module.entry, inputs).map_err(|e| fail("interpret", e.to_string()))?;
    check(want, &got, &itself, &format!("compiled {how}"), m)?;
    let Some(gpu) = gpu else { return Ok(()) };
    let session = Session::open(gpu, &c.plan, &c.module, &SessionOptions::default(), &mut |_, _, _| ());
    let got = session.and_then(|s| s.run(inputs)).map_err(|e| fail("run", e.to_string()))?;
    check(want, &got, &storage, &format!("on the device {how}"), m)
}

/// Cases to draw: `PROPTEST_CASES`, or few enough for every run of the tests.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|v| v.parse().ok()).unwrap_or(48)
}

fn modes() -> impl Strategy<Value = PipelineOptions> {
    let layouts = prop_oneof![
        4 => Just(LayoutMode::Auto),
        2 => Just(LayoutMode::Nhwc),
        1 => Just(LayoutMode::Nchw),
        1 => Just(LayoutMode::None),
    ];
    let fusions = prop_oneof![4 => Just(FuseMode::Full), 1 => Just(FuseMode::Classic), 1 => Just(FuseMode::Off)];
    (layouts, fusions).prop_map(|(layout, fuse)| PipelineOptions { layout, fuse, ..PipelineOptions::default() })
}

/// In f16, and whether in the packed form that devices without f16 need.
fn half_modes() -> impl Strategy<Value = (PipelineOptions, bool)> {
    (modes(), any::<bool>()).prop_map(|(options, packed)| (PipelineOptions { amp: AmpMode::Fp16, ..options }, packed))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_way_of_running_agrees(network in recipe::network(), options in modes(), seed in 0u64..1000) {
        let m = build(&network);
        let inputs = inputs_of(&m, seed);
        let want = run_function(&m, m.entry, &inputs).map_err(|e| TestCaseError::fail(format!("{e}\n{}", print_module(&m))))?;
        check_compiled(&m, options, false, &inputs, &want)?;
    }

    #[test]
    fn mixed_precision_agrees((options, packed) in half_modes(), network in recipe::network(), seed in 0u64..1000) {
        let m = build(&network);
        let inputs = inputs_of(&m, seed);
        let fail = |e: String| TestCaseError::fail(format!("{e}\n{}", print_module(&m)));
        let want = run_function(&m, m.entry, &inputs).map_err(|e| fail(e.to_string()))?;
        prop_assume!(rounding::bears_rounding(&m, &inputs, &want).map_err(fail)?);
        check_compiled(&m, options, packed, &inputs, &want)?;
    }
}

/// A tensor without elements has nothing to compute on a device: refused at compile time, by name, not run wrongly.
#[test]
fn sizes_of_zero_are_refused_or_run() {
    let m = build(&Network { input: [1, 0, 4, 4], steps: vec![] });
    let inputs = inputs_of(&m, 0);
    let options = CompileOptions::default();
    match compile(m, &options, &DeviceProfile::baseline(), &Emitter, &mut |_, _, _| ()) {
        Err(e) => assert!(e.to_string().contains("zero"), "{e}"),
        Ok(c) => {
            let got = run_function(&c.module, c.module.entry, &inputs).expect("runs");
            assert!(got.iter().all(Tensor::is_empty));
        }
    }
}
