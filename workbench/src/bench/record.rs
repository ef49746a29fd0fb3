//! The record of a benchmark.

use super::decode::record::DecodeRecord;
use super::request::Request;
pub use super::sampled::Sampled;
use crate::device::DeviceRecord;
use crate::error::Failure;
use crate::host_calls::HostFunctionTime;
use crate::settings::Settings;
use crate::state::State;
use compiler::compile::{Compiled, MemoryReport};
use compiler::fingerprint::Fingerprint;
use compiler::graph::Module;
use compiler::tensor::Tensor;
use compiler::text::print_module;
use compiler::trace::driver_stats::StatsRecord;
use compiler::trace::{Ceilings, Kind, RunSpans, TimeRow};
use graphview::reasons::General;
use indexmap::IndexMap;
use runtime_gpu::{TimeSource, Transfers};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A model in one setting.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct BenchRecord {
    /// Times of a run.
    #[serde(flatten)]
    pub run: Run,
    /// The same without `--host-call` and `--external`, where these were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_host_calls: Option<Beside>,
    /// With `--driver-stats`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_stats: Option<StatsRecord>,
    /// On a device that compiles and does not compute: why nothing is timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_timed: Option<String>,
    /// Milliseconds of compilation, session and first run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compile_ms: Option<CompileTimes>,
    /// 1
    pub schema: u8,
    /// The name of the file, or the zoo's.
    pub model: String,
    /// The first dimension of the first input.
    pub batch: usize,
    /// `f16` with mixed precision, else `f32`.
    pub dtype: &'static str,
    /// Where.
    pub device: DeviceRecord,
    /// Floating-point operations of a run; 0 where a size is open.
    pub flops: u64,
    /// As of `bench --ceilings`.
    pub ceilings: Option<Ceilings>,
    /// Why a kernel is above its roof, in words, if one is: the ceilings may be too low.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
    /// Options that explain most.
    pub settings: SettingRecord,
    /// The machine.
    pub env: Environment,
    /// The network and its inputs: records with equal ones have equal `flops`.
    pub work: Work,
    /// How it was timed.
    pub method: Method,
    /// The state of the machine before and after.
    pub machine: Machine,
    /// Of mixed precision: its results against those in f32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against_f32: Option<AgainstF32>,
    /// With `--decode`: the figures above are of a token, those of kernels, and `device_ms`, of the last one, again and
    /// again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decode: Option<DecodeRecord>,
}

/// The network and its inputs.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Work {
    /// Digest of the network's structure and small constants, without its large weights.
    pub digest: String,
    /// Types and shapes of the inputs.
    pub inputs: Vec<String>,
}

impl Work {
    /// Of a module with these inputs.
    pub fn of(module: &Module, inputs: &[Tensor]) -> Work {
        let text = |t: &Tensor| {
            let shape: Vec<String> = t.shape().iter().map(usize::to_string).collect();
            format!("{}[{}]", t.dtype(), shape.join(","))
        };
        let digest = Fingerprint::of(|w| w.text(&print_module(module))).to_string();
        Work { digest, inputs: inputs.iter().map(text).collect() }
    }
}

/// How a model was timed.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Method {
    /// Runs before the timed ones.
    pub warmup: usize,
    /// Timed runs, if not `duration` says when they end.
    pub runs: usize,
    /// `--duration`
    pub duration: Option<String>,
    /// `--threads`
    pub threads: Option<u32>,
}

impl Method {
    /// Of a request.
    pub fn of(a: &Request, settings: &Settings) -> Method {
        let (warmup, runs, duration) = (a.timing.warmup(), a.timing.runs(), a.timing.duration.clone());
        Method { warmup, runs, duration, threads: settings.threads }
    }
}

/// The machine around a measurement.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Machine {
    /// Before it.
    pub before: State,
    /// After it.
    pub after: State,
}

/// Results in mixed precision against those in f32.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgainstF32 {
    /// Compared results.
    pub outputs: usize,
    /// The largest norm of a difference, relative to that of the result in f32; null if it is not finite.
    #[schemars(with = "Option<f64>")]
    pub rel_l2: f64,
    /// The largest absolute difference; null if it is not finite.
    #[schemars(with = "Option<f64>")]
    pub max_abs: f64,
    /// Numbers that are NaN or infinite on one side alone.
    pub not_finite: usize,
    /// Results beyond the tolerance of `weft compare`.
    pub beyond: usize,
}

