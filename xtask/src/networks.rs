//! `cargo xtask networks`: compares a trained network that is too large for the repository with ONNX Runtime's results.
//!
//! The networks of the zoo and of `benches/models` are compared by tests (`whole_networks`, `real_networks`).

use crate::cargo::{build_weft, root, run as run_command, target_dir};
use crate::python;
use crate::vulkan::{Missing, prepare, quiet_loader};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;

/// One line for the usage.
pub const HELP: &str = "[--full] fetches a trained text detector and holds it against ONNX Runtime's results";

/// What pip installs; the package's own dependencies are not needed for a file in it.
const PACKAGE: [&str; 2] = ["--no-deps", "rapidocr-onnxruntime==1.4.4"];
/// The package's module, the file in it, and what the file must be.
const MODULE: &str = "rapidocr_onnxruntime";
const FILE: &str = "models/ch_PP-OCRv4_det_infer.onnx";
const SHA256: &str = "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9";
/// Name of its input and expected results under `benches/models`.
pub const NAME: &str = "ppocr_v4_det";

/// Layouts of every run, and of `--full`.
const ALWAYS: &[&str] = &["nchw", "nhwc"];
const FULL: &[&str] = &["auto", "nchw", "nhwc", "nchw4c", "nchw8c", "nchw16c", "none"];

/// Runs the command.
///
/// # Errors
/// When the file cannot be had or is another, or results differ.
pub fn run(args: &[String]) -> Result<(), String> {
    let full = match args {
        [] => false,
        [flag] if flag == "--full" => true,
        _ => return Err(format!("usage: cargo xtask networks {HELP}")),
    };
    prepare(Missing::Tolerated)?;
    let weft = build_weft(false)?;
    compare(&weft, &fetch()?, full)
}

/// A step of `cargo xtask test`. Without the file (there may be no network) it is left out, loudly.
///
/// # Errors
/// When results differ.
pub fn test(weft: &Path, full: bool) -> Result<(), String> {
    match fetch() {
        Ok(model) => compare(weft, &model, full),
        Err(why) => {
            eprintln!("\n!!! {NAME} cannot be had ({why}): it is left out.\n");
            Ok(())
        }
    }
}

/// The model's file, from the package, checked.
///
/// # Errors
/// A package that cannot be had; another file in it.
pub fn fetch() -> Result<PathBuf, String> {
    let python = python::environment(&target_dir()?.join("networks/venv"), &PACKAGE)?;
    let place =
        format!("import importlib.util, os; print(os.path.dirname(importlib.util.find_spec('{MODULE}').origin))");
    let found =
        Command::new(&python).args(["-c", &place]).output().map_err(|e| format!("{}: {e}", python.display()))?;
    let file = PathBuf::from(String::from_utf8_lossy(&found.stdout).trim()).join(FILE);
    let bytes = std::fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    check_hash(&bytes, SHA256).map_err(|why| format!("{}: {why}", file.display()))?;
    Ok(file)
}

fn check_hash(bytes: &[u8], wanted: &str) -> Result<(), String> {
    let found: String = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
    if found == wanted { Ok(()) } else { Err(format!("its SHA-256 is {found}, not {wanted}")) }
}

/// The model by shaders in several layouts, and on the CPU, against the stored results.
fn compare(weft: &Path, model: &Path, full: bool) -> Result<(), String> {
    let stored = |end: &str| root().join(format!("benches/models/{NAME}.{end}.npz"));
    let layouts = if full { FULL } else { ALWAYS };
    let amps = if full { &["off", "auto"][..] } else { &["off"][..] };
    let settings = layouts.iter().flat_map(|l| amps.iter().map(move |a| ("0", *l, *a)));
    let mut failed = Vec::new();
    for (device, layout, amp) in settings.chain([("cpu", "auto", "off")]) {
        let mut c = Command::new(weft);
        c.arg("compare").arg(model).arg("-i").arg(stored("in")).arg("--against").arg(stored("out"));
        c.args(["--device", device, "--layout", layout, "--amp", amp]);
        quiet_loader(&mut c);
        eprintln!("{NAME} --device {device} --layout {layout} --amp {amp}");
        failed.extend(run_command(c).err());
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_is_refused() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(check_hash(b"", empty), Ok(()));
        assert!(check_hash(b"x", empty).is_err());
    }
}
