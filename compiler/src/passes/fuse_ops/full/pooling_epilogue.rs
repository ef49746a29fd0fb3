//! `pooling-epilogue`: a reduction over windows of a convolution's results is the end of the convolution's kernel.
//!
//! ```text
//! conv + relu ─ max_pool 2x2 stride 2    =>    conv + relu + max_pool, whose tiles hold whole windows
//! ```
//!
//! Applies when nobody else uses what the windows are of, when a tile of registers holds a window, and when computing what
//! windows share once for each costs less than storing every result and loading it again
//! ([`WindowWork`](crate::schedule::rules::WindowWork) has the cost): windows that do not overlap share nothing. The kernel has as
//! many results of the convolution to compute as before, so that it keeps the device as busy.

use super::super::forward::Source;
use super::{Extension, Made, Missed, shape_of};
use crate::graph::{NodeId, ValueId};
use crate::ops::control::Const;
use crate::passes::fusion_kind::group_expression;
use crate::schedule::rules::{WindowWork, window_index};
use crate::tir::{BinaryOp, BufferId, Combiner, Expr, FusionKind, Stage, TensorFunction};

const RULE: &str = "pooling-epilogue";

/// Runs over the reductions, first to last.
pub(super) fn apply(cx: &mut Extension<'_, '_>) {
    let makers = cx.makers();
    for (pool, operands) in makers.iter().enumerate() {
        let heavy = matches!(cx.g.nodes[pool].kind, FusionKind::Reduction | FusionKind::OutElementwiseFusable);
        if !heavy || !matches!(cx.g.nodes[pool].source, Source::Node(_)) {
            continue;
        }
        if let Some((value, work)) = operands.iter().find_map(|&value| Some((value, windows(cx, value, pool)?))) {
            visit(cx, value, pool, &work);
        }
    }
}

fn visit(cx: &mut Extension<'_, '_>, value: usize, pool: usize, work: &WindowWork) {
    let node = |i: usize| cx.g.nodes[i].source.node();
    let (own, other) = (node(pool), node(value));
    let name = |n: NodeId| cx.f.nodes[n].name;
    match check(cx, value, pool, work) {
        Ok(()) => {
            let members = cx.p.members_of(value);
            cx.p.join(value, pool);
            cx.p.raise_kind(pool, FusionKind::OutElementwiseFusable);
            let mut made = Made::of(RULE, cx.g, &members);
            let taps = work.taps;
            made.what = Some(format!("{} reduces windows of {taps} where {} is computed", name(own), name(other)));
            made.nodes.push(own);
            cx.made.push(made);
        }
        Err(why) => {
            let why = format!("{} not reduced where {} is computed: {why}", name(own), name(other));
            cx.missed.push(Missed { rule: RULE, nodes: vec![other, own], why });
        }
    }
}

/// The windows that node `pool` reduces of `value`, when that is the result of another group around a contraction.
fn windows(cx: &mut Extension<'_, '_>, value: usize, pool: usize) -> Option<WindowWork> {
    let root = cx.p.root(value);
    let apart = root != cx.p.root(pool) && cx.p.group_kind(root) == FusionKind::OutElementwiseFusable;
    let Source::Node(maker) = cx.g.nodes[value].source else { return None };
    if !apart {
        return None;
    }
    let anchor =
        cx.p.members_of(value).into_iter().find(|&m| cx.g.nodes[m].kind == FusionKind::OutElementwiseFusable)?;
    if shape_of(cx.g, cx.f, anchor) != shape_of(cx.g, cx.f, value) {
        return None;
    }
    let operand = *cx.f.nodes[maker].outputs.first()?;
    let pooled = Windows::of(cx, cx.g.nodes[pool].source.node(), operand)?;
    let product = Product::of(cx, cx.g.nodes[anchor].source.node())?;
    // Windows over columns would have every row of the tile wait for all of its columns.
    if pooled.along.iter().any(|&d| product.rows.get(d) != Some(&true)) {
        return None;
    }
    let results = cx.f.ty(operand).numel().as_const()?;
    Some(WindowWork { results, depth: product.depth, windows: pooled.windows, taps: pooled.taps })
}

/// A sum of products.
struct Product {
    /// Products that each result sums up.
    depth: i64,
    /// For each dimension of the result: the weights do not know it.
    rows: Vec<bool>,
}

