//! The cost of a function on a device: the one estimate that passes, rules and `explain` use.
//!
//! [`estimate`] weighs each kernel of a scheduled function. For an unscheduled function it asks the schedule rules for
//! the kernels that they would make, without making them (`rules::predict`). Both use the same counts (`tally`) and the
//! same prices (`rates`). The time of a kernel has these parts:
//!
//! - *arithmetic*: scalar operations;
//! - *issue*: loads and stores that subgroups issue, a vector counting once;
//! - *shared passes* over the banks of workgroup memory, and *sectors* of device memory, as [`crate::traffic`] counts
//!   them;
//! - *waves*: cores that idle since there are too few workgroups, or in the last round;
//! - *launch*: a fixed price of a kernel and of each workgroup.
//!
//! On a GPU computation and memory access overlap, so the larger of both counts. On a software device they follow each
//! other. Times are nanoseconds, for comparisons; the compiler prefers measured times if there are any
//! (`cost::Measurements`). A function that the device cannot run is refused with the reason. `weft explain -v` shows
//! the parts. Factors that were fitted to times of the device scale them ([`CostFactors`]).
//! `passes/one_estimate_tests.rs` checks that fusion and layouts depend on the estimate alone.
//!
//! Deliberately absent: optimisations of drivers, registers of scheduled kernels, other work on the device. Of caches
//! the estimate knows what a subgroup reads twice, and what one kernel of a function leaves for the next one.

mod combination;
mod digest;
mod processor;
mod product;
mod rates;
mod reads;
mod rows;
mod scheduled;
mod tally;
#[cfg(test)]
mod tests;
mod transform;
mod transpose;
mod units;

pub(in crate::schedule) use combination::{Combination, combination_cost};
pub use digest::digest;
pub(in crate::schedule) use processor::{RegisterTiles, lane_kernel, register_tile_kernel, row_task_kernel};
pub(in crate::schedule) use product::Holdings;
pub(in crate::schedule) use rates::usual_width;
pub(in crate::schedule) use reads::Stages;
pub(in crate::schedule) use rows::row_kernel;
pub(in crate::schedule) use scheduled::scheduled_kernels;
pub use tally::{KernelEstimate, operations_of_value};
pub(in crate::schedule) use transform::transform_kernel;
pub(in crate::schedule) use transpose::transpose_kernel;
pub(in crate::schedule) use units::{
    flat_kernel, holdings, matrix_kernels, own_reduction, product_kernels, shared_reduction, window_kernel,
};

use crate::arena::Id;
use crate::fingerprint::Fingerprint;
use crate::int::{DimRanges, Int, typical_size};
use crate::profile::{CostFactors, DeviceProfile};
use crate::schedule::rules::predicted;
use crate::schedule::{ScheduleOptions, ScheduleTarget};
use crate::tir::{BufferId, TensorFunction};
use rustc_hash::FxHashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Time in nanoseconds, by part.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Cost {
    /// Scalar operations.
    pub arithmetic: f64,
    /// Loads and stores.
    pub issue: f64,
    /// Accesses of workgroup memory.
    pub shared_passes: f64,
    /// Pieces of device memory.
    pub sectors: f64,
    /// Idle cores.
    pub waves: f64,
    /// Fixed prices.
    pub launch: f64,
    /// Nanoseconds that overlap with the other parts; subtracted from the sum.
    pub hidden: f64,
}

