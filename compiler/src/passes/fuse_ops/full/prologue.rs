//! `prologue`: elementwise ops and ops that move data, before an anchor or a reduction, are computed where the anchor
//! reads them.
//!
//! ```text
//! mul (x, scale)  ─ conv 1x1    =>    conv 1x1 of x * scale
//! ```
//!
//! The classic rules never fuse into an anchor, since it reads each element many times. Fused, the ops are repeated for
//! each load that a tile does not share. Separate, one more kernel stores the result, and the anchor loads it. The
//! estimate compares both, including the cost of reads that are no longer contiguous.
//!
//! It applies if the anchor's group is the only user, if one kernel is estimated cheaper than two, and if the kernel's
//! buffers fit the device's bindings.

use super::super::forward::{Source, key_of};
use super::{Declined, GroupGraph, Made, compared_values};
use crate::graph::NodeId;
use crate::tir::FusionKind;
use rustc_hash::FxHashMap;

pub(super) const RULE: &str = "prologue";

/// Verdicts on equal work in front of equal anchors.
type Known = FxHashMap<String, Result<String, String>>;

/// Visits the producers of anchors from last to first, so that the producers of a prologue are visited after it.
pub(super) fn apply(cx: &mut GroupGraph<'_, '_>) {
    let mut known: Known = FxHashMap::default();
    for i in (0..cx.g.nodes.len()).rev() {
        let root = cx.p.root(i);
        let light = cx.g.nodes[i].kind <= FusionKind::Injective && cx.p.group_kind(root) <= FusionKind::Injective;
        if !light || !matches!(cx.g.nodes[i].source, Source::Node(_)) {
            continue;
        }
        if let Some(anchor) = only_anchor(cx, i) {
            visit(cx, i, anchor, &mut known);
        }
    }
}

/// The one node of another group that uses the result `i` of its group, when that group has an anchor or reduction and
/// everything else of the group of `i` stays inside.
fn only_anchor(cx: &mut GroupGraph<'_, '_>, i: usize) -> Option<usize> {
    let members = cx.p.members_of(i);
    let mut found = None;
    for &m in &members {
        let node = &cx.g.nodes[m];
        if node.escapes || !matches!(node.source, Source::Node(_)) {
            return None;
        }
        for &(u, _) in node.users.iter().filter(|u| !members.contains(&u.0)) {
            if m != i || found.is_some_and(|f| f != u) {
                return None;
            }
            found = Some(u);
        }
    }
    let anchor = found?;
    let root = cx.p.root(anchor);
    let heavy = |k| matches!(k, FusionKind::Reduction | FusionKind::OutElementwiseFusable);
    let real = matches!(cx.g.nodes[anchor].source, Source::Node(_)) && heavy(cx.g.nodes[anchor].kind);
    (real && heavy(cx.p.group_kind(root))).then_some(anchor)
}

fn visit(cx: &mut GroupGraph<'_, '_>, i: usize, anchor: usize, known: &mut Known) {
    let members = cx.p.members_of(i);
    let nodes: Vec<NodeId> = members.iter().map(|&m| cx.g.nodes[m].source.node()).collect();
    let (own, other) = (cx.g.nodes[i].source.node(), cx.g.nodes[anchor].source.node());
    let key = key_of(cx.f, nodes.iter().chain([&other]));
    let verdict = match known.get(&key) {
        Some(v) => v.clone(),
        None => known.entry(key).or_insert(judge(cx, &nodes, own, other)).clone(),
    };
    let roots = [cx.p.root(i), cx.p.root(anchor)];
    let verdict = verdict.and_then(|costs| match cx.p.fits(&roots) {
        true => Ok(costs),
        false => Err(format!("the kernel would have too many nodes, or more bindings than {}", cx.target.profile.name)),
    });
    let name = |n: NodeId| cx.f.nodes[n].name;
    match verdict {
        Ok(costs) => {
            cx.p.merge(i, anchor);
            let mut made = Made::of(RULE, cx.g, &members);
            made.what = Some(format!("{} computed where {} reads it: {costs}", name(own), name(other)));
            made.nodes.push(other);
            cx.made.push(made);
        }
        Err(why) => {
            let why = format!("{} not computed where {} reads it: {why}", name(own), name(other));
            cx.declined.push(Declined { rule: RULE, nodes: vec![own, other], why });
        }
    }
}

/// Compares the costs of computing `nodes`, with result `own`, separately and inside `anchor`.
fn judge(cx: &GroupGraph<'_, '_>, nodes: &[NodeId], own: NodeId, anchor: NodeId) -> Result<String, String> {
    if cx.f.nodes[own].outputs.len() != 1 {
        return Err("it has several results".into());
    }
    let all: Vec<NodeId> = nodes.iter().chain([&anchor]).copied().collect();
    if !compared_values(cx.module, cx.f, &all).is_empty() {
        let name = cx.f.nodes[anchor].name;
        return Err(format!("{name} compares its elements with each other, for which they are computed once"));
    }
    cx.pays(nodes, &[anchor], false)
}
