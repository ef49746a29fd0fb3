//! Times on the processor.

use super::record::{Run, Sampled, Split};
use super::repeated::{Dispatches, batch, repeat};
use super::request::Request;
use crate::error::{Code, Error, Result};
use crate::host_calls::{EdgeTime, HostFunctionTime};
use crate::progress::Progress;
use crate::settings::Settings;
use benches::statistics::Statistics;
use compiler::compile::Compiled;
use compiler::plan::{HostStep, Step};
use compiler::tensor::Tensor;
use compiler::trace::{DispatchTime, Lane, RunSpans};
use runtime_cpu::CpuError;
use runtime_gpu::TimeSource;
use std::time::Duration;

/// The result of a benchmark on the processor, but for its table of kernels, and the times of its dispatches. How long
/// inputs, results and steps on tensors take is that of one recorded run.
///
/// # Errors
/// A failed host step.
pub fn times(
    a: &Request,
    executor: &weft::Session,
    settings: &Settings,
    (inputs, limit): (&[Tensor], Option<Duration>),
    recorded: &RunSpans,
    progress: &mut Progress,
) -> Result<(Run, Dispatches)> {
    let found = executor.on_processor().zip(executor.compilation());
    let (session, compiled) = found.ok_or_else(|| Error::new(Code::Bug, "a session without its compilation"))?;
    let run = || Ok(executor.run_in_order(inputs).map(|_| 0.0)?);
    let latency = repeat(a, limit, ["warm-up", "runs"], progress, run)?.0;
    let dispatches = dispatch_times(a, session, settings, inputs, progress)?;
    let latency = Sampled::of(latency);
    // From 0.0: the sum of nothing is -0.0.
    let kernels = dispatches.times.iter().fold(0.0, |sum, t| sum + t.median_us / 1e3);
    let [upload, host, readback] = [Lane::Upload, Lane::Host, Lane::Readback].map(|l| recorded.busy_ms(l));
    let median = latency.of.median;
    let rest = Some(median - kernels - upload - host - readback);
    let run = Run {
        time_source: Some(dispatches.source),
        dispatches: Some(dispatches.times.len()),
        latency_ms: Some(latency),
        // The processor is the device, so steps on tensors are its work too.
        device_ms: Some(Sampled::sum(kernels + host)),
        split_ms: Some(Split { upload, encode: host, gpu: kernels, readback, rest }),
        throughput_per_s: Some(1e3 / median * batch(inputs) as f64),
        in_flight: Some(1),
        host_functions: Some(calls(compiled, recorded)),
        ..Run::of(compiled)
    };
    Ok((run, dispatches))
}

/// The calls of host functions and external targets, with the times of the recorded run. No tensor is moved to them:
/// the buffers of kernels are in the host's memory.
fn calls(compiled: &Compiled, recorded: &RunSpans) -> Vec<HostFunctionTime> {
    let steps = compiled.plan.all_steps();
    let called = steps.iter().filter_map(|s| match s {
        Step::Host(h) if h.call.is_some() => Some(h),
        _ => None,
    });
    let row = |h: &HostStep| {
        let g = &compiled.groups[h.group];
        let spans = recorded.spans.iter().filter(|s| s.lane == Lane::Host && s.name == h.name.as_str());
        let us: f64 = spans.map(|s| s.end_us - s.start_us).sum();
        let edge = |operand: bool, word: &str, i: usize| EdgeTime {
            tensor: format!("{word} {i}"),
            operand,
            bytes: 0,
            us_median: 0.0,
        };
        let operands = (0..h.inputs.len()).map(|i| edge(true, "operand", i));
        HostFunctionTime {
            function: g.host_function.map(|f| f.to_string()),
            name: g.layer.to_string(),
            group: h.group,
            on_device: false,
            bytes: g.bytes,
            us_median: us,
            edges: operands.chain((0..h.outputs.len()).map(|i| edge(false, "result", i))).collect(),
        }
    };
    called.map(row).collect()
}

/// Times each dispatch in a few runs.
///
/// # Errors
/// A failed host step.
pub fn dispatch_times(
    a: &Request,
    session: &runtime_cpu::Session,
    settings: &Settings,
    inputs: &[Tensor],
    progress: &mut Progress,
) -> Result<Dispatches, CpuError> {
    let rounds = a.timing.runs.clamp(1, 5);
    let mut times: Vec<Vec<f64>> = Vec::new();
    let mut counts = Vec::new();
    for round in 0..rounds {
        progress.report("kernels", round, rounds);
        let (_, list) = session.run_measured(inputs, settings.functions.on_tensors())?;
        times.resize(list.len(), vec![]);
        times.iter_mut().zip(&list).for_each(|(t, d)| t.push(d.ns / 1e3));
        counts = list.iter().map(|d| d.calls).collect();
    }
    let summed = times.iter().map(|t| {
        let s = Statistics::of(t);
        DispatchTime { median_us: s.median, min_us: s.min, max_us: t.iter().copied().fold(s.median, f64::max) }
    });
    Ok(Dispatches { source: TimeSource::HostClock, times: summed.collect(), counts })
}
