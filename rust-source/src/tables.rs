//! The plan as tables: buffers, tensors, kernels, and a row for each thing that a run does. Each writer prints them in
//! its language.

use serde::Serialize;
use shaders_gen::GeneratedModule;
use std::collections::BTreeSet;
use std::ops::Range;
use tensor_ir::dtype::DType;
use tensor_ir::plan::{
    BufferIndex, BufferView, Content, Dispatch, HostContent, HostStep, Loop, Plan, PlanBuffer, PlanKernel, Step, Trips,
    kernel_file,
};
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
    /// The weights, as kernels read them; empty if they are not packed here.
    pub blob: Vec<u8>,
    /// Bytes of the weights.
    pub weight_bytes: usize,
}

/// Packs the content of a constant's buffer as kernels read it.
pub(crate) type Packed<'f> = &'f dyn Fn(&PlanBuffer) -> Result<Vec<u8>, String>;

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
    /// In host memory; the plan's number of the buffer. Steps on the host write it.
    Host(usize),
    /// A constant of the network that only the host reads; the plan's number of the buffer.
    Constant(usize),
}

/// The abilities of a program that runs the tables, beside dispatches, copies and branches.
#[derive(Clone, Copy, Default)]
pub(crate) struct Abilities {
    /// Loops whose trips a run decides.
    pub loops: bool,
    /// Steps on the host.
    pub host: bool,
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
    /// Takes a list again and again.
    Loop(Box<LoopRow>),
    /// Computes a node of the network in host memory.
    Host(HostRow),
    /// Gives a tensor in host memory another name.
    Move {
        from: Place,
        to: Place,
    },
}

/// As [`Loop`] has it. A carried value is copied at the end of each iteration.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LoopRow {
    /// Iterations at most; none: `count` says them, or nothing does.
    pub trips: Option<u64>,
    pub count: Option<Tensor>,
    pub begin: Option<Tensor>,
    pub go_on: Option<Tensor>,
    pub index: Option<Tensor>,
    pub body: Vec<Row>,
    /// Copies and moves that make the results of an iteration the operands of the next.
    pub carried: Vec<Row>,
    pub collected: Vec<CollectedRow>,
}

/// Rows of all iterations, one after another.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CollectedRow {
    pub row: Tensor,
    pub all: Place,
    pub row_bytes: u64,
    /// The buffer grows with the rows; it is one of the network's results.
    pub grows: bool,
}

/// A node that the host computes.
#[derive(Serialize)]
pub(crate) struct HostRow {
    /// Its number in the plan.
    pub node: u32,
    pub name: String,
    pub inputs: Vec<Tensor>,
    pub outputs: Vec<Tensor>,
    pub group: usize,
}

impl<'p> Tables<'p> {
    /// `packed` has the bytes of a constant's buffer as kernels read them; without it the tables say where they go.
    ///
    /// # Errors
    /// What only a session can do, by name; what `packed` says.
    pub(crate) fn of(
        plan: &'p Plan,
        profile: &DeviceProfile,
        packed: Option<Packed<'_>>,
        can: Abilities,
    ) -> Result<Tables<'p>, String> {
        let kernels = (0..).zip(&plan.kernels).map(kernel).collect::<Result<Vec<_>, String>>()?;
        let places = Places::of(plan, packed)?;
        let mut features: Vec<&str> = kernels.iter().flat_map(|k| k.module.features()).collect();
        features.sort_unstable();
        features.dedup();
        let rows = Rows { plan, places: &places, can };
        let all = |views: &[BufferView]| views.iter().map(|v| rows.tensor(v)).collect::<Result<Vec<_>, _>>();
        // First what names a step that cannot be: tensors follow from steps.
        let steps = rows.of(&plan.steps)?;
        Ok(Tables {
            features,
            subgroups: profile.subgroup,
            needs: plan.needs(profile),
            inputs: all(&plan.inputs)?,
            outputs: all(&plan.outputs)?,
            steps,
            kernels,
            buffers: places.rows,
            weight_bytes: places.weight_bytes,
            blob: places.blob,
        })
    }
}

/// A part of a constant's buffer, of a file with all weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightPart {
    /// Where it begins in the file.
    pub at: usize,
    /// Its bytes.
    pub bytes: usize,
    /// The plan's number of the buffer.
    pub buffer: usize,
    /// Where it begins in the buffer's packed bytes.
    pub start: usize,
    /// Nothing of the buffer is behind it.
    pub last: bool,
}

