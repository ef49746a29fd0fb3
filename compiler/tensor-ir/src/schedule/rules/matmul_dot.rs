//! Products of bytes and their convolutions: a thread multiplies four bytes of two packed words at once and adds up in i32.
//!
//! Four neighbours of the reduction are a word. Tiles of both operands lie in shared memory in words, as `[k][row]` and
//! `[k][column]`; all threads copy them, and the next step's are loaded while this one is computed. A thread has a register tile of
//! rows and columns, for each of which a step is one operation ([`crate::tir::intrinsic`]). Constant weights are packed in the
//! order in which they are read, four to a word along the reduction. What is left over of the reduction is multiplied by 0.

use super::analysis::{Contraction, Unit, contraction_of_numbers};
use super::cooperate::copy_cooperatively;
use super::matmul_tiled::{LEAST, LEAST_DEPTH, fuse_output};
use super::pooling::inside;
use super::sketch::{Decline, Sketch};
use super::tiles::ProductTile;
use crate::dtype::DType;
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::profile::quirks::SINKS_LOADS;
use crate::schedule::estimate::product_costs;
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
type Tile = (i64, i64, i64);

/// From the most to the least.
const TILES: [Tile; 6] = [(16, 16, 8), (16, 16, 4), (16, 8, 4), (8, 8, 4), (8, 8, 2), (8, 8, 1)];

/// Takes products of bytes on devices with real cores; asked for by name, on all.
pub(super) fn apply(sketch: &mut Sketch<'_>, unit: &Unit) -> Result<(), Decline> {
    let reduce = unit.reduce.ok_or_else(Decline::other_kind)?;
    let t = operand_type(sketch, reduce)?;
    let c = contraction_of_numbers(sketch, unit)?;
    if sketch.profile.software && !sketch.asked {
        return Err(Decline("a software device multiplies the bytes of a word one by one".into()));
    }
    if unit.window.is_some() {
        return Err(Decline("windows stand behind the product".into()));
    }
    if c.m.is_empty() || c.n.is_empty() || c.k.is_empty() {
        return Err(Decline("the product has no rows or no columns".into()));
    }
    let product = |names: &[Name]| -> i64 { names.iter().filter_map(|v| sketch.extent_of(*v)).product() };
    let (batch, rows, columns, depth) = (product(&c.batch), product(&c.m), product(&c.n), product(&c.k));
    if rows < LEAST || columns < LEAST || depth < LEAST_DEPTH {
        return Err(Decline(format!("{rows} rows, {columns} columns and depth {depth} are too few for tiles")));
    }
    let tile = choose_tile(sketch, unit, [batch, rows, columns])?;
    let depths = [2 * DEPTH, DEPTH, DEPTH / 2];
    let depth = sketch.choose("depth", &depths, DEPTH)?;
    if c.right_constant {
        pack_right(sketch, &c, tile.0 * COLUMNS)?;
    }
    let thread = bind_output(sketch, unit, &c, tile)?;
    accumulate(sketch, reduce, &c, thread, (tile, depth), t)
}

/// The type of both operands' bytes.
fn operand_type(sketch: &Sketch<'_>, reduce: Name) -> Result<DType, Decline> {
    let blocks = sketch.f.body.blocks();
    let block = blocks.iter().find(|b| b.name == reduce).ok_or_else(Decline::other_kind)?;
    let types: Vec<DType> = block.value.loads().iter().map(|l| sketch.f.buffers[l.0].dtype).collect();
    let bytes = |t: &DType| matches!(t, DType::I8 | DType::U8);
    if sketch.f.buffers[block.buffer].dtype != DType::I32 || !types.iter().any(bytes) {
        return Err(Decline::other_kind());
    }
    match types[..] {
        [a, b] if a == b => Ok(a),
        [a, b] if bytes(&a) && bytes(&b) => Err(Decline(format!("one operand is {a}, the other {b}"))),
        _ => Err(Decline("an operand is no byte as it lies in memory".into())),
    }
}

/// Those that fit the device.
fn usable(p: &DeviceProfile) -> Vec<Tile> {
    let bytes = |t: &Tile| (t.1 * t.2 + t.0 * COLUMNS + 1) * 2 * DEPTH * WORD;
    let fits = |t: &&Tile| t.0 * t.1 <= i64::from(p.max_invocations) && bytes(t) <= i64::from(p.shared_memory);
    TILES.iter().filter(fits).copied().collect()
}

fn in_numbers(t: &Tile) -> ProductTile {
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

/// The tiles that a product of bytes of `[batch, rows, columns]` may have; none of one that is too small for any.
pub(in crate::schedule) fn candidates(p: &DeviceProfile, [_, rows, columns]: [i64; 3]) -> Vec<ProductTile> {
    if rows < LEAST || columns < LEAST { vec![] } else { usable(p).iter().map(in_numbers).collect() }
}

/// The tile that costs least; where that is not known, the largest that leaves every core a workgroup, else the smallest.
fn choose_tile(sketch: &mut Sketch<'_>, unit: &Unit, [batch, rows, columns]: [i64; 3]) -> Result<Tile, Decline> {
    let p = sketch.profile;
    let over = |n: i64, by: i64| (n + by - 1) / by;
    let usable = usable(p);
    let numbers: Vec<ProductTile> = usable.iter().map(in_numbers).collect();
    let costs = product_costs(&sketch.f, sketch.constants, p, [unit.name(), unit.output], &numbers);
    let priced = costs.iter().flatten().zip(&usable).filter(|(cost, _)| **cost > 0.0);
    let least = priced.min_by(|a, b| a.0.total_cmp(b.0)).map(|(_, t)| t);
    let groups = |t: &&Tile| batch * over(rows, t.1 * t.2) * over(columns, t.0 * COLUMNS);
    let enough = || usable.iter().find(|t| groups(t) >= i64::from(p.cores)).or(usable.last());
    let usual = least.or_else(enough).copied().ok_or_else(|| Decline("no tile fits the device".into()))?;
    let listed = |t: &Tile| vec![t.0, t.1, t.2];
    let domain: Vec<Vec<i64>> = usable.iter().map(listed).collect();
    let chosen = sketch.choose("tile", &domain, listed(&usual))?;
    Ok(usable.iter().find(|t| listed(t) == chosen).copied().unwrap_or(usual))
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
fn bind_output(sketch: &mut Sketch<'_>, unit: &Unit, c: &Contraction, tile: Tile) -> Result<Name, Decline> {
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
    (tile, depth): (Tile, i64),
    t: DType,
) -> Result<(), Decline> {
    sketch.apply(ComputeAt { block: reduce, at: thread, scope: LocalScope::Register })?;
    let reductions = sketch.f.reduction_loops(reduce);
    let mut spatial = inside(sketch, reduce, thread)?;
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
    sketch.apply(SoftwarePipeline { r#loop: k[0], buffers: vec![a, w], double_buffer: false, always })?;
    sketch.apply(Tensorize { r#loop: words[1], intrinsic: format!("dot4_{t}") })?;
    for block in [Name::new(&format!("{reduce}_init")), reduce] {
        let own = inside(sketch, block, thread)?;
        let serial = sketch.loops(block)?.into_iter().filter(|l| l.kind == LoopKind::Serial && l.var != k[0]);
        let serial: Vec<Name> = serial.map(|l| l.var).filter(|v| own.contains(v)).collect();
        serial.into_iter().try_for_each(|v| sketch.unroll(v))?;
    }
    Ok(())
}
