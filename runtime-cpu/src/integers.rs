//! Integer operands of tiles, in words of 32 bits: an i32, two i16, or four bytes that follow each other along the
//! depth. A word of the left operand is multiplied with one of the right operand, element by element, and the products
//! are added to a sum in i32, which wraps: the same for every way.

use crate::form::Form;
use crate::isa::{Isa, versions};
use crate::tile::Kind;

/// How tiles multiply integers of these forms.
pub(crate) fn kind(isa: Isa, left: Form, right: Form) -> Kind {
    let bytes = [left, right].iter().all(|f| f.size() == 1);
    match isa {
        Isa::Avx512 if bytes && right == Form::I8 && isa.multiplies_bytes() => Kind::Bytes,
        Isa::Avx512 | Isa::Avx2 if bytes => Kind::Pairs,
        _ => Kind::Words,
    }
}

/// Elements of a word.
pub(crate) fn group(kind: Kind) -> usize {
    match kind {
        Kind::Bytes => 4,
        Kind::Pairs => 2,
        _ => 1,
    }
}

/// By how much left elements of this form are multiplied as more: bytes are u8, so i8 become 128 more.
fn shift(kind: Kind, form: Form) -> i64 {
    if kind == Kind::Bytes && form == Form::I8 { 128 } else { 0 }
}

/// A word whose elements are all this one.
pub(crate) fn word_of(kind: Kind, form: Form, element: i64) -> f32 {
    let x = element + shift(kind, form);
    f32::from_bits(match kind {
        Kind::Bytes => u32::from(x as u8) * 0x0101_0101,
        Kind::Pairs => u32::from(x as u16) * 0x0001_0001,
        _ => x as u32,
    })
}

/// An element of each form that has integers of at most 32 bits, as i32.
///
/// # Safety
/// An element of that form is readable at `at`.
#[inline(always)]
unsafe fn element(form: Form, at: *const u8) -> i32 {
    // SAFETY: as said.
    unsafe {
        match form {
            Form::I8 => i32::from(*at.cast::<i8>()),
            Form::U8 => i32::from(*at),
            _ => at.cast::<i32>().read(),
        }
    }
}

/// Elements of a row from which on it is packed many at a time.
const LONG: usize = 8;

/// Packs a row of the left operand, `depth` elements so far apart, in words; the last one is filled with zeros.
///
/// # Safety
/// The elements are readable.
pub(crate) unsafe fn pack(
    isa: Isa,
    (kind, form): (Kind, Form),
    from: *const u8,
    (depth, step): (usize, isize),
    to: &mut [f32],
) {
    if step == 1 && form.size() == 1 && depth >= LONG {
        // SAFETY: the caller vouches for the elements.
        let row = unsafe { std::slice::from_raw_parts(from, depth) };
        return pack_row(isa, kind, form == Form::I8, row, to);
    }
    if kind == Kind::Bytes && depth <= group(kind) {
        let flip = if form == Form::I8 { 0x80 } else { 0 };
        // SAFETY: as above.
        let byte = |k: usize| u32::from(unsafe { *from.wrapping_offset(k as isize * step) } ^ flip) << (8 * k);
        to[0] = f32::from_bits((0..depth).fold(0, |w, k| w | byte(k)));
        return;
    }
    let step = step * form.size() as isize;
    // SAFETY: as above.
    let at = |k: usize| unsafe { element(form, from.wrapping_offset(k as isize * step)) };
    for (w, to) in to.iter_mut().enumerate() {
        *to = word(kind, form, |e| (w * group(kind) + e < depth).then(|| at(w * group(kind) + e)));
    }
}

/// The word of these elements of the left operand.
fn word(kind: Kind, form: Form, at: impl Fn(usize) -> Option<i32>) -> f32 {
    let of = |e: usize| at(e).map_or(0, |x| x.wrapping_add(shift(kind, form) as i32)) as u32;
    f32::from_bits(match kind {
        Kind::Bytes => (0..4).fold(0, |w, e| w | (of(e) & 0xff) << (8 * e)),
        Kind::Pairs => of(0) & 0xffff | of(1) << 16,
        _ => of(0),
    })
}

