//! Sessions: fill buffers, prepack and upload constants, and build pipelines and bind groups.

use crate::cache::CacheFolder;
use crate::constants::{Upload, load_constant};
use crate::device::Gpu;
use crate::error::GpuError;
use crate::first_dispatch::compile_in_driver;
use crate::host_copies::kept_on_host;
use crate::host_functions::HostFunctions;
use crate::host_memory::available_memory;
use crate::pipelines::{Built, PipelineCache, build_all};
use crate::pool::Pool;
use crate::prepacked::Prepacked;
use crate::resources::{Resources, Shared};
use crate::shared_parts::{DeviceConstant, Opened};
use compiler::fingerprint::Fingerprint;
use compiler::graph::Module;
use compiler::plan::{Content, HostContent, Plan};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// How a session opens.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// The folder for the driver's pipelines; `None` means they are not kept.
    pub cache: Option<CacheFolder>,
    /// The constants as they were packed before; none: they are packed from the module.
    pub prepacked: Option<Arc<Prepacked>>,
    /// The functions that `call_host` nodes call.
    pub host_functions: HostFunctions,
    /// Runs that may be under way at once, each with memory of its own for activations; 0 is 1.
    pub runs_in_flight: usize,
    /// The plan may come from a stranger's file: if it fails where it never should, that is [`GpuError::Plan`].
    pub is_foreign: bool,
}

/// Times of opening a session, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenTimes {
    /// Constants: read, packed, uploaded.
    pub constants: f64,
    /// Pipelines: the driver's compilation of shaders.
    pub pipelines: f64,
    /// All of it.
    pub total: f64,
}

/// An open session: any thread may run on it. As many runs are under way at once as its options say.
pub struct Session {
    pub(crate) shared: Arc<Shared>,
    /// Resources of runs: one for each run that may be in flight; further runs wait.
    pub(crate) pool: Pool<Resources>,
    times: OpenTimes,
    opened: Opened,
}

/// Parts that a session made, which others may share.
struct Made {
    built: Built,
    constants: HashMap<Fingerprint, Arc<DeviceConstant>>,
}

