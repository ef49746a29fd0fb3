//! Runs leaves that decode packed weights: whole vectors of columns, compiled for each instruction set.

use crate::decoding::{Decoding, Factor, Factors, Place};
use crate::execute::Task;
use crate::form::Form;
use crate::index::Slot;
use crate::isa::versions;
use crate::memory::{Element, Span, View};
use crate::packed_tile::{self, Packed as PackedRight, multiplies_bytes};
use crate::program::RegisterTile;
use crate::run_tiles::Target;
use crate::tile_operands::{Operands, Step};
use half::{bf16, f16};

/// By how much an element that was rounded to a step and stored in a form differs from the step, as part of the block's
/// largest magnitude: the element and the step were rounded once more.
fn error_of(form: Form) -> f32 {
    match form {
        Form::F32 => 4.0 * f32::EPSILON,
        _ => 1.0 / 1024.0,
    }
}

/// Columns that are decoded at once.
const AT_ONCE: usize = if cfg!(target_arch = "aarch64") { 4 } else { 16 };

impl Task<'_> {
    /// Decodes all that the leaf does.
    pub(crate) fn decode(&mut self, d: &Decoding) {
        let slots: [Slot; 4] = d.inside.map(|e| e.slot);
        self.begin_at([slots[0], slots[1]], [0, 0]);
        self.begin_at([slots[2], slots[3]], [0, 0]);
        self.each(&d.loops, &mut |t| t.decode_part(d));
    }
    fn decode_part(&mut self, d: &Decoding) {
        let counts = d.inside.map(|e| e.count);
        let Factors([mut zeros, mut scales, left]) = std::mem::take(&mut self.own.factors);
        let zero = self.factors(&d.zero, counts, &mut zeros);
        let scale = self.factors(&d.scale, counts, &mut scales);
        let [blocks, steps, _, columns] = counts.map(|n| n as usize);
        let words = d.packed.strides.map(|s| s as usize);
        let (to, to_strides) = (self.views[d.to.buffer], d.to.strides.map(|s| s as usize));
        let first = d.to.index.eval(self.scene());
        let end = first + reach(&d.to, counts);
        to.require_all(first, end);
        // SAFETY: in bounds, as just checked; the buffer is the task's own, and no operand is in it.
        let to = unsafe { std::slice::from_raw_parts_mut(to.pointer::<f32>(first), (end - first + 1) as usize) };
        let rows = Rows {
            strides: [words[0], words[1], words[2]],
            blocks,
            steps,
            columns,
            shifts: &d.shifts,
            shared: d.shared(),
            mask: d.mask,
            zeros: zero,
            scales: scale,
            to: [to_strides[0], to_strides[1], to_strides[2]],
        };
        let view = self.views[d.packed.buffer];
        match view.form() {
            Form::U32 => decode(self.isa, &rows, self.elements::<u32>(&d.packed, counts), to),
            Form::I8 => decode(self.isa, &rows, self.elements::<i8>(&d.packed, counts), to),
            _ => decode(self.isa, &rows, self.elements::<u8>(&d.packed, counts), to),
        }
        self.own.factors = Factors([zeros, scales, left]);
    }
    /// Runs a tile that decodes its right operand in registers; false if it is to be decoded before.
    pub(crate) fn decoded_tile(&mut self, t: &RegisterTile, d: &Decoding, to: &Target, steps: &[Step]) -> bool {
        if !self.lies_evenly(t, to.rows) {
            return false;
        }
        let of = [std::ptr::from_ref(t).addr() as i64, t.left.index.eval(self.scene())];
        let bits = d.shared().unwrap_or(0);
        let bytes = d.steady_left && multiplies_bytes(self.isa, bits, d.mask, d.inside[2].count as usize);
        let known = self.own.rows.known(of).filter(|_| bytes);
        // Tiles that share a panel read words only where their rows are bytes.
        if d.shared_panel && (!bytes || matches!(known, Some(None))) {
            return false;
        }
        let initial = self.initial(t);
        d.inside.iter().map(|e| e.slot).chain(d.parts.iter().copied()).for_each(|s| self.begin_at([s; 2], [0, 0]));
        let Factors([mut zeros, mut scales, mut rows]) = std::mem::take(&mut self.own.factors);
        let mut packed = self.packed(d, [&mut zeros, &mut scales]);
        packed.bytes = known.flatten();
        let mut left = (std::ptr::null(), 0);
        if packed.bytes.is_none() {
            left = self.rows_as_f32(t, to.rows, &mut rows);
        }
        if bytes && known.is_none() {
            let (at, stride) = (left.0, left.1 as usize);
            let shape = ([to.rows as usize, packed.blocks, packed.steps, packed.rows], packed.planes());
            let error = error_of(self.views[t.left.buffer].form());
            // SAFETY: the rows were just checked against their buffer, which the kernel does not write.
            packed.bytes = unsafe { self.own.rows.find(self.isa, of, (at, stride), shape, error) };
        }
        if d.shared_panel && packed.bytes.is_none() {
            self.own.factors = Factors([zeros, scales, rows]);
            return false;
        }
        let (left, row_stride) = left;
        let operands = Operands {
            left,
            row_stride: row_stride as isize,
            depth: t.depth as usize,
            columns: to.columns as usize,
            initial,
            steps,
            out: to.out,
            out_stride: to.stride as isize,
            ..Operands::NONE
        };
        // SAFETY: words, factors and rows of the left operand were checked against their buffers, results and steps in
        // `target`; the results are this task's own.
        unsafe { packed_tile::run(self.isa, &operands, &packed, to.rows as usize) };
        self.own.factors = Factors([zeros, scales, rows]);
        true
    }
    /// Decodes the right operand of tiles in a loop, unless that was the last one that was decoded.
    pub(crate) fn decode_once(&mut self, d: &Decoding) {
        let of = [std::ptr::from_ref(d).addr() as i64, d.packed.index.eval(self.scene())];
        if self.own.decoded.replace(of) != Some(of) {
            self.decode(d);
        }
    }
    /// The right operand of a tile, in its buffers.
    fn packed<'m>(&self, d: &Decoding, [zeros, scales]: [&'m mut Vec<f32>; 2]) -> PackedRight {
        let counts = d.inside.map(|e| e.count);
        let [blocks, steps, rows, columns] = counts.map(|n| n as usize);
        let factor = |(all, [by, _]): (&'m [f32], [usize; 2])| {
            assert!((blocks - 1) * by + columns <= all.len(), "factors are in their buffers");
            (all.as_ptr(), by)
        };
        PackedRight {
            words: self.elements::<u32>(&d.packed, counts).as_ptr(),
            strides: [d.packed.strides[0] as usize, d.packed.strides[1] as usize],
            blocks,
            steps,
            rows,
            bits: d.shared().unwrap_or(0),
            mask: d.mask,
            zero: if let Factor::Number(x) = d.zero { Some(x) } else { None },
            zeros: factor(self.factors(&d.zero, counts, zeros)),
            scales: factor(self.factors(&d.scale, counts, scales)),
            bytes: None,
        }
    }
    /// The rows of a tile's left operand, whose elements lie next to each other, and the distance between two: where
    /// they lie, or converted.
    fn rows_as_f32(&self, t: &RegisterTile, rows: i64, to: &mut Vec<f32>) -> (*const f32, i64) {
        let (view, first) = (self.views[t.left.buffer], t.left.index.eval(self.scene()));
        let stride = t.row_stride.unwrap_or(0);
        view.require_all(first, first + (rows - 1) * stride + t.depth - 1);
        if view.form() == Form::F32 {
            return (view.pointer::<f32>(first).cast_const(), stride);
        }
        to.resize((rows * t.depth) as usize, 0.0);
        for (row, to) in (0i64..).zip(to.chunks_exact_mut(t.depth as usize)) {
            let first = first + row * stride;
            read(&view, &Span { first, rows: 1, columns: to.len(), row_stride: 0, column_stride: 1 }, to);
        }
        (to.as_ptr(), t.depth)
    }
    /// The elements from the first to the last that the leaf reads at a place.
    fn elements<'m, T: Element>(&self, p: &Place, counts: [i64; 4]) -> &'m [T] {
        let first = p.index.eval(self.scene());
        let columns = reach(p, counts) as usize + 1;
        self.views[p.buffer].slice(&Span { first, rows: 1, columns, row_stride: 0, column_stride: 1 })
    }
    /// Zero points or scales as f32, a row of columns for each block and step, with the distances between these. Those
    /// of f32 are read where they lie.
    fn factors<'m>(
        &self,
        f: &Factor,
        counts @ [blocks, steps, _, columns]: [i64; 4],
        to: &'m mut Vec<f32>,
    ) -> (&'m [f32], [usize; 2]) {
        to.clear();
        let width = columns as usize;
        let Factor::At(p) = f else {
            to.resize(width, if let Factor::Number(x) = f { *x } else { 0.0 });
            return (to, [0, 0]);
        };
        if self.views[p.buffer].form() == Form::F32 && p.strides[3] == 1 {
            return (self.elements::<f32>(p, counts), [p.strides[0] as usize, p.strides[1] as usize]);
        }
        let (view, first) = (self.views[p.buffer], p.index.eval(self.scene()));
        let of = |n: i64, stride: i64| if stride == 0 { 1 } else { n };
        let [blocks, steps] = [of(blocks, p.strides[0]), of(steps, p.strides[1])];
        to.resize(width * (blocks * steps) as usize, 0.0);
        // Rows of columns that follow each other are read at once.
        let follow = steps == 1 && p.strides[3] == 1 && (blocks == 1 || p.strides[0] == columns);
        let run = if follow { to.len() } else { width };
        for (at, to) in (0i64..).zip(to.chunks_exact_mut(run)) {
            let first = first + at / steps * p.strides[0] + at % steps * p.strides[1];
            let columns = if p.strides[3] == 0 { 1 } else { run };
            read(&view, &Span { first, rows: 1, columns, row_stride: 0, column_stride: 1 }, &mut to[..columns]);
            let x = to[0];
            to[columns..].fill(x);
        }
        (to, [if blocks == 1 { 0 } else { steps as usize * width }, if steps == 1 { 0 } else { width }])
    }
}

