//! Holds tensor functions to what a device does with them: no races, no accesses out of bounds, complete results.
//!
//! - [`sharing`]: proofs about who writes and reads which element; asked after every schedule instruction.
//! - [`check_function`]: a function as it stands, for bodies and schedules that come from a file, and in debug builds for
//!   what rules propose. Proofs come first. What they leave open is interpreted in lockstep at its real sizes, cut short
//!   (`cpu::lockstep::sample`), or, for the stores to results, counted. What can be neither proved nor run is refused.
//! - [`accept`]: applies the schedule that a function came with, and checks what it gives.
//!
//! A race is two threads touching one element with no barrier between, unless both read. Statements of a workgroup run in
//! lockstep, and barriers are derived between statements that conflict; so what is left are conflicts within one
//! statement, and those between workgroups of one kernel. Threads that store one and the same value do not conflict.

mod bounds;
mod coverage;
mod owner;
pub mod sharing;
#[cfg(test)]
mod tests;
mod view;

use crate::cpu::sample_kernels;
use crate::graph::Module;
use crate::name::Name;
use crate::schedule::{apply_pending, print_loops};
use crate::tir::TensorFunction;
use crate::verify::verify_tensor_function;
use view::View;

/// Why a tensor function is refused.
#[derive(Debug, Clone, thiserror::Error)]
#[error("@{function}: {message}{}", self.loops.as_ref().map(|l| format!("\n{l}")).unwrap_or_default())]
pub struct Refused {
    /// The function.
    pub function: Name,
    /// What is wrong, or not proved.
    pub message: String,
    /// The loops with the culprit marked.
    pub loops: Option<String>,
}

/// Applies the instructions that are pending in `f`, and checks the result.
///
/// # Errors
/// An instruction that does not apply, or what [`check_function`] refuses.
pub fn accept(f: &mut TensorFunction) -> Result<(), Refused> {
    let name = f.name;
    if let Err(list) = verify_tensor_function(f) {
        let message = list.first().map(|e| e.message.clone()).unwrap_or_default();
        return Err(Refused { function: name, message, loops: None });
    }
    // A kernel that was written, not made by instructions, may use memory that it never stored to.
    let written = !f.kernels().is_empty();
    apply_pending(f).map_err(|e| Refused { function: name, message: e.to_string(), loops: None })?;
    check(f, written)
}

/// Checks every tensor function of a module that came as text, with its schedule applied.
///
/// # Errors
/// The first function that is refused.
pub fn check_module(m: &Module) -> Result<(), Refused> {
    m.tensor_functions.values().try_for_each(|f| accept(&mut f.clone()))
}

/// Checks a function as it stands, without what is pending.
///
/// # Errors
/// The first rule of the verifier that is broken, a race, an access out of bounds, an element of a result that is not
/// stored exactly once; or what of these is neither proved nor can be interpreted.
pub fn check_function(f: &TensorFunction) -> Result<(), Refused> {
    check(f, false)
}

/// [`check_function`]; `run` asks for a run of the kernels whatever is proved.
fn check(f: &TensorFunction, run: bool) -> Result<(), Refused> {
    let refuse = |culprit: Option<Name>, message: String| Refused {
        function: f.name,
        message,
        loops: culprit.map(|c| print_loops(f, &f.body, Some(c))),
    };
    if let Err(list) = verify_tensor_function(f) {
        let first = list.first().map(|e| e.message.clone()).unwrap_or_default();
        return Err(refuse(None, first));
    }
    let views = View::all(f);
    let mut open =
        sharing::violations(f).into_iter().next().map(|v| (v.culprit, format!("`{}`: {}", v.culprit, v.message)));
    if open.is_none() {
        let outside = views.iter().find_map(bounds::outside);
        open = outside.map(|o| (o.block, format!("block `{}`: {}", o.block, o.message)));
    }
    if (open.is_some() || run)
        && let Err(found) = sample_kernels(f)
    {
        match (found.block, &open) {
            (Some(block), _) => return Err(refuse(Some(block), found.message)),
            (None, Some((culprit, message))) => {
                return Err(refuse(Some(*culprit), format!("{message}; {}", found.message)));
            }
            // All of it is proved.
            (None, None) => {}
        }
    }
    coverage::check(f, &views).map_err(|gap| refuse(gap.block, gap.message))
}
