//! Checks the subgroup sizes that the driver chose for kernels on matrix units.
//!
//! The driver chooses the size for each pipeline. A kernel is right for every size in the range that the device
//! announced to the compiler. When a session opens, each kernel runs once, for one workgroup, in a variant that also
//! stores the size. If a size is outside of the range, the facade compiles again without matrix units and subgroups,
//! with a remark.

use crate::device::Gpu;
use crate::error::GpuError;
use crate::pipelines::build_reporting;
use crate::resources::uniform;
use crate::shared_parts::DeviceConstant;
use compiler::plan::{Dispatch, Plan};
use shaders_gen::GeneratedModule;
use std::sync::Arc;

/// Bytes from one kernel's word to the next: no device requires a larger alignment.
const APART: u64 = 256;

/// A kernel on matrix units, the sizes it was made for, and a dispatch of it.
struct Candidate<'p> {
    kernel: usize,
    made_for: (u32, u32),
    dispatch: &'p Dispatch,
}

fn candidates(plan: &Plan) -> Vec<Candidate<'_>> {
    let on_matrices = |kernel: usize| {
        let module = plan.kernels[kernel].emitted.module.downcast_ref::<GeneratedModule>()?;
        let dispatch = plan.dispatches().find(|d| d.kernel == kernel)?;
        module.uses_matrices().then_some(Candidate { kernel, made_for: module.subgroup_sizes, dispatch })
    };
    (0..plan.kernels.len()).filter_map(on_matrices).collect()
}

/// Runs each kernel on matrix units once.
///
/// # Errors
/// [`GpuError::SubgroupSize`] for the first kernel with an unsupported subgroup size; errors of building and running
/// it.
pub(crate) fn check(gpu: &Gpu, plan: &Plan, constants: &[Option<Arc<DeviceConstant>>]) -> Result<(), GpuError> {
    let all = candidates(plan);
    if all.is_empty() {
        return Ok(());
    }
    let bytes = APART * all.len() as u64;
    let buffer = |size, usage| {
        gpu.device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
    };
    let report = buffer(bytes, wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC);
    for (place, c) in all.iter().enumerate() {
        run(gpu, plan, constants, c, (&report, APART * place as u64))?;
    }
    let staging = buffer(bytes, wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
    let mut encoder = gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    encoder.copy_buffer_to_buffer(&report, 0, &staging, 0, bytes);
    let index = gpu.queue.submit([encoder.finish()]);
    let (sender, mapped) = async_channel::bounded(1);
    staging.map_async(wgpu::MapMode::Read, .., move |r| drop(sender.try_send(r)));
    gpu.wait_for(index)?;
    let lost = |e: &dyn std::fmt::Display| GpuError::Lost(e.to_string());
    mapped.recv_blocking().map_err(|e| lost(&e))?.map_err(|e| lost(&e))?;
    let view = staging.get_mapped_range(..).map_err(|e| GpuError::Internal(e.to_string()))?;
    let words = view.chunks_exact(APART as usize).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]));
    let sizes: Vec<u32> = words.collect();
    match all.iter().zip(sizes).find(|(c, size)| !fits(*size, c.made_for)) {
        None => Ok(()),
        Some((c, size)) => Err(GpuError::SubgroupSize {
            kernel: plan.kernels[c.kernel].name.clone(),
            device: gpu.description.name.clone(),
            size,
            made_for: c.made_for,
        }),
    }
}

/// Whether a kernel for subgroups of `least` to `largest` threads is right with `size`. Size 0 passes: a device that
/// does not compute stores nothing, which other checks find.
fn fits(size: u32, (least, largest): (u32, u32)) -> bool {
    size == 0 || (least..=largest).contains(&size)
}

/// Dispatches one workgroup of the variant, with the session's constants and temporary memory for all other bindings.
fn run(
    gpu: &Gpu,
    plan: &Plan,
    constants: &[Option<Arc<DeviceConstant>>],
    c: &Candidate<'_>,
    (report, at): (&wgpu::Buffer, u64),
) -> Result<(), GpuError> {
    let built = build_reporting(gpu, &plan.kernels[c.kernel])?;
    let usage = wgpu::BufferUsages::STORAGE;
    let bound = |&(b, slice): &(usize, u32)| match constants[b].as_ref().and_then(|c| c.slices.get(slice as usize)) {
        Some(known) => known.clone(),
        None => {
            let (all, one) = (plan.buffers[b].bytes, plan.buffers[b].slice_bytes);
            let size = all.min(one).max(16).next_multiple_of(16);
            gpu.device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
        }
    };
    let uniform = uniform(gpu, &plan.kernels[c.kernel].emitted, c.dispatch);
    let has_uniform = uniform.is_some();
    let buffers: Vec<wgpu::Buffer> = c.dispatch.buffers.iter().map(bound).chain(uniform).collect();
    let own = wgpu::BufferBinding { buffer: report, offset: at, size: std::num::NonZeroU64::new(4) };
    let resources = buffers.iter().map(wgpu::Buffer::as_entire_binding).chain([wgpu::BindingResource::Buffer(own)]);
    let entries: Vec<wgpu::BindGroupEntry<'_>> =
        resources.enumerate().map(|(i, resource)| wgpu::BindGroupEntry { binding: i as u32, resource }).collect();
    let group = gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some(&plan.kernels[c.kernel].name),
        layout: &built.layout,
        entries: &entries,
    });
    let immediates: Vec<u8> = c.dispatch.symbols.iter().flat_map(|s| s.to_le_bytes()).collect();
    let mut encoder = gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    {
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&built.pipeline);
        pass.set_bind_group(0, &group, &[]);
        if !immediates.is_empty() && !has_uniform {
            pass.set_immediates(0, &immediates);
        }
        pass.dispatch_workgroups(1, 1, 1);
    }
    gpu.queue.submit([encoder.finish()]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn sizes_that_a_kernel_was_made_for() {
        assert!([8, 16, 32].iter().all(|s| fits(*s, (8, 32))));
        assert!(!fits(64, (8, 32)) && !fits(8, (32, 32)));
        assert!(fits(0, (32, 32)), "a device that computes nothing is none of another size");
    }
}
