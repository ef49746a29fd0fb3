//! `multi-output`: elementwise ops on a value that has other users join the value's kernel, which then writes both
//! results.
//!
//! ```text
//! conv + add ─┬──────────── (a skip connection)         conv + add + mul + relu, with two results
//!             └ mul + relu ─ conv 3x3             =>      └ conv 3x3
//! ```
//!
//! It applies if all of these hold:
//! - the value is the last one of its group and the only one that leaves it;
//! - the elementwise ops have the value's shape throughout;
//! - none of their other operands is computed after the value (the kernels would wait for each other);
//! - the group has at most one reduction;
//! - neither result is stored in packed words (a kernel handles packed words of one result only);
//! - the kernel's buffers fit the device's bindings.

use super::super::forward::Source;
use super::{Declined, GroupGraph, Made, shape_of};
use crate::dtype::DType;
use crate::tir::FusionKind;
use rustc_hash::FxHashSet;

pub(super) const RULE: &str = "multi-output";

/// Runs over the groups, first to last.
pub(super) fn apply(cx: &mut GroupGraph<'_, '_>) {
    let makers = cx.makers();
    let mut taken: FxHashSet<usize> = FxHashSet::default();
    for i in 0..cx.g.nodes.len() {
        let root = cx.p.root(i);
        let light = cx.p.group_kind(root) <= FusionKind::Broadcast && matches!(cx.g.nodes[i].source, Source::Node(_));
        if root != i || !light || taken.contains(&root) {
            continue;
        }
        if let Some(value) = shared_value(cx, &makers, i) {
            visit(cx, &makers, i, value, &mut taken);
        }
    }
}

/// The last value of another group that the group of `i` reads, and that others use too.
fn shared_value(cx: &mut GroupGraph<'_, '_>, makers: &[Vec<usize>], i: usize) -> Option<usize> {
    let members = cx.p.members_of(i);
    let feeding: Vec<usize> =
        members.iter().flat_map(|&m| makers[m].clone()).filter(|m| !members.contains(m)).collect();
    feeding.into_iter().find(|&v| {
        let node = &cx.g.nodes[v];
        let shared = node.escapes || node.users.iter().any(|u| !members.contains(&u.0));
        shared && matches!(node.source, Source::Node(_)) && shape_of(cx.g, cx.f, v) == shape_of(cx.g, cx.f, i)
    })
}

fn visit(cx: &mut GroupGraph<'_, '_>, makers: &[Vec<usize>], i: usize, value: usize, taken: &mut FxHashSet<usize>) {
    let verdict = check(cx, makers, i, value, taken);
    let nodes = vec![cx.g.nodes[i].source.node(), cx.g.nodes[value].source.node()];
    let name = |n: usize| cx.f.nodes[cx.g.nodes[n].source.node()].name;
    match verdict {
        Ok(()) => {
            let members = cx.p.members_of(i);
            let what = format!("{} computed with {}, whose kernel writes both", name(i), name(value));
            cx.p.join(i, value);
            cx.p.raise_kind(value, FusionKind::OutElementwiseFusable);
            taken.insert(cx.p.root(value));
            let mut made = Made::of(RULE, cx.g, &members);
            made.what = Some(what);
            made.nodes.push(nodes[1]);
            cx.made.push(made);
        }
        Err(Some(why)) => cx.declined.push(Declined { rule: RULE, nodes, why }),
        Err(None) => {}
    }
}

/// `Err(None)` where the group is simply not of the kind.
fn check(
    cx: &mut GroupGraph<'_, '_>,
    makers: &[Vec<usize>],
    i: usize,
    value: usize,
    taken: &FxHashSet<usize>,
) -> Result<(), Option<String>> {
    let root = cx.p.root(value);
    let kind = cx.p.group_kind(root);
    if kind > FusionKind::OutElementwiseFusable || taken.contains(&root) {
        return Err(None);
    }
    let (group, work) = (cx.p.members_of(value), cx.p.members_of(i));
    let name = |n: usize| cx.f.nodes[cx.g.nodes[n].source.node()].name;
    let shape = shape_of(cx.g, cx.f, value);
    if let Some(&other) = work.iter().find(|&&m| shape_of(cx.g, cx.f, m) != shape) {
        return Err(Some(format!("{} has another shape than {}", name(other), name(value))));
    }
    let leaves = |m: &usize| cx.g.nodes[*m].escapes || cx.g.nodes[*m].users.iter().any(|u| !group.contains(&u.0));
    if let Some(&other) = group.iter().find(|m| **m != value && leaves(m)) {
        return Err(Some(format!("{} leaves the group of {} too", name(other), name(value))));
    }
    let virtual_node = group.iter().any(|&m| !matches!(cx.g.nodes[m].source, Source::Node(_)));
    let reductions: usize =
        group.iter().filter_map(|&m| cx.info.get(&cx.g.nodes[m].source.node())).map(|i| i.reductions).sum();
    if virtual_node || reductions > 1 {
        return Err(Some(format!("the group of {} has {reductions} reductions, or a concat", name(value))));
    }
    if let Some(&packed) = [value, i].iter().find(|n| is_packed(cx, **n)) {
        return Err(Some(format!("{} is stored in packed words on {}", name(packed), cx.target.profile.name)));
    }
    if let Some(between) = waits(cx, makers, &group, &work) {
        return Err(Some(format!("{} reads {}, which comes after {}", name(i), name(between), name(value))));
    }
    let roots = [root, cx.p.root(i)];
    match cx.p.fits(&roots) {
        true => Ok(()),
        false => Err(Some(format!("the kernel would have more bindings than {}", cx.target.profile.name))),
    }
}

/// True when several elements of a node's result share a word on the device.
fn is_packed(cx: &GroupGraph<'_, '_>, i: usize) -> bool {
    let Source::Node(n) = cx.g.nodes[i].source else { return false };
    cx.f.nodes[n].outputs.iter().any(|&v| match cx.f.ty(v).dtype {
        DType::F16 => !cx.target.profile.f16,
        DType::BF16 | DType::U8 | DType::I8 => true,
        _ => false,
    })
}

/// A node that feeds the work and cannot run before the group: one whose group is reached from the group's results.
fn waits(cx: &mut GroupGraph<'_, '_>, makers: &[Vec<usize>], group: &[usize], work: &[usize]) -> Option<usize> {
    let inside = |m: &usize| group.contains(m) || work.contains(m);
    let feeding: Vec<usize> = work.iter().flat_map(|&m| makers[m].clone()).filter(|m| !inside(m)).collect();
    let last = feeding.iter().map(|&m| cx.p.members_of(m).last().copied().unwrap_or(m)).max()?;
    let mut reached: FxHashSet<usize> = FxHashSet::default();
    let mut stack: Vec<usize> = group.to_vec();
    while let Some(m) = stack.pop() {
        let users: Vec<usize> = cx.g.nodes[m].users.iter().map(|u| u.0).filter(|u| !inside(u)).collect();
        for u in users {
            // Whole groups wait; nothing beyond the last node that feeds the work matters.
            if reached.insert(cx.p.root(u)) {
                stack.extend(cx.p.members_of(u).into_iter().filter(|m| *m <= last || *m == u));
            }
        }
    }
    feeding.into_iter().find(|&m| reached.contains(&cx.p.root(m)))
}
