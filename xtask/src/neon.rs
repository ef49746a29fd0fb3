//! The CPU target's tests for another processor: AArch64, under QEMU's user mode.
//!
//! The bodies for NEON are no part of a build for x86-64, so that a test there neither compiles nor runs them.

use crate::cargo::{cargo, run as run_command, show, succeeds};

/// The target that is tested.
pub const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";
/// Edits of schedules: the emulator takes some twenty times as long as a processor.
const EDITS: &str = "40";

/// One line for the usage.
pub const HELP: &str = "tests the CPU target for AArch64 under QEMU's user mode";

/// Runs the command.
///
/// # Errors
/// Arguments, which it has none of; a test that fails.
pub fn run(args: &[String]) -> Result<(), String> {
    match args {
        [] => test(),
        [other, ..] => Err(format!("unknown argument {other}; usage: cargo xtask neon")),
    }
}

/// Tests `weft-runtime-cpu` for AArch64. On such a machine its own tests have done that; where a program is missing, a
/// line says which.
///
/// # Errors
/// When a test fails.
pub fn test() -> Result<(), String> {
    if cfg!(target_arch = "aarch64") {
        return Ok(());
    }
    if let Some(missing) = missing() {
        eprintln!("SKIPPED: the CPU target's tests for {TARGET}: {missing}");
        return Ok(());
    }
    let mut c = cargo(&["test", "--package", "weft-runtime-cpu", "--target", TARGET]);
    let variable = |what: &str| format!("CARGO_TARGET_{}_{what}", TARGET.to_uppercase().replace('-', "_"));
    c.env(variable("LINKER"), LINKER).env(variable("RUNNER"), format!("{EMULATOR} -L /usr/aarch64-linux-gnu"));
    c.env("WEFT_CPU_EDITS", EDITS);
    eprintln!("{}", show(&c));
    run_command(c)
}

/// What this machine lacks, and how to install it.
fn missing() -> Option<String> {
    if !cfg!(target_os = "linux") {
        return Some("QEMU runs programs of other processors on Linux alone".into());
    }
    for (program, package) in [(EMULATOR, "qemu-user"), (LINKER, "gcc-aarch64-linux-gnu")] {
        if !succeeds(program, &["--version"]) {
            return Some(format!("there is no `{program}`; `apt-get install {package}` brings it"));
        }
    }
    let added = succeeds("rustup", &["target", "add", TARGET]);
    (!added).then(|| format!("the toolchain has no {TARGET}; `rustup target add {TARGET}` adds it"))
}
