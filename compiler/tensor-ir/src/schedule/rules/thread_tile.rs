//! Tiles of products on real GPUs: threads of a workgroup, and the register tile of a thread.

use super::cooperate::LOAD_BYTES;
use super::split_depth::slices;
use crate::candidate;
use crate::profile::DeviceProfile;
use crate::profile::quirks::UNROLLS_LOOPS;
use crate::schedule::tiles::{Depth, LARGE, PAD, ProductSize, ProductTile};
use crate::traffic::SECTOR_BYTES;

/// Rows and columns of a product that tiles are made for, at least.
pub(super) const LEAST: i64 = 4;
/// Its depth, at least.
pub(super) const LEAST_DEPTH: i64 = 8;
/// Rows and columns of a piece of the register tile, at most.
const PIECE: i64 = 4;
/// As [`LARGE`], for 8x4.
const MIDDLE: u32 = 96;

/// Elements of the reduction that a workgroup has at a time.
const DEPTH: i64 = 16;
/// The same for reductions like 24, 72 and 120, which leave half of that over.
const ODD_DEPTH: i64 = 24;

/// Threads for each core that keep its schedulers busy.
const THREADS_A_CORE: i64 = 256;

/// Threads along rows and columns, and the register tile of a thread in pieces; with windows behind the product, their
/// elements are rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadTile {
    pub threads: (i64, i64),
    /// Pieces of rows of a thread.
    pub row_pieces: i64,
    /// Rows of a piece.
    pub rows: i64,
    /// Rows of a window, which make one row of the output.
    pub taps: i64,
    /// Pieces of columns of a thread.
    pub column_pieces: i64,
    /// Columns of a piece, all of one vector.
    pub width: i64,
    pub depth: i64,
}

impl ThreadTile {
    /// Columns of a workgroup.
    pub(super) fn columns(&self) -> i64 {
        self.threads.0 * self.column_pieces * self.width
    }
    /// Loops over the columns of a thread.
    pub(super) fn column_loops(&self) -> usize {
        usize::from(self.column_pieces > 1) + usize::from(self.width > 1)
    }
    pub(super) fn in_numbers(&self) -> ProductTile {
        let thread_rows = self.row_pieces * self.rows;
        ProductTile {
            rows: self.threads.1 * thread_rows,
            columns: self.columns(),
            depth: self.depth,
            threads: self.threads.0 * self.threads.1,
            thread_rows,
            thread_columns: self.column_pieces * self.width,
            slices: 1,
        }
    }
}

candidate! {
    /// A tile of a product, the depth of its K steps, and the slices of its reduction.
    pub(super) struct TiledProduct {
        /// Threads along columns and rows, pieces of rows and of columns, rows of a piece.
        pub tile: Vec<i64>,
        /// Elements of the reduction that a workgroup has at a time.
        pub depth: i64,
        /// Slices of the reduction that are workgroups of their own.
        pub slices: i64,
    }
}

/// Elements that a thread copies before straight code without a loop, at most: compilers load the operands of all its
/// steps ahead, too.
const MOST_STRAIGHT: i64 = 32;
/// Steps of the reduction whose operands compilers have in registers at once, and registers of a thread for addresses
/// that all share.
const STEPS_AHEAD: i64 = 3;
const OTHERS: i64 = 8;

/// Threads along columns and rows, pieces of rows and of columns, rows of a piece.
pub(super) type Shape = (i64, i64, i64, i64, i64);

pub(super) fn listed(t: &Shape) -> Vec<i64> {
    vec![t.0, t.1, t.2, t.3, t.4]
}

/// The tiles that a product can have on a device, largest first.
pub(super) struct Tiles<'p> {
    profile: &'p DeviceProfile,
    /// Batch, rows and columns.
    size: (i64, i64, i64),
    taps: i64,
    /// Elements of the reduction.
    whole: i64,
    lies: Depth,
    width: i64,
}

