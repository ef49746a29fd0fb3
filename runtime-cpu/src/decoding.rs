//! Leaves that decode packed weights: words of a few bits, or bytes, with a zero point and a scale for each column.
//!
//! ```text
//! for b, w, i, j { to[b, w, i, j] = (f32(words[b, w, j] >> 4 * i & 15) - zeros[b, j]) * scales[b, j] }
//! ```
//!
//! Columns (`j`) lie next to each other. The rows (`i`) share words, scales and zero points, or have a byte each. A leaf
//! of another form is computed as any other.

use crate::epilogue::Known;
use crate::execute::Task;
use crate::form::Form;
use crate::index::{Extent, Index, Slot};
use crate::isa::versions;
use crate::memory::{Span, View};
use crate::program::{Leaf, Value};
use half::{bf16, f16};
use tensor_ir::dtype::DType;
use tensor_ir::tir::BinaryOp;

/// Columns that are decoded at once.
const AT_ONCE: usize = if cfg!(target_arch = "aarch64") { 4 } else { 16 };

/// A place that moves evenly with all loops of the leaf.
#[derive(Clone, Debug)]
struct Place {
    buffer: usize,
    index: Index,
    /// Strides along blocks, steps, rows and columns.
    strides: [i64; 4],
}

/// A zero point or scale of an element.
#[derive(Clone, Debug)]
enum Factor {
    Number(f32),
    At(Place),
}

/// A leaf that decodes.
#[derive(Clone, Debug)]
pub(crate) struct Decoding {
    /// Loops outside.
    loops: Vec<Extent>,
    /// The two loops around rows, blocks and their steps; rows and columns.
    inside: [Extent; 4],
    packed: Place,
    /// Where the bits of each row begin in a word.
    shifts: Vec<u32>,
    mask: u32,
    zero: Factor,
    scale: Factor,
    to: Place,
}

/// Memory for zero points and scales of a thread.
#[derive(Default)]
pub(crate) struct Factors([Vec<f32>; 2]);

impl Decoding {
    /// What the leaf decodes; `None` if it does anything else.
    pub(crate) fn of(l: &Leaf, buffers: &[Known]) -> Option<Decoding> {
        let plain = l.reduce.is_none() && l.guards.is_empty() && l.lets.is_empty() && !l.reads_own;
        if !plain || buffers[l.store.buffer].form != Form::F32 || buffers[l.store.buffer].own_blocks.is_none() {
            return None;
        }
        let one = Extent { slot: usize::MAX, count: 1 };
        let mut loops: Vec<Extent> = l.loops.iter().chain([&l.rows, &l.columns]).copied().collect();
        loops.retain(|e| e.count > 1);
        let columns = loops.pop()?;
        let rows = loops.pop()?;
        let steps = loops.pop().unwrap_or(one);
        let inside = [loops.pop().unwrap_or(one), steps, rows, columns];
        let place = |v: &Value| match v {
            Value::Load(a) => Place::of(a.buffer, &a.index, &loops, inside),
            _ => None,
        };
        let (value, scale) = match without_casts(&l.value) {
            Value::Binary(BinaryOp::Mul, DType::F32, a, b) => {
                match (factor(a, buffers, &place), factor(b, buffers, &place)) {
                    (_, Some(scale)) => (&**a, scale),
                    (Some(scale), None) => (&**b, scale),
                    (None, None) => return None,
                }
            }
            v => (v, Factor::Number(1.0)),
        };
        let (value, zero) = match without_casts(value) {
            Value::Binary(BinaryOp::Sub, DType::F32, a, b) => (&**a, factor(b, buffers, &place)?),
            v => (v, Factor::Number(0.0)),
        };
        let Value::Cast(_, DType::F32, integer) = without_casts(value) else { return None };
        let (packed, bits) = bits(integer, rows)?;
        let packed = place(packed)?;
        let (shifts, masks) = match (buffers[packed.buffer].form, bits) {
            (Form::U32 | Form::U8, Some(bits)) => bits,
            (Form::U8 | Form::I8, None) => (vec![0; rows.count as usize], vec![0xff; rows.count as usize]),
            _ => return None,
        };
        let mask = *masks.first()?;
        if mask > 0xff || masks.iter().any(|m| *m != mask) || shifts.iter().any(|s| *s > 31) {
            return None;
        }
        let to = Place::of(l.store.buffer, &l.store.index, &loops, inside)?;
        let next = |p: &Place| p.strides[3] == 1 && p.strides[..3].iter().all(|s| *s >= 0);
        let steady = |f: &Factor| match f {
            Factor::Number(_) => true,
            Factor::At(p) => {
                p.strides[2] == 0 && matches!(p.strides[3], 0 | 1) && p.strides[..2].iter().all(|s| *s >= 0)
            }
        };
        let fits = next(&packed) && next(&to) && steady(&zero) && steady(&scale);
        fits.then_some(Decoding { loops, inside, packed, shifts, mask, zero, scale, to })
    }
}

impl Place {
    fn of(buffer: usize, index: &Index, loops: &[Extent], inside: [Extent; 4]) -> Option<Place> {
        let even = loops.iter().all(|e| index.stride(e.slot).is_some());
        let [a, b, c, d] = inside.map(|e| if e.count > 1 { index.stride(e.slot) } else { Some(0) });
        even.then_some(Place { buffer, index: index.clone(), strides: [a?, b?, c?, d?] })
    }
}

