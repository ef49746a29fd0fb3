//! Matrix products and implicit-GEMM convolutions for real GPUs: workgroup tiles in shared memory, and register tiles
//! per thread.
//!
//! The reduction loops are fused into one K loop in the order (window, channel), so that a K step of 16 reads
//! consecutive channels. Tiles of both operands are in shared memory in the order `[k][row]` and `[k][column]`, so that
//! the threads of a subgroup read neighbouring words. The threads copy them together, 16 bytes per thread if memory
//! allows, and the tiles of the next step are loaded while this one is computed. A constant right operand is packed in
//! the order in which it is read.
//!
//! A thread computes a register tile of at most 8x8, or of 8x4 or 4x4 if registers are fewer, in pieces of 4 rows and 4
//! columns. The pieces are as far apart as the threads are wide, so that the vectors of neighbouring threads are
//! contiguous. A long reduction may be cut into slices ([`split_depth`](super::split_depth)) that become workgroups.
//! Every tile that fits the device, with each number of slices, is a candidate; the cheapest one is taken.

use super::analysis::{Contraction, Unit, contraction};
use super::candidate::Candidate;
use super::cooperate::{LOAD_BYTES, copy_cooperatively};
use super::direct;
use super::matmul_subgroup::pack_right;
use super::pooling::{PoolingWindow, inside, open_windows, tile_loops};
use super::sketch::{Decline, Sketch};
use super::split_depth::{slices, split_depth};
use super::tiles::{Depth, ProductTile};
use super::view::View;
use crate::candidate;
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::profile::quirks::{SINKS_LOADS, UNROLLS_LOOPS};
use crate::schedule::Axis;
use crate::schedule::DecomposeReduction;
use crate::schedule::FlattenBuffer;
use crate::schedule::PadReduction;
use crate::schedule::SoftwarePipeline;
use crate::schedule::StageInShared;
use crate::schedule::estimate::{KernelEstimate, product_kernels};
use crate::schedule::{ComputeAt, LocalScope};
use crate::tir::LoopKind;
use crate::traffic::SECTOR_BYTES;

