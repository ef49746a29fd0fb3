//! Softmax and normalisations: one stage spreads row reductions over their rows, in one kernel of the rule `rows`.

use super::combination::Combination;
use super::reads::{Demand, Lanes, Loop, Stages, iterations};
use super::tally::{KernelEstimate, Tally};
use super::units::named;
use crate::int::{Int, simplify};
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::schedule::InstrRef;
use crate::schedule::rewritten;
use crate::schedule::rules::{group_splits, rows_together, threads_for_rows, worth_a_workgroup};
use crate::tir::{BufferId, TensorFunction};

/// The kernel of a function of which one stored stage reads row reductions; `None` for another.
pub(super) fn rows(stages: &Stages<'_>, stored: &[usize]) -> Option<KernelEstimate> {
    let rows = Rows::of(stages, stored)?;
    match rows.grouped() {
        // Rows of groups: in the loops that the rule makes of them.
        Some(f) => {
            let stages = Stages::of(&f, stages.constants, stages.profile);
            Rows::of(&stages, &stages.stored())?.kernel()
        }
        None => rows.kernel(),
    }
}

/// What the kernel of a function of rows costs in nanoseconds where a workgroup has so many neighbouring rows, and so many threads
/// share them; `None` for a function that is none.
pub(in crate::schedule) fn row_costs(
    f: &TensorFunction,
    constants: &[BufferId],
    profile: &DeviceProfile,
    shapes: &[(i64, i64)],
) -> Option<Vec<f64>> {
    let stages = Stages::of(f, constants, profile);
    let rows = Rows::of(&stages, &stages.stored())?;
    let of = |(rows_together, threads): &(i64, i64)| rows.tally(true, *rows_together, *threads as f64);
    Some(shapes.iter().map(|shape| named(&stages, rows.output, &of(shape)).cost.total()).collect())
}

/// The stages, and the loops of the one that is stored: those that tell rows apart and those inside a row.
struct Rows<'a, 'f> {
    stages: &'a Stages<'f>,
    reductions: Vec<usize>,
    output: usize,
    demand: Demand,
    outer: Vec<Loop>,
    inner: Vec<Loop>,
    /// Neighbouring elements of a row.
    run: i64,
}

