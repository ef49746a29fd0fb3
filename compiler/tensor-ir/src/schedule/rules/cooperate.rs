//! Work that the threads of a workgroup share: copies of tiles, and reductions. A reduction has partial results in
//! workgroup memory and then a tree, or subgroups that combine the values of their threads.

use super::decline::Decline;
use super::sketch::Sketch;
use crate::int::{self, Int};
use crate::name::Name;
use crate::schedule::combine::combines;
use crate::schedule::estimate::{Combination, combination_cost};
use crate::schedule::{
    Axis, CacheWrite, Combine, DecomposeReduction, MemoryScope, OffsetLoop, Rfactor, StageInRegisters, TransformLayout,
};
use crate::tir::{Block, BufferId, Scope};

/// Elements of one vector.
pub(super) const VECTOR: i64 = 4;
/// Bytes that a thread loads at once.
pub(super) const LOAD_BYTES: i64 = 16;

/// The threads along x that copy a tile: so many of them, from `first` on.
#[derive(Clone, Copy)]
pub(super) struct ThreadRange {
    pub first: i64,
    pub count: i64,
}

/// Distributes the copy nest of block `copy`, whose loops are inside loop `at`, over the threads of a `part` of a
/// one-dimensional workgroup. Each thread copies one run of 16 bytes or nothing. Returns false, without changes, if
/// there is a shorter run.
pub(super) fn copy_by_part(sketch: &mut Sketch<'_>, copy: Name, at: Name, part: ThreadRange) -> Result<bool, Decline> {
    let mut tried = sketch.clone();
    let loops = tried.inside(copy, at)?;
    let elements: i64 = loops.iter().map(|v| tried.extent_of(*v).unwrap_or(1)).product();
    let bytes = element_bytes(&tried, copy);
    let (mut flat, run) = split_runs(&mut tried, copy, &loops, elements * bytes / LOAD_BYTES)?;
    let copied: i64 = run.iter().map(|v| tried.extent_of(*v).unwrap_or(0)).product();
    let runs = tried.extent_of(flat).unwrap_or(i64::MAX);
    if copied * bytes != LOAD_BYTES || runs > part.count {
        return Ok(false);
    }
    flat = tried.split(flat, &[0, part.count], &["o", "x"])?[1];
    if part.first > 0 {
        tried.apply(OffsetLoop { r#loop: flat, by: part.first })?;
    }
    tried.bind(flat, Axis::LocalX)?;
    vectorize_run(&mut tried, run)?;
    *sketch = tried;
    Ok(true)
}

/// Distributes the copy nest of block `copy`, whose loops are inside loop `at`, over all `threads` (along x and y) of
/// the workgroup. If one of its loops is contiguous in device memory, a thread copies runs of 16 bytes (two vectors of
/// halves, which drivers load as one), and neighbouring threads copy neighbouring runs.
pub(super) fn copy_cooperatively(
    sketch: &mut Sketch<'_>,
    copy: Name,
    at: Name,
    threads: (i64, i64),
) -> Result<(), Decline> {
    let loops = sketch.inside(copy, at)?;
    let (flat, run) = split_runs(sketch, copy, &loops, threads.0 * threads.1)?;
    distribute(sketch, flat, threads)?;
    vectorize_run(sketch, run)
}

/// Gives the iterations of a loop to the threads of a workgroup, along x and y.
pub(super) fn distribute(sketch: &mut Sketch<'_>, flat: Name, threads: (i64, i64)) -> Result<(), Decline> {
    // Fewer than there are threads: the last rows of threads have none.
    let count = sketch.extent_of(flat).filter(|n| n % threads.0 == 0).map_or(i64::MAX, |n| n / threads.0);
    let parts = sketch.split(flat, &[0, threads.1.min(count.max(1)), threads.0], &["o", "y", "x"])?;
    sketch.bind(parts[1], Axis::LocalY)?;
    sketch.bind(parts[2], Axis::LocalX)?;
    Ok(sketch.unroll(parts[0])?)
}

/// The loops through a run: the last one is a vector, the others are unrolled.
fn vectorize_run(sketch: &mut Sketch<'_>, mut run: Vec<Name>) -> Result<(), Decline> {
    let Some(vector) = run.pop() else { return Ok(()) };
    run.into_iter().try_for_each(|v| sketch.unroll(v))?;
    Ok(sketch.vectorize(vector)?)
}

/// Splits the loops of a copy, which `threads` share, into one over runs of neighbours and those through a run.
fn split_runs(sketch: &mut Sketch<'_>, copy: Name, loops: &[Name], threads: i64) -> Result<(Name, Vec<Name>), Decline> {
    let mut order = loops.to_vec();
    order.sort_by_key(|v| std::cmp::Reverse(strides(sketch, copy, *v)));
    let mut run = Vec::new();
    // Packed words are stored whole: their bytes are the vector, wherever they come from.
    let word = word_loop(sketch, copy, loops);
    let may_be_vector = |v: &&Name| word.is_none_or(|w| w == **v);
    let loaded = LOAD_BYTES / loaded_bytes(sketch, copy);
    for length in run_lengths(sketch, copy, loops, threads) {
        // A run of several loads leaves gaps between the loads of neighbouring threads. If stores are strided, longer
        // runs cause fewer bank conflicts.
        let pays = |v: &&Name| length <= loaded || strides(sketch, copy, **v).1 != 1;
        let Some(found) = loops
            .iter()
            .rev()
            .filter(may_be_vector)
            .filter(pays)
            .find_map(|v| Run::along(sketch, copy, loops, *v, length).transpose())
        else {
            continue;
        };
        let found = found?;
        order.retain(|v| !found.of.contains(v));
        order.push(found.groups);
        *sketch = found.split;
        let all: Vec<Name> = order.iter().chain(&found.parts).copied().collect();
        sketch.reorder(&all)?;
        run = found.parts;
        break;
    }
    if run.is_empty() {
        order.retain(|v| Some(*v) != word);
        run.extend(word);
        sketch.reorder(&order.iter().chain(&run).copied().collect::<Vec<Name>>())?;
    }
    let flat = sketch.fuse(&order, Name::new(&format!("{copy}_f")))?;
    Ok((flat, run))
}

/// The loop over the elements of a packed word in the buffer that the block stores to.
fn word_loop(sketch: &Sketch<'_>, block: Name, loops: &[Name]) -> Option<Name> {
    let pack = sketch.elements_per_word(block);
    let neighbours = |v: &&Name| strides(sketch, block, **v).1 == 1;
    loops.iter().rev().find(neighbours).copied().filter(|v| pack > 1 && sketch.extent_of(*v) == Some(pack))
}

/// Neighbours in device memory that one thread copies.
struct Run<'a> {
    /// The sketch with the loops below.
    split: Sketch<'a>,
    /// The loops that were split or taken.
    of: Vec<Name>,
    /// The loop over runs.
    groups: Name,
    /// The loops through a run; the last one is a vector.
    parts: Vec<Name>,
}

impl<'a> Run<'a> {
    /// A run of `length` contiguous elements along the loop `v`, or along `v` and one of the other `loops` if `v` is at
    /// most one vector; `None` if the elements are not contiguous.
    fn along(
        sketch: &Sketch<'a>,
        copy: Name,
        loops: &[Name],
        v: Name,
        length: i64,
    ) -> Result<Option<Run<'a>>, Decline> {
        let whole = |v: Name, n: i64| sketch.extent_of(v).is_some_and(|extent| extent % n == 0);
        let vectors = length / VECTOR;
        let mut tries = Vec::new();
        if whole(v, length) {
            let (mut split, n) =
                (sketch.clone(), if vectors == 1 { vec![0, VECTOR] } else { vec![0, vectors, VECTOR] });
            let mut parts = split.split(v, &n, if vectors == 1 { &["q", "v"] } else { &["q", "p", "v"] })?;
            let groups = parts.remove(0);
            tries.push(Run { split, of: vec![v], groups, parts });
        } else if sketch.extent_of(v) == Some(VECTOR) {
            for outer in loops.iter().copied().filter(|o| *o != v && whole(*o, vectors)) {
                let mut split = sketch.clone();
                let parts = split.split(outer, &[0, vectors], &["q", "p"])?;
                tries.push(Run { split, of: vec![outer, v], groups: parts[0], parts: vec![parts[1], v] });
            }
        } else if length == VECTOR {
            // The rows of a thread, fewer than a vector, together with its neighbours' rows.
            let rows = sketch.extent_of(v).filter(|n| *n > 1 && strides(sketch, copy, v).0 == 1).unwrap_or(0);
            let several = |o: &Name| {
                let whole = sketch.extent_of(*o).is_some_and(|n| n * rows % VECTOR == 0);
                *o != v && rows > 0 && whole && strides(sketch, copy, *o).0 == rows
            };
            for outer in loops.iter().copied().filter(several) {
                let mut split = sketch.clone();
                let rest = loops.iter().copied().filter(|l| *l != outer && *l != v);
                split.reorder(&rest.chain([outer, v]).collect::<Vec<Name>>())?;
                let both = split.fuse(&[outer, v], Name::new(&format!("{copy}_r")))?;
                let mut parts = split.split(both, &[0, VECTOR], &["q", "v"])?;
                let groups = parts.remove(0);
                tries.push(Run { split, of: vec![outer, v], groups, parts });
            }
        }
        Ok(tries.into_iter().find(|r| reads_neighbours(&r.split, copy, &r.parts, length)))
    }
}