/// Rows and columns of a product that tiles are made for, at least.
pub(super) const LEAST: i64 = 4;
/// Its depth, at least.
pub(super) const LEAST_DEPTH: i64 = 8;
/// Rows and columns of a piece of the register tile, at most.
const PIECE: i64 = 4;
/// Elements behind a row of the left tile: rows stay aligned to vectors, and the copy's stores go to different banks.
const PAD: i64 = 4;
/// Registers of a thread from which on 8x8 accumulators, both operands and what is loaded ahead fit beside addresses.
pub(super) const LARGE: u32 = 160;
/// The same for 8x4.
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
pub(super) struct Tile {
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

impl Tile {
    /// Columns of a workgroup.
    fn columns(&self) -> i64 {
        self.threads.0 * self.column_pieces * self.width
    }
    /// Loops over the columns of a thread.
    fn column_loops(&self) -> usize {
        usize::from(self.column_pieces > 1) + usize::from(self.width > 1)
    }
    fn in_numbers(&self) -> ProductTile {
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

/// The sizes of a product that the rule takes.
#[derive(Clone, Copy)]
struct Sizes {
    /// Batch, rows (those of windows included), columns, depth.
    all: [i64; 4],
    /// Rows of a window.
    taps: i64,
    lies: Depth,
}

/// The product of a unit: contractions with rows, columns and depth on devices with real cores; asked for by name, on
/// all.
fn product(view: &View<'_>, unit: &Unit) -> Result<(Contraction, Sizes), Decline> {
    let c = contraction(view, unit)?;
    if view.profile.software && !view.asked {
        return Err(Decline("shared memory does not pay on a software device".into()));
    }
    if c.m.is_empty() || c.n.is_empty() || c.k.is_empty() {
        return Err(Decline("the product has no rows or no columns".into()));
    }
    let taps = unit.window.as_ref().map_or(1, |w| w.taps);
    let (rows, columns, depth) = (view.product(&c.m) * taps, view.product(&c.n), view.product(&c.k));
    if rows < LEAST || columns < LEAST || depth < LEAST_DEPTH {
        return Err(Decline(format!("{rows} rows, {columns} columns and depth {depth} are too few for tiles")));
    }
    let all = [view.product(&c.batch), rows, columns, depth];
    let loops: Vec<i64> = c.k.iter().filter_map(|v| view.extent_of(*v)).collect();
    let lies = Depth::of(&loops, element_bytes(view, unit));
    Ok((c, Sizes { all, taps, lies }))
}

/// Every tile that fits the device, with each number of slices. With windows behind the product it is the tile that the
/// estimate found for both.
pub(super) fn candidates(view: &View<'_>, unit: &Unit) -> Result<Vec<Candidate>, Decline> {
    let known = view.once(unit, |view| product(view, unit));
    let (_, sizes) = known.as_ref().as_ref().map_err(Clone::clone)?;
    let tiles = Tiles::new(view.profile, *sizes);
    let usable = tiles.usable();
    let p = view.profile;
    let none = || format!("no tile fits {} threads and {} bytes of shared memory", p.max_invocations, p.shared_memory);
    let of_windows = unit.window.as_ref().and_then(|w| w.tile);
    let found = of_windows.and_then(|tile| usable.iter().find(|t| tiles.tile(t).in_numbers() == tile).copied());
    let first = found.or_else(|| tiles.usual(&usable)).ok_or_else(|| Decline(none()))?;
    let others = usable.into_iter().filter(|t| *t != first);
    let mut out = Vec::new();
    for t in std::iter::once(first).chain(others) {
        let usual = tiles.depth(&t);
        let depths = tiles.depths(&tiles.tile(&t));
        for depth in std::iter::once(usual).chain(depths.into_iter().filter(|d| *d != usual)) {
            for slices in tiles.slices(&t) {
                let one = Candidate::new(TiledProduct { tile: listed(&t), depth, slices });
                let asked = depth != usual || (unit.window.is_some() && t != first);
                out.push(if asked { one.on_request() } else { one });
            }
        }
    }
    Ok(out)
}

/// The kernels of the product in the candidate's tile. Products with windows are weighed with what they are joined to.
pub(super) fn price(view: &View<'_>, unit: &Unit, candidate: &Candidate) -> Vec<KernelEstimate> {
    let known = view.once(unit, |view| product(view, unit));
    let (Ok(chosen), Ok((_, sizes))) = (candidate.choices::<TiledProduct>(), &*known) else { return vec![] };
    let tiles = Tiles::new(view.profile, *sizes);
    let Some(tile) = tiles.of(chosen).filter(|_| unit.window.is_none()) else { return vec![] };
    let tile = ProductTile { slices: chosen.slices, ..tile.in_numbers() };
    product_kernels(view.stages(), [unit.name(), unit.output], &tile)
}

/// Schedules the unit in the candidate's tile.
pub(super) fn apply(sketch: &mut Sketch<'_>, unit: &Unit, candidate: &Candidate) -> Result<(), Decline> {
    let chosen = candidate.choices::<TiledProduct>()?;
    let (c, sizes) = product(&sketch.view(), unit)?;
    let tiles = Tiles::new(sketch.profile, sizes);
    let usable = tiles.usable();
    let domain: Vec<Vec<i64>> = usable.iter().map(listed).collect();
    let shape = sketch.choose("tile", &domain, chosen.tile.clone())?;
    let shape = tiles.of_list(&shape).ok_or_else(Decline::other_kind)?;
    let slices = tiles.slices(&shape);
    let mut tile = Tile { depth: chosen.depth, ..tiles.tile(&shape) };
    tile.depth = sketch.choose("depth", &tiles.depths(&tile), chosen.depth)?;
    let parts = if slices.len() > 1 { sketch.choose("slices", &slices, chosen.slices)? } else { 1 };
    match parts {
        1 => compute(sketch, unit, &c, &tile),
        parts => compute_slices(sketch, unit, &c, &tile, parts),
    }
}

/// Schedules slices of the reduction with this tile, and the sum of their results.
fn compute_slices(
    sketch: &mut Sketch<'_>,
    unit: &Unit,
    c: &Contraction,
    tile: &Tile,
    parts: i64,
) -> Result<(), Decline> {
    let part = split_depth(sketch, unit, c, parts)?;
    let c = contraction(&sketch.view(), &part)?;
    compute(sketch, &part, &c, tile)?;
    direct::compute(sketch, unit)
}

/// Schedules the unit with this tile.
fn compute(sketch: &mut Sketch<'_>, unit: &Unit, c: &Contraction, tile: &Tile) -> Result<(), Decline> {
    let reduce = unit.reduce.ok_or_else(Decline::other_kind)?;
    if c.right_constant {
        pack_right(sketch, c, tile.columns())?;
        flatten_depth(sketch, c)?;
    }
    let [m, n] = fuse_output(sketch, unit.output, c)?;
    let TileLoops { rows, columns, thread } = split_tile(sketch, [m, n], tile)?;
    sketch.bind(rows, Axis::GroupY)?;
    sketch.bind(columns, Axis::GroupX)?;
    if let Some(window) = &unit.window {
        open_windows(sketch, window, thread, tile.column_loops())?;
    }
    sketch.apply(ComputeAt { block: reduce, at: thread, scope: LocalScope::Register })?;
    accumulate(sketch, reduce, unit.window.as_ref(), c, thread, tile)
}

/// Makes one dimension of those that the reduction goes through in the packed right operand: its index is then that of
/// the K loop, with no division in it. They lie behind all others but the columns of a tile.
fn flatten_depth(sketch: &mut Sketch<'_>, c: &Contraction) -> Result<(), Decline> {
    let (Some(buffer), Some((_, ks))) = (c.right_buffer, &c.right_dims) else { return Ok(()) };
    let (name, columns) = (sketch.f.buffers[buffer].name, sketch.f.buffers[buffer].shape.len() - 1);
    if ks.len() > 1 {
        sketch.apply(FlattenBuffer { buffer: name, dims: (columns - ks.len()..columns).collect() })?;
    }
    Ok(())
}

/// Steps of the reduction whose operands compilers have in registers at once, and registers of a thread for addresses
/// that all share.
const STEPS_AHEAD: i64 = 3;
const OTHERS: i64 = 8;

/// Threads along columns and rows, pieces of rows and of columns, rows of a piece.
type Shape = (i64, i64, i64, i64, i64);

fn listed(t: &Shape) -> Vec<i64> {
    vec![t.0, t.1, t.2, t.3, t.4]
}

/// The tiles that a product can have on a device, largest first.
struct Tiles<'p> {
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
    fn new(profile: &DeviceProfile, sizes: Sizes) -> Tiles<'_> {
        let Sizes { all: [batch, rows, columns, whole], taps, lies } = sizes;
        let width = [4, 2, 1].into_iter().find(|w| columns % w == 0).unwrap_or(1);
        Tiles { profile, size: (batch, rows, columns), taps, whole, lies, width }
    }
    /// Elements of the reduction that a workgroup has at a time: so many that each thread loads 16 bytes of both
    /// operands.
    fn depth(&self, t: &Shape) -> i64 {
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
        if !straight_sinks && self.whole == 2 * DEPTH && self.fits(t, self.whole) {
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
    fn goes_odd(&self, rows: i64, columns: i64, threads: i64) -> bool {
        let run = LOAD_BYTES / self.lies.bytes[1];
        let shared = [rows, columns].iter().all(|n| n * ODD_DEPTH % (run * threads) == 0);
        self.whole == ODD_DEPTH || self.lies.channels % ODD_DEPTH == 0 && shared
    }
    /// True when tiles of both operands, so deep, fit the workgroup's memory.
    fn fits(&self, t: &Shape, depth: i64) -> bool {
        (self.rows(t) + PAD + self.columns(t)) * depth * 4 <= i64::from(self.profile.shared_memory)
    }
    /// True when a thread has the registers for single elements of `depth`, each with its address and a condition,
    /// beside vectors of the right operand, sums, and the operands of the steps that compilers load ahead, each vector
    /// with its address.
    fn holds_single(&self, t: &Shape, depth: i64) -> bool {
        let (rows, columns, threads) = (self.rows(t), self.columns(t), t.0 * t.1);
        let own = [rows, columns].map(|n| (n * depth + threads - 1) / threads);
        let of_thread = [rows / t.1, columns / t.0];
        let step: i64 = of_thread.iter().map(|n| n + (n + PIECE - 1) / PIECE).sum();
        let held = of_thread[0] * of_thread[1] + 3 * own[0] + own[1] + STEPS_AHEAD * step + OTHERS;
        self.profile.software || self.profile.registers == 0 || held <= i64::from(self.profile.registers)
    }
    /// The possible depths of a tile.
    fn depths(&self, tile: &Tile) -> Vec<i64> {
        let n = tile.in_numbers();
        let fits = |depth: &i64| (n.rows + PAD + n.columns) * depth * 4 <= i64::from(self.profile.shared_memory);
        let odd = Some(ODD_DEPTH).filter(|_| self.goes_odd(n.rows, n.columns, n.threads));
        [2 * DEPTH, DEPTH, DEPTH / 2].into_iter().chain(odd).chain(self.lies.row).filter(fits).collect()
    }
    /// A thread has whole windows.
    fn rows(&self, t: &Shape) -> i64 {
        t.1 * (t.2 * t.4 / self.taps).max(1) * self.taps
    }
    fn columns(&self, t: &Shape) -> i64 {
        t.0 * t.3 * self.width
    }
    fn groups(&self, t: &Shape) -> i64 {
        let over = |n: i64, by: i64| (n + by - 1) / by;
        self.size.0 * over(self.size.1, self.rows(t)) * over(self.size.2, self.columns(t))
    }
    /// Those that fit the device.
    fn usable(&self) -> Vec<Shape> {
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
    fn usual(&self, usable: &[Shape]) -> Option<Shape> {
        let cores = i64::from(self.profile.cores);
        let threads = |t: &Shape| self.groups(t) * t.0 * t.1;
        let enough = |t: &&Shape| self.groups(t) >= 2 * cores && threads(t) >= THREADS_A_CORE * cores;
        let whole = |t: &&Shape| t.4 == PIECE;
        usable.iter().find(enough).or(usable.iter().rev().find(whole)).copied()
    }
    /// The numbers of slices that the reduction may be cut into.
    fn slices(&self, t: &Shape) -> Vec<i64> {
        let step = self.depth(t);
        let steps = if self.lies.channels % step == 0 { self.lies.channels / step } else { 1 };
        if self.size.0 > 1 || self.taps > 1 { vec![1] } else { slices(self.whole, steps) }
    }
    fn of_list(&self, list: &[i64]) -> Option<Shape> {
        self.usable().into_iter().find(|t| listed(t) == list)
    }
    /// The tile of a candidate; `None` where it does not fit the device.
    fn of(&self, chosen: &TiledProduct) -> Option<Tile> {
        Some(Tile { depth: chosen.depth, ..self.tile(&self.of_list(&chosen.tile)?) })
    }
    /// Tiles, each with every number of slices that the reduction may be cut into; with windows behind the product
    /// there is one.
    fn candidates(&self) -> Vec<ProductTile> {
        let usable = self.usable();
        let each = |t: Shape| {
            let tile = self.tile(&t).in_numbers();
            self.slices(&t).into_iter().map(move |n| ProductTile { slices: n, ..tile })
        };
        usable.into_iter().flat_map(each).collect()
    }
    fn tile(&self, t: &Shape) -> Tile {
        let of_thread = self.rows(t) / t.1;
        // Pieces of whole windows, where those are vectors.
        let windows = self.taps == 1 || of_thread % PIECE == 0 && PIECE % self.taps == 0;
        let (row_pieces, rows) = if windows { (t.2, of_thread / t.2) } else { (1, of_thread) };
        let (taps, width, depth) = (self.taps, self.width, self.depth(t));
        Tile { threads: (t.0, t.1), row_pieces, rows, taps, column_pieces: t.3, width, depth }
    }
}

/// Bytes of an element of the narrower and of the wider operand in device memory.
fn element_bytes(view: &View<'_>, unit: &Unit) -> [i64; 2] {
    let loads = view.block(unit.name()).map_or(vec![], |b| b.value.loads());
    Depth::bytes(loads.iter().map(|l| view.f.buffers[l.0].dtype))
}

/// The tiles that a product of `[batch, rows, columns, depth]` may have, rows of windows included, each with the slices
/// that its reduction may be cut into.
pub(super) fn product_tiles(p: &DeviceProfile, size: [i64; 4], taps: i64, lies: Depth) -> Vec<ProductTile> {
    Tiles::new(p, Sizes { all: size, taps, lies }).candidates()
}

/// Makes one loop of the rows of a product's result, and one of its columns; batches become workgroups.
pub(super) fn fuse_output(sketch: &mut Sketch<'_>, out: Name, c: &Contraction) -> Result<[Name; 2], Decline> {
    let order: Vec<Name> = c.batch.iter().chain(&c.m).chain(&c.n).copied().collect();
    sketch.reorder(&order)?;
    if !c.batch.is_empty() {
        let b = sketch.fuse(&c.batch, Name::new(&format!("{out}_b")))?;
        sketch.bind(b, Axis::GroupZ)?;
    }
    let m = sketch.fuse(&c.m, Name::new(&format!("{out}_m")))?;
    let n = sketch.fuse(&c.n, Name::new(&format!("{out}_n")))?;
    Ok([m, n])
}

/// Loops of a product's result in tiles.
#[derive(Clone, Copy)]
pub(super) struct TileLoops {
    /// Over tiles of rows.
    pub rows: Name,
    /// Over tiles of columns.
    pub columns: Name,
    /// The innermost loop over threads.
    pub thread: Name,
}

/// Splits the loops over a result's rows and columns into tiles, threads and what a thread computes.
pub(super) fn split_tile(sketch: &mut Sketch<'_>, [m, n]: [Name; 2], tile: &Tile) -> Result<TileLoops, Decline> {
    let rows = sketch.split(m, &[0, tile.row_pieces, tile.threads.1, tile.rows / tile.taps], &["o", "p", "t", "i"])?;
    let columns = sketch.split(n, &[0, tile.column_pieces, tile.threads.0, tile.width], &["o", "p", "t", "v"])?;
    sketch.reorder(&[rows[0], columns[0], rows[2], columns[2], rows[1], rows[3], columns[1], columns[3]])?;
    sketch.bind(rows[2], Axis::LocalY)?;
    sketch.bind(columns[2], Axis::LocalX)?;
    for l in [rows[1], rows[3], columns[1]] {
        sketch.unroll(l)?;
    }
    sketch.vectorize(columns[3])?;
    Ok(TileLoops { rows: rows[0], columns: columns[0], thread: columns[2] })
}

/// Sums up a product, computed at loop `thread`, in tiles of its operands.
pub(super) fn accumulate(
    sketch: &mut Sketch<'_>,
    reduce: Name,
    window: Option<&PoolingWindow>,
    c: &Contraction,
    thread: Name,
    tile: &Tile,
) -> Result<(), Decline> {
    let columns = tile.column_loops();
    let spatial = match window {
        Some(_) => tile_loops(sketch, reduce, thread, (usize::from(tile.row_pieces > 1), columns))?,
        None => spatial_loops(sketch, reduce, thread)?,
    };
    let mut order = c.k.clone();
    order.extend(&spatial);
    sketch.reorder(&order)?;
    let k = sketch.fuse(&c.k, Name::new(&format!("{reduce}_k")))?;
    let k = sketch.split(k, &[0, tile.depth], &["o", "i"])?;
    sketch.apply(PadReduction { block: reduce })?;
    let (a, w) = (Name::new(&format!("{reduce}_a")), Name::new(&format!("{reduce}_w")));
    // `[k][piece][thread][row]`, and the same for columns.
    let piece = |at: usize, pieces: i64| spatial.get(at).copied().filter(|_| pieces > 1);
    let first_column = spatial.len().saturating_sub(columns);
    let order_of = |piece: Option<Name>| std::iter::once(k[1]).chain(piece).collect::<Vec<Name>>();
    let left = (c.left, a, order_of(piece(0, tile.row_pieces)), PAD);
    let right = (1 - c.left, w, order_of(piece(first_column, tile.column_pieces)), 0);
    for (operand, into, order, pad) in [left, right] {
        sketch.apply(StageInShared {
            block: reduce,
            operand: operand.to_string(),
            at: k[0],
            into,
            order,
            pad,
            ..Default::default()
        })?;
        copy_cooperatively(sketch, into, k[0], tile.threads)?;
    }
    sketch.apply(DecomposeReduction { block: reduce, at: k[0] })?;
    let always = !sketch.profile.quirks.has(&SINKS_LOADS);
    sketch.apply(SoftwarePipeline { r#loop: k[0], buffers: vec![a, w], double_buffer: false, always })?;
    let of = |block: Name| [Name::new(&format!("{block}_init")), block];
    for block in of(reduce).into_iter().chain(window.into_iter().flat_map(|w| of(w.block))) {
        unroll_tile(sketch, block, thread, k[0])?;
    }
    Ok(())
}

/// The loops of the tile inside `at` that are no reduction's.
fn spatial_loops(sketch: &Sketch<'_>, block: Name, at: Name) -> Result<Vec<Name>, Decline> {
    let reductions = sketch.f.reduction_loops(block);
    Ok(inside(sketch, block, at)?.into_iter().filter(|v| !reductions.contains(v)).collect())
}

/// Unrolls the serial loops of `block` inside `thread` but for `keep`; the innermost becomes a vector where it can.
fn unroll_tile(sketch: &mut Sketch<'_>, block: Name, thread: Name, keep: Name) -> Result<(), Decline> {
    let reductions = sketch.f.reduction_loops(block);
    let loops = sketch.loops(block)?;
    let start = loops.iter().position(|l| l.var == thread).map_or(0, |p| p + 1);
    let inner: Vec<_> =
        loops[start..].iter().filter(|l| l.kind == LoopKind::Serial && l.var != keep).cloned().collect();
    for (i, l) in inner.iter().enumerate() {
        let vector = i + 1 == inner.len() && matches!(l.extent.as_const(), Some(2 | 4));
        if vector && !reductions.contains(&l.var) && sketch.vectorize(l.var).is_ok() {
            continue;
        }
        sketch.unroll(l.var)?;
    }
    Ok(())
}
