//! `cargo xtask bless [FILTER]`: runs the filetests and writes their output as the expectation.

use crate::cargo::{cargo, run as run_command};

/// One line for the usage.
pub const HELP: &str = "[FILTER] rewrites the expectations of the filetests; look at the diff before committing";

/// Runs the command.
///
/// # Errors
/// When a filetest fails for another reason than its expectation.
pub fn run(args: &[String]) -> Result<(), String> {
    let mut c = cargo(&["test", "--package", "weft-command", "--test", "filetests", "--"]);
    c.args(args).env("WEFT_BLESS", "1");
    run_command(c)
}
