//! The taps of a window as a loop around the K steps of a product on matrix units.

use super::analysis::Contraction;
use super::decline::Decline;
use super::matrix_tile::{FragmentTile, Matrix};
use super::sketch::Sketch;
use crate::name::Name;
use crate::profile::quirks::UNROLLS_LOOPS;
use crate::schedule::fill_ahead::is_padded;
use crate::schedule::{FillAhead, PeelLoop};

/// K steps of a tap, at least, that are a loop of their own: the last one runs behind the loop, and one step is none.
const STEPS_OF_TAP: i64 = 3;

/// The reduction as one loop. Where compilers take what does not change out of short loops alone, the taps of a window
/// stay a loop of their own around the one over channels: the place of a tap and its condition are then outside of the
/// K steps. Larger tiles have longer loops, and no registers for what would be taken out.
pub(super) fn fuse_reduction(
    sketch: &mut Sketch<'_>,
    reduce: Name,
    c: &Contraction,
    (matrix, tile): (Matrix, FragmentTile),
) -> Result<(Option<Name>, Name), Decline> {
    let extent = |v: &Name| sketch.extent_of(*v).unwrap_or(0);
    let apart = |(channels, taps): &(&Name, &[Name])| {
        let whole = extent(channels) % tile.depth == 0 && extent(channels) >= STEPS_OF_TAP * tile.depth;
        whole && taps.iter().map(extent).product::<i64>() > 1
    };
    let short = sketch.profile.quirks.has(&UNROLLS_LOOPS) && tile.is_short(matrix);
    match c.k.split_last().filter(|both| short && apart(both)) {
        Some((channels, taps)) => Ok((Some(sketch.fuse(taps, Name::new(&format!("{reduce}_t")))?), *channels)),
        None => Ok((None, sketch.fuse(&c.k, Name::new(&format!("{reduce}_k")))?)),
    }
}

/// Makes the loop over the K steps of a tap short: the zeros of the window that `copy` loads are stored before it, and
/// the last step, which loads for the next tap, runs behind it.
pub(super) fn part_steps(sketch: &mut Sketch<'_>, copy: Name, steps: Name) -> Result<(), Decline> {
    let padded = sketch.f.body.blocks().iter().any(|b| b.name == copy && is_padded(&b.value));
    if padded {
        sketch.apply(FillAhead { block: copy, at: steps })?;
    }
    Ok(sketch.apply(PeelLoop { r#loop: steps })?)
}
