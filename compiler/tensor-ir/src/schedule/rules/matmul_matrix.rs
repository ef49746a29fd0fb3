//! Matrix products and implicit-GEMM convolutions on matrix units: a subgroup multiplies fragments of f16 and adds to
//! accumulators of f32.
//!
//! Tiles of both operands are in workgroup memory in f16, in the order `[row][k]` and `[column][k]`, padded so that
//! rows begin in different banks. All threads copy them, 16 bytes at a time, and the tiles of the next K step are
//! loaded while this one is computed. An operand that is f32 in device memory and is rounded to f16 before the product
//! (`f32(f16(x))`, as mixed precision casts an input) is converted by the copy. The workgroup's tile is divided among
//! the subgroups: each has `pieces` of rows and of columns, each a matrix. Results go through a slice of workgroup
//! memory per subgroup; its lanes read them there for the epilogue. No address depends on the number of lanes.
//!
//! A long reduction may be cut into slices ([`split_depth`](super::split_depth)) that become workgroups; a second
//! kernel sums their results. Every tile that fits the device and the registers of a lane, with each K step and number
//! of slices, is a candidate; the cheapest one is taken. If registers are few, the matrices of one operand stay in
//! registers, and those of the other are loaded one after another.

use super::analysis::{Contraction, contraction};
use super::candidate::Candidate;
use super::cooperate::{ThreadRange, copy_by_part, loaded_bytes};
use super::copies::{LeftOperand, copy_steps, store_across};
use super::decline::Decline;
use super::direct;
use super::matmul_tiled::fuse_output;
use super::matrix_taps::{fuse_reduction, part_steps};
use super::matrix_tile::{DEPTH, DEPTHS, FragmentTile, LEAST, Matrix, MatrixProduct, PAD, PLAIN, VECTOR};
use super::sketch::Sketch;
use super::split_depth::split_depth;
use super::unit::Unit;
use super::view::View;
use crate::candidate;
use crate::dtype::DType;
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::profile::quirks::SINKS_LOADS;
use crate::schedule::estimate::{KernelEstimate, holdings, matrix_kernels};
use crate::schedule::staging::is_half;
use crate::schedule::{
    Axis, ComputeAt, DecomposeReduction, FlattenBuffer, LocalScope, MergeBuffers, PadReduction, SoftwarePipeline,
    SplitEpilogue, StageInFragment, StageInShared, Tensorize, TransformLayout,
};
use crate::tir::analysis::operands::factors;
use crate::tir::{LoopKind, MatrixRole};

candidate! {
    /// A tile of a product on matrix units, the depth of its K steps, and the slices of its reduction.
    pub(super) struct ProductOnMatrices {
        /// Rows, columns and depth of a matrix: `16x16x16`.
        pub matrix: String,
        /// Subgroups along rows and columns, matrices of a subgroup along rows and columns.
        pub tile: Vec<i64>,
        /// Elements of the reduction that a workgroup has at a time.
        pub depth: i64,
        /// Slices of the reduction that are workgroups of their own.
        pub slices: i64,
    }
}

/// The name of a shape of matrices.
fn shape_name(mnk: [u32; 3]) -> String {
    mnk.map(|n| n.to_string()).join("x")
}

/// The product of a unit, its size, and the shapes of matrices: products of f16 operands on devices with matrix units;
/// asked for by name, on software devices too.
fn product(view: &View<'_>, unit: &Unit) -> Result<(Contraction, MatrixProduct, Vec<[u32; 3]>), Decline> {
    let c = contraction(view, unit)?;
    let reduce = unit.reduce.ok_or_else(Decline::other_kind)?;
    let shapes = view.profile.matrix_units().map_err(|why| Decline(why.into()))?;
    if shapes.is_empty() {
        return Err(Decline::other_kind());
    }
    if !view.profile.model().product_units && !view.asked {
        return Err(Decline("matrix units of a software device are slower than its vectors".into()));
    }
    if unit.window.is_some() {
        return Err(Decline("windows stand behind the product".into()));
    }
    if c.m.is_empty() || c.n.is_empty() || c.k.is_empty() {
        return Err(Decline("the product has no rows or no columns".into()));
    }
    check_types(view, reduce)?;
    let (rows, columns) = (view.product(&c.m), view.product(&c.n));
    if rows < LEAST || columns < LEAST {
        return Err(Decline(format!("{rows} rows and {columns} columns are too few for matrices")));
    }
    let channels = c.k.last().and_then(|v| view.extent_of(*v)).unwrap_or(1);
    let results = [view.product(&c.batch), rows, columns];
    let size = MatrixProduct { results, depth: view.product(&c.k), channels };
    Ok((c, size, shapes.iter().map(|s| s.mnk).collect()))
}