/// Bytes of an element of device memory that the block loads.
pub(super) fn loaded_bytes(sketch: &Sketch<'_>, copy: Name) -> i64 {
    let blocks = sketch.f.body.blocks();
    let loads = blocks.iter().find(|b| b.name == copy).map(|b| b.value.loads()).unwrap_or_default();
    let global = loads.into_iter().map(|(b, _)| &sketch.f.buffers[b]).filter(|b| b.scope == Scope::Global);
    global.map(|b| b.dtype.size() as i64).max().unwrap_or(LOAD_BYTES / VECTOR)
}

/// The same for the stored type, if that is narrower.
pub(super) fn element_bytes(sketch: &Sketch<'_>, copy: Name) -> i64 {
    let blocks = sketch.f.body.blocks();
    let stored = blocks.iter().find(|b| b.name == copy).map(|b| sketch.f.buffers[b.buffer].dtype.size() as i64);
    loaded_bytes(sketch, copy).min(stored.unwrap_or(LOAD_BYTES))
}

/// How many neighbours a thread may copy, the most first: as many as one load brings, as long as every thread has some.
fn run_lengths(sketch: &Sketch<'_>, copy: Name, loops: &[Name], threads: i64) -> Vec<i64> {
    let size = element_bytes(sketch, copy);
    let elements: i64 = loops.iter().map(|v| sketch.extent_of(*v).unwrap_or(1)).product();
    let wide = LOAD_BYTES / size;
    let mut lengths = vec![VECTOR];
    if wide > VECTOR && elements >= wide * threads {
        lengths.insert(0, wide);
    }
    lengths
}

