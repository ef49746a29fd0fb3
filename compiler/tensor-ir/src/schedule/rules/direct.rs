//! One thread computes one vector of results: pooling, depthwise and grouped convolution, reductions with many results,
//! and every unit that no other rule takes. Reductions run serially in registers; channels-last data is read four
//! channels at a time.

use super::candidate::{Candidate, NoChoice};
use super::decline::Decline;
use super::elementwise::bind_flat;
use super::packing::pack_constants;
use super::pooling_loops::open_windows;
use super::sketch::Sketch;
use super::unit::Unit;
use super::view::View;
use crate::name::Name;
use crate::schedule::DecomposeReduction;
use crate::schedule::estimate::{KernelEstimate, flat_kernel, own_reduction};
use crate::schedule::tiles::fits_text;
use crate::schedule::{ComputeAt, LocalScope};

/// Iterations of reduction loops that are unrolled, at most.
const MOST_UNROLLED: i64 = 64;
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
        let loops = sketch.inside(block, at)?;
        let taps = loops.len().saturating_sub(columns);
        loops[..taps].iter().try_for_each(|&l| sketch.unroll(l))?;
        loops[taps..].iter().try_for_each(|&l| sketch.vectorize(l))?;
    }
    Ok(())
}

/// Iterations of loops together; open sizes count as many.
fn iterations(sketch: &Sketch<'_>, loops: &[Name]) -> i64 {
    loops.iter().fold(1, |n: i64, &v| n.saturating_mul(sketch.extent_of(v).unwrap_or(i64::MAX)))
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
    let repeated = &spatial[..spatial.len().saturating_sub(usize::from(vector))];
    let results = iterations(sketch, repeated);
    let known: Vec<Name> = reductions.iter().chain(repeated).copied().collect();
    let mut nests = vec![spatial];
    nests.extend(inner(sketch, init).ok());
    for nest in nests {
        let lane = if vector { nest.last().copied() } else { None };
        for v in nest {
            if Some(v) == lane { sketch.vectorize(v)? } else { sketch.unroll(v)? }
        }
    }
    // Small windows are unrolled: the taps' index arithmetic then folds into constants.
    let taps = iterations(sketch, &reductions);
    let fits = sketch.view().block(reduce).is_some_and(|b| fits_text(b, &known, taps.saturating_mul(results)));
    let may = !reductions.is_empty() && taps <= MOST_UNROLLED && fits;
    let domain: &[bool] = if may { &[true, false] } else { &[false] };
    let all =
        sketch.choose("unroll", domain, domain.len() > 1 && taps <= i64::from(sketch.profile.model().unrolled))?;
    for v in reductions.into_iter().filter(|v| all || unrolled.contains(v)) {
        sketch.unroll(v)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::DeviceProfile;
    use crate::schedule::rules::schedule;
    use crate::schedule::testing::depthwise;
    use crate::text::parse_tensor_function;
    use crate::tir::{Block, LoopKind, Stmt, TensorFunction};

    /// Copies of the body of each reduction that unrolled loops make, and whether the body is light.
    fn copies(f: &TensorFunction) -> Vec<(i64, Block)> {
        fn go(s: &Stmt, copies: i64, out: &mut Vec<(i64, Block)>) {
            match s {
                Stmt::Seq(list) => list.iter().for_each(|s| go(s, copies, out)),
                Stmt::Kernel(_, s) => go(s, copies, out),
                Stmt::For(l) if l.kind == LoopKind::Unroll => go(&l.body, copies * l.extent.as_const().unwrap(), out),
                Stmt::For(l) => go(&l.body, copies, out),
                Stmt::Block(b) if b.reduce.is_some() => out.push((copies, (**b).clone())),
                Stmt::Block(_) | Stmt::Barrier => {}
            }
        }
        let mut out = vec![];
        go(&f.body, 1, &mut out);
        out
    }

    #[test]
    fn only_light_bodies_are_repeated_by_iterations_alone() {
        let blend = "(%x[r, i/8, j/8]*0.3 + %x[r, i/8 + 1, j/8]*0.7)*0.4 + (%x[r, i/8, j/8 + 1]*0.3 + %x[r, i/8 + 1, j/8 + 1]*0.7)*0.6";
        for channels in [2, 21, 150] {
            let text = format!(
                "tensor @t(%x: f32[{channels},17,17], out %y: f32[128,128]) {{ for i in 0..128 {{ for j in 0..128 {{ \
                 for r in 0..{channels} {{ block y reduce max init {{ %y[i, j] <- {blend} }} }} }} }} }}"
            );
            let f = parse_tensor_function(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            for profile in [DeviceProfile::lavapipe(), DeviceProfile::baseline()] {
                let s = schedule(&f, &[], &profile).unwrap_or_else(|e| panic!("{e}\n{text}"));
                let all = copies(&s.function);
                assert!(!all.is_empty() && all.iter().all(|(n, b)| fits_text(b, &[], *n)), "{channels}: {:?}", s.rule);
            }
        }
        let s = schedule(&depthwise(8, 14, 3, 1, 1, true), &[], &DeviceProfile::lavapipe()).unwrap();
        assert!(copies(&s.function).iter().any(|(n, _)| *n >= 9), "a small window is unrolled");
    }
}
