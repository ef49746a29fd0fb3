//! Softmax, log-softmax and normalisations: several reductions along the same rows and a block that uses them all, as one
//! kernel.
//!
//! All rows are independent. A thread (on software devices) computes one row: the reductions run one after another into
//! registers, then the row is written.

use super::analysis::readers;
use super::sketch::{Decline, Sketch};
use crate::name::Name;
use crate::schedule::Axis;
use crate::schedule::DecomposeReduction;
use crate::schedule::{ComputeAt, LocalScope};
use crate::tir::Expr;

/// Takes a whole function whose one output block reads, directly or through other reductions, at least two row reductions.
pub(super) fn apply_whole(sketch: &mut Sketch<'_>) -> Result<(), Decline> {
    let computed: Vec<Name> = sketch.f.body.blocks().iter().filter(|b| b.reduce.is_none()).map(|b| b.name).collect();
    let [output] = computed.as_slice() else { return Err(Decline::other_kind()) };
    let output = *output;
    let reductions: Vec<Name> = sketch.f.body.blocks().iter().filter(|b| b.reduce.is_some()).map(|b| b.name).collect();
    if reductions.len() < 2 {
        return Err(Decline::other_kind());
    }
    let row = row_loops(sketch, output, &reductions)?;
    let loops = sketch.loops(output)?;
    let inner: Vec<Name> = loops.iter().map(|l| l.var).filter(|v| !row.contains(v)).collect();
    let order: Vec<Name> = row.iter().chain(&inner).copied().collect();
    sketch.reorder(&order)?;
    let rows = sketch.fuse(&row, Name::new(&format!("{output}_row")))?;
    // A tail would make the rows of the reductions and of the output differ by a clamp, and the buffers between them whole.
    let most = if sketch.profile.software { 8 } else { 32 };
    let count = sketch.extent_of(rows).ok_or_else(|| Decline("the number of rows is not a constant".into()))?;
    let threads = (1..=most).rev().find(|t| count % t == 0).unwrap_or(1);
    let parts = sketch.split(rows, &[0, threads], &["g", "t"])?;
    sketch.bind(parts[0], Axis::GroupX)?;
    sketch.bind(parts[1], Axis::LocalX)?;
    // Last first: each moves before what reads it.
    for &r in reductions.iter().rev() {
        sketch.apply(ComputeAt { block: r, at: parts[1], scope: LocalScope::Register })?;
        if let Some(first) = sketch.f.reduction_loops(r).first().copied() {
            sketch.apply(DecomposeReduction { block: r, at: first })?;
        }
    }
    Ok(())
}

/// Loops of `output` that index every reduction it reads: the rows.
fn row_loops(sketch: &Sketch<'_>, output: Name, reductions: &[Name]) -> Result<Vec<Name>, Decline> {
    let f = &sketch.f;
    let blocks = f.body.blocks();
    let buffers: Vec<_> = blocks.iter().filter(|b| reductions.contains(&b.name)).map(|b| b.buffer).collect();
    for b in &buffers {
        if f.outputs().any(|o| o == *b) || readers(f, *b).iter().any(|r| *r != output && !reductions.contains(r)) {
            return Err(Decline("a reduction is also used outside the row".into()));
        }
    }
    let block = blocks.iter().find(|b| b.name == output).ok_or_else(Decline::other_kind)?;
    let mut row: Option<Vec<Name>> = None;
    block.value.visit(&mut |e| {
        if let Expr::Load(b, ix) = e
            && buffers.contains(b)
        {
            let vars: Vec<Name> = ix.iter().flat_map(|i| i.vars()).collect();
            if row.as_ref().is_none_or(|r| vars.len() > r.len()) {
                row = Some(vars);
            }
        }
    });
    match row {
        Some(r) if !r.is_empty() => Ok(sketch.loops(output)?.iter().map(|l| l.var).filter(|v| r.contains(v)).collect()),
        _ => Err(Decline("there is a single row".into())),
    }
}
