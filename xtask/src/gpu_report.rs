//! `cargo xtask gpu-report [MODEL ...]`: statistics of Weft's kernels as compiled for real GPUs, in
//! benches/results/gpu-kernels.md.
//!
//! Mesa's Vulkan drivers compile shaders without hardware if a shim replaces the kernel driver
//! (`scripts/gpu/with-gpu.sh`). `scripts/gpu/report.py` analyses the compiled code, `scripts/gpu/kernel_ranks.py` holds
//! the estimate against it; this command runs both over the zoo and writes the tables, with the commit and the day.

use crate::cargo::{build_weft, root, show, target_dir};
use crate::heading::heading;
use crate::python;
use crate::replay::zoo;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// One line for the usage.
pub const HELP: &str =
    "[MODEL ...] writes benches/results/gpu-kernels.md: the zoo's kernels as three vendors' compilers see them";

/// One device of each vendor.
const DEVICES: &str = "navi31,bmg,ada";
/// Networks that are also compiled for a batch of 32.
const BATCHED: &[&str] = &["resnet50", "vit_b_16"];
/// The device whose code changes with `robustBufferAccess`.
const ROBUST: &str = "ada";
/// Columns of the table: keys of the report's lines.
const COLUMNS: &[&str] = &[
    "share", "macs", "perload", "reuse", "conflict", "lds", "sector", "wide", "flight", "prefetch", "fill", "matrix",
    "spills", "unstaged", "unknown",
];
/// What stands above the table.
const HEAD: &str = "# Kernels on real GPUs

What Mesa's Vulkan compilers for AMD (RADV, ACO), Intel (ANV) and NVIDIA (NVK, NAK) make of the kernels that Weft emits for the
networks of the zoo. **These are figures of compiled code and of models of memory, not times**: no GPU was at hand. Bank
conflicts and sectors are the textbook model over the addresses of the shader; the rest is counted in the hot loop of the
driver's own ISA listing. NVIDIA's own compiler may order loads otherwise than NVK does.

Made by `cargo xtask gpu-report` with `WEFT_GPU_SHIMS` set (without it the command says how the shims are built). Devices:
navi31 (Radeon RX 7900), bmg (Arc B580), ada (GeForce RTX 40). Means are weighted by FLOPs over kernels with an anchor and at least
8 FLOPs a byte; what is bound by memory is not in them. `scripts/gpu/report.py --help` explains each figure; `weft explain -v`
shows Weft's own count of bank passes and sectors for every kernel (`compiler::traffic`), which tests hold without any driver.

";

/// The text above the second table.
const ROBUST_HEAD: &str = "
## As wgpu opens devices

The same with `robustBufferAccess`, which wgpu asks for: NVK then checks each load on its own, and splits vectors.
RADV's and ANV's code is the same.

";

/// The text above the third table.
const RANKS_HEAD: &str = "
## How the estimate ranks the kernels of a network

`scripts/gpu/kernel_ranks.py`: Spearman's rank correlation of the estimate without launches with the slots of the
compiled code (`slots`), and with the larger of its issue time and its bytes over the device's bandwidth (`rank`), batch 1.

";

