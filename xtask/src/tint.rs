//! Tint, the WGSL front end of Chromium, if npm can fetch it: it tells whether browsers accept a shader.

use crate::cargo::{root, show, succeeds, target_dir};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The npm package that carries Dawn with Tint, for the common systems.
const PACKAGE: &str = "webgpu@0.6.2";

/// Where the package's module is, fetched on first use; none, with advice, where Node is not here or npm reaches
/// nothing.
pub fn find() -> Option<PathBuf> {
    let advice = |why: &str| {
        eprintln!("\n!!! {why}, so Tint does not read the kernels; it comes with Node.js through npm ({PACKAGE})\n");
        None
    };
    if !succeeds("node", &["--version"]) {
        return advice("Node.js is not here");
    }
    let Ok(folder) = target_dir().map(|t| t.join("tint")) else { return advice("there is no target folder") };
    let module = folder.join("node_modules/webgpu/index.js");
    if !module.exists() {
        let npm = if cfg!(windows) { "npm.cmd" } else { "npm" };
        let mut install = Command::new(npm);
        install.args(["install", "--silent", "--ignore-scripts", "--no-save", "--prefix"]).arg(&folder).arg(PACKAGE);
        install.stdin(Stdio::null()).stdout(Stdio::null());
        let made = std::fs::create_dir_all(&folder).is_ok();
        if !made || !install.status().is_ok_and(|s| s.success()) || !module.exists() {
            return advice("npm cannot fetch it");
        }
    }
    Some(module)
}

/// Has Tint read every `.wgsl` file of `folders`.
///
/// # Errors
/// What it refuses.
pub fn check(module: &Path, folders: &[PathBuf]) -> Result<(), String> {
    let mut read = Command::new("node");
    read.arg(root().join("scripts/tint.mjs")).arg(module).args(folders).stdin(Stdio::null());
    let o = read.output().map_err(|e| format!("{}: {e}", show(&read)))?;
    let said = String::from_utf8_lossy(&o.stdout).trim().to_string();
    match o.status.success() {
        true => {
            eprintln!("{said}");
            Ok(())
        }
        false => Err(format!("Tint: {said}\n{}", String::from_utf8_lossy(&o.stderr))),
    }
}
