//! Properties of the layout pass on random graphs: results do not change, and the choice never costs more than either
//! layout.

use super::random_graphs::{conv_layouts, in_branch, random_graph};
use super::*;
use crate::cost::{CostModel, EstimatedCost};
use crate::dtype::DType;
use crate::graph::NodeId;
use crate::interpreter::run_function;
use crate::ops::window::DataLayout;
use crate::passes::fusion_kind::describe_block;
use crate::passes::{FuseMode, run_pass};
use crate::profile::DeviceProfile;
use crate::tensor::Tensor;
use crate::text::print_module;
use std::collections::BTreeSet;

fn context(mode: LayoutMode, fuse: FuseMode) -> PassContext {
    let mut cx = PassContext::new(DeviceProfile::lavapipe());
    (cx.layout, cx.fuse) = (mode, fuse);
    cx
}

fn assert_same(got: &[Tensor], want: &[Tensor], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (g, w) in got.iter().zip(want) {
        assert_eq!((g.dtype(), g.shape()), (w.dtype(), w.shape()), "{what}");
        for (a, b) in g.to_f64_vec().into_iter().zip(w.to_f64_vec()) {
            let same = (a - b).abs() <= 2e-4 * (1.0 + b.abs()) || (a.is_nan() && b.is_nan()) || a == b;
            assert!(same, "got {a}, want {b}\n{what}");
        }
    }
}

/// Every mode gives the results of the graph as it stands; together the graphs move most ops that can be converted.
#[test]
fn results_do_not_depend_on_the_layout() {
    let mut converted = BTreeSet::new();
    for seed in 0..50 {
        let (module, inputs) = random_graph(seed, 14, &[1, 3, 4, 8]);
        let want = run_function(&module, module.entry, &inputs).expect("the graph runs");
        for (mode, fuse) in [
            (LayoutMode::Nhwc, FuseMode::Full),
            (LayoutMode::Nhwc, FuseMode::Classic),
            (LayoutMode::Auto, FuseMode::Full),
            (LayoutMode::Nchw, FuseMode::Full),
        ] {
            let mut new = module.clone();
            let mut cx = context(mode, fuse);
            let before = print_module(&module);
            run_pass(&AutoLayout::default(), &mut new, &mut cx).unwrap_or_else(|e| panic!("{e}\n{before}"));
            let what = format!("seed {seed}, {mode}:\n{before}\n=>\n{}", print_module(&new));
            let got = run_function(&new, new.entry, &inputs).unwrap_or_else(|e| panic!("{e}\n{what}"));
            assert_same(&got, &want, &what);
            if mode == LayoutMode::Nhwc {
                converted.extend(moved_ops(&new));
            }
            if mode == LayoutMode::Nchw {
                assert!(conv_layouts(&new).iter().all(|&l| l == DataLayout::Nchw), "{what}");
            }
        }
    }
    assert!(converted.len() >= 20, "few kinds of ops converted: {converted:?}");
}

/// The same for packed layouts, whose channels must divide.
#[test]
fn results_do_not_depend_on_packing() {
    let mut converted = BTreeSet::new();
    for seed in 0..40 {
        let (module, inputs) = random_graph(1000 + seed, 14, &[4, 8, 16]);
        let want = run_function(&module, module.entry, &inputs).expect("the graph runs");
        for mode in [LayoutMode::Nchw4c, LayoutMode::Nchw8c] {
            let mut new = module.clone();
            let mut cx = context(mode, FuseMode::Full);
            run_pass(&AutoLayout::default(), &mut new, &mut cx)
                .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", print_module(&module)));
            let what = format!("seed {seed}, {mode}:\n{}\n=>\n{}", print_module(&module), print_module(&new));
            let got = run_function(&new, new.entry, &inputs).unwrap_or_else(|e| panic!("{e}\n{what}"));
            assert_same(&got, &want, &what);
            converted.extend(moved_ops(&new));
        }
    }
    assert!(converted.len() >= 14, "few kinds of ops converted: {converted:?}");
}

/// A block inside another is converted like the outermost one: its nodes read values and constants from outside.
#[test]
fn branches_read_constants_and_inputs_of_outer_blocks() {
    let mut converted = 0;
    for seed in 0..60 {
        let (module, mut inputs) = random_graph(2000 + seed, 10, &[4, 8]);
        let module = in_branch(&module);
        inputs.push(Tensor::from_f64(DType::Bool, vec![], [1.0]));
        let before = print_module(&module);
        let want = run_function(&module, module.entry, &inputs).unwrap_or_else(|e| panic!("{e}\n{before}"));
        for mode in [LayoutMode::Nhwc, LayoutMode::Auto, LayoutMode::Nchw4c] {
            let mut new = module.clone();
            let mut cx = context(mode, FuseMode::Full);
            run_pass(&AutoLayout::default(), &mut new, &mut cx)
                .unwrap_or_else(|e| panic!("seed {seed}, {mode}: {e}\n{before}"));
            let what = format!("seed {seed}, {mode}:\n{before}\n=>\n{}", print_module(&new));
            let got = run_function(&new, new.entry, &inputs).unwrap_or_else(|e| panic!("{e}\n{what}"));
            assert_same(&got, &want, &what);
            converted += conv_layouts(&new).iter().filter(|&&l| l != DataLayout::Nchw).count();
        }
    }
    assert!(converted >= 30, "few convolutions of branches converted: {converted}");
}

