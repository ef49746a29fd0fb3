//! The plan as tables: buffers, tensors, kernels, and a row for each thing that a run does. Each writer prints them in
//! its language.

use serde::Serialize;
use shaders_gen::GeneratedModule;
use std::ops::Range;
use tensor_ir::dtype::DType;
use tensor_ir::plan::{BufferView, Content, Dispatch, HostContent, Plan, PlanBuffer, PlanKernel, Step, kernel_file};
use tensor_ir::profile::DeviceProfile;
use tensor_ir::tir::{Access, Encoding};

/// What a place in the blob is a multiple of, in bytes.
const ALIGNED: usize = 64;

/// A plan as tables.
pub(crate) struct Tables<'p> {
    /// The features of wgpu that the kernels use, by wgpu's names.
    pub features: Vec<&'static str>,
    /// The smallest and the largest subgroup that kernels with operations of subgroups are for.
    pub subgroups: (u32, u32),
    /// The limits that kernels and buffers need.
    pub needs: DeviceProfile,
    pub inputs: Vec<Tensor>,
    pub outputs: Vec<Tensor>,
    pub buffers: Vec<Buffer>,
    pub kernels: Vec<Kernel<'p>>,
    pub steps: Vec<Row>,
    /// The weights, as kernels read them.
    pub blob: Vec<u8>,
}

/// An input, an output or a condition.
#[derive(Serialize)]
pub(crate) struct Tensor {
    pub name: String,
    pub dtype: &'static str,
    pub shape: Vec<usize>,
    /// Bytes of an element outside of the device.
    pub size: usize,
    pub form: Form,
    pub place: Place,
}

/// How elements stand in a buffer.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Form {
    /// As they are.
    Plain,
    /// Integers, in 32 bits each.
    Words { signed: bool },
    /// Truth values, in this many bytes each.
    Truth { bytes: usize },
}

/// Where a tensor is.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Place {
    /// In these buffers, one after another.
    Buffers(Vec<usize>),
    /// An output or a condition that is this input.
    Input(usize),
}

/// A buffer of the device, or a slice of a longer one.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct Buffer {
    pub bytes: u64,
    /// Where in the blob its data begin; none: runs write it.
    pub weights: Option<usize>,
}

/// A compute shader.
pub(crate) struct Kernel<'p> {
    pub name: &'p str,
    /// Name of its file, without an end.
    pub file: String,
    pub entry: &'p str,
    /// For each of its bindings: whether it writes there.
    pub writes: Vec<bool>,
    /// Bytes of the uniform buffer that has the sizes of a run, at the binding after all others; 0 without open sizes.
    pub size_bytes: u32,
    pub module: &'p GeneratedModule,
}

/// A thing that a run does.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Row {
    /// Runs a kernel with these buffers at its bindings.
    Run {
        kernel: usize,
        buffers: Vec<usize>,
        grid: [u32; 3],
        group: usize,
        flops: u64,
        bytes: u64,
        /// Values for the kernel's uniform buffer.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        sizes: Vec<i32>,
    },
    Copy {
        from: usize,
        to: usize,
    },
    /// Reads the condition back, and takes one of two lists.
    Branch {
        condition: Tensor,
        then: Vec<Row>,
        otherwise: Vec<Row>,
    },
}

impl<'p> Tables<'p> {
    /// `packed` has the bytes of a constant's buffer as kernels read them.
    ///
    /// # Errors
    /// What only a session can do, by name; what `packed` says.
    pub(crate) fn of(
        plan: &'p Plan,
        profile: &DeviceProfile,
        packed: &dyn Fn(&PlanBuffer) -> Result<Vec<u8>, String>,
    ) -> Result<Tables<'p>, String> {
        let kernels = (0..).zip(&plan.kernels).map(kernel).collect::<Result<Vec<_>, String>>()?;
        let places = Places::of(plan, packed)?;
        let mut features: Vec<&str> = kernels.iter().flat_map(|k| k.module.features()).collect();
        features.sort_unstable();
        features.dedup();
        let all = |views: &[BufferView]| views.iter().map(|v| tensor(v, plan, &places)).collect::<Result<Vec<_>, _>>();
        Ok(Tables {
            features,
            subgroups: profile.subgroup,
            needs: plan.needs(profile),
            inputs: all(&plan.inputs)?,
            outputs: all(&plan.outputs)?,
            steps: rows(plan, &places, &plan.steps)?,
            kernels,
            buffers: places.rows,
            blob: places.blob,
        })
    }
}

/// Rows of the table of buffers: a slice of a buffer of the plan has a row.
#[derive(Default)]
struct Places {
    rows: Vec<Buffer>,
    /// For each buffer of the plan its rows.
    of: Vec<Range<usize>>,
    blob: Vec<u8>,
}