/// The times of a session. Those of kernels are absent of one that has no compilation.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Run {
    /// The clock of the times of kernels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_source: Option<TimeSource>,
    /// Distinct ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernels: Option<usize>,
    /// In a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatches: Option<usize>,
    /// Read and written by all dispatches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Inputs up, results read back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<Sampled>,
    /// Inputs and results resident; of a network in parts, and on the CPU, the sum of its dispatches in the run of
    /// `spent`, on the CPU with its steps on tensors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_ms: Option<Sampled>,
    /// One run, whose length is the nearest to the median latency of those that were recorded: where its time goes.
    /// `split_ms` and `per_kernel` are of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spent: Option<SpentRecord>,
    /// The same in a few sums.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_ms: Option<Split>,
    /// Bytes that a run moves; absent without a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfers: Option<Transfers>,
    /// Bytes on the device; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Inputs computed a second: on a device with several runs in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput_per_s: Option<f64>,
    /// So many runs: `--in-flight`, else the fastest of 1, 2 and 4; absent without a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<usize>,
    /// Each kernel; in the interpreter each node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_kernel: Option<Vec<KernelTime>>,
    /// Kernels that take more than a fifth of the run, far from their roof, by a schedule rule for any unit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub general: Vec<General>,
    /// Calls of host functions and of external targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_functions: Option<Vec<HostFunctionTime>>,
}

impl Run {
    /// The counts of a compilation, before anything is timed.
    pub fn of(c: &Compiled) -> Run {
        let MemoryReport { weights, activations_peak, .. } = c.memory;
        Run {
            kernels: Some(c.plan.kernels.len()),
            dispatches: Some(c.plan.dispatches().count()),
            bytes: Some(c.groups.iter().map(|g| g.bytes).sum()),
            memory: Some(Memory { weights, activations_peak }),
            ..Run::default()
        }
    }
    /// Why a kernel is above its roof, if one is.
    pub fn doubt(&self, ceilings: Option<Ceilings>) -> Option<String> {
        let kernels = self.per_kernel.iter().flatten();
        ceilings?.furthest_above(kernels.map(|k| (k.name.as_str(), k.gflops, k.gb_s)))
    }
    /// The median latency; 0 where it was not timed.
    pub fn latency(&self) -> f64 {
        self.latency_ms.as_ref().map_or(0.0, |s| s.of.median)
    }
    /// The median time on the device; 0 where it was not timed.
    pub fn device(&self) -> f64 {
        self.device_ms.as_ref().map_or(0.0, |s| s.of.median)
    }
}

/// Where the time of one run goes.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct SpentRecord {
    /// Its length in milliseconds.
    pub run_ms: f64,
    /// Shares of it; together they are the run. The last is what none of the others has.
    pub rows: Vec<TimeRow>,
}

/// Milliseconds of the run of `spent`.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Split {
    /// Inputs to the device.
    pub upload: f64,
    /// The host encodes and submits, or computes steps on tensors.
    pub encode: f64,
    /// Kernels.
    pub gpu: f64,
    /// Results back.
    pub readback: f64,
    /// Waits, gaps, copies, and what is not attributed.
    pub rest: f64,
}

impl Split {
    /// Of a recorded run.
    pub fn of(run: &RunSpans) -> Split {
        let [upload, encode, steps, gpu, readback] =
            [Kind::Upload, Kind::Encode, Kind::Step, Kind::Kernel, Kind::Readback].map(|kind| run.ms_of(kind));
        let rest = (run.ms - upload - encode - steps - gpu - readback).max(0.0);
        Split { upload, encode: encode + steps, gpu, readback, rest }
    }
}

/// Bytes on the device.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Memory {
    /// Constants.
    pub weights: u64,
    /// The pool of intermediates.
    pub activations_peak: u64,
}

/// Milliseconds of compilation, session and first run.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct CompileTimes {
    /// At first.
    pub cold: f64,
    /// Where that goes, by its stages in order; the last is `not attributed`.
    pub stages: Vec<StageTime>,
    /// Once more in the same process; absent of a network in parts and in the interpreter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm: Option<f64>,
}

/// A stage of the first run.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct StageTime {
    /// `passes`, `lowering`, `scheduling`, `planning`, `constants` or `upload` (of them), `pipelines`, `driver` (its
    /// compilation), `first run` ...
    pub name: String,
    /// Milliseconds.
    pub ms: f64,
}

