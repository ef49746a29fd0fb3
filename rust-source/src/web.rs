//! A folder that a web server serves as it is: the tables as `plan.json`, weights, kernels in the standard's WGSL, a
//! runner in JavaScript that needs WebGPU alone, and a page around it.

use crate::File;
use crate::tables::{Abilities, Buffer, Row, Tables, Tensor};
use serde::Serialize;
use shaders_gen::WgslDialect;
use tensor_ir::plan::{Plan, PlanBuffer};
use tensor_ir::profile::DeviceProfile;

/// A group of the network, for the page's tables.
#[derive(Serialize)]
pub struct Group {
    /// A short name.
    pub label: String,
    /// Names of the model's nodes in it.
    pub nodes: Vec<String>,
}

/// The file `plan.json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PlanFile<'t> {
    schema: u32,
    written_by: &'static str,
    model: &'t str,
    profile: &'t str,
    /// WebGPU's names of features.
    features: Vec<&'static str>,
    /// The smallest and the largest subgroup that kernels with operations of subgroups are for.
    subgroups: (u32, u32),
    limits: Limits,
    weight_bytes: usize,
    inputs: &'t [Tensor],
    outputs: &'t [Tensor],
    buffers: &'t [Buffer],
    kernels: Vec<Kernel<'t>>,
    groups: &'t [Group],
    steps: &'t [Row],
}

/// WebGPU's names of limits.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Limits {
    max_storage_buffers_per_shader_stage: u32,
    max_storage_buffer_binding_size: u64,
    max_buffer_size: u64,
    max_compute_workgroup_storage_size: u32,
    max_compute_invocations_per_workgroup: u32,
    max_compute_workgroup_size_x: u32,
    max_compute_workgroup_size_y: u32,
    max_compute_workgroup_size_z: u32,
    max_compute_workgroups_per_dimension: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Kernel<'t> {
    name: &'t str,
    file: String,
    entry: &'t str,
    writes: &'t [bool],
    #[serde(skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u32>,
}

/// WebGPU's name of a feature of wgpu.
///
/// # Errors
/// A feature that WebGPU has no name for.
fn feature(name: &str) -> Result<&'static str, String> {
    match name {
        "SUBGROUP" => Ok("subgroups"),
        "SHADER_F16" => Ok("shader-f16"),
        other => Err(format!("a browser has no {other}")),
    }
}

fn text(path: &str, text: &str) -> File {
    File { path: path.into(), bytes: text.as_bytes().to_vec() }
}

/// The files of a page for a plan: the files of [`network`], and a page around them.
///
/// # Errors
/// As there; steps on the host, by name.
pub fn page(
    plan: &Plan,
    profile: &DeviceProfile,
    packed: &dyn Fn(&PlanBuffer) -> Result<Vec<u8>, String>,
    model: &str,
    groups: &[Group],
) -> Result<Vec<File>, String> {
    let mut files = vec![
        text("index.html", include_str!("../template/web/index.html")),
        text("style.css", include_str!("../template/web/style.css")),
        text("page.js", include_str!("../template/web/page.js")),
        text("view.js", include_str!("../template/web/view.js")),
        text("runner.js", include_str!("../template/web/runner.js")),
        text("arrays.js", include_str!("../template/web/arrays.js")),
        // For Node, where a file's kind is not said otherwise.
        text("package.json", "{ \"type\": \"module\" }\n"),
    ];
    let can = Abilities { loops: true, host: false };
    let tables = Tables::of(plan, profile, Some(packed), can)?;
    files.extend(written(&tables, profile, model, groups)?);
    files.push(File { path: "weights.bin".into(), bytes: tables.blob });
    Ok(files)
}

/// The files that a page runs, for a plan whose kernels [`shaders_gen::Emitter`] made for `profile`: `plan.json` and
/// kernels. `model` is the model's name, `groups` are the groups that dispatches name. Who has the compiler has weights
/// one by one ([`weight_parts`](crate::weight_parts)), and runs the steps on the host.
///
/// # Errors
/// Calls of functions and kernels that use matrix units, by name; kernels that the standard's WGSL cannot say.
pub fn network(plan: &Plan, profile: &DeviceProfile, model: &str, groups: &[Group]) -> Result<Vec<File>, String> {
    let can = Abilities { loops: true, host: true };
    written(&Tables::of(plan, profile, None, can)?, profile, model, groups)
}

fn written(t: &Tables<'_>, profile: &DeviceProfile, model: &str, groups: &[Group]) -> Result<Vec<File>, String> {
    let mut files = vec![];
    let mut kernels = vec![];
    for k in &t.kernels {
        let file = format!("kernels/{}.wgsl", k.file);
        let wgsl = k.module.emit_wgsl_in(WgslDialect::Standard);
        files.push(text(&file, &wgsl.map_err(|e| format!("kernel `{}`: {e}", k.name))?));
        let size_bytes = Some(k.size_bytes).filter(|&n| n > 0);
        kernels.push(Kernel { name: k.name, file, entry: k.entry, writes: &k.writes, size_bytes });
    }
    let n = &t.needs;
    let plan = PlanFile {
        schema: 1,
        written_by: concat!("weft ", env!("CARGO_PKG_VERSION")),
        model,
        profile: &profile.name,
        features: t.features.iter().map(|f| feature(f)).collect::<Result<_, _>>()?,
        subgroups: t.subgroups,
        limits: Limits {
            max_storage_buffers_per_shader_stage: n.max_storage_buffers,
            max_storage_buffer_binding_size: n.max_binding,
            max_buffer_size: n.max_buffer,
            max_compute_workgroup_storage_size: n.shared_memory,
            max_compute_invocations_per_workgroup: n.max_invocations,
            max_compute_workgroup_size_x: n.max_workgroup_size[0],
            max_compute_workgroup_size_y: n.max_workgroup_size[1],
            max_compute_workgroup_size_z: n.max_workgroup_size[2],
            max_compute_workgroups_per_dimension: n.max_workgroups,
        },
        weight_bytes: t.weight_bytes,
        inputs: &t.inputs,
        outputs: &t.outputs,
        buffers: &t.buffers,
        kernels,
        groups,
        steps: &t.steps,
    };
    let json = serde_json::to_string(&plan).map_err(|e| e.to_string())?;
    files.push(text("plan.json", &json));
    Ok(files)
}
