//! Mixed precision on the command line: keep lists, and calibration for `--amp auto`.

use crate::args::Common;
use crate::arrays::Named;
use crate::error::{CliError, CliResult};
use crate::executor::pipeline_options;
use crate::output::{log, write_file};
use compiler::calibrate::{Calibration, calibrate};
use compiler::graph::Module;
use compiler::passes::mixed_precision::escape_pattern;
use compiler::passes::{FuseMode, KeepF32};
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use std::path::Path;

/// The patterns of `--keep-f32`: each a pattern, or `@FILE` with one pattern a line (`#` opens a comment line).
pub fn keep_list(common: &Common) -> CliResult<Vec<KeepF32>> {
    let mut out = Vec::new();
    for p in &common.keep_f32 {
        match p.strip_prefix('@') {
            None => out.push(KeepF32::listed(p)),
            Some(file) => {
                let text = crate::models::read_text(file.as_ref())
                    .map_err(|e| CliError::usage(format!("--keep-f32 {p}: cannot read {file}: {e}")))?;
                let lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
                out.extend(lines.map(KeepF32::listed));
            }
        }
    }
    Ok(out)
}

/// Writes a list that `--keep-f32 @FILE` reads.
pub fn write_keep_list(path: &Path, names: &[String]) -> CliResult<()> {
    let mut text = String::from("# nodes that stay in f32, for --keep-f32 @FILE\n");
    for n in names {
        let pattern = escape_pattern(n);
        text += if pattern.starts_with(['#', '@']) { "\\" } else { "" };
        text += &pattern;
        text.push('\n');
    }
    write_file(path, text.as_bytes())
}

/// Inputs for calibration: the given ones, else seeded ones. None unless `--amp auto` asks for them.
pub fn calibration_inputs(module: &Module, given: Option<&Named>, common: &Common) -> CliResult<Vec<Tensor>> {
    if common.amp != "auto" {
        return Ok(vec![]);
    }
    // A file may hold a part of the inputs: it then only decides shapes.
    crate::models::inputs_for(module, given, common).or_else(|_| crate::models::inputs_for(module, None, common))
}

/// Runs the fp32 graph on `inputs` and finds the nodes to keep in f32; says what it found.
pub fn calibrated(
    module: &Module,
    common: &Common,
    profile: &DeviceProfile,
    inputs: &[Tensor],
) -> CliResult<Calibration> {
    let mut pipeline = pipeline_options(common)?;
    if common.device == "cpu" {
        // The CPU executor stores what every node gives.
        pipeline.fuse = FuseMode::Off;
    }
    let found = calibrate(module, &pipeline, profile, inputs).map_err(|e| CliError::input(e.to_string()))?;
    let largest = found.nodes.iter().map(|n| n.largest).fold(0.0, f64::max);
    log(
        common,
        format!(
            "calibration: {} of {} nodes stay in f32; largest magnitude {largest:.4}, error of the result {:.1e}{}",
            found.keep.len(),
            found.nodes.len(),
            found.error,
            if found.agrees { "" } else { " (beyond the tolerance)" }
        ),
    );
    Ok(found)
}
