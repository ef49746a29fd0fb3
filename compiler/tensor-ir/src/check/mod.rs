//! Checks that a tensor function is right on a device: no races, no accesses out of bounds, complete results.
//!
//! - [`sharing`]: proofs about which thread writes and reads which element. Used on the result of schedule
//!   instructions.
//! - [`check_function`]: checks a whole function. Used for bodies and schedules that come from a file, and in debug
//!   builds for every proposal of a rule. Proofs come first. What they cannot decide is run in lockstep by the
//!   interpreter on some workgroups at the real sizes (`interpreter::sample_kernels`); stores to results are counted. A
//!   function that can be neither proved nor run is refused.
//! - [`check_kernels`]: all statements of a function that the rules do not schedule must be in kernels.
//! - [`accept`](crate::schedule::accept()): applies the schedule that a function came with, and checks the result.
//!
//! A race is an access of two threads to one element with no barrier between, unless both read. Statements of a
//! workgroup run in lockstep, and barriers are derived between statements that conflict. So only two kinds of race
//! remain: conflicts within one statement, and conflicts between workgroups of one kernel. Threads that store the same
//! value do not conflict.

mod bounds;
mod coverage;
mod digits;
mod owner;
#[cfg(test)]
mod proof_tests;
pub mod sharing;
#[cfg(test)]
mod tests;
mod view;

pub use view::threads_at;

use crate::interpreter::sample_kernels;
use crate::name::Name;
use crate::tir::{Block, Stmt, TensorFunction, print_loops};
use crate::verify::verify_tensor_function;
use view::View;

/// Why a tensor function is refused.
#[derive(Debug, Clone, thiserror::Error)]
#[error("@{function}: {}", self.text())]
pub struct Refused {
    /// The function.
    pub function: Name,
    /// The error, or the property that is not proved.
    pub message: String,
    /// The loops with the culprit marked.
    pub loops: Option<String>,
    /// No error was found, but the function is not proved, and not all of it could be interpreted.
    pub undecided: bool,
}

impl Refused {
    /// The message with the loops, without the function's name.
    pub fn text(&self) -> String {
        self.loops.as_ref().map_or(self.message.clone(), |l| format!("{}\n{l}", self.message))
    }
}

/// Checks a function without its pending instructions.
///
/// # Errors
/// The first broken rule of the verifier, a race, an access out of bounds, an element of a result that is not stored
/// exactly once; or a property that can be neither proved nor interpreted.
pub fn check_function(f: &TensorFunction) -> Result<(), Refused> {
    check(f, false)
}

/// Whether each block of a function is in a kernel: a device runs kernels alone, and would leave out a block that is in
/// none.
///
/// # Errors
/// The first block outside, marked in the loops.
pub fn check_kernels(f: &TensorFunction) -> Result<(), Refused> {
    let Some(b) = outside_of_kernels(&f.body) else { return Ok(()) };
    let (n, name) = (f.kernels().len(), b.name);
    let made =
        if n == 0 { "has no kernels".to_string() } else { format!("has {n} kernels, and none of them holds it") };
    let help = "`cut-kernel`, as the last instruction, makes a kernel of each statement that is in none";
    Err(refused(f, Some(name), format!("no device would run block `{name}`: the function {made}; {help}")))
}

fn outside_of_kernels(s: &Stmt) -> Option<&Block> {
    match s {
        Stmt::Seq(list) => list.iter().find_map(outside_of_kernels),
        Stmt::For(l) => outside_of_kernels(&l.body),
        Stmt::Block(b) => Some(b),
        Stmt::Kernel(..) | Stmt::Barrier => None,
    }
}

/// [`check_function`]; with `run`, the kernels run even if everything is proved.
pub(crate) fn check(f: &TensorFunction, run: bool) -> Result<(), Refused> {
    let views = View::all(f);
    check_races(f, None, &views, run, FULL)?;
    coverage::check(f, &views).map_err(|gap| refused(f, gap.block, gap.message))
}

/// [`check_function`] for the result of instructions that were applied to `plain`, a function without kernels.
///
/// # Errors
/// As [`check_function`]. If open sizes prevent the proof that each element is stored once, `plain` is checked instead,
/// since instructions keep that property, and stores are counted for a few sizes. An access out of bounds that `plain`
/// has too is accepted at open sizes: the network may not take the sampled sizes.
pub(crate) fn check_made(f: &TensorFunction, plain: &TensorFunction) -> Result<(), Refused> {
    let views = View::all(f);
    let excused = (!f.symbols.is_empty()).then_some(plain);
    check_races(f, excused, &views, false, FULL)?;
    coverage::check_made(f, &views, plain).map_err(|gap| refused(f, gap.block, gap.message))
}

/// Checks a rule's proposal for `plain`, a function without kernels: by proofs, and by a short run of the parts that
/// are not proved.
///
/// # Errors
/// As [`check_function`], results aside.
pub(crate) fn check_proposal(f: &TensorFunction, plain: &TensorFunction) -> Result<(), Refused> {
    match check_races(f, Some(plain), &View::all(f), false, BRIEF) {
        Err(e) if e.undecided => Ok(()),
        done => done,
    }
}

/// Statements of single threads that are interpreted, at most: of what comes from a file, and of what a rule proposes.
const FULL: u64 = 1 << 24;
const BRIEF: u64 = 1 << 14;

fn refused(f: &TensorFunction, culprit: Option<Name>, message: String) -> Refused {
    let loops = culprit.map(|c| print_loops(f, &f.body, Some(c)));
    Refused { function: f.name, message, loops, undecided: false }
}

fn check_races(
    f: &TensorFunction,
    plain: Option<&TensorFunction>,
    views: &[View<'_>],
    run: bool,
    effort: u64,
) -> Result<(), Refused> {
    let refuse = |culprit: Option<Name>, message: String| refused(f, culprit, message);
    if let Err(list) = verify_tensor_function(f) {
        let first = list.first().map(|e| e.message.clone()).unwrap_or_default();
        return Err(refuse(None, first));
    }
    let mut open =
        sharing::unproved(f).into_iter().next().map(|v| (v.culprit, format!("`{}`: {}", v.culprit, v.message)));
    if open.is_none() {
        let outside = views.iter().find_map(bounds::outside);
        open = outside.map(|o| (o.block, format!("block `{}`: {}", o.block, o.message)));
    }
    if (open.is_some() || run)
        && let Err(found) = sample_kernels(f, plain, effort)
    {
        match (found.block, &open) {
            (Some(block), _) => return Err(refuse(Some(block), found.message)),
            (None, Some((culprit, message))) => {
                let e = refuse(Some(*culprit), format!("{message}; {}", found.message));
                return Err(Refused { undecided: true, ..e });
            }
            // All of it is proved.
            (None, None) => {}
        }
    }
    Ok(())
}
