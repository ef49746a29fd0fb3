//! The time of each kernel.

use super::record::{KernelTime, Run};
use super::repeated::Dispatches;
use super::request::Request;
use super::timeline::Recorded;
use crate::error::{Code, Error, Result};
use crate::progress::Progress;
use benches::statistics::Statistics;
use compiler::compile::{CompileOptions, Compiled};
use compiler::tensor::Tensor;
use compiler::trace::{Ceilings, CompileTrace, Contents, DispatchTime, Times};
use runtime_gpu::{GpuError, Ran, Resident, TimeSource};
use weft::PartOnProcessor;

/// Times each dispatch in a few runs.
pub fn dispatch_times(
    a: &Request,
    resident: &mut Resident<'_>,
    progress: &mut Progress,
) -> Result<Dispatches, GpuError> {
    let rounds = a.timing.runs.clamp(1, 5);
    let mut source = TimeSource::default();
    let mut times: Vec<Vec<f64>> = Vec::new();
    for round in 0..rounds {
        progress.report("kernels", round, rounds);
        let list;
        (source, list) = resident.time_dispatches()?;
        times.resize(list.len(), vec![]);
        for (t, (_, _, us)) in times.iter_mut().zip(list) {
            t.push(us);
        }
    }
    let counts = resident.count_dispatches()?;
    let summed = times.iter().zip(counts.iter().map(|&n| n as f64)).map(|(t, n)| {
        let s = Statistics::of(t);
        let max_us = t.iter().copied().fold(s.median, f64::max);
        DispatchTime { median_us: n * s.median, min_us: n * s.min, max_us: n * max_us }
    });
    Ok(Dispatches { source, times: summed.collect(), counts })
}

/// Median microseconds of each kernel, with its rates and the share of the device's ceiling that binds it.
pub fn per_kernel(c: &Compiled, all: &Dispatches, ceilings: Option<Ceilings>) -> Vec<KernelTime> {
    let mut rows: indexmap::IndexMap<usize, (u64, f64, u64, u64)> = indexmap::IndexMap::new();
    for ((d, t), n) in c.plan.dispatches().zip(&all.times).zip(&all.counts) {
        let r = rows.entry(d.kernel).or_default();
        r.0 += n;
        r.1 += t.median_us;
        r.2 += d.flops * n;
        r.3 += d.bytes * n;
    }
    let groups = |kernel: usize| {
        let own = c.plan.dispatches().filter(|d| d.kernel == kernel).map(|d| d.group);
        own.collect::<Vec<_>>()
    };
    let row = |(&id, &(calls, us_total, flops, bytes)): (&usize, &(u64, f64, u64, u64))| {
        let (name, groups) = (c.plan.kernels[id].name.to_string(), Some(groups(id)));
        KernelTime { id, name, groups, calls, us_total, ..KernelTime::default() }.rated(flops, bytes, ceilings)
    };
    rows.iter().map(row).collect()
}

/// The kernels of a network in parts.
#[derive(Default)]
pub struct PartTimes {
    source: TimeSource,
    kernels: usize,
    bytes: u64,
    per_kernel: Vec<KernelTime>,
    /// Of each dispatch, in the order of the parts.
    dispatches: Vec<DispatchTime>,
    /// The parts, if they were recorded.
    recorded: Vec<RecordedPart>,
    /// One run of each part, if a file of it is asked for.
    pub recorded_run: Recorded,
}

/// A part of a network that ran.
struct RecordedPart {
    name: String,
    trace: CompileTrace,
    /// Milliseconds of all runs, if the host computes it.
    host_ms: Option<f64>,
}

/// How parts are recorded.
pub struct Recording<'a> {
    /// Name of the model.
    pub model: &'a str,
    /// The options that they are compiled with.
    pub options: &'a CompileOptions,
}

