//! Matrix products and implicit-GEMM convolutions on matrix units: a subgroup multiplies fragments of f16 into accumulators of f32.
//!
//! Tiles of both operands lie in workgroup memory as they came from device memory, in f16, as `[row][k]` and `[column][k]`, padded so that
//! rows begin in different banks; all threads copy them, 16 bytes at a time, and the next K step's are loaded while this one is
//! computed. The subgroups share out the workgroup's tile: each has `pieces` of rows and of columns, a matrix each. Results go
//! through a slice of workgroup memory of the subgroup's own, from where its lanes take them for what is fused behind the product.
//! How many lanes there are, no address knows.
//!
//! Where the grid leaves cores idle, a long reduction may be cut into slices ([`split_depth`](super::split_depth)) that become workgroups,
//! and a second kernel sums their results: where the estimate says that this takes less.

use super::analysis::{Contraction, Unit, contraction};
use super::cooperate::copy_cooperatively;
use super::direct;
use super::matmul_tiled::fuse_output;
use super::pooling::inside;
use super::sketch::{Decline, Sketch};
use super::split_depth::{slices, split_depth};
use super::tiles::ProductTile;
use crate::dtype::DType;
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::schedule::estimate::product_costs;
use crate::schedule::{
    Axis, ComputeAt, DecomposeReduction, FlattenBuffer, LocalScope, PadReduction, SoftwarePipeline, SplitEpilogue,
    StageInFragment, StageInShared, Tensorize, TransformLayout,
};
use crate::tir::{LoopKind, MatrixRole};

/// Elements of the reduction that a workgroup has at a time.
const DEPTH: i64 = 32;
/// Elements behind a row of a staged tile: 16 bytes.
const PAD: i64 = 8;
/// Registers of a lane for addresses and conditions.
const OTHERS: i64 = 8;
/// Neighbours of a result that a lane computes at once.
const VECTOR: i64 = 4;

/// Rows of a lane's results, at most, where it has more of them.
const ROWS: i64 = 8;

/// Steps of a reduction that drivers unroll whole, at most, where they unroll at all: they load the elements of all steps before the
/// first is computed.
const UNROLLED_STEPS: i64 = 8;

/// Rows and columns of a product that matrices are filled with, at least.
const LEAST: i64 = 4;

/// What a workgroup computes at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tile {
    /// Subgroups along rows and along columns.
    pub subgroups: (i64, i64),
    /// Matrices of a subgroup along rows and along columns.
    pub pieces: (i64, i64),
    /// Elements of the reduction at a time.
    pub depth: i64,
}

