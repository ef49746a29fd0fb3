//! Transposes of blocks of elements of 32 bits.

use crate::isa::Isa;

/// Rows and columns of a block.
const BLOCK: usize = 8;

/// Reads `columns` columns of `rows` adjacent elements each, so far apart, into rows.
///
/// # Safety
/// These elements are readable, and `rows * columns` are writable at `to`. The machine has `isa`.
pub(crate) unsafe fn turn(isa: Isa, from: *const f32, stride: isize, to: *mut f32, [rows, columns]: [usize; 2]) {
    let whole = match isa {
        Isa::Avx512 | Isa::Avx2 => [rows, columns].map(|n| n / BLOCK * BLOCK),
        Isa::Neon | Isa::Portable => [0, 0],
    };
    let one = |r: usize, c: usize| {
        // SAFETY: as said.
        unsafe { *to.add(r * columns + c) = *from.offset(c as isize * stride).add(r) };
    };
    #[cfg(target_arch = "x86_64")]
    for c in (0..whole[1]).step_by(BLOCK) {
        for r in (0..whole[0]).step_by(BLOCK) {
            // SAFETY: a whole block; both instruction sets have AVX.
            unsafe {
                block(from.offset(c as isize * stride).add(r), stride, to.add(r * columns + c), columns);
            }
        }
    }
    // The rows below the blocks, then the columns beside them.
    for c in 0..whole[1] {
        (whole[0]..rows).for_each(|r| one(r, c));
    }
    for c in whole[1]..columns {
        (0..rows).for_each(|r| one(r, c));
    }
}

/// A block of eight columns, whose rows are stored so far apart.
///
/// # Safety
/// Its elements are readable and writable.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
#[inline]
unsafe fn block(from: *const f32, stride: isize, to: *mut f32, apart: usize) {
    use std::arch::x86_64::*;
    // SAFETY: as said.
    let column = |i: isize| unsafe { _mm256_loadu_ps(from.offset(i * stride)) };
    let pairs = |i: isize| {
        let (a, b) = (column(i), column(i + 1));
        [_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)]
    };
    // Rows 0, 1, 2, 3 of four columns in the lower halves, and 4, 5, 6, 7 in the upper ones.
    let fours = |i: isize| {
        let ([a, b], [c, d]) = (pairs(i), pairs(i + 2));
        [
            _mm256_shuffle_ps::<0x44>(a, c),
            _mm256_shuffle_ps::<0xee>(a, c),
            _mm256_shuffle_ps::<0x44>(b, d),
            _mm256_shuffle_ps::<0xee>(b, d),
        ]
    };
    let (left, right) = (fours(0), fours(4));
    for i in 0..4 {
        // SAFETY: as said.
        unsafe {
            _mm256_storeu_ps(to.add(i * apart), _mm256_permute2f128_ps::<0x20>(left[i], right[i]));
            _mm256_storeu_ps(to.add((i + 4) * apart), _mm256_permute2f128_ps::<0x31>(left[i], right[i]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_what_is_beside_them() {
        for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
            for (rows, columns, stride) in [(16, 32, 40), (8, 8, 8), (7, 19, 9), (17, 5, 17), (2, 33, 2), (25, 9, 30)] {
                let from: Vec<f32> = (0..columns * stride).map(|i| i as f32).collect();
                let mut to = vec![-1.0; rows * columns];
                // SAFETY: the vectors have these sizes.
                unsafe { turn(isa, from.as_ptr(), stride as isize, to.as_mut_ptr(), [rows, columns]) };
                for (i, got) in to.iter().enumerate() {
                    assert_eq!(*got, from[i % columns * stride + i / columns], "{isa:?} {rows} x {columns}: {i}");
                }
            }
        }
    }
}
