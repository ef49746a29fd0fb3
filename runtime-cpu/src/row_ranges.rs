//! The rows or columns of a tile for which conditions hold.

use crate::program::RowCondition;
use tensor_ir::int::CondOp;

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
