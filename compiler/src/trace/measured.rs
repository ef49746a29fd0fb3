//! Measurements in a trace: times of dispatches on a device, errors of nodes against a reference.

use super::RunSpans;
use crate::calibrate::StoredRange;
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
    /// By how much the median of another measurement may differ, in milliseconds; `None` if that is not known.
    pub plus_minus_ms: Option<f64>,
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
    /// When and under what load they were measured.
    #[serde(default)]
    pub taken: Taken,
}

/// When and under what load peak rates were measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Taken {
    /// Seconds from 1970; 0 if that was not kept.
    pub at: u64,
    /// Processes that ran or waited to run in the minute before; null where the system does not say.
    pub load: Option<f64>,
    /// Threads that the machine runs at once.
    pub threads: u32,
    /// Measured by `weft tune` beside its own work, not by `weft bench --ceilings`.
    pub on_the_side: bool,
}

/// Load for each thread of the machine from which on it is not quiet.
const QUIET: f64 = 0.3;

/// The part by which a kernel may be above a roof: rates of short kernels are as exact as the clock.
const ABOVE: f64 = 1.05;

impl Taken {
    /// True of a measurement of its own on a machine that is not known to be busy.
    pub fn is_quiet(&self) -> bool {
        let busy = self.load.is_some_and(|load| load >= QUIET * f64::from(self.threads));
        self.at > 0 && !self.on_the_side && !busy
    }
    /// `measured on 2026-11-29 by `weft bench --ceilings`, at a load of 0.42 on 2 threads`.
    pub fn words(&self) -> String {
        if self.at == 0 {
            return "measured by an earlier version of Weft, which did not keep when and under what load".into();
        }
        let by = if self.on_the_side { "on the side by `weft tune`" } else { "by `weft bench --ceilings`" };
        let load = self.load.map_or(", under a load that the system does not say".into(), |l| {
            let quiet = if l < QUIET * f64::from(self.threads) { "a quiet machine" } else { "a busy machine" };
            format!(" on {quiet}: a load of {l:.2} on {} threads", self.threads)
        });
        format!("measured on {} {by}{load}", day(self.at))
    }
}

/// The day of seconds from 1970, in UTC, as `2026-11-29` (H. Hinnant, chrono-compatible low-level date algorithms).
fn day(seconds: u64) -> String {
    let days = seconds / 86400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * shifted + 2) / 5 + 1, if shifted < 10 { shifted + 3 } else { shifted - 9 });
    format!("{}-{month:02}-{day:02}", year + 400 * era + u64::from(month <= 2))
}

impl Ceilings {
    /// The share of the ceiling that binds a kernel with these rates: the larger of its shares of both, as in the
    /// roofline model (Williams, Waterman, Patterson, 2009).
    pub fn fraction(&self, gflops: f64, gb_s: f64) -> f64 {
        (gflops / self.fma_gflops).max(gb_s / self.copy_gb_s)
    }

    /// Why a kernel with these rates is above its roof; `None` if it is not. A kernel above the roof of memory may read
    /// caches, up to their rate; otherwise the roofs are doubtful.
    pub fn above_roof(&self, gflops: f64, gb_s: f64) -> Option<String> {
        let arithmetic = gflops / self.fma_gflops.max(self.matrix_gflops.unwrap_or(0.0));
        let (memory, caches) = (gb_s / self.copy_gb_s, self.cache_gb_s);
        if arithmetic.max(memory) <= ABOVE {
            return None;
        }
        let taken = self.taken.words();
        let again = format!("They were {taken}; `weft bench --ceilings` on a quiet machine measures them again");
        Some(match caches {
            _ if arithmetic > ABOVE => {
                format!("{arithmetic:.1} times the measured roof of arithmetic: the ceilings are doubtful. {again}")
            }
            Some(rate) if gb_s <= ABOVE * rate => {
                format!("{memory:.1} times the measured roof of memory: its data are in a cache")
            }
            Some(rate) => {
                let above = gb_s / rate;
                format!("{above:.1} times the measured roof of the caches: the ceilings are doubtful. {again}")
            }
            None => format!(
                "{memory:.1} times the measured roof of memory: its data are in a cache, or the ceilings are doubtful. \
                 {again}"
            ),
        })
    }

    /// The sentence of [`above_roof`](Ceilings::above_roof) for the kernel that is furthest above its roof.
    pub fn furthest_above<'k>(&self, kernels: impl Iterator<Item = (&'k str, f64, f64)>) -> Option<String> {
        let share = |k: &(&str, f64, f64)| self.fraction(k.1, k.2);
        let (name, gflops, gb_s) = kernels.max_by(|a, b| share(a).total_cmp(&share(b)))?;
        Some(format!("`{name}` reaches {}", self.above_roof(gflops, gb_s)?))
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
        DispatchTime { us: self.us + other.us, min_us: self.min_us + other.min_us, max_us: self.max_us + other.max_us }
    }
    /// True when several runs were timed.
    pub fn has_spread(self) -> bool {
        self.max_us > self.min_us
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

/// Ranges of the values that are stored in f16, over inputs.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RangesInF16 {
    /// The number of inputs.
    pub inputs: usize,
    /// The values, those nearest to the end of f16 first.
    pub values: Vec<StoredRange>,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(at: u64, load: Option<f64>, on_the_side: bool) -> Taken {
        Taken { at, load, threads: 2, on_the_side }
    }

    #[test]
    fn a_quiet_measurement_of_its_own_counts_most() {
        let day = 1_795_938_232;
        let all = [
            taken(0, None, false),
            taken(day, Some(0.1), true),
            taken(day, Some(1.9), false),
            taken(day, Some(0.1), false),
        ];
        assert_eq!(all.map(|t| t.is_quiet()), [false, false, false, true]);
        assert!(taken(day, None, false).is_quiet());
        let says = "measured on 2026-11-29 by `weft bench --ceilings` on a quiet machine: a load of 0.10 on 2 threads";
        assert_eq!(all[3].words(), says);
        assert!(all[1].words().contains("on the side by `weft tune`") && all[2].words().contains("a busy machine"));
    }

    #[test]
    fn days_of_leap_years() {
        let days = [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_709_251_199, "2024-02-29"),
            (1_709_251_200, "2024-03-01"),
        ];
        days.into_iter().for_each(|(seconds, name)| assert_eq!(day(seconds), name));
    }

    #[test]
    fn a_kernel_above_its_roof_makes_the_ceilings_doubtful() {
        let c = Ceilings { copy_gb_s: 10.0, fma_gflops: 100.0, ..Ceilings::default() };
        let says = |c: Ceilings, gflops, gb_s| c.above_roof(gflops, gb_s).unwrap_or_default();
        assert_eq!(says(c, 99.0, 9.0), "");
        assert!(
            says(c, 779.0, 1.0).starts_with("7.8 times the measured roof of arithmetic: the ceilings are doubtful.")
        );
        assert!(says(c, 1.0, 34.0).contains("in a cache, or the ceilings are doubtful"));
        let cached = Ceilings { cache_gb_s: Some(40.0), ..c };
        assert!(says(cached, 1.0, 34.0).ends_with("its data are in a cache"));
        assert!(says(cached, 1.0, 80.0).starts_with("2.0 times the measured roof of the caches: the ceilings are"));
        let matrices = Ceilings { matrix_gflops: Some(800.0), ..c };
        assert_eq!(says(matrices, 779.0, 1.0), "");
        let all = [("a", 50.0, 1.0), ("b", 200.0, 1.0)];
        assert!(c.furthest_above(all.into_iter()).is_some_and(|t| t.starts_with("`b` reaches 2.0 times")));
    }
}
