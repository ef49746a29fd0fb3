//! A profile from what a browser says of an adapter.

use compiler::profile::DeviceProfile;

/// WebGPU's adapter, as a page sees it.
#[derive(serde::Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Adapter {
    /// Its name for people: vendor, architecture, description.
    pub name: String,
    /// Names of features.
    pub features: Vec<String>,
    /// The smallest and the largest subgroup; 0 where that is not said.
    pub subgroup_min_size: u32,
    /// See there.
    pub subgroup_max_size: u32,
    /// The adapter emulates a GPU on the processor.
    pub software: bool,
    /// Names of limits with their values.
    pub limits: Limits,
}

/// WebGPU's limits that kernels meet. What an adapter does not say is the standard's guarantee.
#[derive(serde::Deserialize, Debug)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct Limits {
    pub max_storage_buffers_per_shader_stage: u32,
    pub max_storage_buffer_binding_size: u64,
    pub max_buffer_size: u64,
    pub max_compute_workgroup_storage_size: u32,
    pub max_compute_invocations_per_workgroup: u32,
    pub max_compute_workgroup_size_x: u32,
    pub max_compute_workgroup_size_y: u32,
    pub max_compute_workgroup_size_z: u32,
    pub max_compute_workgroups_per_dimension: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        let p = DeviceProfile::baseline();
        Limits {
            max_storage_buffers_per_shader_stage: p.max_storage_buffers,
            max_storage_buffer_binding_size: p.max_binding,
            max_buffer_size: p.max_buffer,
            max_compute_workgroup_storage_size: p.shared_memory,
            max_compute_invocations_per_workgroup: p.max_invocations,
            max_compute_workgroup_size_x: p.max_workgroup_size[0],
            max_compute_workgroup_size_y: p.max_workgroup_size[1],
            max_compute_workgroup_size_z: p.max_workgroup_size[2],
            max_compute_workgroups_per_dimension: p.max_workgroups,
        }
    }
}

/// A profile for an adapter that a page describes in JSON, as JSON: what `--target FILE.json` takes. Figures that
/// browsers do not tell (cores, rates) are taken from profile `webgpu`, for a software adapter from `swiftshader`.
///
/// # Errors
/// Text that is no description of an adapter, or limits that no device has.
pub fn profile_of(adapter: &str) -> Result<String, String> {
    let a: Adapter = serde_json::from_str(adapter).map_err(|e| format!("the adapter's description: {e}"))?;
    let has = |name: &str| a.features.iter().any(|f| f == name);
    let n = &a.limits;
    let like = if a.software { DeviceProfile::swiftshader() } else { DeviceProfile::webgpu() };
    // Sizes of subgroups that are not said may be any.
    let any = DeviceProfile::webgpu().subgroup;
    let said = (a.subgroup_min_size, a.subgroup_max_size);
    let profile = DeviceProfile {
        name: if a.name.is_empty() { "browser".into() } else { format!("browser: {}", a.name) },
        subgroup: match has("subgroups") {
            true if said.0 > 0 && said.1 >= said.0 => said,
            true => any,
            false => (0, 0),
        },
        f16: has("shader-f16"),
        i16: false,
        shared_memory: n.max_compute_workgroup_storage_size,
        max_invocations: n.max_compute_invocations_per_workgroup,
        max_workgroup_size: [
            n.max_compute_workgroup_size_x,
            n.max_compute_workgroup_size_y,
            n.max_compute_workgroup_size_z,
        ],
        max_workgroups: n.max_compute_workgroups_per_dimension,
        max_storage_buffers: n.max_storage_buffers_per_shader_stage,
        max_binding: n.max_storage_buffer_binding_size,
        max_buffer: n.max_buffer_size,
        immediates: 0,
        matrix_shapes: vec![],
        ..like
    };
    let text = serde_json::to_string_pretty(&profile).map_err(|e| e.to_string())?;
    compiler::profile_file::parse_profile(&text)?;
    Ok(text)
}
