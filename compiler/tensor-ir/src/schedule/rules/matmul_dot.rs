//! Products of bytes and their convolutions: a thread multiplies the four bytes of two packed words at once, with sums
//! in i32.
//!
//! Four neighbours along the reduction are a word. Tiles of both operands are in shared memory as words, in the order
//! `[k][row]` and `[k][column]`. All threads copy them, and the tiles of the next step are loaded while this one is
//! computed. A thread has a register tile of rows and columns; each step is one operation per element of it
//! ([`crate::tir::intrinsic`]). Constant weights are packed in the order in which they are read, four to a word along
//! the reduction. The last word of the reduction is filled with zeros. A long reduction may be cut into slices
//! ([`split_depth`](super::split_depth)) that become workgroups: few rows and columns then fill the device.

use super::analysis::{Contraction, contraction_of_numbers};
use super::candidate::Candidate;
use super::cooperate::copy_cooperatively;
use super::decline::Decline;
use super::direct;
use super::matmul_tiled::fuse_output;
use super::sketch::Sketch;
use super::split_depth::{slices, split_depth};
use super::thread_tile::{LEAST, LEAST_DEPTH};
use super::unit::Unit;
use super::view::View;
use crate::candidate;
use crate::dtype::DType;
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::profile::quirks::SINKS_LOADS;
use crate::schedule::estimate::{KernelEstimate, product_kernels};
use crate::schedule::tiles::ProductTile;
use crate::schedule::{
    Axis, ComputeAt, DecomposeReduction, FlattenBuffer, LocalScope, PadReduction, SoftwarePipeline, StageInShared,
    Tensorize, TransformLayout,
};
use crate::tir::LoopKind;

/// Bytes of a word.
const WORD: i64 = 4;
/// Columns of a thread.
const COLUMNS: i64 = 4;
/// Words of the reduction that a workgroup has at a time.
const DEPTH: i64 = 8;
/// Bytes behind a row of the left tile: a word, so that the copy's stores go to different banks.
const PAD: i64 = WORD;

/// Threads along columns and rows, and rows of a thread.
type ByteTile = (i64, i64, i64);

fn listed(t: &ByteTile) -> Vec<i64> {
    vec![t.0, t.1, t.2]
}

/// From the most to the least.
const TILES: [ByteTile; 6] = [(16, 16, 8), (16, 16, 4), (16, 8, 4), (8, 8, 4), (8, 8, 2), (8, 8, 1)];

candidate! {
    /// A tile of a product of bytes.
    pub(super) struct ByteProduct {
        /// Threads along columns and rows, and rows of a thread.
        pub tile: Vec<i64>,
        /// Words of the reduction that a workgroup has at a time.
        pub depth: i64,
        /// Slices of the reduction that are workgroups of their own.
        pub slices: i64,
    }
}

/// Words of the reduction that a workgroup may have at a time.
const DEPTHS: [i64; 3] = [2 * DEPTH, DEPTH, DEPTH / 2];

/// A product of bytes.
#[derive(Clone)]
struct Found {
    contraction: Contraction,
    /// The type of both operands.
    bytes: DType,
    /// Batch, rows and columns.
    size: [i64; 3],
    /// Elements of the reduction, and of its innermost loop.
    depth: i64,
    channels: i64,
}

impl Found {
    /// The numbers of slices that the reduction may be cut into, for steps of so many words.
    fn slices(&self, depth: i64) -> Vec<i64> {
        let step = depth * WORD;
        let steps = if self.channels % step == 0 { self.channels / step } else { 1 };
        // One row has no loop left that its slices could be rows of.
        if self.size[0] > 1 || self.size[1] == 1 { vec![1] } else { slices(self.depth, steps) }
    }
}

/// The product of a unit: of bytes, on devices with real cores; asked for by name, on all.
fn product(view: &View<'_>, unit: &Unit) -> Result<Found, Decline> {
    let t = operand_type(view, unit.reduce.ok_or_else(Decline::other_kind)?)?;
    let c = contraction_of_numbers(view, unit)?;
    if !view.profile.model().product_units && !view.asked {
        return Err(Decline("a software device multiplies the bytes of a word one by one".into()));
    }
    if unit.window.is_some() {
        return Err(Decline("windows stand behind the product".into()));
    }
    if c.m.is_empty() || c.n.is_empty() || c.k.is_empty() {
        return Err(Decline("the product has no rows or no columns".into()));
    }
    let (batch, rows, columns, depth) =
        (view.product(&c.batch), view.product(&c.m), view.product(&c.n), view.product(&c.k));
    if columns < LEAST || depth < LEAST_DEPTH {
        return Err(Decline(format!("{columns} columns and depth {depth} are too few for tiles")));
    }
    let channels = c.k.last().and_then(|v| view.extent_of(*v)).unwrap_or(1);
    Ok(Found { contraction: c, bytes: t, size: [batch, rows, columns], depth, channels })
}

