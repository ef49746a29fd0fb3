//! Shader modules, pipelines and their layouts, and the pipeline cache on disk.

use crate::cache::{CacheFolder, PIPELINES};
use crate::device::Gpu;
use crate::error::GpuError;
use crate::shared_parts::Pipeline;
use compiler::fingerprint::Fingerprint;
use compiler::plan::{Binding, EmittedKernel, Plan, PlanKernel};
use compiler::tir::Access;
use shaders_gen::GeneratedModule;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The driver's pipelines of one plan, on disk.
pub(crate) struct PipelineCache {
    cache: wgpu::PipelineCache,
    folder: CacheFolder,
    key: Fingerprint,
    found: Found,
}

/// Which of a plan's pipelines were on disk. Some may be missing because a session of the process had built them
/// already, so the driver's data did not include them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Some,
    All,
}

/// The first byte of a file that has all pipelines of its plan; of one that has some it is 0.
const ALL: u8 = 1;

impl PipelineCache {
    /// The cache of these shaders on this device and driver, read from disk if there is a file; `None` if the backend
    /// has no pipeline caches.
    pub(crate) fn open(gpu: &Gpu, plan: &Plan, folder: &CacheFolder) -> Option<PipelineCache> {
        if !gpu.device.features().contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let device = gpu.cache_key.as_ref()?;
        let key = Fingerprint::of(|w| {
            w.text(device);
            w.list(plan.kernels.iter(), |w, k| {
                w.text(&k.emitted.wgsl);
                w.tag(u8::from(k.emitted.bounds_proved));
            });
        });
        let file = folder.read(PIPELINES, key);
        let data = file.as_ref().and_then(|f| f.split_first());
        let found = match data {
            None => Found::Nothing,
            Some((&ALL, _)) => Found::All,
            Some(_) => Found::Some,
        };
        // SAFETY: the data came from `get_data` on a device with the same cache key (adapter, driver, driver version),
        // whole by its checksum; the driver checks its own header again and falls back to an empty cache.
        let cache = unsafe {
            gpu.device.create_pipeline_cache(&wgpu::PipelineCacheDescriptor {
                label: Some("weft"),
                data: data.map(|d| d.1),
                fallback: true,
            })
        };
        Some(PipelineCache { cache, folder: folder.clone(), key, found })
    }

    /// wgpu's part of it.
    pub(crate) fn driver(&self) -> &wgpu::PipelineCache {
        &self.cache
    }

    /// Writes pipelines that were not on disk; `all` says whether all pipelines were built with this cache. A failure
    /// to write is not an error: it only costs time at the next start.
    pub(crate) fn store(self, all: bool) {
        let better = match self.found {
            Found::Nothing => true,
            Found::Some => all,
            Found::All => false,
        };
        if let (true, Some(data)) = (better, self.cache.get_data()) {
            let _ = self.folder.write(PIPELINES, self.key, |to| {
                to.write_all(&[if all { ALL } else { 0 }])?;
                to.write_all(&data)
            });
        }
    }
}

/// The pipelines of a plan.
pub(crate) struct Built {
    pub(crate) list: Vec<Arc<Pipeline>>,
    keys: Vec<Fingerprint>,
    /// Those that no other session had built, by the plan's kernel.
    pub(crate) new: Vec<usize>,
}

impl Built {
    /// Lets other sessions find them.
    pub(crate) fn publish(&self, gpu: &Gpu) {
        gpu.parts.pipelines.add(self.keys.iter().copied().zip(&self.list));
    }
}

/// The key of a pipeline. It does not include the name: the label in debuggers is that of the session that built it.
fn pipeline_key(kernel: &PlanKernel) -> Fingerprint {
    let e = &kernel.emitted;
    Fingerprint::of(|w| {
        w.text(&e.wgsl);
        w.text(&e.name);
        w.tag(u8::from(e.bounds_proved));
        w.list(e.bindings.iter(), |w, b| w.tag(u8::from(b.access == Access::Read)));
        w.number(i64::from(e.immediate_bytes));
    })
}