impl Tile {
    pub(super) const fn new(subgroups: (i64, i64), pieces: (i64, i64), depth: i64) -> Tile {
        Tile { subgroups, pieces, depth }
    }
    /// From the most to the least, for matrices of 16 rows and columns.
    const LARGE: [Tile; 5] = [
        Tile::new((2, 2), (4, 4), DEPTH),
        Tile::new((2, 2), (2, 4), DEPTH),
        Tile::new((2, 2), (2, 2), DEPTH),
        Tile::new((2, 2), (1, 2), DEPTH),
        Tile::new((2, 2), (1, 1), DEPTH),
    ];
    /// The same for smaller ones, which more subgroups share: each copies less of the tiles and keeps less in registers.
    const SMALL: [Tile; 5] = [
        Tile::new((4, 4), (4, 2), DEPTH / 2),
        Tile::new((4, 4), (4, 1), DEPTH),
        Tile::new((4, 4), (2, 1), DEPTH),
        Tile::new((2, 2), (4, 1), DEPTH / 2),
        Tile::new((2, 2), (2, 1), DEPTH),
    ];
    /// Those for a matrix shape.
    fn all(m: Matrix) -> &'static [Tile] {
        if m.m * m.n >= 256 { &Tile::LARGE } else { &Tile::SMALL }
    }
    /// 32-bit registers that a lane needs where a subgroup has so many: accumulators, the operands of a K step, and what is loaded
    /// for the next one.
    fn registers(&self, m: Matrix, lanes: i64) -> i64 {
        let (rows, columns) = (self.pieces.0 * m.m, self.pieces.1 * m.n);
        rows * columns / lanes + (rows + columns) * self.depth / 2 / lanes + self.copied(m, lanes)
    }
    /// 32-bit registers of a lane for what it copies in a K step.
    fn copied(&self, m: Matrix, lanes: i64) -> i64 {
        let (rows, columns) = (self.subgroups.0 * self.pieces.0 * m.m, self.subgroups.1 * self.pieces.1 * m.n);
        (rows + columns) * self.depth / 2 / (self.subgroups.0 * self.subgroups.1 * lanes)
    }
    /// Whether a lane has the registers for a reduction of so many elements.
    pub(super) fn is_held(&self, p: &DeviceProfile, m: Matrix, reduction: i64) -> bool {
        let (most, lanes) = (p.registers_of_largest_subgroup() - OTHERS, i64::from(p.subgroup.1.max(1)));
        let steps = (reduction + self.depth - 1) / self.depth;
        let others = if p.unrolls_loops() && steps <= UNROLLED_STEPS { (steps - 1).max(0) } else { 0 };
        most <= 0 || self.registers(m, lanes) + others * self.copied(m, lanes) <= most
    }
    /// For the estimate, which asks for results of a thread as rows and columns.
    fn in_numbers(&self, m: Matrix, lanes: i64, slices: i64) -> ProductTile {
        let (rows, columns) = (self.subgroups.0 * self.pieces.0 * m.m, self.subgroups.1 * self.pieces.1 * m.n);
        let threads = self.subgroups.0 * self.subgroups.1 * lanes;
        let results = (rows * columns / threads).max(1);
        let thread_rows = results.min(ROWS);
        ProductTile {
            rows,
            columns,
            depth: self.depth,
            threads,
            thread_rows,
            thread_columns: results / thread_rows,
            slices,
        }
    }
    fn listed(&self) -> Vec<i64> {
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

/// Takes products of f16 operands on devices with matrix units; asked for by name, on software devices too.
pub(super) fn apply(sketch: &mut Sketch<'_>, unit: &Unit) -> Result<(), Decline> {
    let c = contraction(sketch, unit)?;
    let reduce = unit.reduce.ok_or_else(Decline::other_kind)?;
    let shapes = sketch.profile.matrix_units().map_err(|why| Decline(why.into()))?;
    if shapes.is_empty() {
        return Err(Decline::other_kind());
    }
    if sketch.profile.software && !sketch.asked {
        return Err(Decline("matrix units of a software device are slower than its vectors".into()));
    }
    if unit.window.is_some() {
        return Err(Decline("windows stand behind the product".into()));
    }
    if c.m.is_empty() || c.n.is_empty() || c.k.is_empty() {
        return Err(Decline("the product has no rows or no columns".into()));
    }
    check_types(sketch, reduce)?;
    let names: Vec<String> = shapes.iter().map(|s| s.mnk.map(|n| n.to_string()).join("x")).collect();
    let shape = sketch.choose("matrix", &names, names[0].clone())?;
    let mnk = names.iter().position(|n| *n == shape).map_or(shapes[0].mnk, |at| shapes[at].mnk);
    let matrix = Matrix::of(mnk);
    let (tile, parts) = choose_tile(sketch, unit, &c, matrix)?;
    if parts > 1 {
        let whole = sketch.clone();
        match compute_slices(sketch, unit, &c, (matrix, tile), parts) {
            Ok(()) => return Ok(()),
            Err(_) => *sketch = whole,
        }
    }
    compute(sketch, unit, reduce, &c, matrix, tile)
}

/// Schedules slices of the reduction with this tile, and the sum of their results.
fn compute_slices(
    sketch: &mut Sketch<'_>,
    unit: &Unit,
    c: &Contraction,
    (matrix, tile): (Matrix, Tile),
    parts: i64,
) -> Result<(), Decline> {
    let part = split_depth(sketch, unit, c, parts)?;
    let c = contraction(sketch, &part)?;
    let reduce = part.reduce.ok_or_else(Decline::other_kind)?;
    compute(sketch, &part, reduce, &c, matrix, tile)?;
    direct::apply(sketch, unit)
}

/// Operands are f16 in memory, and sums f32.
fn check_types(sketch: &Sketch<'_>, reduce: Name) -> Result<(), Decline> {
    let blocks = sketch.f.body.blocks();
    let block = blocks.iter().find(|b| b.name == reduce).ok_or_else(Decline::other_kind)?;
    if sketch.f.buffers[block.buffer].dtype != DType::F32 {
        return Err(Decline("the product does not add up in f32".into()));
    }
    let wide = block.value.loads().into_iter().map(|l| &sketch.f.buffers[l.0]).find(|b| b.dtype != DType::F16);
    wide.map_or(Ok(()), |b| Err(Decline(format!("`{}` is {}, matrix units take f16", b.name, b.dtype))))
}

/// The largest tile that leaves every core a workgroup, else the smallest or, where that takes less, any with the reduction in slices.
/// Also the number of slices.
fn choose_tile(sketch: &mut Sketch<'_>, unit: &Unit, c: &Contraction, m: Matrix) -> Result<(Tile, i64), Decline> {
    let p = sketch.profile;
    let product = |names: &[Name]| -> i64 { names.iter().filter_map(|v| sketch.extent_of(*v)).product() };
    let (batch, rows, columns) = (product(&c.batch), product(&c.m), product(&c.n));
    if rows < LEAST || columns < LEAST {
        return Err(Decline(format!("{rows} rows and {columns} columns are too few for matrices")));
    }
    let lanes = i64::from(p.subgroup.1.max(1));
    let size = |t: &Tile| (t.subgroups.0 * t.pieces.0 * m.m, t.subgroups.1 * t.pieces.1 * m.n);
    let shared = |t: &Tile| {
        let (tile_rows, tile_columns) = size(t);
        (tile_rows + tile_columns) * (t.depth + PAD) * 2 + t.subgroups.0 * t.subgroups.1 * m.m * m.n * 4
    };
    let fits = |t: &&Tile| {
        t.subgroups.0 * t.subgroups.1 * lanes <= i64::from(p.max_invocations) && shared(t) <= i64::from(p.shared_memory)
    };
    let usable: Vec<Tile> = Tile::all(m).iter().filter(fits).copied().collect();
    let reduction = product(&c.k);
    let held: Vec<Tile> = usable.iter().filter(|t| t.is_held(p, m, reduction)).copied().collect();
    let over = |n: i64, by: i64| (n + by - 1) / by;
    let groups = |t: &Tile| batch * over(rows, size(t).0) * over(columns, size(t).1);
    let enough = held.iter().find(|t| groups(t) >= i64::from(p.cores)).copied();
    let usual = enough.or(held.last().copied()).or(usable.last().copied());
    let usual = usual.ok_or_else(|| Decline("no tile fits the device".into()))?;
    let sliced = if enough.is_none() && batch == 1 { cheapest_slices(sketch, unit, c, m, usual, &held) } else { None };
    let usual = sliced.map_or(usual, |s| s.0);
    let domain: Vec<Vec<i64>> = usable.iter().map(Tile::listed).collect();
    let chosen = sketch.choose("tile", &domain, usual.listed())?;
    let tile = usable.iter().find(|t| t.listed() == chosen).copied().unwrap_or(usual);
    let depths: Vec<i64> = [2 * DEPTH, DEPTH, DEPTH / 2].into_iter().filter(|d| d % m.k == 0).collect();
    let depth = sketch.choose("depth", &depths, tile.depth)?;
    let tile = Tile { depth, ..tile };
    let numbers = if batch == 1 { slices_of(sketch, c, &tile) } else { vec![1] };
    // Another tile or depth may have been chosen, of which fewer slices are whole steps.
    let usual = sliced.map(|s| s.1).filter(|n| numbers.contains(n)).unwrap_or(1);
    let parts = if numbers.len() > 1 { sketch.choose("slices", &numbers, usual)? } else { 1 };
    Ok((tile, parts))
}

/// Into how many slices of whole K steps the reduction may be cut.
fn slices_of(sketch: &Sketch<'_>, c: &Contraction, tile: &Tile) -> Vec<i64> {
    let whole: i64 = c.k.iter().filter_map(|v| sketch.extent_of(*v)).product();
    let channels = c.k.last().and_then(|v| sketch.extent_of(*v)).unwrap_or(1);
    slices(whole, if channels % tile.depth == 0 { channels / tile.depth } else { 1 })
}

/// The tile and the number of slices that take less than `usual` does without slices; none where that takes least.
fn cheapest_slices(
    sketch: &Sketch<'_>,
    unit: &Unit,
    c: &Contraction,
    m: Matrix,
    usual: Tile,
    held: &[Tile],
) -> Option<(Tile, i64)> {
    let lanes = i64::from(sketch.profile.subgroup.1.max(1));
    let sliced = held.iter().flat_map(|t| slices_of(sketch, c, t).into_iter().map(|n| (*t, n)).filter(|s| s.1 > 1));
    let all: Vec<(Tile, i64)> = std::iter::once((usual, 1)).chain(sliced).collect();
    let numbers: Vec<ProductTile> = all.iter().map(|(t, n)| t.in_numbers(m, lanes, *n)).collect();
    let blocks = [unit.name(), unit.output];
    let costs = product_costs(&sketch.f, sketch.constants, sketch.profile, blocks, &numbers)?;
    let least = all.iter().zip(&costs).min_by(|a, b| a.1.total_cmp(b.1)).map(|(s, _)| *s);
    least.filter(|s| s.1 > 1)
}

/// The loops of a tile.
#[derive(Clone, Copy)]
pub(super) struct Loops {
    /// Over tiles of rows and of columns.
    pub tiles: [Name; 2],
    /// Innermost loop over subgroups.
    subgroup: Name,
    /// Loop over a subgroup's matrices along columns, the innermost one around a matrix.
    piece: Name,
    /// Rows and columns of a matrix.
    inner: [Name; 2],
}

/// A product on matrix units.
#[derive(Clone, Copy)]
pub(super) struct Product<'c> {
    /// The product's block.
    pub reduce: Name,
    pub contraction: &'c Contraction,
    pub matrix: Matrix,
    pub tile: Tile,
    /// Threads of the workgroup, along x and y.
    pub threads: (i64, i64),
}

