//! Register tiles of products of integers: words of both operands, multiplied element by element.

use crate::isa::Isa;
#[cfg(target_arch = "x86_64")]
use crate::tile_operands::Kind;
use crate::tile_operands::Operands;

/// Computes a part of `n` rows of a product of integers.
///
/// # Safety
/// As [`crate::tile::run`].
pub(crate) unsafe fn part(isa: Isa, t: &Operands<'_>, at: [usize; 2], n: usize, vectors: usize) {
    macro_rules! by_rows {
        ($body:path, $vectors:literal, $($rows:literal)*) => {{
            use $body as body;
            // SAFETY: the caller vouches for the operands, and for the instruction set.
            match n {
                $($rows => unsafe { body::integers::<$rows, $vectors>(t, at) },)*
                _ => unreachable!("a part has the rows that `run` gives it"),
            }
        }};
    }
    match (isa, t.kind, vectors) {
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512, Kind::Bytes, 2) => by_rows!(avx512_bytes, 2, 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512, Kind::Bytes, _) => by_rows!(avx512_bytes, 1, 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512, Kind::Pairs, 2) => by_rows!(avx512_pairs, 2, 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512, Kind::Pairs, _) => by_rows!(avx512_pairs, 1, 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512, _, 2) => by_rows!(avx512_words, 2, 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512, _, _) => by_rows!(avx512_words, 1, 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, Kind::Pairs, 2) => by_rows!(avx2_pairs, 2, 1 2 3 4 5 6),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, Kind::Pairs, _) => by_rows!(avx2_pairs, 1, 1 2 3 4 5 6 7 8 9 10 11 12),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, _, 2) => by_rows!(avx2_words, 2, 1 2 3 4 5 6),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, _, _) => by_rows!(avx2_words, 1, 1 2 3 4 5 6 7 8 9 10 11 12),
        #[cfg(target_arch = "aarch64")]
        (Isa::Neon, _, 3) => by_rows!(neon_words, 3, 1 2 3 4 5 6 7 8),
        #[cfg(target_arch = "aarch64")]
        (Isa::Neon, _, _) => by_rows!(neon_words, 1, 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
        _ => by_rows!(portable_words, 1, 1 2 3 4),
    }
}

/// A body of products of integers for the vectors of one module of [`vectors`](crate::vectors): how two
/// words are multiplied, and added to a sum.
macro_rules! integer_body {
    ($(#[$feature:meta])* $name:ident, $vectors:ident, |$sum:ident, $left:ident, $right:ident| $combined:expr) => {
        mod $name {
            use crate::vectors::$vectors::*;
            use crate::vectors::{AHEAD, prefetch};
            use crate::finish::{begin, finish};
            use crate::tile_operands::{Operands, Step};
            #[cfg(target_arch = "x86_64")]
            #[allow(unused_imports)]
            use std::arch::x86_64::*;

            $(#[$feature])*
            #[inline]
            fn combine($sum: Vector, $left: Vector, $right: Vector) -> Vector {
                $combined
            }

            /// `R` rows of `V` vectors of columns from a row and a column on; each row has a pointer for each tap.
            ///
            /// # Safety
            /// As [`crate::tile::run`].
            $(#[$feature])*
            // Arrays of registers: each index is a constant when the loops are unrolled.
            #[allow(clippy::needless_range_loop)]
            pub unsafe fn integers<const R: usize, const V: usize>(t: &Operands<'_>, [row, column]: [usize; 2]) {
                // SAFETY: all accesses are those that the caller of `run` vouches for: rows `row..row + R`, and columns
                // from `column` on as far as masks have them.
                unsafe {
                    let (out, masks, mut sums) = begin!(t, [row, column]);
                    let mut rows = [std::ptr::null::<f32>(); R];
                    for (n, tap) in t.taps.iter().enumerate() {
                        let mut b = t.right.wrapping_offset(tap[1]).wrapping_add(column);
                        let first = t.table.as_ptr().add(n * t.table_rows + row);
                        for i in 0..R {
                            rows[i] = *first.add(i);
                        }
                        let mut at = 0;
                        for _ in 0..t.depth {
                            prefetch(b.wrapping_add(AHEAD), V * LANES);
                            let mut columns = [splat(0.0); V];
                            for v in 0..V {
                                columns[v] = load(masks[v], b.wrapping_add(v * LANES));
                            }
                            for i in 0..R {
                                let left = splat(rows[i].wrapping_offset(at).read_unaligned());
                                for v in 0..V {
                                    sums[i][v] = combine(sums[i][v], left, columns[v]);
                                }
                            }
                            at += t.left_stride;
                            b = b.wrapping_offset(t.right_stride);
                        }
                    }
                    finish!(t, [row, column], masks, sums, out, true);
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
integer_body!(
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    avx512_bytes,
    avx512,
    |sum, left, right| words(_mm512_dpbusd_epi32(bits(sum), bits(left), bits(right)))
);
#[cfg(target_arch = "x86_64")]
integer_body!(
    #[target_feature(enable = "avx512f,avx512bw")]
    avx512_pairs,
    avx512,
    |sum, left, right| add_int(sum, words(_mm512_madd_epi16(bits(left), bits(right))))
);
#[cfg(target_arch = "x86_64")]
integer_body!(
    #[target_feature(enable = "avx512f,avx512bw")]
    avx512_words,
    avx512,
    |sum, left, right| add_int(sum, mul_int(left, right))
);
#[cfg(target_arch = "x86_64")]
integer_body!(
    #[target_feature(enable = "avx2,fma,f16c")]
    avx2_pairs,
    avx2,
    |sum, left, right| add_int(sum, words(_mm256_madd_epi16(bits(left), bits(right))))
);
#[cfg(target_arch = "x86_64")]
integer_body!(
    #[target_feature(enable = "avx2,fma,f16c")]
    avx2_words,
    avx2,
    |sum, left, right| add_int(sum, mul_int(left, right))
);
#[cfg(target_arch = "aarch64")]
integer_body!(
    #[target_feature(enable = "neon")]
    neon_words,
    neon,
    |sum, left, right| add_int(sum, mul_int(left, right))
);
integer_body!(portable_words, portable, |sum, left, right| add_int(sum, mul_int(left, right)));
