//! Measurements in a trace: times of dispatches on a device, errors of nodes against a reference.

use super::RunSpans;
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

/// The time of a dispatch, in microseconds: of all its turns in a run.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DispatchTime {
    /// In the run that the other figures are of.
    pub us: f64,
    /// The shortest of the recorded runs.
    pub min_us: f64,
    /// The longest of the recorded runs.
    pub max_us: f64,
}

impl DispatchTime {
    /// Both, one after the other.
    pub fn plus(self, other: DispatchTime) -> DispatchTime {
        DispatchTime {
            us: self.us + other.us,
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
