//! Sessions: buffers filled, constants prepacked and uploaded, pipelines and bind groups built.

use crate::constants::{Upload, constant_encoding, load_constant};
use crate::device::Gpu;
use crate::error::GpuError;
use crate::pipelines::{Pipeline, build_all, cache_file, open_cache, store_cache};
use compiler::graph::Module;
use compiler::plan::{Content, Dispatch, HostContent, Plan, PlanBuffer, Step};
use compiler::tensor::Tensor;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// How a session opens.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// Folder of the pipeline cache; none: no cache on disk.
    pub cache_dir: Option<PathBuf>,
}

/// A dispatch with everything bound.
pub(crate) struct Bound {
    pub(crate) kernel: usize,
    pub(crate) bind_group: wgpu::BindGroup,
    pub(crate) grid: [u32; 3],
    pub(crate) immediates: Vec<u8>,
    pub(crate) group: usize,
}

/// A step with everything bound.
pub(crate) enum BoundStep {
    Gpu(Vec<Bound>),
    Host(compiler::plan::HostStep),
    Copy(usize, usize),
}

/// An open session.
pub struct Session {
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) plan: Plan,
    pub(crate) buffers: Vec<Vec<wgpu::Buffer>>,
    pub(crate) pipelines: Vec<Pipeline>,
    pub(crate) steps: Vec<BoundStep>,
    /// Tensors of the plan's host buffers.
    pub(crate) host: Mutex<Vec<Option<Tensor>>>,
}

impl Session {
    /// Opens a session: checks limits, allocates, uploads the constants of `module` one after another (each is read,
    /// packed, written and dropped), builds pipelines. `progress` is called with a stage, the number done and the total.
    ///
    /// # Errors
    /// Limits, memory, unreadable constants: before anything is dispatched.
    pub fn open(
        gpu: Arc<Gpu>,
        plan: &Plan,
        module: &Module,
        options: &SessionOptions,
        progress: &mut dyn FnMut(&str, usize, usize),
    ) -> Result<Session, GpuError> {
        check_limits(&gpu, plan)?;
        let memory = gpu.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let validation = gpu.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let internal = gpu.device.push_error_scope(wgpu::ErrorFilter::Internal);
        let opened = Session::build_all(gpu.clone(), plan, module, options, progress);
        let (internal, validation, memory) = (
            pollster::block_on(internal.pop()),
            pollster::block_on(validation.pop()),
            pollster::block_on(memory.pop()),
        );
        if let Some(e) = memory {
            let need = plan.buffers.iter().map(|b| b.bytes).sum();
            return Err(GpuError::OutOfMemory { device: gpu.description.name.clone(), need, why: e.to_string() });
        }
        if let Some(e) = validation.or(internal) {
            return Err(GpuError::Internal(e.to_string()));
        }
        gpu.check_lost()?;
        opened
    }