/// Ops that read the result of something in another layout than NCHW, and are no change of layout.
fn moved_ops(module: &Module) -> BTreeSet<&'static str> {
    let f = module.main();
    let mut nhwc: BTreeSet<crate::graph::ValueId> = BTreeSet::new();
    let mut out = BTreeSet::new();
    for n in f.walk() {
        let node = &f.nodes[n];
        let reads = node.inputs.iter().flatten().any(|v| nhwc.contains(v));
        let anchor = node.op.layout_name().is_some_and(|l| l != "NCHW");
        let change = node.op.is::<crate::ops::transpose::Transpose>()
            || node.op.is::<crate::ops::layout_transform::LayoutTransform>()
            || node.op.is::<crate::ops::reshape::Reshape>();
        if change || !(reads || anchor) {
            continue;
        }
        out.insert(node.op.name());
        nhwc.extend(node.outputs.iter().filter(|&&v| f.ty(v).rank() >= 4));
    }
    out
}

/// The cheapest choice costs no more than either pinned one, and its cost is that of the graph that comes out.
#[test]
fn auto_is_never_dearer_than_nchw_or_nhwc() {
    let scheme = Scheme { other: DataLayout::Nhwc };
    let estimated = EstimatedCost::new(&DeviceProfile::lavapipe());
    let (mut chosen, mut kept, mut uniform) = ([0; 2], 0, 0);
    for seed in 100..300 {
        // Large enough that convolutions sometimes pay for transposes.
        let (module, _) = random_graph(seed, 16, &[4, 16, 64]);
        let f = module.main();
        let info = describe_block(&module, f, f.body);
        for dissolve in [false, true] {
            let propagation = propagation::propagate_layouts(&module, f, f.body, &info, scheme, dissolve);
            let costs = choose::Costs { f, propagation: &propagation, scheme, model: &estimated };
            let cost = |layout: Option<u8>| {
                let pin = |n: NodeId| layout.filter(|_| propagation.convertible.get(&n).is_some_and(|m| m.anchor));
                choose::choose(costs, f.body, &pin)
            };
            let (auto, nchw, nhwc) = (cost(None), cost(Some(0)), cost(Some(1)));
            assert!(auto.cost <= nchw.cost.min(nhwc.cost), "seed {seed}: {} {} {}", auto.cost, nchw.cost, nhwc.cost);
            for (n, _) in propagation.convertible.iter().filter(|m| m.1.anchor) {
                chosen[usize::from(auto.converted.contains(n))] += 1;
            }
            let mut new = module.clone();
            let fuse = if dissolve { FuseMode::Full } else { FuseMode::Classic };
            let before = print_module(&module);
            let mut cx = context(LayoutMode::Auto, fuse);
            run_pass(&AutoLayout::default(), &mut new, &mut cx).expect("the pass runs");
            let anchors: Vec<Name> =
                propagation.convertible.iter().filter(|m| m.1.anchor).map(|m| module.main().nodes[*m.0].name).collect();
            let what = format!("seed {seed} {dissolve}:\n{before}\n=>\n{}", print_module(&new));
            // Where the module as a whole is cheaper as it was, its anchors stay; where in NHWC, they move.
            let says = |what: &str| cx.remarks.iter().any(|r| r.message.starts_with(what));
            let whole = says("layouts stay: the module is estimated");
            let moves = says("layouts are the same throughout");
            let source = |n: NodeId| propagation.convertible.get(&n).filter(|m| m.anchor).map(|m| m.source_layout);
            let stays = choose::choose(costs, f.body, &source);
            kept += usize::from(whole);
            uniform += usize::from(moves);
            let expected = match (whole, moves) {
                (true, _) => stays.cost,
                (_, true) => nhwc.cost,
                _ => auto.cost,
            };
            assert_eq!(cost_of(&new, &anchors, &estimated), expected, "{what}");
        }
    }
    assert!(chosen.iter().all(|&n| n > 20), "the choice is trivial: {chosen:?}");
    assert!(uniform > 0, "no module is cheaper in NHWC throughout than in a mix");
    assert!(kept > 0 && kept < 200, "the whole always says the same: {kept} of 400 stay");
}

/// What the anchors of these names cost, and all transposes that the pass inserted.
fn cost_of(module: &Module, anchors: &[Name], model: &dyn CostModel) -> u64 {
    let f = module.main();
    let mut cost = 0;
    for n in f.walk() {
        let node = &f.nodes[n];
        let inserted = node.op.is::<crate::ops::transpose::Transpose>() && node.name.as_str().ends_with(".transpose");
        if inserted || anchors.contains(&node.name) {
            let constant = |v| f.def_op::<crate::ops::control::Const>(v).is_some();
            let operand = |v: &Option<crate::graph::ValueId>| v.map(|v| (f.ty(v).clone(), constant(v)));
            cost += model.node(&crate::cost::NodeForm {
                op: node.op.clone(),
                inputs: node.inputs.iter().map(operand).collect(),
                outputs: node.outputs.iter().map(|&v| f.ty(v).clone()).collect(),
            });
        }
    }
    cost
}
