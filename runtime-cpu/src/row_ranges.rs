//! The rows or columns of a tile for which conditions hold.

use crate::execute::{Task, holding};
use crate::index::{Condition, Slot};
use crate::program::{RegisterTile, RowCondition};
use crate::tile_memory::TileMemory;
use tensor_ir::int::CondOp;

/// Loops of a tile whose left operand is held between limits, at most: four of a window in three dimensions, and rows.
const MOST_LOOPS: usize = 5;
/// Variables with their iterations.
type SmallLoops = [(Slot, i64); MOST_LOOPS];
/// The least and the greatest sum of a number and one of each pair.
pub(crate) fn ends(at: i64, pairs: [(i64, i64); 2]) -> [i64; 2] {
    pairs.iter().fold([at, at], |[low, high], (a, b)| [low + a.min(b), high + a.max(b)])
}

/// True if the condition, whose index is `at` in the first row of the first tap, holds for all rows and taps.
pub(crate) fn always(c: &RowCondition, at: i64, rows: i64) -> bool {
    let Some(step) = c.step else { return false };
    let [low, high] = ends(at, [c.reach, (0, step * (rows - 1))]);
    match c.condition.op {
        CondOp::Lt => high < 0,
        CondOp::Ge => low >= 0,
        CondOp::Eq => low == 0 && high == 0,
    }
}

/// The lanes for which an inequality holds whose index is `at` in the first one and moves by `step`, which is not 0.
pub(crate) fn range_of(op: CondOp, at: i64, step: i64, lanes: i64) -> (i64, i64) {
    let grows = (op == CondOp::Ge) == (step > 0);
    match grows {
        false => (0, until(op, at, step, lanes)),
        // It holds from where its opposite holds no longer.
        true => (until(if op == CondOp::Ge { CondOp::Lt } else { CondOp::Ge }, at, step, lanes), lanes),
    }
}

/// How many of `most` lanes a condition holds for whose index is `at` in the first one and moves by `step` towards
/// where it holds no longer.
pub(crate) fn until(op: CondOp, at: i64, step: i64, most: i64) -> i64 {
    let room = match op {
        CondOp::Lt => -at,
        CondOp::Ge => at + 1,
        CondOp::Eq => return most,
    };
    // A division takes as long as ten products.
    let lanes = if step.abs() == 1 { room } else { (room + step.abs() - 1).div_euclid(step.abs()) };
    lanes.clamp(0, most)
}

/// A bit for each row of a range.
pub(crate) fn within((low, high): (i64, i64)) -> u64 {
    if low < high { (u64::MAX >> (64 - (high - low))) << low } else { 0 }
}

impl Task<'_> {
    /// Finds the rows that each tap has.
    pub(crate) fn rows_of_taps(&self, t: &RegisterTile, rows: i64, m: &mut TileMemory) {
        m.ranges.clear();
        if t.conditions.iter().zip(&m.conditions).all(|(c, at)| always(c, *at, rows)) {
            return m.ranges.resize(t.taps.len(), (0, rows));
        }
        for n in 0..t.taps.len() {
            let mut range = (0, rows);
            for (c, at) in t.conditions.iter().zip(&m.conditions) {
                let (low, high) = holding(c.condition.op, at + c.taps[n], c.step.unwrap_or(0), rows);
                range = (range.0.max(low), range.1.min(high));
            }
            m.ranges.push(range);
        }
    }
    /// True if limits of the left operand's place change nothing in these rows of the tile.
    pub(crate) fn lies_evenly(&self, t: &RegisterTile, rows: i64) -> bool {
        if t.clamps.is_empty() {
            return true;
        }
        let mut loops: SmallLoops = [(0, 1); MOST_LOOPS];
        let own = t.tap_loops.iter().map(|l| (l.slot, l.count)).chain([(t.row, rows)]);
        let count = 1 + t.tap_loops.len();
        if count > MOST_LOOPS {
            return false;
        }
        loops.iter_mut().zip(own).for_each(|(to, l)| *to = l);
        t.clamps.iter().all(|c| c.is_idle(&loops[..count], self.scene()))
    }
    /// Finds each row of the tap by itself; gives where the first one begins.
    pub(crate) fn rows_of_tap(&mut self, t: &RegisterTile, tap: usize, rows: &mut [i64]) -> i64 {
        let first = self.row_of_tap(t, tap, 0);
        for (i, row) in (0..).zip(rows) {
            *row = self.row_of_tap(t, tap, i) - first;
        }
        first
    }
    /// Where row `i` of the tap begins.
    pub(crate) fn row_of_tap(&mut self, t: &RegisterTile, tap: usize, i: i64) -> i64 {
        let mut rest = tap as i64;
        for l in t.tap_loops.iter().rev() {
            self.env[l.slot] = rest % l.count;
            rest /= l.count;
        }
        let at = self.row_at(t, i);
        t.tap_loops.iter().for_each(|l| self.env[l.slot] = 0);
        at
    }
    /// Where row `i` begins in the first tap.
    pub(crate) fn row_at(&mut self, t: &RegisterTile, i: i64) -> i64 {
        if t.row == usize::MAX {
            return t.left.index.eval(self.scene());
        }
        self.env[t.row] = i;
        let at = t.left.index.eval(self.scene());
        self.env[t.row] = 0;
        at
    }
    /// The rows for which a condition holds whose index does not move evenly from row to row, a bit each.
    pub(crate) fn rows_where(&mut self, t: &RegisterTile, c: &Condition, more: i64, count: i64) -> u64 {
        let row = |i: i64| {
            self.env[t.row] = i;
            u64::from(Condition::of(c.op, c.index.eval(self.scene()) + more)) << i
        };
        let inside = (0..count).map(row).sum();
        self.env[t.row] = 0;
        inside
    }
}
