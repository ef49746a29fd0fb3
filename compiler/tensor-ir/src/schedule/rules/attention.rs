//! Attention as one kernel: a product, reductions along the rows of its results, and a second product with the
//! transformed results.
//!
//! A workgroup takes a block of rows. The first product's results for all columns of the block (the scores) are stored
//! in workgroup memory, and the row reductions (maximum and sum of a softmax) read them there. The second product reads
//! the scores as its left operand, with the function's elementwise ops applied: one K step at a time, on matrix units
//! all before the first step. So no score is stored in device memory, and accumulators are never rescaled. Both
//! products are those of `matmul_tiled` or `matmul_matrix`, in tiles of the block's rows.

use super::analysis::{Contraction, contraction, whole_unit};
use super::candidate::{Candidate, Choices};
use super::cooperate::{Team, reduce_over_threads};
use super::copies::LeftOperand;
use super::decline::Decline;
use super::matmul_matrix::FragmentProduct;
use super::matmul_tiled::{TileLoops, accumulate, fuse_output, split_tile};
use super::matrix_tile::{self, Matrix, PLAIN};
use super::predict::with_parameters;
use super::script;
use super::sketch::Sketch;
use super::thread_tile::ThreadTile;
use super::unit::Unit;
use super::view::View;
use crate::attr::{Attr, AttrValue};
use crate::name::Name;
use crate::schedule::ScheduleTarget;
use crate::schedule::estimate::{Combination, Holdings, KernelEstimate, estimate_scheduled, holdings};
use crate::schedule::{Axis, ComputeAt, LocalScope, MergeBuffers, SplitEpilogue, TransformLayout};
use crate::tir::analysis::operands::without_casts;
use crate::tir::{BinaryOp, Block, BufferId, Combiner, Expr, TensorFunction};
use std::any::Any;
use std::sync::Arc;

/// Rows and columns of a piece of a thread's tile.
const PIECE: i64 = 4;
/// Elements of a reduction that a workgroup has at a time.
const DEPTH: i64 = 16;
/// The same on matrix units.
const MATRIX_DEPTH: i64 = 32;
/// Threads along x on matrix units, which share a row.
const ACROSS: i64 = 16;
/// Subgroups along rows and columns of a block that is one matrix high, two, and more.
const OF_ROW: &[(i64, i64)] = &[(1, 4), (1, 2)];
const OF_TWO: &[(i64, i64)] = &[(2, 2), (1, 4), (1, 2)];
const OF_ROWS: &[(i64, i64)] = &[(2, 2)];
/// Registers of a lane for addresses of the rest of the kernel, which compilers compute at its start.
const ADDRESSES: i64 = 12;
/// Workgroup memory in bytes that every API has: DX12 and browsers refuse more.
const PORTABLE: u64 = 32 << 10;
/// How much more a kernel may cost that needs no more than that.
const PORTABLE_FACTOR: f64 = 1.25;

/// The blocks of attention.
#[derive(Clone, Debug)]
struct Parts {
    /// The first product.
    scores: Name,
    /// Reductions along rows of its results, in order.
    rows: Vec<Name>,
    /// The second product.
    mix: Name,
    /// The operand of the second product that reads the scores.
    weights: usize,
}

/// How both products are computed, with the kernel that it gives.
#[derive(Clone, Debug)]
struct Attention {
    /// `vector`, or the shape of the matrices.
    units: String,
    /// Rows of a workgroup.
    rows: i64,
    way: Way,
    kernels: Vec<KernelEstimate>,
    /// The units and rows that the device has, of all candidates.
    all: Arc<Vec<(String, i64)>>,
}

