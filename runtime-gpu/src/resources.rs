//! The data that a run writes: buffers of inputs, activations and results, the bind groups over them, and tensors on
//! the host. The types of loops, calls and given buffers are here too; the modules `loops`, `calls` and `bindings` act
//! on them.
//!
//! A run takes resources from the session's pool and has them exclusively from its inputs to its results. The pool has
//! as many as runs may be in flight (`SessionOptions::runs_in_flight`); further runs wait, `run_async` as a future.
//! Constants, pipelines and the plan are shared by all runs ([`Shared`]) and never written.

use crate::buffers::{allocate, new_encoder, slice_sizes};
use crate::device::Gpu;
use crate::error::GpuError;
use crate::host_copies::{HostCopies, written};
use crate::host_functions::{DeviceCall, DeviceFunction, DeviceOperand, HostFunctions};
use crate::recorder::{Doing, Recorder};
use crate::shared_parts::{DeviceConstant, Pipeline};
use crate::staging::{Staging, write_by_queue};
use crate::tensors::DeviceTensor;
use crate::transfers::Counters;
use compiler::name::Name;
use compiler::plan::storage::stored_bytes;
use compiler::plan::{
    BufferView, Call, Content, Dispatch, EmittedKernel, HostStep, Loop, Plan, PlanBuffer, PlanFunction, Step,
};
use compiler::tensor::Tensor;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

/// The data that all runs of a session read.
pub(crate) struct Shared {
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) plan: Plan,
    pub(crate) pipelines: Arc<Vec<Arc<Pipeline>>>,
    /// The plan's constant buffers; none for its other buffers.
    pub(crate) constants: Vec<Option<Arc<DeviceConstant>>>,
    /// Tensors of the plan's constants on the host.
    pub(crate) host_constants: Vec<Option<Tensor>>,
    pub(crate) host_functions: HostFunctions,
    /// Those on device buffers, ready to run.
    pub(crate) device_functions: BTreeMap<Name, DeviceFunction>,
    /// The plan may come from a stranger's file.
    pub is_foreign: bool,
    /// Device buffers of which the host keeps tensors that it read or gave.
    pub(crate) kept_on_host: BTreeSet<usize>,
    /// Places of the plan's dispatches among them all, by their addresses in the plan.
    pub(crate) positions: OnceLock<HashMap<usize, usize>>,
}

/// A dispatch with everything bound.
pub(crate) struct Bound {
    pub(crate) kernel: usize,
    pub(crate) bind_group: wgpu::BindGroup,
    pub(crate) grid: [u32; 3],
    pub(crate) immediates: Vec<u8>,
    pub(crate) group: usize,
    /// Its place among the plan's dispatches.
    pub(crate) position: usize,
    /// The buffers of [`Shared::kept_on_host`] that it writes.
    pub(crate) written: Vec<usize>,
}

/// A step with everything bound.
pub(crate) enum BoundStep {
    Gpu(Vec<Bound>),
    /// On tensors in host memory.
    Host(HostStep),
    /// By a host function on device buffers.
    DeviceCall(HostStep, DeviceFunction),
    Copy(usize, usize),
    /// The condition, and the steps for true and for false.
    Branch(BufferView, [BoundSteps; 2]),
    Loop(Arc<BoundLoop>),
    Call(Arc<Call>),
}

/// Steps in order; a run holds them while it writes the rest of its resources.
pub(crate) type BoundSteps = Arc<Vec<BoundStep>>;

/// A loop with everything bound.
pub(crate) struct BoundLoop {
    /// Without its body.
    pub(crate) plan: Loop,
    /// The body for even iterations and for odd ones.
    pub(crate) bodies: [BoundSteps; 2],
    pub(crate) alternates: bool,
    /// Iterations that it has run.
    pub(crate) ran: AtomicU64,
}

/// Numbers of iterations on the device.
pub(crate) struct Numbers {
    pub(crate) buffer: wgpu::Buffer,
    /// The first of those that are there.
    pub(crate) first: Option<u64>,
}

