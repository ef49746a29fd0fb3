//! `-o F.trace`: the compilation with what was measured of it.

use super::places::Place;
use super::{Measured, number};
use crate::args::Common;
use crate::error::{CliError, CliResult, Code};
use crate::executor::profile_on;
use crate::parts::recorded;
use compiler::graph::Module;
use compiler::tensor::Tensor;
use compiler::trace::{DispatchTime, Times};
use std::path::Path;

/// Writes the trace of a model with its times. A model in parts brings its trace; of others it is taken now.
///
/// # Errors
/// A trace that has not the dispatches that were timed; a file that cannot be written.
pub fn write(
    path: &Path,
    place: &Place,
    common: &Common,
    (model, module): (&str, Module),
    inputs: &[Tensor],
    measured: &Measured,
) -> CliResult<()> {
    let mut trace = match &measured.trace {
        Some(parts) => (**parts).clone(),
        None => recorded(model, module, common, &profile_on(common, &place.device)?, inputs)?,
    };
    if let Some(dispatches) = &measured.dispatches {
        if trace.calls().count() != dispatches.len() {
            let (timed, stored) = (dispatches.len(), trace.calls().count());
            let why = format!("{timed} dispatches were timed, {stored} are in the trace");
            return Err(CliError::new(Code::Check, why).help("a model with host steps alone has no times to store"));
        }
        trace.times = Some(times(place, dispatches, measured));
    }
    trace.driver_stats.clone_from(&measured.stats);
    crate::trace::write(path, &trace, common)
}

fn times(place: &Place, dispatches: &[DispatchTime], measured: &Measured) -> Times {
    let v = &measured.value;
    Times {
        device: place.device.label(),
        source: v["time_source"].as_str().unwrap_or_default().to_string(),
        dispatches: dispatches.to_vec(),
        latency_ms: number(v, &["latency_ms", "median"]),
        device_ms: number(v, &["device_ms", "median"]),
        upload_ms: number(v, &["split_ms", "upload"]),
        host_ms: number(v, &["split_ms", "encode"]),
        readback_ms: number(v, &["split_ms", "readback"]),
        run: measured.run.clone().filter(|r| !r.spans.is_empty()),
        ceilings: place.ceilings,
    }
}
