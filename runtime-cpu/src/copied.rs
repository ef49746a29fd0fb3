//! Operands of tiles that are read from a copy in f32: elements of another form, and rows that collide in the cache.
//!
//! A tile reads one element of each of its rows at a time. Rows 4096 bytes apart (1024 channels) share one set of the
//! first cache, which holds 8 or 12 lines: the line of a row is gone before its next element is read. In a copy, rows
//! lie an odd number of lines apart.
//!
//! Elements of a window that overlap in several taps are copied once, with the distances that they have in memory;
//! elements with much between them are packed.

use crate::form::Form;
use crate::halves;
use crate::integers::{self, Rows};
use crate::isa::Isa;
use crate::tile::{self, Kind, Operands};
use std::ops::Range;

/// Elements of a cache line.
const LINE: usize = 16;
/// Bytes after which lines share a set of the first cache, of 32 KiB in 8 ways or 48 KiB in 12.
const SETS: usize = 4096;
/// Rows that share a set, at most: the right operand's lines need some of it.
const SHARED: usize = 5;
/// Elements of a row from which on a copy pays.
const LONG: usize = 64;
/// Elements that are copied at a time, at most: they stay in the core's second cache.
const MOST: usize = 1 << 16;
/// Elements that are copied in the time that a run takes to begin.
const RUN: usize = 48;

/// Memory of copies, used again.
#[derive(Default)]
pub(crate) struct Copied {
    pub elements: Vec<f32>,
    /// Where each tap begins in the copy.
    places: Vec<isize>,
    /// Taps with these places.
    pub taps: Vec<[isize; 2]>,
}

/// Elements of an operand: those of one tap are at all sums of multiples of three strides.
#[derive(Clone, Copy)]
pub(crate) struct Stored {
    /// The first element of a tap at 0.
    pub at: *const u8,
    pub form: Form,
    /// Rows, depth and columns: how many, and the distance between two in elements.
    pub axes: [(usize, isize); 3],
}