/// The buffers of a run's calls.
#[derive(Default)]
pub(crate) struct Calls {
    /// The functions, as the plan has them.
    pub(crate) functions: Vec<Function>,
    /// The calls that are under way, innermost last.
    pub(crate) active: Vec<Active>,
}

pub(crate) struct Function {
    /// The steps over the plan's own buffers.
    pub(crate) body: BoundSteps,
    /// Frames of nested calls, by depth.
    pub(crate) frames: Vec<Frame>,
    /// Calls under way.
    pub(crate) depth: usize,
}

/// The buffers of a call; while it is active, those of the enclosing call.
pub(crate) struct Frame {
    /// In the order of the function's buffers.
    pub(crate) buffers: Vec<Vec<wgpu::Buffer>>,
    pub(crate) host: Vec<Option<Tensor>>,
    pub(crate) steps: BoundSteps,
}

/// A call that is under way.
pub(crate) struct Active {
    pub(crate) callee: usize,
    /// Buffers that loops around the call have in each other's places.
    pub(crate) swapped: Vec<(usize, usize)>,
}

/// Buffers of callers, by the plan's buffer that they are in the place of.
pub(crate) type Given = Vec<(usize, Vec<wgpu::Buffer>)>;

/// The resources of a run that the caller gave.
#[derive(Default)]
pub(crate) struct Bindings {
    pub(crate) now: Given,
    /// The buffers that were allocated for those in `now`.
    pub(crate) own: BTreeMap<usize, Vec<wgpu::Buffer>>,
    /// The steps over the buffers that were allocated.
    pub(crate) own_steps: Option<BoundSteps>,
    /// Steps over given buffers, those that were used last at the end.
    pub(crate) kept: VecDeque<(Given, BoundSteps)>,
    /// Buffers for results, in the order of the plan's outputs.
    pub(crate) results: Vec<Option<DeviceTensor>>,
    /// Results that are copied there, since they could not be bound.
    pub(crate) copied: Vec<usize>,
}

/// The data that one run at a time writes.
pub(crate) struct Resources {
    /// Slices of the plan's buffers, the shared constants among them.
    pub(crate) buffers: Vec<Vec<wgpu::Buffer>>,
    pub(crate) steps: BoundSteps,
    /// Buffers of callers among them.
    pub(crate) bindings: Bindings,
    pub(crate) staging: Staging,
    /// Bytes that the run has moved so far.
    pub(crate) moved: Counters,
    /// Tensors of device buffers that the host has too.
    pub(crate) copies: HostCopies,
    /// Tensors of the plan's host buffers.
    pub(crate) host: Vec<Option<Tensor>>,
    /// Buffers that are in each other's places, for the time of a loop.
    pub(crate) swapped: Vec<(usize, usize)>,
    /// Rows of the buffers that grow as a loop runs.
    pub(crate) rows: BTreeMap<usize, usize>,
    /// Numbers of iterations, by the buffer that they are copied to.
    pub(crate) numbers: BTreeMap<usize, Numbers>,
    /// The buffers of calls of the plan's functions.
    pub(crate) calls: Calls,
    /// Takes notes of the run.
    pub(crate) recorder: Recorder,
}

impl BoundLoop {
    pub(crate) fn bind(shared: &Shared, buffers: &[Vec<wgpu::Buffer>], l: &Loop) -> BoundLoop {
        let even = bind_steps(shared, buffers, &l.body);
        let alternates = l.alternates();
        let odd = if alternates {
            let mut swapped = buffers.to_vec();
            l.carried.iter().for_each(|c| swapped.swap(c.now, c.next));
            bind_steps(shared, &swapped, &l.body)
        } else {
            even.clone()
        };
        BoundLoop { plan: Loop { body: vec![], ..l.clone() }, bodies: [even, odd], alternates, ran: AtomicU64::new(0) }
    }
    /// An iteration.
    pub(crate) fn body(&self) -> &BoundSteps {
        &self.bodies[0]
    }
}