/// Tiles of the largest matrices whose registers a lane has, with each depth and number of slices. All others that fit
/// the device, and those of other matrices, are for who asks for them.
pub(super) fn candidates(view: &View<'_>, unit: &Unit) -> Result<Vec<Candidate>, Decline> {
    let (_, size, shapes) = product(view, unit)?;
    let p = view.profile;
    let holdings = holdings(view.stages(), [unit.name(), unit.output]).unwrap_or(PLAIN);
    let mut out = Vec::new();
    for (n, &mnk) in shapes.iter().enumerate() {
        let m = Matrix::of(mnk);
        let all = MatrixProduct::fitting(p, m);
        let mut usual = size.candidates(p, m, &all, holdings);
        // Where the estimate cannot weigh them, the first is taken.
        let first = usual.iter().min_by(|a, b| idle(p, a, m, size.results).total_cmp(&idle(p, b, m, size.results)));
        let first = first.and_then(|best| usual.iter().position(|c| c == best)).unwrap_or(0);
        if let Some(up_to_first) = usual.get_mut(..=first) {
            up_to_first.rotate_right(1);
        }
        let rest = all.iter().flat_map(|t| size.slices(t).into_iter().map(|n| (*t, n)));
        let rest: Vec<TileInSlices> = rest.filter(|c| usual.iter().all(|u| u.0 != c.0)).collect();
        let of = |(t, slices): TileInSlices| {
            Candidate::new(ProductOnMatrices { matrix: shape_name(mnk), tile: t.listed(), depth: t.depth, slices })
        };
        out.extend(usual.into_iter().map(of).map(|c| if n > 0 { c.on_request() } else { c }));
        out.extend(rest.into_iter().map(of).map(Candidate::on_request));
    }
    if out.is_empty() { Err(Decline("no tile fits the device".into())) } else { Ok(out) }
}

/// The kernels of the product in the candidate's tile.
pub(super) fn price(view: &View<'_>, unit: &Unit, candidate: &Candidate) -> Vec<KernelEstimate> {
    let Ok(chosen) = candidate.choices::<ProductOnMatrices>() else { return vec![] };
    let shapes = view.profile.matrix_units().unwrap_or_default();
    let Some(m) = shapes.iter().find(|s| shape_name(s.mnk) == chosen.matrix).map(|s| Matrix::of(s.mnk)) else {
        return vec![];
    };
    let Some(tile) = chosen.tile_of(m) else { return vec![] };
    let lanes = i64::from(view.profile.subgroup.1.max(1));
    let tile = tile.in_numbers(m, lanes, chosen.slices);
    matrix_kernels(view.stages(), [unit.name(), unit.output], &tile)
}

impl ProductOnMatrices {
    fn tile_of(&self, m: Matrix) -> Option<FragmentTile> {
        let tile = FragmentTile::all(m).iter().find(|t| t.listed() == self.tile)?;
        Some(FragmentTile { depth: self.depth, ..*tile })
    }
}

