//! What a device can do: a plain value, used by fusion, layout, mixed precision and schedules.
//!
//! [`KnownDevice`] is the one table of the figures that makers publish (cores, clocks, memory; found by PCI id or
//! name). Named profiles take their figures from it. So do devices at hand, unless the driver counts its cores itself
//! (`runtime-gpu/src/counted_cores.rs`). A figure that neither gives is measured once and kept in the user's cache
//! folder. `weft devices` prints where each figure comes from.

mod devices;
mod machine;
mod named;
pub mod quirks;

pub use devices::KnownDevice;
pub use machine::{Machine, MachineModel, OPERATIONS_A_CORE};
pub use quirks::{Quirk, Quirks};

/// A shape of matrices that a subgroup multiplies at once: `C[m, n] += A[m, k] * B[k, n]`.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct MatrixShape {
    /// Rows, columns, depth.
    pub mnk: [u32; 3],
    /// Component type of A and B, such as `f16`.
    pub ab: String,
    /// Component type of C and the result.
    pub cr: String,
}

crate::attr_enum! {
    /// How minimum and maximum treat NaN, and the ops that are made of them (Relu, Clip, MaxPool, ReduceMax, Sign).
    #[derive(Default)]
    pub enum Nan {
        /// It stays NaN.
        #[default]
        Keep = "keep",
        /// It may be lost: kernels take the device's own functions, which are cheaper.
        Fast = "fast",
    }
}

/// How two halves are taken from a word of 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HalfWords {
    /// By 16-bit integers: Mesa's compiler for NVIDIA recognises the word behind them. It joins loads of neighbouring
    /// words, but not two neighbouring 8-byte loads of four halves.
    Integers,
    /// By the conversion to f32 and back, which Mesa's compilers for AMD and Intel leave out.
    Conversions,
}

/// Limits and features of a device. Filled in by the runtime from an adapter, or taken by name from
/// [`DeviceProfile::named`].
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct DeviceProfile {
    /// Name of the device or of the profile.
    pub name: String,
    /// The machine that runs kernels.
    #[serde(flatten)]
    pub machine: Machine,
    /// Smallest and largest subgroup size; `(0, 0)` without subgroup operations.
    pub subgroup: (u32, u32),
    /// Native f16 arithmetic and storage in shaders.
    pub f16: bool,
    /// 16-bit integers in shaders that can be bit-cast to f16. Vulkan only: naga 30 cannot write it in HLSL.
    #[serde(default)]
    pub i16: bool,
    /// Bytes of workgroup memory.
    pub shared_memory: u32,
    /// Threads of a workgroup.
    pub max_invocations: u32,
    /// Threads of a workgroup along each axis.
    pub max_workgroup_size: [u32; 3],
    /// Workgroups of a dispatch along each axis.
    pub max_workgroups: u32,
    /// Storage buffers of one kernel.
    pub max_storage_buffers: u32,
    /// Bytes of one storage binding.
    pub max_binding: u64,
    /// Bytes of one buffer.
    pub max_buffer: u64,
    /// Bytes of immediates; 0 without them.
    pub immediates: u32,
    /// 32-bit registers that a thread may have, in the smallest subgroup where subgroups divide a register file; 0
    /// where that is not known.
    #[serde(default)]
    pub registers: u32,
    /// Compute units (a guess if the API does not report them).
    pub cores: u32,
    /// Whether NHWC kernels are preferred.
    pub prefers_nhwc: bool,
    /// Channels of a group if packed layouts are preferred (4, 8 or 16); 0 if they are not.
    #[serde(default)]
    pub packed_channels: u32,
    /// Driver family for choices that PERFORMANCE depends on: `lavapipe-22`, `lavapipe-26`, `swiftshader`, `nvidia` ...
    /// ; empty when unknown.
    pub driver: String,
    /// The driver's quirks that are in force.
    #[serde(default)]
    pub quirks: Quirks,
    /// Shapes of the matrices that a subgroup multiplies at once; none without cooperative matrices.
    #[serde(default)]
    pub matrix_shapes: Vec<MatrixShape>,
    /// Peak rate of f32 multiplications and additions outside of matrix units, in 10^9 a second; 0 where it is not
    /// known.
    #[serde(default)]
    pub gflops: f64,
    /// Peak rate of device memory in 10^9 bytes a second; 0 where it is not known.
    #[serde(default)]
    pub gb_s: f64,
    /// Rate at which the last-level cache delivers what it holds, in 10^9 bytes a second; 0 where it is not known.
    #[serde(default)]
    pub cache_gb_s: f64,
    /// Rate at which workgroup memory delivers, without conflicts of banks, in 10^9 bytes a second; 0 where it is not
    /// known.
    #[serde(default)]
    pub workgroup_gb_s: f64,
    /// Peak rate of multiplications and additions of f16 by matrix units, in 10^9 a second; 0 where it is not known.
    #[serde(default)]
    pub matrix_gflops: f64,
    /// Rate of subgroup reductions: reduced values (one per lane) in 10^9 a second; 0 where that is not known.
    #[serde(default)]
    pub subgroup_gops: f64,
    /// Nanoseconds of a dispatch that depends on the one before; 0 where that is not known.
    #[serde(default)]
    pub launch_ns: f64,
    /// Bytes of the last-level cache, at least; 0 where that is not known.
    #[serde(default)]
    pub cache_bytes: u64,
    /// How NaN is treated. This is a wish of the user; it is here because code generators read it.
    #[serde(default)]
    pub nan: Nan,
    /// Version of the driver, as it calls itself; empty for a named profile.
    #[serde(default)]
    pub driver_version: String,
    /// Model of the processor that a software device runs on; empty for others and for a named profile.
    #[serde(default)]
    pub processor: String,
    /// Factors on the parts of the estimate, by times measured on the device.
    #[serde(default, skip_serializing_if = "CostFactors::are_one")]
    pub factors: CostFactors,
}