fn compute(
    sketch: &mut Sketch<'_>,
    unit: &Unit,
    reduce: Name,
    c: &Contraction,
    matrix: Matrix,
    tile: Tile,
) -> Result<(), Decline> {
    if c.right_constant {
        pack_right(sketch, c)?;
    }
    let threads = (tile.subgroups.0 * tile.subgroups.1 * i64::from(sketch.profile.subgroup.1), 1);
    let product = Product { reduce, contraction: c, matrix, tile, threads };
    product.split_results(sketch)?;
    let [m, n] = fuse_output(sketch, unit.output, c)?;
    let loops = product.split_tile(sketch, [m, n])?;
    sketch.bind(loops.tiles[0], Axis::GroupY)?;
    sketch.bind(loops.tiles[1], Axis::GroupX)?;
    product.place(sketch, &loops)?;
    product.accumulate(sketch, &loops)
}

/// Packs the constant right operand as `[column][k]`, in the order in which the reduction goes.
fn pack_right(sketch: &mut Sketch<'_>, c: &Contraction) -> Result<(), Decline> {
    let (Some(buffer), Some((column, ks))) = (c.right_buffer, &c.right_dims) else { return Ok(()) };
    let (name, rank) = (sketch.f.buffers[buffer].name, sketch.f.buffers[buffer].shape.len());
    let others = (0..rank).filter(|d| d != column && !ks.contains(d));
    let order: Vec<usize> = others.chain([*column]).chain(ks.iter().copied()).collect();
    if order.iter().enumerate().any(|(n, d)| n != *d) {
        sketch.apply(TransformLayout { buffer: name, splits: vec![0; rank], order })?;
    }
    if ks.len() > 1 {
        sketch.apply(FlattenBuffer { buffer: name, dims: (rank - ks.len()..rank).collect() })?;
    }
    Ok(())
}