/// The strides of `var` in device memory and in the block's own buffer, in elements. If a stride varies (as with a
/// clamp to the border), it is taken in the middle of all loops; if it is not known, the largest possible one.
pub(super) fn strides(sketch: &Sketch<'_>, block: Name, var: Name) -> (i64, i64) {
    let blocks = sketch.f.body.blocks();
    let Some(b) = blocks.iter().find(|b| b.name == block) else { return (0, 0) };
    let bounds = sketch.f.bounds();
    let middle = |v: Name| sketch.extent_of(v).map(|n| (n - 1) / 2);
    let step = |buffer: BufferId, ix: &[Int]| {
        let flat = int::flatten_index(ix, &sketch.f.buffers[buffer].shape);
        let next = flat.substitute(var, &(Int::var(var) + 1));
        let by = int::simplify(&(next - flat), &bounds);
        by.as_const().or_else(|| by.eval(&middle)).map_or(i64::MAX, i64::abs)
    };
    let global = b.value.loads().into_iter().filter(|(b, _)| sketch.f.buffers[*b].scope == Scope::Global);
    (global.map(|(b, ix)| step(b, ix)).max().unwrap_or(0), step(b.buffer, &b.indices))
}

/// True if the block loads from device memory, and each load that depends on the loops `along` reads `length`
/// contiguous elements, starting at a multiple of `length`, or one element that all of them share.
pub(super) fn reads_neighbours(sketch: &Sketch<'_>, block: Name, along: &[Name], length: i64) -> bool {
    let blocks = sketch.f.body.blocks();
    let Some(b) = blocks.iter().find(|b| b.name == block) else { return false };
    let bounds = sketch.f.bounds();
    let mut moved = b.value.loads();
    let moves = |i: &Int| along.iter().any(|v| i.uses(*v));
    moved.retain(|(b, ix)| sketch.f.buffers[*b].scope == Scope::Global && ix.iter().any(moves));
    let place = along.iter().rev().fold((Int::new(0), 1), |(sum, stride), v| {
        (sum + Int::var(*v) * stride, stride * sketch.extent_of(*v).unwrap_or(1))
    });
    let runs = |(b, ix): &(_, &[Int])| {
        let flat = int::flatten_index(ix, &sketch.f.buffers[*b].shape);
        let start = along.iter().fold(flat.clone(), |e, v| e.substitute(*v, &Int::new(0)));
        let first = int::simplify(&start, &bounds);
        let moved = int::simplify(&(flat - &first), &bounds);
        let step = int::simplify(&(moved.clone() - &place.0), &bounds);
        moved.is(0) || (step.is(0) && int::divisor(&first) % length == 0)
    };
    !moved.is_empty() && moved.iter().all(runs)
}

