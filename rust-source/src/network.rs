//! The file `network.rs`: the plan as tables.

use crate::names::fields;
use shaders_gen::GeneratedModule;
use std::fmt::Write as _;
use tensor_ir::bare::shown_in_line;
use tensor_ir::dtype::DType;
use tensor_ir::plan::{BufferView, Content, Dispatch, HostContent, Plan, PlanBuffer, PlanKernel, Step, kernel_file};
use tensor_ir::profile::DeviceProfile;
use tensor_ir::tir::{Access, Encoding};

/// What a place in the blob is a multiple of, in bytes.
const ALIGNED: usize = 64;

/// Rows of the table of buffers: a slice of a buffer of the plan has a row.
#[derive(Default)]
pub(crate) struct Places {
    /// Bytes, and where in the blob the data begin.
    rows: Vec<(u64, Option<usize>)>,
    /// For each buffer of the plan its rows.
    of: Vec<std::ops::Range<usize>>,
    pub blob: Vec<u8>,
}

impl Places {
    pub(crate) fn of(plan: &Plan, packed: &dyn Fn(&PlanBuffer) -> Result<Vec<u8>, String>) -> Result<Places, String> {
        let mut p = Places::default();
        for b in &plan.buffers {
            let first = p.rows.len();
            match &b.content {
                Content::Host(_) => {}
                Content::Input(_) | Content::Pool => slices(b).for_each(|bytes| p.rows.push((bytes, None))),
                Content::Constant { .. } => p.constant(b, &packed(b)?),
            }
            p.of.push(first..p.rows.len());
        }
        Ok(p)
    }

    fn constant(&mut self, b: &PlanBuffer, data: &[u8]) {
        let mut rest = data;
        for bytes in slices(b) {
            self.blob.resize(self.blob.len().next_multiple_of(ALIGNED), 0);
            let at = self.blob.len();
            self.rows.push((bytes, Some(at)));
            let (now, later) = rest.split_at(rest.len().min(bytes as usize));
            self.blob.extend_from_slice(now);
            self.blob.resize(at + bytes as usize, 0);
            rest = later;
        }
    }

    fn row(&self, (buffer, slice): (usize, u32), user: &str) -> Result<usize, String> {
        let row = self.of[buffer].clone().nth(slice as usize);
        row.ok_or_else(|| format!("`{user}` uses a tensor without elements, or one that is made on the host"))
    }
}

/// Bytes of each slice of a buffer.
fn slices(b: &PlanBuffer) -> impl Iterator<Item = u64> {
    let one = b.slice_bytes.max(16);
    let (all, count) = (b.bytes, b.bytes.div_ceil(one));
    (0..count).map(move |i| (all - i * one).min(one).next_multiple_of(16))
}

/// The type of an element outside of the device.
fn host_type(t: DType) -> Result<&'static str, String> {
    Ok(match t {
        DType::F32 => "f32",
        DType::F16 | DType::BF16 | DType::U16 => "u16",
        DType::Bool | DType::U8 => "u8",
        DType::I8 => "i8",
        DType::I16 => "i16",
        DType::I32 => "i32",
        DType::U32 => "u32",
        DType::I64 => "i64",
        DType::U64 => "u64",
        t => return Err(format!("a tensor of {t} is made on the host")),
    })
}