impl Product<'_> {
    /// The block that takes results from the fragments.
    fn result(&self) -> Name {
        Name::new(&format!("{}_tile", self.reduce))
    }
    /// Gives the accumulators a block of their own, which stores them.
    pub(super) fn split_results(&self, sketch: &mut Sketch<'_>) -> Result<(), Decline> {
        let local = Name::new(&format!("{}_held", self.reduce));
        Ok(sketch.apply(SplitEpilogue { block: self.reduce, into: self.result(), local })?)
    }
    /// Splits the loops over a result's rows and columns into tiles, subgroups, matrices and what is in one.
    pub(super) fn split_tile(&self, sketch: &mut Sketch<'_>, [m, n]: [Name; 2]) -> Result<Loops, Decline> {
        let (tile, matrix) = (&self.tile, &self.matrix);
        let parts = ["o", "s", "p", "i"];
        let rows = sketch.split(m, &[0, tile.subgroups.0, tile.pieces.0, matrix.m], &parts)?;
        let columns = sketch.split(n, &[0, tile.subgroups.1, tile.pieces.1, matrix.n], &parts)?;
        let by_part: Vec<Name> = (0..4).flat_map(|p| [rows[p], columns[p]]).collect();
        sketch.reorder(&by_part)?;
        sketch.bind(rows[1], Axis::SubgroupY)?;
        sketch.bind(columns[1], Axis::SubgroupX)?;
        sketch.unroll(rows[2])?;
        sketch.unroll(columns[2])?;
        let (tiles, inner) = ([rows[0], columns[0]], [rows[3], columns[3]]);
        Ok(Loops { tiles, subgroup: columns[1], piece: columns[2], inner })
    }
    /// Moves the product to its subgroups, and its results to a slice of workgroup memory of each.
    pub(super) fn place(&self, sketch: &mut Sketch<'_>, loops: &Loops) -> Result<(), Decline> {
        sketch.apply(ComputeAt { block: self.result(), at: loops.piece, scope: LocalScope::Shared })?;
        Ok(sketch.apply(ComputeAt { block: self.reduce, at: loops.subgroup, scope: LocalScope::Fragment })?)
    }
    /// Adds up matrices in tiles of the operands, and hands the results out to lanes.
    pub(super) fn accumulate(&self, sketch: &mut Sketch<'_>, loops: &Loops) -> Result<(), Decline> {
        let Matrix { m, n, .. } = self.matrix;
        accumulate(sketch, self, loops)?;
        let store = inside(sketch, self.result(), loops.piece)?;
        tensorize(sketch, store[0], format!("store_{m}x{n}_f32"))?;
        share_out(sketch, loops)
    }
}

