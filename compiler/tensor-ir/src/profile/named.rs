//! Profiles by name, for compiling without the device.
//!
//! Limits, subgroup sizes and matrix shapes of [`GPUS`] are the values that wgpu reports with Mesa 26.2's drivers
//! (RADV, ANV, NVK); those of `hopper` and `apple` are public data. Cores, registers and rates come from a product in
//! the table of `devices`.

use super::{DeviceProfile, KnownDevice, Machine, MatrixShape, Nan, Quirks};

/// A GPU's row: what differs from [`DeviceProfile::baseline`].
struct Gpu {
    name: &'static str,
    /// The product, as [`KnownDevice::named`] has it.
    device: &'static str,
    driver: &'static str,
    subgroup: (u32, u32),
    shared_memory: u32,
    workgroup_size: [u32; 3],
    storage_buffers: u32,
    max_binding: u64,
    max_buffer: u64,
    immediates: u32,
    matrices: Matrices,
}

/// Rows, columns, depth, and the types of operands and results.
type Matrices = &'static [([u32; 3], &'static str, &'static str)];

/// AMD's WMMA (RDNA 3).
const WMMA: Matrices = &[([16, 16, 16], "f16", "f16"), ([16, 16, 16], "f16", "f32")];
/// Intel's DPAS at subgroups of 8 (Xe-HPG).
const DPAS_8: Matrices = &[([8, 8, 16], "f16", "f32")];
/// Intel's DPAS at subgroups of 16 (Xe2).
const DPAS_16: Matrices = &[([8, 16, 16], "f16", "f16"), ([8, 16, 16], "f16", "f32")];
/// NVIDIA's HMMA since Turing.
const HMMA: Matrices = &[
    ([16, 16, 16], "f16", "f16"),
    ([16, 8, 16], "f16", "f16"),
    ([16, 8, 8], "f16", "f16"),
    ([16, 16, 16], "f16", "f32"),
    ([16, 8, 16], "f16", "f32"),
    ([16, 8, 8], "f16", "f32"),
];
/// Apple's simdgroup matrices, as wgpu's Metal backend reports them.
const SIMDGROUP: Matrices = &[([8, 8, 8], "f32", "f32"), ([8, 8, 8], "f16", "f16"), ([8, 8, 8], "f16", "f32")];

/// Common values of the GPUs of one driver.
const RADV: Gpu = Gpu {
    name: "",
    device: "",
    driver: "radv",
    subgroup: (32, 64),
    shared_memory: 65536,
    workgroup_size: [1024, 1024, 1024],
    storage_buffers: 1_864_135,
    max_binding: (1 << 31) - 16,
    max_buffer: (1 << 31) - 1,
    immediates: 256,
    matrices: WMMA,
};
const ANV: Gpu = Gpu {
    driver: "intel open-source mesa driver",
    subgroup: (16, 32),
    shared_memory: 49152,
    storage_buffers: 85,
    matrices: DPAS_16,
    ..RADV
};
const NVK: Gpu = Gpu {
    driver: "nvidia",
    subgroup: (32, 32),
    shared_memory: 49152,
    workgroup_size: [1024, 1024, 64],
    storage_buffers: 524_288,
    max_buffer: 1 << 31,
    matrices: HMMA,
    ..RADV
};

const GPUS: &[Gpu] = &[
    Gpu { name: "navi21", device: "Radeon RX 6800", matrices: &[], ..RADV },
    Gpu { name: "navi31", device: "Radeon RX 7900 XTX", ..RADV },
    Gpu { name: "gfx1150", device: "Radeon 890M", ..RADV },
    Gpu { name: "dg2", device: "Arc A770M", subgroup: (8, 32), matrices: DPAS_8, ..ANV },
    Gpu { name: "bmg", device: "Arc B580", ..ANV },
    Gpu { name: "lnl", device: "Arc 140V", ..ANV },
    Gpu { name: "turing", device: "GeForce RTX 2080", ..NVK },
    Gpu { name: "ampere", device: "GeForce RTX 3090", ..NVK },
    Gpu { name: "ada", device: "GeForce RTX 4090", ..NVK },
    Gpu { name: "blackwell", device: "GeForce RTX 5090", ..NVK },
    // With NVIDIA's own driver: limits from vulkan.gpuinfo.org, bounded to what Weft has use for.
    Gpu {
        name: "hopper",
        device: "H100 SXM5",
        storage_buffers: 64,
        max_binding: (1 << 31) - 1,
        max_buffer: 1 << 40,
        ..NVK
    },
    // Limits from Apple's Metal feature set tables.
    Gpu {
        name: "apple",
        device: "Apple M2",
        driver: "metal",
        subgroup: (32, 32),
        shared_memory: 32768,
        storage_buffers: 31,
        max_binding: 1 << 30,
        max_buffer: 1 << 33,
        immediates: 4096,
        matrices: SIMDGROUP,
        ..RADV
    },
];

impl Gpu {
    fn profile(&self) -> DeviceProfile {
        let shape = |&(mnk, ab, cr): &([u32; 3], &str, &str)| MatrixShape { mnk, ab: ab.into(), cr: cr.into() };
        DeviceProfile {
            name: self.name.into(),
            subgroup: self.subgroup,
            f16: true,
            i16: true,
            shared_memory: self.shared_memory,
            max_invocations: 1024,
            max_workgroup_size: self.workgroup_size,
            max_storage_buffers: self.storage_buffers,
            max_binding: self.max_binding,
            max_buffer: self.max_buffer,
            immediates: self.immediates,
            matrix_shapes: self.matrices.iter().map(shape).collect(),
            ..DeviceProfile::baseline()
        }
        .with_driver(self.driver)
        .with_figures(KnownDevice::named(self.device))
    }
}

