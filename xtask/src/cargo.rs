//! Calling cargo in the workspace.

use std::path::PathBuf;
use std::process::Command;

/// The workspace's root folder.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().map(PathBuf::from).unwrap_or_default()
}

/// A cargo command in the workspace's root.
pub fn cargo(args: &[&str]) -> Command {
    let mut c = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_string()));
    c.current_dir(root()).args(args);
    c
}

/// Runs a command to its end.
///
/// # Errors
/// When it cannot start or fails.
pub fn run(mut c: Command) -> Result<(), String> {
    let status = c.status().map_err(|e| format!("{c:?} does not start: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{c:?}: {status}")) }
}