/// The value inside of conversions between floats of at most 32 bits, which keep f32 until they are stored.
fn without_casts(v: &Value) -> &Value {
    let short = |t: &DType| t.is_float() && t.size() <= 4;
    match v {
        Value::Cast(from, to, a) if short(from) && short(to) => without_casts(a),
        v => v,
    }
}

/// A number, or an element as a float.
fn factor(v: &Value, buffers: &[Known], place: &dyn Fn(&Value) -> Option<Place>) -> Option<Factor> {
    match v {
        Value::F(x) => Some(Factor::Number(*x)),
        Value::Load(a) => {
            let form = buffers[a.buffer].form;
            (form.is_narrow_float() || matches!(form, Form::U8 | Form::I8)).then(|| place(v)).flatten().map(Factor::At)
        }
        Value::Cast(_, to, a) if to.is_float() && matches!(**a, Value::Load(_) | Value::Cast(..)) => {
            factor(a, buffers, place)
        }
        _ => None,
    }
}

/// The shift of each row, and the mask behind it.
type Bits = (Vec<u32>, Vec<u32>);

/// The element that an integer is taken from, and which bits of it in each row.
fn bits(v: &Value, rows: Extent) -> Option<(&Value, Option<Bits>)> {
    let number = |v: &Value| match v {
        Value::I(x) => u32::try_from(*x).ok().map(|x| vec![x; rows.count as usize]),
        Value::Index(i, _) => in_rows(i, rows),
        _ => None,
    };
    match v {
        Value::Load(_) => Some((v, None)),
        Value::Cast(DType::U8, DType::U32, a) => bits(a, rows),
        Value::Binary(op @ (BinaryOp::Shr | BinaryOp::BitAnd), DType::U32, a, by) => {
            let ((from, inner), by) = (bits(a, rows)?, number(by)?);
            let (mut shifts, mut masks) = inner.unwrap_or_else(|| (vec![0; by.len()], vec![u32::MAX; by.len()]));
            for ((shift, mask), by) in shifts.iter_mut().zip(&mut masks).zip(&by) {
                match op {
                    BinaryOp::BitAnd => *mask &= by,
                    _ => (*shift, *mask) = (shift.saturating_add(*by), mask.checked_shr(*by).unwrap_or(0)),
                }
            }
            Some((from, Some((shifts, masks))))
        }
        _ => None,
    }
}

/// The value of an index in each row, if it depends on nothing else.
fn in_rows(i: &Index, rows: Extent) -> Option<Vec<u32>> {
    let slots = i.slots();
    if slots.iter().any(|s| *s != rows.slot) || i.reads() {
        return None;
    }
    let mut env = vec![0; slots.iter().max().map_or(0, |s| s + 1)];
    let mut at = |row: i64| {
        slots.iter().for_each(|s| env[*s] = row);
        u32::try_from(i.eval(crate::index::Scene { env: &env, views: &[] })).ok()
    };
    (0..rows.count).map(&mut at).collect()
}

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
        let Factors([mut zeros, mut scales]) = std::mem::take(&mut self.own.factors);
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
        self.own.factors = Factors([zeros, scales]);
    }
    /// The elements from the first to the last that the leaf reads at a place.
    fn elements<'m, T: crate::memory::Element>(&self, p: &Place, counts: [i64; 4]) -> &'m [T] {
        let first = p.index.eval(self.scene());
        let columns = reach(p, counts) as usize + 1;
        self.views[p.buffer].slice(&Span { first, rows: 1, columns, row_stride: 0, column_stride: 1 })
    }
    /// Zero points or scales as f32, a row of columns for each block and step, with the distances between these. What is
    /// f32 is read where it lies.
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
        for (at, to) in (0i64..).zip(to.chunks_exact_mut(width)) {
            let first = first + at / steps * p.strides[0] + at % steps * p.strides[1];
            let columns = if p.strides[3] == 0 { 1 } else { width };
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
    mask: u32,
    /// With the distances between blocks and steps.
    zeros: (&'a [f32], [usize; 2]),
    scales: (&'a [f32], [usize; 2]),
    to: [usize; 3],
}

/// An element with integers in it.
pub(crate) trait Packed: Copy + Default {
    /// The bits from `shift` on, as a number.
    fn part(self, shift: u32, mask: u32) -> i32;
}
impl Packed for u32 {
    #[inline(always)]
    fn part(self, shift: u32, mask: u32) -> i32 {
        (self >> (shift & 31) & mask) as i32
    }
}
impl Packed for u8 {
    #[inline(always)]
    fn part(self, shift: u32, mask: u32) -> i32 {
        (u32::from(self) >> (shift & 31) & mask) as i32
    }
}
impl Packed for i8 {
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
                match (zeros.first_chunk(), scales.first_chunk()) {
                    (Some(zeros), Some(scales)) if column + AT_ONCE <= r.columns => {
                        // SAFETY: the last row has a whole vector from here on, as was just checked.
                        unsafe { vectors(r.shifts, r.mask, from.as_ptr(), zeros, scales, to.as_mut_ptr(), strides) }
                    }
                    _ => columns(r, from, zeros, scales, to, r.columns - column),
                }
            }
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
