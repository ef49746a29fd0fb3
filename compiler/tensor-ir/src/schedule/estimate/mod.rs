//! The cost of a function on a device: the one estimate that passes, rules and `explain` use.
//!
//! Kernels of scheduled functions are weighed as they are (`scheduled`). For the candidates of a schedule rule, kernels
//! are weighed by the stages of the unscheduled function and the candidate's tile (`units`, `product` ...). Both use
//! the same counts (`tally`) and the same prices (`rates`). [`estimate`](super::estimator::estimate) is the one entry
//! for both. The time of a kernel has these parts:
//!
//! - *arithmetic*: scalar operations;
//! - *issue*: loads and stores that subgroups issue, a vector counting once;
//! - *shared passes* over the banks of workgroup memory, and *sectors* of device memory, as [`crate::traffic`] counts
//!   them;
//! - *waves*: cores that idle since there are too few workgroups, or in the last round;
//! - *launch*: a fixed price of a kernel and of each workgroup.
//!
//! Where computation and memory access overlap, as on a GPU, the larger of both counts. Elsewhere they follow each
//! other. Times are nanoseconds, for comparisons; the compiler prefers measured times if there are any
//! (`cost::Measurements`). A function that the device cannot run is refused with the reason. `weft explain -v` shows
//! the parts. Factors that were fitted to times of the device scale them (`CostFactors`).
//! `passes/one_estimate_tests.rs` checks that fusion and layouts depend on the estimate alone.
//!
//! Deliberately absent: optimisations of drivers, registers of scheduled kernels, other work on the device. Of caches
//! the estimate knows what a subgroup reads twice, and what one kernel of a function leaves for the next one.

mod combination;
mod cost;
mod digest;
mod leaves;
mod operands;
mod prices;
mod processor;
mod product;
mod rates;
mod reads;
mod rows;
mod scheduled;
mod stages;
mod tally;
#[cfg(test)]
mod tests;
mod transform;
mod transpose;
mod units;

pub(in crate::schedule) use combination::{Combination, combination_cost};
pub use cost::Cost;
pub use digest::digest;
pub use prices::{COUNTS, Count, Counts};
pub(in crate::schedule) use processor::{
    LaneTasks, NEAR_LANES, RegisterTiles, lane_kernel, read_again, register_tile_kernel, row_task_kernel,
};
pub(in crate::schedule) use product::Holdings;
pub(in crate::schedule) use rates::usual_width;
pub(in crate::schedule) use rows::row_kernel;
pub(in crate::schedule) use scheduled::scheduled_kernels;
pub(in crate::schedule) use stages::Stages;
pub use tally::{KernelEstimate, operations_of_value};
pub(in crate::schedule) use transform::transform_kernel;
pub(in crate::schedule) use transpose::transpose_kernel;
pub(in crate::schedule) use units::{
    few_rows_kernel, flat_kernel, holdings, matrix_kernels, own_reduction, product_kernels, shared_reduction,
    window_kernel,
};

use crate::int::DimRanges;
use crate::profile::DeviceProfile;
use crate::tir::TensorFunction;
use std::fmt;
use std::sync::Arc;

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
    /// Of these kernels on a device.
    ///
    /// # Errors
    /// The device lacks something.
    pub(in crate::schedule) fn of(kernels: Vec<KernelEstimate>, profile: &DeviceProfile) -> Result<Estimate, String> {
        if let Some(why) = kernels.iter().find_map(|k| k.refusal(profile)) {
            return Err(why);
        }
        let cost = kernels.iter().fold(Cost::default(), |sum, k| sum + k.cost);
        Ok(Estimate { kernels, cost, measured: None, asked: None })
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

/// Estimates a scheduled function; open sizes count with typical values.
///
/// # Errors
/// The device lacks something.
pub(in crate::schedule) fn estimate_scheduled(f: &TensorFunction, profile: &DeviceProfile) -> Result<Estimate, String> {
    Estimate::of(scheduled::kernels(&f.at_typical_sizes(&DimRanges::default()), profile), profile)
}

/// The cost of a kernel that only moves this number of bytes (reads plus writes), four words per thread.
pub fn cost_of_bytes(profile: &DeviceProfile, bytes: f64) -> Cost {
    let rates = rates::Rates::of(profile);
    if rates.prices.is_some() {
        return processor::copy_of_bytes(profile, bytes).cost(bytes, &rates);
    }
    let accesses = bytes / (rates.lanes * 16) as f64;
    let workgroups = (bytes / 4096.0).ceil();
    let tally = tally::Tally { accesses, sector_bytes: bytes, workgroups, threads: 128.0, ..Default::default() };
    tally.cost(bytes, &rates)
}

/// What a kernel costs in nanoseconds that touches so many bytes of device memory, at least.
pub(in crate::schedule) fn least_cost_of_bytes(profile: &DeviceProfile, bytes: f64) -> f64 {
    let rates = rates::Rates::of(profile);
    if let Some((prices, times)) = rates.prices {
        let [launch, moved] = [Count::Kernel, Count::Byte].map(|c| prices.ns[c as usize] * times);
        return rates.factors.launch * launch + rates.factors.sectors * moved * bytes / rates.cores;
    }
    rates.factors.launch * rates.launch + rates.factors.sectors * bytes / rates.memory_bytes
}
