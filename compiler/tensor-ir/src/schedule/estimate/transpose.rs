//! The cost of a transpose through workgroup memory (`rules/transpose_tiled.rs`), in whole tiles.

use super::rates::STEP;
use super::reads::{Demand, Lanes, Loop, Read, iterations};
use super::stages::Stages;
use super::tally::{KernelEstimate, Tally};
use super::units::named;
use crate::name::Name;
use crate::schedule::tiles::{Element, TransposeTile, Transposition};
use crate::tir::{BufferId, Scope};
use crate::traffic::{BANK_BYTES, BANKS, SECTOR_BYTES, element_bytes};

/// A stage that reads along another axis than it stores.
struct Transpose<'s, 'f> {
    stages: &'s Stages<'f>,
    stage: usize,
    order: Vec<Loop>,
    demand: Demand,
    form: Transposition,
}

impl<'s, 'f> Transpose<'s, 'f> {
    fn of(stages: &'s Stages<'f>, stage: usize) -> Option<Transpose<'s, 'f>> {
        let block = stages.list[stage].block;
        if block.reduce.is_some() {
            return None;
        }
        let (order, _) = stages.loops(stage);
        let demand = stages.demand(&block.value);
        let loads: Vec<Element<'_>> = demand.reads.iter().map(Read::element).collect();
        let step = |b: BufferId, ix: &[_], v: Name| stages.step(b, ix, v);
        let form = Transposition::of(&order, (block.buffer, &block.indices), &loads, &step)?;
        let global = form.staged.iter().all(|&i| stages.f.buffers[loads[i].0].scope == Scope::Global);
        global.then_some(Transpose { stages, stage, order, demand, form })
    }
    fn buffer(&self, read: usize) -> BufferId {
        self.demand.reads[read].buffer
    }
    /// Bytes of an element in workgroup memory.
    fn held_bytes(&self) -> i64 {
        let halves = |b: BufferId| self.stages.f.buffers[b].dtype.size() == 2 && self.stages.profile.f16;
        if self.form.staged.iter().all(|&i| halves(self.buffer(i))) { 2 } else { 4 }
    }
    fn count(&self, tile: &TransposeTile) -> Tally {
        let (stages, form) = (self.stages, &self.form);
        let [batch, rows, columns] = form.size.map(|n| n as f64);
        let tiles = |n: f64, by: i64| (n / by as f64).ceil();
        let workgroups = batch * tiles(rows, tile.rows) * tiles(columns, tile.columns);
        let (elements, of_a_tile) = (batch * rows * columns, (tile.rows * tile.columns) as f64);
        let (held, threads) = (self.held_bytes(), (tile.threads.0 * tile.threads.1) as f64);
        let mut tally = Tally {
            workgroups,
            threads,
            operations: self.demand.operations * elements + workgroups * threads * STEP,
            shared_bytes: tile.shared_bytes(form, held) as u64,
            ..Tally::default()
        };
        let lanes = stages.rates.lanes;
        let passes = |width: i64| (lanes * width * held + BANKS * BANK_BYTES - 1) / (BANKS * BANK_BYTES);
        for &i in &form.staged {
            let subgroups = |width: i64| workgroups * of_a_tile / (width * lanes) as f64;
            let (loaded, stored) = form.vectors;
            let bytes = element_bytes(&stages.f.buffers[self.buffer(i)], stages.profile);
            let apart = if rows as i64 % 8 == 0 { SECTOR_BYTES } else { loaded * bytes as i64 };
            let run = (rows.min(tile.rows as f64) * bytes) as i64;
            tally.accesses += subgroups(loaded);
            tally.sector_bytes += elements * bytes / run.max(1) as f64 * sectors_of_runs(run, apart.max(1));
            // Single elements are stored, vectors loaded.
            tally.passes += subgroups(1) * passes(1) as f64 + subgroups(stored) * passes(stored) as f64;
            tally.touch(self.buffer(i), elements);
        }
        let own = Lanes { order: &self.order, width: form.vectors.1, along: None };
        let others = (0..self.demand.reads.len()).filter(|i| !form.staged.contains(i));
        others.for_each(|i| stages.count_read(&mut tally, &self.demand.reads[i], &own, 1.0));
        let store = Stages::store(stages.list[self.stage].block);
        debug_assert_eq!(iterations(&self.order), elements);
        stages.count_read(&mut tally, &store, &own, 1.0);
        tally
    }
    fn kernel(&self, tile: &TransposeTile) -> KernelEstimate {
        named(self.stages, self.stage, &self.count(tile))
    }
}

/// Bytes of the sectors that runs of so many bytes touch, which begin `apart` bytes from each other: the mean.
fn sectors_of_runs(run: i64, apart: i64) -> f64 {
    let starts: Vec<i64> = (0..SECTOR_BYTES).step_by(apart.min(SECTOR_BYTES) as usize).collect();
    let sectors: i64 = starts.iter().map(|s| (s + run + SECTOR_BYTES - 1) / SECTOR_BYTES).sum();
    (sectors * SECTOR_BYTES) as f64 / starts.len() as f64
}

/// The kernel of a block in this tile; none where it is no plain stage that transposes.
pub(in crate::schedule) fn transpose_kernel(
    stages: &Stages<'_>,
    block: Name,
    tile: &TransposeTile,
) -> Vec<KernelEstimate> {
    let stage = stages.position(block).filter(|_| stages.can_be_counted());
    let t = stage.and_then(|s| Transpose::of(stages, s));
    t.map(|t| t.kernel(tile)).into_iter().collect()
}