impl PartTimes {
    /// Runs the network once, and times the kernels of each part on the operands that it gets.
    ///
    /// # Errors
    /// A failed run.
    pub fn of(
        a: &Request,
        executor: &weft::Session,
        inputs: &[Tensor],
        ceilings: Option<Ceilings>,
        record: Option<&Recording<'_>>,
        progress: &mut Progress,
    ) -> Result<PartTimes, weft::Error> {
        let mut out = PartTimes::default();
        executor.visit_parts(inputs, &mut |run| {
            let wanted = super::timeline::is_wanted(a);
            let on_processor;
            let (compiled, own, recorded) = match &run.ran {
                Ran::Plan(planned) => {
                    let Some(compiled) = &planned.compiled else { return Ok(()) };
                    let own = dispatch_times(a, &mut planned.session.resident(run.operands)?, progress)?;
                    let recorded = wanted.then(|| Recorded::on_device(&planned.session, compiled, run.operands));
                    (&**compiled, own, recorded.transpose()?)
                }
                Ran::Other(part) => {
                    on_processor = PartOnProcessor::of(*part, run.operands)?;
                    let Some(part) = &on_processor else { return Ok(()) };
                    let (session, compiled, c) = (part.session(), part.compiled(), &a.settings);
                    let own = super::native::dispatch_times(a, session, c, run.operands, progress)?;
                    let recorded = wanted.then(|| Recorded::on_processor(session, compiled, run.operands, c));
                    (compiled, own, recorded.transpose()?)
                }
                Ran::Host(module) => {
                    let ms = run.ms * run.times as f64;
                    out.recorded_run.append_host(run.name, ms);
                    out.recorded.extend(record.map(|_| RecordedPart {
                        name: run.name.to_string(),
                        trace: CompileTrace::of_host(module),
                        host_ms: Some(ms),
                    }));
                    return Ok(());
                }
            };
            let own = own.repeated(run.times);
            out.take(run.name, compiled, &own, ceilings);
            if let Some(recorded) = recorded {
                out.recorded_run.append(run.name, recorded);
            }
            if let Some(r) = record {
                let emitter = weft::emitter(&compiled.profile);
                let made = CompileTrace::new(r.model, compiled, r.options, emitter, Contents::Full);
                let mut trace = made.map_err(weft::Error::Input)?;
                trace.times = Some(Times { dispatches: own.times, ..Times::default() });
                trace.count_runs(&own.counts);
                out.recorded.push(RecordedPart { name: run.name.to_string(), trace, host_ms: None });
            }
            Ok(())
        })?;
        Ok(out)
    }

    fn take(&mut self, name: &str, compiled: &Compiled, own: &Dispatches, ceilings: Option<Ceilings>) {
        // The less exact one of two.
        if !own.times.is_empty() && (self.dispatches.is_empty() || own.source == TimeSource::HostClock) {
            self.source = own.source;
        }
        let part = |row| KernelTime { part: Some(name.to_string()), ..row };
        self.per_kernel.extend(per_kernel(compiled, own, ceilings).into_iter().map(part));
        self.kernels += compiled.plan.kernels.len();
        self.bytes += compiled.groups.iter().map(|g| g.bytes).sum::<u64>();
        self.dispatches.extend_from_slice(&own.times);
    }

    /// Milliseconds of all dispatches; `None` without any.
    pub fn device_ms(&self) -> Option<f64> {
        self.dispatches.iter().map(|t| t.median_us / 1e3).reduce(|a, b| a + b)
    }

    /// The trace of all parts, if they were recorded.
    ///
    /// # Errors
    /// Code 6 when a recording cannot be restored.
    pub fn trace(&mut self, model: &str) -> Result<Option<CompileTrace>> {
        if self.recorded.is_empty() {
            return Ok(None);
        }
        let on_host: Vec<Option<f64>> = self.recorded.iter().map(|r| r.host_ms).collect();
        let parts = self.recorded.drain(..).map(|r| (r.name, r.trace)).collect();
        let mut trace = CompileTrace::join(model, parts).map_err(|e| Error::new(Code::Bug, e.to_string()))?;
        trace.parts.iter_mut().zip(on_host).for_each(|(p, ms)| p.host_ms = ms);
        Ok(Some(trace))
    }

    /// Puts them into the result of a benchmark.
    pub fn put_into(&self, run: &mut Run) {
        run.time_source = Some(self.source);
        run.kernels = Some(self.kernels);
        run.dispatches = Some(self.dispatches.len());
        run.bytes = Some(self.bytes);
        run.per_kernel = Some(self.per_kernel.clone());
    }
}
