//! Adapters and their capabilities.

use crate::counted_cores;
use crate::figures::DeviceFigures;
use compiler::profile::{DeviceProfile, Machine, MatrixShape, Nan, Quirks};
use compiler::trace::Ceilings;

/// An adapter as `weft devices` shows it.
#[derive(Clone, Debug, serde::Serialize, schemars::JsonSchema)]
pub struct AdapterDescription {
    /// Position in the list; `--device N`.
    pub index: usize,
    /// Device name.
    pub name: String,
    /// `vulkan`, `metal`, `dx12`.
    pub backend: String,
    /// Driver name and version.
    pub driver: String,
    /// `discrete`, `integrated`, `virtual`, `cpu`, `other`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Native f16 in shaders.
    pub f16: bool,
    /// Smallest and largest subgroup.
    pub subgroup_sizes: [u32; 2],
    /// Cooperative-matrix shapes.
    #[schemars(with = "()", extend("type" = "array"))]
    pub cooperative_matrix: Vec<MatrixShape>,
    /// Bytes of workgroup memory.
    pub shared_memory: u32,
    /// Largest storage binding in bytes.
    pub max_binding: u64,
    /// Largest buffer in bytes.
    pub max_buffer: u64,
    /// Storage buffers of one kernel.
    pub max_storage_buffers: u32,
    /// Timestamp support: `inside passes`, `per pass` or `none`.
    pub timestamps: String,
    /// PCI id of its maker; 0 where the API gives none.
    pub vendor_id: u32,
    /// PCI id of the device; 0 where the API gives none.
    pub device_id: u32,
    /// Cores and rates, with their sources.
    #[serde(flatten)]
    pub figures: DeviceFigures,
    /// The profile to compile for: all limits and features.
    #[schemars(with = "()", extend("type" = "object"))]
    pub profile: DeviceProfile,
}

impl AdapterDescription {
    /// Sets rates that were measured on this device, unless its driver or its maker gives them.
    pub fn set_measured(&mut self, c: &Ceilings) {
        self.figures.measured(c);
        self.figures.put(&mut self.profile);
    }
}

/// All adapters, real GPUs first, Vulkan before other ways to the same device; GL is left out (no f16, no subgroups).
pub(crate) fn adapters() -> (wgpu::Instance, Vec<wgpu::Adapter>) {
    let mut d = wgpu::InstanceDescriptor::new_without_display_handle();
    d.backends = wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12;
    d.memory_budget_thresholds.for_resource_creation = Some(95);
    let instance = wgpu::Instance::new(d);
    let mut list = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()));
    list.sort_by_key(|a| rank(&a.get_info()));
    (instance, list)
}

fn rank(info: &wgpu::AdapterInfo) -> u32 {
    match info.device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    }
}

pub(crate) fn backend_name(b: wgpu::Backend) -> &'static str {
    match b {
        wgpu::Backend::Vulkan => "vulkan",
        wgpu::Backend::Metal => "metal",
        wgpu::Backend::Dx12 => "dx12",
        wgpu::Backend::Gl => "gl",
        _ => "other",
    }
}

pub(crate) fn kind_name(t: wgpu::DeviceType) -> &'static str {
    match t {
        wgpu::DeviceType::DiscreteGpu => "discrete",
        wgpu::DeviceType::IntegratedGpu => "integrated",
        wgpu::DeviceType::VirtualGpu => "virtual",
        wgpu::DeviceType::Cpu => "cpu",
        wgpu::DeviceType::Other => "other",
    }
}

/// Every adapter of the machine.
pub fn list_adapters() -> Vec<AdapterDescription> {
    let (_instance, list) = adapters();
    list.iter().enumerate().map(|(i, a)| describe(i, a)).collect()
}

