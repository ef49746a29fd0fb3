//! Tiles of products on matrix units: the sizes per subgroup and workgroup, and the registers and workgroup memory that
//! they need.

use super::split_depth;
use crate::profile::DeviceProfile;
use crate::profile::quirks::UNROLLS_LOOPS;
use crate::schedule::estimate::Holdings;
use crate::schedule::tiles::{MatrixTile, ProductTile};
use crate::tir::MatrixRole;

/// Elements of the reduction that a workgroup has at a time.
pub(super) const DEPTH: i64 = 32;
/// How many it may have.
pub(super) const DEPTHS: [i64; 3] = [DEPTH, 2 * DEPTH, DEPTH / 2];
/// Elements behind a row of a staged tile, at most: 16 bytes.
pub(super) const PAD: i64 = 8;
/// Neighbours of a result that a lane computes at once.
pub(super) const VECTOR: i64 = 4;
/// Registers of a lane for addresses and conditions.
const OTHERS: i64 = 8;
/// Rows of a lane's results, at most, where it has more of them.
const ROWS: i64 = 8;

/// Neighbouring halves that a lane copies at once, and the registers that their place in a window takes: an address, a
/// row, a column and a condition.
const RUN: i64 = 8;
const REGISTERS_OF_RUN: i64 = 4;

/// Vectors of a lane's results that live at once where little is made of them, and where functions are: the result and
/// what is added, the argument, its magnitude and its square, two polynomials, a condition.
const PLAIN_VECTORS: i64 = 2;
const FUNCTION_VECTORS: i64 = 7;

/// Products of a K step, at most, whose loop is short (nir_opt_gcm: less than 100 instructions), where copies need
/// little arithmetic; and where they are under the condition of a window.
const SHORT_PRODUCTS: i64 = 8;
const SHORT_PRODUCTS_OF_WINDOW: i64 = 4;
const HOISTED: i64 = 3;

/// The tile of a workgroup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FragmentTile {
    /// Subgroups along rows and along columns.
    pub subgroups: (i64, i64),
    /// Matrices of a subgroup along rows and along columns.
    pub pieces: (i64, i64),
    /// Elements of the reduction at a time.
    pub depth: i64,
}

/// What a lane holds beside sums where both operands are rows of neighbours, and little is made of the results.
pub(super) const PLAIN: Holdings =
    Holdings { vectors: [true; 2], wide: [false; 2], computed: [None; 2], windows: None, functions: false, others: 0 };

