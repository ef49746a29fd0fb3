//! Tiles of neighbouring results that are computed from tiles of elements by small constant matrices: Winograd's
//! transforms.
//!
//! A thread has a tile: it computes the inner one of the two products for the whole tile into registers, and the
//! results from these. All loops of the tile are unrolled, so that coefficients become numbers, terms with coefficient
//! 0 disappear, and each element is loaded once.
//!
//! The tile follows from the indices: along a loop that only selects coefficients (`v`, or `v % m` if elements are
//! indexed by `v / m`), results use the same elements.

use super::candidate::{Candidate, NoChoice};
use super::decline::Decline;
use super::direct::accumulate_at;
use super::elementwise::bind_flat_by;
use super::sketch::Sketch;
use super::unit::{Unit, readers};
use super::view::View;
use crate::int::Int;
use crate::name::Name;
use crate::schedule::estimate::{KernelEstimate, transform_kernel};
use crate::schedule::tiles::{TransformTile, tile_of, widest};
use crate::tir::Block;

/// The tile of a function whose output reads one short reduction at several elements and chooses coefficients by its
/// loops, and the loops of the output.
fn tile(view: &View<'_>, unit: &Unit) -> Result<(TransformTile, Vec<(Name, i64)>), Decline> {
    let blocks = view.f.body.blocks();
    let [reduce] = blocks.iter().filter(|b| b.reduce.is_some()).map(|b| b.name).collect::<Vec<_>>()[..] else {
        return Err(Decline::other_kind());
    };
    let (r, output) = match (view.block(reduce), view.block(unit.output)) {
        (Some(r), Some(c)) => (r, c),
        _ => return Err(Decline::other_kind()),
    };
    let of = |b: &Block| -> Result<Vec<(Name, i64)>, Decline> {
        view.loops(b.name)?.iter().map(|l| Ok((l.var, view.constant_extent(&l.extent)?))).collect()
    };
    if readers(view.f, r.buffer).len() != 1 {
        return Err(Decline::other_kind());
    }
    let (own, loops) = (of(r)?, of(output)?);
    let reads: Vec<&[Int]> = output.value.loads().into_iter().filter(|l| l.0 == r.buffer).map(|l| l.1).collect();
    let tile = tile_of(r, &reads, &own, &loops).ok_or_else(Decline::other_kind)?;
    Ok((tile, loops))
}

/// One way, where the function is of this kind.
pub(super) fn candidates(view: &View<'_>, unit: &Unit) -> Result<Vec<Candidate>, Decline> {
    tile(view, unit).map(|_| vec![Candidate::new(NoChoice {})])
}

/// The kernel where each thread has a tile.
pub(super) fn price(view: &View<'_>, _: &Unit, _: &Candidate) -> Vec<KernelEstimate> {
    transform_kernel(view.stages()).into_iter().collect()
}

/// Gives each thread a tile.
pub(super) fn apply(sketch: &mut Sketch<'_>, unit: &Unit, _: &Candidate) -> Result<(), Decline> {
    let (tile, loops) = tile(&sketch.view(), unit)?;
    let mut inside = Vec::with_capacity(tile.inside.len());
    for &(v, extent) in &tile.inside {
        let whole = loops.contains(&(v, extent));
        inside.push(if whole { v } else { sketch.split(v, &[0, extent], &["o", "i"])?[1] });
    }
    let around = sketch.loops(unit.output)?;
    let outside = around.iter().map(|l| l.var).filter(|v| !inside.contains(v));
    let order: Vec<Name> = outside.chain(inside.iter().copied()).collect();
    sketch.reorder(&order)?;
    let most = widest(sketch.profile.registers, tile.kept + tile.taps);
    let (thread, vector) = bind_flat_by(sketch, unit.output, &inside, most)?;
    inside.iter().try_for_each(|&v| sketch.unroll(v))?;
    let taps = sketch.f.reduction_loops(tile.reduce);
    accumulate_at(sketch, tile.reduce, thread, vector.is_some(), &taps)
}