pub(crate) fn describe(index: usize, a: &wgpu::Adapter) -> AdapterDescription {
    let (info, limits, features) = (a.get_info(), a.limits(), a.features());
    let figures = DeviceFigures::of(&info, counted_cores::of_adapter(a));
    let mut profile = profile_from(&info, &limits, features, &figures);
    let coop: Vec<MatrixShape> = if features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX) {
        a.cooperative_matrix_properties()
            .iter()
            .map(|p| MatrixShape {
                mnk: [p.m_size, p.n_size, p.k_size],
                ab: format!("{:?}", p.ab_type).to_lowercase(),
                cr: format!("{:?}", p.cr_type).to_lowercase(),
            })
            .collect()
    } else {
        vec![]
    };
    profile.matrix_shapes.clone_from(&coop);
    AdapterDescription {
        index,
        name: info.name.clone(),
        backend: backend_name(info.backend).into(),
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_string(),
        kind: kind_name(info.device_type).into(),
        f16: profile.f16,
        subgroup_sizes: [profile.subgroup.0, profile.subgroup.1],
        cooperative_matrix: coop,
        shared_memory: limits.max_compute_workgroup_storage_size,
        max_binding: profile.max_binding,
        max_buffer: limits.max_buffer_size,
        max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
        timestamps: if features.contains(wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES) {
            "inside passes"
        } else if features.contains(wgpu::Features::TIMESTAMP_QUERY) {
            "per pass"
        } else {
            "none"
        }
        .into(),
        vendor_id: info.vendor,
        device_id: info.device,
        figures,
        profile,
    }
}

/// The profile of an adapter.
pub fn profile_of(a: &wgpu::Adapter) -> DeviceProfile {
    let (info, limits, features) = (a.get_info(), a.limits(), a.features());
    profile_from(&info, &limits, features, &DeviceFigures::of(&info, counted_cores::of_adapter(a)))
}

pub(crate) fn profile_from(
    info: &wgpu::AdapterInfo,
    limits: &wgpu::Limits,
    features: wgpu::Features,
    figures: &DeviceFigures,
) -> DeviceProfile {
    let software = info.device_type == wgpu::DeviceType::Cpu;
    let subgroup = if features.contains(wgpu::Features::SUBGROUP) {
        (info.subgroup_min_size, info.subgroup_max_size)
    } else {
        (0, 0)
    };
    let mut profile = DeviceProfile {
        name: info.name.clone(),
        machine: if software { Machine::SoftwareDriver } else { Machine::Gpu },
        subgroup,
        f16: features.contains(wgpu::Features::SHADER_F16),
        i16: info.backend == wgpu::Backend::Vulkan && features.contains(wgpu::Features::SHADER_I16),
        shared_memory: limits.max_compute_workgroup_storage_size,
        max_invocations: limits.max_compute_invocations_per_workgroup,
        max_workgroup_size: [
            limits.max_compute_workgroup_size_x,
            limits.max_compute_workgroup_size_y,
            limits.max_compute_workgroup_size_z,
        ],
        max_workgroups: limits.max_compute_workgroups_per_dimension,
        max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
        max_binding: limits.max_storage_buffer_binding_size.min((1 << 31) - 16),
        max_buffer: limits.max_buffer_size,
        immediates: if features.contains(wgpu::Features::IMMEDIATES) { limits.max_immediate_size } else { 0 },
        // No API reports registers; the table of products has those of known devices.
        registers: if software { 0 } else { DeviceProfile::usual_registers(subgroup) },
        cores: 0,
        prefers_nhwc: true,
        packed_channels: 0,
        driver: String::new(),
        quirks: Quirks::default(),
        // Filled in later, if the device is opened with matrices.
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
        factors: compiler::profile::CostFactors::default(),
        driver_version: info.driver_info.clone(),
        processor: if software { processor_model() } else { String::new() },
    };
    figures.put(&mut profile);
    profile.with_driver(&driver_family(info))
}

/// The system's name of the processor; read once.
pub fn processor_model() -> String {
    static MODEL: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let ask = || {
        let mut system = sysinfo::System::new().ok()?;
        system.refresh_cpu_list(sysinfo::CpuRefreshKind::nothing());
        system.cpus().first().map(|c| c.brand().trim().to_string())
    };
    MODEL.get_or_init(|| ask().unwrap_or_default()).clone()
}

pub(crate) fn driver_family(info: &wgpu::AdapterInfo) -> String {
    let name = info.driver.to_lowercase();
    if name.contains("llvmpipe") || name.contains("lavapipe") {
        let major: String = info
            .driver_info
            .split("Mesa ")
            .nth(1)
            .map(|v| v.chars().take_while(|c| c.is_ascii_digit()).collect())
            .unwrap_or_default();
        return format!("lavapipe-{major}");
    }
    if name.contains("swiftshader") || info.name.contains("SwiftShader") {
        return "swiftshader".into();
    }
    if info.vendor == 0x10de {
        return "nvidia".into();
    }
    if info.backend == wgpu::Backend::Metal {
        return "metal".into();
    }
    name
}
