//! What a network from a file must not ask of this machine.

use crate::error::Error;
use compiler::external::{machine_options, native_targets};
use compiler::graph::Module;

/// Refuses a network from a file or a text that sets options of external targets which name a program, a library or a
/// folder: those are the caller's alone. Where `allows_native` does not hold, also one with a target that runs code of
/// the machine.
///
/// # Errors
/// [`Error::MachineOptions`], [`Error::NativeText`].
pub fn refuse_machine_code(module: &Module, allows_native: bool) -> Result<(), Error> {
    let options = machine_options(module);
    if !options.is_empty() {
        return Err(Error::MachineOptions(options));
    }
    let targets = if allows_native { vec![] } else { native_targets(module) };
    if targets.is_empty() { Ok(()) } else { Err(Error::NativeText(targets)) }
}
