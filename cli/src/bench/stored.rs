//! `-o F.trace`: the compilation with what was measured of it.

use super::places::Place;
use crate::args::Common;
use crate::error::{CliError, CliResult, Code};
use crate::executor::profile_on;
use crate::parts::recorded;
use compiler::graph::Module;
use compiler::tensor::Tensor;
use compiler::trace::{CompileTrace, DispatchTime, DriverStats, RunSpans, Times};
use serde_json::Value;
use std::path::Path;

/// What was measured of a model, or is known of it without.
pub struct Measured {
    pub value: Value,
    /// None where nothing was timed.
    pub dispatches: Option<Vec<DispatchTime>>,
    /// How often a run executes each; empty where a trace of parts says so itself.
    pub counts: Vec<u64>,
    /// Of a network in parts, where `-o` asks for it.
    pub trace: Option<Box<CompileTrace>>,
    pub stats: Option<DriverStats>,
    /// One run, where a file of it is asked for.
    pub run: Option<RunSpans>,
}

impl Measured {
    /// The milliseconds at this path of its JSON.
    fn ms(&self, path: [&str; 2]) -> f64 {
        self.value[path[0]][path[1]].as_f64().unwrap_or(0.0)
    }
}

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
        trace.count_runs(&measured.counts);
        trace.times = Some(times(place, dispatches, measured));
    }
    trace.driver_stats.clone_from(&measured.stats);
    crate::trace::write(path, &trace, common)
}

fn times(place: &Place, dispatches: &[DispatchTime], measured: &Measured) -> Times {
    Times {
        device: place.device.label(),
        source: measured.value["time_source"].as_str().unwrap_or_default().to_string(),
        dispatches: dispatches.to_vec(),
        latency_ms: measured.ms(["latency_ms", "median"]),
        device_ms: measured.ms(["device_ms", "median"]),
        upload_ms: measured.ms(["split_ms", "upload"]),
        host_ms: measured.ms(["split_ms", "encode"]),
        readback_ms: measured.ms(["split_ms", "readback"]),
        run: measured.run.clone().filter(|r| !r.spans.is_empty()),
        ceilings: place.ceilings,
    }
}
