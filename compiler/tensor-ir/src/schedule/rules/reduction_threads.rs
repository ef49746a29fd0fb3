//! Few long reductions: a workgroup for each result, whose threads share the reduction (`cooperate.rs`).
//!
//! That pays, by the estimate, if one thread per result would leave the device idle, and if neighbouring threads read
//! neighbouring elements. Where the elements of neighbouring results are neighbours in memory (a global pool of
//! channels-last images), a workgroup has several results: threads along x have a result each, those along y share it.

use super::analysis::{output_variables, reads_contiguously};
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
/// Neighbouring results of a workgroup: each row of these fills sectors.
const RESULTS: [i64; 3] = [16, 32, 64];
/// Threads that share one of several results.
const THREADS: [i64; 4] = [4, 8, 16, 32];

candidate! {
    /// Threads that share a result.
    pub(super) struct SharedReduction {
        /// How many.
        pub threads: i64,
        /// Neighbouring results of a workgroup, each with as many threads.
        pub results: i64,
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
    let of = |threads: i64| Candidate::new(SharedReduction { threads, results: 1 });
    let others = all_threads(most).filter(|t| !usual.contains(t)).map(|t| of(t).on_request());
    let several = several_results(view, unit)?.into_iter().map(|(results, threads)| {
        let candidate = Candidate::new(SharedReduction { threads, results });
        if depth >= 2 * threads { candidate } else { candidate.on_request() }
    });
    Ok(usual.iter().copied().map(of).chain(several).chain(others).collect())
}

/// Numbers of neighbouring results of a workgroup, and of threads for each, where several may share a workgroup.
fn several_results(view: &View<'_>, unit: &Unit) -> Result<Vec<(i64, i64)>, Decline> {
    let (p, (results, _)) = (view.profile, sizes(view, unit)?);
    if !p.model().wide_teams || !results_are_neighbours(view, unit) {
        return Ok(vec![]);
    }
    let [x, y] = [p.max_workgroup_size[0], p.max_workgroup_size[1]].map(i64::from);
    let most = i64::from(p.max_invocations);
    let all = RESULTS.into_iter().flat_map(|r| THREADS.map(|t| (r, t)));
    Ok(all.filter(|&(r, t)| r <= results.min(x) && t <= y && r * t <= most).collect())
}

/// Whether the reduction has one operand, whose elements are neighbours where results are that lie next to each other.
fn results_are_neighbours(view: &View<'_>, unit: &Unit) -> bool {
    let Some((reduce, output)) = unit.reduce.and_then(|r| view.block(r)).zip(view.block(unit.output)) else {
        return false;
    };
    let alone = reduce.value.loads().windows(2).all(|l| l[0].0 == l[1].0);
    let last = view.loops(unit.output).ok().and_then(|all| all.iter().rev().find(|l| !l.extent.is(1)).map(|l| l.var));
    let map = output_variables(view.f, reduce, output).unwrap_or_default();
    let own = map.iter().find(|m| Some(m.1) == last).map(|m| m.0);
    alone && view.elements_per_word(unit.output) == 1 && own.is_some_and(|v| reads_contiguously(view.f, reduce, &[v]))
}

fn all_threads(most: i64) -> impl Iterator<Item = i64> {
    (2..=8).map(|n| 1 << n).filter(move |t| *t <= most)
}

/// The kernel where so many threads share each result.
pub(super) fn price(view: &View<'_>, unit: &Unit, candidate: &Candidate) -> Vec<KernelEstimate> {
    let Ok(chosen) = candidate.choices::<SharedReduction>() else { return vec![] };
    shared_reduction(view.stages(), [unit.name(), unit.output], [chosen.threads, chosen.results])
}

/// Gives each result, or each of several neighbours, so many threads of a workgroup.
pub(super) fn apply(sketch: &mut Sketch<'_>, unit: &Unit, candidate: &Candidate) -> Result<(), Decline> {
    let chosen = candidate.choices::<SharedReduction>()?;
    let reduce = unit.reduce.ok_or_else(Decline::other_kind)?;
    let loops = sketch.loops(unit.output)?;
    let mut domain: Vec<i64> = all_threads(most_threads(sketch.profile)).collect();
    if !domain.contains(&chosen.threads) {
        domain.push(chosen.threads);
    }
    let threads = sketch.choose("threads", &domain, chosen.threads)?;
    let shapes = several_results(&sketch.view(), unit)?;
    let numbers: Vec<i64> = [1].into_iter().chain(shapes.iter().filter(|s| s.1 == threads).map(|s| s.0)).collect();
    let usual = if numbers.contains(&chosen.results) { chosen.results } else { 1 };
    let results = if shapes.is_empty() { 1 } else { sketch.choose("results", &numbers, usual)? };
    let how = choose_combination(sketch, &[reduce], threads, results == 1)?;
    let mut names: Vec<Name> = loops.iter().map(|l| l.var).collect();
    if names.is_empty() {
        let one = Name::new(&format!("{}_one", unit.output));
        sketch.apply(AddUnitLoop { block: unit.output, into: one })?;
        names.push(one);
    }
    let flat = sketch.fuse(&names, Name::new(&format!("{}_i", unit.output)))?;
    // A result is stored by the first of its threads alone.
    let (mut parts, axis) = match results {
        1 => (sketch.split(flat, &[0, 1], &["g", "t"])?, Axis::LocalX),
        _ => (sketch.split(flat, &[0, results, 1], &["g", "x", "t"])?, Axis::LocalY),
    };
    let first = parts.pop().ok_or_else(Decline::other_kind)?;
    sketch.bind(parts[0], Axis::GroupX)?;
    if let Some(&own) = parts.get(1) {
        sketch.bind(own, Axis::LocalX)?;
    }
    let at = parts.last().copied().unwrap_or(first);
    sketch.apply(ComputeAt { block: reduce, at, scope: LocalScope::Register })?;
    reduce_over_threads(sketch, reduce, Team { at, threads, axis, how })?;
    Ok(sketch.bind(first, axis)?)
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
    use crate::profile::DeviceProfile;
    use crate::schedule::testing::{asking, assert_every_choice, parsed, proposed};
    use crate::tir::{LoopKind, Stmt, TensorFunction};

    /// Means over `taps` places of `channels` that lie next to each other.
    fn pool(taps: i64, channels: i64) -> TensorFunction {
        parsed(&format!(
            "tensor @pool(%x: f32[{taps},{channels}], out %y: f32[{channels}]) {{
  buffer %s: f32[{channels}] global
  for c in 0..{channels} {{ for i in 0..{taps} {{ block s reduce sum init {{ %s[c] <- %x[i, c] }} }} }}
  for d in 0..{channels} {{ block y {{ %y[d] <- %s[d] * 0.25 }} }}
}}"
        ))
    }

    /// Threads of a workgroup along x and y.
    fn threads(f: &TensorFunction) -> [i64; 2] {
        let mut found = [1; 2];
        f.body.visit(&mut |s| {
            if let Stmt::For(l) = s
                && let LoopKind::Local(axis @ 0..2) = l.kind
            {
                let own = &mut found[usize::from(axis)];
                *own = l.extent.as_const().unwrap_or(1).max(*own);
            }
        });
        found
    }

    #[test]
    fn neighbouring_results_share_a_workgroup() {
        for name in ["ada", "bmg", "navi31"] {
            let p = DeviceProfile::named(name).expect("a profile");
            for (taps, channels) in [(196, 480), (49, 1150), (130, 33)] {
                let [x, y] = threads(&proposed(&pool(taps, channels), &p, "reduction-threads"));
                assert!(x >= 16 && y > 1, "{name}: {taps} places of {channels} channels: {x} x {y} threads");
            }
        }
        let ada = asking(DeviceProfile::named("ada").expect("a profile"), "reduction-threads");
        assert!(assert_every_choice(&pool(70, 50), &ada, "rule") >= 8);
    }

    #[test]
    fn threads_of_a_row_may_have_whole_vectors_each() {
        assert_eq!(threads_for_a_row(2048, 256), [256], "two vectors each");
        assert_eq!(threads_for_a_row(768, 256), [64, 256], "three");
        assert_eq!(threads_for_a_row(1000, 256), [128, 256], "250 vectors");
        assert_eq!(threads_for_a_row(197, 256), [64], "no vectors");
        assert_eq!(threads_for_a_row(64, 256), [32]);
    }
}
