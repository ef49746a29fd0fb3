//! Register tiles: rows x columns of sums in vector registers, taps and depth added up one after another, then the
//! epilogue, then one store. The fast body of the intrinsic `tile_RxCxK_f32` of tensor IR, and of windows whose lanes
//! lie next to each other (depthwise convolution, pooling, products with one row).
//!
//! Rows of the left operand lie evenly, or have a pointer each for every tap, so that a convolution reads its image
//! where it lies: a row in the padding points to zeros. Columns of the right operand lie next to each other.

use crate::finish::{begin, finish};
use crate::integer_tile;
use crate::isa::Isa;
pub(crate) use crate::tile_operands::{Kind, Operands, Step};
use crate::vectors;

/// Computes these rows of a tile.
///
/// # Safety
/// For each of these rows, for each tap: the left operand has `depth` readable elements `left_stride` apart, or as many
/// runs of `columns` elements for other kinds than [`Kind::Product`]; the right operand `depth` readable rows of
/// `columns` elements, or elements for [`Kind::Scaled`]. Elements of runs and rows are `lane_stride` apart. What steps
/// and `out` name are rows of `columns` elements, and nobody else accesses those of
/// `out`. The machine has `isa`.
pub(crate) unsafe fn run(isa: Isa, t: &Operands<'_>, rows: std::ops::Range<usize>) {
    if !t.strides_far(rows.len()) {
        // SAFETY: as said.
        return unsafe { run_whole(isa, t, rows) };
    }
    for first in (0..t.depth).step_by(AT_ONCE) {
        let depth = AT_ONCE.min(t.depth - first);
        let place = |at: *const f32, stride: isize| at.wrapping_offset(first as isize * stride);
        let part = Operands {
            left: place(t.left, t.left_stride),
            right: match t.kind {
                Kind::Halves => t.right.cast::<u16>().wrapping_offset(first as isize * t.right_stride).cast(),
                _ => place(t.right, t.right_stride),
            },
            depth,
            initial: t.initial.filter(|_| first == 0),
            steps: if first + depth == t.depth { t.steps } else { &[] },
            ..*t
        };
        // SAFETY: the same elements, in parts; the sums stay where the results go.
        unsafe { run_whole(isa, &part, rows.clone()) };
    }
}

/// Rows of the right operand that are read at once, where each row is long: the processor loads so many runs ahead.
const AT_ONCE: usize = 16;

/// True if tiles of few rows read a right operand of f16 where it lies.
pub(crate) fn reads_halves(isa: Isa) -> bool {
    matches!(isa, Isa::Avx512 | Isa::Avx2)
}

impl Operands<'_> {
    /// True if a row of the operand with columns is many vectors, and there are few rows of results: then its rows are
    /// read from the first column to the last, rather than a vector of each.
    fn strides_far(&self, rows: usize) -> bool {
        let wide = self.columns - self.first_column >= 512 && self.depth >= 4 * AT_ONCE;
        let product = matches!(self.kind, Kind::Product | Kind::Halves | Kind::Sum | Kind::Max | Kind::Min);
        rows <= 2 && wide && product && self.lane_stride == 1 && self.taps.len() == 1 && self.table.is_empty()
    }
}

/// As [`run`], with all of the depth at a time.
///
/// # Safety
/// As [`run`].
#[inline(always)]
unsafe fn run_whole(isa: Isa, t: &Operands<'_>, rows: std::ops::Range<usize>) {
    let mut column = t.first_column;
    while column < t.columns {
        let (vectors, lanes, most) = block(isa, t.columns - column);
        let mut row = rows.start;
        while row < rows.end {
            let left = rows.end - row;
            let n = match t.kind {
                // Parts of about the same size.
                Kind::Words | Kind::Pairs | Kind::Bytes => left.div_ceil(left.div_ceil(most)),
                Kind::Product if t.lane_stride == 1 => left.div_ceil(left.div_ceil(most)),
                _ => [6, 4, 3, 2, 1].into_iter().find(|n| *n <= left.min(most)).unwrap_or(1),
            };
            // SAFETY: the caller vouches for all rows and columns.
            unsafe { part(isa, t, [row, column], n, vectors) };
            row += n;
        }
        column += vectors * lanes;
    }
}

