//! Products of one row or a few, whose right operand lies along the reduction: weights `[n, k]`, also of a few bits.
//!
//! A workgroup has some neighbouring columns. Its threads share the reduction: each takes a run of neighbours of all
//! columns, as many as 16 bytes of the right operand hold or fewer words, and loads them at once.
//!
//! Elements that share a word are decoded from registers; a scale that the run shares multiplies the run's sum.
//!
//! All rows use the same weights. Then the threads combine their sums. Bytes stay four to a word in registers, and four
//! products are one operation, on devices that have it.
//!
//! Constants are packed with the reduction innermost, unless they lie so already: weights of 4 bits do.

use super::analysis::{Contraction, contraction, contraction_of_numbers};
use super::candidate::Candidate;
use super::cooperate::{LOAD_BYTES, Team, choose_combination, combine_parts};
use super::decline::Decline;
use super::matmul_dot::operand_type;
use super::reduction_threads::thread_a_vector;
use super::sketch::Sketch;
use super::unit::{Unit, readers};
use super::view::View;
use crate::candidate;
use crate::dtype::DType;
use crate::int::Int;
use crate::name::Name;
use crate::schedule::estimate::{KernelEstimate, few_rows_kernel};
use crate::schedule::factor_out::shared_by_terms;
use crate::schedule::tiles::{FewRows, neighbours_sharing};
use crate::schedule::{
    Axis, CacheWrite, ComputeAt, DecomposeReduction, FactorOut, LocalScope, MemoryScope, PadReduction, Rfactor,
    StageInRegisters, Tensorize, TransformLayout,
};
use crate::tir::analysis::operands::{factors, without_casts};
use crate::tir::{BufferId, Expr, LoopKind, Scope};

/// Rows, at most.
const MOST_ROWS: i64 = 8;
/// The shortest reduction.
const SHORTEST: i64 = 64;
/// Elements of a vector.
const VECTOR: i64 = 4;
/// Neighbours that a thread takes at a time, at most.
const LONGEST_RUN: i64 = 32;
/// Columns of a workgroup.
const COLUMNS: [i64; 4] = [4, 2, 8, 1];
/// Loads of the widest kind for each lane of a device below which threads may load fewer words.
const FILLED: i64 = 2;
/// Sums of a thread, at most.
const MOST_SUMS: i64 = 32;

candidate! {
    /// Columns and threads of a workgroup, and what a thread takes at a time.
    pub(super) struct ColumnsOfWorkgroup {
        /// Neighbouring columns.
        pub columns: i64,
        /// Threads that share the reduction.
        pub threads: i64,
        /// Neighbours along the reduction that a thread takes at a time.
        pub run: i64,
    }
}

/// A product of a few rows.
struct Found {
    contraction: Contraction,
    rows: i64,
    columns: i64,
    depth: i64,
    /// Neighbours along the reduction that a thread takes at a time: as many as its widest load holds.
    run: i64,
    /// Neighbours that share a word of the right operand.
    sharing: i64,
    /// What the right operand reads along the reduction, with how many neighbours share an element.
    loads: Vec<(BufferId, i64)>,
    /// The type of both operands where words of them are multiplied.
    bytes: Option<DType>,
}