/// Schedules the unit in the candidate's tile.
pub(super) fn apply(sketch: &mut Sketch<'_>, unit: &Unit, candidate: &Candidate) -> Result<(), Decline> {
    let chosen = candidate.choices::<ProductOnMatrices>()?;
    let reduce = unit.reduce.ok_or_else(Decline::other_kind)?;
    let (c, size, shapes) = product(&sketch.view(), unit)?;
    let names: Vec<String> = shapes.iter().map(|s| shape_name(*s)).collect();
    let shape = sketch.choose("matrix", &names, chosen.matrix.clone())?;
    let mnk = names.iter().position(|n| *n == shape).map_or(shapes[0], |at| shapes[at]);
    let matrix = Matrix::of(mnk);
    let all = MatrixProduct::fitting(sketch.profile, matrix);
    let mut domain: Vec<Vec<i64>> = all.iter().map(FragmentTile::listed).collect();
    domain.dedup();
    let list = sketch.choose("tile", &domain, chosen.tile.clone())?;
    let with = ProductOnMatrices { tile: list, ..chosen.clone() };
    let tile = with.tile_of(matrix).ok_or_else(Decline::other_kind)?;
    let fitting: Vec<i64> = DEPTHS.into_iter().filter(|d| all.contains(&FragmentTile { depth: *d, ..tile })).collect();
    let depth = sketch.choose("depth", &fitting, tile.depth)?;
    let tile = FragmentTile { depth, ..tile };
    let numbers = size.slices(&tile);
    let usual = if numbers.contains(&chosen.slices) { chosen.slices } else { 1 };
    match if numbers.len() > 1 { sketch.choose("slices", &numbers, usual)? } else { 1 } {
        1 => compute(sketch, unit, reduce, &c, matrix, tile),
        parts => compute_slices(sketch, unit, &c, (matrix, tile), parts),
    }
}

/// Schedules slices of the reduction with this tile, and the sum of their results.
fn compute_slices(
    sketch: &mut Sketch<'_>,
    unit: &Unit,
    c: &Contraction,
    (matrix, tile): (Matrix, FragmentTile),
    parts: i64,
) -> Result<(), Decline> {
    let part = split_depth(sketch, unit, c, parts)?;
    let c = contraction(&sketch.view(), &part)?;
    let reduce = part.reduce.ok_or_else(Decline::other_kind)?;
    compute(sketch, &part, reduce, &c, matrix, tile)?;
    direct::compute(sketch, unit)
}

/// Operands are f16 as they are multiplied, and sums f32. Copies convert what lies in memory in f32.
fn check_types(view: &View<'_>, reduce: Name) -> Result<(), Decline> {
    let f = view.f;
    let block = view.block(reduce).ok_or_else(Decline::other_kind)?;
    if f.buffers[block.buffer].dtype != DType::F32 {
        return Err(Decline("the product does not add up in f32".into()));
    }
    let [a, b] = factors(&block.value).ok_or_else(Decline::other_kind)?;
    let Some(wide) = [a, b].into_iter().find(|e| !is_half(e, f)) else { return Ok(()) };
    let read = wide.loads().first().map_or_else(|| "an operand".to_string(), |l| format!("`{}`", f.buffers[l.0].name));
    Err(Decline(format!("{read} is {}, matrix units take f16", wide.dtype(f))))
}

/// A tile, and the number of slices of the reduction.
type TileInSlices = (FragmentTile, i64);

/// A substitute for the cost of a product of `[batch, rows, columns]` that the estimate cannot weigh: it prefers the
/// largest tile that gives every core a workgroup, without slices, else the smallest tile.
fn idle(p: &DeviceProfile, (tile, slices): &TileInSlices, m: Matrix, [batch, rows, columns]: [i64; 3]) -> f64 {
    let over = |n: i64, by: i64| (n + by - 1) / by;
    let (own_rows, own_columns) = tile.size(m);
    let elements = own_rows * own_columns;
    let enough = batch * over(rows, own_rows) * over(columns, own_columns) >= i64::from(p.cores);
    let first = if enough { 1.0 / elements as f64 } else { elements as f64 };
    first * (*slices as f64) * (1.0 + (tile.depth - DEPTH).abs() as f64)
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
    /// Neighbours of a row that a lane computes at once: one where vectors would cross the ends of rows.
    vector: i64,
}

/// A product on matrix units.
#[derive(Clone, Copy)]
pub(super) struct FragmentProduct<'c> {
    /// The product's block.
    pub reduce: Name,
    pub contraction: &'c Contraction,
    pub matrix: Matrix,
    pub tile: FragmentTile,
    /// Threads of the workgroup, along x and y.
    pub threads: (i64, i64),
    /// How the left operand comes to workgroup memory.
    pub left: LeftOperand,
}

