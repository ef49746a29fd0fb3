//! Mixed precision on the command line: keep lists, and calibration for `--amp auto`.

use crate::error::{Error, Result};
use crate::progress::{Progress, log, log_once};
use crate::settings::Settings;
use compiler::attr::AttrStruct;
use compiler::calibrate::{Calibration, Limits, calibrate};
use compiler::graph::Module;
use compiler::name::Name;
use compiler::passes::{
    AmpMode, FuseMode, KeepF32, PassContext, PipelineOptions, RoundRows, Sequential, default_pipeline,
};
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use std::time::{Duration, Instant};
use weft::calibrated::{is_slower, mixed_over_f32};
use weft::{Model, Options};

/// The patterns of `--keep-f32`: each a pattern, or `@FILE` with one pattern a line (`#` opens a comment line).
pub fn keep_list(settings: &Settings) -> Result<Vec<KeepF32>> {
    let mut out = Vec::new();
    for p in &settings.keep_f32 {
        match p.strip_prefix('@') {
            None => out.push(KeepF32 { listed: !settings.is_default("keep_f32"), ..KeepF32::listed(p) }),
            Some(file) => {
                let text = weft::plain_files::read_text(file.as_ref())
                    .map_err(|e| Error::usage(format!("--keep-f32 {p}: cannot read {file}: {e}")))?;
                let lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
                out.extend(lines.map(KeepF32::listed));
            }
        }
    }
    Ok(out)
}

/// The module that a device's results are held against, and whether it rounds data to 8 bits: what the compilation
/// rounds there, since the model allows it, is rounded in the module too. An element between two steps may go to
/// either.
///
/// # Errors
/// An error of the pass.
pub fn rounded_as_there(
    mut module: Module,
    settings: &Settings,
    pipeline: &PipelineOptions,
    profile: &DeviceProfile,
) -> Result<(Module, bool)> {
    let mut cx = PassContext::new(profile.clone());
    pipeline.configure(&mut cx);
    let runs = default_pipeline(pipeline).iter().any(|p| p == RoundRows::NAME);
    let pass = Sequential::new([RoundRows::NAME]);
    let rounded = runs && pass.run(&mut module, &mut cx).map_err(|e| Error::input(e.to_string()))?;
    if rounded {
        let text = "data of products is rounded to 8 bits in blocks, as the model allows";
        log_once(settings, format!("note: {text} (--disable-pass {} keeps it exact)", RoundRows::NAME));
    }
    Ok((module, rounded))
}

/// Runs the fp32 graph on `inputs` as `pipeline` compiles it, and finds the nodes to keep in f32. Reports them, and the
/// time in relation to a run of the network.
pub fn calibrated(
    module: &Module,
    settings: &Settings,
    pipeline: &PipelineOptions,
    profile: &DeviceProfile,
    inputs: &[Tensor],
    limits: &Limits,
) -> Result<Calibration> {
    let mut bar = Progress::new(settings, &[]);
    let (start, mut exact) = (Instant::now(), None);
    let mut own = Duration::ZERO;
    let mut progress = |runs: f64| {
        match exact {
            None => exact = Some(Instant::now()),
            Some(began) if own.is_zero() => own = began.elapsed(),
            _ => {}
        }
        bar.report("calibration", (runs * 10.0) as usize, (limits.runs * 10.0) as usize);
    };
    let pipeline = on_this_device(settings, pipeline);
    let found = calibrate(module, &pipeline, profile, inputs, limits, &mut progress)
        .map_err(|e| Error::input(e.to_string()))?;
    drop(bar);
    let largest = found.nodes.iter().map(|n| n.largest).fold(0.0, f64::max);
    let how = match (found.all_in_f32(), found.plain) {
        (true, _) => "all nodes stay in f32".to_string(),
        (false, true) => "as --amp fp16".to_string(),
        (false, false) => format!("{} of {} nodes stay in f32", found.keep.len(), found.nodes.len()),
    };
    log(
        settings,
        format!(
            "calibration: {how}; largest magnitude {largest:.4}, error of the result {:.1e}, {:.2} of the tolerance",
            found.error, found.used
        ),
    );
    let (own, all) = (own.as_secs_f64() * 1e3, start.elapsed().as_secs_f64() * 1e3);
    log(
        settings,
        format!(
            "calibration: {all:.0} ms, where the fp32 network takes {own:.0} ms on the interpreter ({:.1} runs)",
            found.runs
        ),
    );
    Ok(found)
}

/// The passes of `options` and the kept nodes, or f32 where a processor runs the network, and f16 takes longer there.
///
/// # Errors
/// An error of the compilation or of a run.
pub fn faster_of_both(
    module: &Module,
    settings: &Settings,
    options: Options,
    kept: Vec<Name>,
    inputs: &[Tensor],
) -> Result<(PipelineOptions, Vec<Name>)> {
    let race = || mixed_over_f32(&Model::from_module(module.clone()), &options, inputs);
    let ratio = settings.state.time("calibration", race)?;
    let pipeline = options.pipeline;
    let Some(ratio) = ratio else { return Ok((pipeline, kept)) };
    let slower = is_slower(ratio);
    let verdict = if slower { "all nodes stay in f32, unless --amp fp16 asks for f16" } else { "f16 stays" };
    log(settings, format!("calibration: the network takes {ratio:.2} times as long here as in f32: {verdict}"));
    Ok(if slower { (PipelineOptions { amp: AmpMode::Off, ..pipeline }, vec![]) } else { (pipeline, kept) })
}

/// The interpreter stores what every node gives.
pub fn on_this_device(settings: &Settings, pipeline: &PipelineOptions) -> PipelineOptions {
    let fuse = if settings.device == "interpreter" { FuseMode::Off } else { pipeline.fuse };
    PipelineOptions { fuse, ..pipeline.clone() }
}
