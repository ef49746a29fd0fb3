//! Buffers of a plan on a device: their uses and sizes.

use crate::device::Gpu;
use compiler::plan::{Content, Plan, PlanBuffer, Step};

/// Sizes of the slices of a buffer.
pub(crate) fn slice_sizes(b: &PlanBuffer) -> Vec<u64> {
    let mut left = b.bytes;
    let mut out = Vec::new();
    while left > 0 {
        let n = left.min(b.slice_bytes.max(16));
        out.push(n.next_multiple_of(16));
        left -= n;
    }
    out
}

/// True when something other than kernels copies from or to the buffer in a run.
pub(crate) fn is_copied(plan: &Plan, index: usize) -> bool {
    plan.all_steps().into_iter().any(|s| match s {
        Step::Host(h) => h.inputs.iter().chain(&h.outputs).any(|t| t.buffer == index),
        Step::Copy { from, to } => *from == index || *to == index,
        Step::Branch(b) => b.condition.buffer == index,
        Step::Call(c) => c.handovers().any(|h| h.from == index || h.to == index),
        Step::Loop(l) => {
            let read = l.read_before().chain(&l.go_on).chain(&l.index).any(|v| v.buffer == index);
            let carried = l.carried.iter().any(|c| c.now == index || c.next == index);
            read || carried || l.collected.iter().any(|c| c.row.buffer == index || c.all == index)
        }
        Step::Gpu(_) => false,
    })
}

/// The usages of one of the plan's buffers.
pub(crate) fn buffer_usage(plan: &Plan, index: usize) -> wgpu::BufferUsages {
    let mut usage = wgpu::BufferUsages::STORAGE;
    if !matches!(plan.buffers[index].content, Content::Constant { .. }) {
        usage |= wgpu::BufferUsages::COPY_DST;
    }
    if plan.outputs.iter().any(|o| o.buffer == index) || is_copied(plan, index) {
        usage |= wgpu::BufferUsages::COPY_SRC;
    }
    usage
}

/// Allocates the slices of one of the plan's buffers; buffers of constants are mapped.
pub(crate) fn allocate(gpu: &Gpu, plan: &Plan, index: usize, b: &PlanBuffer) -> Vec<wgpu::Buffer> {
    let constant = matches!(b.content, Content::Constant { .. });
    let usage = buffer_usage(plan, index);
    let buffer = |size| {
        gpu.device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: constant })
    };
    slice_sizes(b).into_iter().map(buffer).collect()
}

/// Commands to encode.
pub(crate) fn new_encoder(gpu: &Gpu) -> wgpu::CommandEncoder {
    gpu.device.create_command_encoder(&Default::default())
}
