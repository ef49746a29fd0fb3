//! `concat-in-place`: operands of a concat are written directly into their part of its result.
//!
//! ```text
//! conv + relu          ─┐                          conv + relu -> y[.., 0..4]
//! conv + relu          ─┼─ concat + exp    =>      conv + relu -> y[.., 4..8], each with its part of exp
//! ```
//!
//! The groups of the operands and the concat's group become one group of several kernels: the schedule cuts the concat
//! at the borders of these operands (`partition-loop`), and each part is the epilogue of one operand. The other
//! operands are copied, neighbours by one kernel.
//!
//! A transpose after the concat becomes part of the store of each operand.
//!
//! It applies to an operand if its group has one reduction (convolution, matrix product, pooling) and no other users,
//! and if its kernel, with the ops after the concat, does not exceed the device's bindings. It applies to a concat if
//! the number of kernels does not grow, that is, if the copied operands are neighbours.

use super::super::forward::Source;
use super::{Declined, GroupGraph, Made, shape_of};
use crate::dtype::DType;
use crate::graph::{NodeId, ValueId};
use crate::int::Int;
use crate::ops::concat::Concat;
use crate::ops::transpose::Transpose;
use crate::tir::FusionKind;

pub(super) const RULE: &str = "concat-in-place";

/// Runs over the concats, first to last.
pub(super) fn apply(cx: &mut GroupGraph<'_, '_>) {
    let makers = cx.makers();
    for tuple in 0..cx.g.nodes.len() {
        if let Source::Tuple(concat) = cx.g.nodes[tuple].source {
            visit(cx, &makers, tuple, concat);
        }
    }
}

/// A concat with its group.
struct Site {
    /// The operand list's place in the graph.
    tuple: usize,
    concat: NodeId,
    /// The group's root.
    root: usize,
    /// Bindings of the ops after the concat, including the result.
    behind: u32,
    /// A transpose follows the concat.
    permuted: bool,
}

fn visit(cx: &mut GroupGraph<'_, '_>, makers: &[Vec<usize>], tuple: usize, concat: NodeId) {
    let operands: Vec<ValueId> = cx.f.nodes[concat].inputs.iter().flatten().copied().collect();
    let heavy: Vec<Option<usize>> = operands.iter().map(|&v| heavy_operand(cx, &makers[tuple], tuple, v)).collect();
    if heavy.iter().all(Option::is_none) {
        return;
    }
    let site = match site(cx, makers, tuple, concat) {
        Ok(site) => site,
        Err(why) => return cx.declined.push(Declined { rule: RULE, nodes: vec![concat], why }),
    };
    let mut joined: Vec<usize> = Vec::new();
    let mut apart = 0;
    let mut in_run = false;
    for (&v, &i) in operands.iter().zip(&heavy) {
        let taken = i.is_some_and(|i| match joins(cx, &site, i, v, &operands) {
            Ok(()) => true,
            Err(why) => {
                let nodes = vec![cx.g.nodes[i].source.node(), concat];
                cx.declined.push(Declined { rule: RULE, nodes, why });
                false
            }
        });
        apart += usize::from(!taken && !in_run);
        in_run = !taken;
        joined.extend(i.filter(|_| taken));
    }
    if joined.is_empty() {
        return;
    }
    if let Err(why) = worth(cx, &site, &joined, apart) {
        return cx.declined.push(Declined { rule: RULE, nodes: vec![concat], why });
    }
    for &i in &joined {
        cx.p.join(i, site.root);
    }
    cx.p.raise_kind(site.root, FusionKind::OutElementwiseFusable);
    let mut made = Made::of(RULE, cx.g, &joined);
    let names: Vec<String> = made.nodes.iter().map(|&n| cx.f.nodes[n].name.to_string()).collect();
    let copied = if apart > 0 { ", the rest is copied" } else { "" };
    made.what = Some(format!("{} written right into {}{copied}", names.join(", "), cx.f.nodes[concat].name));
    made.nodes.push(concat);
    cx.made.push(made);
}