fn compute(
    sketch: &mut Sketch<'_>,
    unit: &Unit,
    reduce: Name,
    c: &Contraction,
    matrix: Matrix,
    tile: FragmentTile,
) -> Result<(), Decline> {
    if c.right_constant {
        pack_right(sketch, c)?;
    }
    let threads = (tile.subgroups.0 * tile.subgroups.1 * i64::from(sketch.profile.subgroup.1), 1);
    let product = FragmentProduct { reduce, contraction: c, matrix, tile, threads, left: LeftOperand::EachStep };
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

impl FragmentProduct<'_> {
    /// The block that takes results from the fragments.
    pub(super) fn result(&self) -> Name {
        Name::new(&format!("{}_tile", self.reduce))
    }
    /// The block that stores the right operand's tiles.
    pub(super) fn right(&self) -> Name {
        Name::new(&format!("{}_b", self.reduce))
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
        let vector = if sketch.extent_of(n).is_none_or(|columns| columns % VECTOR == 0) { VECTOR } else { 1 };
        let rows = sketch.split(m, &[0, tile.subgroups.0, tile.pieces.0, matrix.m], &parts)?;
        let columns = sketch.split(n, &[0, tile.subgroups.1, tile.pieces.1, matrix.n], &parts)?;
        let by_part: Vec<Name> = (0..4).flat_map(|p| [rows[p], columns[p]]).collect();
        sketch.reorder(&by_part)?;
        sketch.bind(rows[1], Axis::SubgroupY)?;
        sketch.bind(columns[1], Axis::SubgroupX)?;
        sketch.unroll(rows[2])?;
        sketch.unroll(columns[2])?;
        let (tiles, inner) = ([rows[0], columns[0]], [rows[3], columns[3]]);
        Ok(Loops { tiles, subgroup: columns[1], piece: columns[2], inner, vector })
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
        let store = sketch.inside(self.result(), loops.piece)?;
        tensorize(sketch, store[0], format!("store_{m}x{n}_f32"))?;
        share_out(sketch, loops)
    }
}

