//! Timestamps that the device writes, and the two clocks.

use crate::device::Gpu;
use crate::error::GpuError;
use async_channel::Receiver;

/// Where a device time comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TimeSource {
    /// Timestamps written by the device around each pass.
    GpuTimestamps,
    /// The host's clock around submit and wait.
    #[default]
    HostClock,
}

impl TimeSource {
    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            TimeSource::GpuTimestamps => "gpu-timestamps",
            TimeSource::HostClock => "host-clock",
        }
    }
}

/// Timestamps of one submission.
pub(crate) struct Timestamps {
    pub(crate) set: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    staging: wgpu::Buffer,
}

impl Timestamps {
    pub(crate) fn new(gpu: &Gpu, count: u32) -> Timestamps {
        let (device, size) = (&gpu.device, u64::from(count) * 8);
        let ty = wgpu::QueryType::Timestamp;
        let set = device.create_query_set(&wgpu::QuerySetDescriptor { label: None, ty, count });
        let buffer = |usage| {
            device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
        };
        let resolved = buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC);
        let staging = buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
        Timestamps { set, resolved, staging }
    }

    /// Copies the first `count`, which are written, to where the host reads them, behind what `encoder` has.
    pub(crate) fn resolve(&self, encoder: &mut wgpu::CommandEncoder, count: u32) {
        encoder.resolve_query_set(&self.set, 0..count, &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.staging, 0, u64::from(count) * 8);
    }

    /// Asks for them, once their commands are submitted: to be called before the wait for these.
    pub(crate) fn map(&self) -> Receiver<Result<(), wgpu::BufferAsyncError>> {
        let (sender, mapped) = async_channel::bounded(1);
        self.staging.map_async(wgpu::MapMode::Read, .., move |r| drop(sender.try_send(r)));
        mapped
    }

    /// The device's ticks, once the commands are done.
    ///
    /// # Errors
    /// A lost device.
    pub(crate) fn ticks(&self, mapped: &Receiver<Result<(), wgpu::BufferAsyncError>>) -> Result<Vec<u64>, GpuError> {
        let lost = |e: &dyn std::fmt::Display| GpuError::Lost(e.to_string());
        mapped.recv_blocking().map_err(|e| lost(&e))?.map_err(|e| lost(&e))?;
        let view = self.staging.get_mapped_range(..).map_err(|e| GpuError::Internal(e.to_string()))?;
        Ok(view.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap_or_default())).collect())
    }
}

/// Microseconds of a tick.
pub(crate) fn tick_us(gpu: &Gpu) -> f64 {
    f64::from(gpu.queue.get_timestamp_period()) / 1e3
}
