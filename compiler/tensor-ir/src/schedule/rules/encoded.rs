//! A right operand of a product that is decoded from constants: words of a few bits, scales, zero points.

use super::decline::Decline;
use super::sketch::Sketch;
use super::unit::readers;
use super::view::View;
use crate::dtype::DType;
use crate::int::Int;
use crate::name::Name;
use crate::schedule::TransformLayout;
use crate::schedule::tiles::neighbours_sharing;
use crate::tir::{Block, BufferId, Expr};

/// Rows of a panel that are decoded at a time, at most: with 32 columns, 32 KiB.
const DECODED: i64 = 256;

/// A constant that elements of the right operand are decoded from.
#[derive(Clone)]
pub(super) struct Encoded {
    buffer: BufferId,
    /// Its dimension of columns.
    column: usize,
    /// Neighbours along the reduction that share an element: 8 nibbles of a word, 32 with a scale.
    sharing: i64,
}

/// The depth of a part that stays in the first cache when it is decoded: whole words and scales.
pub(super) fn part_at_once(all: &[Encoded], depth: i64) -> Option<i64> {
    let whole = all.iter().map(|e| e.sharing).max()?;
    let fits = |n: &i64| n % whole == 0 && depth % n == 0;
    (1..=DECODED).rev().filter(|_| depth > DECODED).find(fits).filter(|n| *n >= DECODED / 4)
}

/// The buffers that a computed right operand reads: constants of the product alone, with a dimension of columns or the
/// same for all of them. The loops are those of columns, and the innermost one of the reduction.
pub(super) fn encoded(
    view: &View<'_>,
    reduce: &Block,
    right: &Expr,
    [column, k]: [Option<Name>; 2],
) -> Result<Vec<Encoded>, Decline> {
    let no = || Decline("an operand is computed, and not of constants".into());
    let (column, k) = (column.ok_or_else(no)?, k.ok_or_else(no)?);
    let mut out: Vec<Encoded> = vec![];
    for (buffer, index) in right.loads() {
        let alone = readers(view.f, buffer) == [reduce.name] && !out.iter().any(|e| e.buffer == buffer);
        let dims: Vec<usize> = (0..index.len()).filter(|d| index[*d].uses(column)).collect();
        if !view.constants.contains(&buffer) || !alone {
            return Err(no());
        }
        let along: Vec<usize> = (0..index.len()).filter(|d| index[*d].uses(k)).collect();
        let of = |list: &[Int]| along.iter().map(|d| list[*d].clone()).collect::<Vec<Int>>();
        let shape = &view.f.buffers[buffer].shape;
        let sharing = neighbours_sharing(view.f, (&of(shape), &of(index)), k).unwrap_or(1);
        match dims[..] {
            [] => {}
            [dim] if index[dim].as_var() == Some(column) => out.push(Encoded { buffer, column: dim, sharing }),
            _ => return Err(no()),
        }
    }
    if out.is_empty() || view.f.buffers[reduce.buffer].dtype != DType::F32 { Err(no()) } else { Ok(out) }
}

/// Packs the constants that the right operand is decoded from as `[column tile][...][columns of the tile]`.
pub(super) fn pack_encoded(sketch: &mut Sketch<'_>, all: &[Encoded], columns: i64) -> Result<(), Decline> {
    for e in all {
        let (name, rank) = (sketch.f.buffers[e.buffer].name, sketch.f.buffers[e.buffer].shape.len());
        let splits = (0..rank).map(|d| if d == e.column { columns } else { 0 }).collect();
        // The split dimension has two parts.
        let rest = (0..=rank).filter(|part| *part != e.column && *part != e.column + 1);
        let order = [e.column].into_iter().chain(rest).chain([e.column + 1]).collect();
        sketch.apply(TransformLayout { buffer: name, splits, order })?;
    }
    Ok(())
}

/// Splits a copy's loop over the reduction where neighbours share words and scales, as far as it is made of whole ones:
/// each place then moves evenly with each loop.
pub(super) fn split_by_sharing(sketch: &mut Sketch<'_>, all: &[Encoded], along: Name) -> Result<(), Decline> {
    let extent = sketch.extent_of(along).filter(|_| !sketch.script.is_open(along)).unwrap_or(0);
    let mut steps: Vec<i64> = all.iter().map(|e| e.sharing).collect();
    steps.retain(|n| *n > 1 && *n < extent && extent % n == 0);
    steps.sort_unstable();
    steps.dedup();
    let Some(first) = steps.first() else { return Ok(()) };
    let ratios = steps.windows(2).map(|w| w[1] / w[0]).rev();
    let factors: Vec<i64> = [0].into_iter().chain(ratios).chain([*first]).collect();
    let names: Vec<String> = (0..factors.len()).map(|i| i.to_string()).collect();
    sketch.split(along, &factors, &names.iter().map(String::as_str).collect::<Vec<_>>())?;
    Ok(())
}
