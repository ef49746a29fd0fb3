//! Tensors back from the device: copied into staging memory, mapped once the device is done, decoded.
//!
//! A submission that is done is not yet mapped: whichever thread polls first does that, and calls back. So a reader waits for the
//! callback, never for the submission alone.

use crate::device::Gpu;
use crate::error::GpuError;
use crate::resources::{Resources, Shared, slice_sizes};
use crate::storage::decode_tensor;
use async_channel::{Receiver, Sender};
use compiler::plan::BufferView;
use compiler::tensor::Tensor;

/// Who polls the device until a submission is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Polling {
    /// The thread that asks; it blocks.
    Caller,
    /// The device's own thread; who asks is woken.
    Thread,
}

/// Commands that are submitted, and the tensors that they leave.
pub(crate) struct Readback<'a> {
    index: Option<wgpu::SubmissionIndex>,
    /// The tensors with their staging memory; none for those on the host.
    tensors: Vec<(&'a BufferView, Option<wgpu::Buffer>)>,
    sender: Sender<Result<(), GpuError>>,
    mapped: Receiver<Result<(), GpuError>>,
}

impl<'a> Readback<'a> {
    /// Submits what is encoded so far, with copies of `tensors` behind it.
    pub(crate) fn submit(
        shared: &Shared,
        resources: &Resources,
        encoder: Option<wgpu::CommandEncoder>,
        tensors: impl IntoIterator<Item = &'a BufferView>,
    ) -> Readback<'a> {
        let mut encoder = encoder;
        let tensors: Vec<_> = tensors
            .into_iter()
            .map(|tensor| {
                let copied = (!shared.on_host(tensor)).then(|| {
                    let encoder = encoder.get_or_insert_with(|| new_encoder(&shared.gpu));
                    copy_out(shared, resources, encoder, tensor)
                });
                (tensor, copied)
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

    /// The tensors, once they are mapped.
    ///
    /// # Errors
    /// A tensor on the host that was never written.
    pub(crate) fn tensors(&self, resources: &Resources) -> Result<Vec<Tensor>, GpuError> {
        let read = |(tensor, staging): &(&BufferView, Option<wgpu::Buffer>)| match staging {
            Some(staging) => decode(staging, tensor, &resources.shape_of(tensor)),
            None => resources.read_host(tensor),
        };
        self.tensors.iter().map(read).collect()
    }
}

pub(crate) fn new_encoder(gpu: &Gpu) -> wgpu::CommandEncoder {
    gpu.device.create_command_encoder(&Default::default())
}

fn copy_out(
    shared: &Shared,
    resources: &Resources,
    encoder: &mut wgpu::CommandEncoder,
    tensor: &BufferView,
) -> wgpu::Buffer {
    let sizes = match resources.rows.contains_key(&tensor.buffer) {
        true => resources.buffers[tensor.buffer].iter().map(wgpu::Buffer::size).collect(),
        false => slice_sizes(&shared.plan.buffers[tensor.buffer]),
    };
    let staging = shared.gpu.device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("readback"),
        size: sizes.iter().sum(),
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let mut offset = 0;
    for (slice, size) in resources.buffers[tensor.buffer].iter().zip(sizes) {
        encoder.copy_buffer_to_buffer(slice, 0, &staging, offset, size);
        offset += size;
    }
    staging
}

fn decode(staging: &wgpu::Buffer, tensor: &BufferView, shape: &[usize]) -> Result<Tensor, GpuError> {
    let view = staging.get_mapped_range(..).map_err(|e| GpuError::Internal(e.to_string()))?;
    decode_tensor(&view, tensor.dtype, shape, tensor.encoding).map_err(GpuError::Host)
}
