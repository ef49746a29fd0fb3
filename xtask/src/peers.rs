//! `cargo xtask peers MODEL ...`: the same network on Weft and on other systems, in interleaved rounds. With
//! `--decode N` it is a language model, which makes tokens.

use crate::cargo::{build_weft, root, run as run_command, target_dir};
use crate::python;
use crate::vulkan::quiet_loader;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One line for the usage.
pub const HELP: &str =
    "MODEL [--peers A,B] [--decode N] ... holds Weft against other systems (scripts/peers.py, decode_peers.py --help)";

/// Runs the command. A zoo name is exported to ONNX first, so that all run the very same network.
///
/// # Errors
/// When the build, the export or the script fails.
pub fn run(args: &[String]) -> Result<(), String> {
    let Some((model, rest)) = args.split_first() else {
        return Err(format!("usage: cargo xtask peers {HELP}"));
    };
    let mut script = Command::new(python::program()?);
    let decodes = args.iter().any(|a| a == "--decode");
    script.arg(root().join("scripts").join(if decodes { "decode_peers.py" } else { "peers.py" }));
    if model.starts_with('-') {
        script.args(args);
        return run_command(script);
    }
    let weft = build_weft(true)?;
    // The script itself writes `decoder:layers=2,d=1024`.
    let file = if decodes { PathBuf::from(model) } else { onnx_file(&weft, model)? };
    script.arg(file).args(rest);
    if !rest.iter().any(|a| a == "--weft" || a.starts_with("--weft=")) {
        script.arg("--weft").arg(quoted(&weft));
    }
    quiet_loader(&mut script);
    run_command(script)
}

/// The path as one word of a shell command line, which is how the script takes it.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display())
}

/// The model's file; a zoo model is written to the output folder, under its own name.
fn onnx_file(weft: &Path, model: &str) -> Result<PathBuf, String> {
    if Path::new(model).exists() {
        return Ok(PathBuf::from(model));
    }
    let folder = target_dir()?.join("peers");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let file = folder.join(format!("{model}.onnx"));
    let mut export = Command::new(weft);
    export.args(["export", model, "-o"]).arg(&file);
    run_command(export)?;
    Ok(file)
}