impl Places {
    fn of(plan: &Plan, packed: &dyn Fn(&PlanBuffer) -> Result<Vec<u8>, String>) -> Result<Places, String> {
        let mut p = Places::default();
        for b in &plan.buffers {
            let first = p.rows.len();
            match &b.content {
                Content::Host(_) => {}
                Content::Input(_) | Content::Pool => {
                    slices(b).for_each(|bytes| p.rows.push(Buffer { bytes, weights: None }))
                }
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
            self.rows.push(Buffer { bytes, weights: Some(at) });
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

/// Whether the host has tensors of a type, and how their elements stand in a buffer.
fn form(v: &BufferView) -> Result<Form, String> {
    if v.dtype == DType::F64 {
        return Err(format!("a tensor of {} is made on the host", v.dtype));
    }
    Ok(match (v.encoding, v.dtype) {
        (Encoding::ByteQuad, DType::Bool) => Form::Truth { bytes: 1 },
        (_, DType::Bool) => Form::Truth { bytes: 4 },
        (Encoding::ByteQuad | Encoding::HalfPair, _) => Form::Plain,
        (_, DType::F32 | DType::F16 | DType::I32 | DType::U32) => Form::Plain,
        _ => Form::Words { signed: v.dtype.is_signed() },
    })
}

/// The kernel of this number.
///
/// # Errors
/// A kernel that only a session can run.
fn kernel((i, k): (usize, &PlanKernel)) -> Result<Kernel<'_>, String> {
    let module = k.emitted.module.downcast_ref::<GeneratedModule>();
    let module = module.ok_or_else(|| format!("kernel `{}` is no shader", k.name))?;
    if module.uses_matrices() {
        return Err(format!("kernel `{}` uses matrix units, which only a session can check", k.name));
    }
    if k.emitted.immediate_bytes > 0 {
        return Err(format!("kernel `{}` takes sizes that only a run knows", k.name));
    }
    let writes = k.emitted.bindings.iter().map(|b| b.access != Access::Read).collect();
    let (file, size_bytes) = (kernel_file(i, &k.name), k.emitted.uniform_bytes);
    Ok(Kernel { name: &k.name, file, entry: &k.emitted.name, writes, size_bytes, module })
}

fn tensor(v: &BufferView, plan: &Plan, places: &Places) -> Result<Tensor, String> {
    let place = match plan.buffers[v.buffer].content {
        Content::Host(HostContent::Input(n)) => Place::Input(n),
        Content::Host(_) => return Err(format!("`{}` is made on the host, step by step", v.name)),
        _ => Place::Buffers(places.of[v.buffer].clone().collect()),
    };
    let (shape, size) = (v.shape.to_vec(), v.dtype.size());
    Ok(Tensor { name: v.name.to_string(), dtype: v.dtype.name(), shape, size, form: form(v)?, place })
}

fn rows(plan: &Plan, places: &Places, list: &[Step]) -> Result<Vec<Row>, String> {
    let mut out = vec![];
    for s in list {
        match s {
            Step::Gpu(dispatches) => {
                for d in dispatches {
                    out.push(run(d, plan, places)?);
                }
            }
            Step::Copy { from, to } => {
                if [from, to].iter().any(|&&b| matches!(plan.buffers[b].content, Content::Host(_))) {
                    return Err("a tensor is copied on the host, step by step".into());
                }
                let both = places.of[*from].clone().zip(places.of[*to].clone());
                out.extend(both.map(|(from, to)| Row::Copy { from, to }));
            }
            Step::Branch(b) => out.push(Row::Branch {
                condition: tensor(&b.condition, plan, places)?,
                then: rows(plan, places, &b.then)?,
                otherwise: rows(plan, places, &b.otherwise)?,
            }),
            Step::Host(h) => return Err(format!("`{}` runs on the host, step by step", h.name)),
            Step::Loop(_) => return Err("a loop of the network decides its trips in a run".into()),
            Step::Call(_) => return Err("a function of the network is called in a run".into()),
        }
    }
    Ok(out)
}

/// The row of a dispatch.
fn run(d: &Dispatch, plan: &Plan, places: &Places) -> Result<Row, String> {
    let name = &plan.kernels[d.kernel].name;
    let buffers = d.buffers.iter().map(|&b| places.row(b, name)).collect::<Result<Vec<_>, String>>()?;
    let sizes = if plan.kernels[d.kernel].emitted.uniform_bytes > 0 { d.symbols.clone() } else { vec![] };
    Ok(Row::Run { kernel: d.kernel, buffers, grid: d.grid, group: d.group, flops: d.flops, bytes: d.bytes, sizes })
}