/// `Form` of the template.
fn form(v: &BufferView) -> String {
    let signed = matches!(v.dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
    match (v.encoding, v.dtype) {
        (Encoding::ByteQuad, DType::Bool) => "Form::Truth { bytes: 1 }".into(),
        (_, DType::Bool) => "Form::Truth { bytes: 4 }".into(),
        (Encoding::ByteQuad | Encoding::HalfPair, _) => "Form::Plain".into(),
        (_, DType::F32 | DType::F16 | DType::I32 | DType::U32) => "Form::Plain".into(),
        _ => format!("Form::Words {{ signed: {signed} }}"),
    }
}

/// The text of the file.
pub(crate) fn source(plan: &Plan, profile: &DeviceProfile, places: &Places, model: &str) -> Result<String, String> {
    let generated = plan.kernels.iter().map(generated).collect::<Result<Vec<_>, String>>()?;
    let mut out = format!(
        "//! {} for the profile {}, written by Weft: its inputs and outputs, and tables of what a run does.\n\n",
        shown_in_line(model),
        shown_in_line(&profile.name)
    );
    out.push_str("use crate::device::{Buffer, Kernel, Step};\nuse crate::tensor::{Form, Place, Tensor, from_bytes, to_bytes};\n\n");
    structures(&mut out, plan)?;
    out.push_str("/// The weights; an application may as well read the file, and give its content.\n");
    out.push_str("pub static WEIGHTS: &[u8] = include_bytes!(\"../weights.bin\");\n");
    let _ = writeln!(out, "pub(crate) const WEIGHT_BYTES: usize = {};\n", places.blob.len());
    needs(&mut out, plan, profile, &generated);
    tensors(&mut out, "INPUTS", &plan.inputs, plan, places)?;
    tensors(&mut out, "OUTPUTS", &plan.outputs, plan, places)?;
    buffers(&mut out, places);
    kernels(&mut out, plan, &generated);
    out.push_str("/// What a run does, in order.\n#[rustfmt::skip]\npub(crate) static STEPS: &[Step] = &[\n");
    steps(&mut out, plan, places, &plan.steps, 1)?;
    out.push_str("];\n");
    Ok(out)
}

/// The kernel's module.
///
/// # Errors
/// A kernel that the crate cannot run.
fn generated(k: &PlanKernel) -> Result<&GeneratedModule, String> {
    let module = k.emitted.module.downcast_ref::<GeneratedModule>();
    let module = module.ok_or_else(|| format!("kernel `{}` is no shader", k.name))?;
    if module.uses_matrices() {
        return Err(format!("kernel `{}` uses matrix units, which only a session can check", k.name));
    }
    if k.emitted.immediate_bytes > 0 {
        return Err(format!("kernel `{}` takes sizes that only a run knows", k.name));
    }
    Ok(module)
}

fn described(v: &BufferView) -> String {
    format!("`{}`: {}{:?}", shown_in_line(v.name.as_str()), v.dtype, v.shape)
}

/// `Inputs` and `Outputs`, with a field for each tensor.
fn structures(out: &mut String, plan: &Plan) -> Result<(), String> {
    let names = |views: &[BufferView]| fields(views.iter().map(|v| v.name.as_str()));
    let inputs = names(&plan.inputs);
    let life = if inputs.is_empty() { "" } else { "<'a>" };
    out.push_str("/// What a run takes.\n#[derive(Clone, Copy, Debug)]\n");
    let _ = writeln!(out, "pub struct Inputs{life} {{");
    for (field, v) in inputs.iter().zip(&plan.inputs) {
        let _ = writeln!(out, "    /// {}\n    pub {field}: &'a [{}],", described(v), host_type(v.dtype)?);
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
    let outputs = names(&plan.outputs);
    for (field, v) in outputs.iter().zip(&plan.outputs) {
        let _ = writeln!(out, "    /// {}\n    pub {field}: Vec<{}>,", described(v), host_type(v.dtype)?);
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
    Ok(())
}

/// Features, limits and subgroup sizes.
fn needs(out: &mut String, plan: &Plan, profile: &DeviceProfile, generated: &[&GeneratedModule]) {
    let mut features: Vec<&str> = generated.iter().flat_map(|g| g.features()).collect();
    features.sort_unstable();
    features.dedup();
    let all: String = features.iter().map(|f| format!(".union(wgpu::Features::{f})")).collect();
    let (least, most) = profile.subgroup;
    let n = plan.needs(profile);
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

fn tensor(v: &BufferView, plan: &Plan, places: &Places) -> Result<String, String> {
    host_type(v.dtype)?;
    let place = match plan.buffers[v.buffer].content {
        Content::Host(HostContent::Input(n)) => format!("Place::Input({n})"),
        Content::Host(_) => return Err(format!("`{}` is made on the host, step by step", v.name)),
        _ => format!("Place::Buffers(&{:?})", places.of[v.buffer].clone().collect::<Vec<_>>()),
    };
    Ok(format!(
        "Tensor {{ name: {:?}, shape: &{:?}, size: {}, form: {}, place: {place} }}",
        v.name.as_str(),
        v.shape,
        v.dtype.size(),
        form(v)
    ))
}

fn tensors(out: &mut String, list: &str, views: &[BufferView], plan: &Plan, places: &Places) -> Result<(), String> {
    let _ = writeln!(out, "#[rustfmt::skip]\npub(crate) static {list}: &[Tensor] = &[");
    for v in views {
        let _ = writeln!(out, "    {},", tensor(v, plan, places)?);
    }
    out.push_str("];\n\n");
    Ok(())
}

fn buffers(out: &mut String, places: &Places) {
    out.push_str("#[rustfmt::skip]\npub(crate) static BUFFERS: &[Buffer] = &[\n");
    for (i, (bytes, weights)) in places.rows.iter().enumerate() {
        let _ = writeln!(out, "    /* {i} */ Buffer {{ bytes: {bytes}, weights: {weights:?} }},");
    }
    out.push_str("];\n\n");
}

fn kernels(out: &mut String, plan: &Plan, generated: &[&GeneratedModule]) {
    out.push_str("#[rustfmt::skip]\npub(crate) static KERNELS: &[Kernel] = &[\n");
    for (i, (k, g)) in plan.kernels.iter().zip(generated).enumerate() {
        let writes: Vec<bool> = k.emitted.bindings.iter().map(|b| b.access != Access::Read).collect();
        let file = kernel_file(i, &k.name);
        let _ = writeln!(
            out,
            "    /* {i} */ Kernel {{ name: {:?}, wgsl: include_str!(\"../kernels/{file}.wgsl\"), entry: {:?}, \
             writes: &{writes:?}, proved: {} }},",
            k.name, k.emitted.name, g.bounds_proved
        );
    }
    out.push_str("];\n\n");
}

fn steps(out: &mut String, plan: &Plan, places: &Places, list: &[Step], depth: usize) -> Result<(), String> {
    let indent = "    ".repeat(depth);
    for s in list {
        match s {
            Step::Gpu(dispatches) => {
                for d in dispatches {
                    let _ = writeln!(out, "{indent}{}", run(d, plan, places)?);
                }
            }
            Step::Copy { from, to } => {
                if [from, to].iter().any(|&&b| matches!(plan.buffers[b].content, Content::Host(_))) {
                    return Err("a tensor is copied on the host, step by step".into());
                }
                for (from, to) in places.of[*from].clone().zip(places.of[*to].clone()) {
                    let _ = writeln!(out, "{indent}Step::Copy {{ from: {from}, to: {to} }},");
                }
            }
            Step::Branch(b) => {
                let condition = tensor(&b.condition, plan, places)?;
                let _ = writeln!(
                    out,
                    "{indent}Step::Branch {{\n{indent}    condition: &{condition},\n{indent}    then: &["
                );
                steps(out, plan, places, &b.then, depth + 2)?;
                let _ = writeln!(out, "{indent}    ],\n{indent}    otherwise: &[");
                steps(out, plan, places, &b.otherwise, depth + 2)?;
                let _ = writeln!(out, "{indent}    ],\n{indent}}},");
            }
            Step::Host(h) => return Err(format!("`{}` runs on the host, step by step", h.name)),
            Step::Loop(_) => return Err("a loop of the network decides its trips in a run".into()),
            Step::Call(_) => return Err("a function of the network is called in a run".into()),
        }
    }
    Ok(())
}

/// The row of a dispatch.
fn run(d: &Dispatch, plan: &Plan, places: &Places) -> Result<String, String> {
    let name = &plan.kernels[d.kernel].name;
    let buffers = d.buffers.iter().map(|&b| places.row(b, name)).collect::<Result<Vec<_>, String>>()?;
    Ok(format!(
        "Step::Run {{ kernel: {}, buffers: &{buffers:?}, grid: {:?} }}, // {}",
        d.kernel,
        d.grid,
        shown_in_line(name)
    ))
}
