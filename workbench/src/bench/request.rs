//! Benchmarks to make.

use crate::bundles::BundleOptions;
use crate::error::{Error, Result};
use crate::inputs::Inputs;
use crate::options;
use crate::options::at_least_one;
use crate::settings::Settings;
use std::time::Duration;

options! {
    /// How runs are timed.
    pub struct Timing {
        /// Runs before the timed ones [default: 10; with --decode 1]
        warmup: Option<usize> = "" in Own { value: "N" };
        /// Runs before the timed ones go on for so long at least: 3s, 500ms
        warmup_time: Option<String> = "" in Own { value: "TIME", check: |t| seconds(t).map(drop) };
        /// Timed runs; with --decode a run is a prompt and all tokens behind it [default: 100; with --decode 5]
        runs: Option<usize> = "" in Own { value: "N", check: at_least_one };
        /// Timed for so long instead: 3s, 500ms
        duration: Option<String> = "" in Own { check: |t| seconds(t).map(drop) };
        /// Runs in flight for the throughput [default: the fastest of 1, 2 and 4]
        in_flight: Option<usize> = "" in Own { value: "N", check: at_least_one };
    }
}

impl Timing {
    /// Runs before the timed ones.
    pub fn warmup(&self) -> usize {
        self.warmup.unwrap_or(10)
    }
    /// The least time of the runs before the timed ones.
    ///
    /// # Errors
    /// A text that is no time.
    pub fn warmup_time(&self) -> Result<Duration> {
        let time = |d| seconds(d).map_err(|why| Error::usage(format!("--warmup-time {d}: {why}")));
        Ok(self.warmup_time.as_deref().map(time).transpose()?.unwrap_or_default())
    }
    /// Timed runs, if no duration says when they end.
    pub fn runs(&self) -> usize {
        self.runs.unwrap_or(100)
    }
}

options! {
    /// How a language model is timed.
    pub struct Decoding {
        /// Time a language model: it reads a prompt, then makes N tokens one by one, each from the ones before
        decode: Option<usize> = "" in Own { value: "N", check: at_least_one };
        /// Tokens of the prompt of --decode [default: 64, or as many as -i has]
        prefill: Option<usize> = "" in Own { value: "P", check: at_least_one };
        /// Positions in the cache of --decode before the prompt, with random keys and values [default: 0]
        past: Option<usize> = "" in Own { value: "K" };
    }
}

/// A time such as `3s` or `500ms`.
///
/// # Errors
/// Says so.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(n) => (n, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let value: Option<f64> = number.parse().ok().filter(|v: &f64| *v > 0.0 && v.is_finite());
    value.map(|v| Duration::from_secs_f64(v * unit)).ok_or_else(|| "needs a time such as 3s or 500ms".into())
}

/// Benchmarks to make: each model in each setting.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Paths or zoo names, or bundles.
    pub models: Vec<String>,
    /// Values for their inputs.
    pub input: Inputs,
    /// How runs are timed.
    pub timing: Timing,
    /// How a language model is timed.
    pub decoding: Decoding,
    /// Measure the device's peak rates first.
    pub ceilings: bool,
    /// Ask the driver what it made of each kernel.
    pub driver_stats: bool,
    /// Settings to sweep, each `KEY=A,B`.
    pub sweep: Vec<String>,
    /// Record one run as a timeline.
    pub timeline: bool,
    /// Make the compile trace with the time of each dispatch.
    pub trace: bool,
    /// Where only the driver's statistics can be had, they alone will do.
    pub not_timed: bool,
    /// Options about bundles.
    pub bundle: BundleOptions,
    /// Everything else.
    pub settings: Settings,
}

impl Request {
    /// The time of the timed runs, if not their number says when they end.
    ///
    /// # Errors
    /// A text that is no time.
    pub fn limit(&self) -> Result<Option<Duration>> {
        let time = |d| seconds(d).map_err(|why| Error::usage(format!("--duration {d}: {why}")));
        self.timing.duration.as_deref().map(time).transpose()
    }
}