impl Calls {
    /// With the functions' steps over the plan's buffers.
    pub(crate) fn new(shared: &Shared, buffers: &[Vec<wgpu::Buffer>]) -> Calls {
        let bound =
            |f: &PlanFunction| Function { body: bind_steps(shared, buffers, &f.body), frames: vec![], depth: 0 };
        Calls { functions: shared.plan.functions.iter().map(bound).collect(), active: vec![] }
    }
    /// The steps of the functions, in order.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = &BoundSteps> {
        self.functions.iter().map(|f| &f.body)
    }
}

impl Bindings {
    /// The given buffer for the n-th result.
    pub(crate) fn result(&self, n: usize) -> Option<&DeviceTensor> {
        self.results.get(n)?.as_ref()
    }
}

impl Shared {
    /// The place of a dispatch of the plan.
    fn position(&self, d: &Dispatch) -> usize {
        let address = |d: &Dispatch| std::ptr::from_ref(d) as usize;
        let all = self.positions.get_or_init(|| self.plan.dispatches().map(address).zip(0..).collect());
        all.get(&address(d)).copied().unwrap_or(0)
    }

    /// True when the plan computes something on tensors in host memory.
    pub(crate) fn has_host_steps(&self) -> bool {
        let on_tensors = |s: &&Step| matches!(s, Step::Host(h) if h.device_function().is_none());
        self.plan.all_steps().iter().any(on_tensors)
    }

    /// True when the host decides or computes something between submissions.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.has_host_steps()
            || self.plan.steps.iter().any(|s| matches!(s, Step::Branch(_) | Step::Loop(_) | Step::Call(_)))
    }

    pub(crate) fn on_host(&self, tensor: &BufferView) -> bool {
        self.holds_tensor(tensor.buffer)
    }

    /// True when the buffer is a tensor in host memory.
    pub(crate) fn holds_tensor(&self, buffer: usize) -> bool {
        matches!(self.plan.buffers[buffer].content, Content::Host(_))
    }

    /// Encodes a step that runs on the device.
    ///
    /// # Errors
    /// An error of a host function.
    pub(crate) fn encode(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        resources: &Resources,
        step: &BoundStep,
    ) -> Result<(), GpuError> {
        match step {
            BoundStep::Gpu(list) => {
                let of = (|d: &Bound| d.position, |pass: &mut wgpu::ComputePass<'_>, d: &Bound| self.dispatch(pass, d));
                resources.recorder.dispatches(&self.gpu, encoder, list, of)?;
            }
            BoundStep::Copy(from, to) => resources.copy_buffer(self, encoder, *from, *to),
            BoundStep::DeviceCall(h, function) => {
                let operand = |view| DeviceOperand { view, buffers: &resources.buffers[view.buffer] };
                let (inputs, outputs) =
                    (h.inputs.iter().map(operand).collect(), h.outputs.iter().map(operand).collect());
                let what = || Doing::Step(h.name.to_string(), h.group);
                resources.recorder.device_step(&self.gpu, encoder, what, |encoder| {
                    let mut call = DeviceCall { gpu: &self.gpu, encoder, inputs, outputs };
                    let said = self.gpu.validated(|| function(&mut call));
                    said.map_err(|e| GpuError::Host(format!("{}: {e}", h.name)))
                })?;
            }
            BoundStep::Host(_) | BoundStep::Branch(..) | BoundStep::Loop(_) | BoundStep::Call(_) => {}
        }
        Ok(())
    }

    pub(crate) fn dispatch(&self, pass: &mut wgpu::ComputePass<'_>, d: &Bound) {
        self.dispatch_groups(pass, d, d.grid);
    }

    /// Encodes a dispatch with another number of workgroups.
    pub(crate) fn dispatch_groups(&self, pass: &mut wgpu::ComputePass<'_>, d: &Bound, groups: [u32; 3]) {
        pass.set_pipeline(&self.pipelines[d.kernel].pipeline);
        pass.set_bind_group(0, &d.bind_group, &[]);
        if !d.immediates.is_empty() {
            pass.set_immediates(0, &d.immediates);
        }
        pass.dispatch_workgroups(groups[0], groups[1], groups[2]);
    }
}

