//! Checks the tensor functions of a module that was parsed from text.

use crate::check::{Refused, check_kernels};
use crate::graph::Module;
use crate::schedule::{accept, has_own_schedule};

/// Checks every tensor function of a module that came as text, with its schedule applied. A schedule of its own must
/// put every statement into a kernel. If choices in it were edited, that is checked once the rules have followed them.
///
/// # Errors
/// The first function that is refused.
pub fn check_module(m: &Module) -> Result<(), Refused> {
    m.tensor_functions.values().try_for_each(|f| {
        let mut applied = f.clone();
        accept(&mut applied)?;
        if has_own_schedule(f) && applied.pending.is_empty() { check_kernels(&applied) } else { Ok(()) }
    })
}
