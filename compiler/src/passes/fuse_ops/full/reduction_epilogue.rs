//! `reduction-epilogue`: elementwise work of the same shape behind a reduction joins the reduction's group.
//!
//! Applies when the way from the reduction to its post-dominator is elementwise, with a value for each of the
//! reduction's results: work that spreads the results again would repeat the reduction.

use super::{GroupGraph, Made, shape_of};
use crate::tir::FusionKind;
use rustc_hash::FxHashSet;

pub(super) const RULE: &str = "reduction-epilogue";

/// Elementwise groups of the same shape right behind a reduction.
pub(super) fn apply(cx: &mut GroupGraph<'_, '_>) {
    let (g, f) = (cx.g, cx.f);
    let p = &mut *cx.p;
    let mut taken: FxHashSet<usize> = FxHashSet::default();
    for i in 0..g.nodes.len() {
        let root = p.root(i);
        if g.nodes[i].kind != FusionKind::Reduction || root != i || p.group_kind(root) != FusionKind::Reduction {
            continue;
        }
        let Some((sink, FusionKind::Elementwise)) = p.dominator(i) else { continue };
        let last = p.root(sink);
        if taken.contains(&last) || shape_of(g, f, last) != shape_of(g, f, i) {
            continue;
        }
        p.try_fuse(i, sink, &|k, _| k <= FusionKind::Broadcast);
        if p.root(i) == p.root(sink) {
            p.raise_kind(i, FusionKind::Reduction);
            taken.insert(p.root(i));
            cx.made.push(Made::of(RULE, g, &[i, sink]));
        }
    }
}
