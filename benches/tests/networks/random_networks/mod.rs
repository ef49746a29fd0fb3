//! Random networks: the interpreter on the graph as written, on the optimised graph, on the compiled module, and the
//! device must agree, under every mode of layout and fusion, compiled for the device or for another profile
//! ([`targets`]), and in mixed precision with native and with packed f16.
//!
//! A network is drawn as a list of [`recipe::Step`]s, so that a failing network shrinks to the few steps that matter;
//! each step is adapted to the existing values. Networks have odd sizes, axes of size 1, groups, dilation, asymmetric
//! padding, and broadcasting from every side.
//! `PROPTEST_CASES=600 cargo test -p weft-benches --test networks random_networks` draws more of them.

mod c;
mod control;
mod kinds;
mod nan;
mod native;
mod open;
mod recipe;
mod rounding;
mod tally;
mod targets;

use benches::test_device::test_device;
use compiler::agreement::{REORDERED, Tolerance, agree_in_slices};
use compiler::attr::AttrStruct;
use compiler::compile::{CompileOptions, compile};
use compiler::dtype::DType;
use compiler::graph::Module;
use compiler::interpreter::run_function;
use compiler::passes::{AmpMode, FuseMode, LayoutMode, PipelineOptions, Winograd};
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use compiler::text::{print_module, random_tensor};
use proptest::prelude::*;
use recipe::{Network, build};
use runtime_gpu::{Session, SessionOptions};
use shaders_gen::Emitter;
use tally::Tally;
use targets::Target;

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

/// Compiles for a target and holds the compiled module against `want`, in the interpreter and on the device.
fn check_compiled(
    m: &Module,
    options: PipelineOptions,
    target: &Target,
    inputs: &[Tensor],
    want: &[Tensor],
) -> Result<(), TestCaseError> {
    let how = format!("under --layout {} --fuse {} --amp {}{target}", options.layout, options.fuse, options.amp);
    let half = options.amp != AmpMode::Off;
    let storage = Tolerance::new(if half { DType::F16 } else { DType::F32 }, None, None);
    // Winograd's tiles are less precise than another order of the sums.
    let tiles = options.config.iter().any(|c| c.0 == Winograd::NAME);
    let how = if tiles { format!("{how}, winograd") } else { how };
    let itself = if half || tiles { storage } else { Tolerance::uniform(REORDERED) };
    let options = CompileOptions { pipeline: target.asking(options), verify: true, ..CompileOptions::default() };
    let gpu = test_device().map_err(TestCaseError::fail)?;
    let profile = target.on(&gpu.profile);
    let fail = |what: &str, e: String| TestCaseError::fail(format!("{what} {how}: {e}\n{}", print_module(m)));
    let c = compile(m.clone(), &options, &profile, &Emitter, &mut |_, _, _| ())
        .map_err(|e| fail("compile", e.to_string()))?;
    let got = run_function(&c.module, c.module.entry, inputs).map_err(|e| fail("interpret", e.to_string()))?;
    check(want, &got, &itself, &format!("compiled {how}"), m)?;
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
    // Networks this small do not gain from tiles: some are made to have them.
    let tiles = prop_oneof![3 => Just(None), 1 => prop_oneof![Just(2), Just(4)].prop_map(Some)];
    (layouts, fusions, tiles).prop_map(|(layout, fuse, tile)| {
        let config = tile.map(|tile| (Winograd::NAME.to_string(), Winograd { tile }.to_attrs()));
        PipelineOptions { layout, fuse, config: config.into_iter().collect(), ..PipelineOptions::default() }
    })
}

fn config() -> ProptestConfig {
    let cases = cases();
    // What is drawn in vain is bounded by the tally; proptest must only not give up before.
    let max_global_rejects = cases.max(64) * 4;
    ProptestConfig {
        cases,
        max_global_rejects,
        max_shrink_iters: 400,
        source_file: Some(file!()),
        ..ProptestConfig::default()
    }
}

#[test]
fn every_way_of_running_agrees() {
    let tally = Tally::default();
    let drawn = (recipe::network(), modes(), targets::target(), 0u64..1000);
    proptest!(config(), |((network, options, target, seed) in drawn)| {
        let drawn = build(&network);
        tally.drawn(&drawn);
        let m = drawn.module;
        let inputs = inputs_of(&m, seed);
        let fail = |e: String| TestCaseError::fail(format!("{e}\n{}", print_module(&m)));
        let want = run_function(&m, m.entry, &inputs).map_err(|e| fail(e.to_string()))?;
        if !rounding::bears_reordering(&m, &inputs, &want).map_err(fail)? {
            tally.rejected();
            return Err(TestCaseError::reject("another order alone moves its results"));
        }
        check_compiled(&m, options, &target, &inputs, &want)?;
    });
    tally.report("every way of running");
}

#[test]
fn mixed_precision_agrees() {
    let tally = Tally::default();
    let drawn = (recipe::network(), modes(), targets::half_target(), 0u64..1000);
    proptest!(config(), |((network, options, target, seed) in drawn)| {
        let drawn = build(&network);
        tally.drawn(&drawn);
        let m = drawn.module;
        let inputs = inputs_of(&m, seed);
        let fail = |e: String| TestCaseError::fail(format!("{e}\n{}", print_module(&m)));
        let want = run_function(&m, m.entry, &inputs).map_err(|e| fail(e.to_string()))?;
        if !rounding::bears_rounding(&m, &inputs, &want).map_err(fail)? {
            tally.rejected();
            return Err(TestCaseError::reject("rounding alone moves its results"));
        }
        check_compiled(&m, PipelineOptions { amp: AmpMode::Fp16, ..options }, &target, &inputs, &want)?;
    });
    tally.report("mixed precision");
}

/// A tensor without elements has nothing to compute on a device: refused at compile time, by name, not run wrongly.
#[test]
fn sizes_of_zero_are_refused_or_run() {
    let m = build(&Network { input: [1, 0, 4, 4], steps: vec![] }).module;
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