impl Tiles<'_> {
    pub(super) fn new(profile: &DeviceProfile, size: ProductSize) -> Tiles<'_> {
        let ProductSize { all: [batch, rows, columns, whole], taps, lies } = size;
        let width = [4, 2, 1].into_iter().find(|w| columns % w == 0).unwrap_or(1);
        Tiles { profile, size: (batch, rows, columns), taps, whole, lies, width }
    }
    /// Elements of the reduction that a workgroup has at a time: so many that each thread loads 16 bytes of both
    /// operands.
    pub(super) fn depth(&self, t: &Shape) -> i64 {
        if self.lies.channels % PIECE != 0 {
            // Elements that are copied one by one each take an address and conditions: half as many at a time, or those
            // of a row of windows, which lie alike in each row.
            return self.lies.row.filter(|n| self.fits(t, *n) && self.holds_single(t, *n)).unwrap_or(DEPTH / 2);
        }
        let (run, threads) = (LOAD_BYTES / self.lies.bytes[1], t.0 * t.1);
        let straight_sinks = self.profile.quirks.has(&UNROLLS_LOOPS);
        let whole_sectors = DEPTH / 2 * self.lies.bytes[0] % SECTOR_BYTES == 0;
        if straight_sinks && (self.whole == ODD_DEPTH || self.whole == DEPTH && whole_sectors) {
            // If the K loop is fully unrolled, the driver sinks each prefetch load to its store, so prefetching does
            // not help.
            return DEPTH / 2;
        }
        let copied = (self.rows(t) + self.columns(t)) * self.whole / threads;
        if !straight_sinks && self.whole == 2 * DEPTH && copied <= MOST_STRAIGHT && self.fits(t, self.whole) {
            // With two steps at most, everything is loaded at once, and there is no wait in between.
            return self.whole;
        }
        if self.lies.channels % DEPTH != 0 && self.goes_odd(self.rows(t), self.columns(t), threads) {
            return ODD_DEPTH;
        }
        // Halves of whole vectors alone: what is copied in single elements gains nothing by more of them. And the
        // address in a window takes as much where a thread has few results.
        let halves = run > PIECE && self.rows(t).min(self.columns(t)) * DEPTH < run * threads;
        let short = self.width == PIECE && (halves || t.4 < PIECE && self.whole > self.lies.channels);
        if short && self.lies.channels % (2 * DEPTH) == 0 && self.fits(t, 2 * DEPTH) { 2 * DEPTH } else { DEPTH }
    }
    /// True when [`ODD_DEPTH`] goes through the reduction without a rest, and either is all of it or threads share its
    /// copies without one: in a loop, what some threads alone copy stands under a condition each time.
    pub(super) fn goes_odd(&self, rows: i64, columns: i64, threads: i64) -> bool {
        let run = LOAD_BYTES / self.lies.bytes[1];
        let shared = [rows, columns].iter().all(|n| n * ODD_DEPTH % (run * threads) == 0);
        self.whole == ODD_DEPTH || self.lies.channels % ODD_DEPTH == 0 && shared
    }
    /// True when tiles of both operands, so deep, fit the workgroup's memory.
    pub(super) fn fits(&self, t: &Shape, depth: i64) -> bool {
        (self.rows(t) + PAD + self.columns(t)) * depth * 4 <= i64::from(self.profile.shared_memory)
    }
    /// True when a thread has the registers for single elements of `depth`, each with its address and a condition,
    /// beside vectors of the right operand, sums, and the operands of the steps that compilers load ahead, each vector
    /// with its address.
    pub(super) fn holds_single(&self, t: &Shape, depth: i64) -> bool {
        let (rows, columns, threads) = (self.rows(t), self.columns(t), t.0 * t.1);
        let own = [rows, columns].map(|n| (n * depth + threads - 1) / threads);
        let of_thread = [rows / t.1, columns / t.0];
        let step: i64 = of_thread.iter().map(|n| n + (n + PIECE - 1) / PIECE).sum();
        let held = of_thread[0] * of_thread[1] + 3 * own[0] + own[1] + STEPS_AHEAD * step + OTHERS;
        self.profile.registers == 0 || held <= i64::from(self.profile.registers)
    }
    /// The possible depths of a tile.
    pub(super) fn depths(&self, tile: &ThreadTile) -> Vec<i64> {
        let n = tile.in_numbers();
        let fits = |depth: &i64| (n.rows + PAD + n.columns) * depth * 4 <= i64::from(self.profile.shared_memory);
        let odd = Some(ODD_DEPTH).filter(|_| self.goes_odd(n.rows, n.columns, n.threads));
        [2 * DEPTH, DEPTH, DEPTH / 2].into_iter().chain(odd).chain(self.lies.row).filter(fits).collect()
    }
    /// A thread has whole windows.
    pub(super) fn rows(&self, t: &Shape) -> i64 {
        t.1 * (t.2 * t.4 / self.taps).max(1) * self.taps
    }
    pub(super) fn columns(&self, t: &Shape) -> i64 {
        t.0 * t.3 * self.width
    }
    pub(super) fn groups(&self, t: &Shape) -> i64 {
        let over = |n: i64, by: i64| (n + by - 1) / by;
        self.size.0 * over(self.size.1, self.rows(t)) * over(self.size.2, self.columns(t))
    }
    /// Those that fit the device.
    pub(super) fn usable(&self) -> Vec<Shape> {
        let p = self.profile;
        let all: &[Shape] = match p.registers {
            LARGE.. => &[
                (16, 16, 2, 2, 4),
                (16, 8, 2, 2, 4),
                (8, 8, 2, 2, 4),
                (8, 8, 2, 1, 4),
                (16, 8, 1, 1, 4),
                (8, 16, 1, 1, 4),
                (8, 8, 1, 1, 4),
                (8, 16, 1, 1, 2),
                (8, 8, 1, 1, 2),
            ],
            MIDDLE..LARGE => &[
                (16, 16, 2, 1, 4),
                (16, 8, 2, 1, 4),
                (8, 8, 2, 1, 4),
                (16, 8, 1, 1, 4),
                (8, 16, 1, 1, 4),
                (8, 8, 1, 1, 4),
                (8, 16, 1, 1, 2),
                (8, 8, 1, 1, 2),
            ],
            _ => &[(16, 16, 1, 1, 4), (16, 8, 1, 1, 4), (8, 8, 1, 1, 4), (8, 16, 1, 1, 2), (8, 8, 1, 1, 2)],
        };
        let fits = |t: &&Shape| t.0 * t.1 <= i64::from(p.max_invocations) && self.fits(t, self.depth(t));
        all.iter().filter(fits).copied().collect()
    }
    /// The largest of them that leaves every core enough to do, else the smallest: for products that the estimate
    /// cannot weigh.
    pub(super) fn usual(&self, usable: &[Shape]) -> Option<Shape> {
        let cores = i64::from(self.profile.cores);
        let threads = |t: &Shape| self.groups(t) * t.0 * t.1;
        let enough = |t: &&Shape| self.groups(t) >= 2 * cores && threads(t) >= THREADS_A_CORE * cores;
        let whole = |t: &&Shape| t.4 == PIECE;
        usable.iter().find(enough).or(usable.iter().rev().find(whole)).copied()
    }
    /// The numbers of slices that the reduction may be cut into.
    pub(super) fn slices(&self, t: &Shape) -> Vec<i64> {
        let step = self.depth(t);
        let steps = if self.lies.channels % step == 0 { self.lies.channels / step } else { 1 };
        if self.size.0 > 1 || self.taps > 1 { vec![1] } else { slices(self.whole, steps) }
    }
    pub(super) fn of_list(&self, list: &[i64]) -> Option<Shape> {
        self.usable().into_iter().find(|t| listed(t) == list)
    }
    /// The tile of a candidate; `None` where it does not fit the device.
    pub(super) fn of(&self, chosen: &TiledProduct) -> Option<ThreadTile> {
        Some(ThreadTile { depth: chosen.depth, ..self.tile(&self.of_list(&chosen.tile)?) })
    }
    /// Tiles, each with every number of slices that the reduction may be cut into; with windows behind the product
    /// there is one.
    pub(super) fn candidates(&self) -> Vec<ProductTile> {
        let usable = self.usable();
        let each = |t: Shape| {
            let tile = self.tile(&t).in_numbers();
            self.slices(&t).into_iter().map(move |n| ProductTile { slices: n, ..tile })
        };
        usable.into_iter().flat_map(each).collect()
    }
    pub(super) fn tile(&self, t: &Shape) -> ThreadTile {
        let of_thread = self.rows(t) / t.1;
        // Pieces of whole windows, where those are vectors.
        let windows = self.taps == 1 || of_thread % PIECE == 0 && PIECE % self.taps == 0;
        let (row_pieces, rows) = if windows { (t.2, of_thread / t.2) } else { (1, of_thread) };
        let (taps, width, depth) = (self.taps, self.width, self.depth(t));
        ThreadTile { threads: (t.0, t.1), row_pieces, rows, taps, column_pieces: t.3, width, depth }
    }
}
