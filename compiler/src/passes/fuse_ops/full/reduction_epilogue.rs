//! `reduction-epilogue`: elementwise ops after a reduction, of the shape of its results, join its group.
//!
//! It applies if all paths from the reduction to its post-dominator are elementwise, with one value per result of the
//! reduction. Ops that broadcast the results would repeat the reduction.

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