impl FragmentTile {
    pub(super) const fn new(subgroups: (i64, i64), pieces: (i64, i64), depth: i64) -> FragmentTile {
        FragmentTile { subgroups, pieces, depth }
    }
    /// From the most to the least, for matrices of 16 rows and columns.
    const LARGE: [FragmentTile; 5] = [
        FragmentTile::new((2, 2), (4, 4), DEPTH),
        FragmentTile::new((2, 2), (2, 4), DEPTH),
        FragmentTile::new((2, 2), (2, 2), DEPTH),
        FragmentTile::new((2, 2), (1, 2), DEPTH),
        FragmentTile::new((2, 2), (1, 1), DEPTH),
    ];
    /// The same for smaller ones, which more subgroups share: each copies less of the tiles and keeps less in
    /// registers.
    const SMALL: [FragmentTile; 9] = [
        FragmentTile::new((4, 4), (4, 2), DEPTH / 2),
        FragmentTile::new((2, 4), (4, 2), DEPTH / 2),
        FragmentTile::new((4, 4), (2, 2), DEPTH / 2),
        FragmentTile::new((8, 2), (2, 2), DEPTH / 2),
        FragmentTile::new((2, 2), (4, 2), DEPTH / 2),
        FragmentTile::new((4, 4), (2, 1), DEPTH),
        FragmentTile::new((2, 2), (2, 2), DEPTH / 2),
        FragmentTile::new((2, 2), (4, 1), DEPTH / 2),
        FragmentTile::new((2, 2), (2, 1), DEPTH),
    ];
    /// Those for a matrix shape.
    pub(super) fn all(m: Matrix) -> &'static [FragmentTile] {
        if m.m * m.n >= 256 { &FragmentTile::LARGE } else { &FragmentTile::SMALL }
    }
    /// Rows and columns of a subgroup.
    fn of_subgroup(&self, m: Matrix) -> (i64, i64) {
        (self.pieces.0 * m.m, self.pieces.1 * m.n)
    }
    /// Rows and columns of the workgroup.
    pub(super) fn size(&self, m: Matrix) -> (i64, i64) {
        let (rows, columns) = self.of_subgroup(m);
        (self.subgroups.0 * rows, self.subgroups.1 * columns)
    }
    /// Subgroups of the workgroup.
    pub(super) fn tasks(&self) -> i64 {
        self.subgroups.0 * self.subgroups.1
    }
    /// Bytes of workgroup memory: both operands, and a slice of each subgroup for its results.
    pub(super) fn shared_bytes(&self, m: Matrix) -> i64 {
        let (rows, columns) = self.size(m);
        (rows + columns) * (self.depth + PAD) * 2 + self.tasks() * m.m * m.n * 4
    }
    /// 32-bit registers of a lane for what it copies in a K step. A half that is loaded alone has one of its own, and
    /// one for its address; a run of neighbours out of a window has its place. Of halves that are computed, all
    /// operands are loaded before the first run of them is computed in f32.
    fn copied(&self, m: Matrix, lanes: i64, h: Holdings, few: bool) -> i64 {
        let (rows, columns) = self.size(m);
        let threads = self.tasks() * lanes;
        let own = [rows, columns].map(|n| n * self.depth);
        // Where registers are few, a thread that copies anything of an operand copies a run of it.
        let least = if self.copied_apart(m, lanes).is_some() || !few { 0 } else { RUN * threads };
        // What is f32 in memory stays so until it is stored.
        let of = |n: i64, vector: bool, wide: bool| if vector { least.max(n) * (1 + i64::from(wide)) } else { 4 * n };
        let moved: i64 = (0..2).map(|i| of(own[i], h.vectors[i], h.wide[i])).sum();
        let runs = if h.vectors[0] { (own[0] / threads + RUN - 1) / RUN } else { 0 };
        let of_run = h.windows.map_or(0, |quotients| REGISTERS_OF_RUN + quotients);
        let computed =
            |(n, c): (&i64, Option<i64>)| c.map_or(0, |others| n / threads / 2 * others + RUN.min(n / threads));
        moved / 2 / threads + runs * of_run + own.iter().zip(h.computed).map(computed).sum::<i64>()
    }
    /// How many times a lane has the operands of a matrix of depth in registers: those of a whole K step, or where
    /// compilers load a step's operands beside its products, those of three at most, and of the next.
    fn operands_held(&self, p: &DeviceProfile, m: Matrix) -> i64 {
        let all = (self.depth / m.k).max(1);
        if p.quirks.has(&UNROLLS_LOOPS) { all.min(3) + i64::from(all > 1) } else { all }
    }
    /// How many threads, from the first one on, copy the left operand's tile, where the others copy the right one's:
    /// each 16 bytes, and whole subgroups the one or the other. None where the workgroup is smaller than that, or all
    /// threads have 16 bytes of both.
    pub(super) fn copied_apart(&self, m: Matrix, lanes: i64) -> Option<i64> {
        let (rows, columns) = self.size(m);
        let [left, right] = [rows, columns].map(|n| n * self.depth / RUN);
        (left % lanes == 0 && right % lanes == 0 && left + right <= self.tasks() * lanes).then_some(left)
    }
    /// Whether a K step that copies out of a window is a short loop.
    pub(super) fn is_short(&self, m: Matrix) -> bool {
        self.pieces.0 * self.pieces.1 * self.depth / m.k <= SHORT_PRODUCTS_OF_WINDOW
    }
    /// Registers of a lane for the addresses of matrices that a compiler takes out of a short loop, beyond those that
    /// operands leave free which pass by.
    fn hoisted(&self, p: &DeviceProfile, m: Matrix, lanes: i64, h: Holdings) -> i64 {
        let products = self.pieces.0 * self.pieces.1 * self.depth / m.k;
        let plain = h.windows.is_none() && h.computed.iter().all(Option::is_none);
        let short = plain && products <= SHORT_PRODUCTS && self.copied_apart(m, lanes).is_none();
        if p.quirks.has(&UNROLLS_LOOPS) && short { HOISTED } else { 0 }
    }
    /// Whether a lane has the registers for a product: accumulators beside operands and what is loaded for the next K
    /// step, or beside what is made of the results.
    pub(super) fn is_held(&self, p: &DeviceProfile, m: Matrix, h: Holdings) -> bool {
        let (most, lanes) = (p.registers_of_largest_subgroup() - OTHERS, i64::from(p.subgroup.1.max(1)));
        let (rows, columns) = self.of_subgroup(m);
        let operands = (rows + columns) * m.k / 2 * self.operands_held(p, m);
        let results = if h.functions { FUNCTION_VECTORS } else { PLAIN_VECTORS } * VECTOR;
        let copied = self.copied(m, lanes, h, self.passing(p, m).is_some());
        let others = (operands / lanes + copied + self.hoisted(p, m, lanes, h)).max(results);
        most <= 0 || rows * columns / lanes + others + h.others <= most
    }
    /// Where registers are few, the operand whose matrices pass by those of the other one, which stay: the one that has
    /// more of them. Elsewhere all of both are loaded before the first product, which waits for fewer of them.
    pub(super) fn passing(&self, p: &DeviceProfile, m: Matrix) -> Option<MatrixRole> {
        let (left, right) = self.of_subgroup(m);
        p.has_few_registers().then_some(if right + m.m < left + m.n { MatrixRole::A } else { MatrixRole::B })
    }
    /// For the estimate, which asks for results of a thread as rows and columns.
    pub(super) fn in_numbers(&self, m: Matrix, lanes: i64, slices: i64) -> MatrixTile {
        let ((rows, columns), own) = (self.size(m), self.of_subgroup(m));
        let threads = self.tasks() * lanes;
        let results = (rows * columns / threads).max(1);
        let thread_rows = results.min(ROWS);
        let thread_columns = results / thread_rows;
        let tile = ProductTile { rows, columns, depth: self.depth, threads, thread_rows, thread_columns, slices };
        MatrixTile { tile, rows: own.0, columns: own.1, shared_bytes: self.shared_bytes(m) as u64 }
    }
    pub(super) fn listed(&self) -> Vec<i64> {
        vec![self.subgroups.0, self.subgroups.1, self.pieces.0, self.pieces.1]
    }
}