versions! {
    /// Packs bytes that follow each other.
    fn pack_row(kind: Kind, signed: bool, from: &[u8], to: &mut [f32]) {
        let form = if signed { Form::I8 } else { Form::U8 };
        let flip = if signed { 0x8080_8080 } else { 0u32 };
        let size = group(kind);
        let (whole, rest) = from.split_at(from.len() / size * size);
        let (words, tail) = to.split_at_mut(whole.len() / size);
        match kind {
            Kind::Bytes => {
                for (w, x) in words.iter_mut().zip(whole.chunks_exact(4)) {
                    *w = f32::from_bits(u32::from_le_bytes([x[0], x[1], x[2], x[3]]) ^ flip);
                }
            }
            Kind::Pairs if signed => {
                for (w, x) in words.iter_mut().zip(whole.chunks_exact(2)) {
                    *w = f32::from_bits(x[0] as i8 as i16 as u16 as u32 | (x[1] as i8 as i32 as u32) << 16);
                }
            }
            Kind::Pairs => {
                for (w, x) in words.iter_mut().zip(whole.chunks_exact(2)) {
                    *w = f32::from_bits(u32::from(x[0]) | u32::from(x[1]) << 16);
                }
            }
            _ if signed => words.iter_mut().zip(whole).for_each(|(w, x)| *w = f32::from_bits(*x as i8 as i32 as u32)),
            _ => words.iter_mut().zip(whole).for_each(|(w, x)| *w = f32::from_bits(u32::from(*x))),
        }
        if let Some(last) = tail.first_mut() {
            *last = word(kind, form, |e| rest.get(e).map(|x| if signed { *x as i8 as i32 } else { i32::from(*x) }));
        }
    }
}

/// Rows of the right operand, one for each element of the depth, `columns` elements each.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub at: *const u8,
    pub form: Form,
    pub depth: usize,
    /// From one row to the next, in elements.
    pub stride: isize,
    pub columns: usize,
}

impl Rows {
    /// A row; past the depth there are zeros.
    ///
    /// # Safety
    /// All rows are readable.
    unsafe fn row<'a>(&self, k: usize, zeros: &'a [u8]) -> &'a [u8] {
        if k >= self.depth {
            return &zeros[..self.columns];
        }
        // SAFETY: the caller vouches for the rows; rows are bytes here.
        unsafe { std::slice::from_raw_parts(self.at.wrapping_offset(k as isize * self.stride), self.columns) }
    }
    /// Packs the rows: for each word of the depth the words of all columns, so many words `apart`.
    ///
    /// # Safety
    /// The elements are readable.
    pub(crate) unsafe fn pack(&self, isa: Isa, kind: Kind, zeros: &[u8], apart: usize, to: &mut [f32]) {
        for (w, to) in to.chunks_exact_mut(apart).enumerate() {
            let to = &mut to[..self.columns];
            if self.form.size() != 1 {
                let from = self.at.wrapping_offset(w as isize * self.stride * self.form.size() as isize);
                // SAFETY: the caller vouches for the elements, of four bytes.
                to.copy_from_slice(unsafe { std::slice::from_raw_parts(from.cast(), to.len()) });
                continue;
            }
            let k = w * group(kind);
            // SAFETY: as above.
            let row = |e: usize| unsafe { self.row(k + e, zeros) };
            let signed = self.form == Form::I8;
            match kind {
                Kind::Bytes => join_four(isa, [row(0), row(1), row(2), row(3)], to),
                Kind::Pairs => join_two(isa, signed, [row(0), row(1)], to),
                _ => pack_row(isa, Kind::Words, signed, row(0), to),
            }
        }
    }
}

versions! {
    /// Words of one byte of each row.
    fn join_four(rows: [&[u8]; 4], to: &mut [f32]) {
        let n = to.len();
        let [a, b, c, d] = rows.map(|r| &r[..n]);
        for j in 0..n {
            to[j] = f32::from_bits(u32::from_le_bytes([a[j], b[j], c[j], d[j]]));
        }
    }
}
versions! {
    /// Words of one byte of each row, as i16.
    fn join_two(signed: bool, rows: [&[u8]; 2], to: &mut [f32]) {
        let n = to.len();
        let [a, b] = rows.map(|r| &r[..n]);
        if signed {
            for j in 0..n {
                to[j] = f32::from_bits(u32::from(a[j] as i8 as i16 as u16) | (b[j] as i8 as i32 as u32) << 16);
            }
        } else {
            for j in 0..n {
                to[j] = f32::from_bits(u32::from(a[j]) | u32::from(b[j]) << 16);
            }
        }
    }
}