impl<'a, 'f> Rows<'a, 'f> {
    fn of(stages: &'a Stages<'f>, stored: &[usize]) -> Option<Rows<'a, 'f>> {
        let (reductions, computed): (Vec<usize>, Vec<usize>) =
            stored.iter().copied().partition(|&s| stages.list[s].block.reduce.is_some());
        let [output] = computed[..] else { return None };
        if reductions.is_empty() || reductions.iter().any(|&r| stages.is_result(stages.list[r].block.buffer)) {
            return None;
        }
        let demand = stages.demand(&stages.list[output].block.value);
        let mut rows = Rows { stages, reductions, output, demand, outer: vec![], inner: vec![], run: 1 };
        let row: Vec<Name> = rows
            .indices()
            .iter()
            .map(|ix| ix.iter().flat_map(|i| i.vars()).collect::<Vec<_>>())
            .max_by_key(Vec::len)?;
        let (loops, _) = stages.loops(output);
        (rows.outer, rows.inner) = loops.iter().copied().partition(|l| row.contains(&l.0) || l.1 == 1);
        let several = loops.iter().rev().filter(|l| l.1 > 1);
        rows.run = several.take_while(|l| rows.inner.contains(l)).map(|l| l.1).product();
        Some(rows)
    }
    fn of_reduction(&self, b: BufferId) -> bool {
        self.reductions.iter().any(|&r| self.stages.list[r].block.buffer == b)
    }
    /// Where the output reads the reductions.
    fn indices(&self) -> Vec<Vec<Int>> {
        let bounds = self.stages.f.bounds();
        let reads = self.demand.reads.iter().filter(|r| self.of_reduction(r.buffer));
        reads.map(|r| r.index.iter().map(|i| simplify(i, &bounds)).collect()).collect()
    }
    /// The function with the loops split that tell rows apart by groups of their iterations; `None` where there are none.
    fn grouped(&self) -> Option<TensorFunction> {
        let (loops, _) = self.stages.loops(self.output);
        let splits = group_splits(self.indices().iter().flatten(), &|v| loops.iter().find(|l| l.0 == v).map(|l| l.1));
        let mut f: Option<TensorFunction> = None;
        for split in splits {
            f = Some(rewritten(f.as_ref().unwrap_or(self.stages.f), &InstrRef::new(split)).ok()?);
        }
        f
    }
    fn kernel(&self) -> Option<KernelEstimate> {
        let (count, length) = (iterations(&self.outer), iterations(&self.inner));
        if length <= 1.0 {
            return None;
        }
        let shared = worth_a_workgroup(self.stages.profile, count as i64, length as i64, self.run > 1);
        let last = self.outer.iter().rev().find(|l| l.1 > 1).map_or(1, |l| l.1);
        let together = if shared { rows_together(self.stages.profile, last, self.run) } else { vec![1] };
        let threads = |n: i64| threads_for_rows(self.stages.profile, shared, length as i64 * n, n);
        let shapes = together.into_iter().flat_map(|n| threads(n).into_iter().map(move |t| (n, t)));
        let of = |(n, threads)| named(self.stages, self.output, &self.tally(shared, n, threads as f64));
        shapes.map(of).min_by(|a, b| a.cost.total().total_cmp(&b.cost.total()))
    }
    /// What the kernel does where so many threads of a workgroup share `together` neighbouring rows, or have rows of their own.
    fn tally(&self, shared: bool, together: i64, threads: f64) -> Tally {
        let stages = self.stages;
        let (count, length) = (iterations(&self.outer), iterations(&self.inner));
        let workgroups = if shared { count / together as f64 } else { (count / threads).ceil() };
        let mut tally = Tally { workgroups, threads, ..Tally::default() };
        // Neighbouring threads have neighbouring rows, then neighbours in a row.
        let shares = |within: &[Loop], rows: &[Loop]| -> (Vec<Loop>, f64) {
            let next = rows.iter().rev().find(|l| l.1 > 1).filter(|_| together > 1);
            let order = within.iter().copied().chain(next.map(|l| (l.0, together))).collect();
            (order, iterations(rows) / together as f64)
        };
        for &r in &self.reductions {
            let (own, taps) = stages.loops(r);
            let mut d = stages.demand(&stages.list[r].block.value);
            d.operations += 1.0;
            d.reads.retain(|x| !self.of_reduction(x.buffer));
            let (order, times) = if shared { shares(&taps, &own) } else { (own, iterations(&taps)) };
            // Vectors, as long as each thread has one.
            let vectors = shared && together == 1 && taps.last().is_some_and(|l| l.1 % 4 == 0);
            let width = if vectors && iterations(&taps) / 4.0 >= threads { 4 } else { 1 };
            stages.count(&mut tally, &d, &Lanes { order: &order, width, along: None }, times);
            if shared {
                let p = stages.profile;
                let (all, tree) = (threads as i64, together > 1);
                let how = if tree { Combination::Tree } else { Combination::usual(p, all) };
                how.count(&mut tally, p, &stages.rates, all, workgroups);
            }
        }
        let mut d = stages.demand(&stages.list[self.output].block.value);
        d.reads.retain(|x| !self.of_reduction(x.buffer));
        let (order, times) = if shared { shares(&self.inner, &self.outer) } else { (self.outer.clone(), length) };
        let width = if shared && together == 1 && self.run % 4 == 0 { 4 } else { 1 };
        let lanes = Lanes { order: &order, width, along: None };
        stages.count(&mut tally, &d, &lanes, times);
        stages.count_read(&mut tally, &Stages::store(stages.list[self.output].block), &lanes, times);
        tally
    }
}
