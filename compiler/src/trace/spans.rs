//! One run of a compiled model: what the host, the copies and the device did when, on one axis.

use serde::{Deserialize, Serialize};

/// Where a part of a run takes place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Lane {
    /// The host: encoding, submitting, waiting, steps on tensors.
    Host,
    /// Inputs on their way to the device.
    Upload,
    /// The device: kernels, and what its queue holds.
    Device,
    /// Results on their way back.
    Readback,
}

impl Lane {
    /// Every lane with its name, in the order in which they are drawn.
    pub const ALL: [(Lane, &'static str); 4] =
        [(Lane::Host, "host"), (Lane::Upload, "upload"), (Lane::Device, "device"), (Lane::Readback, "readback")];
    /// Its name.
    pub fn name(self) -> &'static str {
        Lane::ALL.iter().find(|l| l.0 == self).map_or("", |l| l.1)
    }
}

/// A part of a run, in microseconds from its beginning.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Span {
    /// Where it took place.
    pub lane: Lane,
    /// What it was: `upload`, `wait`, the name of a kernel or of a host step.
    pub name: String,
    /// The dispatch, by its place among the calls of the plan; `None` for everything else.
    pub dispatch: Option<usize>,
    /// Nothing is done in it: the host waits for the device, or commands wait in the device's queue.
    pub waits: bool,
    /// Its beginning.
    pub start_us: f64,
    /// Its end.
    pub end_us: f64,
}

/// One run on one axis.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunSpans {
    /// Its parts. Those of a lane do not overlap.
    pub spans: Vec<Span>,
    /// The clock that told when kernels ran: `gpu-timestamps`, or `host-clock`.
    pub kernel_times: String,
    /// Kernels were run one by one after the run: inside it the device does not tell them apart.
    pub kernels_after: bool,
    /// How far the device's spans may be off on the axis of the host, in microseconds.
    pub uncertainty_us: f64,
}

impl RunSpans {
    /// Milliseconds of a lane in which something is done.
    pub fn busy_ms(&self, lane: Lane) -> f64 {
        let own = self.spans.iter().filter(|s| s.lane == lane && !s.waits);
        own.map(|s| s.end_us - s.start_us).sum::<f64>() / 1e3
    }
    /// The end of the last span, in microseconds.
    pub fn end_us(&self) -> f64 {
        self.spans.iter().map(|s| s.end_us).fold(0.0, f64::max)
    }
    /// Adds what ran next: a part of a network with this name, which has the dispatches from `first` on.
    pub fn append(&mut self, part: &str, next: RunSpans, first: usize) {
        let from = self.end_us();
        self.spans.extend(next.spans.into_iter().map(|s| Span {
            name: if s.dispatch.is_some() { s.name } else { format!("{part}: {}", s.name) },
            dispatch: s.dispatch.map(|d| d + first),
            start_us: s.start_us + from,
            end_us: s.end_us + from,
            ..s
        }));
        self.kernels_after |= next.kernels_after;
        self.uncertainty_us = self.uncertainty_us.max(next.uncertainty_us);
        if self.kernel_times != "host-clock" {
            self.kernel_times = next.kernel_times;
        }
    }
}
