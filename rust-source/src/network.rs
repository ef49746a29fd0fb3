//! The file `network.rs`: the tables in Rust.

use crate::names::fields;
use crate::tables::{Buffer, Form, Kernel, Place, Row, Tables, Tensor};
use std::fmt::Write as _;
use tensor_ir::bare::shown_in_line;
use tensor_ir::profile::DeviceProfile;

/// The type of an element of a tensor.
fn host_type(t: &Tensor) -> &'static str {
    match t.dtype {
        "f16" | "bf16" => "u16",
        "bool" => "u8",
        other => other,
    }
}

/// `Form` of the template.
fn form(f: Form) -> String {
    match f {
        Form::Plain => "Form::Plain".into(),
        Form::Words { signed } => format!("Form::Words {{ signed: {signed} }}"),
        Form::Truth { bytes } => format!("Form::Truth {{ bytes: {bytes} }}"),
    }
}

/// The text of the file.
pub(crate) fn source(t: &Tables<'_>, profile: &DeviceProfile, model: &str) -> String {
    let mut out = format!(
        "//! {} for the profile {}, written by Weft: its inputs and outputs, and tables of what a run does.\n\n",
        shown_in_line(model),
        shown_in_line(&profile.name)
    );
    out.push_str("use crate::device::{Buffer, Kernel, Step};\nuse crate::tensor::{Form, Place, Tensor, from_bytes, to_bytes};\n\n");
    structures(&mut out, t);
    out.push_str("/// The weights; an application may as well read the file, and give its content.\n");
    out.push_str("pub static WEIGHTS: &[u8] = include_bytes!(\"../weights.bin\");\n");
    let _ = writeln!(out, "pub(crate) const WEIGHT_BYTES: usize = {};\n", t.blob.len());
    needs(&mut out, t);
    tensors(&mut out, "INPUTS", &t.inputs);
    tensors(&mut out, "OUTPUTS", &t.outputs);
    buffers(&mut out, &t.buffers);
    kernels(&mut out, &t.kernels);
    out.push_str("/// What a run does, in order.\n#[rustfmt::skip]\npub(crate) static STEPS: &[Step] = &[\n");
    steps(&mut out, t, &t.steps, 1);
    out.push_str("];\n");
    out
}

fn described(t: &Tensor) -> String {
    format!("`{}`: {}{:?}", shown_in_line(&t.name), t.dtype, t.shape)
}

