//! Applies the schedule that a tensor function came with, and checks the result.

use super::rules::has_edited_choices;
use super::{Version, apply_pending};
use crate::check::{Refused, check, check_made};
use crate::tir::TensorFunction;
use crate::verify::verify_tensor_function;

/// Applies the pending instructions of `f` and checks the result. If choices in them were edited, the schedule depends
/// on a device ([`follow_choices`](crate::schedule::rules::follow_choices)), and only the unscheduled loops are
/// checked.
///
/// # Errors
/// An instruction does not apply, or [`check_function`](crate::check::check_function) refuses the result.
pub fn accept(f: &mut TensorFunction) -> Result<(), Refused> {
    let name = f.name;
    if let Err(list) = verify_tensor_function(f) {
        let message = list.first().map(|e| e.message.clone()).unwrap_or_default();
        return Err(Refused { function: name, message, loops: None, undecided: false });
    }
    // A kernel that was written, not made by instructions, may use memory that it never stored to.
    let written = !f.kernels().is_empty();
    if has_edited_choices(f) {
        return check(f, written);
    }
    let plain = TensorFunction { pending: vec![], ..f.clone() };
    apply_pending(f).map_err(|e| Refused { function: name, message: e.to_string(), loops: None, undecided: false })?;
    if written { check(f, true) } else { check_made(f, &plain) }
}

/// True if the function has kernels, or instructions that make kernels, so that the rules do not schedule it.
/// Instructions that only request versions do not count.
pub fn has_own_schedule(f: &TensorFunction) -> bool {
    !f.kernels().is_empty() || f.pending.iter().any(|i| Version::of_instruction(i).is_none())
}
