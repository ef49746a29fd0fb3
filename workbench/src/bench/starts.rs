//! First runs: how long they take, and what mixed precision costs in accuracy.

use super::record::{AgainstF32, CompileTimes};
use crate::error::Result;
use crate::executor::{Device, execute};
use crate::settings::Settings;
use compiler::agreement::{Tolerance, agree};
use compiler::dtype::DType;
use compiler::graph::Module;
use compiler::tensor::Tensor;
use std::time::Instant;

/// Compiles, opens a session and runs once: some drivers compile only then. Milliseconds of it all.
pub fn first_run(
    module: Module,
    settings: &Settings,
    device: &Device,
    inputs: &[Tensor],
) -> Result<(weft::Session, f64)> {
    let start = Instant::now();
    let executor = execute(module, settings, device, inputs)?.sized_for(inputs)?;
    settings.state.time("first run", || executor.run_in_order(inputs))?;
    Ok((executor, start.elapsed().as_secs_f64() * 1e3))
}

/// Milliseconds of the first run, and of compilation, session and first run once more in this process.
pub fn compile_times(
    cold: f64,
    module: Module,
    settings: &Settings,
    device: &Device,
    inputs: &[Tensor],
) -> Result<Option<CompileTimes>> {
    let warm = Some(first_run(module, &again(settings), device, inputs)?.1);
    Ok(Some(CompileTimes { cold, warm }))
}

/// The same settings for a run that is not told of.
fn again(settings: &Settings) -> Settings {
    Settings { state: Default::default(), ..settings.silent() }
}

/// The results in mixed precision against those in f32 on the same device.
///
/// # Errors
/// A failed run.
pub fn against_f32(module: &Module, settings: &Settings, device: &Device, inputs: &[Tensor]) -> Result<AgainstF32> {
    let run = |settings: &Settings| -> Result<Vec<Tensor>> {
        let session = execute(module.clone(), settings, device, inputs)?.sized_for(inputs)?;
        Ok(session.run_unchecked(inputs)?.0)
    };
    let own = run(&again(settings))?;
    let plain = run(&Settings { amp: "off".into(), keep_f32: vec![], ..again(settings) })?;
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