impl Resources {
    /// Allocates all buffers except constants, and binds everything.
    pub(crate) fn new(shared: &Shared) -> Resources {
        let plan = &shared.plan;
        let mut buffers = Vec::with_capacity(plan.buffers.len());
        for (i, b) in plan.buffers.iter().enumerate() {
            buffers.push(match &shared.constants[i] {
                Some(constant) => constant.slices.clone(),
                None => allocate(&shared.gpu, plan, i, b),
            });
        }
        let steps = bind_steps(shared, &buffers, &plan.steps);
        let calls = Calls::new(shared, &buffers);
        let host = shared.host_constants.clone();
        Resources {
            buffers,
            steps,
            bindings: Bindings::default(),
            staging: Staging::default(),
            moved: Counters::default(),
            copies: HostCopies::default(),
            host,
            swapped: vec![],
            rows: BTreeMap::new(),
            numbers: BTreeMap::new(),
            calls,
            recorder: Recorder::default(),
        }
    }

    /// Uploads an input, with the commands of its run.
    pub(crate) fn write_input(
        &mut self,
        shared: &Shared,
        encoder: &mut Option<wgpu::CommandEncoder>,
        tensor: &BufferView,
        t: &Tensor,
    ) -> Result<(), GpuError> {
        if shared.on_host(tensor) {
            return self.write(shared, tensor, t);
        }
        let device = &shared.gpu.device;
        let encoding = encoder.get_or_insert_with(|| new_encoder(&shared.gpu));
        let slice_bytes = shared.plan.buffers[tensor.buffer].slice_bytes;
        let to = (tensor, slice_bytes, self.buffers[tensor.buffer].as_slice());
        if !self.staging.upload(device, encoding, to, t).map_err(|e| with_reader(e, shared, tensor))? {
            return self.write(shared, tensor, t);
        }
        self.moved.upload(stored_bytes(tensor));
        Ok(())
    }

    /// Writes a tensor; it reaches the device before the next submission.
    pub(crate) fn write(&mut self, shared: &Shared, tensor: &BufferView, t: &Tensor) -> Result<(), GpuError> {
        if shared.on_host(tensor) {
            self.host[tensor.buffer] = Some(t.clone());
            return Ok(());
        }
        self.moved.upload(stored_bytes(tensor));
        let slice_bytes = shared.plan.buffers[tensor.buffer].slice_bytes;
        let written = write_by_queue(&shared.gpu.queue, (tensor, slice_bytes, &self.buffers[tensor.buffer]), t);
        written.map_err(|e| with_reader(e, shared, tensor))
    }

    /// Encodes a copy of a whole buffer of the plan.
    pub(crate) fn copy_buffer(&self, shared: &Shared, encoder: &mut wgpu::CommandEncoder, from: usize, to: usize) {
        self.copy_slices(encoder, (&self.buffers[from], &self.buffers[to]), &shared.plan.buffers[from]);
    }

    /// Encodes a copy of the slices of `buffer`.
    pub(crate) fn copy_slices(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        (from, to): (&[wgpu::Buffer], &[wgpu::Buffer]),
        buffer: &PlanBuffer,
    ) {
        for ((a, b), size) in from.iter().zip(to).zip(slice_sizes(buffer)) {
            let size = size.min(a.size()).min(b.size());
            self.moved.copy(size);
            encoder.copy_buffer_to_buffer(a, 0, b, 0, size);
        }
    }

    /// The current shape of a view.
    pub(crate) fn shape_of(&self, tensor: &BufferView) -> Vec<usize> {
        let mut shape = tensor.shape.clone();
        if let (Some(&rows), Some(first)) = (self.rows.get(&tensor.buffer), shape.first_mut()) {
            *first = rows;
        }
        shape
    }