impl Cost {
    /// The total.
    pub fn total(&self) -> f64 {
        self.parts().iter().map(|p| p.1).sum::<f64>() - self.hidden
    }
    /// With factors on the parts. What overlaps shrinks with the smallest of them, so that the total is not negative.
    pub fn scaled(&self, f: &CostFactors) -> Cost {
        let [arithmetic, issue, shared_passes, sectors, waves, launch] =
            std::array::from_fn(|at| self.parts()[at].1 * f.to_array()[at]);
        Cost { arithmetic, issue, shared_passes, sectors, waves, launch, hidden: self.hidden * overlap(f).1 }
    }
    /// By how much the total grows with each factor, at these factors.
    pub fn by_factor(&self, f: &CostFactors) -> [f64; CostFactors::COUNT] {
        let smallest = overlap(f).0;
        let parts = self.parts();
        std::array::from_fn(|at| parts[at].1 - if at == smallest { self.hidden } else { 0.0 })
    }
    /// The name of the largest part.
    pub fn bound(&self) -> &'static str {
        self.parts().into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or("nothing", |p| p.0)
    }
    /// The parts that add up, by name.
    pub fn parts(&self) -> [(&'static str, f64); 6] {
        [
            ("arithmetic", self.arithmetic),
            ("issue", self.issue),
            ("shared passes", self.shared_passes),
            ("sectors", self.sectors),
            ("waves", self.waves),
            ("launch", self.launch),
        ]
    }
}

/// The smallest factor of a part that may overlap, with its place.
fn overlap(f: &CostFactors) -> (usize, f64) {
    let all = f.to_array().into_iter().enumerate().take(CostFactors::COUNT - 1);
    all.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, 1.0))
}

impl std::ops::Add for Cost {
    type Output = Cost;
    fn add(self, other: Cost) -> Cost {
        Cost {
            arithmetic: self.arithmetic + other.arithmetic,
            issue: self.issue + other.issue,
            shared_passes: self.shared_passes + other.shared_passes,
            sectors: self.sectors + other.sectors,
            waves: self.waves + other.waves,
            launch: self.launch + other.launch,
            hidden: self.hidden + other.hidden,
        }
    }
}

/// Times in nanoseconds for people, all in one unit, in which the smallest is at least a tenth, or a second: `1230 ms`
/// and `0.88 ms`.
pub fn times<const N: usize>(ns: [f64; N]) -> [String; N] {
    let smallest = ns.iter().copied().filter(|t| *t > 0.0).fold(f64::INFINITY, f64::min);
    let units = [(1e9, "s", 1e9), (1e6, "ms", 1e5)];
    let found = units.into_iter().find(|u| smallest >= u.2 && smallest.is_finite());
    let (size, unit) = found.map_or((1e3, "us"), |u| (u.0, u.1));
    ns.map(|t| {
        let t = t / size;
        let digits = if t > 0.0 { (2 - t.log10().floor() as i32).clamp(0, 2) as usize } else { 0 };
        format!("{t:.digits$} {unit}")
    })
}

/// `12.3 us (arithmetic 4.0 us, sectors 6.2 us, launch 5.0 us, hidden -2.9 us)`; parts below a hundredth are left out.
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        let shown = self.parts().into_iter().chain([("hidden", -self.hidden)]).filter(|p| p.1.abs() > total / 1e2);
        let list: Vec<String> = shown.map(|(name, ns)| format!("{name} {:.1} us", ns / 1e3)).collect();
        write!(f, "{:.1} us ({})", total / 1e3, list.join(", "))
    }
}

/// The cost of the kernels of a function.
#[derive(Clone, PartialEq, Debug)]
pub struct Estimate {
    /// Each kernel, in order.
    pub kernels: Vec<KernelEstimate>,
    /// All of them together.
    pub cost: Cost,
    /// The time in nanoseconds, if the function was measured on the device.
    pub measured: Option<f64>,
    /// The form under which a cost model lists the function as unmeasured.
    pub asked: Option<Arc<str>>,
}

impl Estimate {
    fn of(kernels: Vec<KernelEstimate>) -> Estimate {
        let cost = kernels.iter().fold(Cost::default(), |sum, k| sum + k.cost);
        Estimate { kernels, cost, measured: None, asked: None }
    }
    /// The most bindings of a kernel.
    pub fn bindings(&self) -> u32 {
        self.kernels.iter().map(|k| k.bindings).max().unwrap_or(0)
    }
    /// The most workgroup memory of a kernel, in bytes.
    pub fn shared_bytes(&self) -> u64 {
        self.kernels.iter().map(|k| k.shared_bytes).max().unwrap_or(0)
    }
    /// The estimated time in nanoseconds.
    pub fn total(&self) -> f64 {
        self.cost.total()
    }
}

