//! Measurements in a trace: times of dispatches on a device, errors of nodes against a reference.

use super::{CompileTrace, RunSpans};
use serde::{Deserialize, Serialize};

/// Times of a compiled model on a device.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Times {
    /// Name of the device, its backend and its driver.
    pub device: String,
    /// The clock: `gpu-timestamps`, or `host-clock`.
    pub source: String,
    /// Each dispatch, in the plan's order.
    pub dispatches: Vec<DispatchTime>,
    /// Milliseconds of a run with inputs sent and results read back: the median.
    pub latency_ms: f64,
    /// Milliseconds of a run with inputs and results on the device: the median.
    pub device_ms: f64,
    /// Milliseconds of a run in which inputs go to the device.
    pub upload_ms: f64,
    /// Milliseconds of a run in which the host encodes and submits, or computes steps on tensors.
    pub host_ms: f64,
    /// Milliseconds of a run in which results come back.
    pub readback_ms: f64,
    /// One run on one axis, if it was recorded.
    pub run: Option<RunSpans>,
    /// The measured peak rates of the device, if available.
    pub ceilings: Option<Ceilings>,
}

/// Peak rates of a device, measured by kernels of Weft.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Ceilings {
    /// Gigabytes read and written a second by a copy.
    pub copy_gb_s: f64,
    /// Floating-point operations in f32 by fused multiply-adds, in 10^9 a second.
    pub fma_gflops: f64,
    /// The same by matrix units: what a large product of f16 reaches; none without them. Outside of them kernels
    /// compute in f32, so that f16 has no rate of its own.
    pub matrix_gflops: Option<f64>,
    /// Gigabytes a second that are read from workgroup memory by threads that read neighbouring words.
    #[serde(default)]
    pub workgroup_gb_s: Option<f64>,
    /// The same by threads that read words of the same bank.
    #[serde(default)]
    pub conflicting_gb_s: Option<f64>,
    /// Gigabytes a second that are read from what the last-level cache holds.
    #[serde(default)]
    pub cache_gb_s: Option<f64>,
    /// Rate of subgroup reductions: reduced values (one per lane) in 10^9 a second; `None` without subgroup
    /// operations.
    #[serde(default)]
    pub subgroup_gops: Option<f64>,
    /// Microseconds of a dispatch that does next to nothing and depends on the one before.
    #[serde(default)]
    pub launch_us: Option<f64>,
}

impl Ceilings {
    /// The share of the ceiling that binds a kernel with these rates: the larger of its shares of both, as in the
    /// roofline model (Williams, Waterman, Patterson, 2009).
    pub fn fraction(&self, gflops: f64, gb_s: f64) -> f64 {
        (gflops / self.fma_gflops).max(gb_s / self.copy_gb_s)
    }
}

/// The time of a dispatch over several runs, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DispatchTime {
    /// Median.
    pub median_us: f64,
    /// Shortest.
    pub min_us: f64,
    /// Longest.
    pub max_us: f64,
}

impl DispatchTime {
    /// Both, one after the other.
    pub fn plus(self, other: DispatchTime) -> DispatchTime {
        DispatchTime {
            median_us: self.median_us + other.median_us,
            min_us: self.min_us + other.min_us,
            max_us: self.max_us + other.max_us,
        }
    }
    /// True when every run of one took longer than every run of the other.
    pub fn differs(self, other: DispatchTime) -> bool {
        self.min_us > other.max_us || other.min_us > self.max_us
    }
}

/// Errors of a compiled model against a reference.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Errors {
    /// The device that computed.
    pub device: String,
    /// The reference of the comparison.
    pub against: String,
    /// Errors include those of earlier nodes.
    pub cumulative: bool,
    /// The largest `rel_l2` that counts as agreement.
    pub tolerance: f64,
    /// Source nodes in execution order.
    pub nodes: Vec<NodeError>,
    /// Results of the model.
    pub outputs: Vec<NodeError>,
}

/// How one tensor differs from the reference.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NodeError {
    /// The node, or the result of the model.
    pub name: String,
    /// Largest absolute difference.
    #[schemars(with = "Option<f64>")]
    pub max_abs: f64,
    /// Norm of the difference relative to that of the reference.
    #[schemars(with = "Option<f64>")]
    pub rel_l2: f64,
    /// Largest magnitude of the reference: beyond 65504 f16 has no numbers.
    #[schemars(with = "Option<f64>")]
    pub max_magnitude: f64,
    /// Within the tolerance.
    pub pass: bool,
    /// Like `rel_l2`, but with the errors of the nodes before it. `None` if it was not measured besides.
    pub accumulated: Option<f64>,
}

