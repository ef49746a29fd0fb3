//! Softmax, log-softmax and normalisations: reductions along the same rows and a block that spreads them over its row, as
//! one kernel.
//!
//! All rows are independent. Where there are many, or their elements lie far apart, a thread computes a row: the reductions
//! run one after another into registers, then the row is written. Few long rows get a workgroup each, whose threads share
//! every reduction (`cooperate.rs`) and the writing.

use super::analysis::{Unit, readers};
use super::cooperate::{choose_combination, reduce_over_threads};
use super::sketch::{Decline, Sketch};
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::schedule::Axis;
use crate::schedule::DecomposeReduction;
use crate::schedule::{ComputeAt, LocalScope};
use crate::tir::Expr;

/// The output block and its loops: those that tell rows apart, and those inside a row.
struct Rows {
    output: Name,
    reductions: Vec<Name>,
    row: Vec<Name>,
    inner: Vec<Name>,
    /// Number of rows, and elements that the output has of each.
    count: i64,
    length: i64,
    /// The output's innermost loop is inside a row: neighbours of a row lie next to each other.
    contiguous: bool,
}

/// Takes a whole function whose one output block reads row reductions, directly or through others, at fewer loops than its
/// own.
pub(super) fn apply(sketch: &mut Sketch<'_>, unit: &Unit) -> Result<(), Decline> {
    let rows = find_rows(sketch, unit.output)?;
    let share = [WORKGROUP, THREAD].map(String::from);
    let default =
        if worth_a_workgroup(sketch.profile, rows.count, rows.length, rows.contiguous) { WORKGROUP } else { THREAD };
    match sketch.choose("row", &share, default.into())?.as_str() {
        WORKGROUP => row_a_workgroup(sketch, &rows),
        _ => row_a_thread(sketch, &rows),
    }
}

/// Who computes a row.
const WORKGROUP: &str = "workgroup";
const THREAD: &str = "thread";

fn find_rows(sketch: &Sketch<'_>, output: Name) -> Result<Rows, Decline> {
    let reductions: Vec<Name> = sketch.f.body.blocks().iter().filter(|b| b.reduce.is_some()).map(|b| b.name).collect();
    let row = row_loops(sketch, output, &reductions)?;
    let loops = sketch.loops(output)?;
    let inner: Vec<Name> = loops.iter().map(|l| l.var).filter(|v| !row.contains(v)).collect();
    let (mut count, mut length) = (1, 1);
    for l in &loops {
        let extent = sketch.constant_extent(&l.extent)?;
        *(if row.contains(&l.var) { &mut count } else { &mut length }) *= extent;
    }
    if length == 1 {
        // Every element has its own reductions: a unit, not rows.
        return Err(Decline::other_kind());
    }
    let last = loops.iter().rev().find(|l| !l.extent.is(1));
    let contiguous = last.is_some_and(|l| inner.contains(&l.var));
    Ok(Rows { output, reductions, row, inner, count, length, contiguous })
}

/// Whether the threads of a workgroup had better share a row than take rows alone, of `count` rows of `length` elements that lie
/// next to each other (`contiguous`) or apart.
pub(in crate::schedule) fn worth_a_workgroup(p: &DeviceProfile, count: i64, length: i64, contiguous: bool) -> bool {
    let cores = i64::from(p.cores.max(1));
    if p.software {
        let lanes = i64::from(p.fixed_subgroup().unwrap_or(8));
        return count < 2 * cores * lanes && length >= 4 * lanes;
    }
    let few = count < 64 * cores;
    length >= 32 && (contiguous || few)
}

/// Threads that share a row.
fn workgroup_threads(sketch: &mut Sketch<'_>, rows: &Rows) -> Result<i64, Decline> {
    let p = sketch.profile;
    let device = prev_power_of_two(i64::from(p.max_invocations.min(p.max_workgroup_size[0])));
    // Each reduction keeps a word a thread in workgroup memory, and a sixteenth of that for the tree.
    let shared = prev_power_of_two(i64::from(p.shared_memory) / (rows.reductions.len() as i64 * 5));
    let default = if p.software {
        // A workgroup is a loop on one core: more than one subgroup of it brings nothing but barriers.
        i64::from(p.fixed_subgroup().unwrap_or(8))
    } else {
        let most = if rows.count >= i64::from(p.cores.max(1)) { 256 } else { 1024 };
        let wanted = ((rows.length / 4).max(1) as u64).next_power_of_two() as i64;
        wanted.clamp(32, most).min(device).min(shared)
    };
    let mut domain: Vec<i64> = (2..=10).map(|n| 1 << n).filter(|t| *t <= device.min(shared)).collect();
    if !domain.contains(&default) {
        domain.push(default);
    }
    sketch.choose("threads", &domain, default)
}

