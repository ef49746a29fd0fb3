//! Softmax, log-softmax and normalisations as one kernel: reductions along the same rows, and a block that broadcasts
//! them over its row.
//!
//! All rows are independent. If there are many rows, or their elements are strided, a thread computes a row: the
//! reductions run one after another into registers, then the row is written. Few long rows get a workgroup each, whose
//! threads share every reduction (`cooperate.rs`) and the writing.

use super::candidate::Candidate;
use super::cooperate::{Team, choose_combination, reduce_over_threads};
use super::decline::Decline;
use super::reduction_threads::{thread_a_vector, threads_for_a_row};
use super::sketch::Sketch;
use super::unit::{Unit, readers};
use super::view::View;
use crate::candidate;
use crate::int::{Int, IntNode};
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::schedule::Axis;
use crate::schedule::DecomposeReduction;
use crate::schedule::Split;
use crate::schedule::estimate::{Combination, KernelEstimate, row_kernel};
use crate::schedule::loops::LoopHead;
use crate::schedule::{ComputeAt, LocalScope};
use crate::tir::{Expr, TensorFunction};
use crate::traffic::SECTOR_BYTES;

/// The output block and its loops: those that tell rows apart, and those inside a row.
pub(super) struct Rows {
    pub output: Name,
    pub reductions: Vec<Name>,
    pub row: Vec<Name>,
    pub inner: Vec<Name>,
    /// Number of rows, and elements that the output has of each.
    pub count: i64,
    pub length: i64,
    /// Elements of a row that lie next to each other: where this is 1, neighbours belong to different rows.
    pub run: i64,
    /// Iterations of the innermost loop that tells rows apart.
    pub neighbours: i64,
}

candidate! {
    /// Rows whose elements the threads of a workgroup share.
    pub(super) struct RowsOfWorkgroup {
        /// `workgroup`
        pub row: String,
        /// Neighbouring rows of a workgroup.
        pub rows: i64,
        /// Threads that share them.
        pub threads: i64,
    }
}

candidate! {
    /// A row for each thread.
    pub(super) struct RowOfThread {
        /// `thread`
        pub row: String,
        /// Threads of a workgroup.
        pub threads: i64,
    }
}

/// A function with loops of its own for rows in groups, and its rows: a whole function whose one output block reads row
/// reductions, directly or through others, at fewer loops than its own.
pub(super) struct Grouped {
    pub f: TensorFunction,
    pub rows: Rows,
}

impl Grouped {
    pub fn of(view: &View<'_>, unit: &Unit) -> Result<Grouped, Decline> {
        if unit.reduce.is_some() {
            return Err(Decline::other_kind());
        }
        let splits = splits_of(view, unit.output)?;
        if splits.is_empty() {
            return Ok(Grouped { rows: find_rows(view, unit.output)?, f: view.f.clone() });
        }
        let mut sketch = Sketch::of_view(view);
        splits.into_iter().try_for_each(|s| sketch.apply(s))?;
        let rows = find_rows(&sketch.view(), unit.output)?;
        Ok(Grouped { f: sketch.f, rows })
    }
}

/// Numbers of rows and of threads: those of the way that suits the device come first. Where teams are one subgroup the
/// other way is for who asks for it.
pub(super) fn candidates(view: &View<'_>, unit: &Unit) -> Result<Vec<Candidate>, Decline> {
    let known = view.once(unit, |view| Grouped::of(view, unit));
    let Grouped { f, rows } = known.as_ref().as_ref().map_err(Clone::clone)?;
    let p = view.profile;
    let mut shared: Vec<(i64, i64)> = Vec::new();
    for together in numbers_together(&view.with(f), rows) {
        for usual in threads_for_rows(p, true, rows.length * together, together) {
            let threads = workgroup_threads(p, rows, together, usual);
            if !shared.contains(&(together, threads)) {
                shared.push((together, threads));
            }
        }
    }
    let own = row_threads(p, rows).first().copied().unwrap_or(1);
    let of_workgroup = |(n, threads)| Candidate::new(RowsOfWorkgroup { row: WORKGROUP.into(), rows: n, threads });
    let of_workgroups: Vec<Candidate> = shared.into_iter().map(of_workgroup).collect();
    let of_threads = vec![Candidate::new(RowOfThread { row: THREAD.into(), threads: own })];
    let (usual, others) = match worth_a_workgroup(p, rows.count, rows.length, rows.run > 1) {
        true => (of_workgroups, of_threads),
        false => (of_threads, of_workgroups),
    };
    let others = others.into_iter().map(|c| if p.model().wide_teams { c } else { c.on_request() });
    Ok(usual.into_iter().chain(others).collect())
}