/// Reads neighbours as f32.
fn read(view: &View, span: &Span, to: &mut [f32]) {
    match view.form() {
        Form::U8 => to.iter_mut().zip(view.slice::<u8>(span)).for_each(|(to, x)| *to = f32::from(*x)),
        Form::I8 => to.iter_mut().zip(view.slice::<i8>(span)).for_each(|(to, x)| *to = f32::from(*x)),
        Form::F16 => view.read::<f16>(span, to),
        Form::BF16 => view.read::<bf16>(span, to),
        _ => view.read::<f32>(span, to),
    }
}

/// The distance to the last place.
fn reach(p: &Place, counts: [i64; 4]) -> i64 {
    p.strides.iter().zip(counts).map(|(s, n)| s * (n - 1)).sum()
}

/// Rows to decode; strides are along blocks, steps and rows.
pub(crate) struct Rows<'a> {
    strides: [usize; 3],
    blocks: usize,
    steps: usize,
    columns: usize,
    shifts: &'a [u32],
    /// See [`Decoding::shared`].
    shared: Option<u32>,
    mask: u32,
    /// With the distances between blocks and steps.
    zeros: (&'a [f32], [usize; 2]),
    scales: (&'a [f32], [usize; 2]),
    to: [usize; 3],
}

/// An element with integers in it.
pub(crate) trait Packed: Copy + Default {
    /// All of its bits.
    fn bits(self) -> u32;
    /// The bits from `shift` on, as a number.
    fn part(self, shift: u32, mask: u32) -> i32;
}
impl Packed for u32 {
    #[inline(always)]
    fn bits(self) -> u32 {
        self
    }
    #[inline(always)]
    fn part(self, shift: u32, mask: u32) -> i32 {
        (self >> (shift & 31) & mask) as i32
    }
}
impl Packed for u8 {
    #[inline(always)]
    fn bits(self) -> u32 {
        u32::from(self)
    }
    #[inline(always)]
    fn part(self, shift: u32, mask: u32) -> i32 {
        (u32::from(self) >> (shift & 31) & mask) as i32
    }
}
impl Packed for i8 {
    #[inline(always)]
    fn bits(self) -> u32 {
        u32::from(self.cast_unsigned())
    }
    #[inline(always)]
    fn part(self, _: u32, _: u32) -> i32 {
        i32::from(self)
    }
}

impl Rows<'_> {
    /// The element behind the last one at places with these strides.
    fn end(&self, strides: &[usize]) -> usize {
        let counts = [self.blocks, self.steps, self.shifts.len()];
        strides.iter().zip(counts).map(|(s, n)| s * n.saturating_sub(1)).sum::<usize>() + self.columns
    }
}

