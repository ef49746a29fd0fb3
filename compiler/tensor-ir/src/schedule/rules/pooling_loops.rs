//! Loops of units with windows: what rules make of the joined unit of [`pooling`](super::pooling).

use super::decline::Decline;
use super::sketch::Sketch;
use super::unit::PoolingWindow;
use crate::name::Name;
use crate::schedule::{ComputeAt, DecomposeReduction, LocalScope};

/// Computes the windows of a unit inside loop `at` of its tile, around the contraction that follows: rows outside, then
/// the elements of a window, then the `columns` innermost loops of the tile.
pub(super) fn open_windows(
    sketch: &mut Sketch<'_>,
    window: &PoolingWindow,
    at: Name,
    columns: usize,
) -> Result<(), Decline> {
    let block = window.block;
    sketch.apply(ComputeAt { block, at, scope: LocalScope::Register })?;
    let reductions = sketch.f.reduction_loops(block);
    let spatial = sketch.inside(block, at)?.into_iter().filter(|v| !reductions.contains(v)).collect::<Vec<_>>();
    let rows = spatial.len().saturating_sub(columns);
    let order: Vec<Name> = spatial[..rows].iter().chain(&reductions).chain(&spatial[rows..]).copied().collect();
    sketch.reorder(&order)?;
    let first = *reductions.first().ok_or_else(Decline::other_kind)?;
    sketch.apply(DecomposeReduction { block, at: first })?;
    Ok(())
}

/// The loops of a contraction's tile inside loop `at`: so many of pieces outermost, so many of columns innermost. Rows
/// and the elements of their windows become one loop.
pub(super) fn tile_loops(
    sketch: &mut Sketch<'_>,
    block: Name,
    at: Name,
    (pieces, columns): (usize, usize),
) -> Result<Vec<Name>, Decline> {
    let reductions = sketch.f.reduction_loops(block);
    let mut spatial: Vec<Name> = sketch.inside(block, at)?;
    spatial.retain(|v| !reductions.contains(v));
    let rows = spatial.len().saturating_sub(columns);
    if rows > pieces + 1 {
        let row = sketch.fuse(&spatial[pieces..rows], Name::new(&format!("{block}_row")))?;
        spatial.splice(pieces..rows, [row]);
    }
    Ok(spatial)
}