/// The parts of all constants' buffers, in the order of the file with all weights.
pub fn weight_parts(plan: &Plan) -> Vec<WeightPart> {
    let mut parts = vec![];
    let mut end = 0;
    for (buffer, b) in plan.buffers.iter().enumerate() {
        if !matches!(b.content, Content::Constant { .. }) {
            continue;
        }
        let mut start = 0;
        for bytes in slices(b).map(|n| n as usize) {
            let at = usize::next_multiple_of(end, ALIGNED);
            parts.push(WeightPart { at, bytes, buffer, start, last: false });
            (start, end) = (start + bytes, at + bytes);
        }
        parts.last_mut().into_iter().for_each(|p| p.last = true);
    }
    parts
}

impl WeightPart {
    /// Its bytes, from the packed bytes of the buffer, which may end before the buffer does.
    pub fn of(&self, packed: &[u8]) -> Vec<u8> {
        let inside = |n: usize| n.min(packed.len());
        let mut out = packed[inside(self.start)..inside(self.start + self.bytes)].to_vec();
        out.resize(self.bytes, 0);
        out
    }
}

/// Rows of the table of buffers: a slice of a buffer of the plan has a row.
#[derive(Default)]
struct Places {
    rows: Vec<Buffer>,
    /// For each buffer of the plan its rows.
    of: Vec<Range<usize>>,
    blob: Vec<u8>,
    weight_bytes: usize,
}

impl Places {
    fn of(plan: &Plan, packed: Option<Packed<'_>>) -> Result<Places, String> {
        let parts = weight_parts(plan);
        let mut p = Places { weight_bytes: parts.last().map_or(0, |w| w.at + w.bytes), ..Places::default() };
        let growing = growing(plan);
        for (i, b) in plan.buffers.iter().enumerate() {
            let first = p.rows.len();
            match &b.content {
                Content::Host(_) => {}
                // A run replaces it by a larger one.
                Content::Pool if growing.contains(&i) => p.rows.push(Buffer { bytes: 16, weights: None }),
                Content::Input(_) | Content::Pool => {
                    slices(b).for_each(|bytes| p.rows.push(Buffer { bytes, weights: None }))
                }
                Content::Constant { .. } => {
                    let bytes = packed.map(|pack| pack(b)).transpose()?;
                    let own = parts.iter().filter(|w| w.buffer == i);
                    own.for_each(|w| p.constant(w, bytes.as_deref()));
                }
            }
            p.of.push(first..p.rows.len());
        }
        Ok(p)
    }

    fn constant(&mut self, part: &WeightPart, packed: Option<&[u8]>) {
        self.rows.push(Buffer { bytes: part.bytes as u64, weights: Some(part.at) });
        if let Some(packed) = packed {
            self.blob.resize(part.at, 0);
            self.blob.extend(part.of(packed));
        }
    }

    /// Where the tensor in a buffer of the plan is.
    fn place(&self, plan: &Plan, buffer: BufferIndex) -> Place {
        match plan.buffers[buffer].content {
            Content::Host(HostContent::Input(n)) => Place::Input(n),
            Content::Host(HostContent::Value(_)) => Place::Host(buffer),
            Content::Host(HostContent::Constant(_)) => Place::Constant(buffer),
            _ => Place::Buffers(self.of[buffer].clone().collect()),
        }
    }

    fn row(&self, (buffer, slice): (usize, u32), user: &str) -> Result<usize, String> {
        let row = self.of[buffer].clone().nth(slice as usize);
        row.ok_or_else(|| format!("`{user}` uses a tensor without elements, or one that is made on the host"))
    }
}

/// The buffers that grow with the iterations of a loop.
fn growing(plan: &Plan) -> BTreeSet<BufferIndex> {
    let loops = plan.all_steps().into_iter().filter_map(|s| if let Step::Loop(l) = s { Some(l) } else { None });
    loops.flat_map(|l| &l.collected).filter(|c| c.grows).map(|c| c.all).collect()
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
    let place = places.place(plan, v.buffer);
    let form = if matches!(place, Place::Buffers(_)) { form(v)? } else { Form::Plain };
    let (shape, size) = (v.shape.to_vec(), v.dtype.size());
    Ok(Tensor { name: v.name.to_string(), dtype: v.dtype.name(), shape, size, form, place })
}

/// Makes rows of steps.
struct Rows<'p> {
    plan: &'p Plan,
    places: &'p Places,
    can: Abilities,
}

