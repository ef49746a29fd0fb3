//! Tensor functions that come with a schedule: it is applied, and what it gives is checked.

use super::rules::has_edited_choices;
use super::{Version, apply_pending};
use crate::check::{Refused, check, check_made};
use crate::tir::TensorFunction;
use crate::verify::verify_tensor_function;

/// Applies the instructions that are pending in `f`, and checks the result. Where choices in them were edited, only a device can
/// say what the schedule is ([`follow_choices`](crate::schedule::rules::follow_choices)): the loops are then checked without it.
///
/// # Errors
/// An instruction that does not apply, or what [`check_function`](crate::check::check_function) refuses.
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

/// True for a function whose kernels the rules do not make: it has kernels, or instructions that make some. Lines that only ask for
/// versions leave the schedule to the rules.
pub fn has_own_schedule(f: &TensorFunction) -> bool {
    !f.kernels().is_empty() || f.pending.iter().any(|i| Version::of_instruction(i).is_none())
}
