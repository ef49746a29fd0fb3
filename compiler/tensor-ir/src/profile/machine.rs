//! Kinds of machines that run kernels, and the figures by which kinds differ.
//!
//! Rules, prices and runtimes read a figure of [`MachineModel`] and never ask for the kind. So a new kind is a variant
//! of [`Machine`] and a row here, and no rule is edited. Figures of a single device are fields of
//! [`DeviceProfile`](super::DeviceProfile).

use serde::{Deserialize, Serialize};

/// f32 operations per nanosecond of one core of a middling GPU. Used for a device with an unknown rate; and for a
/// device with an unknown number of cores, to compute the cores from a measured rate.
pub const OPERATIONS_A_CORE: f64 = 192.0;

/// A machine that runs kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "SavedMachine", into = "SavedMachine")]
pub enum Machine {
    /// A GPU.
    Gpu,
    /// A driver that emulates a GPU on a CPU (lavapipe, SwiftShader, WARP).
    SoftwareDriver,
    /// A processor that runs kernels itself, as loops over vectors and register tiles.
    Processor {
        /// Rows and columns of the tile of multiply-adds that a core has in vector registers ([`Intrinsic::tile`]).
        ///
        /// [`Intrinsic::tile`]: crate::tir::intrinsic::Intrinsic::tile
        register_tile: [u32; 2],
    },
}

/// The figures of a kind of machine.
#[derive(Debug)]
pub struct MachineModel {
    /// A workgroup has threads, and a kernel is a shader. Otherwise a workgroup is a task of one thread, whose loops
    /// are vectors and register tiles.
    pub shaders: bool,
    /// Kernels run on the host's cores and in its memory. CPU time measures them, and they are given less work when
    /// they are measured.
    pub on_host: bool,
    /// The driver compiles a kernel when it is first dispatched.
    pub compiles_at_dispatch: bool,

    /// Lanes of a core, which has several subgroups at work so that they hide each other's latency; 0 where a core runs
    /// one workgroup after another.
    pub lanes_a_core: u32,
    /// Lanes of a subgroup where the device does not say.
    pub lanes: u32,
    /// Computation and memory access of a kernel overlap.
    pub overlaps: bool,
    /// Workgroup memory is memory of its own, in banks: tiles of products go through it. Otherwise it is a part of the
    /// caches, and a subgroup has its tile in registers.
    pub workgroup_memory: bool,
    /// Products of matrices and of packed bytes, where the device has them, are operations of their own. Otherwise the
    /// driver makes vector operations of them.
    pub product_units: bool,
    /// Products of bytes and their sums are few operations, for a u8 and an i8 too.
    pub mixes_bytes: bool,
    /// A subgroup combines the values of its lanes by halving. Otherwise the driver takes lane after lane.
    pub halves_subgroups: bool,
    /// Threads that share a result or a row may be more than one subgroup. Otherwise a workgroup is a loop on one core,
    /// and more than one subgroup of it brings nothing but barriers.
    pub wide_teams: bool,

    /// Threads of an elementwise workgroup, if there is work for so many.
    pub threads: u32,
    /// Threads of a workgroup whose threads have a row each, at most.
    pub row_threads: u32,
    /// Threads for each core that must remain if a thread takes several windows.
    pub threads_a_core: u32,
    /// Iterations of a reduction that are unrolled where nobody chooses, at most.
    pub unrolled: u32,

    /// Fraction by which the candidates of a rule must be cheaper than those of earlier rules: smaller differences are
    /// below the accuracy of the estimate.
    pub least_gain: f64,
    /// f32 operations per nanosecond of a core, for a device without a rate.
    pub operations: f64,
    /// Bytes of device memory per nanosecond and core, for a device without a rate.
    pub memory_bytes: f64,
    /// Bytes of the last-level cache that results pass through from kernel to kernel, at least.
    pub cache_bytes: u64,
    /// Nanoseconds of a dispatch that depends on the one before.
    pub launch_ns: f64,
    /// Nanoseconds of a workgroup on its core.
    pub workgroup_ns: f64,
}

