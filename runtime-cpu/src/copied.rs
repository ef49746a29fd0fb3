//! Rows of a left operand that collide in the cache, copied so that they do not.
//!
//! A tile reads one element of each of its rows at a time. Rows 4096 bytes apart (1024 channels) share one set of the
//! first cache, which holds 8 or 12 lines: the line of a row is gone before its next element is read. In a copy, rows
//! lie an odd number of lines apart.

use crate::tile::{Kind, Operands};
use std::ops::Range;

/// Elements of a cache line.
const LINE: usize = 16;
/// Bytes after which lines share a set of the first cache, of 32 KiB in 8 ways or 48 KiB in 12.
const SETS: usize = 4096;
/// Rows that share a set, at most: the right operand's lines need some of it.
const SHARED: usize = 5;
/// Elements of a row from which on a copy pays.
const LONG: usize = 64;

/// Memory of copies, used again; and where its rows begin in each tap.
#[derive(Default)]
pub(crate) struct Copied {
    rows: Vec<f32>,
    taps: Vec<[isize; 2]>,
}

impl<'a> Operands<'a> {
    /// True if so many rows of the left operand, which lie evenly, collide in the cache.
    pub(crate) fn collides(&self, rows: usize) -> bool {
        if self.kind != Kind::Product || self.left_stride != 1 || self.depth < LONG {
            return false;
        }
        // Of a number and a power of two, the greatest common divisor is the smaller power of two.
        let apart = self.row_stride.unsigned_abs() * size_of::<f32>();
        let common = 1 << apart.trailing_zeros().min(SETS.trailing_zeros());
        let sets = SETS / common.max(LINE * size_of::<f32>());
        rows.div_ceil(sets) > SHARED
    }
    /// Copies the rows of all taps, and makes the copies the left operand.
    ///
    /// # Safety
    /// Of each of these rows, `depth` elements are readable in each tap.
    pub(crate) unsafe fn copy_rows(&mut self, rows: Range<usize>, to: &'a mut Copied) {
        let stride = (self.depth.div_ceil(LINE) | 1) * LINE;
        let size = rows.len() * stride;
        if to.rows.len() < self.taps.len() * size {
            to.rows.resize(self.taps.len() * size, 0.0);
        }
        to.taps.clear();
        for (n, tap) in self.taps.iter().enumerate() {
            for (i, row) in rows.clone().enumerate() {
                let from = self.left.wrapping_offset(tap[0] + row as isize * self.row_stride);
                let copy = &mut to.rows[n * size + i * stride..][..self.depth];
                // SAFETY: the caller vouches for the row; the copy has as many elements.
                unsafe { from.copy_to_nonoverlapping(copy.as_mut_ptr(), copy.len()) };
            }
            to.taps.push([(n * size) as isize, tap[1]]);
        }
        // Rows are counted from the tile's first one.
        self.left = to.rows.as_ptr().wrapping_sub(rows.start * stride);
        (self.row_stride, self.taps) = (stride as isize, &to.taps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::tile;

    fn operands<'a>(left: &'a [f32], right: &'a [f32], taps: &'a [[isize; 2]], out: &mut [f32]) -> Operands<'a> {
        Operands {
            kind: Kind::Product,
            left: left.as_ptr(),
            row_stride: 1024,
            table: &[],
            table_rows: 0,
            left_stride: 1,
            right: right.as_ptr(),
            right_stride: 8,
            taps,
            depth: 70,
            columns: 8,
            initial: Some(0.0),
            steps: &[],
            out: out.as_mut_ptr(),
            out_stride: 8,
        }
    }

    #[test]
    fn copied_rows_have_the_same_sums() {
        let number = |i: usize| ((i * 7 + i / 1024 + 3) % 11) as f32 - 5.0;
        let left: Vec<f32> = (0..15 * 1024).map(number).collect();
        let right: Vec<f32> = (0..300 * 8).map(number).collect();
        let taps = [[0, 0], [5, 70 * 8], [1024, 140 * 8]];
        for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
            let (mut plain, mut copied) = (vec![9.0; 14 * 8], vec![9.0; 14 * 8]);
            let mut copy = Copied::default();
            // SAFETY: rows 2 to 13 and three taps of 70 elements end before 15 rows do; the right operand has 210 rows.
            unsafe {
                tile::run(isa, &operands(&left, &right, &taps, &mut plain), 2..14);
                let mut t = operands(&left, &right, &taps, &mut copied);
                assert!(t.collides(12));
                t.copy_rows(2..14, &mut copy);
                assert!(!t.collides(12), "copies do not collide");
                tile::run(isa, &t, 2..14);
            }
            assert_eq!(plain, copied, "{isa:?}");
            assert!(plain[..16].iter().all(|x| *x == 9.0) && plain[16..].iter().any(|x| *x != 9.0));
        }
    }

    #[test]
    fn rows_collide_that_lie_a_power_of_two_apart() {
        let (x, mut out) = (vec![0.0; 8], vec![0.0; 8]);
        let of = |row_stride: isize, depth: usize, out: &mut [f32]| Operands {
            row_stride,
            depth,
            ..operands(&x, &x, &[], out)
        };
        assert!(of(1024, 256, &mut out).collides(14) && of(2048 * 3, 256, &mut out).collides(14));
        assert!(of(512, 256, &mut out).collides(14) && of(-512, 256, &mut out).collides(14));
        assert!(!of(1024, 256, &mut out).collides(4), "four rows fit");
        assert!(!of(768, 256, &mut out).collides(14) && !of(1040, 256, &mut out).collides(14));
        assert!(!of(1024, 16, &mut out).collides(14), "each line is read once");
    }
}