/// The producer of an operand, when it is in a group of its own with an anchor or a reduction.
fn heavy_operand(cx: &mut GroupGraph<'_, '_>, makers: &[usize], tuple: usize, v: ValueId) -> Option<usize> {
    let n = cx.f.def_node(v)?;
    let i = *makers.iter().find(|&&i| cx.g.nodes[i].source == Source::Node(n))?;
    let root = cx.p.root(i);
    let kind = cx.p.group_kind(root);
    let heavy = matches!(kind, FusionKind::Reduction | FusionKind::OutElementwiseFusable);
    (heavy && root != cx.p.root(tuple)).then_some(i)
}

/// Looks at the concat's own group.
fn site(cx: &mut GroupGraph<'_, '_>, makers: &[Vec<usize>], tuple: usize, concat: NodeId) -> Result<Site, String> {
    let root = cx.p.root(tuple);
    let members = cx.p.members_of(root);
    let mut before = vec![tuple];
    let mut at = 0;
    while let Some(&i) = before.get(at) {
        before.extend(
            makers[i].iter().filter(|m| members.contains(m) && !before.contains(m)).copied().collect::<Vec<_>>(),
        );
        at += 1;
    }
    let name = |n: NodeId| cx.f.nodes[n].name;
    let place = members.iter().copied().find(|&i| cx.g.nodes[i].source == Source::Node(concat));
    let place = place.ok_or_else(|| format!("{} is not in the group of its operands", name(concat)))?;
    let permuted = check_behind(cx, &members, place, concat)?;
    let operands = &cx.f.nodes[concat].inputs;
    let mut reads: Vec<ValueId> = Vec::new();
    for n in members.iter().filter(|i| **i != place && !before.contains(i)).map(|&i| cx.g.nodes[i].source.node()) {
        let used = cx.f.nodes[n].inputs.iter().zip(&cx.info[&n].reads).filter(|x| *x.1).filter_map(|x| *x.0);
        reads.extend(used.filter(|v| !operands.contains(&Some(*v))));
    }
    let inside: Vec<NodeId> = members.iter().map(|&i| cx.g.nodes[i].source.node()).collect();
    reads.retain(|v| cx.f.def_node(*v).is_none_or(|n| !inside.contains(&n)));
    reads.sort_unstable();
    reads.dedup();
    let writes: Vec<ValueId> = cx.p.writes(root).collect();
    if writes.len() != 1 {
        return Err(format!("the group of {} has {} results", name(concat), writes.len()));
    }
    let behind = cx.p.weigh(reads.into_iter().chain(writes));
    Ok(Site { tuple, concat, root, behind, permuted })
}

/// Checks the ops after the concat at `place` in its group: elementwise ops, concats along the same axis, or a
/// transpose followed by such ops. Returns whether there is a transpose.
fn check_behind(cx: &GroupGraph<'_, '_>, members: &[usize], place: usize, concat: NodeId) -> Result<bool, String> {
    let axis = cx.f.nodes[concat].op.downcast::<Concat>().map(|c| c.axis);
    let mut shapes = vec![shape_of(cx.g, cx.f, place)];
    let mut behind = vec![place];
    let (mut at, mut permuted) = (0, false);
    while let Some(&i) = behind.get(at) {
        at += 1;
        for &(u, _) in cx.g.nodes[i].users.iter().filter(|u| members.contains(&u.0)) {
            if behind.contains(&u) {
                continue;
            }
            behind.push(u);
            let node = &cx.g.nodes[u];
            let op = &cx.f.nodes[node.source.node()].op;
            if op.is::<Transpose>() && !permuted {
                permuted = true;
                shapes.push(shape_of(cx.g, cx.f, u));
            } else if let Some(other) = op.downcast::<Concat>() {
                if Some(other.axis) != axis || permuted {
                    return Err(format!("{} goes along axis {}", cx.f.nodes[node.source.node()].name, other.axis));
                }
                shapes.push(shape_of(cx.g, cx.f, u));
            } else if node.kind > FusionKind::Broadcast || !shapes.contains(&shape_of(cx.g, cx.f, u)) {
                let who = cx.f.nodes[node.source.node()].name;
                let concat = cx.f.nodes[concat].name;
                return Err(format!("{who} behind {concat} reads more than the element that it stores"));
            }
        }
    }
    Ok(permuted)
}