/// A shape's rows, columns and depth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrix {
    pub m: i64,
    pub n: i64,
    pub k: i64,
}

impl Matrix {
    pub(super) fn of(mnk: [u32; 3]) -> Matrix {
        let [m, n, k] = mnk.map(i64::from);
        Matrix { m, n, k }
    }
}

/// Rows and columns of a product that matrices are filled with, at least.
pub(super) const LEAST: i64 = 4;

/// The size of a product on matrix units.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatrixProduct {
    /// Results: batch, rows, columns.
    pub results: [i64; 3],
    /// Elements of the reduction.
    pub depth: i64,
    /// Elements of its innermost loop.
    pub channels: i64,
}

impl MatrixProduct {
    /// Into how many slices of whole K steps the reduction may be cut.
    pub(super) fn slices(&self, tile: &FragmentTile) -> Vec<i64> {
        let steps = if self.channels % tile.depth == 0 { self.channels / tile.depth } else { 1 };
        if self.results[0] == 1 { split_depth::slices(self.depth, steps) } else { vec![1] }
    }
    /// The tiles with their K steps whose workgroup fits the device.
    pub(super) fn fitting(p: &DeviceProfile, m: Matrix) -> Vec<FragmentTile> {
        let lanes = i64::from(p.subgroup.1.max(1));
        let (threads, shared) = (i64::from(p.max_invocations), i64::from(p.shared_memory));
        let depths: Vec<i64> = DEPTHS.into_iter().filter(|d| d % m.k == 0).collect();
        let all = FragmentTile::all(m).iter().flat_map(|t| depths.iter().map(|d| FragmentTile { depth: *d, ..*t }));
        all.filter(|t| t.tasks() * lanes <= threads && t.shared_bytes(m) <= shared).collect()
    }
    /// Those of `fitting` whose registers a lane has, with each number of slices; the smallest tile if there is none.
    pub(super) fn candidates(
        &self,
        p: &DeviceProfile,
        m: Matrix,
        fitting: &[FragmentTile],
        h: Holdings,
    ) -> Vec<(FragmentTile, i64)> {
        let with_slices = |t: &FragmentTile| self.slices(t).into_iter().map(|n| (*t, n)).collect::<Vec<_>>();
        let held = fitting.iter().filter(|t| t.is_held(p, m, h));
        let candidates: Vec<(FragmentTile, i64)> = held.flat_map(with_slices).collect();
        if !candidates.is_empty() {
            return candidates;
        }
        let smallest = fitting.iter().rfind(|t| t.depth == DEPTH.max(m.k)).or(fitting.last());
        smallest.iter().flat_map(|t| with_slices(t)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mesa's compiler for Intel spills some tiles and holds others (benches/results/driver-quirks.md).
    #[test]
    fn tiles_that_spill_are_not_held() {
        let p = DeviceProfile::named("bmg").expect("a profile");
        let m = Matrix { m: 8, n: 16, k: 16 };
        let held = |s, pieces, depth, h: Holdings| FragmentTile::new(s, pieces, depth).is_held(&p, m, h);
        assert!(held((4, 4), (4, 2), 16, PLAIN));
        assert!(held((2, 2), (2, 2), 16, PLAIN));
        assert!(!held((2, 2), (4, 1), 32, PLAIN), "two matrices of depth");
        assert!(!held((4, 4), (4, 2), 16, Holdings { functions: true, ..PLAIN }), "before GELU");
        assert!(!held((4, 4), (4, 2), 16, Holdings { vectors: [false; 2], ..PLAIN }), "single halves");
        let windows = Holdings { windows: Some(0), ..PLAIN };
        assert!(held((4, 4), (4, 2), 16, windows));
        assert!(!held((4, 4), (4, 2), 16, Holdings { windows: Some(1), ..PLAIN }), "a condition on a remainder");
        assert!(!held((2, 2), (4, 2), 16, PLAIN), "a short loop, all addresses of whose matrices live around it");
        assert!(!held((2, 2), (4, 2), 16, Holdings { computed: [Some(1), None], ..PLAIN }), "a scale on the way");
        assert!(!held((2, 2), (4, 2), 16, windows), "longer runs out of windows");
    }
}