fn prev_power_of_two(n: i64) -> i64 {
    1 << (63 - n.max(1).leading_zeros())
}

fn row_a_thread(sketch: &mut Sketch<'_>, r: &Rows) -> Result<(), Decline> {
    if r.row.is_empty() {
        return Err(Decline("there is a single short row".into()));
    }
    let order: Vec<Name> = r.row.iter().chain(&r.inner).copied().collect();
    sketch.reorder(&order)?;
    let rows = sketch.fuse(&r.row, Name::new(&format!("{}_row", r.output)))?;
    // A tail would make the rows of the reductions and of the output differ by a clamp, and the buffers between them whole.
    let most = if sketch.profile.software { 8 } else { 32 };
    let domain: Vec<i64> = (1..=most).rev().filter(|t| r.count % t == 0).collect();
    let threads = sketch.choose("threads", &domain, domain.first().copied().unwrap_or(1))?;
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

fn row_a_workgroup(sketch: &mut Sketch<'_>, r: &Rows) -> Result<(), Decline> {
    let threads = workgroup_threads(sketch, r)?;
    let how = choose_combination(sketch, &r.reductions, threads)?;
    let order: Vec<Name> = r.row.iter().chain(&r.inner).copied().collect();
    sketch.reorder(&order)?;
    let inner = sketch.fuse(&r.inner, Name::new(&format!("{}_e", r.output)))?;
    let (rows, inner) = match r.row.as_slice() {
        // A single row without a loop of its own: one workgroup.
        [] => {
            let parts = sketch.split(inner, &[1, r.length], &["row", "of"])?;
            (parts[0], parts[1])
        }
        row => (sketch.fuse(row, Name::new(&format!("{}_row", r.output)))?, inner),
    };
    sketch.bind(rows, Axis::GroupX)?;
    let packed = sketch.elements_per_word(r.output) > 1;
    let width = match packed {
        // The last vector of a single row reaches into the buffer's padding.
        true if r.count == 1 => 4,
        true => words_of_rows(r.length)?,
        false => {
            if r.contiguous && r.length % 4 == 0 {
                4
            } else {
                1
            }
        }
    };
    let (shared, vector) = match width {
        1 => (inner, None),
        w => {
            let parts = sketch.split(inner, &[0, w], &["q", "v"])?;
            (parts[0], Some(parts[1]))
        }
    };
    let parts = sketch.split(shared, &[0, threads], &["o", "t"])?;
    for &reduction in r.reductions.iter().rev() {
        sketch.apply(ComputeAt { block: reduction, at: rows, scope: LocalScope::Register })?;
        reduce_over_threads(sketch, reduction, rows, threads, how)?;
    }
    sketch.bind(parts[1], Axis::LocalX)?;
    vector.map_or(Ok(()), |v| sketch.vectorize(v))?;
    Ok(())
}

/// Elements of a vector that divide rows of `length` elements: a packed store owns whole words, and none crosses rows.
fn words_of_rows(length: i64) -> Result<i64, Decline> {
    let found = [4, 2].into_iter().find(|w| length % w == 0);
    found.ok_or_else(|| Decline(format!("rows of {length} elements end inside a packed word")))
}

/// Loops of `output` that index every reduction it reads: the rows. Loops of one iteration count as rows.
fn row_loops(sketch: &Sketch<'_>, output: Name, reductions: &[Name]) -> Result<Vec<Name>, Decline> {
    let f = &sketch.f;
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
    let loops = sketch.loops(output)?;
    Ok(loops.iter().filter(|l| row.contains(&l.var) || l.extent.is(1)).map(|l| l.var).collect())
}
