//! Shortened runs of kernels at their real sizes: some workgroups, and the first two and the last iterations of serial
//! loops. Values are fingerprints, so no operands are needed, and equal values are not a coincidence.
//!
//! Loops that fill a tile of local memory run completely, unless the kernel would take too long.

use super::code::{Code, IntCode, Resolver};
use super::machine::{Cuts, Machine};
use super::value::Fingerprint;
use crate::arena::Id;
use crate::int::typical_size;
use crate::name::Name;
use crate::tir::{BufferId, LoopKind, Scope, TensorFunction};
use rustc_hash::{FxHashMap, FxHashSet};

/// An error that a run found.
pub(crate) struct Found {
    /// The block that caused it; `None` if the function could not be run.
    pub block: Option<Name>,
    /// The error.
    pub message: String,
}

/// Interprets every kernel, at most about `effort` statements of single threads; if a kernel needs a large part of
/// that, its tiles are cut. There are up to three runs, with the smallest values of the symbols and with larger ones.
/// `plain` is `f` before its schedule. Sizes at which `plain` fails too are skipped: the model does not take them (for
/// example, two operands of a concatenation differ).
///
/// # Errors
/// The first race, access out of bounds, or use of memory that nothing was stored to; a kernel too long to be run.
pub(crate) fn sample_kernels(f: &TensorFunction, plain: Option<&TensorFunction>, effort: u64) -> Result<(), Found> {
    let excused = |found: &Found, sizes: &FxHashMap<Name, i64>| {
        found.block.is_some() && plain.is_some_and(|p| is_wrong(&p.with_sizes(sizes), effort))
    };
    if f.symbols.is_empty() {
        return run(f, effort)
            .or_else(|found| if excused(&found, &FxHashMap::default()) { Ok(()) } else { Err(found) });
    }
    let above = |n: i64| move |low: i64, _: i64| low.saturating_add(n);
    let multiple = |of: i64| move |low: i64, _: i64| low.div_euclid(of).saturating_add(1).saturating_mul(of);
    let picks: [&dyn Fn(i64, i64) -> i64; 7] = [
        &above(0),
        &above(1),
        &above(12),
        &multiple(32),
        &multiple(64),
        &|low, high| typical_size((low, high)),
        &|_, high| high.min(LARGEST),
    ];
    let mut runs = 0;
    for pick in picks {
        let values = f.symbols.iter().map(|&(n, low, high)| (n, pick(low, high).clamp(low, high))).collect();
        match run(&f.with_sizes(&values), effort) {
            Ok(()) => runs += 1,
            Err(found) if excused(&found, &values) => {}
            Err(found) => return Err(found),
        }
        if runs == SAMPLES {
            break;
        }
    }
    Ok(())
}

/// Lists of sizes that a function of open sizes is run for.
const SAMPLES: usize = 3;

/// The largest size that one is run for.
const LARGEST: i64 = 4096;

/// True for a function that does something wrong at its sizes.
fn is_wrong(f: &TensorFunction, effort: u64) -> bool {
    run(f, effort).is_err_and(|found| found.block.is_some())
}

fn run(f: &TensorFunction, effort: u64) -> Result<(), Found> {
    let fail = |message: String| Found { block: None, message };
    let mut resolver = Resolver::new(f);
    let code = resolver.stmt(&f.body).map_err(fail)?;
    let mut cuts = Cuts { groups: true, ..Cuts::default() };
    cut_loops(f, &code, true, &mut cuts);
    if cost(&code, &cuts.loops) > effort / 32 {
        cut_loops(f, &code, false, &mut cuts);
    }
    let n = cost(&code, &cuts.loops);
    if n > effort {
        return Err(fail(format!("{n} statements are too many to be interpreted")));
    }
    let mut m: Machine<Fingerprint> = Machine::new(f, resolver.count, Some(cuts), None).map_err(|e| fail(e.message))?;
    let done = m.run_top(&code);
    done.map_err(|message| Found { block: Some(m.block), message })
}

/// Adds the serial loops that are cut, and the buffers that are filled in part because of it.
fn cut_loops(f: &TensorFunction, code: &Code, keep_tiles: bool, cuts: &mut Cuts) {
    match code {
        Code::Seq(list) => list.iter().for_each(|c| cut_loops(f, c, keep_tiles, cuts)),
        Code::Kernel(body) => cut_loops(f, body, keep_tiles, cuts),
        Code::For { slot, kind, body, extent } => {
            cut_loops(f, body, keep_tiles, cuts);
            let long = !matches!(extent, IntCode::Const(n) if *n <= 3);
            if !long || !matches!(kind, LoopKind::Serial | LoopKind::Unroll | LoopKind::Combine) {
                return;
            }
            let mut filled = FxHashSet::default();
            stored_by(body, *slot, &mut filled);
            let local = |b: &usize| f.buffers[BufferId::from_index(*b)].scope != Scope::Global;
            if !keep_tiles || !filled.iter().any(local) {
                cuts.loops.insert(*slot);
                cuts.partial.extend(filled);
            }
        }
        Code::Block(_) | Code::Nothing => {}
    }
}

/// Buffers to which blocks below store at indices that use a loop's variable.
fn stored_by(code: &Code, slot: usize, out: &mut FxHashSet<usize>) {
    match code {
        Code::Seq(list) => list.iter().for_each(|c| stored_by(c, slot, out)),
        Code::Kernel(body) | Code::For { body, .. } => stored_by(body, slot, out),
        Code::Block(b) if b.indices.iter().any(|i| uses(i, slot)) => {
            out.insert(b.buffer);
        }
        Code::Block(_) | Code::Nothing => {}
    }
}

fn uses(i: &IntCode, slot: usize) -> bool {
    match i {
        IntCode::Const(_) => false,
        IntCode::Var(s) => *s == slot,
        IntCode::Load(_, ix) => ix.iter().any(|i| uses(i, slot)),
        IntCode::Op(_, ab) => ab.iter().any(|i| uses(i, slot)),
    }
}

/// Statements of single threads that the run executes, about.
fn cost(code: &Code, cut: &FxHashSet<usize>) -> u64 {
    match code {
        Code::Seq(list) => list.iter().map(|c| cost(c, cut)).fold(0, u64::saturating_add),
        Code::Kernel(body) => cost(body, cut),
        Code::For { slot, extent, kind, body } => {
            let n = match (extent, kind) {
                (_, LoopKind::Group(_)) => 2,
                (IntCode::Const(n), _) => u64::try_from(*n).unwrap_or(0),
                _ => 3,
            };
            let n = if cut.contains(slot) { n.min(3) } else { n };
            cost(body, cut).saturating_mul(n)
        }
        Code::Block(_) => 1,
        Code::Nothing => 0,
    }
}
