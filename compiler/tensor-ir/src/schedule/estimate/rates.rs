//! Rates of a device, in operations and bytes per nanosecond, from its profile. All prices of the estimate are here;
//! those that depend on the kind of machine alone are in its row ([`MachineModel`]).

use super::prices::Prices;
use crate::profile::{CostFactors, DeviceProfile, MachineModel};
use crate::traffic::{BANK_BYTES, BANKS};

/// Rates a nanosecond, and fixed prices in nanoseconds.
pub(super) struct Rates {
    /// Scalar operations.
    pub operations: f64,
    /// Loads and stores that subgroups issue, each with its address.
    pub accesses: f64,
    /// Passes over workgroup memory.
    pub passes: f64,
    /// Bytes of touched sectors that the caches deliver.
    pub sector_bytes: f64,
    /// Bytes of device memory that a kernel touches at least once.
    pub memory_bytes: f64,
    /// Operations of matrix units for one scalar operation.
    pub matrices: f64,
    /// Operations of a thread per halving step of a subgroup that combines its threads' values.
    pub halving: f64,
    /// Threads of a subgroup.
    pub lanes: i64,
    /// Subgroups that a core issues side by side.
    pub schedulers: f64,
    /// Figures of the kind of machine.
    pub model: &'static MachineModel,
    /// Bytes of the last-level cache.
    pub cache_bytes: u64,
    pub cores: f64,
    /// A kernel.
    pub launch: f64,
    /// A workgroup, on its core.
    pub workgroup: f64,
    /// By measured times.
    pub factors: CostFactors,
    /// Prices of a processor, and a factor on them.
    pub prices: Option<(&'static Prices, f64)>,
}

/// Subgroups of a scheduler that are needed to hide latency if each thread has up to [`INDEPENDENT`] independent
/// results.
const SUBGROUPS: f64 = 2.0;
/// Independent results of a thread beside which more hide latency too (Volkov, Better Performance at Lower Occupancy,
/// 2010).
const INDEPENDENT: f64 = 8.0;
/// More independent results than these hide no more latency: at a barrier all of them wait.
const MOST_RESULTS: f64 = 16.0;
/// Operations of a thread per step of a product's reduction, besides its arithmetic: two barriers, the loop, and the
/// addresses of its copies.
pub(super) const STEP: f64 = 32.0;
/// Operations of a thread for a barrier.
pub(super) const BARRIER: f64 = 12.0;
/// Operations of a thread per halving step of a subgroup, unless it was measured: one shuffle and one addition.
const HALVING: f64 = 2.0;
/// Passes over workgroup memory per lane that a subgroup operation costs where lanes are processed one by one
/// (lavapipe: a norm of 197 rows takes 1.15 times as long as through workgroup memory).
pub(super) const WALKED_LANE: f64 = 2.0;
/// Operations for copying a single element out of windows: its position in the window (divisions of the reduction's
/// index by the window's sizes), and the test whether it is inside. ResNet's 7x7 stem takes 75 instructions per element
/// on AMD and NVIDIA. Integer products among them are slow, so that is 70 to 270 operations by the compilers' own
/// counts.
pub(super) const PLACE_IN_WINDOW: f64 = 128.0;
/// The same if a step of the product is a row of windows. The position is then the same in every row: 20 instructions.
pub(super) const PLACE_IN_ROW: f64 = 40.0;
/// Multiply-adds of matrix units for one of the vector units, f16 into f32: makers say 2 (RDNA 3, GeForce) to 16
/// (data-centre GPUs); others reach about half of that.
const MATRICES: f64 = 4.0;
/// Operations for each element of a fragment that a subgroup loads: lanes pass elements on, address them and wait. The
/// loops of Mesa's compilers take 2.5 to 3 instructions an element and lane beside copies and products, in subgroups of
/// 32 (bmg, ada) and 64 (navi31).
pub(super) const FRAGMENT: f64 = 5.0;
/// Operations that an access takes beside its data: the address, and the conditions that it stands under.
const ADDRESS: f64 = 8.0;

/// Elements of a thread's vector where nobody chooses, for `total` results in runs of `inner`: 4, fewer where the
/// device would have lanes without a thread.
pub(in crate::schedule) fn usual_width(p: &DeviceProfile, total: i64, inner: i64) -> i64 {
    let lanes = i64::from(p.model().lanes_a_core) * i64::from(p.cores);
    let fits = |w: &i64| total % w == 0 && total / w >= lanes;
    if inner % 2 == 0 { [4, 2].into_iter().find(fits).unwrap_or(1) } else { 1 }
}

/// A rate, or another value where it is not known.
fn known(rate: f64, otherwise: f64) -> f64 {
    if rate > 0.0 { rate } else { otherwise }
}

impl Rates {
    /// The rates of a profile; if it has none, the rates of a middling device with as many cores.
    pub fn of(p: &DeviceProfile) -> Rates {
        if p.model().lanes_a_core > 0 { Rates::side_by_side(p) } else { Rates::in_turn(p) }
    }
    /// Where a core has several subgroups at work.
    fn side_by_side(p: &DeviceProfile) -> Rates {
        let (model, cores) = (p.model(), f64::from(p.cores.max(1)));
        let operations = known(p.gflops, model.operations * cores);
        let memory = known(p.gb_s, model.memory_bytes * cores);
        let lanes = p.subgroup.1.clamp(model.lanes, 64);
        // A multiplication and an addition of each lane count two operations.
        let instructions = operations / (2.0 * f64::from(lanes));
        let halvings = f64::from(lanes.ilog2());
        Rates {
            operations,
            accesses: instructions / ADDRESS,
            // A core serves one pass while it issues four instructions.
            passes: known(p.workgroup_gb_s / (BANKS * BANK_BYTES) as f64, instructions / 4.0),
            sector_bytes: known(p.cache_gb_s, 4.0 * memory),
            memory_bytes: memory,
            matrices: known(p.matrix_gflops / operations, MATRICES),
            halving: operations / (halvings * known(p.subgroup_gops, operations / (halvings * HALVING))),
            lanes: i64::from(lanes),
            schedulers: f64::from(model.lanes_a_core) / f64::from(lanes),
            model,
            cache_bytes: p.cache_bytes.max(model.cache_bytes),
            cores,
            launch: known(p.launch_ns, model.launch_ns),
            workgroup: model.workgroup_ns,
            factors: p.factors,
            prices: Prices::of(p),
        }
    }
    /// Where a core runs one workgroup after another: a load walks the lanes one by one (a nanosecond each, a vector as
    /// much as a word).
    fn in_turn(p: &DeviceProfile) -> Rates {
        let (model, cores, lanes) = (p.model(), f64::from(p.cores.max(1)), p.lanes());
        Rates {
            operations: known(p.gflops, model.operations * cores),
            accesses: cores / f64::from(lanes),
            passes: cores / f64::from(lanes),
            sector_bytes: 32.0 * cores,
            memory_bytes: known(p.gb_s, model.memory_bytes * cores),
            matrices: MATRICES,
            halving: HALVING,
            lanes: i64::from(lanes),
            schedulers: 1.0,
            model,
            cache_bytes: model.cache_bytes,
            cores,
            launch: model.launch_ns,
            workgroup: model.workgroup_ns,
            factors: p.factors,
            prices: Prices::of(p),
        }
    }
    /// The fraction of the device's peak that this many workgroups of `threads` threads reach, each thread with
    /// `results` independent results: the share of schedulers that have a subgroup, times the share of latency that
    /// other subgroups and independent results hide.
    pub fn busy_part(&self, workgroups: f64, threads: f64, results: f64) -> f64 {
        if self.model.lanes_a_core == 0 {
            return (workgroups / self.cores).clamp(1e-3, 1.0);
        }
        let each = workgroups * threads / (f64::from(self.model.lanes_a_core) * self.cores);
        let results = (results / INDEPENDENT).clamp(1.0, MOST_RESULTS / INDEPENDENT);
        let hidden = (each.max(1.0) / SUBGROUPS).sqrt() * results.powf(0.25);
        (each.min(1.0) * hidden.min(1.0)).max(1e-3)
    }
    /// By how much longer the busiest scheduler of the busiest core computes than all would if they shared alike.
    pub fn rounds(&self, workgroups: f64, threads: f64) -> f64 {
        if self.model.lanes_a_core == 0 {
            return 1.0;
        }
        let subgroups = (threads / self.lanes as f64).ceil().max(1.0);
        let longest = ((workgroups / self.cores).ceil() * subgroups / self.schedulers).ceil();
        longest * self.schedulers * self.cores / (workgroups.max(1.0) * subgroups)
    }
}
