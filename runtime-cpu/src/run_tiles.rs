//! Tiles: where the rows of each tap lie, checked against their buffers before the body runs.

use crate::execute::{Task, holding};
use crate::index::{Condition, Slot};
use crate::memory::Span;
use crate::program::Tile;
use crate::tile::{self, MOST_ROWS};

/// Loops of a tile whose left operand is held between limits, at most: four of a window in three dimensions, and rows.
const MOST_LOOPS: usize = 5;
/// Variables with their iterations.
type SmallLoops = [(Slot, i64); MOST_LOOPS];

impl Task<'_> {
    /// Runs a tile: finds the rows of each tap, checks that all that is accessed is in bounds, and calls the body.
    pub(crate) fn tile(&mut self, t: &Tile) {
        t.inner.iter().for_each(|slot| self.env[*slot] = 0);
        let mut left = std::mem::take(&mut self.own.left);
        let mut right = std::mem::take(&mut self.own.right);
        left.clear();
        right.clear();
        let zeros = ((t.depth - 1) * t.left_stride) as usize + 1;
        if self.own.zeros.len() < zeros {
            self.own.zeros = vec![0.0; zeros];
        }
        let first = [t.left.index.eval(self.scene()), t.right.index.eval(self.scene())];
        let mut at = [0i64; 16];
        assert!(t.conditions.len() <= at.len(), "a row with more than {} conditions", at.len());
        for (at, c) in at.iter_mut().zip(&t.conditions) {
            *at = c.0.index.eval(self.scene());
        }
        let mut rows = [0i64; MOST_ROWS];
        assert!(t.rows <= MOST_ROWS as i64, "a tile of more than {MOST_ROWS} rows");
        let rows = &mut rows[..t.rows as usize];
        let even = self.lies_evenly(t);
        for (i, row) in (0..t.rows).zip(&mut *rows) {
            let stride = t.row_stride.filter(|_| even);
            *row = stride.map_or_else(|| self.row_at(t, i) - first[0], |stride| i * stride);
        }
        for (n, tap) in t.taps.iter().enumerate() {
            let mut inside = within((0, t.rows));
            for (((c, step), at), more) in t.conditions.iter().zip(&at).zip(&tap.conditions) {
                inside &= match step {
                    Some(step) => within(holding(c.op, at + more, *step, t.rows)),
                    None => self.rows_where(t, c, *more),
                };
            }
            if inside != 0 {
                let mut at = first[0] + tap.left;
                if !even {
                    at = self.rows_of_tap(t, n, rows);
                }
                self.tile_rows(t, at, rows, inside, &mut left);
                right.push(self.tile_right(t, first[1] + tap.right));
            }
        }
        if t.fresh {
            self.clear(t);
        }
        if !right.is_empty() {
            self.call_tile(t, t.rows as usize, &left, &right);
        }
        self.own.left = left;
        self.own.right = right;
    }
    /// True if limits of the left operand's place change nothing in this tile.
    fn lies_evenly(&self, t: &Tile) -> bool {
        if t.clamps.is_empty() {
            return true;
        }
        let mut loops: SmallLoops = [(0, 1); MOST_LOOPS];
        let own = t.tap_loops.iter().map(|l| (l.slot, l.count)).chain([(t.row, t.rows)]);
        let count = 1 + t.tap_loops.len();
        if count > MOST_LOOPS {
            return false;
        }
        loops.iter_mut().zip(own).for_each(|(to, l)| *to = l);
        t.clamps.iter().all(|c| c.is_idle(&loops[..count], self.scene()))
    }
    /// Finds each row of the tap by itself; gives where the first one begins.
    fn rows_of_tap(&mut self, t: &Tile, tap: usize, rows: &mut [i64]) -> i64 {
        let mut rest = tap as i64;
        for l in t.tap_loops.iter().rev() {
            self.env[l.slot] = rest % l.count;
            rest /= l.count;
        }
        let first = self.row_at(t, 0);
        for (i, row) in rows.iter_mut().enumerate() {
            *row = self.row_at(t, i as i64) - first;
        }
        t.tap_loops.iter().for_each(|l| self.env[l.slot] = 0);
        first
    }
    /// Where row `i` begins in the first tap.
    fn row_at(&mut self, t: &Tile, i: i64) -> i64 {
        self.env[t.row] = i;
        let at = t.left.index.eval(self.scene());
        self.env[t.row] = 0;
        at
    }
    /// The rows for which a condition holds whose index does not move evenly from row to row, a bit each.
    fn rows_where(&mut self, t: &Tile, c: &Condition, more: i64) -> u64 {
        let row = |i: i64| {
            self.env[t.row] = i;
            u64::from(Condition::of(c.op, c.index.eval(self.scene()) + more)) << i
        };
        let inside = (0..t.rows).map(row).sum();
        self.env[t.row] = 0;
        inside
    }
    /// Adds the pointers of a tap's rows, of which those in `inside`, a bit each, are not in the padding.
    fn tile_rows(&self, t: &Tile, first: i64, rows: &[i64], inside: u64, left: &mut Vec<*const f32>) {
        let view = &self.views[t.left.buffer];
        let read = |i: usize| inside >> i & 1 == 1;
        let own = rows.iter().enumerate().filter(|r| read(r.0));
        let (low, high) = own.fold((i64::MAX, i64::MIN), |(a, b), (_, r)| (a.min(*r), b.max(*r)));
        let (columns, column_stride, row_stride) = (t.depth as usize, t.left_stride, high - low);
        view.require(&Span { first: first + low, rows: 2, columns, row_stride, column_stride });
        let zeros = self.own.zeros.as_ptr();
        let row = |(i, at): (usize, &i64)| match read(i) {
            true => view.pointer::<f32>(first + at).cast_const(),
            false => zeros,
        };
        left.extend(rows.iter().enumerate().map(row));
    }
    fn tile_right(&self, t: &Tile, first: i64) -> *const f32 {
        let view = &self.views[t.right.buffer];
        let (rows, columns) = (t.depth as usize, t.columns as usize);
        view.require(&Span { first, rows, columns, row_stride: t.right_stride, column_stride: 1 });
        view.pointer::<f32>(first)
    }
    /// Sets the sums of a tile to 0.
    fn clear(&mut self, t: &Tile) {
        let (rows, columns) = (t.rows as usize, t.columns as usize);
        let view = &self.views[t.acc.buffer];
        let first = t.acc.index.eval(self.scene());
        view.require(&Span { first, rows, columns, row_stride: t.columns, column_stride: 1 });
        // SAFETY: in bounds, as just checked; the sums are this task's own memory.
        unsafe { std::ptr::write_bytes(view.pointer::<f32>(first), 0, rows * columns) };
    }
    fn call_tile(&mut self, t: &Tile, rows: usize, left: &[*const f32], right: &[*const f32]) {
        let view = &self.views[t.acc.buffer];
        let columns = t.columns as usize;
        let first = t.acc.index.eval(self.scene());
        view.require(&Span { first, rows, columns, row_stride: t.columns, column_stride: 1 });
        let operands = tile::Operands {
            left,
            left_stride: t.left_stride as usize,
            right,
            right_stride: t.right_stride as usize,
            depth: t.depth as usize,
        };
        // SAFETY: the rows of each tap, those of the right operand and the tile of results were checked against their
        // buffers above; rows in the padding read `zeros`, which has as many elements; the results are this task's own
        // memory.
        unsafe { tile::run(self.isa, &operands, rows, columns, view.pointer::<f32>(first)) };
    }
}

/// A bit for each row of a range.
fn within((low, high): (i64, i64)) -> u64 {
    if low < high { ((1 << (high - low)) - 1) << low } else { 0 }
}
