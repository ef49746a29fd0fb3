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

use super::analysis::{Contraction, contraction};
use super::candidate::Candidate;
use super::cooperate::copy_cooperatively;
use super::decline::Decline;
use super::direct;
use super::matmul_subgroup::pack_right;
use super::pooling_loops::{open_windows, tile_loops};
use super::sketch::Sketch;
use super::split_depth::split_depth;
use super::thread_tile::{LEAST, LEAST_DEPTH, ThreadTile, TiledProduct, Tiles, listed};
use super::unit::PoolingWindow;
use super::unit::Unit;
use super::view::View;
use crate::name::Name;
use crate::profile::quirks::SINKS_LOADS;
use crate::schedule::Axis;
use crate::schedule::DecomposeReduction;
use crate::schedule::FlattenBuffer;
use crate::schedule::PadReduction;
use crate::schedule::SoftwarePipeline;
use crate::schedule::StageInShared;
use crate::schedule::estimate::{KernelEstimate, product_kernels};
use crate::schedule::tiles::{Depth, PAD, ProductSize, ProductTile};
use crate::schedule::{ComputeAt, LocalScope};
use crate::tir::LoopKind;

/// The product of a unit: contractions with rows, columns and depth on devices with workgroup memory of its own; asked
/// for by name, on all.
fn product(view: &View<'_>, unit: &Unit) -> Result<(Contraction, ProductSize), Decline> {
    let c = contraction(view, unit)?;
    if !view.profile.model().workgroup_memory && !view.asked {
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
    Ok((c, ProductSize { all, taps, lies }))
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
    let mut tile = ThreadTile { depth: chosen.depth, ..tiles.tile(&shape) };
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
    tile: &ThreadTile,
    parts: i64,
) -> Result<(), Decline> {
    let part = split_depth(sketch, unit, c, parts)?;
    let c = contraction(&sketch.view(), &part)?;
    compute(sketch, &part, &c, tile)?;
    direct::compute(sketch, unit)
}

/// Schedules the unit with this tile.
fn compute(sketch: &mut Sketch<'_>, unit: &Unit, c: &Contraction, tile: &ThreadTile) -> Result<(), Decline> {
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

/// Bytes of an element of the narrower and of the wider operand in device memory.
fn element_bytes(view: &View<'_>, unit: &Unit) -> [i64; 2] {
    let loads = view.block(unit.name()).map_or(vec![], |b| b.value.loads());
    Depth::bytes(loads.iter().map(|l| view.f.buffers[l.0].dtype))
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
pub(super) fn split_tile(sketch: &mut Sketch<'_>, [m, n]: [Name; 2], tile: &ThreadTile) -> Result<TileLoops, Decline> {
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
    tile: &ThreadTile,
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
    sketch.apply(SoftwarePipeline { r#loop: k[0], buffers: vec![a, w], always, ..SoftwarePipeline::default() })?;
    let of = |block: Name| [Name::new(&format!("{block}_init")), block];
    for block in of(reduce).into_iter().chain(window.into_iter().flat_map(|w| of(w.block))) {
        unroll_tile(sketch, block, thread, k[0])?;
    }
    Ok(())
}

/// The loops of the tile inside `at` that are no reduction's.
fn spatial_loops(sketch: &Sketch<'_>, block: Name, at: Name) -> Result<Vec<Name>, Decline> {
    let reductions = sketch.f.reduction_loops(block);
    Ok(sketch.inside(block, at)?.into_iter().filter(|v| !reductions.contains(v)).collect())
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