impl Rows<'_> {
    fn of(&self, list: &[Step]) -> Result<Vec<Row>, String> {
        let mut out = vec![];
        for s in list {
            match s {
                Step::Gpu(dispatches) => {
                    for d in dispatches {
                        out.push(self.run(d)?);
                    }
                }
                Step::Copy { from, to } => self.copy(*from, *to, &mut out)?,
                Step::Branch(b) => out.push(Row::Branch {
                    condition: self.tensor(&b.condition)?,
                    then: self.of(&b.then)?,
                    otherwise: self.of(&b.otherwise)?,
                }),
                Step::Host(h) => out.push(self.host(h)?),
                Step::Loop(l) => out.push(self.r#loop(l)?),
                Step::Call(c) => {
                    let callee = &self.plan.functions[c.callee].name;
                    return Err(format!("its function `{callee}` is called in a run, perhaps by itself"));
                }
            }
        }
        Ok(out)
    }

    /// A tensor in a buffer, or wherever the program can have one.
    fn tensor(&self, v: &BufferView) -> Result<Tensor, String> {
        let t = tensor(v, self.plan, self.places)?;
        match t.place {
            Place::Host(_) | Place::Constant(_) if !self.can.host => {
                Err(format!("`{}` is made on the host, step by step", v.name))
            }
            _ => Ok(t),
        }
    }

    /// The row of a dispatch.
    fn run(&self, d: &Dispatch) -> Result<Row, String> {
        let kernel = &self.plan.kernels[d.kernel];
        let buffers = d.buffers.iter().map(|&b| self.places.row(b, &kernel.name)).collect::<Result<Vec<_>, _>>()?;
        let sizes = if kernel.emitted.uniform_bytes > 0 { d.symbols.clone() } else { vec![] };
        Ok(Row::Run { kernel: d.kernel, buffers, grid: d.grid, group: d.group, flops: d.flops, bytes: d.bytes, sizes })
    }

    fn copy(&self, from: BufferIndex, to: BufferIndex, out: &mut Vec<Row>) -> Result<(), String> {
        match (self.places.place(self.plan, from), self.places.place(self.plan, to)) {
            (Place::Buffers(from), Place::Buffers(to)) => {
                out.extend(from.into_iter().zip(to).map(|(from, to)| Row::Copy { from, to }));
            }
            (from, to) if self.can.host => out.push(Row::Move { from, to }),
            _ => return Err("a tensor is copied on the host, step by step".into()),
        }
        Ok(())
    }

    fn host(&self, h: &HostStep) -> Result<Row, String> {
        if !self.can.host {
            return Err(format!("`{}` runs on the host, step by step", h.name));
        }
        if let Some(call) = h.call.filter(|c| !c.external) {
            return Err(format!(
                "`{}` calls the host function `{}`, which a page does not have",
                h.name, call.function
            ));
        }
        let all = |views: &[BufferView]| views.iter().map(|v| self.tensor(v)).collect::<Result<Vec<_>, _>>();
        let (node, name, group) = (h.node, h.name.to_string(), h.group);
        Ok(Row::Host(HostRow { node, name, inputs: all(&h.inputs)?, outputs: all(&h.outputs)?, group }))
    }

    fn r#loop(&self, l: &Loop) -> Result<Row, String> {
        if !self.can.loops {
            return Err("a loop of the network decides its trips in a run".into());
        }
        let one = |v: &Option<BufferView>| v.as_ref().map(|v| self.tensor(v)).transpose();
        let (trips, count) = match &l.trips {
            Trips::Fixed(n) => (Some(*n), None),
            Trips::Read(v) => (None, Some(self.tensor(v)?)),
            Trips::Unlimited => (None, None),
        };
        let mut carried = vec![];
        l.carried.iter().try_for_each(|c| self.copy(c.next, c.now, &mut carried))?;
        let collected = l.collected.iter().map(|c| {
            let (row, all) = (self.tensor(&c.row)?, self.places.place(self.plan, c.all));
            Ok::<_, String>(CollectedRow { row, all, row_bytes: c.row_bytes, grows: c.grows })
        });
        Ok(Row::Loop(Box::new(LoopRow {
            trips,
            count,
            begin: one(&l.begin)?,
            go_on: one(&l.go_on)?,
            index: one(&l.index)?,
            body: self.of(&l.body)?,
            carried,
            collected: collected.collect::<Result<_, _>>()?,
        })))
    }
}
