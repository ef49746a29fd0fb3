//! Dawn, the WebGPU of Chromium, with its front end Tint, if npm can fetch it: it tells whether browsers accept a
//! shader and make a pipeline of it.

use crate::cargo::{root, show, succeeds, target_dir};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The npm package that carries Dawn with Tint, for the common systems.
const PACKAGE: &str = "webgpu@0.6.2";

/// Where the package's module is, fetched on first use; none, with advice, where Node is not here or npm reaches
/// nothing.
pub fn find() -> Option<PathBuf> {
    let advice = |why: &str| {
        eprintln!(
            "\n!!! {why}, so neither Tint reads the kernels nor Dawn makes pipelines of them; both come with Node.js \
             through npm ({PACKAGE})\n"
        );
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

/// Has Tint read every `.wgsl` file of `folders`. With a profile (as `weft devices --profiles --json` has it), Dawn
/// makes a pipeline of each on a device with the features and limits of that profile. The order is written to `list`.
///
/// # Errors
/// What it refuses.
pub fn check(module: &Path, list: &Path, folders: &[(PathBuf, Option<Value>)]) -> Result<(), String> {
    let row = |(folder, profile): &(PathBuf, Option<Value>)| match profile {
        Some(profile) => serde_json::json!({ "folder": folder, "profile": profile }),
        None => serde_json::json!({ "folder": folder }),
    };
    let order = Value::Array(folders.iter().map(row).collect());
    std::fs::write(list, order.to_string()).map_err(|e| format!("{}: {e}", list.display()))?;
    let mut read = Command::new("node");
    read.arg(root().join("scripts/tint.mjs")).args([module, list]).stdin(Stdio::null());
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