/// The tiles that fit the device, each with every number of slices; first the largest that leaves every core a
/// workgroup, else the smallest.
pub(super) fn candidates(view: &View<'_>, unit: &Unit) -> Result<Vec<Candidate>, Decline> {
    let found = product(view, unit)?;
    let [batch, rows, columns] = found.size;
    let over = |n: i64, by: i64| (n + by - 1) / by;
    let usable = usable(view.profile);
    let groups = |t: &&ByteTile| batch * over(rows, t.1 * t.2) * over(columns, t.0 * COLUMNS);
    let enough = usable.iter().find(|t| groups(t) >= i64::from(view.profile.cores)).or(usable.last());
    let first = *enough.ok_or_else(|| Decline("no tile fits the device".into()))?;
    let all = || std::iter::once(first).chain(usable.iter().copied().filter(|t| *t != first));
    let of = |t: ByteTile, depth: i64| {
        let one = move |slices: i64| Candidate::new(ByteProduct { tile: listed(&t), depth, slices });
        found.slices(depth).into_iter().map(one)
    };
    let others = DEPTHS.into_iter().filter(|d| *d != DEPTH);
    let asked = others.flat_map(|d| all().flat_map(move |t| of(t, d)).map(Candidate::on_request));
    Ok(all().flat_map(|t| of(t, DEPTH)).chain(asked).collect())
}

/// The kernel of the product in the candidate's tile.
pub(super) fn price(view: &View<'_>, unit: &Unit, candidate: &Candidate) -> Vec<KernelEstimate> {
    let Ok(chosen) = candidate.choices::<ByteProduct>() else { return vec![] };
    let Some(tile) = TILES.into_iter().find(|t| listed(t) == chosen.tile) else { return vec![] };
    let tile = ProductTile { depth: chosen.depth * WORD, slices: chosen.slices, ..in_numbers(&tile) };
    product_kernels(view.stages(), [unit.name(), unit.output], &tile)
}

/// Schedules the unit in the candidate's tile.
pub(super) fn apply(sketch: &mut Sketch<'_>, unit: &Unit, candidate: &Candidate) -> Result<(), Decline> {
    let chosen = candidate.choices::<ByteProduct>()?;
    let found = product(&sketch.view(), unit)?;
    let usable = usable(sketch.profile);
    let domain: Vec<Vec<i64>> = usable.iter().map(listed).collect();
    let list = sketch.choose("tile", &domain, chosen.tile.clone())?;
    let tile = usable.into_iter().find(|t| listed(t) == list).ok_or_else(Decline::other_kind)?;
    let depth = sketch.choose("depth", &DEPTHS, chosen.depth)?;
    let slices = found.slices(depth);
    match if slices.len() > 1 { sketch.choose("slices", &slices, chosen.slices)? } else { 1 } {
        1 => compute(sketch, unit, &found, (tile, depth)),
        parts => {
            let part = split_depth(sketch, unit, &found.contraction, parts)?;
            let found = Found { contraction: contraction_of_numbers(&sketch.view(), &part)?, ..found };
            compute(sketch, &part, &found, (tile, depth))?;
            direct::compute(sketch, unit)
        }
    }
}

/// Schedules the unit with this tile.
fn compute(sketch: &mut Sketch<'_>, unit: &Unit, found: &Found, tile: (ByteTile, i64)) -> Result<(), Decline> {
    let (c, reduce) = (&found.contraction, unit.reduce.ok_or_else(Decline::other_kind)?);
    if c.right_constant {
        pack_right(sketch, c, tile.0.0 * COLUMNS)?;
    }
    let thread = bind_output(sketch, unit, c, tile.0)?;
    accumulate(sketch, reduce, c, thread, tile, found.bytes)
}

/// The type of both operands' bytes.
pub(super) fn operand_type(view: &View<'_>, reduce: Name) -> Result<DType, Decline> {
    let block = view.block(reduce).ok_or_else(Decline::other_kind)?;
    let types: Vec<DType> = block.value.loads().iter().map(|l| view.f.buffers[l.0].dtype).collect();
    let bytes = |t: &DType| matches!(t, DType::I8 | DType::U8);
    if view.f.buffers[block.buffer].dtype != DType::I32 || !types.iter().any(bytes) {
        return Err(Decline::other_kind());
    }
    match types[..] {
        [a, b] if a == b => Ok(a),
        [a, b] if bytes(&a) && bytes(&b) => Err(Decline(format!("one operand is {a}, the other {b}"))),
        _ => Err(Decline("an operand is no byte as it lies in memory".into())),
    }
}

/// Those that fit the device.
fn usable(p: &DeviceProfile) -> Vec<ByteTile> {
    let bytes = |t: &ByteTile| (t.1 * t.2 + t.0 * COLUMNS + 1) * 2 * DEPTH * WORD;
    let fits = |t: &&ByteTile| t.0 * t.1 <= i64::from(p.max_invocations) && bytes(t) <= i64::from(p.shared_memory);
    TILES.iter().filter(fits).copied().collect()
}

fn in_numbers(t: &ByteTile) -> ProductTile {
    ProductTile {
        rows: t.1 * t.2,
        columns: t.0 * COLUMNS,
        depth: DEPTH * WORD,
        threads: t.0 * t.1,
        thread_rows: t.2,
        thread_columns: COLUMNS,
        slices: 1,
    }
}

