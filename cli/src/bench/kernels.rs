//! The time of each kernel.

use crate::args::BenchArgs;
use crate::compile::dispatches;
use crate::output::Progress;
use benches::statistics::Statistics;
use compiler::compile::Compiled;
use compiler::tensor::Tensor;
use compiler::trace::{Ceilings, DispatchTime};
use runtime_gpu::{GpuError, Resident};
use serde_json::{Value, json};

/// Times of each dispatch over a few timed runs, and what told them.
pub fn dispatch_times(
    a: &BenchArgs,
    resident: &mut Resident<'_>,
    progress: &mut Progress,
) -> Result<(Value, Vec<DispatchTime>), GpuError> {
    let rounds = a.runs.clamp(1, 5);
    let mut source = Value::Null;
    let mut times: Vec<Vec<f64>> = Vec::new();
    for round in 0..rounds {
        progress.report("kernels", round, rounds);
        let (s, list) = resident.time_dispatches()?;
        source = serde_json::to_value(s).unwrap_or_default();
        times.resize(list.len(), vec![]);
        for (t, (_, _, us)) in times.iter_mut().zip(list) {
            t.push(us);
        }
    }
    let summed = times.iter().map(|t| {
        let s = Statistics::of(t);
        let max_us = t.iter().copied().fold(s.median, f64::max);
        DispatchTime { median_us: s.median, min_us: s.min, max_us }
    });
    Ok((source, summed.collect()))
}

/// Median microseconds of each kernel, with its rates and the share of the device's ceiling that binds it.
pub fn per_kernel(c: &Compiled, times: &[DispatchTime], ceilings: Option<Ceilings>) -> Vec<Value> {
    let mut rows: indexmap::IndexMap<usize, (usize, f64, u64, u64)> = indexmap::IndexMap::new();
    for (d, t) in dispatches(c).zip(times) {
        let r = rows.entry(d.kernel).or_default();
        r.0 += 1;
        r.1 += t.median_us;
        r.2 += d.flops;
        r.3 += d.bytes;
    }
    let groups = |kernel: usize| {
        let own = dispatches(c).filter(|d| d.kernel == kernel).map(|d| d.group);
        own.collect::<Vec<_>>()
    };
    let rate = |r: &(usize, f64, u64, u64)| (r.2 as f64 / r.1.max(1e-3) / 1e3, r.3 as f64 / r.1.max(1e-3) / 1e3);
    rows.iter()
        .map(|(k, r)| {
            let (gflops, gbs) = rate(r);
            json!({ "id": k, "name": c.plan.kernels[*k].name, "groups": groups(*k), "calls": r.0,
                "us_median": r.1 / r.0 as f64, "us_total": r.1, "gflops": gflops, "gb_s": gbs,
                "roofline_fraction": ceilings.map(|c| c.fraction(gflops, gbs)) })
        })
        .collect()
}

/// The kernels of a network in parts.
#[derive(Default)]
pub struct PartTimes {
    source: Value,
    kernels: usize,
    bytes: u64,
    per_kernel: Vec<Value>,
    /// Of each dispatch of the part that is known before a run, for a trace.
    pub before: Vec<DispatchTime>,
    all: usize,
}

impl PartTimes {
    /// Runs the network once, and times the kernels of each part on the operands that it gets.
    ///
    /// # Errors
    /// A failed run.
    pub fn of(
        a: &BenchArgs,
        executor: &weft::Session,
        inputs: &[Tensor],
        ceilings: Option<Ceilings>,
        progress: &mut Progress,
    ) -> Result<PartTimes, weft::Error> {
        let mut out = PartTimes { source: "host-clock".into(), ..PartTimes::default() };
        executor.visit_parts(inputs, &mut |name, planned, operands| {
            let Some(compiled) = &planned.compiled else { return Ok(()) };
            let (source, times) = dispatch_times(a, &mut planned.session.resident(operands)?, progress)?;
            let rows = per_kernel(compiled, &times, ceilings).into_iter().map(|mut row| {
                row["part"] = name.into();
                row
            });
            out.per_kernel.extend(rows);
            out.kernels += compiled.plan.kernels.len();
            out.bytes += compiled.groups.iter().map(|g| g.bytes).sum::<u64>();
            out.all += times.len();
            // The less exact one of two.
            if !times.is_empty() && (out.all == times.len() || source == "host-clock") {
                out.source = source;
            }
            if name == "before" {
                out.before = times;
            }
            Ok(())
        })?;
        Ok(out)
    }

    /// Puts them into the result of a benchmark.
    pub fn put_into(&self, v: &mut Value) {
        v["time_source"] = self.source.clone();
        v["kernels"] = self.kernels.into();
        v["dispatches"] = self.all.into();
        v["bytes"] = self.bytes.into();
        v["per_kernel"] = self.per_kernel.clone().into();
    }
}
