//! Transposes through workgroup memory: compute blocks that store along one axis and load along another.
//!
//! In the rule [`elementwise`](super::elementwise), either the loads or the stores would be strided. Here a workgroup
//! has a tile of *rows* (contiguous in the operand) and *columns* (contiguous in the result). The tile is loaded along
//! its rows, 16 bytes per thread and all loads before the first store, kept in workgroup memory, and stored along its
//! columns. Operands with the layout of the result are loaded with the store. Each vector of rows is padded so that the
//! threads of a subgroup access different banks, along rows and along columns.
//!
//! The estimate chooses the tile, and whether one pays.

use super::candidate::Candidate;
use super::cooperate::copy_cooperatively;
use super::copies::load_paths;
use super::decline::Decline;
use super::sketch::Sketch;
use super::unit::{Unit, block_of};
use super::view::View;
use crate::candidate;
use crate::int::{self, Int};
use crate::name::Name;
use crate::schedule::estimate::{KernelEstimate, transpose_kernel};
use crate::schedule::tiles::{TransposeTile, Transposition, VECTOR};
use crate::schedule::{Axis, StageInRegisters, StageInShared};
use crate::tir::{BufferId, LoopKind, Scope};

candidate! {
    /// A tile of a transpose.
    pub(super) struct TiledTranspose {
        /// Rows and columns.
        pub tile: Vec<i64>,
    }
}

fn listed(t: &TransposeTile) -> Vec<i64> {
    vec![t.rows, t.columns]
}

/// The tiles of a lone compute block that reads along another axis than it stores.
fn tiles(view: &View<'_>, unit: &Unit) -> Result<(Transposition, Vec<TransposeTile>), Decline> {
    if unit.reduce.is_some() {
        return Err(Decline::other_kind());
    }
    let (t, bytes) = transposition(view, unit.output)?;
    let tiles = t.tiles(view.profile, bytes);
    match tiles.is_empty() {
        true => Err(Decline("no tile fits the device".into())),
        false => Ok((t, tiles)),
    }
}

/// The tiles that fit the device.
pub(super) fn candidates(view: &View<'_>, unit: &Unit) -> Result<Vec<Candidate>, Decline> {
    let known = view.once(unit, |view| tiles(view, unit));
    let (t, tiles) = known.as_ref().as_ref().map_err(Clone::clone)?;
    if view.elements_per_word(unit.output) > 1 && t.vectors.1 != VECTOR {
        return Err(Decline("a packed result stores whole words".into()));
    }
    Ok(tiles.iter().map(|t| Candidate::new(TiledTranspose { tile: listed(t) })).collect())
}

/// The kernel in the candidate's tile.
pub(super) fn price(view: &View<'_>, unit: &Unit, candidate: &Candidate) -> Vec<KernelEstimate> {
    let known = view.once(unit, |view| tiles(view, unit));
    let (Ok(chosen), Ok((_, tiles))) = (candidate.choices::<TiledTranspose>(), &*known) else { return vec![] };
    let tile = tiles.iter().find(|t| listed(t) == chosen.tile);
    tile.map_or(vec![], |tile| transpose_kernel(view.stages(), unit.output, tile))
}

/// Schedules the unit in the candidate's tile.
pub(super) fn apply(sketch: &mut Sketch<'_>, unit: &Unit, candidate: &Candidate) -> Result<(), Decline> {
    let chosen = candidate.choices::<TiledTranspose>()?;
    let (t, tiles) = tiles(&sketch.view(), unit)?;
    let domain: Vec<Vec<i64>> = tiles.iter().map(listed).collect();
    let list = sketch.choose("tile", &domain, chosen.tile.clone())?;
    let tile = tiles.into_iter().find(|t| listed(t) == list).ok_or_else(Decline::other_kind)?;
    compute(sketch, unit.output, &t, &tile)
}

/// How `block` reads and stores, and the most bytes of an element that it would keep in workgroup memory.
fn transposition(view: &View<'_>, block: Name) -> Result<(Transposition, i64), Decline> {
    let mut loops = Vec::new();
    for l in view.loops(block)? {
        loops.push((l.var, view.constant_extent(&l.extent)?));
    }
    let f = view.f;
    let b = view.block(block).ok_or_else(Decline::other_kind)?;
    let bounds = f.bounds();
    let step = |buffer: BufferId, ix: &[Int], var: Name| {
        let flat = int::flatten_index(ix, &f.buffers[buffer].shape);
        let next = flat.substitute(var, &(Int::var(var) + 1));
        int::simplify(&(next - flat), &bounds).as_const()
    };
    let loads = b.value.loads();
    let t = Transposition::of(&loops, (b.buffer, &b.indices), &loads, &step).ok_or_else(Decline::other_kind)?;
    let staged = || t.staged.iter().map(|&i| &f.buffers[loads[i].0]);
    if staged().any(|b| b.scope != Scope::Global) {
        return Err(Decline::other_kind());
    }
    let bytes = staged().map(|b| if b.dtype.size() == 2 && view.profile.f16 { 2 } else { 4 }).max().unwrap_or(4);
    Ok((t, bytes))
}