fn accumulate(sketch: &mut Sketch<'_>, product: &Product<'_>, loops: &Loops) -> Result<(), Decline> {
    let Product { reduce, contraction: c, matrix, tile, threads } = *product;
    let Matrix { m, n, k: depth } = matrix;
    let reductions = sketch.f.reduction_loops(reduce);
    let spatial = inside(sketch, reduce, loops.subgroup)?.into_iter().filter(|v| !reductions.contains(v));
    let spatial: Vec<Name> = spatial.collect();
    // Loops of one iteration are none here.
    let (pieces, of_matrix) = spatial.split_at(spatial.len().saturating_sub(2));
    let expected = usize::from(tile.pieces.0 > 1) + usize::from(tile.pieces.1 > 1);
    let &[row, column] = of_matrix else { return Err(Decline::other_kind()) };
    if pieces.len() != expected {
        return Err(Decline(format!("the accumulator has {} loops around its matrices, not {expected}", pieces.len())));
    }
    let piece_m = pieces.first().copied().filter(|_| tile.pieces.0 > 1);
    let piece_n = pieces.last().copied().filter(|_| tile.pieces.1 > 1);
    sketch.reorder(&c.k.iter().chain(&spatial).copied().collect::<Vec<_>>())?;
    let k = sketch.fuse(&c.k, Name::new(&format!("{reduce}_k")))?;
    let k = sketch.split(k, &[0, tile.depth / depth, depth], &["o", "i", "k"])?;
    sketch.reorder(&[&k[..2], pieces, &[row, column, k[2]]].concat())?;
    sketch.apply(PadReduction { block: reduce })?;
    let (a, b) = (Name::new(&format!("{reduce}_a")), Name::new(&format!("{reduce}_b")));
    let (left, right) = (c.left.to_string(), (1 - c.left).to_string());
    let around = sketch.loops(reduce)?;
    let subgroups: Vec<Name> =
        around.iter().filter(|l| matches!(l.kind, LoopKind::Subgroup(_))).map(|l| l.var).collect();
    for (operand, into, piece, own) in [(&left, a, piece_m, row), (&right, b, piece_n, column)] {
        let order: Vec<Name> = subgroups.iter().copied().chain(piece).chain([own]).collect();
        let used = if into == a { tile.subgroups.0 > 1 } else { tile.subgroups.1 > 1 };
        let rows = 1 + i64::from(used) + i64::from(piece.is_some());
        let (operand, at) = (operand.clone(), k[0]);
        sketch.apply(StageInShared { block: reduce, operand, at, into, order, pad: PAD, rows, narrow: true })?;
        copy_cooperatively(sketch, into, k[0], threads)?;
    }
    sketch.apply(DecomposeReduction { block: reduce, at: k[0] })?;
    let always = !sketch.profile.sinks_loads();
    sketch.apply(SoftwarePipeline { r#loop: k[0], buffers: vec![a, b], double_buffer: false, always })?;
    let own = |piece: Option<Name>, matrix: [Name; 2]| piece.into_iter().chain(matrix).collect::<Vec<Name>>();
    let (rows, columns) = (own(piece_m, [row, k[2]]), own(piece_n, [k[2], column]));
    let [load_a, load_b] = [format!("load_a_{m}x{depth}_f16"), format!("load_b_{depth}x{n}_f16")];
    load_fragment(sketch, reduce, &left, k[1], MatrixRole::A, rows, load_a)?;
    load_fragment(sketch, reduce, &right, k[1], MatrixRole::B, columns, load_b)?;
    sketch.unroll(k[1])?;
    pieces.iter().try_for_each(|v| sketch.unroll(*v))?;
    tensorize(sketch, row, format!("multiply_add_{m}x{n}x{depth}_f16_f32"))?;
    let init = Name::new(&format!("{reduce}_init"));
    let fill = inside(sketch, init, loops.subgroup)?;
    let outer = fill.len().saturating_sub(2);
    fill[..outer].iter().try_for_each(|v| sketch.unroll(*v))?;
    tensorize(sketch, fill[outer], format!("fill_{m}x{n}_f32"))
}

/// Loads the matrices of an operand in loop `at`; the last two loops of `order` are their rows and columns.
fn load_fragment(
    sketch: &mut Sketch<'_>,
    reduce: Name,
    operand: &str,
    at: Name,
    matrix: MatrixRole,
    order: Vec<Name>,
    intrinsic: String,
) -> Result<(), Decline> {
    let into = Name::new(&format!("{reduce}_f{}", matrix.word()));
    let (operand, word) = (operand.to_string(), matrix.word().into());
    sketch.apply(StageInFragment { block: reduce, operand, at, into, matrix: word, order, narrow: true })?;
    let mut copy = inside(sketch, into, at)?;
    let outer = copy.len().saturating_sub(2);
    if matrix == MatrixRole::B {
        // The loops stand as those of the product do; the matrix has its rows along the reduction.
        copy.swap(outer, outer + 1);
        sketch.reorder(&copy[outer..])?;
    }
    copy[..outer].iter().try_for_each(|v| sketch.unroll(*v))?;
    tensorize(sketch, copy[outer], intrinsic)
}

fn tensorize(sketch: &mut Sketch<'_>, var: Name, intrinsic: String) -> Result<(), Decline> {
    Ok(sketch.apply(Tensorize { r#loop: var, intrinsic })?)
}

/// Gives the elements of a matrix to the lanes of its subgroup, neighbours of a row at once.
fn share_out(sketch: &mut Sketch<'_>, loops: &Loops) -> Result<(), Decline> {
    let [row, column] = loops.inner;
    let parts = sketch.split(column, &[0, VECTOR], &["q", "v"])?;
    let all = sketch.fuse(&[row, parts[0]], Name::new(&format!("{column}_lanes")))?;
    sketch.bind(all, Axis::Lane)?;
    Ok(sketch.vectorize(parts[1])?)
}