/// Adds to the sums of each column what the left operand's elements are too great by, times the packed right operand.
pub(crate) fn correct(kind: Kind, left: Form, packed: &[f32], sums: &mut [f32]) {
    let shift = shift(kind, left) as i32;
    for row in packed.chunks_exact(sums.len()) {
        for (sum, w) in sums.iter_mut().zip(row) {
            let own: i32 = w.to_bits().to_le_bytes().iter().map(|x| i32::from(*x as i8)).sum();
            *sum = f32::from_bits((sum.to_bits() as i32).wrapping_sub(own * shift) as u32);
        }
    }
}

/// True if left elements of this form are multiplied as greater ones.
pub(crate) fn is_shifted(kind: Kind, left: Form) -> bool {
    shift(kind, left) != 0
}

versions! {
    /// Stores the low byte of each i32, in rows of so many columns that begin so far apart: all bytes of these rows are
    /// writable, and nobody else accesses them.
    fn narrow(from: &[f32], columns: usize, to: *mut u8, stride: isize) {
        for (n, row) in (0..).zip(from.chunks_exact(columns)) {
            // SAFETY: as said.
            let to = unsafe { std::slice::from_raw_parts_mut(to.wrapping_offset(n * stride), columns) };
            row.iter().zip(to).for_each(|(x, to)| *to = x.to_bits() as u8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copied::Kept;
    use crate::tile::{self, Operands, Step};

    fn bytes(n: usize, seed: usize) -> Vec<u8> {
        (0..n).map(|i| ((i * 37 + i / 11 + seed) % 256) as u8).collect()
    }
    fn number(form: Form, x: u8) -> i32 {
        if form == Form::I8 { i32::from(x as i8) } else { i32::from(x) }
    }

    /// Every body that this machine runs: bytes of both signs, depths and columns that are no whole words and vectors,
    /// several taps, and what is made of the sums.
    #[test]
    fn products_of_bytes_are_exact() {
        for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
            for (forms, (rows, columns, depth)) in [
                ([Form::U8, Form::I8], (14, 32, 8)),
                ([Form::I8, Form::I8], (3, 17, 7)),
                ([Form::U8, Form::U8], (9, 5, 13)),
                ([Form::U8, Form::I8], (5, 9, 3)),
                ([Form::I8, Form::I8], (5, 9, 3)),
                ([Form::I8, Form::U8], (1, 40, 4)),
                ([Form::U8, Form::I8], (5, 12, 3)),
            ] {
                let taps = [[0isize, 0isize], [rows as isize, (depth * columns) as isize]];
                let (a, b) = (bytes((rows + 2) * rows * depth, 3), bytes(2 * depth * columns, 90));
                let kind = kind(isa, forms[0], forms[1]);
                let words = depth.div_ceil(group(kind));
                let mut packed = vec![0.0; 2 * rows * words];
                let mut table = vec![];
                for (n, to) in packed.chunks_exact_mut(words).enumerate() {
                    let from = (&raw const a[n % rows * depth]).wrapping_offset(taps[n / rows][0]);
                    // SAFETY: so many elements are behind each row.
                    unsafe { pack(isa, (kind, forms[0]), from, (depth, 1), to) };
                    table.push(to.as_ptr());
                }
                let mut kept = Kept::default();
                let right = Rows { at: b.as_ptr(), form: forms[1], depth, stride: columns as isize, columns };
                // SAFETY: the right operand has two taps.
                unsafe { kept.pack(isa, 0, (kind, forms[0]), &right, &taps) };
                let less: Vec<f32> = (0..columns).map(|j| f32::from_bits(j as u32 * 7)).collect();
                let correction = (!kept.sums().is_empty()).then(|| Step::AddIntColumns(kept.sums().as_ptr()));
                let steps: Vec<Step> = correction.into_iter().chain([Step::SubIntColumns(less.as_ptr())]).collect();
                let mut out = vec![0.0; rows * columns];
                let places = kept.taps().clone();
                let t = Operands {
                    kind,
                    left: std::ptr::null(),
                    row_stride: 0,
                    table: &table,
                    table_rows: rows,
                    left_stride: 1,
                    lane_stride: 1,
                    right: kept.rows().0,
                    right_stride: kept.rows().1,
                    taps: &places,
                    depth: words,
                    first_column: 0,
                    columns,
                    initial: Some(0.0),
                    steps: &steps,
                    out: out.as_mut_ptr(),
                    out_stride: columns as isize,
                    bytes: None,
                };
                // SAFETY: the vectors above have these sizes.
                unsafe { tile::run(isa, &t, 0..rows) };
                for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                    let product = |[x, y]: &[isize; 2], k: usize| {
                        let (left, right) = (i * depth + *x as usize + k, *y as usize + k * columns + j);
                        number(forms[0], a[left]) * number(forms[1], b[right])
                    };
                    let all = taps.iter().flat_map(|t| (0..depth).map(move |k| product(t, k)));
                    let want = all.sum::<i32>() - j as i32 * 7;
                    assert_eq!(out[i * columns + j].to_bits() as i32, want, "{isa:?} {forms:?} {kind:?} {i} {j}");
                }
            }
        }
    }

    /// Sums become bytes as a scale, a rounding and a conversion make them, NaN included.
    #[test]
    fn sums_become_bytes() {
        for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
            for (scale, low, high) in [(0.5, 0.0, 255.0), (0.25, -128.0, 127.0), (f32::NAN, -128.0, 127.0)] {
                let (left, right) = ([f32::from_bits(3)], (0..40).map(|j| f32::from_bits((j * 29 - 600) as u32)));
                let right: Vec<f32> = right.collect();
                let steps = [
                    Step::AddInt(f32::from_bits(1)),
                    Step::ToFloat,
                    Step::Mul(scale),
                    Step::Div(1.5),
                    Step::Round,
                    Step::Add(2.5),
                    Step::ToInt(low, high),
                ];
                let mut out = vec![0.0; right.len()];
                let t = Operands {
                    kind: Kind::Words,
                    left: std::ptr::null(),
                    row_stride: 0,
                    table: &[left.as_ptr()],
                    table_rows: 1,
                    left_stride: 1,
                    lane_stride: 1,
                    right: right.as_ptr(),
                    right_stride: right.len() as isize,
                    taps: &[[0, 0]],
                    depth: 1,
                    first_column: 0,
                    columns: right.len(),
                    initial: Some(0.0),
                    steps: &steps,
                    out: out.as_mut_ptr(),
                    out_stride: right.len() as isize,
                    bytes: None,
                };
                // SAFETY: the vectors above have these sizes.
                unsafe { tile::run(isa, &t, 0..1) };
                for (x, got) in right.iter().zip(&out) {
                    let sum = 3 * x.to_bits() as i32 + 1;
                    let value = (sum as f32 * scale / 1.5).round_ties_even() + 2.5;
                    let want = if value.is_nan() { 0 } else { value.clamp(low, high) as i32 };
                    assert_eq!(got.to_bits() as i32, want, "{isa:?} {sum} {scale}");
                }
            }
        }
    }

    /// Quotients by a reciprocal and by a division are the same, to the bit.
    #[test]
    fn quotients_by_products_are_exact() {
        for isa in Isa::ALL.into_iter().filter(|i| i.is_available() && *i != Isa::Portable) {
            let divisors = (0..400).map(|i| f32::from_bits(0x3580_0000 + i * 0x0007_9e3d));
            for (divisor, scale) in divisors.flat_map(|x| [(x, 0.37), (x, -0.37), (-x, 0.37)]) {
                let right: Vec<f32> = (0..256u32).map(|j| f32::from_bits(j * j * 977 + j)).collect();
                let left = [f32::from_bits(1)];
                let mut out = [vec![0.0; right.len()], vec![0.0; right.len()]];
                for (step, out) in [Step::Div(divisor), Step::DivBy(divisor, 1.0 / divisor)].into_iter().zip(&mut out) {
                    let steps = [Step::ToFloat, Step::Mul(scale), step];
                    let t = Operands {
                        kind: Kind::Words,
                        table: &[left.as_ptr()],
                        table_rows: 1,
                        right: right.as_ptr(),
                        taps: &[[0, 0]],
                        columns: right.len(),
                        initial: Some(0.0),
                        steps: &steps,
                        out: out.as_mut_ptr(),
                        ..Operands::NONE
                    };
                    // SAFETY: the vectors above have these sizes.
                    unsafe { tile::run(isa, &t, 0..1) };
                }
                let [a, b] = out.map(|all| all.iter().map(|x| x.to_bits()).collect::<Vec<u32>>());
                assert_eq!(a, b, "{isa:?} by {divisor}");
            }
        }
    }
}
