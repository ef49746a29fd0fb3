//! Tests that fusion, layouts and algorithms depend on the estimate and on no other cost model, and that measured times
//! of functions precede it. Schedule rules have their own test beside the estimate (`rules_ask_the_estimate`).

use super::auto_layout::AutoLayout;
use super::fuse_ops::FuseOps;
use super::winograd::Winograd;
use super::*;
use crate::compile::{KernelTimes, MeasuredCost};
use crate::cost::{CostModel, EstimatedCost, Measurements, NodeForm};
use crate::graph::Module;
use crate::int::DimRanges;
use crate::name::Name;
use crate::ops::DataLayout;
use crate::ops::control::Call;
use crate::ops::conv::Conv;
use crate::profile::DeviceProfile;
use crate::schedule::estimate::{Cost, Estimate, KernelEstimate};
use crate::text::parse_module;
use crate::tir::{BufferId, TensorFunction};
use std::sync::{Arc, Mutex};

/// A cost model that says the same of everything.
struct Always(Arc<Result<Estimate, String>>);

impl CostModel for Always {
    fn node(&self, _: &NodeForm) -> u64 {
        1000
    }
    fn function(&self, _: &TensorFunction, _: &[BufferId]) -> Arc<Result<Estimate, String>> {
        self.0.clone()
    }
}

fn refuses() -> Arc<dyn CostModel> {
    Arc::new(Always(Arc::new(Err("there is no estimate".into()))))
}

fn constant() -> Arc<dyn CostModel> {
    let cost = Cost { launch: 1000.0, ..Cost::default() };
    let (name, counts) = (Name::new("k"), Default::default());
    let kernel = KernelEstimate { name, bindings: 1, shared_bytes: 0, workgroups: 1, threads: 1, counts, cost };
    Arc::new(Always(Arc::new(Ok(Estimate { kernels: vec![kernel], cost, measured: None, asked: None }))))
}

fn ada() -> DeviceProfile {
    DeviceProfile::named("ada").expect("a profile")
}

/// The same device to whatever asks anything but the estimate, which finds that nothing but launches takes time on it.
/// A tidy test holds that passes and rules do not read these rates.
fn launches_alone() -> DeviceProfile {
    DeviceProfile { gflops: 1e15, gb_s: 1e15, ..ada() }
}

fn context(costs: Arc<dyn CostModel>) -> PassContext {
    PassContext { cost_model: Some(costs), ..PassContext::new(ada()) }
}

