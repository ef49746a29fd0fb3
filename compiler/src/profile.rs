//! What a device can do: a plain value, asked by fusion, layout, mixed precision and schedules.

/// Limits and features of a device. Filled in by the runtime from an adapter, or taken by name from [`DeviceProfile::named`].
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct DeviceProfile {
    /// Name of the device or of the profile.
    pub name: String,
    /// True for a CPU that emulates a GPU (lavapipe, SwiftShader, WARP).
    pub software: bool,
    /// Smallest and largest subgroup size; `(0, 0)` without subgroup operations.
    pub subgroup: (u32, u32),
    /// Native f16 arithmetic and storage in shaders.
    pub f16: bool,
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
    /// Compute units (a guess where the API does not say).
    pub cores: u32,
    /// Whether NHWC kernels are preferred.
    pub prefers_nhwc: bool,
    /// Channels of a group where packed layouts are preferred (4, 8 or 16); 0 where they are not.
    #[serde(default)]
    pub packed_channels: u32,
    /// Driver family for choices that PERFORMANCE depends on: `lavapipe-22`, `lavapipe-26`, `swiftshader`, `nvidia` ... ; empty when unknown.
    pub driver: String,
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
            cores: 16,
            prefers_nhwc: true,
            packed_channels: 0,
            driver: String::new(),
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
            ..DeviceProfile::baseline()
        }
    }
    /// An NVIDIA data-centre GPU of the Hopper generation.
    pub fn hopper() -> DeviceProfile {
        DeviceProfile {
            name: "hopper".into(),
            subgroup: (32, 32),
            f16: true,
            shared_memory: 49152,
            max_invocations: 1024,
            max_workgroup_size: [1024, 1024, 64],
            max_storage_buffers: 64,
            max_binding: (1 << 31) - 1,
            max_buffer: 1 << 40,
            immediates: 256,
            cores: 132,
            driver: "nvidia".into(),
            ..DeviceProfile::baseline()
        }
    }
    /// An Apple GPU through Metal.
    pub fn apple() -> DeviceProfile {
        DeviceProfile {
            name: "apple".into(),
            subgroup: (32, 32),
            f16: true,
            shared_memory: 32768,
            max_invocations: 1024,
            max_workgroup_size: [1024, 1024, 1024],
            max_storage_buffers: 31,
            max_binding: 1 << 30,
            max_buffer: 1 << 33,
            immediates: 4096,
            cores: 10,
            driver: "metal".into(),
            ..DeviceProfile::baseline()
        }
    }
    /// Every named profile.
    pub fn all() -> Vec<DeviceProfile> {
        vec![Self::baseline(), Self::lavapipe(), Self::swiftshader(), Self::hopper(), Self::apple()]
    }
    /// A profile by name.
    pub fn named(name: &str) -> Option<DeviceProfile> {
        Self::all().into_iter().find(|p| p.name == name)
    }
    /// The subgroup size when it is fixed.
    pub fn fixed_subgroup(&self) -> Option<u32> {
        (self.subgroup.0 > 0 && self.subgroup.0 == self.subgroup.1).then_some(self.subgroup.0)
    }
    /// Bytes of one bank of a value that is larger than one binding: the largest multiple of 1024 (of 16 below that) that
    /// fits a binding.
    pub fn bank_bytes(&self) -> u64 {
        let unit = if self.max_binding >= 1024 { 1024 } else { 16 };
        (self.max_binding / unit * unit).max(16)
    }
    /// Bindings that a value of `bytes` takes: 1, or more when it is larger than one binding.
    pub fn bindings_for(&self, bytes: u64) -> u32 {
        if bytes <= self.max_binding { 1 } else { bytes.div_ceil(self.bank_bytes()).max(1) as u32 }
    }
}