/// `Inputs` and `Outputs`, with a field for each tensor.
fn structures(out: &mut String, t: &Tables<'_>) {
    let names = |list: &[Tensor]| fields(list.iter().map(|t| t.name.as_str()));
    let inputs = names(&t.inputs);
    let life = if inputs.is_empty() { "" } else { "<'a>" };
    out.push_str("/// What a run takes.\n#[derive(Clone, Copy, Debug)]\n");
    let _ = writeln!(out, "pub struct Inputs{life} {{");
    for (field, v) in inputs.iter().zip(&t.inputs) {
        let _ = writeln!(out, "    /// {}\n    pub {field}: &'a [{}],", described(v), host_type(v));
    }
    let of_any = if inputs.is_empty() { "" } else { "<'_>" };
    let bytes: Vec<String> = inputs.iter().map(|field| format!("to_bytes(self.{field})")).collect();
    let _ = write!(
        out,
        "}}

impl Inputs{of_any} {{
    /// How many there are.
    pub const COUNT: usize = {};
    pub(crate) fn bytes(&self) -> Vec<Vec<u8>> {{
        vec![{}]
    }}
}}

/// What a run makes.
#[derive(Clone, Debug, PartialEq)]
pub struct Outputs {{
",
        inputs.len(),
        bytes.join(", ")
    );
    let outputs = names(&t.outputs);
    for (field, v) in outputs.iter().zip(&t.outputs) {
        let _ = writeln!(out, "    /// {}\n    pub {field}: Vec<{}>,", described(v), host_type(v));
    }
    let _ = write!(
        out,
        "}}

impl Outputs {{
    /// How many there are.
    pub const COUNT: usize = {};
    pub(crate) fn of(results: Vec<Vec<u8>>) -> Outputs {{
        let mut results = results.into_iter();
        let mut next = || results.next().unwrap_or_default();
        Outputs {{
",
        outputs.len()
    );
    for field in &outputs {
        let _ = writeln!(out, "            {field}: from_bytes(&next()),");
    }
    out.push_str("        }\n    }\n}\n\n");
}

/// Features, limits and subgroup sizes.
fn needs(out: &mut String, t: &Tables<'_>) {
    let all: String = t.features.iter().map(|f| format!(".union(wgpu::Features::{f})")).collect();
    let ((least, most), n) = (t.subgroups, &t.needs);
    let _ = write!(
        out,
        "pub(crate) const FEATURES: wgpu::Features = wgpu::Features::empty(){all};

/// The smallest and the largest subgroup that kernels with operations of subgroups are for.
pub(crate) const SUBGROUPS: [u32; 2] = [{least}, {most}];

/// The limits that kernels and buffers need.
pub(crate) fn limits() -> wgpu::Limits {{
    wgpu::Limits {{
        max_storage_buffers_per_shader_stage: {},
        max_storage_buffer_binding_size: {},
        max_buffer_size: {},
        max_compute_workgroup_storage_size: {},
        max_compute_invocations_per_workgroup: {},
        max_compute_workgroup_size_x: {},
        max_compute_workgroup_size_y: {},
        max_compute_workgroup_size_z: {},
        max_compute_workgroups_per_dimension: {},
        ..wgpu::Limits::downlevel_webgl2_defaults()
    }}
}}

",
        n.max_storage_buffers,
        n.max_binding,
        n.max_buffer,
        n.shared_memory,
        n.max_invocations,
        n.max_workgroup_size[0],
        n.max_workgroup_size[1],
        n.max_workgroup_size[2],
        n.max_workgroups,
    );
}

fn tensor(t: &Tensor) -> String {
    let place = match &t.place {
        Place::Input(n) => format!("Place::Input({n})"),
        Place::Buffers(list) => format!("Place::Buffers(&{list:?})"),
        // `Abilities` of a crate have none.
        Place::Host(_) | Place::Constant(_) => String::new(),
    };
    let (name, shape, size, form) = (&t.name, &t.shape, t.size, form(t.form));
    format!("Tensor {{ name: {name:?}, shape: &{shape:?}, size: {size}, form: {form}, place: {place} }}")
}

fn tensors(out: &mut String, list: &str, tensors: &[Tensor]) {
    let _ = writeln!(out, "#[rustfmt::skip]\npub(crate) static {list}: &[Tensor] = &[");
    for t in tensors {
        let _ = writeln!(out, "    {},", tensor(t));
    }
    out.push_str("];\n\n");
}

fn buffers(out: &mut String, list: &[Buffer]) {
    out.push_str("#[rustfmt::skip]\npub(crate) static BUFFERS: &[Buffer] = &[\n");
    for (i, Buffer { bytes, weights }) in list.iter().enumerate() {
        let _ = writeln!(out, "    /* {i} */ Buffer {{ bytes: {bytes}, weights: {weights:?} }},");
    }
    out.push_str("];\n\n");
}

fn kernels(out: &mut String, list: &[Kernel<'_>]) {
    out.push_str("#[rustfmt::skip]\npub(crate) static KERNELS: &[Kernel] = &[\n");
    for (i, k) in list.iter().enumerate() {
        let Kernel { name, file, entry, writes, module, .. } = k;
        let _ = writeln!(
            out,
            "    /* {i} */ Kernel {{ name: {name:?}, wgsl: include_str!(\"../kernels/{file}.wgsl\"), entry: {entry:?}, \
             writes: &{writes:?}, proved: {} }},",
            module.bounds_proved
        );
    }
    out.push_str("];\n\n");
}

fn steps(out: &mut String, t: &Tables<'_>, list: &[Row], depth: usize) {
    let indent = "    ".repeat(depth);
    for row in list {
        match row {
            Row::Run { kernel, buffers, grid, .. } => {
                let name = shown_in_line(t.kernels[*kernel].name);
                let _ = writeln!(
                    out,
                    "{indent}Step::Run {{ kernel: {kernel}, buffers: &{buffers:?}, grid: {grid:?} }}, // {name}"
                );
            }
            Row::Copy { from, to } => {
                let _ = writeln!(out, "{indent}Step::Copy {{ from: {from}, to: {to} }},");
            }
            Row::Branch { condition, then, otherwise } => {
                let condition = tensor(condition);
                let _ = writeln!(
                    out,
                    "{indent}Step::Branch {{\n{indent}    condition: &{condition},\n{indent}    then: &["
                );
                steps(out, t, then, depth + 2);
                let _ = writeln!(out, "{indent}    ],\n{indent}    otherwise: &[");
                steps(out, t, otherwise, depth + 2);
                let _ = writeln!(out, "{indent}    ],\n{indent}}},");
            }
            // `Abilities` of a crate have none.
            Row::Loop(_) | Row::Host(_) | Row::Move { .. } => {}
        }
    }
}
