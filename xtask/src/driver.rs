//! `cargo xtask driver NAME PROGRAM ...`: runs a program on one software Vulkan driver, fetched on first use.

use crate::cargo::{cargo, root, run as run_command};
use crate::heading::heading;
use crate::vulkan::quiet_loader;
use std::process::Command;

/// One line for the usage.
pub const HELP: &str = "lavapipe|lavapipe-new|swiftshader PROGRAM ... runs a program on that Vulkan driver";

/// The script, relative to the root: cargo splits a runner at spaces, which a path of the user's may hold.
const SCRIPT: &str = "scripts/with-driver.sh";

/// Every driver the script knows.
const DRIVERS: &[&str] = &["lavapipe", "lavapipe-new", "swiftshader"];

/// The tests that open a device.
const DEVICE_TESTS: &[&[&str]] = &[
    &["test", "--package", "weft-shaders-gen", "--package", "weft-runtime-gpu", "--lib", "--tests"],
    &["test", "--package", "weft-command", "--test", "filetests", "--test", "exported"],
];

/// Runs the command.
///
/// # Errors
/// When the driver is unknown or cannot be fetched, or the program fails.
pub fn run(args: &[String]) -> Result<(), String> {
    match args {
        [name, program @ ..] if DRIVERS.contains(&name.as_str()) && !program.is_empty() => {
            let mut c = Command::new("bash");
            c.arg(root().join(SCRIPT)).args(args);
            quiet_loader(&mut c);
            run_command(c)
        }
        _ => Err(format!("usage: cargo xtask driver {HELP}")),
    }
}

/// Runs the tests that use a device on every driver; returns what failed. A driver that cannot be fetched is reported,
/// but is no failure: the machine may be offline.
pub fn test_all() -> Vec<String> {
    let mut failed = Vec::new();
    let triple = format!("{}-UNKNOWN-LINUX-GNU", std::env::consts::ARCH).to_uppercase().replace('-', "_");
    for name in DRIVERS {
        heading(&format!("tests on {name}"));
        if let Err(why) = run(&[name.to_string(), "true".to_string()]) {
            eprintln!("!!! not tested on {name}: the driver could not be fetched ({why})");
            continue;
        }
        for test in DEVICE_TESTS {
            let mut c = cargo(test);
            c.env(format!("CARGO_TARGET_{triple}_RUNNER"), format!("{SCRIPT} {name}"));
            quiet_loader(&mut c);
            if let Err(why) = run_command(c) {
                eprintln!("{why}");
                failed.push(format!("tests on {name}"));
            }
        }
    }
    failed.dedup();
    failed
}