fn compute(sketch: &mut Sketch<'_>, block: Name, t: &Transposition, tile: &TransposeTile) -> Result<(), Decline> {
    let single: Vec<Name> = sketch.loops(block)?.iter().filter(|l| l.extent.is(1)).map(|l| l.var).collect();
    let order: Vec<Name> = [&single, &t.batch, &t.rows, &t.columns].into_iter().flatten().copied().collect();
    sketch.reorder(&order)?;
    let named = |what: &str| Name::new(&format!("{block}_{what}"));
    let batch: Vec<Name> = single.into_iter().chain(t.batch.iter().copied()).collect();
    if !batch.is_empty() {
        let b = sketch.fuse(&batch, named("b"))?;
        sketch.bind(b, Axis::GroupZ)?;
    }
    let (rows, columns) = (sketch.fuse(&t.rows, named("r"))?, sketch.fuse(&t.columns, named("c"))?);
    let r = sketch.split(rows, &[0, tile.rows / t.vectors.0, t.vectors.0], &["o", "q", "v"])?;
    let c = sketch.split(columns, &[0, tile.columns / t.vectors.1, t.vectors.1], &["o", "q", "v"])?;
    sketch.reorder(&[r[0], c[0], r[1], r[2], c[1], c[2]])?;
    sketch.bind(r[0], Axis::GroupY)?;
    sketch.bind(c[0], Axis::GroupX)?;
    let copies = stage(sketch, block, t, c[0], tile.pad)?;
    // The store: threads along columns, then vectors of rows, each of which a thread has for itself.
    let parts = sketch.split(r[1], &[0, tile.threads.1], &["p", "t"])?;
    sketch.reorder(&[parts[1], c[1], parts[0], r[2], c[2]])?;
    sketch.bind(parts[1], Axis::LocalY)?;
    sketch.bind(c[1], Axis::LocalX)?;
    sketch.unroll(parts[0])?;
    sketch.unroll(r[2])?;
    sketch.vectorize(c[2])?;
    copies.into_iter().try_for_each(|copy| copy_ahead(sketch, copy, c[0], tile))
}

/// Stages the loads that go along rows inside loop `at`; returns the blocks that copy.
fn stage(sketch: &mut Sketch<'_>, block: Name, t: &Transposition, at: Name, pad: i64) -> Result<Vec<Name>, Decline> {
    let b = block_of(&sketch.f, block).ok_or_else(Decline::other_kind)?;
    let mut paths = Vec::new();
    load_paths(&b.value, "", &mut paths);
    // Positions among all loads; the same load twice is staged twice, unless a path leads to both.
    let wanted: Vec<String> = t.staged.iter().filter_map(|&i| paths.get(i).cloned()).collect();
    let mut out = Vec::new();
    for (n, operand) in wanted.into_iter().enumerate() {
        let into = Name::new(&format!("{block}_tile{n}"));
        sketch.apply(StageInShared { block, operand, at, into, pad, ..Default::default() })?;
        out.push(into);
    }
    Ok(out)
}

/// Distributes a copy over the workgroup, and loads all that a thread copies before its first store.
fn copy_ahead(sketch: &mut Sketch<'_>, copy: Name, at: Name, tile: &TransposeTile) -> Result<(), Decline> {
    copy_cooperatively(sketch, copy, at, tile.threads)?;
    let own = |sketch: &Sketch<'_>, block: Name| -> Result<(Vec<Name>, Vec<(Name, LoopKind)>), Decline> {
        let names = sketch.inside(block, at)?;
        let all = sketch.loops(block)?.into_iter().filter(|l| names.contains(&l.var));
        let (threads, rest): (Vec<_>, Vec<_>) = all.partition(|l| matches!(l.kind, LoopKind::Local(_)));
        Ok((threads.iter().map(|l| l.var).collect(), rest.iter().map(|l| (l.var, l.kind)).collect()))
    };
    let (threads, rest) = own(sketch, copy)?;
    let order: Vec<Name> = threads.iter().copied().chain(rest.iter().map(|l| l.0)).collect();
    sketch.reorder(&order)?;
    let (Some(&thread), true) = (threads.last(), rest.len() > 1) else { return Ok(()) };
    let into = Name::new(&format!("{copy}_ahead"));
    sketch.apply(StageInRegisters { block: copy, operand: String::new(), at: thread, into, narrow: false })?;
    for (v, kind) in own(sketch, into)?.1.into_iter().zip(rest).map(|(new, old)| (new.0, old.1)) {
        match kind {
            LoopKind::Vectorize => sketch.vectorize(v)?,
            _ => sketch.unroll(v)?,
        }
    }
    Ok(())
}