fn find(view: &View<'_>, unit: &Unit) -> Result<Found, Decline> {
    let bytes = unit.reduce.and_then(|r| operand_type(view, r).ok()).filter(|_| view.target.multiplies_bytes());
    let c = if bytes.is_some() { contraction_of_numbers(view, unit)? } else { contraction(view, unit)? };
    if unit.window.is_some() {
        return Err(Decline("windows stand behind the product".into()));
    }
    let extent = |v: &Name| view.extent_of(*v).ok_or_else(|| Decline("a size is open".into()));
    let sizes = |loops: &[Name]| loops.iter().map(extent).product::<Result<i64, Decline>>();
    let (rows, columns, depth) = (sizes(&c.m)?, sizes(&c.n)?, sizes(&c.k)?);
    if rows > MOST_ROWS {
        return Err(Decline::other_kind());
    }
    if columns < 2 || depth < SHORTEST {
        return Err(Decline(format!("{columns} columns and depth {depth} are too few to share")));
    }
    let [k] = c.k[..] else { return Err(Decline("the reduction is more than one loop".into())) };
    let reduce = unit.reduce.and_then(|r| view.block(r)).ok_or_else(Decline::other_kind)?;
    let value = factors(&reduce.value).ok_or_else(Decline::other_kind)?;
    let mut loads: Vec<(BufferId, i64)> = Vec::new();
    for (buffer, index) in value[1 - c.left].loads() {
        let order = order_along(view, reduce.name, (buffer, index), k);
        let ordered = |list: &[Int]| order.iter().map(|d| list[*d].clone()).collect::<Vec<Int>>();
        let (shape, at) = (ordered(&view.f.buffers[buffer].shape), ordered(index));
        let global = view.f.buffers[buffer].scope == Scope::Global;
        match neighbours_sharing(view.f, (&shape, &at), k).filter(|_| global) {
            Some(n) => loads.push((buffer, n)),
            None if index.iter().any(|i| i.uses(k)) => {
                return Err(Decline("neighbours of the reduction are no neighbours in the right operand".into()));
            }
            None => {}
        }
    }
    let held = |l: &(BufferId, i64)| (LOAD_BYTES / view.f.buffers[l.0].dtype.size() as i64 * l.1, l.1);
    let (held, sharing) = loads.iter().map(held).min().ok_or_else(Decline::other_kind)?;
    if sharing > LONGEST_RUN {
        return Err(Decline(format!("{sharing} neighbours share an element of the right operand")));
    }
    let run = held.min(LONGEST_RUN);
    if depth % run != 0 || run % VECTOR != 0 {
        return Err(Decline(format!("depth {depth} is not made of runs of {run}")));
    }
    Ok(Found { contraction: c, rows, columns, depth, run, sharing, loads, bytes })
}

/// The dimensions of a buffer in the order that the rule gives them: a constant that `block` alone reads has the ones
/// along `k` innermost.
fn order_along(view: &View<'_>, block: Name, (buffer, index): (BufferId, &[Int]), k: Name) -> Vec<usize> {
    let (along, others): (Vec<usize>, Vec<usize>) = (0..index.len()).partition(|d| index[*d].uses(k));
    let once = || view.block(block).is_some_and(|b| b.value.loads().iter().filter(|l| l.0 == buffer).count() == 1);
    match view.constants.contains(&buffer) && readers(view.f, buffer) == [block] && once() {
        true => others.into_iter().chain(along).collect(),
        false => (0..index.len()).collect(),
    }
}

/// Numbers of columns, with numbers of threads that leave few idle. Where the widest loads are too few for the device's
/// lanes, threads may load fewer words at a time.
pub(super) fn candidates(view: &View<'_>, unit: &Unit) -> Result<Vec<Candidate>, Decline> {
    let known = view.once(unit, |view| find(view, unit));
    let found = known.as_ref().as_ref().map_err(Clone::clone)?;
    let all = all_threads(view);
    let lanes = i64::from(view.profile.lanes());
    let wide = view.profile.model().wide_teams;
    let most = *all.last().unwrap_or(&lanes);
    let word = view.elements_per_word(unit.output);
    let fits = |c: &i64| c * found.rows <= MOST_SUMS && *c <= found.columns && c % word == 0;
    let filled = FILLED * i64::from(view.profile.model().lanes_a_core) * i64::from(view.profile.cores);
    let mut out = Vec::new();
    for run in runs(found) {
        let usual = if wide { thread_a_vector(found.depth / run * VECTOR, most) } else { lanes };
        let usual_threads = |t: i64| t == usual || (wide && (t == usual / 2 || t == usual / 4) && t >= lanes);
        let few = found.columns * found.depth / found.run <= filled && found.depth / run >= lanes;
        for (columns, threads) in COLUMNS.into_iter().filter(fits).flat_map(|c| all.iter().map(move |t| (c, *t))) {
            let one = Candidate::new(ColumnsOfWorkgroup { columns, threads, run });
            out.push(if (few || run == found.run) && usual_threads(threads) { one } else { one.on_request() });
        }
    }
    Ok(out)
}

/// Numbers of neighbours that a thread may take at a time: a load's, and fewer words'.
fn runs(found: &Found) -> Vec<i64> {
    let fits = |r: &i64| *r == found.run || (found.bytes.is_none() && *r >= found.sharing.max(2) && r % VECTOR == 0);
    [1, 2, 4].map(|parts| found.run / parts).into_iter().filter(fits).collect()
}

/// Threads that a workgroup may have: powers of two.
fn all_threads(view: &View<'_>) -> Vec<i64> {
    let most = i64::from(view.profile.max_invocations.min(view.profile.max_workgroup_size[0]).min(256));
    (2..=8).map(|n| 1 << n).filter(|t| *t <= most).collect()
}