impl Stored {
    fn elements(&self) -> usize {
        self.axes.iter().map(|a| a.0).product()
    }
    /// The least and the greatest place of a tap, from its first element on.
    fn reach(&self) -> [isize; 2] {
        let ends = self.axes.map(|(n, stride)| (n as isize - 1) * stride);
        [ends.iter().map(|e| e.min(&0)).sum(), ends.iter().map(|e| e.max(&0)).sum()]
    }
    fn element(&self, place: isize) -> *const u8 {
        self.at.wrapping_offset(place * self.form.size() as isize)
    }
    /// The runs of memory that all taps lie in, if these are in order: their number and elements. Calls `f` with the
    /// new elements of each tap, and with their place and the tap's first element in the copy.
    fn runs(
        &self,
        taps: impl Iterator<Item = isize>,
        mut f: impl FnMut(Range<isize>, usize, isize),
    ) -> Option<[usize; 2]> {
        let [low, high] = self.reach();
        let (mut end, mut before, mut base) = (isize::MIN, isize::MIN, 0);
        let (mut runs, mut used) = (0, 0);
        for tap in taps {
            if tap < before {
                return None;
            }
            let reach = tap + low..tap + high + 1;
            if reach.start > end {
                (end, base, runs) = (reach.start, used as isize - reach.start, runs + 1);
            }
            let new = end..reach.end.max(end);
            f(new.clone(), used, tap + base);
            used += new.len();
            (end, before) = (new.end, tap);
        }
        Some([runs, used])
    }
    /// The axis along which elements are adjacent in memory, or the innermost one.
    fn inner(&self) -> usize {
        let several = |a: &usize| self.axes[*a].0 > 1;
        let adjacent = (0..3).rev().find(|a| several(a) && self.axes[*a].1 == 1);
        adjacent.or_else(|| (0..3).rev().find(several)).unwrap_or(2)
    }
    /// Copies the elements of these taps, which become `to.places`; gives the strides of the copy. Rows that lie
    /// `apart` do not collide.
    ///
    /// # Safety
    /// The elements of all taps are readable.
    pub(crate) unsafe fn copy(
        &self,
        isa: Isa,
        taps: impl Iterator<Item = isize> + Clone,
        apart: bool,
        to: &mut Copied,
    ) -> [isize; 3] {
        to.places.clear();
        let inner = self.axes[self.inner()].0;
        let packed = taps.clone().count() * self.elements() / inner * (inner + RUN);
        let whole = self.runs(taps.clone(), |_, _, _| ()).filter(|[runs, used]| !apart && runs * RUN + used <= packed);
        let Some([_, used]) = whole else {
            // SAFETY: the caller vouches for the elements.
            return unsafe { self.pack(isa, taps, to) };
        };
        if to.elements.len() < used {
            to.elements.resize(used, 0.0);
        }
        let Copied { elements, places, .. } = to;
        self.runs(taps, |new, at, place| {
            let copy = &mut elements[at..at + new.len()];
            // SAFETY: between the least and the greatest place of a tap all elements are readable.
            unsafe { halves::widen(isa, self.form, self.element(new.start), copy) };
            places.push(place);
        });
        self.axes.map(|a| a.1)
    }
    /// Copies tap after tap, element next to element along one axis.
    ///
    /// # Safety
    /// As [`Stored::copy`].
    unsafe fn pack(&self, isa: Isa, taps: impl Iterator<Item = isize> + Clone, to: &mut Copied) -> [isize; 3] {
        let inner = self.inner();
        let outer = [0, 1, 2].map(|a| if a == inner { 1 } else { self.axes[a].0 });
        let (length, step) = self.axes[inner];
        // Whole lines, an odd number of them.
        let row = if inner == 1 { (length.div_ceil(LINE) | 1) * LINE } else { length };
        let mut strides = [(outer[1] * outer[2] * row) as isize, (outer[2] * row) as isize, row as isize];
        let size = outer.iter().product::<usize>() * row;
        let all = taps.clone().count() * size;
        if to.elements.len() < all {
            to.elements.resize(all, 0.0);
        }
        for (n, tap) in taps.enumerate() {
            to.places.push((n * size) as isize);
            let index = (0..outer[0]).flat_map(|i| (0..outer[1]).map(move |k| (i, k)));
            let index = index.flat_map(|(i, k)| (0..outer[2]).map(move |j| [i, k, j]));
            for (run, index) in index.enumerate() {
                let from = tap + (0..3).map(|a| index[a] as isize * self.axes[a].1).sum::<isize>();
                let copy = &mut to.elements[n * size + run * row..][..length];
                // SAFETY: the caller vouches for the elements of each tap.
                unsafe { self.run(isa, from, step, copy) };
            }
        }
        strides[inner] = 1;
        strides
    }
    /// Copies elements so far apart.
    ///
    /// # Safety
    /// They are readable.
    pub(crate) unsafe fn run(&self, isa: Isa, from: isize, step: isize, to: &mut [f32]) {
        // SAFETY: the caller vouches for the elements.
        unsafe {
            if step == 1 {
                return halves::widen(isa, self.form, self.element(from), to);
            }
            for (i, to) in to.chunks_exact_mut(1).enumerate() {
                halves::widen(isa, self.form, self.element(from + i as isize * step), to);
            }
        }
    }
}

impl Operands<'_> {
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
    /// Runs these rows of a tile, whose left operand lies at `at` in this form, on copies of its elements: as many rows
    /// and taps at a time as the cache holds.
    ///
    /// # Safety
    /// As [`tile::run`], of the elements at `at`; the pointer to the left operand may be anything.
    pub(crate) unsafe fn run_copied(&self, isa: Isa, rows: Range<usize>, at: *const u8, form: Form, to: &mut Copied) {
        let product = matches!(self.kind, Kind::Product | Kind::Halves);
        let columns = if product { 1 } else { self.columns };
        let apart = self.collides(rows.len());
        let axes = |rows: usize| [(rows, self.row_stride), (self.depth, self.left_stride), (columns, 1)];
        let step = (MOST / (self.depth * columns)).max(1);
        for first in rows.clone().step_by(step) {
            let part = first..(first + step).min(rows.end);
            let row = first as isize * self.row_stride * form.size() as isize;
            let stored = Stored { at: at.wrapping_offset(row), form, axes: axes(part.len()) };
            let taps = self.taps_at_once(&stored);
            let last = self.taps.len().div_ceil(taps).max(1) - 1;
            for n in 0..=last {
                let some = &self.taps[n * taps..self.taps.len().min((n + 1) * taps)];
                // SAFETY: the caller vouches for the elements, and for the results, which keep the sums between.
                unsafe {
                    let strides = stored.copy(isa, some.iter().map(|t| t[0]), apart, to);
                    to.taps.clear();
                    to.taps.extend(to.places.iter().zip(some).map(|(at, tap)| [*at, tap[1]]));
                    let copy = Operands {
                        // Rows are counted from the tile's first one.
                        left: to.elements.as_ptr().wrapping_offset(-(first as isize * strides[0])),
                        row_stride: strides[0],
                        left_stride: strides[1],
                        taps: &to.taps,
                        initial: if n == 0 { self.initial } else { None },
                        steps: if n == last { self.steps } else { &[] },
                        bytes: self.bytes.filter(|_| n == last),
                        ..*self
                    };
                    tile::run(isa, &copy, part.clone());
                }
            }
        }
    }
    /// Taps whose elements the cache holds.
    fn taps_at_once(&self, s: &Stored) -> usize {
        let ends = self.taps.iter().fold([0, 0], |[low, high], t| [t[0].min(low), t[0].max(high)]);
        let [low, high] = s.reach();
        let span = (ends[1] - ends[0] + high - low) as usize;
        if span <= MOST { self.taps.len().max(1) } else { (MOST / s.elements()).max(1) }
    }
}