impl Choices for Attention {
    fn points(&self) -> Vec<(&'static str, Attr)> {
        vec![("units", self.units.to_attr()), ("rows", self.rows.to_attr())]
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A whole function of a product, reductions along rows of its results, and a product of what is made of them: all ways
/// that the device can run. Each is scheduled to see that.
pub(super) fn candidates(view: &View<'_>, unit: &Unit) -> Result<Vec<Candidate>, Decline> {
    let parts = find_parts(view.f).ok_or_else(Decline::other_kind)?;
    let mut sketch = Sketch::of_view(view);
    sketch.together(|s| Plan::of(s, unit, parts.clone())?.candidates(s))
}

/// The kernel that the candidate's way gives.
pub(super) fn price(_: &View<'_>, _: &Unit, candidate: &Candidate) -> Vec<KernelEstimate> {
    candidate.choices::<Attention>().map_or(vec![], |chosen| chosen.kernels.clone())
}

/// Schedules the function as one kernel.
pub(super) fn apply(sketch: &mut Sketch<'_>, unit: &Unit, candidate: &Candidate) -> Result<(), Decline> {
    let chosen = candidate.choices::<Attention>()?;
    let parts = find_parts(&sketch.f).ok_or_else(Decline::other_kind)?;
    let plan = Plan::of(sketch, unit, parts)?;
    let mut units: Vec<String> = chosen.all.iter().map(|w| w.0.clone()).collect();
    units.dedup();
    sketch.choose("units", &units, chosen.units.clone())?;
    let rows: Vec<i64> = chosen.all.iter().filter(|w| w.0 == chosen.units).map(|w| w.1).collect();
    sketch.choose("rows", &rows, chosen.rows)?;
    plan.schedule(sketch, chosen.way)
}

/// The cheapest single kernel of an unscheduled function that is attention, or why there is none; `None` for another
/// function.
pub fn one_kernel(
    f: &TensorFunction,
    constants: &[BufferId],
    target: ScheduleTarget<'_>,
) -> Option<Result<KernelEstimate, String>> {
    let products = f.body.blocks().iter().filter(|b| product(b).is_some()).count();
    if products < 2 {
        return None;
    }
    let mut sketch = Sketch::new(with_parameters(f), constants, target, &script::NOTHING);
    sketch.together(|s| {
        s.inline_all();
        let parts = find_parts(&s.f)?;
        let unit = whole_unit(&s.view())?;
        let all = Plan::of(s, &unit, parts).and_then(|plan| plan.candidates(s));
        let kernels = |c: &Candidate| c.choices::<Attention>().ok().and_then(|c| c.kernels.first().cloned());
        let least = |all: Vec<Candidate>| {
            let kernels = all.iter().filter_map(kernels);
            kernels.min_by(|a, b| a.total().total_cmp(&b.total())).ok_or_else(Decline::other_kind)
        };
        Some(all.and_then(least).map_err(|Decline(why)| why))
    })
}

/// The blocks of a function that is attention.
fn find_parts(f: &TensorFunction) -> Option<Parts> {
    let blocks = f.body.blocks();
    let reductions: Vec<&Block> = blocks.iter().copied().filter(|b| b.reduce.is_some()).collect();
    let [first, rows @ .., last] = reductions.as_slice() else { return None };
    let made: Vec<BufferId> = reductions.iter().map(|b| b.buffer).collect();
    let reads = |e: &Expr| e.loads().iter().any(|l| made.contains(&l.0));
    let (a, b) = product(first)?;
    let (left, right) = product(last)?;
    let weights = match (reads(left), reads(right)) {
        (true, false) => 0,
        (false, true) => 1,
        _ => return None,
    };
    let maximum = rows.iter().any(|r| r.reduce.is_some_and(|r| r.combiner == Combiner::Max));
    let of_scores = maximum && rows.iter().all(|r| r.reads(first.buffer)) && last.reads(first.buffer);
    let private = |b: &&Block| f.outputs().all(|o| o != b.buffer);
    let plain = !reads(a) && !reads(b) && rows.iter().all(private) && private(first);
    (of_scores && plain).then(|| Parts {
        scores: first.name,
        rows: rows.iter().map(|r| r.name).collect(),
        mix: last.name,
        weights,
    })
}

/// The operands of a sum of products.
fn product(b: &Block) -> Option<(&Expr, &Expr)> {
    match without_casts(&b.value) {
        Expr::Binary(BinaryOp::Mul, x, y) if b.reduce.is_some_and(|r| r.combiner == Combiner::Sum) => Some((x, y)),
        _ => None,
    }
}

/// Rows of a workgroup, the most first.
const ROWS: [i64; 5] = [128, 64, 32, 16, 8];

/// The name of products that use no matrix units.
const VECTOR_UNITS: &str = "vector";

/// How both products are computed.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// By threads, in a tile of registers each.
    Vector(ThreadTile),
    /// By subgroups, on matrix units.
    Matrix(Matrix, matrix_tile::FragmentTile),
}

impl Way {
    /// Rows of a workgroup.
    fn rows(self) -> i64 {
        match self {
            Way::Vector(t) => t.threads.1 * t.row_pieces * t.rows,
            Way::Matrix(m, t) => t.subgroups.0 * t.pieces.0 * m.m,
        }
    }
    /// `vector`, or the shape of the matrices.
    fn units(self) -> String {
        match self {
            Way::Vector(_) => VECTOR_UNITS.into(),
            Way::Matrix(Matrix { m, n, k }, _) => format!("{m}x{n}x{k}"),
        }
    }
}

/// The properties of the function that do not depend on the number of rows.
struct Plan {
    parts: Parts,
    /// The block that stores the scores of a block of rows.
    copy: Name,
    /// The block that stores the result.
    output: Name,
    scores: Contraction,
    mix: Contraction,
    /// Rows and columns of the result.
    size: (i64, i64),
    /// Scores of a row.
    keys: i64,
    /// Registers of a lane besides the sums of both products.
    holdings: [Holdings; 2],
}

impl Plan {
    /// Gives both products a block that consumes them, and looks at their loops.
    fn of(sketch: &mut Sketch<'_>, unit: &Unit, parts: Parts) -> Result<Plan, Decline> {
        let output = match unit.reduce {
            Some(mix) => sketch.split_epilogue(mix)?,
            None => unit.output,
        };
        let unit = |reduce: Name, output: Name| Unit { reduce: Some(reduce), output, ..unit.clone() };
        let mut mix = contraction(&sketch.view(), &unit(parts.mix, output))?;
        if mix.left != parts.weights {
            std::mem::swap(&mut mix.m, &mut mix.n);
            mix.left = parts.weights;
        }
        let copy = Name::new(&format!("{}_rows", parts.scores));
        let local = Name::new(&format!("{}_sums", parts.scores));
        sketch.apply(SplitEpilogue { block: parts.scores, into: copy, local })?;
        let scores = contraction(&sketch.view(), &unit(parts.scores, copy))?;
        if mix.m.is_empty() || mix.n.is_empty() || mix.k.is_empty() || scores.k.is_empty() {
            return Err(Decline("a product has no rows, columns or depth".into()));
        }
        let product = |names: &[Name]| -> Result<i64, Decline> {
            let loops = sketch.loops(output)?;
            let own = loops.iter().filter(|l| names.contains(&l.var));
            own.map(|l| sketch.constant_extent(&l.extent)).product()
        };
        let size = (product(&mix.m)?, product(&mix.n)?);
        if size.0 < PIECE || size.1 < PIECE {
            return Err(Decline(format!("{} rows and {} columns are too few for tiles", size.0, size.1)));
        }
        let view = sketch.view();
        let of = |blocks| holdings(view.stages(), blocks).unwrap_or(PLAIN);
        let holdings = [of([parts.scores, copy]), of([parts.mix, output])];
        let keys = view.product(&mix.k);
        Ok(Plan { parts, copy, output, scores, mix, size, keys, holdings })
    }
    /// How both products may be computed on the device: on matrix units where it has them for these operands, with
    /// vectors.
    fn ways(&self, target: ScheduleTarget<'_>) -> Vec<Way> {
        let ScheduleTarget { profile: p, options } = target;
        let wanted = p.model().product_units || options.asks_for("matmul-matrix");
        let shapes = p.matrix_units().unwrap_or_default();
        // Left operands are in workgroup memory before the first step, and where neighbours of the right one lie along
        // columns, they are copied in blocks.
        let blocks = self.size.1 % PIECE == 0;
        let [scores, mix] = self.holdings.map(|h| Holdings {
            vectors: [true, h.vectors[1] || blocks],
            wide: [false, h.wide[1]],
            others: ADDRESSES,
            computed: [None, h.computed[1]],
            ..h
        });
        let of = |rows: i64, matrix: Matrix, subgroups: (i64, i64)| {
            let pieces = (rows / matrix.m / subgroups.0, over(self.size.1, subgroups.1 * matrix.n));
            let tile = matrix_tile::FragmentTile::new(subgroups, pieces, MATRIX_DEPTH.max(matrix.k));
            // Spills cost time, which who asks for the rule by name puts up with.
            let held = options.asks_for("attention") || [scores, mix].iter().all(|h| tile.is_held(p, matrix, *h));
            held.then_some(Way::Matrix(matrix, tile))
        };
        let rows = || ROWS.into_iter().filter(|r| *r < self.size.0 + PIECE || *r == ROWS[ROWS.len() - 1]);
        let matrix = shapes.first().filter(|_| wanted).map(|s| Matrix::of(s.mnk));
        let whole = |m: Matrix| rows().filter(move |r| r % m.m == 0);
        let subgroups = |r: i64, m: Matrix| match r / m.m {
            1 => OF_ROW.iter(),
            2 => OF_TWO.iter(),
            _ => OF_ROWS.iter(),
        };
        let on_matrices = matrix
            .into_iter()
            .flat_map(|m| whole(m).flat_map(move |r| subgroups(r, m).filter_map(move |s| of(r, m, *s))));
        on_matrices.chain(rows().map(|rows| Way::Vector(self.tile(rows)))).collect()
    }
    /// The ways in which the products can be computed, each with its kernels: the cheapest one for units and a number
    /// of rows. What needs much workgroup memory is left out where something else costs little more.
    fn candidates(&self, sketch: &Sketch<'_>) -> Result<Vec<Candidate>, Decline> {
        let mut tried: Vec<(Way, Vec<KernelEstimate>)> = Vec::new();
        let mut refused = None;
        for way in self.ways(sketch.target) {
            let bytes = way.rows() * self.keys * 4;
            if bytes > i64::from(sketch.profile.shared_memory) {
                refused = Some(format!("with {} rows scores take {bytes} bytes of workgroup memory", way.rows()));
                continue;
            }
            let mut one = sketch.clone();
            let made = self.schedule(&mut one, way).and_then(|()| one.side_by_side(&sketch.f));
            let made = made.and_then(|()| Ok(one.finish()?));
            let made = made.map_err(|Decline(why)| why).and_then(|f| estimate_scheduled(&f, sketch.profile));
            match made {
                Ok(e) => tried.push((way, e.kernels)),
                Err(why) => refused = Some(format!("with {} rows {why}", way.rows())),
            }
        }
        if tried.is_empty() {
            return Err(Decline(refused.unwrap_or_default()));
        }
        tried.sort_by(|a, b| total(&a.1).total_cmp(&total(&b.1)));
        let portable = |t: &(Way, Vec<KernelEstimate>)| t.1.iter().all(|k| k.shared_bytes <= PORTABLE);
        let least = tried.iter().find(|t| portable(t)).map_or(f64::INFINITY, |t| total(&t.1));
        if least <= PORTABLE_FACTOR * total(&tried[0].1) && !sketch.target.options.asks_for("attention") {
            tried.retain(portable);
        }
        let mut seen: Vec<(String, i64)> = Vec::new();
        tried.retain(|t| {
            let key = (t.0.units(), t.0.rows());
            let first = !seen.contains(&key);
            seen.push(key);
            first
        });
        tried.sort_by_key(|t| (t.0.units() == VECTOR_UNITS, std::cmp::Reverse(t.0.rows())));
        let all: Arc<Vec<(String, i64)>> = Arc::new(tried.iter().map(|t| (t.0.units(), t.0.rows())).collect());
        let of = |(way, kernels): (Way, Vec<KernelEstimate>)| {
            let (units, rows) = (way.units(), way.rows());
            Candidate::new(Attention { units, rows, way, kernels, all: all.clone() })
        };
        Ok(tried.into_iter().map(of).collect())
    }
    /// The tile of the second product on vectors: all columns.
    fn tile(&self, rows: i64) -> ThreadTile {
        let across = if self.size.1 <= 8 * PIECE { 8 } else { 16 };
        let column_pieces = over(self.size.1, across * PIECE);
        let threads = (across, (rows / PIECE).min(16));
        let row_pieces = rows / PIECE / threads.1;
        ThreadTile { threads, row_pieces, rows: PIECE, taps: 1, column_pieces, width: PIECE, depth: DEPTH }
    }
    /// Schedules the blocks.
    fn schedule(&self, sketch: &mut Sketch<'_>, way: Way) -> Result<(), Decline> {
        match way {
            Way::Vector(tile) => self.on_vectors(sketch, tile),
            Way::Matrix(matrix, tile) => self.on_matrices(sketch, matrix, tile),
        }
    }
    fn on_vectors(&self, sketch: &mut Sketch<'_>, tile: ThreadTile) -> Result<(), Decline> {
        let parts = &self.parts;
        let [m, n] = fuse_output(sketch, self.output, &self.mix)?;
        let TileLoops { rows, columns, thread } = split_tile(sketch, [m, n], &tile)?;
        sketch.bind(rows, Axis::GroupY)?;
        sketch.bind(columns, Axis::GroupX)?;
        sketch.apply(ComputeAt { block: parts.mix, at: thread, scope: LocalScope::Register })?;
        self.place_rows(sketch, columns, tile.threads)?;
        let of_scores = ThreadTile { column_pieces: 1, ..tile };
        let scores = self.loops_of_scores(sketch, columns)?;
        let own = split_tile(sketch, scores, &of_scores)?.thread;
        sketch.apply(ComputeAt { block: parts.scores, at: own, scope: LocalScope::Register })?;
        accumulate(sketch, parts.scores, None, &self.scores, own, &of_scores)?;
        accumulate(sketch, parts.mix, None, &self.mix, thread, &tile)
    }
    fn on_matrices(
        &self,
        sketch: &mut Sketch<'_>,
        matrix: Matrix,
        tile: matrix_tile::FragmentTile,
    ) -> Result<(), Decline> {
        let all = tile.subgroups.0 * tile.subgroups.1 * i64::from(sketch.profile.subgroup.1);
        let threads = (ACROSS.min(all), (all / ACROSS).max(1));
        let product = |reduce, contraction, left| FragmentProduct { reduce, contraction, matrix, tile, threads, left };
        product(self.parts.mix, &self.mix, LeftOperand::EachStep).split_results(sketch)?;
        product(self.parts.scores, &self.scores, LeftOperand::EachStep).split_results(sketch)?;
        let [m, n] = fuse_output(sketch, self.output, &self.mix)?;
        let of_mix = product(self.parts.mix, &self.mix, LeftOperand::EachStep).split_tile(sketch, [m, n])?;
        let [rows, columns] = of_mix.tiles;
        let mix = product(self.parts.mix, &self.mix, LeftOperand::Rows(columns));
        let scores = product(self.parts.scores, &self.scores, LeftOperand::Whole(columns));
        sketch.bind(rows, Axis::GroupY)?;
        sketch.bind(columns, Axis::GroupX)?;
        mix.place(sketch, &of_mix)?;
        self.place_rows(sketch, columns, threads)?;
        if self.keys % PIECE != 0 {
            sketch.apply(TransformLayout { buffer: self.parts.scores, splits: vec![0, PIECE], order: vec![] })?;
        }
        let loops = self.loops_of_scores(sketch, columns)?;
        let of_scores = scores.split_tile(sketch, loops)?;
        scores.place(sketch, &of_scores)?;
        scores.accumulate(sketch, &of_scores)?;
        mix.accumulate(sketch, &of_mix)?;
        let rows = self.parts.rows.iter().map(|r| Name::new(&format!("{r}_part_out")));
        // In the order in which they are used.
        let results = [scores.result()].into_iter().chain(rows).chain([mix.result()]);
        share_memory(sketch, &results.collect::<Vec<Name>>());
        share_memory(sketch, &[scores.right(), mix.right()]);
        Ok(())
    }
    /// Moves the row reductions and the scores to the workgroup, and shares the reductions out to its threads.
    fn place_rows(&self, sketch: &mut Sketch<'_>, at: Name, threads: (i64, i64)) -> Result<(), Decline> {
        for block in self.parts.rows.iter().rev().copied().chain([self.copy]) {
            sketch.apply(ComputeAt { block, at, scope: LocalScope::Shared })?;
        }
        self.parts.rows.iter().try_for_each(|block| reduce_rows(sketch, *block, at, threads))
    }
    /// The loops over the scores of a block of rows.
    fn loops_of_scores(&self, sketch: &Sketch<'_>, at: Name) -> Result<[Name; 2], Decline> {
        let loops = sketch.inside(self.copy, at)?;
        <[Name; 2]>::try_from(loops)
            .map_err(|l| Decline(format!("{} dimensions tell the scores of a block of rows apart, not 2", l.len())))
    }
}

/// Lets the other blocks store to the workgroup memory of the first one, if that is of the same type.
fn share_memory(sketch: &mut Sketch<'_>, blocks: &[Name]) {
    let name = |b: &Name| sketch.view().block(*b).map(|b| sketch.f.buffers[b.buffer].name);
    let buffers: Vec<Name> = blocks.iter().filter_map(name).collect();
    if let [into, others @ ..] = buffers.as_slice() {
        for buffer in others {
            // If it is refused, both stay as they are.
            sketch.apply(MergeBuffers { buffer: *buffer, into: *into }).ok();
        }
    }
}

fn total(kernels: &[KernelEstimate]) -> f64 {
    kernels.iter().map(KernelEstimate::total).sum()
}

fn over(n: i64, by: i64) -> i64 {
    (n + by - 1) / by
}

/// Loops of a block inside `at` that are none of its reduction.
fn spatial_loops(sketch: &Sketch<'_>, block: Name, at: Name) -> Result<Vec<Name>, Decline> {
    let reductions = sketch.f.reduction_loops(block);
    Ok(sketch.inside(block, at)?.into_iter().filter(|v| !reductions.contains(v)).collect())
}

/// Gives the rows of a reduction to the threads along y, and the elements of each to those along x.
fn reduce_rows(sketch: &mut Sketch<'_>, block: Name, at: Name, threads: (i64, i64)) -> Result<(), Decline> {
    let spatial = spatial_loops(sketch, block, at)?;
    let all: Vec<Name> = spatial.iter().copied().chain(sketch.f.reduction_loops(block)).collect();
    sketch.reorder(&all)?;
    let rows = sketch.fuse(&spatial, Name::new(&format!("{block}_row")))?;
    let count = sketch.extent_of(rows).unwrap_or(1);
    let parts = sketch.split(rows, &[threads.1.min(count), 0], &["t", "i"])?;
    sketch.bind(parts[0], Axis::LocalY)?;
    let team = Team { at, threads: threads.0, axis: Axis::LocalX, how: Combination::Tree };
    reduce_over_threads(sketch, block, team)?;
    // Threads that have another row read the same part at once.
    let part = Name::new(&format!("{block}_part"));
    let rank = sketch.f.buffers.iter().find(|b| b.1.name == part).map_or(0, |b| b.1.shape.len());
    if rank < 2 {
        return Ok(());
    }
    let order: Vec<usize> = [rank - 1].into_iter().chain(0..rank - 1).collect();
    Ok(sketch.apply(TransformLayout { buffer: part, splits: vec![], order })?)
}
