//! Transposes of blocks of elements of 32 bits, or of bytes.

use crate::isa::Isa;

/// Elements that blocks are transposed of.
pub(crate) trait Turned: Copy {
    /// Rows and columns of a block.
    const BLOCK: usize;
    /// Transposes a block of columns that lie `stride` apart; its rows are stored `apart`.
    ///
    /// # Safety
    /// Its elements are readable and writable. The machine has AVX.
    #[cfg(target_arch = "x86_64")]
    unsafe fn block(from: *const Self, stride: isize, to: *mut Self, apart: isize);
}

impl Turned for f32 {
    const BLOCK: usize = 8;
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn block(from: *const f32, stride: isize, to: *mut f32, apart: isize) {
        // SAFETY: as said.
        unsafe { block_of_words(from, stride, to, apart) }
    }
}

impl Turned for u8 {
    const BLOCK: usize = 16;
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn block(from: *const u8, stride: isize, to: *mut u8, apart: isize) {
        // SAFETY: as said.
        unsafe { block_of_bytes(from, stride, to, apart) }
    }
}

/// Reads `columns` columns of `rows` adjacent elements each, so far apart, into rows, whose elements are adjacent and
/// which lie so far apart.
///
/// # Safety
/// These elements are readable, and the rows writable. The machine has `isa`.
pub(crate) unsafe fn turn<T: Turned>(
    isa: Isa,
    (from, stride): (*const T, isize),
    (to, apart): (*mut T, isize),
    [rows, columns]: [usize; 2],
) {
    let whole = match isa {
        Isa::Avx512 | Isa::Avx2 => [rows, columns].map(|n| n / T::BLOCK * T::BLOCK),
        Isa::Neon | Isa::Portable => [0, 0],
    };
    let at = |r: usize, c: usize| (from.wrapping_offset(c as isize * stride), to.wrapping_offset(r as isize * apart));
    let one = |r: usize, c: usize| {
        let (from, to) = at(r, c);
        // SAFETY: as said.
        unsafe { *to.add(c) = *from.add(r) };
    };
    #[cfg(target_arch = "x86_64")]
    {
        /// Columns ahead that are loaded into the cache: each may be a line of its own.
        const AHEAD: isize = 16;
        let block = |r: usize, c: usize| {
            let (from, to) = at(r, c);
            // SAFETY: a whole block; both instruction sets have AVX.
            unsafe { T::block(from.add(r), stride, to.add(c), apart) };
        };
        let [row_blocks, column_blocks] = [0, 1].map(|i| (0..whole[i]).step_by(T::BLOCK));
        // The longer way outside: lines are filled while they are in the cache.
        if whole[0] > whole[1] {
            row_blocks.for_each(|r| column_blocks.clone().for_each(|c| block(r, c)));
        } else {
            for c in column_blocks {
                for i in 0..T::BLOCK as isize {
                    crate::vectors::prefetch(at(0, c).0.wrapping_offset((AHEAD + i) * stride).cast(), 1);
                }
                row_blocks.clone().for_each(|r| block(r, c));
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

/// A block of 16 columns of bytes: four times, each column is mixed with the one eight columns on.
///
/// # Safety
/// Its elements are readable and writable.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
#[inline]
unsafe fn block_of_bytes(from: *const u8, stride: isize, to: *mut u8, apart: isize) {
    use std::arch::x86_64::*;
    let mut all = [_mm_setzero_si128(); 16];
    for (i, column) in (0..).zip(&mut all) {
        // SAFETY: as said.
        *column = unsafe { _mm_loadu_si128(from.offset(i * stride).cast()) };
    }
    for _ in 0..4 {
        let before = all;
        for i in 0..8 {
            all[2 * i] = _mm_unpacklo_epi8(before[i], before[i + 8]);
            all[2 * i + 1] = _mm_unpackhi_epi8(before[i], before[i + 8]);
        }
    }
    for (i, row) in (0..).zip(all) {
        // SAFETY: as said.
        unsafe { _mm_storeu_si128(to.offset(i * apart).cast(), row) };
    }
}

/// A block of eight columns, whose rows are stored so far apart.
///
/// # Safety
/// Its elements are readable and writable.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
#[inline]
unsafe fn block_of_words(from: *const f32, stride: isize, to: *mut f32, apart: isize) {
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
            let [low, high] = [0, 4].map(|half| to.offset((i as isize + half) * apart));
            _mm256_storeu_ps(low, _mm256_permute2f128_ps::<0x20>(left[i], right[i]));
            _mm256_storeu_ps(high, _mm256_permute2f128_ps::<0x31>(left[i], right[i]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Turned + PartialEq + std::fmt::Debug>(number: impl Fn(usize) -> T) {
        let sizes = [(16, 32, 40), (8, 8, 8), (7, 19, 9), (17, 5, 17), (2, 33, 2), (25, 9, 30), (50, 35, 51)];
        for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
            for ((rows, columns, stride), more) in sizes.into_iter().flat_map(|s| [(s, 0), (s, 3)]) {
                let (from, apart): (Vec<T>, _) = ((0..columns * stride).map(&number).collect(), columns + more);
                let mut to = vec![number(0); rows * apart];
                let lies = (from.as_ptr(), stride as isize);
                // SAFETY: the vectors have these sizes.
                unsafe { turn(isa, lies, (to.as_mut_ptr(), apart as isize), [rows, columns]) };
                for (r, c) in (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c))) {
                    let want = number(c * stride + r);
                    assert_eq!(to[r * apart + c], want, "{isa:?} {rows} x {columns}: {r}, {c}");
                }
            }
        }
    }

    #[test]
    fn blocks_and_what_is_beside_them() {
        check(|i| i as f32);
        check(|i| (i * 7 + i / 256) as u8);
    }
}