/// The copy of a right operand, kept while tiles with the same one follow each other.
#[derive(Default)]
pub(crate) struct Kept {
    copy: Copied,
    /// The tile that it is a copy of, its first element, and columns.
    of: Option<[usize; 3]>,
    stride: isize,
    /// Added to sums, where the left operand's integers are multiplied as greater ones.
    sums: Vec<f32>,
    /// Past the end of the depth.
    zeros: Vec<u8>,
}

impl Kept {
    /// Forgets the copy: memory may have changed.
    pub(crate) fn forget(&mut self) {
        self.of = None;
    }
    /// Copies the right operand of a tile, all taps of it, unless that was the last copy. Then [`Kept::taps`] has the
    /// places of its taps.
    ///
    /// # Safety
    /// The elements of all taps are readable, and nobody writes them before [`Kept::forget`].
    pub(crate) unsafe fn copy(&mut self, isa: Isa, tile: usize, right: &Stored, taps: &[[isize; 2]]) {
        let of = [tile, right.at.addr(), right.axes[2].0];
        if self.of == Some(of) {
            return;
        }
        // SAFETY: the caller vouches for the elements.
        let strides = unsafe { right.copy(isa, taps.iter().map(|t| t[1]), false, &mut self.copy) };
        let Copied { taps: own, places, .. } = &mut self.copy;
        own.clear();
        own.extend(taps.iter().zip(places).map(|(tap, at)| [tap[0], *at]));
        (self.of, self.stride) = (Some(of), strides[1]);
    }
    /// Packs the right operand of a tile of integers in words, all taps of it, unless that was the last one; so much of
    /// a left operand of this form is multiplied with it.
    ///
    /// # Safety
    /// As [`Kept::copy`].
    pub(crate) unsafe fn pack(
        &mut self,
        isa: Isa,
        tile: usize,
        (kind, left): (Kind, Form),
        right: &Rows,
        taps: &[[isize; 2]],
    ) {
        let of = [tile, right.at.addr(), right.columns];
        if self.of == Some(of) {
            return;
        }
        let size = right.depth.div_ceil(integers::group(kind)) * right.columns;
        let Copied { elements, taps: own, .. } = &mut self.copy;
        elements.resize(elements.len().max(taps.len() * size), 0.0);
        self.zeros.resize(self.zeros.len().max(right.columns), 0);
        own.clear();
        for (n, (tap, to)) in taps.iter().zip(elements.chunks_exact_mut(size)).enumerate() {
            let at = right.at.wrapping_offset(tap[1] * right.form.size() as isize);
            // SAFETY: the caller vouches for the elements.
            unsafe { Rows { at, ..*right }.pack(isa, kind, &self.zeros, right.columns, to) };
            own.push([tap[0], (n * size) as isize]);
        }
        self.sums.clear();
        if integers::is_shifted(kind, left) {
            self.sums.resize(right.columns, 0.0);
            integers::correct(kind, left, &elements[..taps.len() * size], &mut self.sums);
        }
        (self.of, self.stride) = (Some(of), right.columns as isize);
    }
    /// Added to the sums of each column; nothing if that is empty.
    pub(crate) fn sums(&self) -> &[f32] {
        &self.sums
    }
    /// Taps with their places in the copy.
    pub(crate) fn taps(&mut self) -> &mut Vec<[isize; 2]> {
        &mut self.copy.taps
    }
    /// The copy's first element, and the distance between two rows.
    pub(crate) fn rows(&self) -> (*const f32, isize) {
        (self.copy.elements.as_ptr(), self.stride)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operands<'a>(left: &'a [f32], right: &'a [f32], taps: &'a [[isize; 2]], out: &mut [f32]) -> Operands<'a> {
        Operands {
            kind: Kind::Product,
            left: left.as_ptr(),
            row_stride: 1024,
            table: &[],
            table_rows: 0,
            left_stride: 1,
            lane_stride: 1,
            right: right.as_ptr(),
            right_stride: 8,
            taps,
            depth: 70,
            first_column: 0,
            columns: 8,
            initial: Some(0.0),
            steps: &[],
            out: out.as_mut_ptr(),
            out_stride: 8,
            bytes: None,
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
                let t = operands(&left, &right, &taps, &mut copied);
                assert!(t.collides(12));
                t.run_copied(isa, 2..14, left.as_ptr().cast(), Form::F32, &mut copy);
            }
            assert_eq!(plain, copied, "{isa:?}");
            assert!(plain[..16].iter().all(|x| *x == 9.0) && plain[16..].iter().any(|x| *x != 9.0));
        }
    }

    /// Copies of windows that overlap, of rows with much between them, of columns that lie along the rows, and of more
    /// elements than are copied at a time, are what lies in memory.
    #[test]
    fn copies_have_the_elements_of_their_taps() {
        let half = |i: usize| half::f16::from_f32(((i * 7 + i / 64) % 301) as f32 - 150.0);
        let memory: Vec<half::f16> = (0..40_000).map(half).collect();
        for (axes, taps) in [
            ([(5, 8), (1, 0), (8, 1)], vec![0, 8, 16, 400, 408, 416]),
            ([(5, 16), (1, 0), (8, 1)], vec![0, 8, 16, 400, 408, 416]),
            ([(4, 1000), (70, 1), (1, 1)], vec![0, 5000]),
            ([(6, 1), (9, 500), (1, 1)], vec![3, 100]),
            ([(3, 200), (5, 7), (1, 1)], vec![100, 0]),
            ([(1, 0), (1, 0), (1, 1)], vec![7]),
        ] {
            for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
                for apart in [false, true] {
                    let stored = Stored { at: memory.as_ptr().cast(), form: Form::F16, axes };
                    let mut to = Copied::default();
                    // SAFETY: the greatest place is below 40,000.
                    let strides = unsafe { stored.copy(isa, taps.iter().copied(), apart, &mut to) };
                    for (tap, place) in taps.iter().zip(&to.places) {
                        let all = (0..axes[0].0).flat_map(|i| (0..axes[1].0).map(move |k| (i, k)));
                        for (i, k, j) in all.flat_map(|(i, k)| (0..axes[2].0).map(move |j| (i, k, j))) {
                            let at = |s: [isize; 3]| i as isize * s[0] + k as isize * s[1] + j as isize * s[2];
                            let want = memory[(tap + at(axes.map(|a| a.1))) as usize].to_f32();
                            let got = to.elements[(place + at(strides)) as usize];
                            assert_eq!(got, want, "{isa:?} {axes:?} {taps:?} {apart}: {i} {k} {j} of {tap}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn many_taps_are_copied_in_parts() {
        let number = |i: usize| ((i * 7 + i / 1024) % 11) as f32 - 5.0;
        let left: Vec<f32> = (0..200_000).map(number).collect();
        let taps: Vec<[isize; 2]> = (0..190).map(|n| [n * 1000, 0]).collect();
        let (mut plain, mut copied) = (vec![9.0; 2000], vec![9.0; 2000]);
        for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
            let steps = [tile::Step::Mul(0.5)];
            let of = |out: &mut [f32]| Operands {
                kind: Kind::Sum,
                row_stride: 1000,
                depth: 1,
                columns: 1000,
                steps: &steps,
                out_stride: 1000,
                ..operands(&left, &left, &taps, out)
            };
            let mut copy = Copied::default();
            // SAFETY: two rows and 190 taps of 1000 elements end before 200,000.
            unsafe {
                tile::run(isa, &of(&mut plain), 0..2);
                of(&mut copied).run_copied(isa, 0..2, left.as_ptr().cast(), Form::F32, &mut copy);
            }
            assert!(copy.elements.len() < 140_000, "not all at a time");
            assert_eq!(plain, copied, "{isa:?}");
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
