//! Softmax and normalisations: one stage broadcasts row reductions over their rows, in one kernel of the rule `rows`.

use super::combination::Combination;
use super::reads::{Demand, Lanes, Loop, iterations};
use super::stages::Stages;
use super::tally::{KernelEstimate, Tally};
use super::units::named;
use crate::int::{Int, simplify};
use crate::name::Name;
use crate::tir::BufferId;

/// The kernel of a function of rows where `threads` of a workgroup share `together` neighbouring rows, or each have a
/// row of their own; none for a function that is none.
pub(in crate::schedule) fn row_kernel(
    stages: &Stages<'_>,
    shared: bool,
    (together, threads): (i64, i64),
) -> Vec<KernelEstimate> {
    let rows = Rows::of(stages);
    let of = |r: Rows<'_, '_>| named(stages, r.output, &r.tally(shared, together, threads as f64));
    rows.map(of).into_iter().collect()
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
    fn of(stages: &'a Stages<'f>) -> Option<Rows<'a, 'f>> {
        let (reductions, computed): (Vec<usize>, Vec<usize>) =
            (0..stages.list.len()).partition(|&s| stages.list[s].block.reduce.is_some());
        let [output] = computed[..] else { return None };
        if reductions.is_empty() || reductions.iter().any(|&r| stages.is_result(stages.list[r].block.buffer)) {
            return None;
        }
        let demand = stages.demand(&stages.list[output].block.value);
        // Reductions that are read at several elements are no reductions of the row.
        let bounds = stages.f.bounds();
        let single: Vec<Name> = stages.loops(output).0.iter().filter(|l| l.1 == 1).map(|l| l.0).collect();
        let first = |i: &Int| simplify(&i.replace(&mut |v| single.contains(&v).then(|| Int::new(0))), &bounds);
        let several = |r: usize| {
            let own = demand.reads.iter().filter(|x| x.buffer == stages.list[r].block.buffer);
            let mut elements: Vec<Vec<Int>> = own.map(|x| x.index.iter().map(first).collect()).collect();
            elements.dedup();
            elements.len() > 1
        };
        if reductions.iter().any(|&r| several(r)) {
            return None;
        }
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
    /// What the kernel does where so many threads of a workgroup share `together` neighbouring rows, or have rows of
    /// their own.
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
            // Where the output has some of the rows only, so has the kernel.
            let part = (count / iterations(&stages.loops(r).0)).min(1.0);
            stages.count(&mut tally, &d, &Lanes { order: &order, width, along: None }, times * part);
            if shared {
                let p = stages.profile;
                let (all, tree) = (threads as i64, together > 1);
                let how = if tree { Combination::Tree } else { Combination::usual(p, all) };
                how.count(&mut tally, p, &stages.rates, [all, 1], workgroups);
            }
        }
        let mut d = stages.demand(&stages.list[self.output].block.value);
        d.reads.retain(|x| !self.of_reduction(x.buffer));
        let (order, times) = if shared { shares(&self.inner, &self.outer) } else { (self.outer.clone(), length) };
        let width = if shared && together == 1 && self.run % 4 == 0 { 4 } else { 1 };
        let lanes = Lanes { order: &order, width, along: None };
        stages.count(&mut tally, &d, &lanes, times);
        stages.count_read(&mut tally, &Stages::store(stages.list[self.output].block), &lanes, times);
        if !shared {
            // A subgroup of few threads issues as much as a whole one.
            let lanes = stages.rates.lanes as f64;
            tally.accesses *= (threads / lanes).ceil() * lanes / threads;
        }
        tally
    }
}