/// The kernel for the candidate's rows and threads.
pub(super) fn price(view: &View<'_>, unit: &Unit, candidate: &Candidate) -> Vec<KernelEstimate> {
    let known = view.once(unit, |view| Grouped::of(view, unit));
    let Ok(Grouped { f, .. }) = &*known else { return vec![] };
    let view = view.with(f);
    match (candidate.choices::<RowsOfWorkgroup>(), candidate.choices::<RowOfThread>()) {
        (Ok(c), _) => row_kernel(view.stages(), true, (c.rows, c.threads)),
        (_, Ok(c)) => row_kernel(view.stages(), false, (1, c.threads)),
        _ => vec![],
    }
}

/// Schedules the function in the candidate's way.
pub(super) fn apply(sketch: &mut Sketch<'_>, unit: &Unit, candidate: &Candidate) -> Result<(), Decline> {
    splits_of(&sketch.view(), unit.output)?.into_iter().try_for_each(|s| sketch.apply(s))?;
    let rows = find_rows(&sketch.view(), unit.output)?;
    let share = [WORKGROUP, THREAD].map(String::from);
    match candidate.choices::<RowsOfWorkgroup>() {
        Ok(chosen) => {
            sketch.choose("row", &share, chosen.row.clone())?;
            row_a_workgroup(sketch, &rows, chosen)
        }
        Err(_) => {
            let chosen = candidate.choices::<RowOfThread>()?;
            sketch.choose("row", &share, chosen.row.clone())?;
            row_a_thread(sketch, &rows, chosen)
        }
    }
}

/// Who computes a row.
const WORKGROUP: &str = "workgroup";
const THREAD: &str = "thread";

/// The splits of the loops of `output` whose iterations belong to a row in groups.
pub(super) fn splits_of(view: &View<'_>, output: Name) -> Result<Vec<Split>, Decline> {
    let blocks = view.f.body.blocks();
    let made: Vec<_> = blocks.iter().filter(|b| b.reduce.is_some()).map(|b| b.buffer).collect();
    let loads = blocks.iter().filter(|b| b.name == output).flat_map(|b| b.value.loads());
    let indices: Vec<Int> = loads.filter(|l| made.contains(&l.0)).flat_map(|l| l.1.to_vec()).collect();
    let own: Vec<Name> = view.loops(output)?.iter().map(|l| l.var).collect();
    Ok(group_splits(&indices, &|v| view.extent_of(v).filter(|_| own.contains(&v))))
}