impl DeviceProfile {
    /// WebGPU's guaranteed limits, no optional feature.
    pub fn baseline() -> DeviceProfile {
        DeviceProfile {
            name: "baseline".into(),
            machine: Machine::Gpu,
            subgroup: (0, 0),
            f16: false,
            i16: false,
            shared_memory: 16384,
            max_invocations: 256,
            max_workgroup_size: [256, 256, 64],
            max_workgroups: 65535,
            max_storage_buffers: 8,
            max_binding: 128 << 20,
            max_buffer: 256 << 20,
            immediates: 0,
            registers: 0,
            cores: 16,
            prefers_nhwc: true,
            packed_channels: 0,
            driver: String::new(),
            quirks: Quirks::default(),
            matrix_shapes: vec![],
            gflops: 0.0,
            gb_s: 0.0,
            cache_gb_s: 0.0,
            workgroup_gb_s: 0.0,
            matrix_gflops: 0.0,
            subgroup_gops: 0.0,
            launch_ns: 0.0,
            cache_bytes: 0,
            nan: Nan::Keep,
            driver_version: String::new(),
            factors: super::CostFactors::default(),
            processor: String::new(),
        }
    }
    /// A browser on a large graphics card: what WebGPU offers there. Subgroups may have any size that it allows; there
    /// are neither matrices nor 16-bit integers.
    pub fn webgpu() -> DeviceProfile {
        DeviceProfile {
            name: "webgpu".into(),
            subgroup: (4, 128),
            f16: true,
            shared_memory: 32768,
            max_storage_buffers: 10,
            ..DeviceProfile::baseline()
        }
        .with_figures(KnownDevice::named("Radeon RX 7900 XTX"))
    }
    /// Mesa's lavapipe: 8 lanes, f16, one CPU core per unit.
    pub fn lavapipe() -> DeviceProfile {
        DeviceProfile {
            name: "lavapipe".into(),
            machine: Machine::SoftwareDriver,
            subgroup: (8, 8),
            f16: true,
            i16: true,
            shared_memory: 32768,
            max_invocations: 1024,
            max_workgroup_size: [1024, 1024, 1024],
            max_storage_buffers: 32,
            max_buffer: 2 << 30,
            immediates: 128,
            cores: 2,
            ..DeviceProfile::baseline()
        }
        .with_driver("lavapipe-22")
    }
    /// SwiftShader: 4 lanes, no f16, few buffers.
    pub fn swiftshader() -> DeviceProfile {
        DeviceProfile {
            name: "swiftshader".into(),
            machine: Machine::SoftwareDriver,
            subgroup: (4, 4),
            shared_memory: 32768,
            max_storage_buffers: 10,
            max_binding: 1 << 30,
            max_buffer: 1 << 30,
            immediates: 128,
            cores: 2,
            ..DeviceProfile::baseline()
        }
        .with_driver("swiftshader")
    }
    /// A processor of so many cores with this register tile: workgroups of one thread, no workgroup memory, no limits
    /// on buffers.
    pub fn processor(cores: u32, register_tile: [u32; 2]) -> DeviceProfile {
        DeviceProfile {
            name: "cpu".into(),
            machine: Machine::Processor { register_tile },
            f16: true,
            shared_memory: 0,
            max_invocations: 1,
            max_workgroup_size: [1; 3],
            max_workgroups: i32::MAX as u32,
            max_storage_buffers: 1 << 20,
            max_binding: 1 << 40,
            max_buffer: 1 << 40,
            immediates: 1 << 16,
            cores: cores.max(1),
            ..DeviceProfile::baseline()
        }
    }
    /// An NVIDIA data-centre GPU of the Hopper generation.
    pub fn hopper() -> DeviceProfile {
        gpu("hopper")
    }
    /// An Apple GPU through Metal.
    pub fn apple() -> DeviceProfile {
        gpu("apple")
    }
    /// A profile by name.
    pub fn named(name: &str) -> Option<DeviceProfile> {
        Self::all().into_iter().find(|p| p.name == name)
    }
    /// Every named profile.
    pub fn all() -> Vec<DeviceProfile> {
        let plain = [Self::baseline(), Self::webgpu(), Self::lavapipe(), Self::swiftshader()];
        plain.into_iter().chain(GPUS.iter().map(Gpu::profile)).collect()
    }
}

/// The row of that name.
fn gpu(name: &str) -> DeviceProfile {
    GPUS.iter().find(|g| g.name == name).map_or_else(DeviceProfile::baseline, Gpu::profile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_rows_are_whole() {
        let all = DeviceProfile::all();
        for p in &all {
            assert_eq!(all.iter().filter(|q| q.name == p.name).count(), 1, "{}", p.name);
            assert_eq!(DeviceProfile::named(&p.name).as_ref(), Some(p));
            assert!(p.cores > 0 && p.max_workgroup_size.iter().all(|&n| n > 0 && n <= p.max_invocations));
            assert!(p.subgroup.0 <= p.subgroup.1 && p.max_binding <= p.max_buffer + 15, "{}", p.name);
        }
        for g in GPUS {
            let (p, k) = (g.profile(), KnownDevice::named(g.device).expect("a row"));
            assert_eq!(
                (p.cores, p.gflops, p.gb_s, p.registers),
                (k.cores, k.gflops, k.gb_s, k.registers),
                "{}",
                g.name
            );
            assert!(p.gflops > 0.0 && p.registers >= 128, "{}", g.name);
        }
        assert_eq!((DeviceProfile::hopper().cores, DeviceProfile::apple().driver.as_str()), (132, "metal"));
    }
}
