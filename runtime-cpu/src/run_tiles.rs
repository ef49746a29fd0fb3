//! Tiles: where the rows of each tap lie, checked against their buffers before the body runs.

use crate::execute::{Task, holding};
use crate::index::Condition;
use crate::memory::Span;
use crate::program::Tile;
use crate::tile::{self, MOST_ROWS};

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
        for (i, row) in (0..t.rows).zip(&mut rows) {
            *row = t.row_stride.map_or_else(|| self.row_at(t, i) - first[0], |stride| i * stride);
        }
        let rows = &rows[..t.rows as usize];
        for tap in &t.taps {
            let mut inside = within((0, t.rows));
            for (((c, step), at), more) in t.conditions.iter().zip(&at).zip(&tap.conditions) {
                inside &= match step {
                    Some(step) => within(holding(c.op, at + more, *step, t.rows)),
                    None => self.rows_where(t, c, *more),
                };
            }
            if inside != 0 {
                self.tile_rows(t, first[0] + tap.left, rows, inside, &mut left);
                right.push(self.tile_right(t, first[1] + tap.right));
            }
        }
        if !right.is_empty() {
            self.call_tile(t, t.rows as usize, &left, &right);
        }
        self.own.left = left;
        self.own.right = right;
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
        // SAFETY: the rows of each tap, those of the right operand and the tile of results were checked against their buffers
        // above; rows in the padding read `zeros`, which has as many elements; the results are this task's own memory.
        unsafe { tile::run(self.isa, &operands, rows, columns, view.pointer::<f32>(first)) };
    }
}

/// A bit for each row of a range.
fn within((low, high): (i64, i64)) -> u64 {
    if low < high { ((1 << (high - low)) - 1) << low } else { 0 }
}