/// A kernel in a run.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct KernelTime {
    /// An id of `kernels`; of a network in parts, of its part's.
    pub id: usize,
    /// The kernel's, or the node's.
    pub name: String,
    /// In the interpreter, whose kernels are the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<&'static str>,
    /// Ids of `groups`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<usize>>,
    /// Runs of it in a run of the network: in a loop, one in each iteration.
    pub calls: u64,
    /// Of one call.
    pub us_median: f64,
    /// Of all calls.
    pub us_total: f64,
    /// 10^9 floating-point operations a second.
    pub gflops: f64,
    /// 10^9 bytes a second.
    pub gb_s: f64,
    /// Of the ceiling that binds it; null until `--ceilings` has measured the device.
    pub roofline_fraction: Option<f64>,
    /// Of a network in parts: `before`, `deciding`, `after`, `after.before` ...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
}

impl KernelTime {
    /// The rates of so many operations and bytes in all calls.
    pub fn rated(self, flops: u64, bytes: u64, ceilings: Option<Ceilings>) -> KernelTime {
        let rate = |amount: u64| amount as f64 / self.us_total.max(1e-3) / 1e3;
        let (gflops, gb_s) = (rate(flops), rate(bytes));
        let us_median = self.us_total / self.calls.max(1) as f64;
        KernelTime { us_median, gflops, gb_s, roofline_fraction: ceilings.map(|c| c.fraction(gflops, gb_s)), ..self }
    }
}

/// The cost or gain of host calls.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Beside {
    /// The median without them.
    pub latency_ms: f64,
    /// The median without them.
    pub device_ms: f64,
    /// The time with the calls over that without.
    pub latency_ratio: f64,
    /// The same on the device.
    pub device_ratio: f64,
}

impl Beside {
    /// The times with calls beside those without.
    pub fn of(with: &Run, without: &Run) -> Beside {
        let (latency_ms, device_ms) = (without.latency(), without.device());
        let [latency_ratio, device_ratio] =
            [(with.latency(), latency_ms), (with.device(), device_ms)].map(|(a, b)| a / b.max(1e-9));
        Beside { latency_ms, device_ms, latency_ratio, device_ratio }
    }
}

/// Options of a row.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct SettingRecord {
    /// Mixed precision.
    pub amp: String,
    /// Data layout.
    pub layout: String,
    /// Fusion.
    pub fuse: String,
    /// 0 to 3.
    pub opt_level: u8,
    /// Of random inputs.
    pub seed: u64,
    /// As `--device` names it.
    pub device: String,
    /// The profile of `--target`.
    pub target: Option<String>,
    /// Sizes of `--dim`.
    pub dim: Vec<String>,
    /// Nodes that stay in f32.
    pub keep_f32: Vec<String>,
    /// The options that `--sweep` varies, and their values here.
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    pub swept: IndexMap<String, String>,
}

/// The machine, and this build.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Environment {
    /// `linux`, `macos`, `windows` ...
    pub os: &'static str,
    /// Of its processor.
    pub arch: &'static str,
    /// Threads that run at once.
    pub cpus: usize,
    /// Version.
    pub weft: &'static str,
    /// `release` or `debug`.
    pub profile: &'static str,
    /// The commit, with `-dirty` where files differed; of a release build made with git.
    pub commit: Option<&'static str>,
    /// The name of the operating system with its version.
    pub system: Option<String>,
}

/// `Debian GNU/Linux 12 (bookworm)`, as Linux's systems say it.
fn system() -> Option<String> {
    let text = std::fs::read_to_string("/etc/os-release").ok()?;
    let name = text.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_string())
}

impl Default for Environment {
    fn default() -> Environment {
        Environment {
            os: std::env::consts::OS,
            arch: std::env::consts::ARCH,
            cpus: std::thread::available_parallelism().map_or(0, |n| n.get()),
            weft: env!("CARGO_PKG_VERSION"),
            profile: env!("WEFT_PROFILE"),
            commit: option_env!("WEFT_COMMIT"),
            system: system(),
        }
    }
}

/// A row that failed, in the place of its result.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FailedRecord {
    /// The name of the file, or the zoo's.
    pub model: String,
    /// Options that explain most.
    pub settings: SettingRecord,
    /// Why.
    pub error: Failure,
}
