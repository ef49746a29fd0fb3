//! Elementwise and injective blocks: all loops are fused, with four elements per thread if the shape allows.
//!
//! If index expressions are contiguous in the innermost output dimension, loads are vectors; everything else
//! (transposes, gathers, odd sizes) is loaded element by element by the same kernel.

use super::candidate::{Candidate, NoChoice};
use super::decline::Decline;
use super::sketch::Sketch;
use super::unit::Unit;
use super::view::View;
use crate::name::Name;
use crate::schedule::Axis;
use crate::schedule::estimate::{KernelEstimate, flat_kernel, usual_width};

/// Lone compute blocks. Vector and threads are chosen as the loops are split.
pub(super) fn candidates(_: &View<'_>, unit: &Unit) -> Result<Vec<Candidate>, Decline> {
    match unit.reduce {
        Some(_) => Err(Decline::other_kind()),
        None => Ok(vec![Candidate::new(NoChoice {})]),
    }
}

/// The kernel where a thread has a vector of results.
pub(super) fn price(view: &View<'_>, unit: &Unit, _: &Candidate) -> Vec<KernelEstimate> {
    flat_kernel(view.stages(), unit.output)
}

/// Gives each thread a vector of results.
pub(super) fn apply(sketch: &mut Sketch<'_>, unit: &Unit, _: &Candidate) -> Result<(), Decline> {
    bind_flat(sketch, unit.output, &[]).map(|_| ())
}

/// Elements of a vector that is stored to packed halves or bytes: whole words of either.
const PACKED_WIDTH: i64 = 4;

/// Fuses all loops around `block` but those of a thread's own (`own`, the innermost ones), splits off a vector of 4 (or
/// 2) and binds the rest to threads; returns the variable of the thread loop and of the vector loop.
pub(super) fn bind_flat(sketch: &mut Sketch<'_>, block: Name, own: &[Name]) -> Result<(Name, Option<Name>), Decline> {
    bind_flat_by(sketch, block, own, 4)
}

/// [`bind_flat`] with a vector of `most` elements at most, where nobody chooses another.
pub(super) fn bind_flat_by(
    sketch: &mut Sketch<'_>,
    block: Name,
    own: &[Name],
    most: i64,
) -> Result<(Name, Option<Name>), Decline> {
    let mut loops = sketch.loops(block)?;
    loops.retain(|l| !own.contains(&l.var));
    let mut total = 1i64;
    for l in &loops {
        total *= sketch.constant_extent(&l.extent)?;
    }
    let innermost = loops.iter().rev().find(|l| !l.extent.is(1)).map(|l| l.extent.clone());
    let names: Vec<Name> = loops.iter().map(|l| l.var).collect();
    if names.is_empty() {
        return Err(Decline("a scalar without loops".into()));
    }
    let flat = sketch.fuse(&names, Name::new(&format!("{block}_i")))?;
    let inner = innermost.map_or(Ok(1), |e| sketch.constant_extent(&e))?;
    // A packed store owns whole words; the last vector may reach into the buffer's padding.
    let pack = sketch.elements_per_word(block);
    if pack > 1 && inner % PACKED_WIDTH != 0 {
        // Vectors cross rows: their words are seen to be whole when the rows are one, before the loop is split.
        sketch.flatten_output(block)?;
    }
    let width = choose_width(sketch, pack > 1, total, inner, most)?;
    let (outer, vector) = if width > 1 {
        let parts = sketch.split(flat, &[0, width], &["q", "v"])?;
        (parts[0], Some(parts[1]))
    } else {
        (flat, None)
    };
    let threads = choose_threads(sketch, total / width)?;
    let parts = sketch.split(outer, &[0, threads], &["g", "t"])?;
    sketch.bind(parts[0], Axis::GroupX)?;
    sketch.bind(parts[1], Axis::LocalX)?;
    if let Some(v) = vector {
        let inner: Vec<Name> = own.iter().copied().chain([v]).collect();
        sketch.reorder(&inner)?;
        sketch.vectorize(v)?;
    }
    Ok((parts[1], vector))
}

/// Elements of a thread's vector.
fn choose_width(sketch: &mut Sketch<'_>, packed: bool, total: i64, inner: i64, most: i64) -> Result<i64, Decline> {
    if packed {
        return sketch.choose("vector", &[PACKED_WIDTH], PACKED_WIDTH);
    }
    let domain: Vec<i64> = [4, 2, 1].into_iter().filter(|w| total % w == 0).collect();
    let default = usual_width(sketch.profile, total, inner);
    let default = domain.iter().copied().find(|w| *w <= most.min(default)).unwrap_or(1);
    sketch.choose("vector", &domain, default)
}

/// Threads of a workgroup: the machine's usual number, fewer for little work.
fn choose_threads(sketch: &mut Sketch<'_>, work: i64) -> Result<i64, Decline> {
    let p = sketch.profile;
    let all = (work.max(1) as u64).next_power_of_two() as i64;
    let default = i64::from(p.model().threads.min(p.max_invocations)).min(all);
    let most = i64::from(p.max_invocations.min(p.max_workgroup_size[0])).min(all);
    let mut domain: Vec<i64> = (3..=10).map(|n| 1 << n).filter(|t| *t <= most).collect();
    if !domain.contains(&default) {
        domain.push(default);
    }
    sketch.choose("threads", &domain, default)
}