impl Session {
    /// Opens a session: checks limits, allocates, uploads the constants of `module` one after another (each is read,
    /// packed, written and dropped), builds pipelines. `progress` is called with a stage, the number done and the
    /// total.
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
        let opened = Session::open_as_it_is(gpu, plan, module, options, progress);
        opened.map_err(|e| e.of_plan(options.is_foreign))
    }

    fn open_as_it_is(
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
        let (session, made) = opened?;
        made.built.publish(&gpu);
        gpu.parts.constants.add(made.constants.iter().map(|(&key, made)| (key, made)));
        Ok(session)
    }

    fn build_all(
        gpu: Arc<Gpu>,
        plan: &Plan,
        module: &Module,
        options: &SessionOptions,
        progress: &mut dyn FnMut(&str, usize, usize),
    ) -> Result<(Session, Made), GpuError> {
        let start = Instant::now();
        let mut times = OpenTimes::default();
        let packed = options.prepacked.as_deref();
        let mut constants = Vec::with_capacity(plan.buffers.len());
        let mut host_constants = vec![None; plan.buffers.len()];
        let mut upload = Upload::new(&gpu, module);
        for (i, b) in plan.buffers.iter().enumerate() {
            progress("buffers", i, plan.buffers.len());
            constants.push(match &b.content {
                Content::Constant { name, packer } => {
                    let packed = packed.and_then(|p| p.bytes(i).zip(p.source(i)));
                    Some(upload.constant(plan, i, (*name, packer.as_deref()), packed)?)
                }
                _ => None,
            });
            if let Content::Host(HostContent::Constant(name)) = b.content {
                let kept = packed.and_then(|p| p.tensor(i));
                host_constants[i] = Some(kept.map_or_else(|| load_constant(module, name), Ok)?);
            }
        }
        let (mut opened, made) = upload.made();
        times.constants = milliseconds(start);
        let mark = Instant::now();
        let cache = options.cache.as_ref().and_then(|folder| PipelineCache::open(&gpu, plan, folder));
        let built = build_all(&gpu, plan, cache.as_ref().map(PipelineCache::driver), progress)?;
        if let Some(cache) = cache {
            cache.store(built.new.len() == built.list.len());
        }
        crate::subgroup_sizes::check(&gpu, plan, &constants)?;
        times.pipelines = milliseconds(mark);
        (opened.pipelines, opened.shared_pipelines) = (built.new.len(), built.list.len() - built.new.len());
        let device_functions = options.host_functions.prepare(&gpu, plan)?;
        let host_functions = options.host_functions.clone();
        let pipelines = Arc::new(built.list.clone());
        let shared = Shared {
            gpu,
            kept_on_host: kept_on_host(plan),
            plan: plan.clone(),
            pipelines,
            constants,
            host_constants,
            host_functions,
            device_functions,
            is_foreign: options.is_foreign,
            positions: OnceLock::new(),
        };
        let runs: Vec<Resources> = (0..options.runs_in_flight.max(1)).map(|_| Resources::new(&shared)).collect();
        let mark = Instant::now();
        compile_in_driver(&shared, &runs[0], &built.new, progress)?;
        times.pipelines += milliseconds(mark);
        let pool = Pool::of(runs);
        times.total = milliseconds(start);
        Ok((Session { shared: Arc::new(shared), pool, times, opened }, Made { built, constants: made }))
    }

    /// The times of opening it.
    pub fn open_times(&self) -> OpenTimes {
        self.times
    }

    /// The parts that it made when it opened, and those that it shares with other sessions on the device. Equal kernels
    /// share a pipeline, and equal constants of equal form a buffer, while a session with them is open.
    pub fn opened(&self) -> Opened {
        self.opened
    }

    /// A session with the same pipelines and constants for another plan: one with the same kernels and constants, for
    /// other sizes.
    ///
    /// # Errors
    /// Limits and memory.
    pub fn with_plan(&self, plan: Plan) -> Result<Session, GpuError> {
        let s = &self.shared;
        check_limits(&s.gpu, &plan)?;
        let from = plan.same_constants(&s.plan);
        let constants = from.iter().map(|i| i.and_then(|i| s.constants[i].clone())).collect();
        let host_constants = from.iter().map(|i| i.and_then(|i| s.host_constants[i].clone())).collect();
        let memory = s.gpu.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let need = plan.buffers.iter().map(|b| b.bytes).sum();
        let shared = Shared {
            gpu: s.gpu.clone(),
            kept_on_host: kept_on_host(&plan),
            plan,
            pipelines: s.pipelines.clone(),
            constants,
            host_constants,
            host_functions: s.host_functions.clone(),
            device_functions: s.device_functions.clone(),
            is_foreign: s.is_foreign,
            positions: OnceLock::new(),
        };
        let pool = Pool::of((0..self.pool.size()).map(|_| Resources::new(&shared)).collect());
        match pollster::block_on(memory.pop()) {
            None => {
                let shared_constants = shared.constants.iter().flatten().count();
                let opened = Opened { shared_constants, shared_pipelines: shared.pipelines.len(), ..Opened::default() };
                Ok(Session { shared: Arc::new(shared), pool, times: OpenTimes::default(), opened })
            }
            Some(e) => Err(GpuError::OutOfMemory { device: s.gpu.description.name.clone(), need, why: e.to_string() }),
        }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.shared.plan
    }
    /// The device.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.shared.gpu
    }
    /// The functions that `call_host` nodes call.
    pub fn host_functions(&self) -> &HostFunctions {
        &self.shared.host_functions
    }
    /// Bytes of all device buffers.
    pub fn device_bytes(&self) -> u64 {
        self.shared.plan.buffers.iter().map(|b| b.bytes).sum()
    }
    /// Runs that may be under way at once.
    pub fn runs_in_flight(&self) -> usize {
        self.pool.size()
    }
    /// True when the plan computes something on tensors in host memory.
    pub fn has_host_steps(&self) -> bool {
        self.shared.has_host_steps()
    }
    /// True when the plan computes something on the device.
    pub fn has_device_steps(&self) -> bool {
        self.shared.plan.dispatches().next().is_some()
    }
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn check_limits(gpu: &Gpu, plan: &Plan) -> Result<(), GpuError> {
    for b in &plan.buffers {
        let limit = gpu.profile.max_buffer.min(gpu.profile.max_binding);
        if b.slice_bytes > limit {
            let what = match &b.content {
                Content::Constant { name, .. } => name.to_string(),
                Content::Input(i) => plan.inputs.get(*i).map_or("input".into(), |s| s.name.to_string()),
                Content::Pool | Content::Host(_) => "an activation".into(),
            };
            return Err(GpuError::BufferTooLarge {
                what,
                need: b.slice_bytes,
                device: gpu.description.name.clone(),
                limit,
            });
        }
    }
    let need: u64 = plan.buffers.iter().map(|b| b.bytes).sum();
    if gpu.profile.model().on_host
        && let Some(free) = available_memory()
        && need > free
    {
        let why = format!("the machine has {free} bytes available");
        return Err(GpuError::OutOfMemory { device: gpu.description.name.clone(), need, why });
    }
    Ok(())
}