/// Whether the group of the operand `v`, made by `i`, may write into the result.
fn joins(cx: &mut GroupGraph<'_, '_>, site: &Site, i: usize, v: ValueId, operands: &[ValueId]) -> Result<(), String> {
    let root = cx.p.root(i);
    let members = cx.p.members_of(root);
    let name = cx.f.nodes[cx.g.nodes[i].source.node()].name;
    for &m in &members {
        let node = &cx.g.nodes[m];
        let others = node.users.iter().filter(|u| u.0 != site.tuple && !members.contains(&u.0)).count();
        if node.escapes || others > 0 || (m != i && node.users.iter().any(|u| u.0 == site.tuple)) {
            let who = cx.f.nodes[node.source.node()].name;
            let count = others + usize::from(node.escapes);
            let name = cx.f.nodes[site.concat].name;
            let readers = if count == 1 { "1 other reader" } else { &format!("{count} other readers") };
            return Err(format!("{who} has {readers} than {name}, for which it is a tensor of its own"));
        }
    }
    if operands.iter().filter(|o| **o == v).count() > 1 {
        return Err(format!("{name} is an operand more than once"));
    }
    let reductions: usize =
        members.iter().filter_map(|&m| cx.info.get(&cx.g.nodes[m].source.node())).map(|i| i.reductions).sum();
    if reductions != 1 {
        return Err(format!("the group of {name} has {reductions} reductions, its kernel takes whole rows"));
    }
    let reads: Vec<ValueId> = cx.p.reads(root).collect();
    let (count, limit) = (cx.p.weigh(reads.into_iter()) + site.behind, cx.target.profile.max_storage_buffers);
    if count > limit {
        return Err(format!(
            "the kernel of {name} would have {count} bindings, {} has {limit}",
            cx.target.profile.name
        ));
    }
    Ok(())
}

/// Whether writing in place pays and the parts can be stored apart.
fn worth(cx: &mut GroupGraph<'_, '_>, site: &Site, joined: &[usize], apart: usize) -> Result<(), String> {
    let name = cx.f.nodes[site.concat].name;
    if apart > 1 {
        let (before, after) = (joined.len() + 1, joined.len() + apart);
        return Err(format!("{after} kernels would take the place of {before}: {apart} separate copies remain"));
    }
    let roots: Vec<usize> = joined.iter().map(|&i| cx.p.root(i)).chain([site.root]).collect();
    let size = cx.p.size(&roots);
    if size > cx.p.limits().max_group {
        return Err(format!("the group would have {size} nodes, the limit is {}", cx.p.limits().max_group));
    }
    // Two f16 of a packed word must not be written by different kernels.
    let out = cx.f.nodes[site.concat].outputs[0];
    let packed = cx.f.ty(out).dtype == DType::F16 && !cx.target.profile.f16;
    if packed && (site.permuted || !whole_words(cx, site.concat)) {
        return Err(format!("an operand of {name} ends inside of a packed word"));
    }
    Ok(())
}

/// True when every operand takes an even number of neighbouring elements.
fn whole_words(cx: &GroupGraph<'_, '_>, concat: NodeId) -> bool {
    let node = &cx.f.nodes[concat];
    let shape = &cx.f.ty(node.outputs[0]).shape;
    node.inputs.iter().flatten().all(|&v| {
        let own = &cx.f.ty(v).shape;
        let axis = own.iter().zip(shape).position(|(a, b)| a != b).unwrap_or(0);
        let run: Option<i64> = own[axis..].iter().map(Int::as_const).product();
        run.is_some_and(|r| r % 2 == 0)
    })
}
