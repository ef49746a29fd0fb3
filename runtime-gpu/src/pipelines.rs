//! Shader modules, pipelines and their layouts, and the pipeline cache on disk.

use crate::cache::{CacheFolder, PIPELINES};
use crate::device::Gpu;
use crate::error::GpuError;
use compiler::fingerprint::Fingerprint;
use compiler::plan::{EmittedKernel, Plan, PlanKernel};
use compiler::tir::Access;
use shaders_gen::GeneratedModule;
use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A kernel ready to dispatch.
pub(crate) struct Pipeline {
    pub(crate) pipeline: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
}

/// What a driver made of the shaders of one plan, on disk.
pub(crate) struct PipelineCache {
    cache: wgpu::PipelineCache,
    folder: CacheFolder,
    key: Fingerprint,
    found: bool,
}

impl PipelineCache {
    /// The cache of these shaders on this device and driver, filled from disk when there is a file for them; none where the
    /// backend has no such caches.
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
        let data = folder.read(PIPELINES, key);
        // SAFETY: the data came from `get_data` on a device with the same cache key (adapter, driver, driver version), whole by its
        // checksum; the driver checks its own header again and falls back to an empty cache.
        let cache = unsafe {
            gpu.device.create_pipeline_cache(&wgpu::PipelineCacheDescriptor {
                label: Some("weft"),
                data: data.as_deref(),
                fallback: true,
            })
        };
        Some(PipelineCache { cache, folder: folder.clone(), key, found: data.is_some() })
    }

    /// wgpu's part of it.
    pub(crate) fn driver(&self) -> &wgpu::PipelineCache {
        &self.cache
    }

    /// Writes what was not found on disk. Failing to write costs the next start some time, and is no error.
    pub(crate) fn store(self) {
        if let (false, Some(data)) = (self.found, self.cache.get_data()) {
            let _ = self.folder.write(PIPELINES, self.key, |to| to.write_all(&data));
        }
    }
}

/// Builds the pipelines of all kernels, on as many threads as the machine has: a driver that compiles now does so for
/// several at once. `progress` hears of each that is done.
pub(crate) fn build_all(
    gpu: &Gpu,
    plan: &Plan,
    cache: Option<&wgpu::PipelineCache>,
    progress: &mut dyn FnMut(&str, usize, usize),
) -> Result<Vec<Pipeline>, GpuError> {
    let kernels = &plan.kernels;
    let need = plan.buffers.iter().map(|b| b.bytes).sum();
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get()).min(kernels.len());
    let next = AtomicUsize::new(0);
    let mut built: Vec<Option<Pipeline>> = kernels.iter().map(|_| None).collect();
    progress("kernels", 0, kernels.len());
    std::thread::scope(|scope| {
        let (sender, done) = std::sync::mpsc::channel();
        for _ in 0..workers {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(kernel) = kernels.get(i) else { return };
                    if sender.send((i, build_checked(gpu, kernel, cache, need))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (count, (i, pipeline)) in done.into_iter().enumerate() {
            built[i] = Some(pipeline?);
            progress("kernels", count + 1, kernels.len());
        }
        Ok(built.into_iter().flatten().collect())
    })
}

/// [`build`] with what wgpu says of it: error scopes belong to the thread that opens them.
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
    let accesses: Vec<Access> = kernel.emitted.bindings.iter().map(|b| b.access).collect();
    Ok(build_module(gpu, kernel, module, &accesses, cache))
}

/// Builds the variant of a kernel that also stores the size of its subgroups, in a buffer behind its own.
pub(crate) fn build_reporting(gpu: &Gpu, kernel: &PlanKernel) -> Result<Pipeline, GpuError> {
    let accesses: Vec<Access> = kernel.emitted.bindings.iter().map(|b| b.access).chain([Access::Write]).collect();
    let module = generated(kernel)?.reporting_subgroup_size(accesses.len() as u32 - 1);
    let module = module.map_err(|e| GpuError::Internal(format!("kernel {}: {e}", kernel.name)))?;
    Ok(build_module(gpu, kernel, module, &accesses, None))
}

fn generated(kernel: &PlanKernel) -> Result<&GeneratedModule, GpuError> {
    let other = || GpuError::Internal(format!("kernel {} was not made by this shader generator", kernel.name));
    kernel.emitted.module.downcast_ref::<GeneratedModule>().ok_or_else(other)
}

/// Builds the pipeline of a module with the kernel's entry point and these bindings.
fn build_module(
    gpu: &Gpu,
    kernel: &PlanKernel,
    module: wgpu::naga::Module,
    accesses: &[Access],
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
    let entries: Vec<wgpu::BindGroupLayoutEntry> = accesses
        .iter()
        .enumerate()
        .map(|(i, access)| wgpu::BindGroupLayoutEntry {
            binding: i as u32,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: wgpu::BufferBindingType::Storage { read_only: *access == Access::Read },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
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
