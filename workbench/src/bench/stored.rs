//! `-o F.trace`: the compilation with what was measured of it.

use super::places::Place;
use super::record::BenchRecord;
use super::timeline::Shown;
use crate::error::{Code, Error, Result};
use crate::executor::profile_on;
use crate::parts::recorded;
use crate::settings::Settings;
use compiler::graph::Module;
use compiler::tensor::Tensor;
use compiler::trace::{CompileTrace, DispatchTime, DriverStats, RunSpans, Times};
use runtime_gpu::TimeSource;
use serde_json::Value;

/// The measurements of a model, or its record without any.
#[derive(Default)]
pub struct Measured {
    /// Times, and the statistics of the driver.
    pub record: BenchRecord,
    /// Of the first run.
    pub results: Vec<Tensor>,
    /// None where nothing was timed.
    pub dispatches: Option<Vec<DispatchTime>>,
    /// How often a run executes each; empty where a trace of parts says so itself.
    pub counts: Vec<u64>,
    /// Of a network in parts, where `-o` asks for it.
    pub trace: Option<Box<CompileTrace>>,
    pub stats: Option<DriverStats>,
    /// One run, where a file of it is asked for.
    pub run: Option<RunSpans>,
    /// The same as Chrome's trace format has it.
    pub timeline: Option<Value>,
}

impl Measured {
    /// With the run that is shown.
    pub fn of(shown: Shown) -> Measured {
        let (dispatches, counts, run) = (Some(shown.times), shown.counts, Some(shown.run));
        Measured { dispatches, counts, run, ..Measured::default() }
    }
}

/// The trace of a model with its times. A model in parts brings its trace; of others it is taken now.
///
/// # Errors
/// A trace that has not the dispatches that were timed.
pub fn trace(
    place: &Place,
    settings: &Settings,
    (model, module): (&str, Module),
    inputs: &[Tensor],
    measured: &Measured,
) -> Result<CompileTrace> {
    let mut trace = match &measured.trace {
        Some(parts) => (**parts).clone(),
        None => recorded(model, module, settings, &profile_on(settings, &place.device)?, inputs)?,
    };
    if let Some(dispatches) = &measured.dispatches {
        if trace.calls().count() != dispatches.len() {
            let (timed, stored) = (dispatches.len(), trace.calls().count());
            let why = format!("{timed} dispatches were timed, {stored} are in the trace");
            return Err(Error::new(Code::Check, why).help("a model with host steps alone has no times to store"));
        }
        trace.count_runs(&measured.counts);
        trace.times = Some(times(place, dispatches, measured));
    }
    trace.driver_stats.clone_from(&measured.stats);
    Ok(trace)
}

fn times(place: &Place, dispatches: &[DispatchTime], measured: &Measured) -> Times {
    let run = &measured.record.run;
    Times {
        device: place.device.label(),
        source: run.time_source.map_or("", TimeSource::name).to_string(),
        dispatches: dispatches.to_vec(),
        latency_ms: run.latency(),
        plus_minus_ms: run.latency_ms.as_ref().and_then(|s| s.of.plus_minus),
        device_ms: run.device(),
        run: measured.run.clone().filter(|r| !r.spans.is_empty()),
        ceilings: place.ceilings,
    }
}
