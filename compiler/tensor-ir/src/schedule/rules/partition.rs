//! Cuts concatenations apart. An operand that is a reduction gets a nest of its own, which computes directly into its
//! part of the result. If there are more operands than a kernel may bind, each part reads as many as it may.

use super::sketch::Sketch;
use crate::int::{Bounds, Int, simplify};
use crate::name::Name;
use crate::schedule::{PartitionLoop, simplify_expr};
use crate::tir::{Block, BufferId, CondOp, Expr, Scope};

/// Cuts every compute block that chooses between reductions along one of its loops. A block that cannot be cut stays.
pub(super) fn partition_concats(sketch: &mut Sketch<'_>) {
    let reduced: Vec<BufferId> =
        sketch.f.body.blocks().iter().filter(|b| b.reduce.is_some()).map(|b| b.buffer).collect();
    if reduced.is_empty() {
        return;
    }
    let names: Vec<Name> = sketch.f.body.blocks().iter().filter(|b| b.reduce.is_none()).map(|b| b.name).collect();
    for name in names {
        let Some(cut) =
            sketch.f.body.blocks().into_iter().find(|b| b.name == name).and_then(|b| cut_of(sketch, b, &reduced))
        else {
            continue;
        };
        // A refusal leaves one nest, which is right too.
        let _ = sketch.apply(cut);
    }
}

/// The positions along one loop at which a chosen operand that is a reduction begins or ends.
fn cut_of(sketch: &Sketch<'_>, block: &Block, reduced: &[BufferId]) -> Option<PartitionLoop> {
    for l in sketch.loops(block.name).ok()? {
        let Some(extent) = l.extent.as_const() else { continue };
        let mut places = choices(&block.value, l.var);
        places.retain(|p| *p > 0 && *p < extent);
        if places.is_empty() {
            continue;
        }
        let starts: Vec<i64> = std::iter::once(0).chain(places.iter().copied()).collect();
        let ends: Vec<i64> = places.iter().copied().chain([extent]).collect();
        let heavy: Vec<bool> =
            starts.iter().zip(&ends).map(|(a, b)| reads_any(sketch, block, l.var, (*a, *b), reduced)).collect();
        let at: Vec<i64> = (1..starts.len()).filter(|&n| heavy[n] || heavy[n - 1]).map(|n| starts[n]).collect();
        if !at.is_empty() && parts_own_words(sketch, block, l.var, &at, extent) {
            return Some(PartitionLoop { block: block.name, r#loop: l.var, at });
        }
    }
    None
}

/// True when every part of a packed buffer is made of runs of whole vectors, so that no word belongs to two parts.
fn parts_own_words(sketch: &Sketch<'_>, block: &Block, var: Name, at: &[i64], extent: i64) -> bool {
    const VECTOR: i64 = 4;
    if sketch.elements_per_word(block.name) == 1 {
        return true;
    }
    let Some(dim) = block.indices.iter().position(|i| i.as_var() == Some(var)) else { return false };
    let inner = &sketch.f.buffers[block.buffer].shape[dim + 1..];
    let Some(stride) = crate::int::const_dims(inner).map(|d| d.into_iter().product::<usize>() as i64) else {
        return false;
    };
    at.iter().chain([&extent]).all(|a| a * stride % VECTOR == 0)
}

/// Cuts every compute block that binds more buffers than a kernel may and chooses between them along one of its loops,
/// so that each part binds no more.
pub(super) fn partition_by_bindings(sketch: &mut Sketch<'_>) {
    let limit = sketch.profile.max_storage_buffers;
    let names: Vec<Name> = sketch.f.body.blocks().iter().filter(|b| b.reduce.is_none()).map(|b| b.name).collect();
    for name in names {
        let blocks = sketch.f.body.blocks();
        let Some(block) = blocks.into_iter().find(|b| b.name == name) else { continue };
        let own = bindings(sketch, &[block.buffer]);
        let read: Vec<BufferId> = block.value.loads().iter().map(|l| l.0).collect();
        if own + bindings(sketch, &read) <= limit {
            continue;
        }
        if let Some(cut) = cut_to_limit(sketch, block, limit.saturating_sub(own)) {
            // A refusal leaves one nest, which the device then refuses with the reason.
            let _ = sketch.apply(cut);
        }
    }
}

/// Bindings that global buffers take; each counts once.
fn bindings(sketch: &Sketch<'_>, buffers: &[BufferId]) -> u32 {
    let mut distinct: Vec<BufferId> = buffers.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let global = distinct.into_iter().map(|b| &sketch.f.buffers[b]).filter(|b| b.scope == Scope::Global);
    global
        .map(|b| {
            let elements = b.numel().as_const().and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
            sketch.profile.bindings_for(b.encoding.storage_bytes(b.dtype, elements))
        })
        .sum()
}

/// The fewest parts along one loop that each read at most `limit` bindings.
fn cut_to_limit(sketch: &Sketch<'_>, block: &Block, limit: u32) -> Option<PartitionLoop> {
    for l in sketch.loops(block.name).ok()? {
        let Some(extent) = l.extent.as_const() else { continue };
        let mut places = choices(&block.value, l.var);
        places.retain(|p| *p > 0 && *p < extent && parts_own_words(sketch, block, l.var, &[*p], extent));
        let (mut at, mut open): (Vec<i64>, Vec<BufferId>) = (vec![], vec![]);
        let starts = std::iter::once(0).chain(places.iter().copied());
        let fits = starts.zip(places.iter().copied().chain([extent])).all(|(from, to)| {
            let part = reads(sketch, block, l.var, (from, to));
            let together: Vec<BufferId> = open.iter().chain(&part).copied().collect();
            if bindings(sketch, &together) > limit {
                at.push(from);
                open = part;
            } else {
                open = together;
            }
            bindings(sketch, &open) <= limit
        });
        if fits && !at.is_empty() && at[0] > 0 {
            return Some(PartitionLoop { block: block.name, r#loop: l.var, at });
        }
    }
    None
}

/// Ascending constants that the variable is compared with in choices.
fn choices(value: &Expr, var: Name) -> Vec<i64> {
    let mut out = Vec::new();
    value.visit(&mut |e| {
        let Expr::Select(c, ..) = e else { return };
        let Expr::All(conds) = &**c else { return };
        for c in conds.iter().filter(|c| c.op == CondOp::Lt) {
            // `var + a < b` is `var < b - a`.
            let rest = simplify(&(c.rhs.clone() - &c.lhs + Int::var(var)), &Bounds::new());
            out.extend(rest.as_const());
        }
    });
    out.sort_unstable();
    out.dedup();
    out
}

/// Whether iterations `from..to` of a loop read one of `buffers`.
fn reads_any(sketch: &Sketch<'_>, block: &Block, var: Name, part: (i64, i64), buffers: &[BufferId]) -> bool {
    reads(sketch, block, var, part).iter().any(|b| buffers.contains(b))
}

/// Buffers that iterations `from..to` of a loop read.
fn reads(sketch: &Sketch<'_>, block: &Block, var: Name, (from, to): (i64, i64)) -> Vec<BufferId> {
    let mut bounds: Bounds = sketch.f.bounds();
    bounds.insert(var, 0, to - from - 1);
    let moved = block.value.map_ints(&mut |i| i.substitute(var, &(Int::var(var) + from)));
    simplify_expr(&moved, &bounds).loads().iter().map(|l| l.0).collect()
}
