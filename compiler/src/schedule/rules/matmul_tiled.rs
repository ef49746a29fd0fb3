//! Matrix products and implicit-GEMM convolutions for real GPUs: workgroup tiles through shared memory, register tiles a
//! thread.
//!
//! The reduction loops are fused into one K loop in the order (window, channel), so that a K step of 16 reads consecutive
//! channels; tiles of both operands are copied cooperatively into shared memory; each thread multiplies a 4x4 (or 8x4)
//! register tile. The tile is the largest that still gives two workgroups per core.

use super::analysis::{Contraction, Unit, contraction};
use super::pooling::{Window, open_windows, tile_loops};
use super::sketch::{Decline, Sketch};
use crate::name::Name;
use crate::schedule::Axis;
use crate::schedule::DecomposeReduction;
use crate::schedule::PadReduction;
use crate::schedule::StageInShared;
use crate::schedule::{ComputeAt, LocalScope};
use crate::tir::LoopKind;

/// Threads along rows and columns, and the register tile of a thread; with windows behind the product, their elements are
/// rows.
struct Tile {
    threads: (i64, i64),
    rows: i64,
    /// Rows of a window, which make one row of the output.
    taps: i64,
    /// Columns, all of one vector.
    width: i64,
    depth: i64,
}

/// Takes contractions with rows, columns and depth on devices with real cores; asked for by name, on all.
pub(super) fn apply(sketch: &mut Sketch<'_>, unit: &Unit) -> Result<(), Decline> {
    let reduce = unit.reduce.ok_or_else(Decline::other_kind)?;
    let c = contraction(sketch, unit)?;
    if sketch.profile.software && !sketch.asked {
        return Err(Decline("shared memory does not pay on a software device".into()));
    }
    if c.m.is_empty() || c.n.is_empty() || c.k.is_empty() {
        return Err(Decline("the product has no rows or no columns".into()));
    }
    let product = |names: &[Name]| -> i64 { names.iter().filter_map(|v| sketch.extent_of(*v)).product() };
    let taps = unit.window.as_ref().map_or(1, |w| w.taps);
    let (rows, columns, depth) = (product(&c.m) * taps, product(&c.n), product(&c.k));
    if rows < 4 || columns < 4 || depth < 8 {
        return Err(Decline(format!("{rows} rows, {columns} columns and depth {depth} are too few for tiles")));
    }
    let tile = choose_tile(sketch, rows, columns, taps)?;
    let thread = bind_output(sketch, unit, &c, &tile)?;
    accumulate(sketch, reduce, unit.window.as_ref(), &c, thread, &tile)
}

fn choose_tile(sketch: &Sketch<'_>, rows: i64, columns: i64, taps: i64) -> Result<Tile, Decline> {
    let p = sketch.profile;
    let want = 2 * p.cores as i64;
    // A thread has whole windows.
    let whole = |rows: i64| (rows / taps).max(1) * taps;
    let candidates = [(16, 16, 8, 4), (16, 16, 4, 4), (16, 8, 4, 4), (8, 8, 4, 4)].map(|t| (t.0, t.1, whole(t.2), t.3));
    let fits = |t: &(i64, i64, i64, i64)| {
        let shared = (t.0 * t.2 + t.1 * t.3) * 16 * 4;
        t.0 * t.1 <= p.max_invocations as i64 && shared <= p.shared_memory as i64
    };
    let tiles = |t: &(i64, i64, i64, i64)| -> i64 {
        ((rows + t.0 * t.2 - 1) / (t.0 * t.2)) * ((columns + t.1 * t.3 - 1) / (t.1 * t.3))
    };
    let usable: Vec<_> = candidates.iter().filter(|t| fits(t)).collect();
    let best = usable.iter().find(|t| tiles(t) >= want).or(usable.last());
    let t = best.ok_or_else(|| {
        Decline(format!("no tile fits {} threads and {} bytes of shared memory", p.max_invocations, p.shared_memory))
    })?;
    let width = [4, 2, 1].into_iter().find(|w| columns % w == 0).unwrap_or(1).min(t.3);
    Ok(Tile { threads: (t.0, t.1), rows: t.2, taps, width, depth: 16 })
}