/// Partial results that one thread adds up by itself, at most.
const SERIAL: i64 = 16;

/// The threads of a workgroup that share a reduction: so many along an axis, inside loop `at`.
#[derive(Clone, Copy)]
pub(super) struct Team {
    pub at: Name,
    pub threads: i64,
    pub axis: Axis,
    /// How they combine their partial results.
    pub how: Combination,
}

/// How threads combine the partial results of these reductions. It is a choice if the device has subgroup operations
/// and the threads are `alone` in their workgroup, so that no subgroup has other threads.
pub(super) fn choose_combination(
    sketch: &mut Sketch<'_>,
    reductions: &[Name],
    threads: i64,
    alone: bool,
) -> Result<Combination, Decline> {
    let blocks = sketch.f.body.blocks();
    let of = |r: &Name| blocks.iter().find(|b| b.name == *r).map(|b| sketch.f.buffers[b.buffer].dtype);
    let words = reductions.iter().filter_map(of).all(combines);
    let mut all = vec![Combination::Tree];
    if alone && sketch.profile.subgroup.0 > 0 && words && threads > 1 && (threads as u64).is_power_of_two() {
        all.push(Combination::Subgroups);
    }
    let cost = |c: &Combination| combination_cost(sketch.profile, threads, *c);
    all.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
    let domain: Vec<String> = all.iter().map(|c| c.word().to_string()).collect();
    let chosen = sketch.choose("combine", &domain, domain[0].clone())?;
    Ok(all.into_iter().find(|c| c.word() == chosen).unwrap_or(Combination::Tree))
}

