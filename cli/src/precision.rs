//! Mixed precision on the command line: keep lists, and calibration for `--amp auto`.

use crate::args::Common;
use crate::error::{CliError, CliResult};
use crate::output::{log, write_file};
use compiler::calibrate::{Calibration, calibrate};
use compiler::graph::Module;
use compiler::passes::mixed_precision::escape_pattern;
use compiler::passes::{FuseMode, KeepF32, PipelineOptions};
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
                let text = weft::plain_files::read_text(file.as_ref())
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

/// Runs the fp32 graph on `inputs` as `pipeline` compiles it, and finds the nodes to keep in f32; says what it found.
pub fn calibrated(
    module: &Module,
    common: &Common,
    mut pipeline: PipelineOptions,
    profile: &DeviceProfile,
    inputs: &[Tensor],
) -> CliResult<Calibration> {
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