fn tile(found: &Found, chosen: &ColumnsOfWorkgroup) -> Option<FewRows> {
    let c = &found.contraction;
    Some(FewRows {
        rows: found.rows,
        columns: chosen.columns,
        threads: chosen.threads,
        run: chosen.run,
        depth: *c.k.first()?,
        right: 1 - c.left,
        sharing: found.loads.clone(),
    })
}

/// The kernel with so many columns and threads in a workgroup.
pub(super) fn price(view: &View<'_>, unit: &Unit, candidate: &Candidate) -> Vec<KernelEstimate> {
    let known = view.once(unit, |view| find(view, unit));
    let (Ok(found), Ok(chosen)) = (&*known, candidate.choices::<ColumnsOfWorkgroup>()) else { return vec![] };
    tile(found, chosen).map_or(vec![], |t| few_rows_kernel(view.stages(), [unit.name(), unit.output], &t))
}

/// Gives each workgroup so many columns.
pub(super) fn apply(sketch: &mut Sketch<'_>, unit: &Unit, candidate: &Candidate) -> Result<(), Decline> {
    let chosen = candidate.choices::<ColumnsOfWorkgroup>()?;
    let reduce = unit.reduce.ok_or_else(Decline::other_kind)?;
    let mut found = find(&sketch.view(), unit)?;
    let columns = sketch.choose("columns", &COLUMNS, chosen.columns)?;
    let threads = sketch.choose("threads", &all_threads(&sketch.view()), chosen.threads)?;
    found.run = sketch.choose("run", &runs(&found), chosen.run)?;
    let how = choose_combination(sketch, &[reduce], threads, true)?;
    let c = &found.contraction;
    pack_right(sketch, reduce, c)?;
    let n = bind_batch(sketch, unit.output, c)?;
    // The results are stored by the first thread alone.
    let n = sketch.split(n, &[0, 1, columns], &["g", "t", "c"])?;
    sketch.reorder(&[&n[..2], &c.m, &n[2..]].concat())?;
    sketch.bind(n[0], Axis::GroupX)?;
    sketch.apply(ComputeAt { block: reduce, at: n[0], scope: LocalScope::Register })?;
    let team = Team { at: n[0], threads, axis: Axis::LocalX, how };
    let runs = split_runs(sketch, reduce, &found, team)?;
    accumulate(sketch, n[0], &found, &runs)?;
    combine_parts(sketch, reduce, runs.thread, team)?;
    unroll_inside(sketch, reduce, n[0])?;
    sketch.bind(n[1], Axis::LocalX)?;
    in_vectors(sketch, unit.output, n[1])
}

/// Binds the loops over batches; returns the one loop over columns.
fn bind_batch(sketch: &mut Sketch<'_>, out: Name, c: &Contraction) -> Result<Name, Decline> {
    let order: Vec<Name> = c.batch.iter().chain(&c.n).chain(&c.m).copied().collect();
    sketch.reorder(&order)?;
    if !c.batch.is_empty() {
        let batch = sketch.fuse(&c.batch, Name::new(&format!("{out}_b")))?;
        sketch.bind(batch, Axis::GroupZ)?;
    }
    Ok(sketch.fuse(&c.n, Name::new(&format!("{out}_n")))?)
}

/// Packs the constants of the right operand with the reduction innermost.
fn pack_right(sketch: &mut Sketch<'_>, reduce: Name, c: &Contraction) -> Result<(), Decline> {
    let k = *c.k.first().ok_or_else(Decline::other_kind)?;
    let (_, value) = operand(sketch, reduce, 1 - c.left)?;
    for (buffer, index) in value.loads() {
        let order = order_along(&sketch.view(), reduce, (buffer, index), k);
        let name = sketch.f.buffers[buffer].name;
        if !order.is_sorted() {
            sketch.apply(TransformLayout { buffer: name, splits: vec![], order })?;
        }
    }
    Ok(())
}

/// The loops of the block that sums up a thread's part, named after the reduction's.
struct Runs {
    part: Name,
    /// The reduction's loop over threads.
    thread: Name,
    /// Over runs of a thread.
    step: Name,
    /// Over words of a run, where elements share words.
    word: Option<Name>,
    /// Through a word, or a run of plain elements; the last is a vector.
    within: Vec<Name>,
}

