//! The time of each kernel.

use super::record::{KernelTime, Run, SpentRecord, Split};
use super::timeline::{Known, Shown};
use crate::error::{Code, Error, Result};
use compiler::compile::{CompileOptions, Compiled};
use compiler::tensor::Tensor;
use compiler::trace::{Ceilings, CompileTrace, Contents, DispatchTime, Times};
use graphview::reasons::General;
use runtime_gpu::Ran;
use weft::PartOnProcessor;

/// The kernels of the run that is shown, with their rates and the share of the device's ceiling that binds them.
fn per_kernel(known: &[Known], shown: &Shown, ceilings: Option<Ceilings>) -> Vec<KernelTime> {
    let mut measured = shown.times.iter().zip(&shown.counts);
    known.iter().flat_map(|k| of_part(k, &mut measured, ceilings)).collect()
}

fn of_part<'s>(
    known: &Known,
    measured: &mut impl Iterator<Item = (&'s DispatchTime, &'s u64)>,
    ceilings: Option<Ceilings>,
) -> Vec<KernelTime> {
    let part = (!known.part.is_empty()).then(|| known.part.clone());
    let mut rows: indexmap::IndexMap<usize, (KernelTime, u64, u64)> = indexmap::IndexMap::new();
    for (d, (t, &n)) in known.dispatches.iter().zip(measured) {
        let (row, flops, bytes) = rows.entry(d.kernel).or_insert_with(|| {
            let (name, groups, part) = (d.name.clone(), Some(vec![]), part.clone());
            (KernelTime { id: d.kernel, name, groups, part, ..KernelTime::default() }, 0, 0)
        });
        row.calls += n;
        row.us_total += t.us;
        row.groups.get_or_insert_default().push(d.group);
        *flops += d.flops.saturating_mul(n);
        *bytes += d.bytes.saturating_mul(n);
    }
    rows.into_values().map(|(row, flops, bytes)| row.rated(flops, bytes, ceilings)).collect()
}

/// The kernels that take much of the run by a rule for any unit.
fn general(known: &[Known], kernels: &[KernelTime], run_ms: f64) -> Vec<General> {
    let one = |k: &KernelTime| {
        let of = known.iter().find(|of| k.part.as_deref().unwrap_or("") == of.part)?;
        let (rule, declined) = of.rules.get(*k.groups.as_ref()?.first()?)?;
        let declined: Vec<&str> = declined.iter().map(String::as_str).collect();
        let loss = k.roofline_fraction.filter(|f| *f > 0.0).map(f64::recip);
        General::of(&k.name, rule, k.us_total / 1e3 / run_ms.max(1e-9), loss, &declined)
    };
    kernels.iter().filter_map(one).collect()
}

/// Puts where the time of a run goes into a result.
pub fn put_spent(run: &mut Run, shown: &Shown, known: &[Known], ceilings: Option<Ceilings>) {
    let kernels = per_kernel(known, shown, ceilings);
    run.general = general(known, &kernels, shown.run.ms);
    run.per_kernel = Some(kernels);
    run.time_source = Some(shown.source);
    run.split_ms = Some(Split::of(&shown.run));
    run.spent = Some(SpentRecord { run_ms: shown.run.ms, rows: shown.run.rows.clone() });
}

/// The parts of a network, as one run of it finds them.
#[derive(Default)]
pub struct Parts {
    pub known: Vec<Known>,
    kernels: usize,
    bytes: u64,
    /// Their traces, if they were recorded.
    recorded: Vec<(String, CompileTrace)>,
}

/// How parts are recorded.
pub struct Recording<'a> {
    /// Name of the model.
    pub model: &'a str,
    /// The options that they are compiled with.
    pub options: &'a CompileOptions,
}

impl Parts {
    /// Runs the network once, and looks at each part.
    ///
    /// # Errors
    /// A failed run.
    pub fn of(
        executor: &weft::Session,
        inputs: &[Tensor],
        record: Option<&Recording<'_>>,
    ) -> Result<Parts, weft::Error> {
        let mut out = Parts::default();
        executor.visit_parts(inputs, &mut |run| {
            let on_processor;
            let compiled: &Compiled = match &run.ran {
                Ran::Plan(planned) => match &planned.compiled {
                    Some(compiled) => compiled,
                    None => return Ok(()),
                },
                Ran::Other(part) => {
                    on_processor = PartOnProcessor::of(*part, run.operands)?;
                    match &on_processor {
                        Some(part) => part.compiled(),
                        None => return Ok(()),
                    }
                }
                Ran::Host(module) => {
                    out.recorded.extend(record.map(|_| (run.name.to_string(), CompileTrace::of_host(module))));
                    return Ok(());
                }
            };
            out.known.push(Known::of(run.name, compiled));
            out.kernels += compiled.plan.kernels.len();
            out.bytes += compiled.groups.iter().map(|g| g.bytes).sum::<u64>();
            if let Some(r) = record {
                let emitter = weft::emitter(&compiled.profile);
                let made = CompileTrace::new(r.model, compiled, r.options, emitter, Contents::Full);
                let mut trace = made.map_err(weft::Error::Input)?;
                // Joining changes the order of dispatches: their places come back as times.
                let first = out.known[..out.known.len() - 1].iter().map(|k| k.dispatches.len()).sum::<usize>();
                let place = |i: usize| DispatchTime { us: (first + i) as f64, ..DispatchTime::default() };
                let dispatches = (0..trace.calls().count()).map(place).collect();
                trace.times = Some(Times { dispatches, ..Times::default() });
                out.recorded.push((run.name.to_string(), trace));
            }
            Ok(())
        })?;
        Ok(out)
    }

    /// The trace of all parts, if they were recorded. `shown` is the run of which the host's parts have their times;
    /// it gets the numbers that the trace has of dispatches and groups.
    ///
    /// # Errors
    /// Code 6 when a recording cannot be restored.
    pub fn trace(&mut self, model: &str, shown: &mut Shown) -> Result<Option<CompileTrace>> {
        if self.recorded.is_empty() {
            return Ok(None);
        }
        let parts = self.recorded.drain(..).collect();
        let mut trace = CompileTrace::join(model, parts).map_err(|e| Error::new(Code::Bug, e.to_string()))?;
        for part in &mut trace.parts {
            if self.known.iter().any(|k| k.part == part.name) {
                continue;
            }
            let start = format!("{}: ", part.name);
            let own = shown.run.rows.iter().filter(|r| r.name.starts_with(&start));
            part.host_ms = Some(own.fold(0.0, |sum, r| sum + r.ms));
        }
        let joined = trace.times.take().map_or(vec![], |t| t.dispatches);
        let order: Vec<usize> = joined.iter().map(|t| t.us as usize).collect();
        let first = |k: &Known| trace.parts.iter().find(|p| p.name == k.part).map_or(0, |p| p.group);
        let groups: Vec<usize> =
            self.known.iter().flat_map(|k| (0..k.groups()).map(move |g| (k, g))).map(|(k, g)| first(k) + g).collect();
        shown.renumber(&order, &groups);
        Ok(Some(trace))
    }

    /// Puts what is known of them into the result of a benchmark.
    pub fn put_into(&self, run: &mut Run) {
        run.kernels = Some(self.kernels);
        run.dispatches = Some(self.known.iter().map(|k| k.dispatches.len()).sum());
        run.bytes = Some(self.bytes);
    }
}