/// Vectors of the next part where so many columns are left, lanes of each, and the most rows that it may have.
fn block(isa: Isa, left: usize) -> (usize, usize, usize) {
    match isa {
        Isa::Avx512 => (if left > 16 { 2 } else { 1 }, 16, 14),
        // Six rows would need 17 registers with the masks.
        Isa::Avx2 if left > 8 => (2, 8, 5),
        Isa::Avx2 => (1, 8, 12),
        Isa::Neon if left > 4 => (3, 4, 8),
        Isa::Neon => (1, 4, 14),
        Isa::Portable => (1, 8, 4),
    }
}

/// Computes a part of `n` rows.
///
/// # Safety
/// As [`run`].
unsafe fn part(isa: Isa, t: &Operands<'_>, at: [usize; 2], n: usize, vectors: usize) {
    if t.kind.has_words() {
        // SAFETY: as said.
        return unsafe { integer_tile::part(isa, t, at, n, vectors) };
    }
    macro_rules! rows {
        ($body:ident, $vectors:literal, $kind:expr, $even:literal, $($rows:literal)*) => {
            match n {
                // SAFETY: the caller vouches for the operands, and for the instruction set.
                $($rows => unsafe { $body::tile::<$rows, $vectors, { $kind }, $even>(t, at) },)*
                _ => unreachable!("a part has the rows that `run` gives it"),
            }
        };
    }
    macro_rules! by_rows {
        ($body:ident, $vectors:literal, $($rows:literal)*; $($few:literal)*) => {
            match t.kind as u8 | if t.lane_stride > 1 { APART } else { 0 } {
                PRODUCT if t.table.is_empty() => rows!($body, $vectors, PRODUCT, true, $($rows)*),
                PRODUCT => rows!($body, $vectors, PRODUCT, false, $($rows)*),
                HALVES => rows!($body, $vectors, HALVES, true, $($few)*),
                PAIRS => rows!($body, $vectors, PAIRS, true, $($few)*),
                SCALED => rows!($body, $vectors, SCALED, true, $($few)*),
                LANE_WORDS if t.table.is_empty() => rows!($body, $vectors, LANE_WORDS, true, $($few)*),
                LANE_WORDS => rows!($body, $vectors, LANE_WORDS, false, $($few)*),
                LANE_BYTES => rows!($body, $vectors, LANE_BYTES, true, $($few)*),
                SUM => rows!($body, $vectors, SUM, true, $($few)*),
                MAX => rows!($body, $vectors, MAX, true, $($few)*),
                MIN => rows!($body, $vectors, MIN, true, $($few)*),
                PRODUCT_APART if t.table.is_empty() => rows!($body, $vectors, PRODUCT_APART, true, $($few)*),
                PRODUCT_APART => rows!($body, $vectors, PRODUCT_APART, false, $($few)*),
                SCALED_APART => rows!($body, $vectors, SCALED_APART, true, $($few)*),
                SUM_APART => rows!($body, $vectors, SUM_APART, true, $($few)*),
                MAX_APART => rows!($body, $vectors, MAX_APART, true, $($few)*),
                MIN_APART => rows!($body, $vectors, MIN_APART, true, $($few)*),
                _ => unreachable!("no tile of floats"),
            }
        };
    }
    match (isa, vectors) {
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512, 2) => by_rows!(avx512, 2, 1 2 3 4 5 6 7 8 9 10 11 12 13 14; 1 2 3 4 6),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512, _) => by_rows!(avx512, 1, 1 2 3 4 5 6 7 8 9 10 11 12 13 14; 1 2 3 4 6),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, 2) => by_rows!(avx2, 2, 1 2 3 4 5; 1 2 3 4),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, _) => by_rows!(avx2, 1, 1 2 3 4 5 6 7 8 9 10 11 12; 1 2 3 4 6),
        #[cfg(target_arch = "aarch64")]
        (Isa::Neon, 3) => by_rows!(neon, 3, 1 2 3 4 5 6 7 8; 1 2 3 4 6),
        #[cfg(target_arch = "aarch64")]
        (Isa::Neon, _) => by_rows!(neon, 1, 1 2 3 4 5 6 7 8 9 10 11 12 13 14; 1 2 3 4 6),
        _ => by_rows!(portable, 1, 1 2 3 4; 1 2 3 4),
    }
}