    /// A tensor in host memory, in the view's shape.
    pub(crate) fn read_host(&self, tensor: &BufferView) -> Result<Tensor, GpuError> {
        let shape = self.shape_of(tensor);
        let t = self.host[tensor.buffer].clone();
        let t = t.filter(|t| t.len() == shape.iter().product::<usize>());
        let t = t.ok_or_else(|| GpuError::Internal(format!("`{}` is read before it is written", tensor.name)))?;
        Ok(t.reshaped(shape))
    }
}

pub(crate) fn bind_steps(shared: &Shared, buffers: &[Vec<wgpu::Buffer>], steps: &[Step]) -> BoundSteps {
    let one = |s: &Step| match s {
        Step::Gpu(list) => BoundStep::Gpu(list.iter().map(|d| bind(shared, buffers, d)).collect()),
        Step::Host(h) => match h.device_function().and_then(|name| shared.device_functions.get(&name)) {
            Some(function) => BoundStep::DeviceCall(h.clone(), function.clone()),
            None => BoundStep::Host(h.clone()),
        },
        Step::Copy { from, to } => BoundStep::Copy(*from, *to),
        Step::Branch(b) => {
            let sides = [&b.then, &b.otherwise].map(|side| bind_steps(shared, buffers, side));
            BoundStep::Branch(b.condition.clone(), sides)
        }
        Step::Loop(l) => BoundStep::Loop(Arc::new(BoundLoop::bind(shared, buffers, l))),
        Step::Call(c) => BoundStep::Call(Arc::new(c.clone())),
    };
    Arc::new(steps.iter().map(one).collect())
}

/// The buffer of a dispatch's sizes, for a kernel that takes them there.
pub(crate) fn uniform(gpu: &Gpu, kernel: &EmittedKernel, d: &Dispatch) -> Option<wgpu::Buffer> {
    let bytes = kernel.uniform(&d.symbols)?;
    let (size, usage) = (bytes.len() as u64, wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST);
    let described = wgpu::BufferDescriptor { label: Some("sizes"), size, usage, mapped_at_creation: false };
    let buffer = gpu.device.create_buffer(&described);
    gpu.queue.write_buffer(&buffer, 0, &bytes);
    Some(buffer)
}

fn bind(shared: &Shared, buffers: &[Vec<wgpu::Buffer>], d: &Dispatch) -> Bound {
    let name = &shared.plan.kernels[d.kernel].name;
    let entry = |(i, (buffer, slice)): (usize, &(usize, u32))| wgpu::BindGroupEntry {
        binding: i as u32,
        resource: buffers[*buffer][*slice as usize].as_entire_binding(),
    };
    let mut entries: Vec<wgpu::BindGroupEntry> = d.buffers.iter().enumerate().map(entry).collect();
    let uniform = uniform(&shared.gpu, &shared.plan.kernels[d.kernel].emitted, d);
    if let Some(uniform) = &uniform {
        let (binding, resource) = (entries.len() as u32, uniform.as_entire_binding());
        entries.push(wgpu::BindGroupEntry { binding, resource });
    }
    let bind_group = shared.gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some(name),
        layout: &shared.pipelines[d.kernel].layout,
        entries: &entries,
    });
    let immediates = if uniform.is_some() { vec![] } else { d.symbols.iter().flat_map(|s| s.to_le_bytes()).collect() };
    let written = written(&shared.plan, &shared.kept_on_host, d);
    let position = shared.position(d);
    Bound { kernel: d.kernel, bind_group, grid: d.grid, immediates, group: d.group, position, written }
}

/// An integer that does not fit, with the nodes whose kernel reads it.
fn with_reader(e: GpuError, shared: &Shared, view: &BufferView) -> GpuError {
    match (e, shared.plan.reader_of(view.buffer)) {
        (GpuError::TooWide(why), Some(reader)) => GpuError::TooWide(format!("{why}, in which `{reader}` reads it")),
        (e, _) => e,
    }
}
