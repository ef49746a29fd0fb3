//! The cost of a whole module after fusion. The choice by anchors does not see epilogues, or the kernels between
//! anchors, whose costs a layout changes too.

use super::blocks::{channels_first, on_blocks, stands_in_nhwc, visit_block};
use super::pins::{Anchors, Pins};
use crate::cost::{TIME_NOISE, Weighed};
use crate::fingerprint::Fingerprint;
use crate::graph::{Function, Module, NodeId};
use crate::ops::control::Const;
use crate::passes::fusion_kind::kernel_expression;
use crate::passes::pipeline::behind_layout;
use crate::passes::{PassBase, PassContext, PassError, Sequential};
use crate::tir::{BufferId, TensorFunction};
use indexmap::IndexMap;

/// The share of a module's estimate that need not be measured.
const SMALL: f64 = 0.1;

/// A module before the pass, with the number of remarks then, and of folded transposes.
pub(super) struct Start {
    module: Module,
    remarks: usize,
    folded: usize,
}

impl Start {
    pub fn of(module: &Module, cx: &PassContext) -> Start {
        Start { module: module.clone(), remarks: cx.remarks.len(), folded: cx.folded_layouts }
    }
}

/// A module with uniform layouts, and the remarks of making it.
struct Uniform {
    anchors: Anchors,
    words: &'static str,
    module: Module,
    cx: PassContext,
    whole: Whole,
}

/// Compares three modules and keeps the cheapest: the module with the chosen layouts (`pins` left the choice free),
/// and the modules that `start` becomes with all anchors in their original layouts, or all in the target's other
/// layout.
pub(super) fn weigh(
    pass: &dyn PassBase,
    module: &mut Module,
    start: Start,
    pins: &Pins,
    cx: &mut PassContext,
) -> Result<(), PassError> {
    let chosen = Whole::of(module, cx)?;
    let mut others = vec![uniform(pass, &start.module, "those that it had", pins, Anchors::Stay, cx)?];
    if pins.mixed {
        let words = pins.scheme().other.title();
        others.push(uniform(pass, &start.module, words, pins, Anchors::Move, cx)?);
    }
    let wholes = || std::iter::once(&chosen).chain(others.iter().map(|o| &o.whole));
    let estimated: Vec<f64> = wholes().map(|w| w.estimated(cx)).collect();
    let measured: Option<Vec<f64>> = wholes().map(|w| w.measured(cx)).collect();
    // By measured times, another module must beat the estimate's choice by more than the noise.
    let (picked, is_measured) = (least(&estimated), measured.is_some());
    let (how, margin) = if is_measured { ("measured", 1.0 - TIME_NOISE) } else { ("estimated", 1.0) };
    let costs = measured.unwrap_or(estimated);
    let fastest = least(&costs);
    let picked = if costs[fastest] < margin * costs[picked] { fastest } else { picked };
    let list: Vec<String> =
        others.iter().zip(&costs[1..]).map(|(o, ns)| format!("{:.1} us in {}", ns / 1e3, o.words)).collect();
    let others_cost = costs.iter().enumerate().filter(|c| c.0 != picked).map(|c| *c.1).fold(f64::INFINITY, f64::min);
    let weighed = Weighed { one: others_cost, other: costs[picked], measured: is_measured };
    let flips = weighed.flips(margin, "the best other");
    let words = format!("{:.1} us in the layouts chosen, {} ({flips})", costs[0] / 1e3, list.join(", "));
    let Some(mut best) = picked.checked_sub(1).map(|i| others.swap_remove(i)) else {
        cx.applied(pass, &[], format!("the module is {how} at {words}"));
        return Ok(());
    };
    *module = best.module;
    cx.remarks.truncate(start.remarks);
    cx.remarks.append(&mut best.cx.remarks);
    cx.folded_layouts = start.folded + best.cx.folded_layouts;
    let what = match best.anchors {
        Anchors::Move => "layouts are the same throughout",
        _ => "layouts stay",
    };
    cx.missed(pass, &[], format!("{what}: the module is {how} at {words}"));
    Ok(())
}

