//! Profiles by name: devices that need not be here.
//!
//! Limits, subgroup sizes and matrix shapes of [`GPUS`] are what wgpu reports with Mesa 26.2's drivers (RADV, ANV, NVK), cores and
//! rates what the makers publish; those of `hopper` and `apple` are public data throughout.

use super::{DeviceProfile, MatrixShape};

/// A GPU's row: what differs from [`DeviceProfile::baseline`].
struct Gpu {
    name: &'static str,
    driver: &'static str,
    subgroup: (u32, u32),
    shared_memory: u32,
    workgroup_size: [u32; 3],
    storage_buffers: u32,
    max_binding: u64,
    max_buffer: u64,
    immediates: u32,
    /// Of a thread: AMD's RDNA ISA guides (256), Intel's 128 registers of 16 lanes (of 8 on Xe-HPG), NVIDIA's CUDA guide (255).
    registers: u32,
    matrices: Matrices,
    cores: u32,
    gflops: f64,
    gb_s: f64,
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

/// What GPUs of one driver have in common.
const RADV: Gpu = Gpu {
    name: "",
    driver: "radv",
    subgroup: (32, 64),
    shared_memory: 65536,
    workgroup_size: [1024, 1024, 1024],
    storage_buffers: 1_864_135,
    max_binding: (1 << 31) - 16,
    max_buffer: (1 << 31) - 1,
    immediates: 256,
    registers: 256,
    matrices: WMMA,
    cores: 0,
    gflops: 0.0,
    gb_s: 0.0,
};
const ANV: Gpu = Gpu {
    driver: "intel open-source mesa driver",
    subgroup: (16, 32),
    shared_memory: 49152,
    storage_buffers: 85,
    registers: 128,
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
    registers: 255,
    matrices: HMMA,
    ..RADV
};

const GPUS: &[Gpu] = &[
    // Radeon RX 6800 (RDNA 2): AMD's product page.
    Gpu { name: "navi21", matrices: &[], cores: 60, gflops: 16_170.0, gb_s: 512.0, ..RADV },
    // Radeon RX 7900 XTX (RDNA 3): AMD's product page.
    Gpu { name: "navi31", cores: 96, gflops: 61_400.0, gb_s: 960.0, ..RADV },
    // Radeon 890M (RDNA 3.5) at 2.9 GHz with LPDDR5X-7500: AMD's page of the Ryzen AI 9 HX 370.
    Gpu { name: "gfx1150", cores: 16, gflops: 11_880.0, gb_s: 120.0, ..RADV },
    // Arc A770M (Xe-HPG) at 1.65 GHz: Intel's product page.
    Gpu { name: "dg2", subgroup: (8, 32), matrices: DPAS_8, cores: 32, gflops: 13_520.0, gb_s: 512.0, ..ANV },
    // Arc B580 (Xe2) at 2.67 GHz: Intel's product page.
    Gpu { name: "bmg", cores: 20, gflops: 13_670.0, gb_s: 456.0, ..ANV },
    // Arc 140V (Xe2) at 2.05 GHz with LPDDR5X-8533: Intel's page of the Core Ultra 9 288V.
    Gpu { name: "lnl", cores: 8, gflops: 4_200.0, gb_s: 136.5, ..ANV },
    // GeForce RTX 2080 (TU104): NVIDIA Turing GPU Architecture, 2018.
    Gpu { name: "turing", cores: 46, gflops: 10_070.0, gb_s: 448.0, ..NVK },
    // GeForce RTX 3090 (GA102): NVIDIA Ampere GA102 GPU Architecture, 2020.
    Gpu { name: "ampere", cores: 82, gflops: 35_580.0, gb_s: 936.0, ..NVK },
    // GeForce RTX 4090 (AD102): NVIDIA Ada GPU Architecture, 2022.
    Gpu { name: "ada", cores: 128, gflops: 82_580.0, gb_s: 1008.0, ..NVK },
    // GeForce RTX 5090 (GB202): NVIDIA RTX Blackwell GPU Architecture, 2025.
    Gpu { name: "blackwell", cores: 170, gflops: 104_800.0, gb_s: 1792.0, ..NVK },
    // H100 SXM5 with NVIDIA's own driver: NVIDIA H100 Tensor Core GPU Architecture, 2022; limits from vulkan.gpuinfo.org, bounded to
    // what Weft has use for.
    Gpu {
        name: "hopper",
        storage_buffers: 64,
        max_binding: (1 << 31) - 1,
        max_buffer: 1 << 40,
        cores: 132,
        gflops: 66_900.0,
        gb_s: 3350.0,
        ..NVK
    },
    // M2 with 10 cores: Apple's announcement of 2022; limits from Apple's Metal feature set tables.
    Gpu {
        name: "apple",
        driver: "metal",
        subgroup: (32, 32),
        shared_memory: 32768,
        storage_buffers: 31,
        max_binding: 1 << 30,
        max_buffer: 1 << 33,
        immediates: 4096,
        registers: 128,
        matrices: SIMDGROUP,
        cores: 10,
        gflops: 3_600.0,
        gb_s: 100.0,
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
            shared_memory: self.shared_memory,
            max_invocations: 1024,
            max_workgroup_size: self.workgroup_size,
            max_storage_buffers: self.storage_buffers,
            max_binding: self.max_binding,
            max_buffer: self.max_buffer,
            immediates: self.immediates,
            registers: self.registers,
            cores: self.cores,
            driver: self.driver.into(),
            matrix_shapes: self.matrices.iter().map(shape).collect(),
            gflops: self.gflops,
            gb_s: self.gb_s,
            ..DeviceProfile::baseline()
        }
    }
}

impl DeviceProfile {
    /// WebGPU's guaranteed limits, no optional feature.
    pub fn baseline() -> DeviceProfile {
        DeviceProfile {
            name: "baseline".into(),
            software: false,
            subgroup: (0, 0),
            f16: false,
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
            loose_log_exp: false,
            matrix_shapes: vec![],
            gflops: 0.0,
            gb_s: 0.0,
            asked_rules: vec![],
            driver_version: String::new(),
            processor: String::new(),
        }
    }
    /// Mesa's lavapipe: 8 lanes, f16, one CPU core per unit.
    pub fn lavapipe() -> DeviceProfile {
        DeviceProfile {
            name: "lavapipe".into(),
            software: true,
            subgroup: (8, 8),
            f16: true,
            shared_memory: 32768,
            max_invocations: 1024,
            max_workgroup_size: [1024, 1024, 1024],
            max_storage_buffers: 32,
            max_buffer: 2 << 30,
            immediates: 128,
            cores: 2,
            driver: "lavapipe-22".into(),
            ..DeviceProfile::baseline()
        }
    }
    /// SwiftShader: 4 lanes, no f16, few buffers.
    pub fn swiftshader() -> DeviceProfile {
        DeviceProfile {
            name: "swiftshader".into(),
            software: true,
            subgroup: (4, 4),
            shared_memory: 32768,
            max_storage_buffers: 10,
            max_binding: 1 << 30,
            max_buffer: 1 << 30,
            immediates: 128,
            cores: 2,
            driver: "swiftshader".into(),
            loose_log_exp: true,
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
    /// Every named profile.
    pub fn all() -> Vec<DeviceProfile> {
        let plain = [Self::baseline(), Self::lavapipe(), Self::swiftshader()];
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
        assert!(GPUS.iter().all(|g| g.cores > 0 && g.gflops > 0.0 && g.gb_s > 0.0));
        assert_eq!((DeviceProfile::hopper().cores, DeviceProfile::apple().driver.as_str()), (132, "metal"));
    }
}
