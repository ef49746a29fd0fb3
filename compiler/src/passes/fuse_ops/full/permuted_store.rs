//! `permuted-store`: a transpose after an anchor becomes part of the anchor's store.
//!
//! ```text
//! conv + relu (NHWC) ─ transpose ─ (a result in NCHW)    =>    conv + relu, stored in NCHW
//! ```
//!
//! The kernel's stores are then strided, and the device's cache joins them. A separate kernel for the transpose would
//! store, load and store again.
//!
//! It applies if the transpose is the only user of the anchor's group, if the rest of the transpose's group is
//! elementwise, if the anchor is one reduction (a norm's kernel takes whole rows), if threads would not share packed
//! words, if the kernel's buffers fit the device's bindings, and if the kernel does not cost far more than both, on
//! a processor not more: it computes a depthwise convolution for the channels of a pixel at once, and none for the
//! pixels of a channel.

use super::super::forward::Source;
use super::{Declined, GroupGraph, Made, shape_of};
use crate::dtype::DType;
use crate::ops::transpose::Transpose;
use crate::tir::FusionKind;

pub(super) const RULE: &str = "permuted-store";

/// Runs over the transposes, first to last.
pub(super) fn apply(cx: &mut GroupGraph<'_, '_>) {
    let makers = cx.makers();
    for (t, makers) in makers.iter().enumerate() {
        let Source::Node(n) = cx.g.nodes[t].source else { continue };
        let [anchor] = makers[..] else { continue };
        if !cx.f.nodes[n].op.is::<Transpose>() || !matches!(cx.g.nodes[anchor].source, Source::Node(_)) {
            continue;
        }
        let roots = [cx.p.root(anchor), cx.p.root(t)];
        let kinds = roots.map(|r| cx.p.group_kind(r));
        if roots[0] == roots[1] || kinds[0] != FusionKind::OutElementwiseFusable || kinds[1] > FusionKind::Injective {
            continue;
        }
        let nodes = vec![cx.g.nodes[anchor].source.node(), n];
        let [from, to] = [nodes[0], n].map(|n| cx.f.nodes[n].name);
        match check(cx, anchor, t) {
            Ok(()) => {
                let members = cx.p.members_of(t);
                cx.p.join(t, anchor);
                cx.p.raise_kind(anchor, FusionKind::OutElementwiseFusable);
                let mut made = Made::of(RULE, cx.g, &members);
                made.what = Some(format!("{from} is stored as {to} orders it"));
                made.nodes.push(nodes[0]);
                cx.made.push(made);
            }
            Err(why) => {
                let why = format!("{from} is not stored as {to} orders it: {why}");
                cx.declined.push(Declined { rule: RULE, nodes, why });
            }
        }
    }
}

/// Whether the group of the transpose `t` may join that of `anchor`, which it reads.
fn check(cx: &mut GroupGraph<'_, '_>, anchor: usize, t: usize) -> Result<(), String> {
    let name = |i: usize| cx.f.nodes[cx.g.nodes[i].source.node()].name;
    let group = cx.p.members_of(anchor);
    for &m in &group {
        let outside = cx.g.nodes[m].users.iter().find(|u| u.0 != t && !group.contains(&u.0));
        if cx.g.nodes[m].escapes || outside.is_some() {
            return Err(format!("{} is used elsewhere too", name(m)));
        }
    }
    let reductions: usize =
        group.iter().filter_map(|&m| cx.info.get(&cx.g.nodes[m].source.node())).map(|i| i.reductions).sum();
    if reductions != 1 {
        return Err(format!("its group has {reductions} reductions, their kernel takes whole rows"));
    }
    let shape = shape_of(cx.g, cx.f, t);
    for m in cx.p.members_of(t) {
        let light = m == t || cx.g.nodes[m].kind <= FusionKind::Broadcast;
        if !light || shape_of(cx.g, cx.f, m) != shape {
            return Err(format!("{} does not work on each element alone", name(m)));
        }
    }
    let out = cx.f.nodes[cx.g.nodes[t].source.node()].outputs[0];
    if cx.f.ty(out).dtype == DType::F16 && !cx.target.profile.f16 {
        return Err("its neighbours share packed words".into());
    }
    let roots = [cx.p.root(anchor), cx.p.root(t)];
    if !cx.p.fits(&roots) {
        return Err(format!("the kernel would have too many nodes, or more bindings than {}", cx.target.profile.name));
    }
    let [first, second] =
        [group, cx.p.members_of(t)].map(|g| g.iter().map(|&i| cx.g.nodes[i].source.node()).collect::<Vec<_>>());
    cx.far_dearer_as_one(&first, &second).map_or(Ok(()), Err)
}
