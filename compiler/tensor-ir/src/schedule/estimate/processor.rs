//! Kernels of processors: register tiles, and loops whose inner iterations are lanes of vector operations.
//!
//! All prices are in operations of a register tile, of which the profile has the rate. Loads and stores cost by
//! whether neighbouring lanes are adjacent in memory; memory itself by the bytes of each buffer.

use super::reads::{Demand, Loop, Read, iterations};
use super::stages::Stages;
use super::tally::{KernelEstimate, Tally};
use super::units::named;
use crate::name::Name;
use crate::tir::BufferId;

/// A product in register tiles.
#[derive(Clone, Copy, Debug)]
pub(in crate::schedule) struct RegisterTiles {
    /// Tiles, each a task.
    pub count: f64,
    /// Multiply-adds of each, its loads included.
    pub products: f64,
}

/// Tile operations in the time of one operation of a lane: depthwise convolutions reach 6 GFLOP/s where tiles reach
/// 150.
const LANE: f64 = 20.0;
/// Tile operations in the time of a load or store of a lane whose neighbours are adjacent in memory.
const ADJACENT: f64 = 10.0;
/// The same for lanes that are apart: each address is computed by itself.
const APART: f64 = 200.0;

/// The kernel of a product in such tiles. `blocks` are the product and what stores what is made of it; none where they
/// are no plain stages.
pub(in crate::schedule) fn register_tile_kernel(
    stages: &Stages<'_>,
    [reduce, output]: [Name; 2],
    tiles: RegisterTiles,
) -> Vec<KernelEstimate> {
    let Some((r, out)) = positions(stages, reduce, output) else { return vec![] };
    let mut tally = Tally { workgroups: tiles.count, threads: 1.0, ..Tally::default() };
    tally.operations = 2.0 * tiles.products * tiles.count;
    let taps = whole(stages, r);
    let demand = stages.demand(&stages.list[r].block.value);
    demand.reads.iter().for_each(|x| tally.touch(x.buffer, taps));
    finish(stages, &mut tally, out, Some(r));
    vec![named(stages, out, &tally)]
}

/// The kernel of a reduction and what is made of it, or of a lone compute block; none where they are no plain stages.
/// `across`: the reduction loop whose iterations are the lanes.
pub(in crate::schedule) fn lane_kernel(
    stages: &Stages<'_>,
    reduce: Option<Name>,
    output: Name,
    across: Option<Name>,
) -> Vec<KernelEstimate> {
    let Some((_, out)) = positions(stages, output, output) else { return vec![] };
    let r = reduce.and_then(|r| stages.position(r));
    if r.is_some() != reduce.is_some() {
        return vec![];
    }
    let results = iterations(&stages.loops(out).0);
    let mut tally = Tally { workgroups: (results / TASK).ceil(), threads: 1.0, ..Tally::default() };
    if let Some(r) = r {
        let mut demand = stages.demand(&stages.list[r].block.value);
        demand.operations += 1.0;
        let lane = across.or_else(|| innermost(&stages.loops(r).0));
        stages.pack(&mut demand, &stages.loops(r).0);
        count(stages, &mut tally, &demand, lane, whole(stages, r));
        // The elements of a reduction across lanes are one operation for each result.
        let leaves = if across.is_some() { results } else { 0.0 };
        tally.operations += LEAF * leaves;
    }
    finish(stages, &mut tally, out, r);
    vec![named(stages, out, &tally)]
}

/// The kernel whose tasks compute one of `rows` rows each: every reduction of the function along it, then `output`.
pub(in crate::schedule) fn row_task_kernel(stages: &Stages<'_>, output: Name, rows: f64) -> Vec<KernelEstimate> {
    let Some((_, out)) = positions(stages, output, output) else { return vec![] };
    let reductions: Vec<usize> = (0..stages.list.len()).filter(|s| stages.list[*s].block.reduce.is_some()).collect();
    let kept = |b: BufferId| reductions.iter().any(|r| stages.list[*r].block.buffer == b);
    let mut tally = Tally { workgroups: rows, threads: 1.0, ..Tally::default() };
    let mut stage = |at: usize, loops: &[Loop], times: f64| {
        let mut demand = stages.demand(&stages.list[at].block.value);
        demand.reads.retain(|r| !kept(r.buffer));
        count(stages, &mut tally, &demand, innermost(loops), times);
        tally.operations += LEAF * rows;
    };
    for &r in &reductions {
        stage(r, &stages.loops(r).1, whole(stages, r));
    }
    let own = stages.loops(out).0;
    stage(out, &own, iterations(&own));
    access(stages, &mut tally, &Stages::store(stages.list[out].block), innermost(&own), iterations(&own));
    vec![named(stages, out, &tally)]
}

/// Tile operations in the time that a leaf takes to begin, some 100 ns.
const LEAF: f64 = 15_000.0;

/// Results of a task.
const TASK: f64 = 256.0;

fn positions(stages: &Stages<'_>, reduce: Name, output: Name) -> Option<(usize, usize)> {
    let found = stages.position(reduce).zip(stages.position(output));
    found.filter(|_| stages.can_be_counted())
}

/// Iterations of a stage, those of its reduction included.
fn whole(stages: &Stages<'_>, stage: usize) -> f64 {
    let (spatial, reduction) = stages.loops(stage);
    iterations(&spatial) * iterations(&reduction)
}

fn innermost(loops: &[Loop]) -> Option<Name> {
    loops.iter().rev().find(|l| l.1 > 1).map(|l| l.0)
}

/// Counts what stage `out` makes of the results of reduction `r`, and its store.
fn finish(stages: &Stages<'_>, tally: &mut Tally, out: usize, r: Option<usize>) {
    let block = stages.list[out].block;
    let (own, _) = stages.loops(out);
    let (lane, times) = (innermost(&own), iterations(&own));
    if r != Some(out) && block.reduce.is_none() {
        let demand = stages.demand(&block.value).without(r.map(|r| stages.list[r].block.buffer));
        count(stages, tally, &demand, lane, times);
    }
    access(stages, tally, &Stages::store(block), lane, times);
}

/// Counts `times` lanes of what an expression takes.
fn count(stages: &Stages<'_>, tally: &mut Tally, demand: &Demand, lane: Option<Name>, times: f64) {
    tally.operations += demand.operations * LANE * times;
    demand.reads.iter().for_each(|r| access(stages, tally, r, lane, times));
}

/// Counts one access of `times` lanes.
fn access(stages: &Stages<'_>, tally: &mut Tally, r: &Read, lane: Option<Name>, times: f64) {
    let (buffer, index) = r.element();
    let price = match lane.map(|v| (r.is_packed_along(v), stages.step(buffer, index, v))) {
        None | Some((_, Some(0))) => 0.0,
        Some((true, _) | (_, Some(1))) => ADJACENT,
        _ => APART,
    };
    tally.operations += price * times;
    tally.touch(r.buffer, times);
}
