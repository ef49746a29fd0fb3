//! Register tiles whose right operand is packed: few rows of results, for which words are decoded and multiplied
//! without a store between.

use crate::isa::Isa;
use crate::row_bytes::LeftBytes;
use crate::tile_operands::Operands;

/// Rows of results that share what is decoded in registers, at most: more read a decoded panel, unless they are bytes.
pub(crate) const MOST_ROWS: usize = 4;

/// A right operand in words of 32 bits, each with the same columns of several rows, the first row in its lowest bits.
/// Strides are elements.
#[derive(Clone, Copy)]
pub(crate) struct Packed {
    pub words: *const u32,
    /// From block to block, and from one row of words to the next.
    pub strides: [usize; 2],
    pub blocks: usize,
    /// Rows of words of a block.
    pub steps: usize,
    /// Rows of elements in a word: an even number.
    pub rows: usize,
    /// Bits from one row to the next, and which of them an element has.
    pub bits: u32,
    pub mask: u32,
    /// The zero point of all elements, if they share one.
    pub zero: Option<f32>,
    /// A zero point and a scale for each column, and the distance from block to block.
    pub zeros: (*const f32, usize),
    pub scales: (*const f32, usize),
    /// The left rows as bytes, if they are.
    pub bytes: Option<LeftBytes>,
}

impl Packed {
    /// Words of four bytes in a word: elements so many rows apart.
    pub(crate) fn planes(&self) -> usize {
        8 / self.bits as usize
    }
}

/// True if products of bytes with words of so many rows, `bits` each, are few instructions.
pub(crate) fn multiplies_bytes(isa: Isa, bits: u32, mask: u32, rows: usize) -> bool {
    let has = match isa {
        Isa::Avx512 if isa.multiplies_bytes() => matches!(bits, 2 | 4 | 8),
        // Sums of two products are i16.
        Isa::Avx512 | Isa::Avx2 => matches!(bits, 2 | 4),
        _ => false,
    };
    has && mask >> bits == 0 && rows * bits as usize == 32
}

/// Computes all rows of a tile, at most [`MOST_ROWS`] if they are no bytes: rows of the left operand lie evenly, their
/// elements next to each other.
///
/// # Safety
/// As [`crate::tile::run`] for the left operand, steps and results; all that `p` names is readable.
pub(crate) unsafe fn run(isa: Isa, t: &Operands<'_>, p: &Packed, rows: usize) {
    macro_rules! by_rows {
        ($body:ident, $one:literal, $more:literal, $table:expr) => {{
            let step = if rows == 1 { $one } else { $more } * crate::vectors::$body::LANES;
            for column in (0..t.columns).step_by(step) {
                // SAFETY: the caller vouches for the operands, and for the instruction set.
                unsafe {
                    match (rows, $table) {
                        (1, true) => $body::packed::<1, $one, true>(t, p, column),
                        (1, false) => $body::packed::<1, $one, false>(t, p, column),
                        (2, true) => $body::packed::<2, $more, true>(t, p, column),
                        (2, false) => $body::packed::<2, $more, false>(t, p, column),
                        (3, true) => $body::packed::<3, $more, true>(t, p, column),
                        (3, false) => $body::packed::<3, $more, false>(t, p, column),
                        (_, true) => $body::packed::<MOST_ROWS, $more, true>(t, p, column),
                        (_, false) => $body::packed::<MOST_ROWS, $more, false>(t, p, column),
                    }
                }
            }
        }};
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(b) = &p.bytes {
        return match isa {
            Isa::Avx512 if isa.multiplies_bytes() => bytes_by_rows!(avx512_bytes, 2, t, p, b, rows),
            _ => bytes_by_rows!(avx2_bytes, 1, t, p, b, rows),
        };
    }
    // Sums, words, zero points, scales and what is decoded fit the registers.
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => by_rows!(avx512, 2, 2, p.mask < 16 && p.zero.is_some()),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => by_rows!(avx2, 2, 1, false),
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => by_rows!(neon, 3, 1, false),
        _ => by_rows!(portable, 1, 1, false),
    }
}