fn parsed(text: &str) -> Module {
    parse_module(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// How many ops are in each group that fusion makes of two convolutions, each with pooling behind it: in windows that
/// do not overlap, and in others that do.
fn groups(costs: Arc<dyn CostModel>) -> Vec<usize> {
    groups_in(&mut context(costs))
}

fn groups_in(cx: &mut PassContext) -> Vec<usize> {
    let mut m = parsed(
        "const @w : f32[64,32,3,3] = random(1)
const @v : f32[64,64,3,3] = random(2)
graph @main(%x: f32[1,32,64,64]) -> (y: f32[1,64,15,15]) {
  %w = const @w
  %v = const @v
  %0 = conv %x, %w {pads=[1,1,1,1]} : f32[1,64,64,64]
  %1 = max_pool %0 {kernel=[2,2], strides=[2,2]} : f32[1,64,32,32]
  %2 = conv %1, %v {pads=[1,1,1,1]} : f32[1,64,32,32]
  %3 = max_pool %2 {kernel=[3,3], strides=[2,2]} : f32[1,64,15,15]
  return %3
}
",
    );
    let pass = FuseOps { mode: Some(FuseMode::Full), ..FuseOps::default() };
    run_pass(&pass, &mut m, cx).expect("the pass runs");
    let f = m.main();
    let called = f.walk().into_iter().filter_map(|n| f.nodes[n].op.downcast::<Call>().map(|c| c.callee));
    called.map(|callee| m.functions[&callee].walk().len()).collect()
}

/// How many of two convolutions run in NHWC.
fn in_nhwc(costs: Arc<dyn CostModel>) -> usize {
    in_nhwc_in(&mut context(costs))
}

fn in_nhwc_in(cx: &mut PassContext) -> usize {
    let mut m = parsed(
        "const @w : f32[64,64,3,3] = random(1)
graph @main(%x: f32[1,64,56,56]) -> (y: f32[1,64,56,56]) {
  %w = const @w
  %0 = conv %x, %w {pads=[1,1,1,1]} : f32[1,64,56,56]
  %1 = conv %0, %w {pads=[1,1,1,1]} : f32[1,64,56,56]
  return %1
}
",
    );
    run_pass(&AutoLayout::default(), &mut m, cx).expect("the pass runs");
    let f = m.main();
    let convs = f.walk().into_iter().filter_map(|n| f.nodes[n].op.downcast::<Conv>().map(|c| c.layout));
    convs.filter(|l| *l == DataLayout::Nhwc).count()
}

#[test]
fn fusion_asks_the_estimate() {
    let with = groups(Arc::new(EstimatedCost::new(&ada())));
    let others = [refuses(), constant(), Arc::new(EstimatedCost::new(&launches_alone()))].map(groups);
    for without in &others {
        assert_ne!(&with, without);
    }
    // Nothing is joined that the estimate would have to speak for, and all where it finds that one kernel is less than
    // two.
    assert_eq!(others[0].len(), 4, "{others:?}");
    assert_eq!(others[1].len(), 2, "{others:?}");
}

#[test]
fn layouts_ask_the_estimate() {
    assert_eq!(in_nhwc(Arc::new(EstimatedCost::new(&ada()))), 2);
    for without in [refuses(), constant(), Arc::new(EstimatedCost::new(&launches_alone()))] {
        assert_eq!(in_nhwc(without), 0);
    }
}

/// The estimate, and every function that it was asked about, with its number of stages.
struct Asked {
    estimated: EstimatedCost,
    functions: Mutex<Vec<(String, usize, f64)>>,
}

impl CostModel for Asked {
    fn node(&self, form: &NodeForm) -> u64 {
        self.estimated.node(form)
    }
    fn function(&self, f: &TensorFunction, constants: &[BufferId]) -> Arc<Result<Estimate, String>> {
        let found = self.estimated.function(f, constants);
        if let Ok(e) = found.as_ref() {
            let stages = f.stages().map_or(0, |s| s.len());
            self.functions.lock().expect("a list").push((f.form(constants).to_string(), stages, e.total()));
        }
        found
    }
    fn measures_functions(&self) -> bool {
        true
    }
}

/// A context whose measured times are what `time` makes of the number of stages and the estimate of each function that
/// `decide` asks about.
fn measured<T>(decide: fn(&mut PassContext) -> T, time: fn(usize, f64) -> Option<f64>) -> PassContext {
    let asked = Arc::new(Asked { estimated: EstimatedCost::new(&ada()), functions: Mutex::default() });
    decide(&mut context(asked.clone()));
    let list = asked.functions.lock().expect("a list");
    let times = list.iter().filter_map(|(form, stages, ns)| Some((form.clone(), time(*stages, *ns)?))).collect();
    let functions = [(ada().identity(), times)].into();
    let times = KernelTimes::new(Measurements { functions, ..Measurements::default() });
    context(Arc::new(MeasuredCost::new(Arc::new(times), &ada(), &DimRanges::default())))
}

fn says(cx: &PassContext, words: &str) -> bool {
    cx.remarks.iter().any(|r| r.message.contains(words))
}

#[test]
fn measured_times_flip_a_fusion() {
    let estimated = groups(Arc::new(EstimatedCost::new(&ada())));
    let mut slow = measured(groups_in, |stages, ns| Some(if stages > 1 { 100.0 * ns } else { ns }));
    assert_eq!(groups_in(&mut slow).len(), 4);
    assert!(says(&slow, "apart (measured; "), "{:?}", slow.remarks);
    let mut fast = measured(groups_in, |stages, ns| Some(if stages > 1 { 0.01 * ns } else { ns }));
    assert_eq!(groups_in(&mut fast), estimated);
    assert!(says(&fast, "apart (measured; "), "{:?}", fast.remarks);
    // A time that is measured is not compared with an estimate.
    let mut part = measured(groups_in, |stages, ns| (stages > 1).then_some(100.0 * ns));
    assert_eq!(groups_in(&mut part), estimated);
    assert!(!says(&part, "measured"), "{:?}", part.remarks);
}

#[test]
fn measured_times_flip_layouts() {
    let mut same = measured(in_nhwc_in, |_, ns| Some(ns));
    assert_eq!(in_nhwc_in(&mut same), 2);
    assert!(says(&same, "the module is measured at"), "{:?}", same.remarks);
    let mut other = measured(in_nhwc_in, |_, ns| Some(1e9 / ns));
    assert_eq!(in_nhwc_in(&mut other), 0);
    assert!(says(&other, "layouts stay: the module is measured at"), "{:?}", other.remarks);
    // Times that differ by less than their noise: the estimate decides.
    let mut near = measured(in_nhwc_in, |_, ns| Some(1e6 - ns));
    assert_eq!(in_nhwc_in(&mut near), 2);
    assert!(says(&near, "the module is measured at"), "{:?}", near.remarks);
    // Only the kernels of one layout were measured.
    let mut part = measured(in_nhwc_in, |_, ns| (ns < 1.0).then_some(ns));
    assert_eq!(in_nhwc_in(&mut part), 2);
    assert!(says(&part, "the module is estimated at"), "{:?}", part.remarks);
}

/// Whether the convolution became transforms of tiles.
fn is_in_tiles(cx: &mut PassContext) -> bool {
    let mut m = parsed(
        "const @w : f32[64,64,3,3] = random(1)
graph @main(%x: f32[1,64,56,56]) -> (y: f32[1,64,56,56]) {
  %w = const @w
  %0 = conv %x, %w {pads=[1,1,1,1]} : f32[1,64,56,56]
  return %0
}
",
    );
    run_pass(&Winograd::default(), &mut m, cx).expect("the pass runs");
    m.main().walk().len() > 2
}

#[test]
fn measured_times_flip_an_algorithm() {
    assert!(!is_in_tiles(&mut context(Arc::new(EstimatedCost::new(&ada())))));
    // The convolution is the longest of the kernels.
    let mut slow = measured(is_in_tiles, |_, ns| Some(ns * ns * ns));
    assert!(is_in_tiles(&mut slow) && says(&slow, "us (measured; "), "{:?}", slow.remarks);
    let mut fast = measured(is_in_tiles, |_, ns| Some(1e9 / ns));
    assert!(!is_in_tiles(&mut fast) && says(&fast, "us (measured; "), "{:?}", fast.remarks);
    // Only some of the kernels were measured.
    let mut part = measured(is_in_tiles, |stages, ns| (stages < 2).then_some(ns * ns * ns));
    assert!(!is_in_tiles(&mut part) && !says(&part, "measured"), "{:?}", part.remarks);
}
