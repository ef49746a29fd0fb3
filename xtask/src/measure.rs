//! `cargo xtask measure`: all measurements that need a machine with a GPU, as JSON and a table.

use crate::cargo::{build_weft, root, run as run_command};
use crate::python;
use crate::vulkan::quiet_loader;
use std::path::Path;
use std::process::Command;

/// One line for the usage.
pub const HELP: &str = "[--small] [--output F.json] ... ceilings, the zoo, other systems and published times on this device (scripts/gpu/measure.py --help)";

/// Runs the script, on a release build unless it is given another.
///
/// # Errors
/// When the build or the script fails.
pub fn run(args: &[String]) -> Result<(), String> {
    let mut script = Command::new(python::program()?);
    script.arg(root().join("scripts/gpu/measure.py")).args(args);
    let given = |option: &str| args.iter().any(|a| a == option || a.starts_with(&format!("{option}=")));
    if !["--weft", "--table", "--help", "-h"].into_iter().any(given) {
        script.arg("--weft").arg(build_weft(true)?);
    }
    quiet_loader(&mut script);
    run_command(script)
}

/// Runs it in small, Weft alone: that the script works from end to end.
///
/// # Errors
/// When something of it fails.
pub fn check(weft: &Path) -> Result<(), String> {
    let output = crate::cargo::target_dir()?.join("measure-small.json");
    let mut script = Command::new(python::program()?);
    script.arg(root().join("scripts/gpu/measure.py")).args(["--small", "--peers", "none", "--weft"]).arg(weft);
    script.arg("--output").arg(&output);
    quiet_loader(&mut script);
    run_command(script)?;
    let text = std::fs::read_to_string(&output).map_err(|e| format!("{}: {e}", output.display()))?;
    let all: serde_json::Value = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", output.display()))?;
    let failed = all["results"].as_array().into_iter().flatten().find(|r| !r["error"].is_null());
    failed.map_or(Ok(()), |r| Err(format!("it measures no {} in {}: {}", r["network"], r["layout"], r["error"])))
}