/// 128 threads hide latency. Up to 9 iterations are unrolled: compilers would hold all loads of a larger window at
/// once. Rates are a middling GPU's; a dependent dispatch takes 2 to 5 us.
const GPU: MachineModel = MachineModel {
    shaders: true,
    on_host: false,
    compiles_at_dispatch: false,
    lanes_a_core: 128,
    lanes: 8,
    overlaps: true,
    workgroup_memory: true,
    product_units: true,
    mixes_bytes: false,
    halves_subgroups: true,
    wide_teams: true,
    threads: 128,
    row_threads: 32,
    threads_a_core: 256,
    unrolled: 9,
    least_gain: 0.05,
    operations: OPERATIONS_A_CORE,
    memory_bytes: 6.0,
    cache_bytes: 2 << 20,
    launch_ns: 3_000.0,
    workgroup_ns: 10.0,
};

/// A workgroup is a loop on one core, with a fixed price: 64 threads share it, more wait at barriers. Loops run the
/// driver's own code for every lane: on lavapipe a depthwise 5x5 convolution takes four times as long with loops. Rates
/// were measured on lavapipe.
const SOFTWARE_DRIVER: MachineModel = MachineModel {
    shaders: true,
    on_host: true,
    compiles_at_dispatch: true,
    lanes_a_core: 0,
    lanes: 8,
    overlaps: false,
    workgroup_memory: false,
    product_units: false,
    mixes_bytes: false,
    halves_subgroups: false,
    wide_teams: false,
    threads: 64,
    row_threads: 8,
    threads_a_core: 64,
    unrolled: 25,
    least_gain: 0.05,
    operations: 32.0,
    memory_bytes: 12.0,
    cache_bytes: 0,
    launch_ns: 20_000.0,
    workgroup_ns: 90.0,
};

/// 2 us to hand a kernel to the threads and wait for them, 100 ns a task. Operations are in register tiles, in
/// portable code. Prices were fitted to the kernels of all rules alike, so the least one counts.
const PROCESSOR: MachineModel = MachineModel {
    shaders: false,
    compiles_at_dispatch: false,
    lanes: 1,
    mixes_bytes: true,
    least_gain: 0.0,
    operations: 24.0,
    launch_ns: 2_000.0,
    workgroup_ns: 100.0,
    ..SOFTWARE_DRIVER
};

impl Machine {
    /// The figures of its kind.
    pub fn model(self) -> &'static MachineModel {
        match self {
            Machine::Gpu => &GPU,
            Machine::SoftwareDriver => &SOFTWARE_DRIVER,
            Machine::Processor { .. } => &PROCESSOR,
        }
    }
    /// Rows and columns of a core's register tile, where kernels have such tiles.
    pub fn register_tile(self) -> Option<[u32; 2]> {
        if let Machine::Processor { register_tile } = self { Some(register_tile) } else { None }
    }
}

/// A machine as two fields of a saved profile. Files of earlier versions have the same two.
#[derive(Serialize, Deserialize)]
struct SavedMachine {
    /// Kernels run on a CPU.
    software: bool,
    /// `[0, 0]` if the machine has none.
    #[serde(default)]
    register_tile: [u32; 2],
}

impl From<SavedMachine> for Machine {
    fn from(saved: SavedMachine) -> Machine {
        match saved {
            SavedMachine { register_tile, .. } if register_tile != [0, 0] => Machine::Processor { register_tile },
            SavedMachine { software: true, .. } => Machine::SoftwareDriver,
            SavedMachine { .. } => Machine::Gpu,
        }
    }
}

impl From<Machine> for SavedMachine {
    fn from(machine: Machine) -> SavedMachine {
        let register_tile = machine.register_tile().unwrap_or_default();
        SavedMachine { software: machine.model().on_host, register_tile }
    }
}