/// Packs the constant right operand as `[column tile][window][k][column][byte]`, where the reduction is whole words.
fn pack_right(sketch: &mut Sketch<'_>, c: &Contraction, columns: i64) -> Result<(), Decline> {
    let (Some(buffer), Some((column, ks))) = (c.right_buffer, &c.right_dims) else { return Ok(()) };
    let shape = &sketch.f.buffers[buffer].shape;
    let (name, rank) = (sketch.f.buffers[buffer].name, shape.len());
    let Some(inner) = ks.last().copied() else { return Ok(()) };
    if shape[inner].as_const().is_none_or(|n| n % WORD != 0) {
        return Ok(());
    }
    let mut splits = vec![0i64; rank];
    (splits[*column], splits[inner]) = (columns, WORD);
    // Parts are numbered dimension by dimension; those that are split have two.
    let part = |dim: usize, second: bool| {
        dim + [*column, inner].iter().filter(|split| **split < dim).count() + usize::from(second)
    };
    let others = (0..rank).filter(|d| d != column && !ks.contains(d)).map(|d| part(d, false));
    let mut order = vec![part(*column, false)];
    order.extend(others.chain(ks.iter().map(|&d| part(d, false))));
    order.extend([part(*column, true), part(inner, true)]);
    let (last, first) = (order.len() - 2, order.len() - 2 - ks.len());
    sketch.apply(TransformLayout { buffer: name, splits, order })?;
    if ks.len() > 1 {
        // The K loop's index is then that of one dimension, with no division in it.
        sketch.apply(FlattenBuffer { buffer: name, dims: (first..last).collect() })?;
    }
    Ok(())
}

/// Binds the output's loops; returns the innermost thread loop.
fn bind_output(sketch: &mut Sketch<'_>, unit: &Unit, c: &Contraction, tile: ByteTile) -> Result<Name, Decline> {
    let [m, n] = fuse_output(sketch, unit.output, c)?;
    let rows = sketch.split(m, &[0, tile.1, tile.2], &["o", "t", "i"])?;
    let columns = sketch.split(n, &[0, tile.0, COLUMNS], &["o", "t", "v"])?;
    sketch.reorder(&[rows[0], columns[0], rows[1], columns[1], rows[2], columns[2]])?;
    sketch.bind(rows[0], Axis::GroupY)?;
    sketch.bind(columns[0], Axis::GroupX)?;
    sketch.bind(rows[1], Axis::LocalY)?;
    sketch.bind(columns[1], Axis::LocalX)?;
    sketch.unroll(rows[2])?;
    sketch.vectorize(columns[2])?;
    Ok(columns[1])
}

fn accumulate(
    sketch: &mut Sketch<'_>,
    reduce: Name,
    c: &Contraction,
    thread: Name,
    (tile, depth): (ByteTile, i64),
    t: DType,
) -> Result<(), Decline> {
    sketch.apply(ComputeAt { block: reduce, at: thread, scope: LocalScope::Register })?;
    let reductions = sketch.f.reduction_loops(reduce);
    let mut spatial = sketch.inside(reduce, thread)?;
    spatial.retain(|v| !reductions.contains(v));
    let (inner, outer) = c.k.split_last().ok_or_else(Decline::other_kind)?;
    let words = sketch.split(*inner, &[0, WORD], &["w", "b"])?;
    let steps: Vec<Name> = outer.iter().copied().chain([words[0]]).collect();
    sketch.reorder(&[&steps[..], &spatial, &words[1..]].concat())?;
    let k = sketch.fuse(&steps, Name::new(&format!("{reduce}_k")))?;
    let k = sketch.split(k, &[0, depth], &["o", "i"])?;
    sketch.apply(PadReduction { block: reduce })?;
    let (a, w) = (Name::new(&format!("{reduce}_a")), Name::new(&format!("{reduce}_w")));
    for (operand, into, pad) in [(c.left, a, PAD), (1 - c.left, w, 0)] {
        let (operand, order) = (operand.to_string(), vec![k[1]]);
        sketch.apply(StageInShared { block: reduce, operand, at: k[0], into, order, pad, rows: 1, narrow: true })?;
        copy_cooperatively(sketch, into, k[0], (tile.0, tile.1))?;
    }
    sketch.apply(DecomposeReduction { block: reduce, at: k[0] })?;
    let always = !sketch.profile.quirks.has(&SINKS_LOADS);
    sketch.apply(SoftwarePipeline { r#loop: k[0], buffers: vec![a, w], always, ..SoftwarePipeline::default() })?;
    sketch.apply(Tensorize { r#loop: words[1], intrinsic: format!("dot4_{t}") })?;
    for block in [Name::new(&format!("{reduce}_init")), reduce] {
        let own = sketch.inside(block, thread)?;
        let serial = sketch.loops(block)?.into_iter().filter(|l| l.kind == LoopKind::Serial && l.var != k[0]);
        let serial: Vec<Name> = serial.map(|l| l.var).filter(|v| own.contains(v)).collect();
        serial.into_iter().try_for_each(|v| sketch.unroll(v))?;
    }
    Ok(())
}
