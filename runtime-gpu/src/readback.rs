//! Reads tensors back from the device: copied into staging memory, mapped once the device is done, decoded.
//!
//! A finished submission is not mapped yet: the thread that polls first maps it and runs the callback. So a reader
//! waits for the callback, never for the submission alone.

use crate::buffers::{new_encoder, slice_sizes};
use crate::device::Gpu;
use crate::error::GpuError;
use crate::poller::Polling;
use crate::resources::{Resources, Shared};
use async_channel::{Receiver, Sender};
use compiler::plan::storage::{decode_into, decode_tensor};
use compiler::plan::{BufferView, PlanBuffer};
use compiler::tensor::{Tensor, TensorMut};

/// Commands that are submitted, and the tensors that they leave.
pub(crate) struct Readback {
    index: Option<wgpu::SubmissionIndex>,
    /// The tensors with their staging memory; none for those on the host.
    tensors: Vec<(BufferView, Option<wgpu::Buffer>)>,
    sender: Sender<Result<(), GpuError>>,
    mapped: Receiver<Result<(), GpuError>>,
}

impl Readback {
    /// Submits the encoder, followed by copies of `tensors`.
    pub(crate) fn submit<'a>(
        shared: &Shared,
        resources: &Resources,
        encoder: Option<wgpu::CommandEncoder>,
        tensors: impl IntoIterator<Item = &'a BufferView>,
    ) -> Readback {
        let mut encoder = encoder;
        let tensors: Vec<_> = tensors
            .into_iter()
            .map(|tensor| {
                let copied = (!shared.on_host(tensor)).then(|| {
                    let encoder = encoder.get_or_insert_with(|| new_encoder(&shared.gpu));
                    copy_out(shared, resources, encoder, tensor)
                });
                (tensor.clone(), copied)
            })
            .collect();
        let index = encoder.map(|e| shared.gpu.queue.submit([e.finish()]));
        let (sender, mapped) = async_channel::unbounded();
        for staging in tensors.iter().filter_map(|s| s.1.as_ref()) {
            let sender = sender.clone();
            staging.map_async(wgpu::MapMode::Read, .., move |r| {
                // Nobody listens any more when the run was given up.
                let _ = sender.try_send(r.map_err(|e| GpuError::Lost(e.to_string())));
            });
        }
        Readback { index, tensors, sender, mapped }
    }

    /// Waits until the commands are done and their tensors are mapped.
    ///
    /// # Errors
    /// A lost device.
    pub(crate) async fn done(&self, gpu: &Gpu, polling: Polling) -> Result<(), GpuError> {
        let mut expected = self.tensors.iter().filter(|s| s.1.is_some()).count();
        match (self.index.clone(), polling) {
            (None, _) => {}
            (Some(index), Polling::Caller) => gpu.wait_for(index)?,
            (Some(index), Polling::Thread) => {
                if expected == 0 {
                    // No tensor will call back, so the submission does.
                    let sender = self.sender.clone();
                    let done = move || drop(sender.try_send(Ok(())));
                    gpu.queue.on_submitted_work_done(done);
                    expected = 1;
                }
                let sender = self.sender.clone();
                let failed = move |why| drop(sender.try_send(Err(GpuError::Lost(why))));
                gpu.poller()?.watch(index, failed);
            }
        }
        for _ in 0..expected {
            self.mapped.recv().await.map_err(|e| GpuError::Lost(e.to_string()))??;
        }
        gpu.check_lost()
    }

    /// True if the tensors are mapped, so the commands are done. For commands without tensors that is not known. Does
    /// not wait.
    ///
    /// # Errors
    /// A lost device.
    pub(crate) fn is_done(&self, gpu: &Gpu) -> Result<bool, GpuError> {
        gpu.device.poll(wgpu::PollType::Poll).map_err(|e| GpuError::Lost(e.to_string()))?;
        gpu.check_lost()?;
        Ok(self.mapped.len() >= self.tensors.iter().filter(|s| s.1.is_some()).count())
    }

    /// The tensors, once they are mapped, in the memory of `kept` if it has unshared tensors of the same types and
    /// shapes.
    ///
    /// # Errors
    /// A tensor on the host that was never written.
    pub(crate) fn tensors(
        self,
        shared: &Shared,
        resources: &Resources,
        kept: &mut Vec<Tensor>,
    ) -> Result<(), GpuError> {
        kept.truncate(self.tensors.len());
        for (i, (view, staging)) in self.tensors.into_iter().enumerate() {
            let Some(staging) = staging else {
                put(kept, i, resources.read_host(&view)?);
                continue;
            };
            let shape = resources.shape_of(&view);
            let old = kept.get_mut(i).filter(|t| t.dtype() == view.dtype && t.shape() == shape);
            let old = old.map(|t| std::mem::replace(t, Tensor::zeros(view.dtype, vec![0])));
            put(kept, i, decode(&staging, &view, &shape, old)?);
            staging.unmap();
            resources.staging.give_back(staging, shared.plan.outputs.len());
        }
        Ok(())
    }
}

fn put(list: &mut Vec<Tensor>, at: usize, t: Tensor) {
    match list.get_mut(at) {
        Some(place) => *place = t,
        None => list.push(t),
    }
}

fn copy_out(
    shared: &Shared,
    resources: &Resources,
    encoder: &mut wgpu::CommandEncoder,
    tensor: &BufferView,
) -> wgpu::Buffer {
    let sizes: Vec<u64> = match resources.rows.contains_key(&tensor.buffer) {
        true => resources.buffers[tensor.buffer].iter().map(wgpu::Buffer::size).collect(),
        false => read_sizes(&shared.plan.buffers[tensor.buffer], tensor),
    };
    let total = sizes.iter().sum();
    let staging = resources.staging.readback(&shared.gpu.device, total);
    resources.moved.read_back(total);
    let mut offset = 0;
    for (slice, size) in resources.buffers[tensor.buffer].iter().zip(sizes) {
        encoder.copy_buffer_to_buffer(slice, 0, &staging, offset, size);
        offset += size;
    }
    staging
}

fn decode(
    staging: &wgpu::Buffer,
    tensor: &BufferView,
    shape: &[usize],
    old: Option<Tensor>,
) -> Result<Tensor, GpuError> {
    let view = staging.get_mapped_range(..).map_err(|e| GpuError::Internal(e.to_string()))?;
    match old {
        None => decode_tensor(&view, tensor.dtype, shape, tensor.encoding).map_err(GpuError::of_fault),
        Some(old) => {
            let mut t = TensorMut::of(old);
            decode_into(&view, tensor.encoding, &mut t).map_err(GpuError::of_fault)?;
            Ok(t.freeze())
        }
    }
}

/// Bytes of each slice of a tensor, which may be shorter than the buffer that it shares with others.
fn read_sizes(b: &PlanBuffer, tensor: &BufferView) -> Vec<u64> {
    let elements = tensor.shape.iter().product::<usize>() as u64;
    let mut left = tensor.encoding.storage_bytes(tensor.dtype, elements);
    let taken = slice_sizes(b).into_iter().map(|size| {
        let n = size.min(left);
        left -= n;
        n
    });
    taken.filter(|&n| n > 0).collect()
}
