//! Register tiles: `C[rows, columns] += sum over taps and k of A[row, k] * B[k, columns]`, the fast body of the
//! intrinsic `tile_RxCxK_f32` of tensor IR.
//!
//! The left operand has a pointer for each row and tap (the taps of a convolution's window), so that rows of an image
//! are read where they lie; a row that lies in the padding points to zeros. The right operand's columns lie next to
//! each other.

use crate::isa::Isa;

/// Most rows of a tile that a body has in registers.
pub(crate) const MOST_ROWS: usize = 16;

/// The operands of a tile. Whoever makes one has proved that all that it names is in bounds.
pub(crate) struct Operands<'a> {
    /// Pointers to the first element of each row, tap after tap, `rows` of each.
    pub left: &'a [*const f32],
    /// From one element of a row to the next.
    pub left_stride: usize,
    /// For each tap the first row of the right operand.
    pub right: &'a [*const f32],
    /// From one row of the right operand to the next.
    pub right_stride: usize,
    /// Elements of the reduction in each tap.
    pub depth: usize,
}

/// Runs a tile of `rows` x `columns` whose results lie row by row, `columns` apart, at `acc`.
///
/// # Safety
/// `left` has `rows` pointers a tap, each with `depth` readable elements `left_stride` apart; each of `right` has
/// `depth` readable rows of `columns` elements, `right_stride` apart; `acc` is `rows * columns` writable elements that
/// nobody else accesses. The machine has `isa`.
pub(crate) unsafe fn run(isa: Isa, t: &Operands<'_>, rows: usize, columns: usize, acc: *mut f32) {
    let mut column = 0;
    while column < columns {
        let (width, most) = block(isa, columns - column);
        let mut row = 0;
        while row < rows {
            let n = (rows - row).min(most);
            let place = Place { row, rows, column, columns };
            // SAFETY: the part from `row` and `column` on lies inside the tile, for which the caller vouches.
            unsafe { part(isa, t, &place, n, width, acc) };
            row += n;
        }
        column += width;
    }
}

/// A part of a tile.
struct Place {
    row: usize,
    rows: usize,
    column: usize,
    columns: usize,
}

/// Columns of the next part, where so many are left, and the most rows that it may have.
fn block(isa: Isa, left: usize) -> (usize, usize) {
    match isa {
        Isa::Avx512 if left >= 32 => (32, 14),
        Isa::Avx512 if left >= 16 => (16, 14),
        Isa::Avx2 if left >= 16 => (16, 6),
        Isa::Avx2 if left >= 8 => (8, 12),
        Isa::Neon if left >= 12 => (12, 8),
        Isa::Neon if left >= 4 => (4, 14),
        Isa::Portable if left >= 8 => (8, 4),
        _ => (1, 4),
    }
}

/// Runs a part with as many rows as `n` says.
///
/// # Safety
/// As [`run`].
unsafe fn part(isa: Isa, t: &Operands<'_>, p: &Place, n: usize, width: usize, acc: *mut f32) {
    macro_rules! by_rows {
        ($body:ident, $vectors:literal, $($rows:literal)*) => {
            // SAFETY: the caller vouches for the operands, and for the instruction set.
            match n {
                $($rows => unsafe { $body::tile::<$rows, $vectors>(t, p, acc) },)*
                _ => unreachable!("a part has at most {} rows", MOST_ROWS),
            }
        };
    }
    match (isa, width) {
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512, 32) => by_rows!(avx512, 2, 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512, 16) => by_rows!(avx512, 1, 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, 16) => by_rows!(avx2, 2, 1 2 3 4 5 6),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, 8) => by_rows!(avx2, 1, 1 2 3 4 5 6 7 8 9 10 11 12),
        #[cfg(target_arch = "aarch64")]
        (Isa::Neon, 12) => by_rows!(neon, 3, 1 2 3 4 5 6 7 8),
        #[cfg(target_arch = "aarch64")]
        (Isa::Neon, 4) => by_rows!(neon, 1, 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
        (_, 8) => by_rows!(portable, 1, 1 2 3 4),
        _ => by_rows!(single, 1, 1 2 3 4),
    }
}