    fn build_all(
        gpu: Arc<Gpu>,
        plan: &Plan,
        module: &Module,
        options: &SessionOptions,
        progress: &mut dyn FnMut(&str, usize, usize),
    ) -> Result<Session, GpuError> {
        let mut buffers = Vec::with_capacity(plan.buffers.len());
        let mut host = vec![None; plan.buffers.len()];
        let mut upload = Upload::new(&gpu, module);
        for (i, b) in plan.buffers.iter().enumerate() {
            progress("buffers", i, plan.buffers.len());
            let banks = allocate(&gpu, plan, i, b);
            if let Content::Constant { name, packer } = &b.content {
                upload.constant(*name, packer.as_deref(), constant_encoding(plan, module, i), b, &banks)?;
            }
            if let Content::Host(HostContent::Constant(name)) = b.content {
                host[i] = Some(load_constant(module, name)?);
            }
            buffers.push(banks);
        }
        let file = cache_file(&gpu, options.cache_dir.as_ref());
        let cache = open_cache(&gpu, file.as_ref());
        let pipelines = build_all(&gpu, plan, cache.as_ref(), progress)?;
        store_cache(cache.as_ref(), file.as_ref());
        let steps = plan
            .steps
            .iter()
            .map(|s| match s {
                Step::Gpu(list) => {
                    BoundStep::Gpu(list.iter().map(|d| bind(&gpu, plan, &buffers, &pipelines, d)).collect())
                }
                Step::Host(h) => BoundStep::Host(h.clone()),
                Step::Copy { from, to } => BoundStep::Copy(*from, *to),
            })
            .collect();
        Ok(Session { gpu, plan: plan.clone(), buffers, pipelines, steps, host: Mutex::new(host) })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
    /// The device.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }
    /// Bytes of all device buffers.
    pub fn device_bytes(&self) -> u64 {
        self.plan.buffers.iter().map(|b| b.bytes).sum()
    }
}

fn check_limits(gpu: &Gpu, plan: &Plan) -> Result<(), GpuError> {
    for b in &plan.buffers {
        let limit = gpu.profile.max_buffer.min(gpu.profile.max_binding);
        if b.bank_bytes > limit {
            let what = match &b.content {
                Content::Constant { name, .. } => name.to_string(),
                Content::Input(i) => plan.inputs.get(*i).map_or("input".into(), |s| s.name.to_string()),
                Content::Pool | Content::Host(_) => "an activation".into(),
            };
            return Err(GpuError::BufferTooLarge {
                what,
                need: b.bank_bytes,
                device: gpu.description.name.clone(),
                limit,
            });
        }
    }
    let need: u64 = plan.buffers.iter().map(|b| b.bytes).sum();
    if gpu.profile.software
        && let Some(free) = available_memory()
        && need > free
    {
        let why = format!("the machine has {free} bytes available");
        return Err(GpuError::OutOfMemory { device: gpu.description.name.clone(), need, why });
    }
    Ok(())
}

/// Bytes of host memory that can be had, where the system says so: it overcommits, and a software device allocates there.
pub fn available_memory() -> Option<u64> {
    let mut system = sysinfo::System::new().ok()?;
    system.refresh_memory();
    Some(system.available_memory()).filter(|&bytes| bytes > 0)
}

/// Sizes of the banks of a buffer.
pub(crate) fn bank_sizes(b: &PlanBuffer) -> Vec<u64> {
    let mut left = b.bytes;
    let mut out = Vec::new();
    while left > 0 {
        let n = left.min(b.bank_bytes.max(16));
        out.push(n.next_multiple_of(16));
        left -= n;
    }
    out
}

fn allocate(gpu: &Gpu, plan: &Plan, index: usize, b: &PlanBuffer) -> Vec<wgpu::Buffer> {
    let constant = matches!(b.content, Content::Constant { .. });
    let read_back = plan.outputs.iter().any(|o| o.buffer == index)
        || plan.steps.iter().any(|s| match s {
            Step::Host(h) => h.inputs.iter().any(|t| t.buffer == index),
            Step::Copy { from, .. } => *from == index,
            Step::Gpu(_) => false,
        });
    let mut usage = wgpu::BufferUsages::STORAGE;
    if !constant {
        usage |= wgpu::BufferUsages::COPY_DST;
    }
    if read_back {
        usage |= wgpu::BufferUsages::COPY_SRC;
    }
    bank_sizes(b)
        .into_iter()
        .map(|size| {
            gpu.device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: constant })
        })
        .collect()
}

fn bind(gpu: &Gpu, plan: &Plan, buffers: &[Vec<wgpu::Buffer>], pipelines: &[Pipeline], d: &Dispatch) -> Bound {
    let e = &plan.kernels[d.kernel].emitted;
    let entries: Vec<wgpu::BindGroupEntry> = d
        .buffers
        .iter()
        .enumerate()
        .map(|(i, (buffer, bank))| wgpu::BindGroupEntry {
            binding: i as u32,
            resource: buffers[*buffer][*bank as usize].as_entire_binding(),
        })
        .collect();
    let bind_group = gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some(&e.name),
        layout: &pipelines[d.kernel].layout,
        entries: &entries,
    });
    let immediates = d.symbols.iter().flat_map(|s| s.to_le_bytes()).collect();
    Bound { kernel: d.kernel, bind_group, grid: e.grid, immediates, group: d.group }
}