/// Factors on the parts of an estimate ([`Cost`](crate::schedule::estimate::Cost)); 1 where nothing was measured.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[allow(missing_docs)]
pub struct CostFactors {
    pub arithmetic: f64,
    pub issue: f64,
    pub shared_passes: f64,
    pub sectors: f64,
    pub waves: f64,
    pub launch: f64,
}

impl Default for CostFactors {
    fn default() -> CostFactors {
        CostFactors::of_array([1.0; CostFactors::COUNT])
    }
}

impl CostFactors {
    /// How many there are.
    pub const COUNT: usize = 6;
    /// In the order of [`Cost::parts`](crate::schedule::estimate::Cost::parts).
    pub fn of_array(
        [arithmetic, issue, shared_passes, sectors, waves, launch]: [f64; CostFactors::COUNT],
    ) -> CostFactors {
        CostFactors { arithmetic, issue, shared_passes, sectors, waves, launch }
    }
    /// The inverse of [`CostFactors::of_array`].
    pub fn to_array(self) -> [f64; CostFactors::COUNT] {
        [self.arithmetic, self.issue, self.shared_passes, self.sectors, self.waves, self.launch]
    }
    /// Whether the estimate stays as it is.
    pub fn are_one(&self) -> bool {
        *self == CostFactors::default()
    }
}

/// Quirks with which listed matrix shapes are not used.
const MATRIX_QUIRKS: [&Quirk; 3] = [&quirks::EMULATES_MATRICES, &quirks::SLOW_MATRICES, &quirks::WRONG_MATRICES];
/// Registers of a thread that are few.
const FEW_REGISTERS: i64 = 128;
/// Rounds of loops after which a thread of an old llvmpipe ends: its counter of 16 bits is of the thread, not of a
/// loop.
const MOST_ROUNDS: u64 = 1 << 16;