impl Product {
    /// The tensor expression of `n`, when that is its only reduction.
    fn of(cx: &Extension<'_, '_>, n: NodeId) -> Option<Product> {
        let (te, outside, _) = group_expression(cx.module, cx.f, &[n]).ok()?;
        let stages = te.stages()?;
        let mut sums = stages.iter().filter(|s| s.block.reduce.is_some());
        let (one, None) = (sums.next()?, sums.next()) else { return None };
        one.block.reduce.as_ref().filter(|r| r.combiner == Combiner::Sum)?;
        let Expr::Binary(BinaryOp::Mul, a, b) = without_casts(&one.block.value) else { return None };
        let buffers: Vec<BufferId> =
            outside.iter().filter(|(v, _)| cx.f.def_op::<Const>(**v).is_some()).map(|o| *o.1).collect();
        let constant = |e: &Expr| matches!(without_casts(e), Expr::Load(b, _) if buffers.contains(b));
        let weights = if constant(b) || !constant(a) { b } else { a };
        let mut known = Vec::new();
        weights.visit_ints(&mut |i| known.extend(i.vars()));
        let rows = one.block.indices.iter().map(|i| i.vars().iter().all(|v| !known.contains(v))).collect();
        Some(Product { depth: reduction_iterations(&te, one)?, rows })
    }
}

fn without_casts(e: &Expr) -> &Expr {
    match e {
        Expr::Cast(_, a) => without_casts(a),
        _ => e,
    }
}

fn reduction_iterations(te: &TensorFunction, s: &Stage<'_>) -> Option<i64> {
    let loops = te.reduction_loops(s.block.name);
    s.loops.iter().filter(|l| loops.contains(&l.0)).map(|l| l.1.as_const()).product()
}

/// Windows over an operand.
struct Windows {
    windows: i64,
    taps: i64,
    /// The operand's dimensions that they go along.
    along: Vec<usize>,
}

impl Windows {
    /// Those that node `n` reduces of `operand`, when that is its only reduction and reads nothing else.
    fn of(cx: &Extension<'_, '_>, n: NodeId, operand: ValueId) -> Option<Windows> {
        let (te, outside, _) = group_expression(cx.module, cx.f, &[n]).ok()?;
        let buffer: BufferId = *outside.get(&operand)?;
        let stages = te.stages()?;
        if stages.iter().filter(|s| s.block.reduce.is_some()).count() != 1 {
            return None;
        }
        let mut readers = stages.iter().filter(|s| s.block.reads(buffer));
        let (one, None) = (readers.next()?, readers.next()) else { return None };
        let index = window_index(&te, one.block, buffer)?;
        if one.block.value.loads().iter().any(|l| l.0 != buffer) {
            return None;
        }
        let taps = reduction_iterations(&te, one)?;
        let all: Option<i64> = one.loops.iter().map(|l| l.1.as_const()).product();
        let loops = te.reduction_loops(one.block.name);
        let along = (0..index.len()).filter(|&d| loops.iter().any(|v| index[d].uses(*v))).collect();
        Some(Windows { windows: all? / taps.max(1), taps, along })
    }
}

/// Whether the two groups become one.
fn check(cx: &mut Extension<'_, '_>, value: usize, pool: usize, work: &WindowWork) -> Result<(), String> {
    let (front, behind) = (cx.p.members_of(value), cx.p.members_of(pool));
    let name = |i: usize| cx.f.nodes[cx.g.nodes[i].source.node()].name;
    for &m in &front {
        let node = &cx.g.nodes[m];
        let others = node.users.iter().filter(|u| !front.contains(&u.0) && (m != value || u.0 != pool)).count();
        if node.escapes || others > 0 {
            return Err(format!("{} is used {} more times", name(m), others + usize::from(node.escapes)));
        }
    }
    for (members, what) in [(&front, value), (&behind, pool)] {
        let virtual_node = members.iter().any(|&m| !matches!(cx.g.nodes[m].source, Source::Node(_)));
        let of = |m: &usize| cx.info.get(&cx.g.nodes[*m].source.node()).map_or(0, |i| i.reductions);
        let reductions: usize = members.iter().map(of).sum();
        if virtual_node || reductions != 1 {
            return Err(format!("the group of {} has {reductions} reductions, or a concat", name(what)));
        }
    }
    work.pays()?;
    let roots = [cx.p.root(value), cx.p.root(pool)];
    match cx.p.fits(&roots) {
        true => Ok(()),
        false => Err(format!("the kernel would have too many nodes, or more bindings than {}", cx.profile.name)),
    }
}