/// What a share of a run's time is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spent {
    /// A dispatch, by its place among the calls of the plan.
    Dispatch(usize),
    /// A part of the network that the host computes, by its index.
    Host(usize),
    /// Inputs on their way to the device.
    Upload,
    /// The host's work: encoding and submitting, or steps on tensors.
    Work,
    /// Results on their way back.
    Readback,
    /// Everything else: waits, and of a network in parts also uploads and readbacks. Negative if what was timed one by
    /// one takes longer than a run of it all.
    Rest,
}

impl CompileTrace {
    /// Where the time of a run goes, in milliseconds; the sum is [`Times::latency_ms`]. Empty if nothing was measured.
    pub fn time_spent(&self) -> Vec<(Spent, f64)> {
        let Some(times) = &self.times else { return vec![] };
        let dispatches = times.dispatches.iter().enumerate().map(|(i, t)| (Spent::Dispatch(i), t.median_us / 1e3));
        let host = self.parts.iter().enumerate().filter_map(|(i, p)| Some((Spent::Host(i), p.host_ms?)));
        let moved =
            [(Spent::Upload, times.upload_ms), (Spent::Work, times.host_ms), (Spent::Readback, times.readback_ms)];
        let mut rows: Vec<(Spent, f64)> = dispatches.chain(host).collect();
        rows.extend(moved.into_iter().filter(|m| m.1 > 0.0));
        let sum: f64 = rows.iter().map(|r| r.1).sum();
        rows.push((Spent::Rest, times.latency_ms - sum));
        rows
    }
    /// The name of a share of the time that is no dispatch.
    pub fn spent_name(&self, spent: Spent, ms: f64) -> String {
        match spent {
            Spent::Dispatch(i) => self.calls().nth(i).map_or(String::new(), |c| self.groups[c.group].label.clone()),
            Spent::Host(i) => format!("part {} on the host", self.parts[i].name),
            Spent::Upload => "upload of inputs".into(),
            Spent::Work => "host: encoding, submitting, steps on tensors".into(),
            Spent::Readback => "readback of results".into(),
            Spent::Rest if ms < 0.0 => "less than the sum: dispatches were timed one by one, in other runs".into(),
            Spent::Rest if self.parts.is_empty() => "waits, copies on the device".into(),
            Spent::Rest => "host steps, waits, uploads, readbacks".into(),
        }
    }
    /// The time of a group: of all its dispatches. `None` where nothing was measured, or nothing runs on the device.
    pub fn time_of_group(&self, group: usize) -> Option<DispatchTime> {
        self.sum_times(|c| c.group == group)
    }
    /// The time of a kernel: of all its dispatches.
    pub fn time_of_kernel(&self, kernel: usize) -> Option<DispatchTime> {
        self.sum_times(|c| c.kernel == kernel)
    }
    fn sum_times(&self, wanted: impl Fn(&super::Call) -> bool) -> Option<DispatchTime> {
        let times = self.times.as_ref()?;
        let own = self.calls().zip(&times.dispatches).filter(|(c, _)| wanted(c)).map(|(_, t)| *t);
        own.reduce(DispatchTime::plus)
    }
    /// The largest error among the source nodes of a group.
    pub fn error_of_group(&self, group: usize) -> Option<&NodeError> {
        let origins = &self.groups[group].origins;
        let nodes = self.errors.as_ref()?.nodes.iter().filter(|n| origins.contains(&n.name));
        nodes.max_by(|a, b| a.rel_l2.total_cmp(&b.rel_l2))
    }
    /// The remarks about a group: those that name one of its source nodes or its own nodes.
    pub fn remarks_of_group(&self, group: usize) -> Vec<usize> {
        let g = &self.groups[group];
        let about = |n: &str| g.origins.iter().chain(&g.nodes).any(|o| o == n);
        (0..self.remarks.len()).filter(|&i| self.remarks[i].nodes.iter().any(|n| about(n.as_str()))).collect()
    }
}