impl DeviceProfile {
    /// The key of measured times: device, driver with its version, the processor of a software device, and the quirks
    /// that are switched off.
    pub fn identity(&self) -> String {
        let own = Quirks::of(&self.driver, &self.name);
        let off: Vec<&str> = own.iter().filter(|q| !self.quirks.has(q)).map(|q| q.name).collect();
        let device = [&self.name, &self.driver, &self.driver_version, &self.processor].map(String::as_str).join(" | ");
        if off.is_empty() { device } else { format!("{device} | without {}", off.join(", ")) }
    }
    /// This profile with a driver of this family, and its quirks.
    pub fn with_driver(self, family: &str) -> DeviceProfile {
        let quirks = Quirks::of(family, &self.name);
        DeviceProfile { driver: family.into(), quirks, ..self }
    }
    /// The bounds of short loops with barriers are hidden from the driver's compiler, so that it cannot unroll these
    /// loops. `matrices`: the loop has products on matrix units.
    pub fn keeps_loops(&self, matrices: bool) -> bool {
        self.quirks.has(&quirks::UNROLLS_LOOPS) || !matrices && self.quirks.has(&quirks::UNROLLS_SCALAR_LOOPS)
    }
    /// The same for loops without barriers.
    pub fn keeps_loops_without_barriers(&self) -> bool {
        self.quirks.has(&quirks::UNROLLS_LOOPS_WITHOUT_BARRIERS)
    }
    /// Bytes of a matrix operand's row that are loaded from workgroup memory at once.
    pub fn matrix_load_bytes(&self) -> i64 {
        if self.quirks.has(&quirks::LOADS_MATRICES_BY_8_BYTES) { 8 } else { 16 }
    }
    /// How to take halves from 32-bit words without an extra instruction; `None` if no way is known. Memory of halves
    /// that is only copied is then declared as words.
    pub fn half_words(&self) -> Option<HalfWords> {
        match () {
            () if !self.f16 => None,
            () if self.i16 && self.quirks.has(&quirks::HALVES_BY_INTEGERS) => Some(HalfWords::Integers),
            () if self.quirks.has(&quirks::HALVES_BY_CONVERSION) => Some(HalfWords::Conversions),
            () => None,
        }
    }
    /// Largest number of loop iterations of a thread; `None` without a limit.
    pub fn most_rounds(&self) -> Option<u64> {
        self.quirks.has(&quirks::ENDS_LONG_LOOPS).then_some(MOST_ROUNDS)
    }
    /// The shapes of f16 matrices that add up in f32, those with the most work of one operation first.
    ///
    /// # Errors
    /// Why the matrix shapes that the device lists are not used.
    pub fn matrix_units(&self) -> Result<Vec<&MatrixShape>, &'static str> {
        let mut all: Vec<&MatrixShape> = self.matrix_shapes.iter().filter(|s| s.ab == "f16" && s.cr == "f32").collect();
        all.sort_by_key(|s| std::cmp::Reverse(s.mnk.iter().product::<u32>()));
        let denied = MATRIX_QUIRKS.into_iter().find(|q| self.quirks.has(q));
        match denied {
            Some(q) if !all.is_empty() => Err(q.what),
            _ if self.subgroup.1 == 0 && !all.is_empty() => {
                Err("matrices are of subgroups, which the device has none of")
            }
            _ => Ok(all),
        }
    }
    /// The device has matrix units, and no quirk keeps them from being used.
    pub fn has_matrix_units(&self) -> bool {
        self.matrix_units().is_ok_and(|all| !all.is_empty())
    }
    /// Products of f16 operands run on matrix units.
    pub fn multiplies_matrices(&self) -> bool {
        self.model().product_units && self.has_matrix_units()
    }
    /// Products of four bytes and their sum are one operation.
    pub fn multiplies_bytes(&self) -> bool {
        self.model().mixes_bytes || self.model().product_units && self.quirks.has(&quirks::MULTIPLIES_BYTES)
    }
    /// This profile with a product's figures, as far as they are known.
    pub fn with_figures(self, known: Option<KnownDevice>) -> DeviceProfile {
        let Some(k) = known else { return self };
        let registers = if k.registers > 0 { k.registers } else { self.registers };
        DeviceProfile { cores: k.cores, gflops: k.gflops, gb_s: k.gb_s, cache_bytes: k.cache_bytes, registers, ..self }
    }
    /// This profile, limited so that `device` can run the kernels. Values that steer choices are this profile's (cores,
    /// layouts, driver family, the kind of machine); limits are the smaller ones; features are those that
    /// both have. If both have subgroups, their sizes are the device's, since kernels run on its lanes.
    pub fn limited_to(&self, device: &DeviceProfile) -> DeviceProfile {
        let [x, y, z] = self.max_workgroup_size;
        let [dx, dy, dz] = device.max_workgroup_size;
        let both_have_subgroups = self.subgroup.0 > 0 && device.subgroup.0 > 0;
        DeviceProfile {
            name: format!("{} on {}", self.name, device.name),
            machine: self.machine,
            subgroup: if both_have_subgroups { device.subgroup } else { (0, 0) },
            f16: self.f16 && device.f16,
            i16: self.i16 && device.i16,
            shared_memory: self.shared_memory.min(device.shared_memory),
            max_invocations: self.max_invocations.min(device.max_invocations),
            max_workgroup_size: [x.min(dx), y.min(dy), z.min(dz)],
            max_workgroups: self.max_workgroups.min(device.max_workgroups),
            max_storage_buffers: self.max_storage_buffers.min(device.max_storage_buffers),
            max_binding: self.max_binding.min(device.max_binding),
            max_buffer: self.max_buffer.min(device.max_buffer),
            immediates: self.immediates.min(device.immediates),
            registers: self.registers,
            cores: self.cores,
            prefers_nhwc: self.prefers_nhwc,
            packed_channels: self.packed_channels,
            driver: self.driver.clone(),
            quirks: self.quirks.limited_to(&device.quirks),
            matrix_shapes: self.matrix_shapes.iter().filter(|s| device.matrix_shapes.contains(s)).cloned().collect(),
            gflops: self.gflops,
            gb_s: self.gb_s,
            cache_gb_s: self.cache_gb_s,
            workgroup_gb_s: self.workgroup_gb_s,
            matrix_gflops: self.matrix_gflops,
            subgroup_gops: self.subgroup_gops,
            launch_ns: self.launch_ns,
            cache_bytes: self.cache_bytes,
            nan: self.nan,
            driver_version: device.driver_version.clone(),
            factors: CostFactors::default(),
            processor: device.processor.clone(),
        }
    }
    /// Why kernels made for this profile do not suit `device`: it cannot run them, or is of another kind, so that
    /// kernels of its own are better. `None` if they do. A profile without a driver family suits devices of any kind.
    pub fn unsuited_to(&self, device: &DeviceProfile) -> Option<&'static str> {
        let family = |p: &DeviceProfile| p.driver.split('-').next().unwrap_or_default().to_string();
        let limited = self.limited_to(device);
        let limits = |p: &DeviceProfile| {
            let sizes = [p.shared_memory, p.max_invocations, p.max_workgroups, p.max_storage_buffers, p.immediates];
            (sizes, p.max_workgroup_size, p.max_binding, p.max_buffer)
        };
        match () {
            () if self.machine.register_tile() != device.machine.register_tile() => {
                Some("its processor has other registers")
            }
            () if self.machine.register_tile().is_some() => None,
            () if !self.driver.is_empty() && (family(self), self.machine) != (family(device), device.machine) => {
                Some("it has a driver of another family")
            }
            () if (self.f16, self.i16) != (limited.f16, limited.i16) => Some("it lacks a type of 16 bits"),
            () if self.subgroup != limited.subgroup => Some("its subgroups have other sizes"),
            () if self.matrix_shapes != limited.matrix_shapes => Some("it lacks shapes of matrices"),
            () if self.quirks != limited.quirks => Some("its driver has a quirk that the kernels do not avoid"),
            () if limits(self) != limits(&limited) => Some("its limits are smaller"),
            () => None,
        }
    }
    /// The figures of its kind of machine.
    pub fn model(&self) -> &'static MachineModel {
        self.machine.model()
    }
    /// True if compilers choose subgroups of `least` to `most` lanes, `most` up to 32, that share a register file of
    /// fixed size: half the lanes, twice the registers per thread. Intel's GPUs do.
    fn subgroups_divide_registers((least, most): (u32, u32)) -> bool {
        least < most && most <= 32
    }
    /// `registers` of a device without a published figure, from its range of subgroup sizes: 0 without subgroups, 128
    /// in the smallest subgroup if subgroups share a register file, else 255.
    pub fn usual_registers(subgroup: (u32, u32)) -> u32 {
        match subgroup {
            (_, 0) => 0,
            range if Self::subgroups_divide_registers(range) => 128,
            _ => 255,
        }
    }
    /// 32-bit registers of a thread in the largest subgroup; 0 if not known.
    pub fn registers_of_largest_subgroup(&self) -> i64 {
        let (least, largest) = (i64::from(self.subgroup.0), i64::from(self.subgroup.1));
        let all = i64::from(self.registers);
        if Self::subgroups_divide_registers(self.subgroup) { all * least / largest } else { all }
    }
    /// A thread of the largest subgroup has fewer registers than the tiles of products want.
    pub fn has_few_registers(&self) -> bool {
        (1..FEW_REGISTERS).contains(&self.registers_of_largest_subgroup())
    }
    /// The subgroup size when it is fixed.
    pub fn fixed_subgroup(&self) -> Option<u32> {
        (self.subgroup.0 > 0 && self.subgroup.0 == self.subgroup.1).then_some(self.subgroup.0)
    }
    /// Lanes of a subgroup: its fixed size, or the usual one of the machine.
    pub fn lanes(&self) -> u32 {
        self.fixed_subgroup().unwrap_or(self.model().lanes).max(1)
    }
    /// Bytes of one slice of a value that is larger than one binding: the largest multiple of 1024 (of 16 below that)
    /// that fits a binding.
    pub fn slice_bytes(&self) -> u64 {
        let unit = if self.max_binding >= 1024 { 1024 } else { 16 };
        (self.max_binding / unit * unit).max(16)
    }
    /// Bindings that a value of `bytes` takes: 1, or more when it is larger than one binding.
    pub fn bindings_for(&self, bytes: u64) -> u32 {
        if bytes <= self.max_binding { 1 } else { bytes.div_ceil(self.slice_bytes()).max(1) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_on_a_device_asks_for_no_more_than_the_device_has() {
        let device = DeviceProfile::swiftshader();
        let p = DeviceProfile::hopper().limited_to(&device);
        assert_eq!((p.subgroup, p.f16, p.max_invocations), ((4, 4), false, 256));
        assert_eq!((p.max_workgroup_size, p.max_storage_buffers), ([256, 256, 64], 10));
        assert_eq!((p.machine, p.cores, p.driver.as_str()), (Machine::Gpu, 132, "nvidia"));
        assert_eq!(p.limited_to(&device), DeviceProfile { name: p.name.clone() + " on swiftshader", ..p.clone() });
        assert_eq!(DeviceProfile::baseline().limited_to(&device).subgroup, (0, 0));
    }

    #[test]
    fn kernels_suit_devices_of_their_kind_that_have_what_they_need() {
        let named = |name: &str| DeviceProfile::named(name).expect("a profile");
        let reason = |made: &DeviceProfile, device: &DeviceProfile| made.unsuited_to(device);
        let (ada, ampere, lavapipe) = (named("ada"), named("ampere"), DeviceProfile::lavapipe());
        for own in DeviceProfile::all() {
            assert_eq!(reason(&own, &DeviceProfile { name: "here".into(), gflops: 1.0, ..own.clone() }), None);
        }
        assert_eq!(reason(&ada, &ampere), None);
        assert_eq!(reason(&ada, &named("navi31")), Some("it has a driver of another family"));
        assert_eq!(reason(&lavapipe, &lavapipe.clone().with_driver("lavapipe-26")), None);
        let newer = lavapipe.clone().with_driver("lavapipe-26");
        assert_eq!(reason(&newer, &lavapipe), Some("its driver has a quirk that the kernels do not avoid"));
        assert_eq!(
            reason(&DeviceProfile { subgroup: (16, 16), ..ada.clone() }, &ada),
            Some("its subgroups have other sizes")
        );
        assert_eq!(
            reason(&ada, &DeviceProfile { matrix_shapes: vec![], ..ada.clone() }),
            Some("it lacks shapes of matrices")
        );
        assert_eq!(reason(&ada, &DeviceProfile { f16: false, ..ada.clone() }), Some("it lacks a type of 16 bits"));
        assert_eq!(reason(&ada, &DeviceProfile { shared_memory: 1, ..ada.clone() }), Some("its limits are smaller"));
        assert_eq!(reason(&DeviceProfile::baseline(), &ada), None);
        let [wide, narrow] = [[6, 32], [6, 16]].map(|tile| DeviceProfile::processor(8, tile));
        assert_eq!(reason(&wide, &DeviceProfile { cores: 2, ..wide.clone() }), None);
        assert_eq!(reason(&wide, &narrow), Some("its processor has other registers"));
        assert_eq!(reason(&lavapipe, &wide), Some("its processor has other registers"));
    }
}
