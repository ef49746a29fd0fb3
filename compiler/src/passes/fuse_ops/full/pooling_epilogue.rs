//! `pooling-epilogue`: a reduction over windows of a convolution's results becomes the end of the convolution's kernel.
//!
//! ```text
//! conv + relu ─ max_pool 2x2 stride 2    =>    conv + relu + max_pool, whose tiles hold whole windows
//! ```
//!
//! It applies if the convolution's results have no other users, if a register tile holds a window, and if one kernel is
//! estimated cheaper than two. One kernel does not store the convolution's results, but computes results that several
//! windows share once per window. Windows that do not overlap share none. A product with windows runs on vector units,
//! with a remark: there is no matrix tile for windows.

use super::super::forward::Source;
use super::{Declined, GroupGraph, Made, shape_of};
use crate::graph::{NodeId, ValueId};
use crate::passes::fusion_kind::group_expression;
use crate::schedule::rules::window_index;
use crate::tir::{BufferId, FusionKind, TensorFunction};

pub(super) const RULE: &str = "pooling-epilogue";

/// Runs over the reductions, first to last.
pub(super) fn apply(cx: &mut GroupGraph<'_, '_>) {
    let makers = cx.makers();
    for (pool, operands) in makers.iter().enumerate() {
        let heavy = matches!(cx.g.nodes[pool].kind, FusionKind::Reduction | FusionKind::OutElementwiseFusable);
        if !heavy || !matches!(cx.g.nodes[pool].source, Source::Node(_)) {
            continue;
        }
        if let Some((value, taps)) = operands.iter().find_map(|&value| Some((value, windows(cx, value, pool)?))) {
            visit(cx, value, pool, taps);
        }
    }
}

fn visit(cx: &mut GroupGraph<'_, '_>, value: usize, pool: usize, taps: i64) {
    let node = |i: usize| cx.g.nodes[i].source.node();
    let (own, other) = (node(pool), node(value));
    let name = |n: NodeId| cx.f.nodes[n].name;
    match check(cx, value, pool) {
        Ok(costs) => {
            let members = cx.p.members_of(value);
            cx.p.join(value, pool);
            cx.p.raise_kind(pool, FusionKind::OutElementwiseFusable);
            let mut made = Made::of(RULE, cx.g, &members);
            let (own_name, other_name) = (name(own), name(other));
            made.what = Some(format!("{own_name} reduces windows of {taps} where {other_name} is computed: {costs}"));
            made.nodes.push(own);
            cx.made.push(made);
        }
        Err(why) => {
            let why = format!("{} not reduced where {} is computed: {why}", name(own), name(other));
            cx.declined.push(Declined { rule: RULE, nodes: vec![other, own], why });
        }
    }
}

/// Elements of the windows that node `pool` reduces of `value`, when that is the result of another group around an
/// anchor.
fn windows(cx: &mut GroupGraph<'_, '_>, value: usize, pool: usize) -> Option<i64> {
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
    let anchor = cx.g.nodes[anchor].source.node();
    let (te, _, _) = group_expression(cx.module, cx.f, &[anchor]).ok()?;
    if !sums_are_read_once(&te) {
        return None;
    }
    let operand = *cx.f.nodes[maker].outputs.first()?;
    elements_of_window(cx, cx.g.nodes[pool].source.node(), operand)
}

/// Whether each reader of a reduction's results reads one element per result, not several.
fn sums_are_read_once(te: &TensorFunction) -> bool {
    let Some(stages) = te.stages() else { return false };
    stages.iter().filter(|s| s.block.reduce.is_some()).all(|s| {
        let loads = stages.iter().flat_map(|t| t.block.value.loads()).filter(|l| l.0 == s.block.buffer);
        let mut places = loads.map(|l| l.1);
        let first = places.next();
        places.all(|ix| Some(ix) == first)
    })
}

/// Elements of the windows that node `n` reduces of `operand`, when that is its only reduction and reads nothing else.
fn elements_of_window(cx: &GroupGraph<'_, '_>, n: NodeId, operand: ValueId) -> Option<i64> {
    let (te, outside, _) = group_expression(cx.module, cx.f, &[n]).ok()?;
    let buffer: BufferId = *outside.get(&operand)?;
    let stages = te.stages()?;
    if stages.iter().filter(|s| s.block.reduce.is_some()).count() != 1 {
        return None;
    }
    let mut readers = stages.iter().filter(|s| s.block.reads(buffer));
    let (one, None) = (readers.next()?, readers.next()) else { return None };
    window_index(&te, one.block, buffer)?;
    if !sums_are_read_once(&te) {
        return None;
    }
    let alone = one.block.value.loads().iter().all(|l| l.0 == buffer);
    let taps: Option<i64> = one.reduction().iter().map(|l| l.1.as_const()).product();
    taps.filter(|_| alone)
}

/// Whether the two groups become one.
fn check(cx: &mut GroupGraph<'_, '_>, value: usize, pool: usize) -> Result<String, String> {
    let (front, behind) = (cx.p.members_of(value), cx.p.members_of(pool));
    let name = |i: usize| cx.f.nodes[cx.g.nodes[i].source.node()].name;
    for &m in &front {
        let node = &cx.g.nodes[m];
        let others = node.users.iter().filter(|u| !front.contains(&u.0) && (m != value || u.0 != pool)).count();
        if node.escapes || others > 0 {
            let count = others + usize::from(node.escapes);
            let readers = if count == 1 { "1 other reader" } else { &format!("{count} other readers") };
            return Err(format!("{} has {readers}, for which it is stored whole", name(m)));
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
    let nodes = |members: &[usize]| members.iter().map(|&m| cx.g.nodes[m].source.node()).collect::<Vec<NodeId>>();
    let costs = cx.pays(&nodes(&front), &nodes(&behind), true)?;
    let roots = [cx.p.root(value), cx.p.root(pool)];
    match cx.p.fits(&roots) {
        true => Ok(costs),
        false => Err(format!("the kernel would have too many nodes, or more bindings than {}", cx.target.profile.name)),
    }
}