/// A body for vectors of one type.
macro_rules! body {
    ($(#[$feature:meta])* $name:ident, $vector:ty, $lanes:literal, $zero:expr, $load:expr, $splat:expr, $fma:expr, $store:expr) => {
        mod $name {
            use super::{Operands, Place};
            #[allow(unused_imports)]
            use super::*;

            /// `R` rows of `V` vectors of columns.
            ///
            /// # Safety
            /// As [`super::run`].
            $(#[$feature])*
            // Arrays of registers: each index is a constant when the loops are unrolled.
            #[allow(clippy::needless_range_loop)]
            pub unsafe fn tile<const R: usize, const V: usize>(t: &Operands<'_>, p: &Place, acc: *mut f32) {
                // SAFETY: all accesses are those that the caller of `run` vouches for: rows `p.row..p.row + R`, columns
                // `p.column..p.column + V * lanes`, and `depth` elements of each tap.
                unsafe {
                    let out = acc.add(p.row * p.columns + p.column);
                    let mut sums: [[$vector; V]; R] = [[$zero; V]; R];
                    for i in 0..R {
                        for v in 0..V {
                            sums[i][v] = $load(out.add(i * p.columns + v * $lanes));
                        }
                    }
                    for (tap, right) in t.right.iter().enumerate() {
                        let first = t.left.as_ptr().add(tap * p.rows + p.row);
                        let mut rows = [std::ptr::null::<f32>(); R];
                        for i in 0..R {
                            rows[i] = *first.add(i);
                        }
                        let mut b = right.add(p.column);
                        let mut at = 0;
                        for _ in 0..t.depth {
                            let mut columns: [$vector; V] = [$zero; V];
                            for v in 0..V {
                                columns[v] = $load(b.add(v * $lanes));
                            }
                            for i in 0..R {
                                let a = $splat(*rows[i].add(at));
                                for v in 0..V {
                                    sums[i][v] = $fma(a, columns[v], sums[i][v]);
                                }
                            }
                            at += t.left_stride;
                            b = b.add(t.right_stride);
                        }
                    }
                    for i in 0..R {
                        for v in 0..V {
                            $store(out.add(i * p.columns + v * $lanes), sums[i][v]);
                        }
                    }
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

#[cfg(target_arch = "x86_64")]
body!(
    #[target_feature(enable = "avx512f")]
    avx512,
    __m512,
    16,
    _mm512_setzero_ps(),
    _mm512_loadu_ps,
    _mm512_set1_ps,
    _mm512_fmadd_ps,
    _mm512_storeu_ps
);
#[cfg(target_arch = "x86_64")]
body!(
    #[target_feature(enable = "avx2,fma")]
    avx2,
    __m256,
    8,
    _mm256_setzero_ps(),
    _mm256_loadu_ps,
    _mm256_set1_ps,
    _mm256_fmadd_ps,
    _mm256_storeu_ps
);
#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::*;
#[cfg(target_arch = "aarch64")]
body!(neon, float32x4_t, 4, vdupq_n_f32(0.0), vld1q_f32, vdupq_n_f32, neon_fma, vst1q_f32);
body!(portable, [f32; 8], 8, [0.0; 8], load, splat, multiply_add, store);
body!(single, f32, 1, 0.0, std::ptr::read, std::convert::identity, one_multiply_add, std::ptr::write);

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn neon_fma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
    // SAFETY: AArch64 always has NEON.
    unsafe { vfmaq_f32(c, a, b) }
}

/// # Safety
/// Eight readable elements.
#[inline(always)]
unsafe fn load(at: *const f32) -> [f32; 8] {
    // SAFETY: as said.
    unsafe { at.cast::<[f32; 8]>().read() }
}

/// # Safety
/// Eight writable elements.
#[inline(always)]
unsafe fn store(at: *mut f32, v: [f32; 8]) {
    // SAFETY: as said.
    unsafe { at.cast::<[f32; 8]>().write(v) }
}

#[inline(always)]
fn splat(x: f32) -> [f32; 8] {
    [x; 8]
}

#[inline(always)]
fn multiply_add(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
    std::array::from_fn(|i| one_multiply_add(a[i], b[i], c[i]))
}

#[inline(always)]
fn one_multiply_add(a: f32, b: f32, c: f32) -> f32 {
    a * b + c
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every body that this machine runs, with every number of rows and columns that have no whole vectors.
    #[test]
    fn every_body_adds_up_the_same() {
        for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
            for (rows, columns, depth, taps) in
                [(14, 32, 5, 1), (3, 16, 7, 2), (16, 45, 3, 3), (1, 8, 1, 1), (9, 12, 4, 2)]
            {
                let number = |i: usize| ((i * 7 + 3) % 11) as f32 - 5.0;
                let a: Vec<f32> = (0..taps * rows * depth * 2).map(number).collect();
                let b: Vec<f32> = (0..taps * depth * (columns + 1)).map(number).collect();
                let mut c: Vec<f32> = (0..rows * columns).map(number).collect();
                let mut want = c.clone();
                let at = |t: usize, i: usize| (t * rows + i) * depth * 2;
                for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                    for (t, k) in (0..taps).flat_map(|t| (0..depth).map(move |k| (t, k))) {
                        want[i * columns + j] += a[at(t, i) + 2 * k] * b[(t * depth + k) * (columns + 1) + j];
                    }
                }
                let left: Vec<*const f32> = (0..taps)
                    .flat_map(|t| (0..rows).map(move |i| (t, i)))
                    .map(|(t, i)| &raw const a[at(t, i)])
                    .collect();
                let right: Vec<*const f32> = (0..taps).map(|t| &raw const b[t * depth * (columns + 1)]).collect();
                let t = Operands { left: &left, left_stride: 2, right: &right, right_stride: columns + 1, depth };
                // SAFETY: the vectors above have these sizes.
                unsafe { run(isa, &t, rows, columns, c.as_mut_ptr()) };
                assert_eq!(c, want, "{isa:?} {rows} x {columns} x {depth} x {taps}");
            }
        }
    }

    /// `cargo test --release -p weft-runtime-cpu --lib against_sgemm -- --ignored --nocapture`: the tiles of each
    /// instruction set, with the right operand packed before, against `matrixmultiply::sgemm`, which packs both;
    /// interleaved, the fastest of 15 runs.
    #[test]
    #[ignore = "a measurement"]
    fn tiles_against_sgemm() {
        for [m, n, k] in [[196usize, 256, 1152], [784, 128, 1152], [3136, 64, 64], [49, 2048, 512], [197, 768, 768]] {
            let a: Vec<f32> = (0..m * k).map(|i| (i % 13) as f32 - 6.0).collect();
            let b: Vec<f32> = (0..k * n).map(|i| (i % 7) as f32 - 3.0).collect();
            for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
                let [height, width] = isa.tile().map(|n| n as usize);
                let mut packed = vec![0.0; k * n.next_multiple_of(width)];
                for (p, c) in (0..k).flat_map(|p| (0..n).map(move |c| (p, c))) {
                    packed[c / width * k * width + p * width + c % width] = b[p * n + c];
                }
                let mut best = [f64::INFINITY; 2];
                let mut c = vec![0.0; m * n];
                for _ in 0..15 {
                    let start = std::time::Instant::now();
                    // SAFETY: the matrices have these sizes.
                    unsafe {
                        let (rs, cs) = (k as isize, n as isize);
                        matrixmultiply::sgemm(
                            m,
                            k,
                            n,
                            1.0,
                            a.as_ptr(),
                            rs,
                            1,
                            b.as_ptr(),
                            cs,
                            1,
                            0.0,
                            c.as_mut_ptr(),
                            cs,
                            1,
                        );
                    }
                    best[0] = best[0].min(start.elapsed().as_secs_f64());
                    let start = std::time::Instant::now();
                    let mut out = vec![0.0; height * width];
                    for (panel, row) in (0..n.div_ceil(width)).flat_map(|p| (0..m).step_by(height).map(move |r| (p, r)))
                    {
                        let rows = height.min(m - row);
                        let left: Vec<*const f32> = (row..row + rows).map(|r| &raw const a[r * k]).collect();
                        let right = [&raw const packed[panel * k * width]];
                        let t = Operands { left: &left, left_stride: 1, right: &right, right_stride: width, depth: k };
                        out.fill(0.0);
                        // SAFETY: the vectors above have these sizes.
                        unsafe { run(isa, &t, rows, width, out.as_mut_ptr()) };
                        std::hint::black_box(&out);
                    }
                    best[1] = best[1].min(start.elapsed().as_secs_f64());
                }
                let rate = |s: f64| 2e-9 * (m * n * k) as f64 / s;
                let [theirs, ours] = best.map(rate);
                println!("{m}x{n}x{k} {}: {ours:.1} GFLOP/s, {:.2} of sgemm", isa.name(), ours / theirs);
            }
        }
    }
}
