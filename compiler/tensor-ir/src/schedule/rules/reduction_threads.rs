//! Few long reductions: a workgroup for each result, whose threads share the reduction (`cooperate.rs`).
//!
//! That pays, by the estimate, if one thread per result would leave the device idle, and if neighbouring threads read
//! neighbouring elements.

use super::candidate::Candidate;
use super::cooperate::{Team, choose_combination, reduce_over_threads};
use super::decline::Decline;
use super::sketch::Sketch;
use super::unit::Unit;
use super::view::View;
use crate::candidate;
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::schedule::estimate::{KernelEstimate, shared_reduction};
use crate::schedule::{AddUnitLoop, Axis, ComputeAt, LocalScope};

/// The shortest reduction that threads share on a GPU, and the fewest threads of those that do: a subgroup of most
/// devices.
const SHORTEST: i64 = 32;
/// Elements of a vector.
const VECTOR: i64 = 4;

candidate! {
    /// Threads that share a result.
    pub(super) struct SharedReduction {
        /// How many.
        pub threads: i64,
    }
}

/// Results of a unit, and elements of each.
fn sizes(view: &View<'_>, unit: &Unit) -> Result<(i64, i64), Decline> {
    let reduce = unit.reduce.filter(|_| unit.window.is_none()).ok_or_else(Decline::other_kind)?;
    let mut results = 1;
    for l in &view.loops(unit.output)? {
        results *= view.constant_extent(&l.extent)?;
    }
    let depth = view.f.reduction_loops(reduce).iter().map(|v| view.extent_of(*v).unwrap_or(0)).product();
    Ok((results, depth))
}

/// Threads that a workgroup may have, at most.
fn most_threads(p: &DeviceProfile) -> i64 {
    i64::from(p.max_invocations.min(p.max_workgroup_size[0]).min(256))
}

/// Numbers of threads that may share a result; the others are for who asks for them.
pub(super) fn candidates(view: &View<'_>, unit: &Unit) -> Result<Vec<Candidate>, Decline> {
    let (results, depth) = sizes(view, unit)?;
    let most = most_threads(view.profile);
    let mut usual = threads_for_a_result(view.profile, results, depth, view.asked).map_err(Decline)?;
    usual.iter_mut().for_each(|t| *t = (*t).min(most));
    let of = |threads: i64| Candidate::new(SharedReduction { threads });
    let others = all_threads(most).filter(|t| !usual.contains(t)).map(|t| of(t).on_request());
    Ok(usual.iter().copied().map(of).chain(others).collect())
}

fn all_threads(most: i64) -> impl Iterator<Item = i64> {
    (2..=8).map(|n| 1 << n).filter(move |t| *t <= most)
}

/// The kernel where so many threads share each result.
pub(super) fn price(view: &View<'_>, unit: &Unit, candidate: &Candidate) -> Vec<KernelEstimate> {
    let Ok(chosen) = candidate.choices::<SharedReduction>() else { return vec![] };
    shared_reduction(view.stages(), [unit.name(), unit.output], chosen.threads)
}

/// Gives each result a workgroup of so many threads.
pub(super) fn apply(sketch: &mut Sketch<'_>, unit: &Unit, candidate: &Candidate) -> Result<(), Decline> {
    let chosen = candidate.choices::<SharedReduction>()?;
    let reduce = unit.reduce.ok_or_else(Decline::other_kind)?;
    let loops = sketch.loops(unit.output)?;
    let mut domain: Vec<i64> = all_threads(most_threads(sketch.profile)).collect();
    if !domain.contains(&chosen.threads) {
        domain.push(chosen.threads);
    }
    let threads = sketch.choose("threads", &domain, chosen.threads)?;
    let how = choose_combination(sketch, &[reduce], threads, true)?;
    let mut names: Vec<Name> = loops.iter().map(|l| l.var).collect();
    if names.is_empty() {
        let one = Name::new(&format!("{}_one", unit.output));
        sketch.apply(AddUnitLoop { block: unit.output, into: one })?;
        names.push(one);
    }
    let flat = sketch.fuse(&names, Name::new(&format!("{}_i", unit.output)))?;
    // The result is stored by the first thread alone.
    let parts = sketch.split(flat, &[0, 1], &["g", "t"])?;
    sketch.bind(parts[0], Axis::GroupX)?;
    sketch.apply(ComputeAt { block: reduce, at: parts[0], scope: LocalScope::Register })?;
    reduce_over_threads(sketch, reduce, Team { at: parts[0], threads, axis: Axis::LocalX, how })?;
    sketch.bind(parts[1], Axis::LocalX)?;
    Ok(())
}

/// Numbers of threads that could share each of `results` reductions of `depth` elements, or why they do not. `asked`:
/// they are wished for anyway.
pub(super) fn threads_for_a_result(
    p: &DeviceProfile,
    results: i64,
    depth: i64,
    asked: bool,
) -> Result<Vec<i64>, String> {
    if !p.model().wide_teams {
        let (cores, lanes) = (i64::from(p.cores.max(1)), i64::from(p.lanes()));
        if !asked && (results >= cores * lanes || depth < 8 * lanes) {
            return Err(format!("{results} results of depth {depth} keep {cores} cores of {lanes} lanes busy"));
        }
        return Ok(vec![lanes]);
    }
    if !asked && depth < SHORTEST {
        return Err(format!("depth {depth} is too short to share"));
    }
    Ok(threads_for_a_row(depth, 256))
}

/// Numbers of threads of a GPU that may share `length` neighbouring elements, `most` at most: a quarter of these; and
/// where that leaves some thread without a vector, before it so many that each has some, as many as each other where
/// that can be.
pub(super) fn threads_for_a_row(length: i64, most: i64) -> Vec<i64> {
    let (vectors, all) = ((length / VECTOR).max(1), thread_a_vector(length, most));
    if length % VECTOR != 0 || all <= vectors || vectors < SHORTEST {
        return vec![all];
    }
    let fewer = std::iter::successors(Some(all / 2), |t| Some(t / 2)).take_while(|t| *t >= SHORTEST);
    let even = fewer.filter(|t| *t >= 2 * SHORTEST).find(|t| vectors % t == 0);
    vec![even.unwrap_or(all / 2), all]
}

/// The power of two of threads that have a vector of `elements` each, a subgroup at least and `most` at most.
pub(super) fn thread_a_vector(elements: i64, most: i64) -> i64 {
    let vectors = (elements / VECTOR).max(1);
    ((vectors as u64).next_power_of_two() as i64).clamp(SHORTEST, most.max(SHORTEST))
}

#[cfg(test)]
mod tests {
    use super::threads_for_a_row;

    #[test]
    fn threads_of_a_row_may_have_whole_vectors_each() {
        assert_eq!(threads_for_a_row(2048, 256), [256], "two vectors each");
        assert_eq!(threads_for_a_row(768, 256), [64, 256], "three");
        assert_eq!(threads_for_a_row(1000, 256), [128, 256], "250 vectors");
        assert_eq!(threads_for_a_row(197, 256), [64], "no vectors");
        assert_eq!(threads_for_a_row(64, 256), [32]);
    }
}
