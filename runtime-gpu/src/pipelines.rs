//! Shader modules, pipelines and their layouts, and the pipeline cache on disk.

use crate::device::Gpu;
use crate::error::GpuError;
use compiler::plan::{EmittedKernel, Plan, PlanKernel};
use compiler::tir::Access;
use shaders_gen::GeneratedModule;
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A kernel ready to dispatch.
pub(crate) struct Pipeline {
    pub(crate) pipeline: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
}

/// Where a pipeline cache for this device lives in `dir`.
pub(crate) fn cache_file(gpu: &Gpu, dir: Option<&PathBuf>) -> Option<PathBuf> {
    Some(dir?.join(format!("{}.pipelines", gpu.cache_key.as_ref()?)))
}

/// The driver's pipeline cache, filled from disk when there is a file for this very device and driver.
pub(crate) fn open_cache(gpu: &Gpu, file: Option<&PathBuf>) -> Option<wgpu::PipelineCache> {
    if !gpu.device.features().contains(wgpu::Features::PIPELINE_CACHE) {
        return None;
    }
    let data = std::fs::read(file?).ok();
    // SAFETY: the data came from `get_data` on a device with the same cache key (adapter, driver, driver version); the
    // driver checks its own header again and falls back to an empty cache.
    Some(unsafe {
        gpu.device.create_pipeline_cache(&wgpu::PipelineCacheDescriptor {
            label: Some("weft"),
            data: data.as_deref(),
            fallback: true,
        })
    })
}

/// Writes the cache back: to a temporary file first, so that no reader sees half of it. Failing to write is not an error.
pub(crate) fn store_cache(cache: Option<&wgpu::PipelineCache>, file: Option<&PathBuf>) {
    if let (Some(cache), Some(file)) = (cache, file)
        && let Some(data) = cache.get_data()
        && let Some(dir) = file.parent()
        && std::fs::create_dir_all(dir).is_ok()
    {
        let temporary = file.with_extension(format!("tmp{}", std::process::id()));
        if std::fs::write(&temporary, data).is_ok() && std::fs::rename(&temporary, file).is_err() {
            let _ = std::fs::remove_file(&temporary);
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
    let e: &EmittedKernel = &kernel.emitted;
    let module = e
        .module
        .downcast_ref::<GeneratedModule>()
        .ok_or_else(|| GpuError::Internal(format!("kernel {} was not made by this shader generator", kernel.name)))?;
    let source = wgpu::ShaderSource::Naga(Cow::Owned(module.module.clone()));
    let desc = wgpu::ShaderModuleDescriptor { label: Some(&kernel.name), source };
    let shader = if e.bounds_proved {
        // SAFETY: every access of this kernel is proved in bounds by interval analysis, and its loops are counted.
        unsafe { gpu.device.create_shader_module_trusted(desc, wgpu::ShaderRuntimeChecks::unchecked()) }
    } else {
        gpu.device.create_shader_module(desc)
    };
    let entries: Vec<wgpu::BindGroupLayoutEntry> = e
        .bindings
        .iter()
        .enumerate()
        .map(|(i, b)| wgpu::BindGroupLayoutEntry {
            binding: i as u32,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: wgpu::BufferBindingType::Storage { read_only: b.access == Access::Read },
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
    Ok(Pipeline { pipeline, layout })
}
