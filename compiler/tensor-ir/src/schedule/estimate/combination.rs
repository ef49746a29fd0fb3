//! The cost of combining the partial results of a workgroup's threads (`rules/cooperate.rs`).

use super::rates::{BARRIER, Rates, WALKED_LANE};
use super::tally::Tally;
use crate::profile::DeviceProfile;

/// How threads combine their partial results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::schedule) enum Combination {
    /// Each subgroup combines the values of its threads; then the results of all subgroups are combined.
    Subgroups,
    /// Through workgroup memory: 16 threads combine a part each, then every thread combines these 16 results.
    Tree,
}

impl Combination {
    pub(in crate::schedule) fn word(self) -> &'static str {
        match self {
            Combination::Subgroups => "subgroups",
            Combination::Tree => "tree",
        }
    }
    /// The cheaper of the ways that the device supports.
    pub(super) fn usual(p: &DeviceProfile, threads: i64) -> Combination {
        let cost = |c: Combination| combination_cost(p, threads, c);
        let subgroups = p.subgroup.0 > 0 && cost(Combination::Subgroups) < cost(Combination::Tree);
        if subgroups { Combination::Subgroups } else { Combination::Tree }
    }
    /// Counts `times` of it, of so many threads each, with so many teams of these side by side in a workgroup.
    pub(super) fn count(self, tally: &mut Tally, p: &DeviceProfile, rates: &Rates, team: [i64; 2], times: f64) {
        let (operations, passes) = self.demand(p, rates, team);
        tally.operations += operations * times;
        tally.passes += passes * times;
    }
    /// Operations of all threads of a team, and its part of the passes over workgroup memory of all subgroups.
    fn demand(self, p: &DeviceProfile, rates: &Rates, [threads, beside]: [i64; 2]) -> (f64, f64) {
        let (all, lanes) = (threads as f64, rates.lanes);
        let subgroups_of = |threads: i64| ((threads * beside) as f64 / lanes as f64).ceil() / beside as f64;
        let subgroups = subgroups_of(threads);
        match self {
            Combination::Subgroups => {
                let (reduce, walked) = match rates.model.halves_subgroups {
                    true => (f64::from(lanes.ilog2()) * rates.halving * all, 0.0),
                    false => (0.0, WALKED_LANE * lanes as f64 * subgroups),
                };
                match threads <= i64::from(p.subgroup.0) {
                    true => (reduce, walked),
                    // Each stores one result, and loads one of another a thread.
                    false => (2.0 * reduce + BARRIER * all, 2.0 * (walked + subgroups)),
                }
            }
            Combination::Tree => {
                let last = threads.min(16) as f64;
                // Part of a subgroup adds up 16 each and stores.
                let (own, barriers) = if threads > 16 { (17.0 * subgroups_of(16), 2.0) } else { (0.0, 1.0) };
                (last * all + barriers * BARRIER * all, subgroups + own + last * subgroups)
            }
        }
    }
}

/// The cost of combining one value of each of `threads` on one core, as nanoseconds of all cores.
pub(in crate::schedule) fn combination_cost(p: &DeviceProfile, threads: i64, how: Combination) -> f64 {
    let rates = Rates::of(p);
    let (operations, passes) = how.demand(p, &rates, [threads, 1]);
    operations / rates.operations + passes / rates.passes
}