/// Runs the body of bytes for these rows.
#[cfg(target_arch = "x86_64")]
macro_rules! bytes_by_rows {
    ($body:ident, $v:literal, $t:ident, $p:ident, $b:ident, $rows:ident) => {
        for (column, row) in (0..$t.columns).step_by($v * $body::LANES).flat_map(|c| row_groups($rows, c)) {
            // SAFETY: the caller of `run` vouches for the operands, and for the instruction set.
            unsafe {
                match $rows - row {
                    1 => $body::packed::<1, $v>($t, $p, $b, [row, column]),
                    2 => $body::packed::<2, $v>($t, $p, $b, [row, column]),
                    3 => $body::packed::<3, $v>($t, $p, $b, [row, column]),
                    _ => $body::packed::<MOST_ROWS, $v>($t, $p, $b, [row, column]),
                }
            }
        }
    };
}
/// The first rows of groups of [`MOST_ROWS`], with their column.
#[cfg(target_arch = "x86_64")]
fn row_groups(rows: usize, column: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rows).step_by(MOST_ROWS).map(move |row| (column, row))
}
#[cfg(target_arch = "x86_64")]
use bytes_by_rows;

macro_rules! packed_body {
    ($(#[$feature:meta])* $name:ident, |$table:ident, $word:ident| $look_up:expr) => {
        mod $name {
            use super::Packed;
            use crate::finish::{begin, finish};
            use crate::tile_operands::{Operands, Step};
            use crate::vectors::$name::*;
            use crate::vectors::{AHEAD, prefetch};

            /// The element of a table at the lowest four bits of each word.
            $(#[$feature])*
            #[inline]
            fn look_up($table: Vector, $word: Vector) -> Vector {
                $look_up
            }

            /// `R` rows of `V` vectors of columns from a column on. Elements less their zero points are multiplied, the
            /// sums of a block then by its scales. `T`: elements come from a table, of 16 at most. Even and odd rows of
            /// the right operand have sums of their own, so that fewer additions wait for each other.
            ///
            /// # Safety
            /// As [`super::run`].
            $(#[$feature])*
            // Arrays of registers: each index is a constant when the loops are unrolled.
            #[allow(clippy::needless_range_loop)]
            pub unsafe fn packed<const R: usize, const V: usize, const T: bool>(
                t: &Operands<'_>,
                p: &Packed,
                column: usize,
            ) {
                // SAFETY: the caller of `run` vouches for all accesses: columns from `column` on as far as masks have
                // them.
                unsafe {
                    let row = 0;
                    let (out, masks, mut sums) = begin!(t, [row, column]);
                    let every = mask(LANES);
                    let (mask, by) = (splat(f32::from_bits(p.mask)), splat(f32::from_bits(p.bits)));
                    let zero = p.zero.unwrap_or(0.0);
                    let elements: [f32; 16] = std::array::from_fn(|i| (i as u32 & p.mask) as f32 - zero);
                    let table = load(every, elements.as_ptr());
                    let mut left = t.left;
                    for block in 0..p.blocks {
                        let (mut zeros, mut scales) = ([splat(0.0); V], [splat(0.0); V]);
                        for v in 0..V {
                            let at = |f: (*const f32, usize)| f.0.add(block * f.1 + column + v * LANES);
                            if !T {
                                zeros[v] = load(masks[v], at(p.zeros));
                            }
                            scales[v] = load(masks[v], at(p.scales));
                        }
                        let mut parts = [[[splat(0.0); V]; R]; 2];
                        let mut from = p.words.add(block * p.strides[0] + column).cast::<f32>();
                        for _ in 0..p.steps {
                            prefetch(from.wrapping_add(AHEAD), V * LANES);
                            let mut words = [splat(0.0); V];
                            for v in 0..V {
                                words[v] = load(masks[v], from.wrapping_add(v * LANES));
                            }
                            for _ in 0..p.rows / 2 {
                                for half in 0..2 {
                                    let mut right = [splat(0.0); V];
                                    for v in 0..V {
                                        right[v] = match T {
                                            true => look_up(table, words[v]),
                                            false => sub(to_float(and(words[v], mask)), zeros[v]),
                                        };
                                        words[v] = shift_right(words[v], by);
                                    }
                                    for i in 0..R {
                                        let left = splat(*left.wrapping_offset(i as isize * t.row_stride));
                                        for v in 0..V {
                                            parts[half][i][v] = fma(left, right[v], parts[half][i][v]);
                                        }
                                    }
                                    left = left.wrapping_add(1);
                                }
                            }
                            from = from.wrapping_add(p.strides[1]);
                        }
                        for i in 0..R {
                            for v in 0..V {
                                sums[i][v] = fma(add(parts[0][i][v], parts[1][i][v]), scales[v], sums[i][v]);
                            }
                        }
                    }
                    finish!(t, [row, column], masks, sums, out, false);
                }
            }
        }
    };
}

/// A body for left rows that are bytes: `$dot` adds to sums of i32 the products of four u8 with four i8.
#[cfg(target_arch = "x86_64")]
macro_rules! bytes_body {
    ($features:literal, $name:ident, $vectors:ident, |$sum:ident, $right:ident, $left:ident| $dot:expr) => {
        mod $name {
            use super::Packed;
            use crate::finish::{begin, finish};
            use crate::row_bytes::LeftBytes;
            use crate::tile_operands::{Operands, Step};
            pub use crate::vectors::$vectors::LANES;
            use crate::vectors::$vectors::*;
            use crate::vectors::{AHEAD, prefetch};
            use std::arch::x86_64::*;

            #[target_feature(enable = $features)]
            #[inline]
            fn dot($sum: Vector, $right: Vector, $left: Vector) -> Vector {
                $dot
            }

            /// `R` rows of `V` vectors of columns from a place on. The zero point is subtracted from the sums of a
            /// block, times the sum of its bytes; both scales are multiplied last.
            ///
            /// # Safety
            /// As [`super::run`].
            #[target_feature(enable = $features)]
            // Arrays of registers: each index is a constant when the loops are unrolled.
            #[allow(clippy::needless_range_loop)]
            pub unsafe fn packed<const R: usize, const V: usize>(
                t: &Operands<'_>,
                p: &Packed,
                b: &LeftBytes,
                [row, column]: [usize; 2],
            ) {
                // SAFETY: the caller of `run` vouches for all accesses: columns from `column` on as far as masks have
                // them.
                unsafe {
                    let (out, masks, mut sums) = begin!(t, [row, column]);
                    let mask = splat(f32::from_bits(p.mask * 0x0101_0101));
                    let (by, planes) = (splat(f32::from_bits(p.bits)), p.planes());
                    let words_a_row = p.blocks * p.steps * planes;
                    let mut left = b.words.add(row * words_a_row);
                    let first = row * p.blocks;
                    for block in 0..p.blocks {
                        let mut parts = [[splat(0.0); V]; R];
                        let mut from = p.words.add(block * p.strides[0] + column).cast::<f32>();
                        for _ in 0..p.steps {
                            prefetch(from.wrapping_add(AHEAD), V * LANES);
                            let mut words = [splat(0.0); V];
                            for v in 0..V {
                                words[v] = load(masks[v], from.wrapping_add(v * LANES));
                            }
                            for _ in 0..planes {
                                for v in 0..V {
                                    let right = and(words[v], mask);
                                    words[v] = shift_right(words[v], by);
                                    for i in 0..R {
                                        let left = splat(*left.add(i * words_a_row));
                                        parts[i][v] = dot(parts[i][v], right, left);
                                    }
                                }
                                left = left.add(1);
                            }
                            from = from.wrapping_add(p.strides[1]);
                        }
                        for v in 0..V {
                            let at = |f: (*const f32, usize)| f.0.add(block * f.1 + column + v * LANES);
                            let zeros = p.zero.map_or_else(|| load(masks[v], at(p.zeros)), |x| splat(x));
                            let scales = load(masks[v], at(p.scales));
                            for i in 0..R {
                                let less = mul(zeros, splat(*b.sums.add(first + i * p.blocks + block)));
                                let part = mul(sub(to_float(parts[i][v]), less), scales);
                                sums[i][v] = fma(part, splat(*b.scales.add(first + i * p.blocks + block)), sums[i][v]);
                            }
                        }
                    }
                    finish!(t, [row, column], masks, sums, out, false);
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
bytes_body!("avx512f,avx512bw,avx512vnni", avx512_bytes, avx512, |sum, right, left| words(_mm512_dpbusd_epi32(
    bits(sum),
    bits(right),
    bits(left)
)));
#[cfg(target_arch = "x86_64")]
bytes_body!("avx2,fma,f16c", avx2_bytes, avx2, |sum, right, left| {
    let pairs = _mm256_maddubs_epi16(bits(right), bits(left));
    words(_mm256_add_epi32(bits(sum), _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))))
});

#[cfg(target_arch = "x86_64")]
packed_body!(
    #[target_feature(enable = "avx512f,avx512bw")]
    avx512,
    |table, word| std::arch::x86_64::_mm512_permutexvar_ps(bits(word), table)
);
#[cfg(target_arch = "x86_64")]
packed_body!(
    #[target_feature(enable = "avx2,fma,f16c")]
    avx2,
    |_table, word| word
);
#[cfg(target_arch = "aarch64")]
packed_body!(
    #[target_feature(enable = "neon")]
    neon,
    |_table, word| word
);
packed_body!(portable, |_table, word| word);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row_bytes::RowBytes;
    use crate::tile_operands::Step;

    /// Every instruction set has the sums of the definition, also in columns that are no whole vector.
    #[test]
    fn words_are_multiplied_as_if_decoded_before() {
        let shapes = [
            (4u32, 32, 1),
            (4, 12, 2),
            (2, 20, 3),
            (8, 7, 4),
            (4, 45, 1),
            (4, 70, 4),
            (2, 70, 1),
            (4, 45, 14),
            (8, 33, 5),
        ];
        for ((bits, columns, rows), zero) in shapes.iter().flat_map(|s| [None, Some(8.0)].map(|zero| (*s, zero))) {
            let (each, blocks, steps) = (32 / bits as usize, 3, 2);
            let depth = blocks * steps * each;
            let mask = ((1u64 << bits) - 1) as u32;
            let words: Vec<u32> = (0..blocks * steps * columns).map(|i| (i as u32).wrapping_mul(0x9e37_79b9)).collect();
            let zeros: Vec<f32> = (0..columns).map(|i| zero.unwrap_or((i % 5) as f32)).collect();
            let scales: Vec<f32> = (0..blocks * columns).map(|i| (1 + i % 3) as f32).collect();
            // Integers whose largest magnitude is 127 in each block.
            let number = |i: usize| if i.is_multiple_of(each * steps) { 127.0 } else { (i % 7) as f32 - 3.0 };
            let left: Vec<f32> = (0..rows * depth).map(number).collect();
            let packed = Packed {
                words: words.as_ptr(),
                strides: [steps * columns, columns],
                blocks,
                steps,
                rows: each,
                bits,
                mask,
                zero,
                zeros: (zeros.as_ptr(), 0),
                scales: (scales.as_ptr(), columns),
                bytes: None,
            };
            let element = |k: usize, j: usize| {
                let (step, i) = (k / each, (k % each) as u32);
                let q = words[step * columns + j] >> (i * bits) & mask;
                (q as f32 - zeros[j]) * scales[step / steps * columns + j]
            };
            let mut bytes = RowBytes::default();
            let ways = Isa::ALL.into_iter().flat_map(|i| [false, true].map(|bytes| (i, bytes)));
            let can = |isa: Isa, of_bytes: bool| match of_bytes {
                true => multiplies_bytes(isa, packed.bits, packed.mask, packed.rows),
                false => rows <= MOST_ROWS,
            };
            for (isa, of_bytes) in ways.filter(|(isa, bytes)| isa.is_available() && can(*isa, *bytes)) {
                let shape = ([rows, blocks, steps, each], packed.planes());
                // SAFETY: `left` has these rows.
                let found = unsafe { bytes.find(isa, [0, 0], (left.as_ptr(), depth), shape, 0.0) };
                let packed = Packed { bytes: found.filter(|_| of_bytes), ..packed };
                assert_eq!(packed.bytes.is_some(), of_bytes);
                let mut out = vec![9.0; rows * columns];
                let t = Operands {
                    left: left.as_ptr(),
                    row_stride: depth as isize,
                    depth,
                    columns,
                    initial: Some(1.0),
                    steps: &[Step::Mul(2.0)],
                    out: out.as_mut_ptr(),
                    out_stride: columns as isize,
                    ..Operands::NONE
                };
                // SAFETY: the vectors above have these sizes.
                unsafe { run(isa, &t, &packed, rows) };
                for (at, got) in out.iter().enumerate() {
                    let (i, j) = (at / columns, at % columns);
                    let sum: f32 = (0..depth).map(|k| left[i * depth + k] * element(k, j)).sum();
                    assert_eq!(*got, (sum + 1.0) * 2.0, "{isa:?}, {bits} bits, {rows} x {columns}: {i}, {j}");
                }
            }
        }
    }
}
