//! Margins behind results, and a pattern in the memory that kernels write: they show whether a kernel writes beyond its
//! results, or leaves an element of them unwritten.

use crate::buffers::new_encoder;
use crate::device::Gpu;
use crate::error::GpuError;
use crate::session::Session;
use compiler::plan::{Content, Plan};

/// Bytes of a margin.
const MARGIN: u64 = 256;
/// NaN as f32 or as two f16; -1 as an integer.
const PATTERN: u8 = 0xff;

/// The plan with a margin behind each result that a kernel writes to a single binding.
pub(crate) fn with_margins(gpu: &Gpu, plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    let most = gpu.profile.max_buffer.min(gpu.profile.max_binding);
    for index in written_results(&plan) {
        let b = &mut plan.buffers[index];
        if b.bytes == b.slice_bytes && b.bytes + MARGIN <= most {
            b.bytes += MARGIN;
            b.slice_bytes += MARGIN;
        }
    }
    plan
}

/// Buffers of results that the device computes.
fn written_results(plan: &Plan) -> Vec<usize> {
    let all = plan.outputs.iter().map(|o| o.buffer);
    let mut list: Vec<usize> = all.filter(|b| matches!(plan.buffers[*b].content, Content::Pool)).collect();
    list.sort_unstable();
    list.dedup();
    list
}

impl Session {
    /// Fills activations, results and margins with a pattern.
    pub(crate) fn fill_with_pattern(&self) {
        let resources = pollster::block_on(self.pool.take());
        for (b, slices) in self.plan().buffers.iter().zip(&resources.buffers) {
            if matches!(b.content, Content::Pool) {
                for slice in slices {
                    self.gpu().queue.write_buffer(slice, 0, &vec![PATTERN; slice.size() as usize]);
                }
            }
        }
    }
    /// True if every margin of a plan [`with_margins`] still has the pattern.
    ///
    /// # Errors
    /// A lost device.
    pub(crate) fn margins_are_whole(&self) -> Result<bool, GpuError> {
        let resources = pollster::block_on(self.pool.take());
        let gpu = self.gpu();
        for o in &self.plan().outputs {
            let [buffer] = resources.buffers[o.buffer].as_slice() else { continue };
            let stored = o.encoding.storage_bytes(o.dtype, o.shape.iter().product::<usize>() as u64);
            if !written_results(self.plan()).contains(&o.buffer) || buffer.size() < stored + MARGIN {
                continue;
            }
            let staging = gpu.device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: MARGIN,
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            });
            let mut encoder = new_encoder(gpu);
            encoder.copy_buffer_to_buffer(buffer, buffer.size() - MARGIN, &staging, 0, MARGIN);
            let index = gpu.queue.submit([encoder.finish()]);
            let (sender, mapped) = async_channel::bounded(1);
            staging.map_async(wgpu::MapMode::Read, .., move |r| drop(sender.try_send(r)));
            gpu.wait_for(index)?;
            let lost = |e: &dyn std::fmt::Display| GpuError::Lost(e.to_string());
            mapped.recv_blocking().map_err(|e| lost(&e))?.map_err(|e| lost(&e))?;
            let view = staging.get_mapped_range(..).map_err(|e| GpuError::Internal(e.to_string()))?;
            if view.iter().any(|b| *b != PATTERN) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
