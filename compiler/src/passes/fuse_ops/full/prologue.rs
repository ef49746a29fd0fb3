//! `prologue`: elementwise and moving work in front of an anchor or a reduction is done where its result is read.
//!
//! ```text
//! mul (x, scale)  ─ conv 1x1    =>    conv 1x1 of x * scale
//! ```
//!
//! The classic rules never fuse into an anchor, since it reads each element many times. How many times is known here: the
//! loads of the anchor's tensor expression, divided by those that a register or shared-memory tile saves. Costs are in
//! arithmetic operations an element; an access to memory counts [`ACCESS`]. Apart, the work stores its result and the
//! anchor loads it; together, the work is repeated for each load.
//!
//! Applies when only the anchor's group uses the work, when repeating it costs less than storing and loading, when
//! neighbouring elements of large operands stay neighbours, and when the device binds what the kernel then reads.

use super::super::forward::Source;
use super::{Extension, Made, Missed};
use crate::graph::{Function, NodeId, ValueId};
use crate::int::{Int, flatten_index, simplify};
use crate::name::Name;
use crate::passes::fusion_kind::group_expression;
use crate::profile::DeviceProfile;
use crate::schedule::{Inline, InstrRef, apply as apply_instruction};
use crate::tir::{BinaryOp, Block, BufferId, Expr, FusionKind, TensorFunction, UnaryOp};
use rustc_hash::FxHashMap;

const RULE: &str = "prologue";
/// What an access to memory costs, in arithmetic operations.
const ACCESS: f64 = 4.0;
/// Operands with fewer elements than this part of the result stay in a cache.
const SMALL: i64 = 8;
/// Elements of a vector.
const VECTOR: i64 = 4;