fn accumulate(sketch: &mut Sketch<'_>, product: &FragmentProduct<'_>, loops: &Loops) -> Result<(), Decline> {
    let FragmentProduct { reduce, contraction: c, matrix, tile, threads, left: how } = *product;
    let Matrix { m, n, k: depth } = matrix;
    let reductions = sketch.f.reduction_loops(reduce);
    let spatial = sketch.inside(reduce, loops.subgroup)?.into_iter().filter(|v| !reductions.contains(v));
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
    let passing = match tile.passing(sketch.profile, matrix) {
        Some(MatrixRole::A) => piece_m,
        Some(_) => piece_n,
        None => None,
    };
    let mut pieces = pieces.to_vec();
    pieces.sort_by_key(|v| Some(*v) != passing);
    sketch.reorder(&c.k.iter().chain(&pieces).chain(of_matrix).copied().collect::<Vec<_>>())?;
    let (taps, k) = fuse_reduction(sketch, reduce, c, (matrix, tile))?;
    let k = sketch.split(k, &[0, tile.depth / depth, depth], &["o", "i", "k"])?;
    sketch.reorder(&[&k[..2], &pieces, &[row, column, k[2]]].concat())?;
    sketch.apply(PadReduction { block: reduce })?;
    let (a, b) = (Name::new(&format!("{reduce}_a")), product.right());
    let (left, right) = (c.left.to_string(), (1 - c.left).to_string());
    let around = sketch.loops(reduce)?;
    let subgroups: Vec<Name> =
        around.iter().filter(|l| matches!(l.kind, LoopKind::Subgroup(_))).map(|l| l.var).collect();
    let both = [(&left, a, piece_m, row), (&right, b, piece_n, column)];
    for (operand, into, piece, own) in both {
        let order: Vec<Name> = subgroups.iter().copied().chain(piece).chain([own]).collect();
        let used = if into == a { tile.subgroups.0 > 1 } else { tile.subgroups.1 > 1 };
        let rows = 1 + i64::from(used) + i64::from(piece.is_some());
        let at = if into == a { how.at(k[0]) } else { k[0] };
        let (operand, pad) = (operand.clone(), PAD.min(sketch.profile.matrix_load_bytes() / 2));
        sketch.apply(StageInShared { block: reduce, operand, at, into, order, pad, rows, narrow: true })?;
    }
    how.copy(sketch, a, &k, threads)?;
    let each_step = how == LeftOperand::EachStep;
    let stepwise = if each_step { vec![a, b] } else { vec![b] };
    let apart = each_step && copy_apart(sketch, product, [a, b], k[0])?;
    let by_part = threads.1 == 1 && passing.is_some();
    let across = if apart { vec![] } else { copy_steps(sketch, &stepwise, k[0], threads, by_part)? };
    sketch.apply(DecomposeReduction { block: reduce, at: taps.unwrap_or(k[0]) })?;
    let always = !sketch.profile.quirks.has(&SINKS_LOADS);
    let around = taps.unwrap_or(Name::new(""));
    sketch.apply(SoftwarePipeline { r#loop: k[0], buffers: stepwise, double_buffer: false, always, around })?;
    across.into_iter().try_for_each(|copy| store_across(sketch, copy))?;
    if apart {
        let [into, buffer] = [a, b].map(|b| Name::new(&format!("{b}_next")));
        sketch.apply(MergeBuffers { buffer, into })?;
    }
    let at = |piece: Option<Name>| piece.filter(|p| Some(*p) == passing).unwrap_or(k[1]);
    let own = |piece: Option<Name>, matrix: [Name; 2]| {
        piece.into_iter().filter(|p| Some(*p) != passing).chain(matrix).collect::<Vec<Name>>()
    };
    let (rows, columns) = (own(piece_m, [row, k[2]]), own(piece_n, [k[2], column]));
    let [load_a, load_b] = [format!("load_a_{m}x{depth}_f16"), format!("load_b_{depth}x{n}_f16")];
    load_fragment(sketch, reduce, &left, at(piece_m), MatrixRole::A, rows, load_a)?;
    load_fragment(sketch, reduce, &right, at(piece_n), MatrixRole::B, columns, load_b)?;
    sketch.unroll(k[1])?;
    pieces.iter().try_for_each(|v| sketch.unroll(*v))?;
    tensorize(sketch, row, format!("multiply_add_{m}x{n}x{depth}_f16_f32"))?;
    fill_accumulators(sketch, product, loops)?;
    if taps.is_some() { part_steps(sketch, a, k[0]) } else { Ok(()) }
}

/// Sets the accumulators to zero, a matrix at a time.
fn fill_accumulators(sketch: &mut Sketch<'_>, p: &FragmentProduct<'_>, loops: &Loops) -> Result<(), Decline> {
    let fill = sketch.inside(Name::new(&format!("{}_init", p.reduce)), loops.subgroup)?;
    let outer = fill.len().saturating_sub(2);
    fill[..outer].iter().try_for_each(|v| sketch.unroll(*v))?;
    tensorize(sketch, fill[outer], format!("fill_{}x{}_f32", p.matrix.m, p.matrix.n))
}

/// Lets the first threads copy the left operand's tile and the next ones the right operand's, 16 bytes each, where the
/// workgroup has so many: all threads would copy less of each at a time. Whole subgroups do the one or the other.
fn copy_apart(
    sketch: &mut Sketch<'_>,
    product: &FragmentProduct<'_>,
    [a, b]: [Name; 2],
    at: Name,
) -> Result<bool, Decline> {
    let lanes = i64::from(sketch.profile.subgroup.1.max(1));
    let Some(left) = product.tile.copied_apart(product.matrix, lanes) else { return Ok(false) };
    // The registers that both pass through are of one type.
    if loaded_bytes(sketch, a) != loaded_bytes(sketch, b) {
        return Ok(false);
    }
    let mut tried = sketch.clone();
    let done = copy_by_part(&mut tried, a, at, ThreadRange { first: 0, count: left })?
        && copy_by_part(&mut tried, b, at, ThreadRange { first: left, count: product.threads.0 - left })?;
    if done {
        *sketch = tried;
    }
    Ok(done)
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
    let mut copy = sketch.inside(into, at)?;
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
    let lanes = Name::new(&format!("{column}_lanes"));
    if loops.vector == 1 {
        let all = sketch.fuse(&[row, column], lanes)?;
        return Ok(sketch.bind(all, Axis::Lane)?);
    }
    let parts = sketch.split(column, &[0, loops.vector], &["q", "v"])?;
    let all = sketch.fuse(&[row, parts[0]], lanes)?;
    sketch.bind(all, Axis::Lane)?;
    Ok(sketch.vectorize(parts[1])?)
}