versions! {
    fn decode<T: Packed>(r: &Rows<'_>, from: &[T], to: &mut [f32]) {
        let fits = r.end(&r.strides) <= from.len()
            && r.end(&r.to) <= to.len()
            && r.end(&r.zeros.1) <= r.zeros.0.len()
            && r.end(&r.scales.1) <= r.scales.0.len();
        assert!(fits, "rows to decode are in their buffers");
        for step in (0..r.blocks).flat_map(|b| (0..r.steps).map(move |s| [b, s])) {
            let at = |strides: &[usize], column: usize| step[0] * strides[0] + step[1] * strides[1] + column;
            for column in (0..r.columns).step_by(AT_ONCE) {
                let (zeros, scales) = (&r.zeros.0[at(&r.zeros.1, column)..], &r.scales.0[at(&r.scales.1, column)..]);
                let (from, to) = (&from[at(&r.strides, column)..], &mut to[at(&r.to, column)..]);
                let strides = [r.strides[2], r.to[2]];
                match (zeros.first_chunk(), scales.first_chunk(), from.first_chunk()) {
                    (Some(zeros), Some(scales), Some(words)) if r.shared.is_some() && column + AT_ONCE <= r.columns => {
                        let (rows, step) = (r.shifts.len(), r.shared.unwrap_or(0));
                        // SAFETY: as below.
                        unsafe { shared(rows, (step, r.mask), *words, (zeros, scales), to.as_mut_ptr(), r.to[2]) }
                    }
                    (Some(zeros), Some(scales), _) if column + AT_ONCE <= r.columns => {
                        // SAFETY: the last row has a whole vector from here on, as was just checked.
                        unsafe { vectors(r.shifts, r.mask, from.as_ptr(), zeros, scales, to.as_mut_ptr(), strides) }
                    }
                    _ => columns(r, from, zeros, scales, to, r.columns - column),
                }
            }
        }
    }
}

