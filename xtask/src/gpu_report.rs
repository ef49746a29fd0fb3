//! `cargo xtask gpu-report [MODEL ...]`: statistics of Weft's kernels as compiled for real GPUs, in
//! benches/results/gpu-kernels.md.
//!
//! Mesa's Vulkan drivers compile shaders without hardware if a shim replaces the kernel driver
//! (`scripts/gpu/with-gpu.sh`). `scripts/gpu/report.py` analyses the compiled code; this command runs it over the zoo
//! and writes the table.

use crate::cargo::{build_weft, root, target_dir};
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
/// Columns of the table: keys of the report's lines.
const COLUMNS: &[&str] = &[
    "share", "macs", "perload", "reuse", "conflict", "sector", "wide", "flight", "prefetch", "fill", "matrix",
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
        rows.extend(report(&python, &scripts, &weft, model, batches)?);
    }
    let file = root().join("benches/results/gpu-kernels.md");
    std::fs::write(&file, format!("{HEAD}{}", table(&rows))).map_err(|e| format!("{}: {e}", file.display()))?;
    eprintln!("wrote {}", file.display());
    Ok(())
}

/// The report's lines about one network.
fn report(python: &Path, scripts: &Path, weft: &Path, model: &str, batches: &str) -> Result<Vec<Value>, String> {
    let mut c = Command::new(python);
    c.arg(scripts.join("report.py")).arg("--weft").arg(weft).args(["--device", DEVICES, "--amp", "off,fp16"]);
    c.args(["--batch", batches, "--model", model]).stderr(Stdio::inherit());
    let out = c.output().map_err(|e| format!("report.py: {e}"))?;
    if !out.status.success() {
        return Err(format!("report.py failed on {model}: {}", out.status));
    }
    let line = |l: &str| serde_json::from_str(l).map_err(|e| format!("report.py: {e}: {l}"));
    String::from_utf8_lossy(&out.stdout).lines().map(line).collect()
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