/// The module with all anchors alike that nothing pins.
fn uniform(
    pass: &dyn PassBase,
    start: &Module,
    words: &'static str,
    pins: &Pins,
    anchors: Anchors,
    cx: &mut PassContext,
) -> Result<Uniform, PassError> {
    let (mut own, mut module, scheme) = (cx.apart(), start.clone(), pins.scheme());
    let stands = scheme.is_packed() && module.functions.values().any(stands_in_nhwc);
    if stands && anchors == Anchors::Move {
        on_blocks(&mut module, |r, block| channels_first(r, block, &mut own))?;
    }
    if !stands || anchors == Anchors::Move {
        let mut pins = pins.uniform(anchors);
        on_blocks(&mut module, |r, block| visit_block(pass, r, block, scheme, &mut pins, &mut own))?;
    }
    Ok(Uniform { anchors, words, whole: Whole::of(&module, cx)?, module, cx: own })
}

/// The index of the smallest number; of equal ones the first.
fn least(list: &[f64]) -> usize {
    list.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |found| found.0)
}

/// A group's tensor expression, and the parameters that are constants.
struct Group {
    expression: TensorFunction,
    constants: Vec<BufferId>,
    /// How often it is called.
    calls: usize,
}

/// The kernels of a module, once the passes behind `auto-layout` have run.
struct Whole {
    groups: Vec<Group>,
}

impl Whole {
    /// The groups of a module. Nodes without kernels are left out: they cost the same in every layout.
    ///
    /// # Errors
    /// An error of one of these passes.
    fn of(module: &Module, cx: &mut PassContext) -> Result<Whole, PassError> {
        let mut fused = module.clone();
        let mut own = cx.apart();
        Sequential::new(behind_layout(cx.fuse)).run(&mut fused, &mut own)?;
        let mut groups: IndexMap<(Fingerprint, Vec<BufferId>), Group> = IndexMap::new();
        for f in fused.functions.values().filter(|f| !f.primitive) {
            for n in f.walk() {
                let Some(group) = group(&fused, f, n) else { continue };
                let key = (group.expression.fingerprint(), group.constants.clone());
                groups.entry(key).or_insert(group).calls += 1;
            }
        }
        Ok(Whole { groups: groups.into_values().collect() })
    }
    /// The estimated nanoseconds of all kernels.
    fn estimated(&self, cx: &mut PassContext) -> f64 {
        self.times(cx).into_iter().map(|t| t.0).sum()
    }
    /// The measured nanoseconds of all kernels. Functions with a small share of the estimate need not be measured:
    /// their estimates are scaled.
    fn measured(&self, cx: &mut PassContext) -> Option<f64> {
        let times = self.times(cx);
        let all: f64 = times.iter().map(|t| t.0).sum();
        let known: Vec<(f64, f64)> = times.into_iter().filter_map(|t| t.1.map(|ns| (t.0, ns))).collect();
        let (of_known, ns) = known.iter().fold((0.0, 0.0), |sum, t| (sum.0 + t.0, sum.1 + t.1));
        (of_known > 0.0 && of_known >= (1.0 - SMALL) * all).then(|| ns * all / of_known)
    }
    /// Estimated nanoseconds of each group's calls, and measured ones.
    fn times(&self, cx: &mut PassContext) -> Vec<(f64, Option<f64>)> {
        let model = cx.costs();
        let of = |g: &Group| {
            let found = model.function(&g.expression, &g.constants);
            let calls = g.calls as f64;
            found.as_ref().as_ref().map_or((0.0, None), |e| (calls * e.total(), e.measured.map(|ns| calls * ns)))
        };
        self.groups.iter().map(of).collect()
    }
}

/// The group that node `n` calls; `None` for another node, and for one that only gives its operand another shape.
fn group(module: &Module, f: &Function, n: NodeId) -> Option<Group> {
    let node = &f.nodes[n];
    let callee = module.functions.get(&node.op.callee()?).filter(|c| c.primitive)?;
    let constant = |i: usize| node.inputs.get(i).copied().flatten().is_some_and(|v| f.def_op::<Const>(v).is_some());
    let (expression, constants) = kernel_expression(module, callee, &constant)?;
    Some(Group { expression, constants, calls: 0 })
}