/// Decodes whole vectors of columns whose rows share their words, each row `step` bits behind the one before.
///
/// # Safety
/// A vector of each row is writable at `to`, rows so far apart.
#[inline(always)]
unsafe fn shared<T: Packed>(
    rows: usize,
    (step, mask): (u32, u32),
    words: [T; AT_ONCE],
    (zeros, scales): (&[f32; AT_ONCE], &[f32; AT_ONCE]),
    to: *mut f32,
    stride: usize,
) {
    let (mut words, zeros, scales) = (words.map(T::bits), *zeros, *scales);
    for row in 0..rows {
        // SAFETY: the caller vouches for the row.
        let to = unsafe { &mut *to.add(row * stride).cast::<[f32; AT_ONCE]>() };
        for i in 0..AT_ONCE {
            to[i] = ((words[i] & mask) as i32 as f32 - zeros[i]) * scales[i];
            words[i] >>= step & 31;
        }
    }
}

/// Decodes whole vectors of columns.
///
/// # Safety
/// A vector of each row is readable at `from`, and writable at `to`, rows so far apart.
#[inline(always)]
unsafe fn vectors<T: Packed>(
    shifts: &[u32],
    mask: u32,
    from: *const T,
    zeros: &[f32; AT_ONCE],
    scales: &[f32; AT_ONCE],
    to: *mut f32,
    strides: [usize; 2],
) {
    let (zeros, scales) = (*zeros, *scales);
    for (row, shift) in shifts.iter().enumerate() {
        // SAFETY: the caller vouches for the row.
        let (words, to) = unsafe {
            (
                *from.add(row * strides[0]).cast::<[T; AT_ONCE]>(),
                &mut *to.add(row * strides[1]).cast::<[f32; AT_ONCE]>(),
            )
        };
        for i in 0..AT_ONCE {
            to[i] = (words[i].part(*shift, mask) as f32 - zeros[i]) * scales[i];
        }
    }
}

/// Decodes the last columns.
#[inline(always)]
fn columns<T: Packed>(r: &Rows<'_>, from: &[T], zeros: &[f32], scales: &[f32], to: &mut [f32], n: usize) {
    for (row, shift) in r.shifts.iter().enumerate() {
        for i in 0..n {
            let part = from[row * r.strides[2] + i].part(*shift, r.mask);
            to[row * r.to[2] + i] = (part as f32 - zeros[i]) * scales[i];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    /// Every instruction set has the numbers of the definition, also in columns that are no whole vector.
    #[test]
    fn words_are_decoded_in_all_columns() {
        for (bits, columns) in [(4u32, 32), (4, 12), (2, 20), (8, 7), (1, 16)] {
            let (each, blocks, steps) = (32 / bits as usize, 2, 3);
            let mask = ((1u64 << bits) - 1) as u32;
            let words: Vec<u32> = (0..blocks * steps * columns).map(|i| (i as u32).wrapping_mul(0x9e37_79b9)).collect();
            let shifts: Vec<u32> = (0..each as u32).map(|i| i * bits).collect();
            let zeros: Vec<f32> = (0..columns).map(|i| (i % 5) as f32).collect();
            let scales: Vec<f32> = (0..blocks * columns).map(|i| 0.25 + i as f32).collect();
            let rows = Rows {
                strides: [steps * columns, columns, 0],
                blocks,
                steps,
                columns,
                shifts: &shifts,
                shared: Some(bits),
                mask,
                zeros: (&zeros, [0, 0]),
                scales: (&scales, [columns, 0]),
                to: [steps * each * columns, each * columns, columns],
            };
            let want = |at: usize| {
                let (row, column) = (at / columns, at % columns);
                let (step, i) = (row / each, row % each);
                let q = words[step * columns + column] >> (i as u32 * bits) & mask;
                (q as f32 - zeros[column]) * scales[step / steps * columns + column]
            };
            for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
                let mut out = vec![9.0; blocks * steps * each * columns];
                decode(isa, &rows, &words, &mut out);
                assert!((0..out.len()).all(|at| out[at] == want(at)), "{bits} bits, {columns} columns, {isa:?}");
            }
        }
    }
}