/// The splits that make loops of their own of `v / n` where reductions are read at `indices`; `extent` tells the
/// iterations of a loop that may be split.
pub(super) fn group_splits<'a>(
    indices: impl IntoIterator<Item = &'a Int>,
    extent: &dyn Fn(Name) -> Option<i64>,
) -> Vec<Split> {
    let mut out: Vec<Split> = Vec::new();
    for index in indices {
        index.visit(&mut |i| {
            let IntNode::Div(of, by) = i.node() else { return };
            let (Some(v), Some(by)) = (of.as_var(), by.as_const()) else { return };
            let whole = by > 1 && extent(v).is_some_and(|n| n % by == 0);
            if whole && out.iter().all(|s| s.r#loop != v) {
                let into = ["group", "of"].map(|part| Name::new(&format!("{v}_{part}"))).to_vec();
                out.push(Split { r#loop: v, factors: vec![0, by], into });
            }
        });
    }
    out
}

pub(super) fn find_rows(view: &View<'_>, output: Name) -> Result<Rows, Decline> {
    let reductions: Vec<Name> = view.f.body.blocks().iter().filter(|b| b.reduce.is_some()).map(|b| b.name).collect();
    let row = row_loops(view, output, &reductions)?;
    let loops = view.loops(output)?;
    let inner: Vec<Name> = loops.iter().map(|l| l.var).filter(|v| !row.contains(v)).collect();
    let (mut count, mut length) = (1, 1);
    for l in &loops {
        let extent = view.constant_extent(&l.extent)?;
        *(if row.contains(&l.var) { &mut count } else { &mut length }) *= extent;
    }
    if length == 1 {
        // Every element has its own reductions: a unit, not rows.
        return Err(Decline::other_kind());
    }
    let several = |l: &&LoopHead| !l.extent.is(1);
    let extent = |l: &LoopHead| l.extent.as_const().unwrap_or(1);
    let run = loops.iter().rev().filter(several).take_while(|l| inner.contains(&l.var)).map(extent).product();
    let neighbours = loops.iter().rev().filter(several).find(|l| row.contains(&l.var)).map_or(1, extent);
    Ok(Rows { output, reductions, row, inner, count, length, run, neighbours })
}

/// Whether the threads of a workgroup had better share a row than take rows alone, of `count` rows of `length` elements
/// that lie next to each other (`contiguous`) or apart.
pub(super) fn worth_a_workgroup(p: &DeviceProfile, count: i64, length: i64, contiguous: bool) -> bool {
    let cores = i64::from(p.cores.max(1));
    if !p.model().wide_teams {
        let lanes = i64::from(p.lanes());
        return count < 2 * cores * lanes && length >= 4 * lanes;
    }
    let few = count < 64 * cores;
    length >= 32 && (contiguous || few)
}

/// How many neighbouring rows a workgroup may have, whose elements lie next to each other in runs of `run`, of rows of
/// which `neighbours` stand one behind the other: more than one where a run fills no sector.
pub(super) fn rows_together(p: &DeviceProfile, neighbours: i64, run: i64) -> Vec<i64> {
    let wanted = SECTOR_BYTES / 4 / run.max(1);
    // A team of one subgroup: its few threads share a row, too.
    let most = if p.model().wide_teams { 32 } else { i64::from(p.lanes()) / 2 };
    let more = (1..6).map(|n| 1 << n).filter(|n| wanted > 1 && *n <= most && neighbours % n == 0);
    std::iter::once(1).chain(more).collect()
}

/// Numbers of threads that may share `elements` of `together` neighbouring rows; where rows are not `shared`, threads
/// that have a row each.
pub(super) fn threads_for_rows(p: &DeviceProfile, shared: bool, elements: i64, together: i64) -> Vec<i64> {
    match (shared, p.model().wide_teams) {
        (true, false) => vec![i64::from(p.lanes())],
        (true, true) if together == 1 => threads_for_a_row(elements, 256),
        (true, true) => vec![thread_a_vector(elements, 256)],
        (false, _) => vec![i64::from(p.model().row_threads)],
    }
}

/// How many neighbouring rows a workgroup may have.
fn numbers_together(view: &View<'_>, rows: &Rows) -> Vec<i64> {
    let mut domain = rows_together(view.profile, rows.neighbours, rows.run);
    // A packed store owns whole words of one row.
    if view.elements_per_word(rows.output) > 1 {
        domain.truncate(1);
    }
    domain
}

/// The candidate's rows and threads, or those that are asked for.
fn choose_rows(sketch: &mut Sketch<'_>, rows: &Rows, chosen: &RowsOfWorkgroup) -> Result<(i64, i64), Decline> {
    let domain = numbers_together(&sketch.view(), rows);
    let together = if domain.len() > 1 { sketch.choose("rows", &domain, chosen.rows)? } else { domain[0] };
    let most = most_threads(sketch.profile, rows, together);
    let mut domain: Vec<i64> = (2..=10).map(|n| 1 << n).filter(|t| *t <= most && *t > together).collect();
    if !domain.contains(&chosen.threads) {
        domain.push(chosen.threads);
    }
    Ok((together, sketch.choose("threads", &domain, chosen.threads)?))
}

/// Threads that may share `together` rows, at most.
fn most_threads(p: &DeviceProfile, rows: &Rows, together: i64) -> i64 {
    // Rows together are along x, those who share one along y.
    let along =
        if together == 1 { i64::from(p.max_workgroup_size[0]) } else { i64::from(p.max_workgroup_size[1]) * together };
    let device = prev_power_of_two(i64::from(p.max_invocations).min(along));
    // Each reduction keeps a word a thread in workgroup memory, and a sixteenth of that for the tree.
    device.min(prev_power_of_two(i64::from(p.shared_memory) / (rows.reductions.len() as i64 * 5)))
}

/// Threads that share `together` rows, where `usual` would do if the device had nothing else to run and no limits.
fn workgroup_threads(p: &DeviceProfile, rows: &Rows, together: i64, usual: i64) -> i64 {
    // Of few rows a workgroup is the only one of its core.
    let alone = usual == 256 && rows.count < i64::from(p.cores.max(1));
    match p.model().wide_teams {
        false => usual,
        true if alone => thread_a_vector(rows.length * together, 1024).min(most_threads(p, rows, together)),
        true => usual.min(most_threads(p, rows, together)),
    }
}

/// Threads of a workgroup that have a row each, the most first. A tail would make the rows of the reductions and of the
/// output differ by a clamp, and the buffers between them whole.
fn row_threads(p: &DeviceProfile, rows: &Rows) -> Vec<i64> {
    let most = i64::from(p.model().row_threads);
    (1..=most).rev().filter(|t| rows.count % t == 0).collect()
}

fn prev_power_of_two(n: i64) -> i64 {
    1 << (63 - n.max(1).leading_zeros())
}

fn row_a_thread(sketch: &mut Sketch<'_>, r: &Rows, chosen: &RowOfThread) -> Result<(), Decline> {
    if r.row.is_empty() {
        return Err(Decline("there is a single short row".into()));
    }
    let order: Vec<Name> = r.row.iter().chain(&r.inner).copied().collect();
    sketch.reorder(&order)?;
    let rows = sketch.fuse(&r.row, Name::new(&format!("{}_row", r.output)))?;
    let threads = sketch.choose("threads", &row_threads(sketch.profile, r), chosen.threads)?;
    let parts = sketch.split(rows, &[0, threads], &["g", "t"])?;
    sketch.bind(parts[0], Axis::GroupX)?;
    sketch.bind(parts[1], Axis::LocalX)?;
    // Last first: each moves before what reads it.
    for &reduction in r.reductions.iter().rev() {
        sketch.apply(ComputeAt { block: reduction, at: parts[1], scope: LocalScope::Register })?;
        if let Some(first) = sketch.f.reduction_loops(reduction).first().copied() {
            sketch.apply(DecomposeReduction { block: reduction, at: first })?;
        }
    }
    if sketch.elements_per_word(r.output) > 1 {
        // A packed store owns whole words.
        let [.., last] = r.inner.as_slice() else { return Err(Decline::other_kind()) };
        let extent = sketch.extent_of(*last).unwrap_or(1);
        let parts = sketch.split(*last, &[0, words_of_rows(extent)?], &["q", "v"])?;
        sketch.vectorize(parts[1])?;
    }
    Ok(())
}

fn row_a_workgroup(sketch: &mut Sketch<'_>, r: &Rows, chosen: &RowsOfWorkgroup) -> Result<(), Decline> {
    let (together, threads) = choose_rows(sketch, r, chosen)?;
    let how = choose_combination(sketch, &r.reductions, threads, together == 1)?;
    let order: Vec<Name> = r.row.iter().chain(&r.inner).copied().collect();
    sketch.reorder(&order)?;
    let inner = sketch.fuse(&r.inner, Name::new(&format!("{}_e", r.output)))?;
    let (rows, inner) = match r.row.as_slice() {
        // A single row without a loop of its own: one workgroup.
        [] => {
            let parts = sketch.split(inner, &[1, 0], &["row", "of"])?;
            (parts[0], parts[1])
        }
        row => (sketch.fuse(row, Name::new(&format!("{}_row", r.output)))?, inner),
    };
    let team = Team { how, ..bind_rows(sketch, rows, together, threads)? };
    let packed = sketch.elements_per_word(r.output) > 1;
    let width = match packed {
        // The last vector of a single row reaches into the buffer's padding.
        true if r.count == 1 => 4,
        true => words_of_rows(r.run)?,
        false if together == 1 && r.run % 4 == 0 => 4,
        false => 1,
    };
    let (shared, vector) = match width {
        1 => (inner, None),
        w => {
            let parts = sketch.split(inner, &[0, w], &["q", "v"])?;
            (parts[0], Some(parts[1]))
        }
    };
    let parts = sketch.split(shared, &[0, team.threads], &["o", "t"])?;
    for &reduction in r.reductions.iter().rev() {
        sketch.apply(ComputeAt { block: reduction, at: team.at, scope: LocalScope::Register })?;
        reduce_over_threads(sketch, reduction, team)?;
    }
    sketch.bind(parts[1], team.axis)?;
    vector.map_or(Ok(()), |v| sketch.vectorize(v))?;
    Ok(())
}

/// Gives a workgroup `together` of the rows; neighbouring threads have neighbouring ones, and those along the other
/// axis share each.
fn bind_rows(sketch: &mut Sketch<'_>, rows: Name, together: i64, threads: i64) -> Result<Team, Decline> {
    if together == 1 {
        sketch.bind(rows, Axis::GroupX)?;
        return Ok(Team { at: rows, threads, axis: Axis::LocalX, how: Combination::Tree });
    }
    let parts = sketch.split(rows, &[0, together], &["g", "n"])?;
    sketch.bind(parts[0], Axis::GroupX)?;
    sketch.bind(parts[1], Axis::LocalX)?;
    Ok(Team { at: parts[1], threads: threads / together, axis: Axis::LocalY, how: Combination::Tree })
}

/// Elements of a vector that divide rows of `length` elements: a packed store owns whole words, and none crosses rows.
fn words_of_rows(length: i64) -> Result<i64, Decline> {
    let found = [4, 2].into_iter().find(|w| length % w == 0);
    found.ok_or_else(|| Decline(format!("rows of {length} elements end inside a packed word")))
}

/// Loops of `output` that index every reduction it reads: the rows. Loops of one iteration count as rows.
fn row_loops(view: &View<'_>, output: Name, reductions: &[Name]) -> Result<Vec<Name>, Decline> {
    let f = view.f;
    let blocks = f.body.blocks();
    let buffers: Vec<_> = blocks.iter().filter(|b| reductions.contains(&b.name)).map(|b| b.buffer).collect();
    for b in &buffers {
        if f.outputs().any(|o| o == *b) || readers(f, *b).iter().any(|r| *r != output && !reductions.contains(r)) {
            return Err(Decline("a reduction is also used outside the row".into()));
        }
    }
    let block = blocks.iter().find(|b| b.name == output).ok_or_else(Decline::other_kind)?;
    let mut row: Option<Vec<Name>> = None;
    block.value.visit(&mut |e| {
        if let Expr::Load(b, ix) = e
            && buffers.contains(b)
        {
            let vars: Vec<Name> = ix.iter().flat_map(|i| i.vars()).collect();
            if row.as_ref().is_none_or(|r| vars.len() > r.len()) {
                row = Some(vars);
            }
        }
    });
    let row = row.ok_or_else(Decline::other_kind)?;
    let loops = view.loops(output)?;
    Ok(loops.iter().filter(|l| row.contains(&l.var) || l.extent.is(1)).map(|l| l.var).collect())
}