/// Binds the output's loops; returns the innermost thread loop.
fn bind_output(sketch: &mut Sketch<'_>, unit: &Unit, c: &Contraction, tile: &Tile) -> Result<Name, Decline> {
    let out = unit.output;
    let order: Vec<Name> = c.batch.iter().chain(&c.m).chain(&c.n).copied().collect();
    sketch.reorder(&order)?;
    if !c.batch.is_empty() {
        let b = sketch.fuse(&c.batch, Name::new(&format!("{out}_b")))?;
        sketch.bind(b, Axis::GroupZ)?;
    }
    let m = sketch.fuse(&c.m, Name::new(&format!("{out}_m")))?;
    let n = sketch.fuse(&c.n, Name::new(&format!("{out}_n")))?;
    let rows = sketch.split(m, &[0, tile.threads.0, tile.rows / tile.taps], &["o", "t", "i"])?;
    let quads = sketch.split(n, &[0, tile.width], &["q", "v"])?;
    let columns = sketch.split(quads[0], &[0, tile.threads.1], &["o", "t"])?;
    sketch.reorder(&[rows[0], columns[0], rows[1], columns[1], rows[2], quads[1]])?;
    sketch.bind(rows[0], Axis::GroupY)?;
    sketch.bind(columns[0], Axis::GroupX)?;
    sketch.bind(rows[1], Axis::LocalY)?;
    sketch.bind(columns[1], Axis::LocalX)?;
    sketch.unroll(rows[2])?;
    sketch.vectorize(quads[1])?;
    Ok(columns[1])
}

fn accumulate(
    sketch: &mut Sketch<'_>,
    reduce: Name,
    window: Option<&Window>,
    c: &Contraction,
    thread: Name,
    tile: &Tile,
) -> Result<(), Decline> {
    let columns = usize::from(tile.width > 1);
    if let Some(window) = window {
        open_windows(sketch, window, thread, columns)?;
    }
    sketch.apply(ComputeAt { block: reduce, at: thread, scope: LocalScope::Register })?;
    let spatial = tile_loops(sketch, reduce, thread, columns)?;
    let mut order = c.k.clone();
    order.extend(&spatial);
    sketch.reorder(&order)?;
    let k = sketch.fuse(&c.k, Name::new(&format!("{reduce}_k")))?;
    let k = sketch.split(k, &[0, tile.depth], &["o", "i"])?;
    sketch.apply(PadReduction { block: reduce })?;
    let (a, w) = (Name::new(&format!("{reduce}_a")), Name::new(&format!("{reduce}_w")));
    for (operand, into) in [(c.left, a), (1 - c.left, w)] {
        sketch.apply(StageInShared { block: reduce, operand: operand.to_string(), at: k[0], into })?;
        copy_cooperatively(sketch, into, k[0], tile)?;
    }
    sketch.apply(DecomposeReduction { block: reduce, at: k[0] })?;
    let of = |block: Name| [Name::new(&format!("{block}_init")), block];
    for block in of(reduce).into_iter().chain(window.into_iter().flat_map(|w| of(w.block))) {
        let reductions = sketch.f.reduction_loops(block);
        let loops = sketch.loops(block)?;
        let start = loops.iter().position(|l| l.var == thread).map_or(0, |p| p + 1);
        let inner: Vec<_> =
            loops[start..].iter().filter(|l| l.kind == LoopKind::Serial && l.var != k[0]).cloned().collect();
        for (i, l) in inner.iter().enumerate() {
            let vector = i + 1 == inner.len() && matches!(l.extent.as_const(), Some(2 | 4));
            if vector && !reductions.contains(&l.var) && sketch.vectorize(l.var).is_ok() {
                continue;
            }
            sketch.unroll(l.var)?;
        }
    }
    Ok(())
}

/// Distributes the copy nest of a shared tile over all threads of the workgroup.
fn copy_cooperatively(sketch: &mut Sketch<'_>, copy: Name, at: Name, tile: &Tile) -> Result<(), Decline> {
    let loops = sketch.loops(copy)?;
    let start = loops.iter().position(|l| l.var == at).map_or(0, |p| p + 1);
    let names: Vec<Name> = loops[start..].iter().map(|l| l.var).collect();
    let flat = sketch.fuse(&names, Name::new(&format!("{copy}_f")))?;
    let parts = sketch.split(flat, &[0, tile.threads.0, tile.threads.1], &["o", "y", "x"])?;
    sketch.bind(parts[1], Axis::LocalY)?;
    sketch.bind(parts[2], Axis::LocalX)?;
    sketch.unroll(parts[0])?;
    Ok(())
}
