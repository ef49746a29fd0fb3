//! Transposes through workgroup memory: compute blocks that store along one axis and load along another.
//!
//! In the rule [`elementwise`](super::elementwise), either the loads or the stores would be strided. Here a workgroup
//! has a tile of *rows* (contiguous in the operand) and *columns* (contiguous in the result). The tile is loaded along
//! its rows, 16 bytes per thread and all loads before the first store, kept in workgroup memory, and stored along its
//! columns. Operands with the layout of the result are loaded with the store. Each vector of rows is padded so that the
//! threads of a subgroup access different banks, along rows and along columns.
//!
//! The estimate chooses the tile, and whether one pays.

use super::analysis::{Unit, block_of};
use super::candidate::Candidate;
use super::cooperate::copy_cooperatively;
use super::pooling::inside;
use super::sketch::{Decline, Sketch};
use super::view::View;
use crate::candidate;
use crate::int::{self, Int};
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::schedule::estimate::{KernelEstimate, transpose_kernel};
use crate::schedule::{Axis, StageInRegisters, StageInShared};
use crate::tir::{BufferId, Expr, LoopKind, Scope};
use crate::traffic::{BANK_BYTES, BANKS};

/// Elements of a vector.
const VECTOR: i64 = 4;
/// Elements of a tile for each thread.
const OF_A_THREAD: i64 = 8;
/// Threads of a workgroup, at most.
const THREADS: i64 = 256;
/// Rows and columns that a tile may have.
const SIZES: [(i64, i64); 7] = [(32, 32), (32, 64), (64, 32), (64, 64), (16, 32), (16, 64), (32, 16)];

/// Which loops of a block are neighbours of what it stores, and which of what it reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::schedule) struct Transposition {
    /// Loops along which what is read lies next to each other, outermost first.
    pub rows: Vec<Name>,
    /// The same for what is stored.
    pub columns: Vec<Name>,
    /// All others.
    pub batch: Vec<Name>,
    /// Iterations of `batch`, `rows` and `columns`.
    pub size: [i64; 3],
    /// Positions of the loads that go along rows.
    pub staged: Vec<usize>,
    /// Rows and columns that a vector may have: so many divide every step of the loops that are no rows (columns).
    pub vectors: (i64, i64),
}

/// By how many elements an access moves with a step of a loop; `None` where that differs from place to place.
pub(in crate::schedule) type Step<'a> = &'a dyn Fn(BufferId, &[Int], Name) -> Option<i64>;

/// An element of a buffer.
pub(in crate::schedule) type Element<'a> = (BufferId, &'a [Int]);

impl Transposition {
    /// Of a block inside `loops` that stores one element and loads others; `None` where all lie alike, or an access of
    /// device memory moves in steps that differ.
    pub(in crate::schedule) fn of(
        loops: &[(Name, i64)],
        store: Element<'_>,
        loads: &[Element<'_>],
        step: Step<'_>,
    ) -> Option<Transposition> {
        let all: Vec<(Name, i64)> = loops.iter().copied().filter(|l| l.1 > 1).collect();
        let steps = |e: &Element<'_>| all.iter().map(|l| step(e.0, e.1, l.0)).collect::<Option<Vec<i64>>>();
        let stored = steps(&store)?;
        let column = stored.iter().position(|s| *s == 1)?;
        let read: Vec<Option<Vec<i64>>> = loads.iter().map(steps).collect();
        let row_of = |s: &Vec<i64>| (s[column].abs() > 1).then(|| s.iter().position(|s| *s == 1))?;
        let row = read.iter().flatten().find_map(row_of)?;
        let is_staged = |s: &Option<Vec<i64>>| s.as_ref().and_then(row_of) == Some(row);
        let staged: Vec<usize> = (0..loads.len()).filter(|&i| is_staged(&read[i])).collect();
        let lying: Vec<&Vec<i64>> = staged.iter().filter_map(|&i| read[i].as_ref()).chain([&stored]).collect();
        let (rows, columns) = (grown(row, column, &all, &lying), grown(column, row, &all, &lying));
        let of = |list: &[usize]| -> Vec<Name> { list.iter().map(|&i| all[i].0).collect() };
        let count = |list: &[usize]| -> i64 { list.iter().map(|&i| all[i].1).product() };
        let rest: Vec<usize> = (0..all.len()).filter(|i| !rows.contains(i) && !columns.contains(i)).collect();
        let vector = |of: &[&Vec<i64>], own: &[usize]| {
            let others = |s: &&&Vec<i64>, n: i64| (0..all.len()).all(|i| own.contains(&i) || s[i] % n == 0);
            let whole = |n: &i64| count(own) % n == 0 && of.iter().all(|s| others(&s, *n));
            [VECTOR, 2].into_iter().find(whole).unwrap_or(1)
        };
        let (loaded, stored) = lying.split_at(lying.len() - 1);
        Some(Transposition {
            vectors: (vector(loaded, &rows), vector(stored, &columns)),
            size: [count(&rest), count(&rows), count(&columns)],
            rows: of(&rows),
            columns: of(&columns),
            batch: of(&rest),
            staged,
        })
    }
    /// The tiles that fit a device for operands of so many `bytes` an element in workgroup memory.
    pub(in crate::schedule) fn tiles(&self, p: &DeviceProfile, bytes: i64) -> Vec<TransposeTile> {
        let of = |(rows, columns): (i64, i64)| {
            let threads = (rows * columns / OF_A_THREAD).min(THREADS).min(i64::from(p.max_invocations));
            let along = columns / self.vectors.1;
            // As many banks as there are threads beside each other that store along the first dimension.
            let pad = (BANKS * self.vectors.0 / rows).max(1) * (BANK_BYTES / bytes).max(1);
            let across = (threads / along).clamp(1, rows / self.vectors.0);
            TransposeTile { rows, columns, threads: (along.min(threads), across), pad }
        };
        // What threads load beside each other along columns meets other banks, too: whole vectors, or single elements
        // of rows as long as there are banks, which begin one bank further each.
        let apart = |t: &TransposeTile| {
            let (of_rows, of_columns) = self.vectors;
            let row = t.columns * bytes == BANKS * BANK_BYTES;
            of_columns == 1 || t.pad % of_columns == 0 || (of_rows == 1 && row)
        };
        let fits = |t: &TransposeTile| {
            apart(t)
                && t.shared_bytes(self, bytes) <= i64::from(p.shared_memory)
                && t.threads.0 * self.vectors.1 == t.columns
                && t.threads.0 <= i64::from(p.max_workgroup_size[0])
                && t.threads.1 <= i64::from(p.max_workgroup_size[1])
        };
        SIZES.into_iter().map(of).filter(fits).collect()
    }
}

/// The loops that lie as one with `first` in all of these steps, outermost first. None of them is `other`.
fn grown(first: usize, other: usize, all: &[(Name, i64)], lying: &[&Vec<i64>]) -> Vec<usize> {
    let mut out = vec![first];
    let mut length = all[first].1;
    let follows =
        |i: &usize, out: &[usize], length: i64| !out.contains(i) && lying.iter().all(|s| s[*i] == s[first] * length);
    while let Some(next) = (0..all.len()).find(|i| *i != other && follows(i, &out, length)) {
        out.insert(0, next);
        length *= all[next].1;
    }
    out
}

/// A workgroup's part of a transpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::schedule) struct TransposeTile {
    pub rows: i64,
    pub columns: i64,
    /// Along columns and rows.
    pub threads: (i64, i64),
    /// Unused elements behind the columns of each vector of rows.
    pub pad: i64,
}