/// Runs the command.
///
/// # Errors
/// Without the shims, or when a compilation fails.
pub fn run(args: &[String]) -> Result<(), String> {
    if let Some(option) = args.iter().find(|a| a.starts_with('-')) {
        return Err(format!("unknown option {option}\nusage: cargo xtask gpu-report {HELP}"));
    }
    let scripts = root().join("scripts/gpu");
    let mut ready = Command::new("bash");
    ready.arg(scripts.join("with-gpu.sh")).args(["navi31", "/bin/true"]);
    if !ready.status().is_ok_and(|s| s.success()) {
        return Err("the drivers cannot run here (see above)".into());
    }
    heading("cargo build --package weft-command");
    let weft = build_weft(false)?;
    let python = python::environment(&target_dir()?.join("gpu-report/venv"), &["numpy==2.2.6"])?;
    let models = if args.is_empty() { zoo(&weft)? } else { args.to_vec() };
    let mut rows = Vec::new();
    for model in &models {
        heading(model);
        let batches = if BATCHED.contains(&model.as_str()) { "1,32" } else { "1" };
        rows.extend(report(&python, &scripts, &weft, model, &["--device", DEVICES, "--batch", batches])?);
    }
    let mut robust = Vec::new();
    for model in models.iter().filter(|m| BATCHED.contains(&m.as_str())) {
        robust.extend(report(&python, &scripts, &weft, model, &["--device", ROBUST, "--batch", "1", "--robust"])?);
    }
    heading("ranks");
    let ranks = output(
        Command::new(&python).arg(scripts.join("kernel_ranks.py")).arg("--weft").arg(&weft).args(["--device", DEVICES]),
    )?;
    let file = root().join("benches/results/gpu-kernels.md");
    let made = format!("Of {}, made on {}.\n\n", git(&["describe", "--always", "--dirty"])?, today(&python)?);
    let mut text = format!("{HEAD}{made}{}", table(&rows));
    if !robust.is_empty() {
        text += &format!("{ROBUST_HEAD}{}", table(&robust));
    }
    text += &format!("{RANKS_HEAD}{ranks}");
    std::fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
    eprintln!("wrote {}", file.display());
    Ok(())
}

/// Standard output of a command that must succeed.
fn output(c: &mut Command) -> Result<String, String> {
    let out = c.stderr(Stdio::inherit()).output().map_err(|e| format!("{}: {e}", show(c)))?;
    if !out.status.success() {
        return Err(format!("{}: {}", show(c), out.status));
    }
    String::from_utf8(out.stdout).map_err(|e| format!("{}: {e}", show(c)))
}

/// The answer of git about the checkout.
fn git(args: &[&str]) -> Result<String, String> {
    Ok(output(Command::new("git").arg("-C").arg(root()).args(args))?.trim().to_string())
}

/// The day.
fn today(python: &Path) -> Result<String, String> {
    let day = output(Command::new(python).args(["-c", "import datetime; print(datetime.date.today())"]))?;
    Ok(day.trim().to_string())
}

/// The report's lines about one network.
fn report(python: &Path, scripts: &Path, weft: &Path, model: &str, more: &[&str]) -> Result<Vec<Value>, String> {
    let mut c = Command::new(python);
    c.arg(scripts.join("report.py")).arg("--weft").arg(weft).args(["--amp", "off,fp16", "--model", model]).args(more);
    let line = |l: &str| serde_json::from_str(l).map_err(|e| format!("report.py: {e}: {l}"));
    output(&mut c)?.lines().map(line).collect()
}

/// A table with a row for each line of the report.
fn table(rows: &[Value]) -> String {
    let mut text = format!("| network | precision | batch | device | {} |\n", COLUMNS.join(" | "));
    text += &format!("|---|---|---|---|{}\n", "---|".repeat(COLUMNS.len()));
    for r in rows {
        let word = |key: &str| match &r[key] {
            Value::String(s) => s.clone(),
            Value::Null => "-".into(),
            other => other.to_string(),
        };
        let amp = if word("amp") == "off" { "f32".into() } else { word("amp") };
        let figures: Vec<String> = COLUMNS.iter().map(|c| word(c)).collect();
        text += &format!(
            "| {} | {amp} | {} | {} | {} |\n",
            word("model"),
            word("batch"),
            word("device"),
            figures.join(" | ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_becomes_a_row() {
        let line = r#"{"device":"ada","model":"m","amp":"off","batch":"1","share":0.5,"conflict":1.0,"reuse":null}"#;
        let rows = [serde_json::from_str(line).expect("JSON")];
        let text = table(&rows);
        assert!(text.contains("| m | f32 | 1 | ada | 0.5 | - | - | - | 1.0 |"), "{text}");
    }
}
