//! First runs: how long they take, and what mixed precision costs in accuracy.

use super::record::{AgainstF32, CompileTimes, StageTime};
use crate::error::Result;
use crate::executor::{Device, execute};
use crate::settings::Settings;
use compiler::agreement::{Tolerance, agree};
use compiler::dtype::DType;
use compiler::graph::Module;
use compiler::tensor::Tensor;
use compiler::trace::NOT_ATTRIBUTED;
use std::time::Instant;

/// Compiles, opens a session and runs once: some drivers compile only then.
pub fn first_run(module: Module, settings: &Settings, device: &Device, inputs: &[Tensor]) -> Result<Started> {
    timed_start(settings, inputs, || execute(module, settings, device, inputs))
}

/// A session after its first run.
pub struct Started {
    pub session: weft::Session,
    pub times: CompileTimes,
    pub results: Vec<Tensor>,
}

/// Opens a session by `open`, and runs once.
pub fn timed_start(
    settings: &Settings,
    inputs: &[Tensor],
    open: impl FnOnce() -> Result<weft::Session>,
) -> Result<Started> {
    let ((session, results), times) = timed(settings, || {
        let session = open()?.sized_for(inputs)?;
        let results = settings.state.time("first run", || session.run_in_order(inputs))?;
        Ok((session, results))
    })?;
    Ok(Started { session, times, results })
}

/// Does work, with the times of its stages.
///
/// # Errors
/// Those of the work.
pub fn timed<T>(settings: &Settings, work: impl FnOnce() -> Result<T>) -> Result<(T, CompileTimes)> {
    let (start, before) = (Instant::now(), settings.state.stages());
    let done = work()?;
    let cold = start.elapsed().as_secs_f64() * 1e3;
    let own = |(name, ms): (String, f64)| {
        let known = before.iter().find(|b| b.0 == name).map_or(0.0, |b| b.1);
        StageTime { name, ms: ms - known }
    };
    let mut stages: Vec<StageTime> = settings.state.stages().into_iter().map(own).filter(|s| s.ms > 0.0).collect();
    let rest = (cold - stages.iter().map(|s| s.ms).sum::<f64>()).max(0.0);
    stages.push(StageTime { name: NOT_ATTRIBUTED.into(), ms: rest });
    Ok((done, CompileTimes { cold, stages, warm: None }))
}

/// The times of the first run, and of compilation, session and first run once more in this process.
pub fn compile_times(
    first: CompileTimes,
    module: Module,
    settings: &Settings,
    device: &Device,
    inputs: &[Tensor],
) -> Result<Option<CompileTimes>> {
    let warm = Some(first_run(module, &again(settings), device, inputs)?.times.cold);
    Ok(Some(CompileTimes { warm, ..first }))
}

/// The same settings for a run that is not told of.
fn again(settings: &Settings) -> Settings {
    Settings { state: Default::default(), ..settings.silent() }
}

/// Results in mixed precision against those in f32 on the same device.
///
/// # Errors
/// A failed run.
pub fn against_f32(
    own: &[Tensor],
    module: &Module,
    settings: &Settings,
    device: &Device,
    inputs: &[Tensor],
) -> Result<AgainstF32> {
    let plain = Settings { amp: "off".into(), keep_f32: vec![], ..again(settings) };
    let session = execute(module.clone(), &plain, device, inputs)?.sized_for(inputs)?;
    let plain = session.run_unchecked(inputs)?.0;
    let mut out = AgainstF32 { outputs: own.len(), ..AgainstF32::default() };
    for (a, b) in own.iter().zip(&plain) {
        let d = agree(a, b, &Tolerance::new(DType::F16, None, None));
        out.rel_l2 = out.rel_l2.max(d.rel_l2);
        out.max_abs = out.max_abs.max(d.max_abs);
        out.not_finite += d.nan + d.inf;
        out.beyond += usize::from(!d.pass);
    }
    Ok(out)
}