/// Added to a kind whose columns lie apart in memory.
const APART: u8 = 64;
// The kinds of bodies.
const PRODUCT: u8 = Kind::Product as u8;
const PAIRS: u8 = Kind::Lanes as u8;
const SCALED: u8 = Kind::Scaled as u8;
const SUM: u8 = Kind::Sum as u8;
const MAX: u8 = Kind::Max as u8;
const MIN: u8 = Kind::Min as u8;
const LANE_WORDS: u8 = Kind::LaneWords as u8;
const LANE_BYTES: u8 = Kind::LaneBytes as u8;
const HALVES: u8 = Kind::Halves as u8;
const PRODUCT_APART: u8 = PRODUCT | APART;
const SCALED_APART: u8 = SCALED | APART;
const SUM_APART: u8 = SUM | APART;
const MAX_APART: u8 = MAX | APART;
const MIN_APART: u8 = MIN | APART;

/// A body for the vectors of one module of [`vectors`].
macro_rules! body {
    ($(#[$feature:meta])* $name:ident) => {
        mod $name {
            use super::vectors::$name::*;
            use super::vectors::{AHEAD, prefetch};
            use super::{
                APART, HALVES, LANE_BYTES, LANE_WORDS, MAX, MIN, Operands, PAIRS, PRODUCT, SCALED, SUM, Step, begin,
                finish,
            };

            /// A sum with one more element of the left operand, and one of the right operand in its column.
            $(#[$feature])*
            #[inline]
            fn combine<const KIND: u8>(sum: Vector, left: Vector, right: Vector) -> Vector {
                match KIND & !APART {
                    PRODUCT | PAIRS | SCALED | HALVES => fma(left, right, sum),
                    LANE_WORDS | LANE_BYTES => add_int(sum, mul_int(left, right)),
                    SUM => add(sum, left),
                    MAX => keep_max(sum, left),
                    _ => keep_min(sum, left),
                }
            }

            /// A place so many elements of the left operand on.
            #[inline(always)]
            fn moved<const KIND: u8>(at: *const f32, by: isize) -> *const f32 {
                if KIND == LANE_BYTES { at.wrapping_byte_offset(by) } else { at.wrapping_offset(by) }
            }

            /// `R` rows of `V` vectors of columns from a row and a column on; `EVEN`: rows lie evenly.
            ///
            /// # Safety
            /// As [`super::run`].
            $(#[$feature])*
            // Arrays of registers: each index is a constant when the loops are unrolled.
            #[allow(clippy::needless_range_loop)]
            pub unsafe fn tile<const R: usize, const V: usize, const KIND: u8, const EVEN: bool>(
                t: &Operands<'_>,
                [row, column]: [usize; 2],
            ) {
                // SAFETY: all accesses are those that the caller of `run` vouches for: rows `row..row + R`, and columns
                // from `column` on as far as masks have them.
                unsafe {
                    let (out, masks, mut sums) = begin!(t, [row, column]);
                    let (kind, by) = (KIND & !APART, if KIND < APART { 1 } else { t.lane_stride });
                    let across = if kind == PRODUCT || kind == HALVES { 0 } else { column * by };
                    let along = if kind == SCALED { 0 } else { column * by };
                    let mut rows = [std::ptr::null::<f32>(); R];
                    if EVEN {
                        for i in 0..R {
                            rows[i] = moved::<KIND>(t.left, (row + i) as isize * t.row_stride + across as isize);
                        }
                    }
                    for (n, tap) in t.taps.iter().enumerate() {
                        let mut b = t.right.wrapping_offset(tap[1]).wrapping_add(along);
                        let mut halves = t.right.cast::<u16>().wrapping_offset(tap[1]).wrapping_add(column);
                        let mut at = if EVEN { tap[0] } else { 0 };
                        if !EVEN {
                            let first = t.table.as_ptr().add(n * t.table_rows + row);
                            for i in 0..R {
                                rows[i] = first.add(i).read().wrapping_add(across);
                            }
                        }
                        for _ in 0..t.depth {
                            match kind {
                                PRODUCT => prefetch(b.wrapping_add(AHEAD), V * LANES),
                                HALVES => prefetch(halves.wrapping_add(2 * AHEAD).cast(), V * LANES / 2),
                                _ => {}
                            }
                            let mut columns = [splat(0.0); V];
                            for v in 0..V {
                                columns[v] = match kind {
                                    PRODUCT if KIND >= APART => pick(masks[v], b.wrapping_add(v * LANES * by), by),
                                    SCALED => splat(*b),
                                    HALVES => load_halves(masks[v], halves.wrapping_add(v * LANES)),
                                    SUM | MAX | MIN => splat(0.0),
                                    _ => load(masks[v], b.wrapping_add(v * LANES)),
                                };
                            }
                            for i in 0..R {
                                let left = moved::<KIND>(rows[i], at);
                                for v in 0..V {
                                    let a = match kind {
                                        PRODUCT | HALVES => splat(*left),
                                        LANE_BYTES => load_ints(masks[v], left.cast::<u8>().wrapping_add(v * LANES)),
                                        _ if KIND >= APART => pick(masks[v], left.wrapping_add(v * LANES * by), by),
                                        _ => load(masks[v], left.wrapping_add(v * LANES)),
                                    };
                                    sums[i][v] = combine::<KIND>(sums[i][v], a, columns[v]);
                                }
                            }
                            at += t.left_stride;
                            (b, halves) = (b.wrapping_offset(t.right_stride), halves.wrapping_offset(t.right_stride));
                        }
                    }
                    finish!(t, [row, column], masks, sums, out, kind == LANE_WORDS || kind == LANE_BYTES);
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
body!(
    #[target_feature(enable = "avx512f,avx512bw")]
    avx512
);
#[cfg(target_arch = "x86_64")]
body!(
    #[target_feature(enable = "avx2,fma,f16c")]
    avx2
);
#[cfg(target_arch = "aarch64")]
body!(
    #[target_feature(enable = "neon")]
    neon
);
body!(portable);

#[cfg(test)]
mod tests {
    use super::*;

    /// A tile with nothing but its operands.
    fn plain<'a>(
        kind: Kind,
        left: &'a [f32],
        right: &'a [f32],
        taps: &'a [[isize; 2]],
        out: &mut [f32],
    ) -> Operands<'a> {
        Operands { kind, left: left.as_ptr(), right: right.as_ptr(), taps, out: out.as_mut_ptr(), ..Operands::NONE }
    }
    fn number(i: usize) -> f32 {
        ((i * 7 + 3) % 11) as f32 - 5.0
    }

    /// Every body that this machine runs, with even rows and with a table, every number of rows, columns that are no
    /// whole vectors, and every step of an epilogue.
    #[test]
    fn every_body_adds_up_the_same() {
        for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
            for (rows, columns, depth, taps) in [
                (14, 32, 5, 1),
                (3, 16, 7, 2),
                (16, 45, 3, 3),
                (1, 8, 1, 1),
                (9, 12, 4, 2),
                (5, 31, 2, 2),
                (11, 3, 6, 1),
            ] {
                let a: Vec<f32> = (0..taps * rows * depth * 2).map(number).collect();
                let b: Vec<f32> = (0..taps * depth * (columns + 1)).map(number).collect();
                let each: Vec<f32> = (0..rows * columns).map(|i| number(i + 5)).collect();
                let at = |t: usize, i: usize| (t * rows + i) * depth * 2;
                let mut want: Vec<f32> = (0..rows * columns).map(number).collect();
                for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                    let sum = &mut want[i * columns + j];
                    for (t, k) in (0..taps).flat_map(|t| (0..depth).map(move |k| (t, k))) {
                        *sum += a[at(t, i) + 2 * k] * b[(t * depth + k) * (columns + 1) + j];
                    }
                    *sum = (*sum + 1.0) * 2.0 + each[j];
                    *sum = (*sum * each[j] + each[i * columns + j]) * each[i * columns + j];
                    *sum = sum.clamp(-40.0, 60.0);
                }
                let steps = [
                    Step::Add(1.0),
                    Step::Mul(2.0),
                    Step::AddColumns(each.as_ptr()),
                    Step::MulColumns(each.as_ptr()),
                    Step::AddEach(each.as_ptr(), columns as isize),
                    Step::MulEach(each.as_ptr(), columns as isize),
                    Step::Max(-40.0),
                    Step::Min(60.0),
                ];
                let table: Vec<*const f32> = (0..taps)
                    .flat_map(|t| (0..rows).map(move |i| (t, i)))
                    .map(|(t, i)| &raw const a[at(t, i)])
                    .collect();
                let offsets: Vec<[isize; 2]> =
                    (0..taps).map(|t| [at(t, 0) as isize, (t * depth * (columns + 1)) as isize]).collect();
                for even in [true, false] {
                    let mut c: Vec<f32> = (0..rows * columns).map(number).collect();
                    let t = Operands {
                        row_stride: 2 * depth as isize,
                        table: if even { &[] } else { &table },
                        table_rows: rows,
                        left_stride: 2,
                        right_stride: columns as isize + 1,
                        depth,
                        columns,
                        steps: &steps,
                        out_stride: columns as isize,
                        ..plain(Kind::Product, &a, &b, &offsets, &mut c)
                    };
                    // SAFETY: the vectors above have these sizes.
                    unsafe { run(isa, &t, 0..rows) };
                    assert_eq!(c, want, "{isa:?} {rows} x {columns} x {depth} x {taps}, even: {even}");
                }
            }
        }
    }

    /// Windows: each lane has its own elements of both operands, or of the left one.
    #[test]
    fn windows_are_those_of_single_lanes() {
        for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
            for (rows, columns) in [(1, 1), (2, 7), (13, 16), (7, 40), (3, 77)] {
                let x: Vec<f32> = (0..(rows + 3) * columns).map(number).collect();
                let w: Vec<f32> = (0..2 * columns).map(|i| number(i + 1)).collect();
                let c = columns as isize;
                let taps = [[0, 0], [2 * c, c]];
                for (kind, initial) in
                    [(Kind::Lanes, 1.0), (Kind::Sum, 1.0), (Kind::Max, f32::NEG_INFINITY), (Kind::Min, f32::INFINITY)]
                {
                    let mut out = vec![9.0; rows * columns];
                    let t = Operands {
                        row_stride: c,
                        columns,
                        initial: Some(initial),
                        out_stride: c,
                        ..plain(kind, &x, &w, &taps, &mut out)
                    };
                    // SAFETY: the vectors above have these sizes.
                    unsafe { run(isa, &t, 0..rows) };
                    for (i, got) in out.iter().enumerate() {
                        let (a, b) = (x[i], x[i + 2 * columns]);
                        let want = match kind {
                            Kind::Product | Kind::Lanes => 1.0 + a * w[i % columns] + b * w[columns + i % columns],
                            Kind::Sum => 1.0 + a + b,
                            Kind::Max => a.max(b),
                            _ => a.min(b),
                        };
                        assert_eq!(*got, want, "{isa:?} {kind:?} {rows} x {columns}: {i}");
                    }
                }
            }
            // An element that is no number stays in a maximum, wherever it comes.
            for place in 0..3 {
                let mut x = [1.0, 2.0, 3.0];
                x[place] = f32::NAN;
                for kind in [Kind::Max, Kind::Min] {
                    let mut out = [0.0];
                    let t = Operands {
                        depth: 3,
                        columns: 1,
                        initial: Some(if kind == Kind::Max { f32::NEG_INFINITY } else { f32::INFINITY }),
                        ..plain(kind, &x, &[], &[[0, 0]], &mut out)
                    };
                    // SAFETY: three elements, one result.
                    unsafe { run(isa, &t, 0..1) };
                    assert!(out[0].is_nan(), "{isa:?} {kind:?} {place}");
                }
            }
        }
    }

    /// Rows of lanes that are scaled, windows and products whose lanes lie next to each other or apart.
    #[test]
    fn lanes_lie_apart() {
        for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
            let sizes = [(1, 1), (2, 7), (13, 16), (7, 40), (3, 77)];
            for ((rows, columns), by) in sizes.into_iter().flat_map(|s| (1..=4).map(move |by| (s, by))) {
                let row = columns * by;
                let x: Vec<f32> = (0..(rows + 3) * row).map(number).collect();
                let w: Vec<f32> = (0..2 * rows.max(columns)).map(|i| number(i + 1)).collect();
                let taps = [[0, 0], [2 * row as isize, columns as isize]];
                let all = |i: usize, j: usize| (x[i * row + j * by], x[(i + 2) * row + j * by]);
                for kind in [Kind::Scaled, Kind::Sum, Kind::Max, Kind::Min, Kind::Product] {
                    let mut out = vec![9.0; rows * columns];
                    let product = kind == Kind::Product;
                    let (left, right) = if product { (&w, &x) } else { (&x, &w) };
                    let t = Operands {
                        row_stride: if product { 2 } else { row as isize },
                        right_stride: row as isize,
                        depth: if product { 2 } else { 1 },
                        columns,
                        lane_stride: by,
                        initial: Some(0.5),
                        out_stride: columns as isize,
                        ..plain(kind, left, right, if product { &taps[..1] } else { &taps }, &mut out)
                    };
                    // SAFETY: the vectors above have these sizes.
                    unsafe { run(isa, &t, 0..rows) };
                    for (n, got) in out.iter().enumerate() {
                        let (i, j) = (n / columns, n % columns);
                        let (a, b) = all(i, j);
                        let want = match kind {
                            Kind::Scaled => 0.5 + a * w[0] + b * w[columns],
                            Kind::Sum => 0.5 + a + b,
                            Kind::Max => a.max(b).max(0.5),
                            Kind::Min => a.min(b).min(0.5),
                            _ => 0.5 + w[2 * i] * x[j * by] + w[2 * i + 1] * x[row + j * by],
                        };
                        assert_eq!(*got, want, "{isa:?} {kind:?} {rows} x {columns}, {by} apart: {n}");
                    }
                }
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
                        let t = Operands {
                            row_stride: k as isize,
                            right_stride: width as isize,
                            depth: k,
                            columns: width,
                            initial: Some(0.0),
                            out_stride: width as isize,
                            ..plain(Kind::Product, &a[row * k..], &packed[panel * k * width..], &[[0, 0]], &mut out)
                        };
                        // SAFETY: the vectors above have these sizes.
                        unsafe { run(isa, &t, 0..rows) };
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