/// The pipelines of all kernels: existing ones of sessions on the device, and new ones, built on all threads of the
/// machine, since drivers that compile at once can do several in parallel. `progress` is called for each.
pub(crate) fn build_all(
    gpu: &Gpu,
    plan: &Plan,
    cache: Option<&wgpu::PipelineCache>,
    progress: &mut dyn FnMut(&str, usize, usize),
) -> Result<Built, GpuError> {
    let kernels = &plan.kernels;
    let keys: Vec<Fingerprint> = kernels.iter().map(pipeline_key).collect();
    let mut list: Vec<Option<Arc<Pipeline>>> = keys.iter().map(|&key| gpu.parts.pipelines.find(key)).collect();
    let missing: Vec<usize> = (0..kernels.len()).filter(|&i| list[i].is_none()).collect();
    let shared = kernels.len() - missing.len();
    let need = plan.buffers.iter().map(|b| b.bytes).sum();
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get()).min(missing.len());
    let next = AtomicUsize::new(0);
    progress("kernels", shared, kernels.len());
    std::thread::scope(|scope| -> Result<(), GpuError> {
        let (sender, done) = std::sync::mpsc::channel();
        for _ in 0..workers {
            let (sender, next, missing) = (sender.clone(), &next, &missing);
            scope.spawn(move || {
                while let Some(&i) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if sender.send((i, build_checked(gpu, &kernels[i], cache, need))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (count, (i, pipeline)) in done.into_iter().enumerate() {
            list[i] = Some(Arc::new(pipeline?));
            progress("kernels", shared + count + 1, kernels.len());
        }
        Ok(())
    })?;
    Ok(Built { list: list.into_iter().flatten().collect(), keys, new: missing })
}

/// [`build`] in an error scope of wgpu, which belongs to the thread that opens it.
fn build_checked(
    gpu: &Gpu,
    kernel: &PlanKernel,
    cache: Option<&wgpu::PipelineCache>,
    need: u64,
) -> Result<Pipeline, GpuError> {
    let scopes = [wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::Internal]
        .map(|filter| gpu.device.push_error_scope(filter));
    let built = build(gpu, kernel, cache);
    // The scope that was opened last is closed first.
    let mut said = scopes.into_iter().rev().map(|s| pollster::block_on(s.pop())).collect::<Vec<_>>();
    if let Some(Some(e)) = said.pop() {
        return Err(GpuError::OutOfMemory { device: gpu.description.name.clone(), need, why: e.to_string() });
    }
    match said.into_iter().flatten().next() {
        Some(e) => Err(GpuError::Internal(e.to_string())),
        None => built,
    }
}

/// Builds one kernel's pipeline.
fn build(gpu: &Gpu, kernel: &PlanKernel, cache: Option<&wgpu::PipelineCache>) -> Result<Pipeline, GpuError> {
    let module = generated(kernel)?.module.clone();
    Ok(build_module(gpu, kernel, module, false, cache))
}

/// Builds the variant of a kernel that also stores the size of its subgroups, in a buffer behind its own.
pub(crate) fn build_reporting(gpu: &Gpu, kernel: &PlanKernel) -> Result<Pipeline, GpuError> {
    let own = own_bindings(&kernel.emitted).len() as u32;
    let module = generated(kernel)?.reporting_subgroup_size(own);
    let module = module.map_err(|e| GpuError::Internal(format!("kernel {}: {e}", kernel.name)))?;
    Ok(build_module(gpu, kernel, module, true, None))
}

fn generated(kernel: &PlanKernel) -> Result<&GeneratedModule, GpuError> {
    let other = || GpuError::Internal(format!("kernel {} was not made by this shader generator", kernel.name));
    kernel.emitted.module.downcast_ref::<GeneratedModule>().ok_or_else(other)
}

/// A kernel's bindings: its buffers, then the buffer of its sizes.
fn own_bindings(e: &EmittedKernel) -> Vec<wgpu::BufferBindingType> {
    let storage = |b: &Binding| wgpu::BufferBindingType::Storage { read_only: b.access == Access::Read };
    let uniform = (e.uniform_bytes > 0).then_some(wgpu::BufferBindingType::Uniform);
    e.bindings.iter().map(storage).chain(uniform).collect()
}

/// Builds the pipeline of a module with the kernel's entry point and its bindings; one that `reports` writes to another
/// buffer behind them.
fn build_module(
    gpu: &Gpu,
    kernel: &PlanKernel,
    module: wgpu::naga::Module,
    reports: bool,
    cache: Option<&wgpu::PipelineCache>,
) -> Pipeline {
    let e: &EmittedKernel = &kernel.emitted;
    let source = wgpu::ShaderSource::Naga(Cow::Owned(module));
    let desc = wgpu::ShaderModuleDescriptor { label: Some(&kernel.name), source };
    let shader = if e.bounds_proved {
        // SAFETY: every access of this kernel is proved in bounds by interval analysis, and its loops are counted.
        unsafe { gpu.device.create_shader_module_trusted(desc, wgpu::ShaderRuntimeChecks::unchecked()) }
    } else {
        gpu.device.create_shader_module(desc)
    };
    let report = reports.then_some(wgpu::BufferBindingType::Storage { read_only: false });
    let entries: Vec<wgpu::BindGroupLayoutEntry> = own_bindings(e)
        .into_iter()
        .chain(report)
        .enumerate()
        .map(|(i, ty)| wgpu::BindGroupLayoutEntry {
            binding: i as u32,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
            count: None,
        })
        .collect();
    let layout = gpu
        .device
        .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: Some(&kernel.name), entries: &entries });
    let pipeline_layout = gpu.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(&kernel.name),
        bind_group_layouts: &[Some(&layout)],
        immediate_size: e.immediate_bytes,
    });
    let pipeline = gpu.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(&kernel.name),
        layout: Some(&pipeline_layout),
        module: &shader,
        entry_point: Some(&e.name),
        compilation_options: wgpu::PipelineCompilationOptions {
            zero_initialize_workgroup_memory: false,
            ..Default::default()
        },
        cache,
    });
    Pipeline { pipeline, layout }
}