impl TransposeTile {
    /// Bytes of workgroup memory, with `bytes` for each element.
    pub(in crate::schedule) fn shared_bytes(&self, t: &Transposition, bytes: i64) -> i64 {
        let vectors = self.rows / t.vectors.0;
        vectors * (t.vectors.0 * self.columns + self.pad) * bytes * t.staged.len() as i64
    }
}

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

/// The operand paths of all loads of `e`, in the order of [`Expr::loads`].
fn load_paths(e: &Expr, path: &str, out: &mut Vec<String>) {
    let mut below = |step: usize, a: &Expr| {
        let to = if path.is_empty() { step.to_string() } else { format!("{path}.{step}") };
        load_paths(a, &to, out);
    };
    match e {
        Expr::Load(..) => out.push(path.to_string()),
        // A cast is a step of its own only above what has no operands.
        Expr::Cast(_, a) if matches!(below_casts(a), Expr::Load(..)) => below(0, a),
        Expr::Cast(_, a) => load_paths(a, path, out),
        Expr::Unary(_, a) => below(0, a),
        Expr::Binary(_, a, b) => {
            below(0, a);
            below(1, b);
        }
        Expr::Select(c, a, b) => {
            below(0, c);
            below(1, a);
            below(2, b);
        }
        Expr::Const(..) | Expr::Index(..) | Expr::All(..) => {}
    }
}

fn below_casts(mut e: &Expr) -> &Expr {
    while let Expr::Cast(_, a) = e {
        e = a;
    }
    e
}

/// Distributes a copy over the workgroup, and loads all that a thread copies before its first store.
fn copy_ahead(sketch: &mut Sketch<'_>, copy: Name, at: Name, tile: &TransposeTile) -> Result<(), Decline> {
    copy_cooperatively(sketch, copy, at, tile.threads)?;
    let own = |sketch: &Sketch<'_>, block: Name| -> Result<(Vec<Name>, Vec<(Name, LoopKind)>), Decline> {
        let names = inside(sketch, block, at)?;
        let all = sketch.loops(block)?.into_iter().filter(|l| names.contains(&l.var));
        let (threads, rest): (Vec<_>, Vec<_>) = all.partition(|l| matches!(l.kind, LoopKind::Local(_)));
        Ok((threads.iter().map(|l| l.var).collect(), rest.iter().map(|l| (l.var, l.kind)).collect()))
    };
    let (threads, rest) = own(sketch, copy)?;
    let order: Vec<Name> = threads.iter().copied().chain(rest.iter().map(|l| l.0)).collect();
    sketch.reorder(&order)?;
    let (Some(&thread), true) = (threads.last(), rest.len() > 1) else { return Ok(()) };
    let into = Name::new(&format!("{copy}_ahead"));
    sketch.apply(StageInRegisters { block: copy, operand: String::new(), at: thread, into })?;
    for (v, kind) in own(sketch, into)?.1.into_iter().zip(rest).map(|(new, old)| (new.0, old.1)) {
        match kind {
            LoopKind::Vectorize => sketch.vectorize(v)?,
            _ => sketch.unroll(v)?,
        }
    }
    Ok(())
}