/// Runs over the producers of anchors, last to first, so that what is in front of a prologue comes after it.
pub(super) fn apply(cx: &mut Extension<'_, '_>) {
    let mut known: FxHashMap<String, Result<(), String>> = FxHashMap::default();
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
fn only_anchor(cx: &mut Extension<'_, '_>, i: usize) -> Option<usize> {
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

fn visit(cx: &mut Extension<'_, '_>, i: usize, anchor: usize, known: &mut FxHashMap<String, Result<(), String>>) {
    let members = cx.p.members_of(i);
    let nodes: Vec<NodeId> = members.iter().map(|&m| cx.g.nodes[m].source.node()).collect();
    let (own, other) = (cx.g.nodes[i].source.node(), cx.g.nodes[anchor].source.node());
    let key = key_of(cx.f, nodes.iter().chain([&other]));
    let verdict = match known.get(&key) {
        Some(v) => v.clone(),
        None => known.entry(key).or_insert(judge(cx, &nodes, own, other)).clone(),
    };
    let roots = [cx.p.root(i), cx.p.root(anchor)];
    let verdict = verdict.and_then(|()| match cx.p.fits(&roots) {
        true => Ok(()),
        false => Err(format!("the kernel would have too many nodes, or more bindings than {}", cx.profile.name)),
    });
    let name = |n: NodeId| cx.f.nodes[n].name;
    match verdict {
        Ok(()) => {
            cx.p.merge(i, anchor);
            let mut made = Made::of(RULE, cx.g, &members);
            made.what = Some(format!("{} computed where {} reads it", name(own), name(other)));
            made.nodes.push(other);
            cx.made.push(made);
        }
        Err(why) => {
            let why = format!("{} not computed where {} reads it: {why}", name(own), name(other));
            cx.missed.push(Missed { rule: RULE, nodes: vec![own, other], why });
        }
    }
}

/// Equal ops on equal types have equal costs.
fn key_of<'a>(f: &Function, nodes: impl Iterator<Item = &'a NodeId>) -> String {
    use std::fmt::Write;
    let mut key = String::new();
    for &n in nodes {
        let node = &f.nodes[n];
        let _ = write!(key, "{:?}(", node.op);
        for v in node.inputs.iter().flatten() {
            let constant = f.def_op::<crate::ops::control::Const>(*v).map(|c| c.1.name);
            let _ = write!(key, "{:?}{:?},", f.ty(*v), constant.filter(|_| f.ty(*v).rank() <= 1));
        }
        key.push(')');
    }
    key
}

/// Weighs the work `nodes`, whose result `own` makes, against its use by `anchor`.
fn judge(cx: &Extension<'_, '_>, nodes: &[NodeId], own: NodeId, anchor: NodeId) -> Result<(), String> {
    let &[result] = cx.f.nodes[own].outputs.as_slice() else { return Err("it has several results".into()) };
    let elements = cx.f.ty(result).numel().as_const().ok_or("its size is not a constant")?.max(1);
    let block = inlined(cx, nodes, result)?;
    let work = Work::of(&block.0, &block.1, elements);
    if work.apart {
        return Err("neighbouring elements of an operand would no longer be read together".into());
    }
    let repeats = repeats(cx, anchor, result, elements)?;
    // Stored once and loaded for each use, against repeated for each use.
    let separate = work.cost + ACCESS + repeats * ACCESS;
    let together = repeats * work.cost;
    if together > separate {
        return Err(format!(
            "each element is used {repeats:.1} times by a tile: {together:.0} operations an element, {separate:.0} apart"
        ));
    }
    Ok(())
}

/// The work as one block: everything inlined into the stage of the result.
fn inlined(cx: &Extension<'_, '_>, nodes: &[NodeId], result: ValueId) -> Result<(TensorFunction, Block), String> {
    let (mut te, _, made) = group_expression(cx.module, cx.f, nodes)?;
    let target = *made.get(&result).ok_or("it has no result")?;
    let names: Vec<(Name, BufferId)> = te.body.blocks().iter().map(|b| (b.name, b.buffer)).collect();
    for (block, buffer) in names {
        if buffer != target {
            apply_instruction(&mut te, InstrRef::new(Inline { block })).map_err(|e| e.message)?;
        }
    }
    let block = te.body.blocks().into_iter().find(|b| b.buffer == target).cloned();
    Ok((te, block.ok_or("it only renames its operand")?))
}

/// What one element of the work costs.
struct Work {
    cost: f64,
    /// A large operand whose neighbours are not read together.
    apart: bool,
}

impl Work {
    fn of(te: &TensorFunction, block: &Block, elements: i64) -> Work {
        let mut work = Work { cost: 0.0, apart: false };
        let last = block.indices.iter().zip(&te.buffers[block.buffer].shape).rev();
        let last = last.filter_map(|(i, d)| Some((i.as_var()?, d.as_const()?))).find(|l| l.1 > 1);
        let mut seen: Vec<(BufferId, &[Int])> = Vec::new();
        block.value.visit(&mut |e| {
            work.cost += match e {
                Expr::Load(b, ix) if !seen.contains(&(*b, ix.as_slice())) => {
                    seen.push((*b, ix));
                    let size = te.buffers[*b].numel().as_const().unwrap_or(i64::MAX);
                    if size <= 1 {
                        0.0
                    } else if size < elements / SMALL {
                        1.0
                    } else {
                        work.apart |= last.is_some_and(|v| !is_next(te, *b, ix, v));
                        ACCESS
                    }
                }
                Expr::Load(..) | Expr::Const(..) | Expr::Index(..) => 0.0,
                // A condition that is the same for neighbours is decided once for all of them.
                Expr::All(list) if last.is_some_and(|(v, _)| !list.iter().any(|c| c.lhs.uses(v) || c.rhs.uses(v))) => {
                    0.0
                }
                Expr::Unary(op, _) => unary_cost(*op),
                Expr::Binary(BinaryOp::Pow, ..) => 16.0,
                Expr::Binary(BinaryOp::Div | BinaryOp::FloorMod | BinaryOp::TruncMod, ..) => 4.0,
                _ => 1.0,
            };
        });
        work
    }
}

/// The first elements along `v`, as many as a vector has, follow each other in the buffer. Loops too short for vectors are
/// read one by one in any case.
fn is_next(te: &TensorFunction, b: BufferId, indices: &[Int], (v, extent): (Name, i64)) -> bool {
    if extent < VECTOR {
        return true;
    }
    let flat = flatten_index(indices, &te.buffers[b].shape);
    let at = |n: i64| flat.substitute(v, &Int::new(n));
    let bounds = te.bounds();
    (1..VECTOR).all(|n| simplify(&(at(n) - at(n - 1)), &bounds).is(1))
}

fn unary_cost(op: UnaryOp) -> f64 {
    match op {
        UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Not | UnaryOp::BitNot | UnaryOp::Sign => 1.0,
        UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc | UnaryOp::IsNan | UnaryOp::IsInf => 1.0,
        UnaryOp::Sqrt => 4.0,
        _ => 16.0,
    }
}

/// How often a kernel of the node `anchor` evaluates each element of `operand`: loads of its tensor expression, less those
/// that a tile shares.
fn repeats(cx: &Extension<'_, '_>, anchor: NodeId, operand: ValueId, elements: i64) -> Result<f64, String> {
    let (te, outside, _) = group_expression(cx.module, cx.f, &[anchor])?;
    let buffer = *outside.get(&operand).ok_or("it is not an operand")?;
    let stages = te.stages().ok_or("the anchor has no stages")?;
    let mut loads = 0.0;
    for s in &stages {
        let times = s.block.value.loads().iter().filter(|l| l.0 == buffer).count();
        if times == 0 {
            continue;
        }
        let iterations: Option<i64> = s.loops.iter().map(|l| l.1.as_const()).product();
        let iterations = iterations.ok_or("a loop of the anchor is not constant")? as f64;
        let shared = sharing(&s.block.value, buffer, &s.spatial()).min(tile(cx.profile)).max(1);
        loads += iterations * times as f64 / shared as f64;
    }
    Ok((loads / elements as f64).max(1.0))
}

/// Iterations of the spatial loops that one side of a product does not use: they share what they load of it.
fn sharing(value: &Expr, buffer: BufferId, spatial: &[(Name, Int)]) -> i64 {
    let Expr::Binary(BinaryOp::Mul, a, b) = value else { return 1 };
    let reads = |e: &Expr| e.loads().iter().any(|l| l.0 == buffer);
    let side = match (reads(a), reads(b)) {
        (true, false) => a,
        (false, true) => b,
        _ => return 1,
    };
    let mut used = Vec::new();
    side.visit_ints(&mut |i| used.extend(i.vars()));
    spatial.iter().filter(|l| !used.contains(&l.0)).filter_map(|l| l.1.as_const()).product()
}

/// Uses of a loaded element that a tile of the device's kernels shares.
fn tile(p: &DeviceProfile) -> i64 {
    match (p.software, p.fixed_subgroup()) {
        (true, Some(lanes)) => 4 * i64::from(lanes),
        (true, None) => 4,
        (false, _) => 64,
    }
}
