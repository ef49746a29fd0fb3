//! Tensors that stay on the device: results of one session that are inputs of another, and buffers of one's own.
//!
//! [`Session::run_on_device`] submits a run and leaves its results where the kernels wrote them. [`DeviceOutputs`] holds the run's
//! resources, so nobody writes over them until it is dropped. An input on the device is bound as it is: nothing is copied, and
//! the host waits for nothing, since the queue keeps the order of what is submitted.

use crate::error::GpuError;
use crate::pool::Lease;
use crate::readback::{Polling, Readback};
use crate::resources::{Resources, Shared, slice_sizes};
use crate::session::Session;
use compiler::dtype::DType;
use compiler::tensor::Tensor;
use compiler::tir::Encoding;

/// A tensor in device memory.
#[derive(Clone, Debug)]
pub struct DeviceTensor {
    /// Its bytes in storage form, in slices where one binding does not hold them.
    pub(crate) buffers: Vec<wgpu::Buffer>,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) encoding: Encoding,
}

impl DeviceTensor {
    /// A buffer of one's own with the elements in order, in the form of WGSL's arrays: 32 bits each, f16 in 16. It belongs to the device that
    /// sessions run on, and can be bound as storage.
    pub fn from_buffer(buffer: wgpu::Buffer, dtype: DType, shape: &[usize]) -> DeviceTensor {
        DeviceTensor { buffers: vec![buffer], dtype, shape: shape.to_vec(), encoding: Encoding::Native }
    }
    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// Dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
    /// The buffers that hold it, for commands of one's own.
    pub fn buffers(&self) -> &[wgpu::Buffer] {
        &self.buffers
    }
}

/// An input of a run.
#[derive(Clone, Copy, Debug)]
pub enum RunInput<'a> {
    /// In host memory: it is uploaded.
    Host(&'a Tensor),
    /// On the device: it is bound.
    Device(&'a DeviceTensor),
}

/// Results of a run, on the device for as long as this is held. With it go the run's resources: another run of the session uses others,
/// or waits.
pub struct DeviceOutputs<'s> {
    shared: &'s Shared,
    resources: Lease<'s, Resources>,
}

impl Session {
    /// Submits a run and waits neither for it nor for a copy of its results. Where all resources are in use it waits for some.
    ///
    /// # Errors
    /// Wrong inputs, a result that never is on the device, a failed host step, a lost device.
    pub async fn run_on_device(&self, inputs: &[RunInput<'_>]) -> Result<DeviceOutputs<'_>, GpuError> {
        let shared = &self.shared;
        if let Some(o) = shared.plan.outputs.iter().find(|o| shared.on_host(o)) {
            return Err(GpuError::Input(format!("the result `{}` is in host memory: no kernel writes it", o.name)));
        }
        self.run_in_place(inputs).await
    }

    /// As [`Session::run_on_device`], for a plan that may have results in host memory.
    pub(crate) async fn run_in_place(&self, inputs: &[RunInput<'_>]) -> Result<DeviceOutputs<'_>, GpuError> {
        let shared = &self.shared;
        let mut resources = self.pool.take().await;
        resources.bind_inputs(shared, inputs)?;
        if let Some(encoder) = resources.execute(shared, Polling::Thread).await? {
            shared.gpu.queue.submit([encoder.finish()]);
        }
        Ok(DeviceOutputs { shared, resources })
    }
}

impl Session {
    /// True when the n-th input can be a tensor that is on the device in this form.
    pub(crate) fn takes(&self, n: usize, t: &DeviceTensor) -> bool {
        let input = &self.shared.plan.inputs[n];
        let sizes = slice_sizes(&self.shared.plan.buffers[input.buffer]);
        !self.shared.on_host(input)
            && (t.dtype, &t.shape, t.encoding) == (input.dtype, &input.shape, input.encoding)
            && sizes.len() == t.buffers.len()
            && t.buffers.iter().zip(&sizes).all(|(b, &size)| b.size() >= size)
    }
}

impl DeviceOutputs<'_> {
    /// The n-th result. What is made of it keeps its buffers, but not their contents: those are safe while the outputs are held.
    ///
    /// # Panics
    /// There are not that many.
    pub fn tensor(&self, n: usize) -> DeviceTensor {
        let view = &self.shared.plan.outputs[n];
        DeviceTensor {
            buffers: self.resources.buffers[view.buffer].clone(),
            dtype: view.dtype,
            shape: self.resources.shape_of(view),
            encoding: view.encoding,
        }
    }
    /// True when the n-th result is on the device.
    pub(crate) fn is_on_device(&self, n: usize) -> bool {
        !self.shared.on_host(&self.shared.plan.outputs[n])
    }
    /// Some results in host memory, once the device is done.
    ///
    /// # Errors
    /// A lost device.
    pub(crate) async fn read_of(&self, list: &[usize]) -> Result<Vec<Tensor>, GpuError> {
        if list.is_empty() {
            return Ok(vec![]);
        }
        let views = list.iter().map(|&n| &self.shared.plan.outputs[n]);
        let results = Readback::submit(self.shared, &self.resources, None, views);
        results.done(&self.shared.gpu, Polling::Thread).await?;
        results.tensors(&self.resources)
    }
    /// All results in host memory, once the device is done.
    ///
    /// # Errors
    /// A lost device.
    pub async fn read(&self) -> Result<Vec<Tensor>, GpuError> {
        let results = Readback::submit(self.shared, &self.resources, None, &self.shared.plan.outputs);
        results.done(&self.shared.gpu, Polling::Thread).await?;
        results.tensors(&self.resources)
    }
}
