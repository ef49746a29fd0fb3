//! One run on one axis: host, copies and kernels, in microseconds from the beginning of the run. `-o F.trace` stores
//! it; `--timeline F.json` writes it as Chrome's trace format has it, for Perfetto (<https://ui.perfetto.dev>) or
//! `chrome://tracing`.

use super::executor_times::NodeTime;
use super::request::Request;
use crate::error::{Code, Error, Result};
use crate::settings::Settings;
use compiler::compile::Compiled;
use compiler::plan::Dispatch;
use compiler::tensor::Tensor;
use compiler::trace::{Lane, RunSpans, Span};
use runtime_cpu::{CpuError, Work};
use runtime_gpu::TimeSource;
use serde_json::{Value, json};

/// One run, and what is known of its dispatches.
#[derive(Default)]
pub struct Recorded {
    pub run: RunSpans,
    /// Of each dispatch: group, kernel, layers, FLOPs, bytes.
    dispatches: Vec<Value>,
}

/// Whether a run is recorded.
pub fn is_wanted(a: &Request) -> bool {
    a.timeline || a.trace
}

impl Recorded {
    /// A run of a session on a device.
    ///
    /// # Errors
    /// An error of the run.
    pub fn on_device(
        session: &runtime_gpu::Session,
        c: &Compiled,
        inputs: &[Tensor],
    ) -> Result<Recorded, runtime_gpu::GpuError> {
        let t = session.timeline(inputs)?;
        let host = t.host.iter().map(|s| match s.name {
            "upload" => span(Lane::Upload, s.name, s.start, s.end),
            "readback" => span(Lane::Readback, s.name, s.start, s.end),
            name => Span { waits: name == "wait", ..span(Lane::Host, name, s.start, s.end) },
        });
        let queue =
            |s: &runtime_gpu::Span| Span { waits: s.name == "queue", ..span(Lane::Device, s.name, s.start, s.end) };
        let kernels = c.plan.dispatches().zip(&t.kernels).enumerate();
        let kernels = kernels.map(|(i, (d, &(_, _, start, end)))| kernel(c, i, d, start, end));
        let run = RunSpans {
            spans: host.chain(t.queue.iter().map(queue)).chain(kernels).collect(),
            kernel_times: t.source.name().into(),
            kernels_after: t.source == TimeSource::HostClock,
            uncertainty_us: t.uncertainty_us,
        };
        Ok(Recorded { run, dispatches: about(c) })
    }

    /// A run on the processor.
    ///
    /// # Errors
    /// A failed step on tensors.
    pub fn on_processor(
        session: &runtime_cpu::Session,
        c: &Compiled,
        inputs: &[Tensor],
        settings: &Settings,
    ) -> Result<Recorded, CpuError> {
        let dispatches: Vec<_> = session.plan().dispatches().collect();
        let spans = session.timeline(inputs, settings.functions.on_tensors())?;
        let one = |s: &runtime_cpu::Span| match &s.work {
            Work::Inputs => span(Lane::Upload, "upload", s.start, s.end),
            Work::Outputs => span(Lane::Readback, "readback", s.start, s.end),
            Work::Host(name) => span(Lane::Host, name, s.start, s.end),
            Work::Kernel(i) => kernel(c, *i, dispatches[*i], s.start, s.end),
        };
        let run = RunSpans { spans: spans.iter().map(one).collect(), ..by_the_host() };
        Ok(Recorded { run, dispatches: about(c) })
    }

    /// A run of the interpreter.
    pub fn of_nodes(nodes: &[NodeTime]) -> Recorded {
        let one =
            |(i, n): (usize, &NodeTime)| Span { dispatch: Some(i), ..span(Lane::Device, &n.name, n.start, n.end) };
        let spans = nodes.iter().enumerate().map(one).collect();
        let dispatches = nodes.iter().map(|n| json!({ "op": n.op })).collect();
        Recorded { run: RunSpans { spans, ..by_the_host() }, dispatches }
    }

    /// Adds the part of a network that ran next.
    pub fn append(&mut self, part: &str, next: Recorded) {
        self.run.append(part, next.run, self.dispatches.len());
        self.dispatches.extend(next.dispatches);
    }

    /// Adds a part that the host computed.
    pub fn append_host(&mut self, part: &str, ms: f64) {
        let spans = vec![span(Lane::Host, "on the host", 0.0, ms * 1e3)];
        self.run.append(part, RunSpans { spans, ..by_the_host() }, self.dispatches.len());
    }

    /// As Chrome's trace format has it, where that is asked for. `device` is what the second process is called.
    ///
    /// # Errors
    /// Nothing was recorded.
    pub fn timeline(&self, a: &Request, device: &str) -> Result<Option<Value>> {
        if !a.timeline {
            return Ok(None);
        }
        if self.run.spans.is_empty() {
            return Err(Error::new(
                Code::Device,
                "--timeline: no part of this model ran on a device or the interpreter",
            ));
        }
        let about = |i: usize| self.dispatches.get(i).cloned().unwrap_or_default();
        Ok(Some(graphview::timeline::events(&self.run, device, &about)))
    }
}

/// No spans yet, and the host's clock.
fn by_the_host() -> RunSpans {
    RunSpans { kernel_times: TimeSource::HostClock.name().into(), ..RunSpans::default() }
}

fn span(lane: Lane, name: &str, start_us: f64, end_us: f64) -> Span {
    Span { lane, name: name.into(), dispatch: None, waits: false, start_us, end_us }
}

fn kernel(c: &Compiled, place: usize, d: &Dispatch, start: f64, end: f64) -> Span {
    Span { dispatch: Some(place), ..span(Lane::Device, &c.plan.kernels[d.kernel].name, start, end) }
}

fn about(c: &Compiled) -> Vec<Value> {
    let one = |d: &Dispatch| {
        let layers = &c.groups[d.group].origins;
        json!({ "group": d.group, "kernel": d.kernel, "layers": layers, "flops": d.flops, "bytes": d.bytes })
    };
    c.plan.dispatches().map(one).collect()
}