/// Splits the reduction into runs of its threads, whose sums stay apart.
fn split_runs(sketch: &mut Sketch<'_>, reduce: Name, found: &Found, team: Team) -> Result<Runs, Decline> {
    let k = *found.contraction.k.first().ok_or_else(Decline::other_kind)?;
    let words = found.run / found.sharing;
    let (factors, names): (Vec<i64>, Vec<&str>) = match found.sharing {
        1 if found.run == VECTOR => (vec![0, team.threads, VECTOR], vec!["o", "t", "v"]),
        1 => (vec![0, team.threads, found.run / VECTOR, VECTOR], vec!["o", "t", "p", "v"]),
        n if words == 1 => (vec![0, team.threads, n], vec!["o", "t", "i"]),
        n => (vec![0, team.threads, words, n], vec!["o", "t", "w", "i"]),
    };
    let loops = sketch.split(k, &factors, &names)?;
    if found.bytes.is_some() {
        // Words beyond the end are zeros: four products have no condition.
        sketch.apply(PadReduction { block: reduce })?;
    }
    let part = Name::new(&format!("{reduce}_part"));
    let (scope, axis) = (MemoryScope::Shared, Some(team.axis));
    sketch.apply(Rfactor { block: reduce, r#loop: loops[1], into: part, scope, at: Some(team.at), axis })?;
    let of_part = |v: &Name| Name::new(&format!("{part}_{v}"));
    let shared = found.sharing > 1 && words > 1;
    let within = loops[if shared { 3 } else { 2 }..].iter().map(of_part).collect();
    let word = shared.then(|| of_part(&loops[2]));
    Ok(Runs { part, thread: loops[1], step: of_part(&loops[0]), word, within })
}

/// Sums up a thread's part, inside loop `at`, in registers.
fn accumulate(sketch: &mut Sketch<'_>, at: Name, found: &Found, runs: &Runs) -> Result<(), Decline> {
    let part = runs.part;
    let reductions = sketch.f.reduction_loops(part);
    let lane = Name::new(&format!("{part}_{}", runs.thread));
    let mut spatial = sketch.inside(part, at)?;
    spatial.retain(|v| !reductions.contains(v) && *v != lane);
    let mut order = vec![lane, runs.step];
    order.extend(runs.word);
    order.extend(&spatial);
    order.extend(&runs.within);
    sketch.reorder(&order)?;
    sketch.apply(CacheWrite { block: part, at: runs.step, into: Name::new(&format!("{part}_out")) })?;
    sketch.apply(DecomposeReduction { block: part, at: runs.step })?;
    stage_right(sketch, found, runs)?;
    stage_left(sketch, found, runs)?;
    if let (Some(t), Some(word)) = (found.bytes, runs.within.last()) {
        sketch.apply(Tensorize { r#loop: *word, intrinsic: format!("dot4_{t}") })?;
    }
    let columns = spatial.iter().map(|v| sketch.extent_of(*v).unwrap_or(1)).product::<i64>() / found.rows;
    let sums = scale_sums(sketch, found, runs, columns)?;
    for sum in sums.into_iter().chain([part]) {
        let init = Name::new(&format!("{sum}_init"));
        unroll_inside(sketch, init, if sum == part { lane } else { runs.step })?;
        unroll_inside(sketch, sum, runs.step)?;
    }
    unroll_inside(sketch, Name::new(&format!("{part}_out")), lane)
}

/// Multiplies the sum of a run by what its elements share, a scale, instead of each element; subtracts what they share,
/// a zero point, once for all columns, where that is for fewer rows. Returns the sums of runs.
fn scale_sums(sketch: &mut Sketch<'_>, found: &Found, runs: &Runs, columns: i64) -> Result<Vec<Name>, Decline> {
    let (part, step) = (runs.part, runs.step);
    let [factor, offset] = match found.bytes {
        Some(_) => [false; 2],
        None => shared_by_terms(&sketch.f, part, step).unwrap_or_default(),
    };
    if !factor {
        return Ok(vec![]);
    }
    let into = Name::new(&format!("{part}_run"));
    let offset = (offset && found.rows < columns).then(|| Name::new(&format!("{part}_rest")));
    sketch.apply(FactorOut { block: part, at: step, into, offset })?;
    let sums: Vec<Name> = std::iter::once(into).chain(offset).collect();
    for sum in &sums {
        if let Some(at) = sketch.inside(*sum, step)?.first() {
            sketch.apply(DecomposeReduction { block: *sum, at: *at })?;
        }
    }
    Ok(sums)
}

/// Loads what the right operand reads into registers, before a run is computed.
fn stage_right(sketch: &mut Sketch<'_>, found: &Found, runs: &Runs) -> Result<(), Decline> {
    let (path, value) = operand(sketch, runs.part, 1 - found.contraction.left)?;
    let mut places = Vec::new();
    match (found.bytes, value.loads().as_slice()) {
        (Some(_), [(buffer, _)]) => places.push((path, *buffer)),
        _ => loads(&value, path, &mut places),
    }
    for (i, (path, buffer)) in places.into_iter().enumerate() {
        if sketch.f.buffers[buffer].scope != Scope::Global {
            continue;
        }
        let into = Name::new(&format!("{}_w{i}", runs.part));
        let narrow = found.bytes.is_some();
        sketch.apply(StageInRegisters { block: runs.part, operand: path, at: runs.step, into, narrow })?;
        // The words of a run lie next to each other.
        let mut order = sketch.inside(into, runs.step)?;
        order.sort_by_key(|v| runs.word.is_some_and(|w| *v == Name::new(&format!("{into}_{w}"))));
        sketch.reorder(&order)?;
        in_vectors(sketch, into, runs.step)?;
    }
    Ok(())
}

/// Loads the rows' elements of a word into registers.
fn stage_left(sketch: &mut Sketch<'_>, found: &Found, runs: &Runs) -> Result<(), Decline> {
    let at = runs.word.unwrap_or(runs.step);
    let into = Name::new(&format!("{}_a", runs.part));
    let (operand, _) = operand(sketch, runs.part, found.contraction.left)?;
    sketch.apply(StageInRegisters { block: runs.part, operand, at, into, narrow: found.bytes.is_some() })?;
    in_vectors(sketch, into, at)
}

/// A factor of what the block sums up, and its path: where the last run of a thread is no whole one, the product is
/// under a condition.
fn operand(sketch: &Sketch<'_>, block: Name, side: usize) -> Result<(String, Expr), Decline> {
    let value = &sketch.view().block(block).ok_or_else(Decline::other_kind)?.value;
    let (under, product) = match without_casts(value) {
        Expr::Select(_, product, _) => ("1.", &**product),
        product => ("", product),
    };
    let factor = factors(product).map(|f| f[side].clone());
    factor.map(|f| (format!("{under}{side}"), f)).ok_or_else(|| Decline("a thread's part is no product".into()))
}

/// Makes a vector of the innermost loop around a block, as far as it has whole vectors, and unrolls the others inside
/// loop `at`.
fn in_vectors(sketch: &mut Sketch<'_>, block: Name, at: Name) -> Result<(), Decline> {
    let mut loops = sketch.inside(block, at)?;
    let Some(last) = loops.pop() else { return Ok(()) };
    loops.iter().try_for_each(|v| sketch.unroll(*v))?;
    match sketch.extent_of(last) {
        Some(VECTOR | 2) => Ok(sketch.vectorize(last)?),
        Some(n) if n % VECTOR == 0 => {
            let parts = sketch.split(last, &[0, VECTOR], &["p", "v"])?;
            sketch.unroll(parts[0])?;
            Ok(sketch.vectorize(parts[1])?)
        }
        _ => Ok(sketch.unroll(last)?),
    }
}

/// Paths of the loads in an operand, as instructions name them, with their buffers.
fn loads(e: &Expr, path: String, out: &mut Vec<(String, BufferId)>) {
    let mut go = |children: &[&Expr]| {
        children.iter().enumerate().for_each(|(i, c)| loads(c, format!("{path}.{i}"), out));
    };
    match e {
        Expr::Cast(_, a) => loads(a, path, out),
        Expr::Load(b, _) => out.push((path, *b)),
        Expr::Unary(_, a) => go(&[a]),
        Expr::Binary(_, a, b) => go(&[a, b]),
        Expr::Select(c, a, b) => go(&[c, a, b]),
        Expr::Const(..) | Expr::Index(..) | Expr::All(_) => {}
    }
}

/// Unrolls the serial loops around a block inside loop `at`.
fn unroll_inside(sketch: &mut Sketch<'_>, block: Name, at: Name) -> Result<(), Decline> {
    let inside = sketch.inside(block, at)?;
    let serial = sketch.loops(block)?.into_iter().filter(|l| l.kind == LoopKind::Serial).map(|l| l.var);
    let serial: Vec<Name> = serial.filter(|v| inside.contains(v)).collect();
    serial.into_iter().try_for_each(|v| Ok(sketch.unroll(v)?))
}