/// Distributes the reduction loops of `block`, which are inside loop `team.at`, over its threads. Neighbouring threads
/// take neighbouring elements, or neighbouring vectors if memory allows. Every thread then has the result.
pub(super) fn reduce_over_threads(sketch: &mut Sketch<'_>, block: Name, team: Team) -> Result<(), Decline> {
    let Team { at, threads, axis, .. } = team;
    let loops = sketch.f.reduction_loops(block);
    if loops.is_empty() {
        return Ok(());
    }
    let extent: i64 = loops.iter().map(|v| sketch.extent_of(*v).unwrap_or(0)).product();
    let all = sketch.fuse(&loops, Name::new(&format!("{block}_all")))?;
    if extent < 2 * threads.min(SERIAL) {
        return finish(sketch, block, all);
    }
    let vector = split_vectors(sketch, block, all, extent / VECTOR >= threads)?;
    let parts = sketch.split(vector.map_or(all, |v| v.0), &[0, threads], &["o", "t"])?;
    let part = Name::new(&format!("{block}_part"));
    let shared = MemoryScope::Shared;
    let axis = Some(axis);
    sketch.apply(Rfactor { block, r#loop: parts[1], into: part, scope: shared, at: Some(at), axis })?;
    keep_results_beside(sketch, part, team.axis)?;
    let of_part = |v: Name| Name::new(&format!("{part}_{v}"));
    accumulate(sketch, part, of_part(parts[0]))?;
    if let Some((_, lane)) = vector {
        stage_vectors(sketch, part, of_part(parts[0]), of_part(lane))?;
    }
    combine_parts(sketch, block, parts[1], team)
}

/// Lets one thread reduce `block` in a register, in vectors where memory allows. `own` is the thread's innermost loop
/// over its results.
pub(super) fn reduce_alone(sketch: &mut Sketch<'_>, block: Name, own: Name) -> Result<(), Decline> {
    let loops = sketch.inside(block, own)?;
    let [_, ..] = loops.as_slice() else { return Ok(()) };
    let all = sketch.fuse(&loops, Name::new(&format!("{block}_all")))?;
    let vector = split_vectors(sketch, block, all, true)?;
    accumulate(sketch, block, vector.map_or(all, |v| v.0))?;
    match vector {
        Some((at, lane)) => stage_vectors(sketch, block, at, lane),
        None => Ok(()),
    }
}

/// Puts partial results of neighbouring threads along x next to each other in workgroup memory, where those along y
/// share a result: they would lie in the same banks.
fn keep_results_beside(sketch: &mut Sketch<'_>, part: Name, axis: Axis) -> Result<(), Decline> {
    let rank = sketch.f.buffers.iter().find(|b| b.1.name == part).map_or(0, |b| b.1.shape.len());
    if axis != Axis::LocalY || rank < 2 {
        return Ok(());
    }
    let order: Vec<usize> = [rank - 1].into_iter().chain(0..rank - 1).collect();
    Ok(sketch.apply(TransformLayout { buffer: part, splits: vec![], order })?)
}

/// Combines the partial results that the threads of `team` have, the iterations of the reduction's loop `rest`.
pub(super) fn combine_parts(sketch: &mut Sketch<'_>, block: Name, mut rest: Name, team: Team) -> Result<(), Decline> {
    let Team { at, threads, axis, how } = team;
    let (shared, axis) = (MemoryScope::Shared, Some(axis));
    if how == Combination::Subgroups {
        set_identity(sketch, block, rest)?;
        return Ok(sketch.apply(Combine { r#loop: rest })?);
    }
    if threads > SERIAL {
        let halves = sketch.split(rest, &[0, threads.min(SERIAL * SERIAL) / SERIAL], &["o", "i"])?;
        let tree = Name::new(&format!("{block}_tree"));
        sketch.apply(Rfactor { block, r#loop: halves[1], into: tree, scope: shared, at: Some(at), axis })?;
        keep_results_beside(sketch, tree, team.axis)?;
        let of_tree = |v: Name| Name::new(&format!("{tree}_{v}"));
        accumulate(sketch, tree, of_tree(halves[0]))?;
        rest = halves[1];
    }
    finish(sketch, block, rest)
}

/// The last part of a reduction, which every thread does: in a register of its own.
fn finish(sketch: &mut Sketch<'_>, block: Name, at: Name) -> Result<(), Decline> {
    let shared = |b: &&Block| b.name == block && sketch.f.buffers[b.buffer].scope == Scope::Shared;
    match sketch.f.body.blocks().iter().any(shared) {
        true => accumulate(sketch, block, at),
        false => set_identity(sketch, block, at),
    }
}

/// Splits the reduction loop `all` of `block` into vectors, if there are `enough` and each is contiguous in device
/// memory. Returns the loop over vectors and the loop over their elements.
fn split_vectors(
    sketch: &mut Sketch<'_>,
    block: Name,
    all: Name,
    enough: bool,
) -> Result<Option<(Name, Name)>, Decline> {
    if !enough || sketch.extent_of(all).is_none_or(|n| n % VECTOR != 0) {
        return Ok(None);
    }
    let mut split = sketch.clone();
    let parts = split.split(all, &[0, VECTOR], &["q", "v"])?;
    if !reads_neighbours(&split, block, &parts[1..], VECTOR) {
        return Ok(None);
    }
    *sketch = split;
    Ok(Some((parts[0], parts[1])))
}

/// Computes all elements of a vector (loop `lane`) before `block` combines them.
fn stage_vectors(sketch: &mut Sketch<'_>, block: Name, at: Name, lane: Name) -> Result<(), Decline> {
    let into = Name::new(&format!("{block}_in"));
    sketch.apply(StageInRegisters { block, operand: String::new(), at, into, narrow: false })?;
    let loops = sketch.inside(into, at)?;
    loops.into_iter().try_for_each(|v| sketch.vectorize(v))?;
    Ok(sketch.unroll(lane)?)
}

/// Accumulates in a register the values that `block` stores in workgroup memory, inside loop `at`.
fn accumulate(sketch: &mut Sketch<'_>, block: Name, at: Name) -> Result<(), Decline> {
    sketch.apply(CacheWrite { block, at, into: Name::new(&format!("{block}_out")) })?;
    set_identity(sketch, block, at)
}

fn set_identity(sketch: &mut Sketch<'_>, block: Name, at: Name) -> Result<(), Decline> {
    sketch.apply(DecomposeReduction { block, at })?;
    Ok(())
}