/// `2 kernels, at most 5 bindings and 4096 bytes of workgroup memory, 12.3 us (...)`
impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = format!("{} bindings and {} bytes of workgroup memory", self.bindings(), self.shared_bytes());
        match self.kernels.len() {
            1 => write!(f, "1 kernel, {most}, {}", self.cost),
            n => write!(f, "{n} kernels, at most {most}, {}", self.cost),
        }
    }
}

/// Estimates `f`; open sizes count with typical values. `constants` are read buffers that may be prepacked, as for
/// [`rules::schedule`](super::rules::schedule).
///
/// # Errors
/// The device lacks something; or a part of the function is neither scheduled nor a sequence of plain stages.
pub fn estimate<'a>(
    f: &TensorFunction,
    constants: &[BufferId],
    target: impl Into<ScheduleTarget<'a>>,
) -> Result<Estimate, String> {
    let target = target.into();
    let f = f.at_typical_sizes(&DimRanges::default());
    let kernels = match f.kernels().is_empty() {
        true => predicted(&f, constants, target)?,
        false => scheduled::kernels(&f, target.profile)?,
    };
    match kernels.iter().find_map(|k| k.refusal(target.profile)) {
        Some(why) => Err(why),
        None => Ok(Estimate::of(kernels)),
    }
}

/// The cost of a kernel that only moves this number of bytes (reads plus writes), four words per thread.
pub fn cost_of_bytes(profile: &DeviceProfile, bytes: f64) -> Cost {
    let rates = rates::Rates::of(profile);
    let accesses = bytes / (rates.lanes * 16) as f64;
    let workgroups = (bytes / 4096.0).ceil();
    let tally = tally::Tally { accesses, sector_bytes: bytes, workgroups, threads: 128.0, ..Default::default() };
    tally.cost(bytes, &rates)
}

/// What a kernel costs in nanoseconds that touches so many bytes of device memory, at least.
pub(in crate::schedule) fn least_cost_of_bytes(profile: &DeviceProfile, bytes: f64) -> f64 {
    let rates = rates::Rates::of(profile);
    rates.factors.launch * rates.launch + rates.factors.sectors * bytes / rates.memory_bytes
}

/// Estimates for one device; each different function once.
pub struct Estimator {
    profile: DeviceProfile,
    /// What the user asks of the rules.
    options: ScheduleOptions,
    /// Ranges of open sizes; typical sizes count.
    dims: DimRanges,
    known: Mutex<FxHashMap<Key, Arc<Result<Estimate, String>>>>,
}

/// A function by its structure, and the positions of its constants.
type Key = (Fingerprint, Vec<usize>);

impl Estimator {
    /// For a device, where open sizes have these ranges.
    pub fn within<'a>(target: impl Into<ScheduleTarget<'a>>, dims: DimRanges) -> Estimator {
        let ScheduleTarget { profile, options } = target.into();
        Estimator { profile: profile.clone(), options: options.clone(), dims, known: Mutex::default() }
    }
    /// The device.
    pub fn profile(&self) -> &DeviceProfile {
        &self.profile
    }
    /// A number of elements; an open size counts with its typical value.
    pub fn elements(&self, count: &Int) -> f64 {
        count.eval(&|v| Some(typical_size(self.dims.range(v)))).map_or(1.0, |n| n.max(0) as f64)
    }
    /// [`estimate`], remembered.
    pub fn estimate(&self, f: &TensorFunction, constants: &[BufferId]) -> Arc<Result<Estimate, String>> {
        let f = &*f.at_typical_sizes(&self.dims);
        let mut constants = constants.to_vec();
        constants.sort_unstable();
        let key = (f.fingerprint(), constants.iter().map(|b| b.index()).collect());
        if let Ok(known) = self.known.lock()
            && let Some(found) = known.get(&key)
        {
            return found.clone();
        }
        let made = Arc::new(estimate(f, &constants, self.options.on(&self.profile)));
        if let Ok(mut known) = self.known.lock() {
            known.insert(key, made.clone());
        }
        made
    }
}
