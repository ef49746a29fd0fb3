//! One thread computes one vector of results: pooling, depthwise and grouped convolution, reductions with many results,
//! and every unit that no other rule takes. Reductions run serially in registers; channels-last data is read four
//! channels at a time.

use super::analysis::Unit;
use super::candidate::{Candidate, NoChoice};
use super::elementwise::bind_flat;
use super::packing::pack_constants;
use super::pooling::{inside, open_windows};
use super::sketch::{Decline, Sketch};
use super::view::View;
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::schedule::DecomposeReduction;
use crate::schedule::estimate::{KernelEstimate, flat_kernel, own_reduction};
use crate::schedule::{ComputeAt, LocalScope};

/// Iterations of reduction loops that are unrolled, at most.
const MOST_UNROLLED: i64 = 64;
/// The same where nobody chooses. A software device runs a loop through its own code for every lane: on lavapipe a
/// depthwise 5x5 convolution takes four times as long with loops. The compilers of GPUs would hold all loads of a
/// larger window at once.
pub(in crate::schedule) fn usually_unrolled(p: &DeviceProfile) -> i64 {
    if p.software { 25 } else { 9 }
}

/// Any unit. Vector, threads and what is unrolled are chosen as the loops are split.
pub(super) fn candidates(_: &View<'_>, _: &Unit) -> Result<Vec<Candidate>, Decline> {
    Ok(vec![Candidate::new(NoChoice {})])
}

/// The kernel where a thread has a vector of results. Units with windows are weighed with what they are joined to.
pub(super) fn price(view: &View<'_>, unit: &Unit, _: &Candidate) -> Vec<KernelEstimate> {
    match (unit.reduce, &unit.window) {
        (Some(reduce), None) => own_reduction(view.stages(), [reduce, unit.output], None),
        (Some(_), Some(_)) => vec![],
        (None, _) => flat_kernel(view.stages(), unit.output),
    }
}

/// Gives each thread a vector of results.
pub(super) fn apply(sketch: &mut Sketch<'_>, unit: &Unit, _: &Candidate) -> Result<(), Decline> {
    compute(sketch, unit)
}

/// Schedules a unit so that each thread has a vector of results.
pub(super) fn compute(sketch: &mut Sketch<'_>, unit: &Unit) -> Result<(), Decline> {
    if sketch.loops(unit.output)?.is_empty() {
        // A single element: nothing to distribute, and no loop to compute the reduction at. One thread does it all.
        return Ok(());
    }
    if unit.window.is_none() {
        pack_constants(sketch, unit);
    }
    let (thread, vector) = bind_flat(sketch, unit.output, &[])?;
    let Some(reduce) = unit.reduce else { return Ok(()) };
    if let Some(window) = &unit.window {
        let columns = usize::from(vector.is_some());
        open_windows(sketch, window, thread, columns)?;
        finish_loops(sketch, window.block, thread, columns)?;
    }
    accumulate_at(sketch, reduce, thread, vector.is_some(), &[])
}

/// Unrolls the loops of a window inside loop `at`, and makes the vector of the last one where it is a column.
fn finish_loops(sketch: &mut Sketch<'_>, block: Name, at: Name, columns: usize) -> Result<(), Decline> {
    for block in [Name::new(&format!("{block}_init")), block] {
        let loops = inside(sketch, block, at)?;
        let taps = loops.len().saturating_sub(columns);
        loops[..taps].iter().try_for_each(|&l| sketch.unroll(l))?;
        loops[taps..].iter().try_for_each(|&l| sketch.vectorize(l))?;
    }
    Ok(())
}

/// Moves `reduce` to registers inside loop `at`. Of its spatial loops inside `at` the last becomes the vector loop
/// (with `vector`) and the others are unrolled, with the reduction loops in `unrolled`.
pub(super) fn accumulate_at(
    sketch: &mut Sketch<'_>,
    reduce: Name,
    at: Name,
    vector: bool,
    unrolled: &[Name],
) -> Result<(), Decline> {
    sketch.apply(ComputeAt { block: reduce, at, scope: LocalScope::Register })?;
    let around = sketch.loops(reduce)?;
    let start = around.iter().position(|l| l.var == at).map_or(0, |p| p + 1);
    let reductions = sketch.f.reduction_loops(reduce);
    let spatial: Vec<Name> = around[start..].iter().map(|l| l.var).filter(|v| !reductions.contains(v)).collect();
    let mut order = reductions.clone();
    order.extend(&spatial);
    sketch.reorder(&order)?;
    if let Some(first) = reductions.first() {
        sketch.apply(DecomposeReduction { block: reduce, at: *first })?;
    }
    let inner = |sketch: &Sketch<'_>, block: Name| -> Result<Vec<Name>, Decline> {
        let around = sketch.loops(block)?;
        let start = around.iter().position(|l| l.var == at).map_or(0, |p| p + 1);
        Ok(around[start..].iter().map(|l| l.var).filter(|v| !reductions.contains(v)).collect())
    };
    let init = Name::new(&format!("{reduce}_init"));
    let mut nests = vec![spatial];
    nests.extend(inner(sketch, init).ok());
    for nest in nests {
        let lane = if vector { nest.last().copied() } else { None };
        for v in nest {
            if Some(v) == lane { sketch.vectorize(v)? } else { sketch.unroll(v)? }
        }
    }
    // Small windows are unrolled: the taps' index arithmetic then folds into constants.
    let taps: i64 = reductions.iter().map(|v| sketch.extent_of(*v).unwrap_or(i64::MAX).min(1 << 20)).product();
    let domain: &[bool] = if reductions.is_empty() || taps > MOST_UNROLLED { &[false] } else { &[true, false] };
    let all = sketch.choose("unroll", domain, domain.len() > 1 && taps <= usually_unrolled(sketch.profile))?;
    for v in reductions.into_iter().filter(|v| all || unrolled.contains(v)) {
        sketch.unroll(v)?;
    }
    Ok(())
}
