//! Tensors that stay on the device: results of one session as inputs of another, and a caller's own buffers.
//!
//! [`Session::run_on_device`] submits a run and leaves its results where the kernels wrote them. [`DeviceOutputs`]
//! holds the run's resources, so the results are not overwritten until it is dropped. An input on the device, and a
//! buffer for a result, are bound directly: nothing is copied, and the host does not wait, since the queue keeps the
//! order of submissions.

use crate::buffers::{buffer_usage, new_encoder, slice_sizes};
use crate::device::Gpu;
use crate::error::GpuError;
use crate::poller::Polling;
use crate::pool::Lease;
use crate::readback::Readback;
use crate::recorder::{Doing, Recorder};
use crate::resources::{Resources, Shared};
use crate::session::Session;
use crate::staging::write_by_queue;
use crate::tensors::{DeviceTensor, RunInput, RunTensor};
use crate::transfers::Transfers;
use compiler::plan::storage::decode_tensor;
use compiler::plan::{BufferView, Content};
use compiler::tensor::Tensor;
use std::sync::Arc;

/// Results of a run, on the device for as long as this is held. With it go the run's resources: another run of the
/// session uses others, or waits.
pub struct DeviceOutputs {
    shared: Arc<Shared>,
    resources: Lease<Resources>,
}

impl Session {
    /// Submits a run, and waits neither for it nor for a copy of its results. If all resources are in use, it waits for
    /// some.
    ///
    /// # Errors
    /// Wrong inputs, a result that never is on the device, a failed host step, a lost device.
    pub async fn run_on_device(&self, inputs: &[RunInput<'_>]) -> Result<DeviceOutputs, GpuError> {
        self.run_bound(inputs, &[]).await
    }

    /// As [`Session::run_on_device`], with optional buffers for the results, in the order of the plan's outputs.
    /// Kernels write directly into a buffer that is for storage and as large as the plan's memory for the result, which
    /// the result may share with other values ([`Session::output_on_device`] makes such a buffer). For any other buffer
    /// the result is copied on the device, after the last kernel ([`DeviceOutputs::transfers`] counts it).
    ///
    /// # Errors
    /// As there; a buffer that is too small, of another device's form, or for neither storage nor copies.
    pub async fn run_bound(
        &self,
        inputs: &[RunInput<'_>],
        outputs: &[Option<&DeviceTensor>],
    ) -> Result<DeviceOutputs, GpuError> {
        let shared = &self.shared;
        if let Some(o) = shared.plan.outputs.iter().find(|o| shared.on_host(o)) {
            return Err(GpuError::Input(format!("the result `{}` is in host memory: no kernel writes it", o.name)));
        }
        self.run_in_place(inputs, outputs, &Recorder::default()).await
    }

    /// As [`Session::run_bound`], for a plan that may have results in host memory.
    pub(crate) async fn run_in_place(
        &self,
        inputs: &[RunInput<'_>],
        outputs: &[Option<&DeviceTensor>],
        recorder: &Recorder,
    ) -> Result<DeviceOutputs, GpuError> {
        let shared = &self.shared;
        let mut resources = self.pool.take().await;
        resources.recorder = recorder.clone();
        recorder.doing(|| Doing::Upload);
        let uploads = resources.bind(shared, inputs, outputs)?;
        if let Some(encoder) = resources.execute(shared, uploads, Polling::Thread).await? {
            shared.gpu.queue.submit([encoder.finish()]);
        }
        resources.staging.submitted();
        recorder.doing(|| Doing::Between);
        Ok(DeviceOutputs { shared: shared.clone(), resources })
    }

    /// As [`Session::run_bound`], with each result in memory of its own, in the order of the plan's outputs: in host
    /// memory if no kernel writes it, else on the device. An input on the device that the host reads, or that this plan
    /// stores in another form, is read back first.
    ///
    /// # Errors
    /// As there; no memory.
    pub async fn run_to_tensors(
        &self,
        inputs: &[RunInput<'_>],
        recorder: &Recorder,
    ) -> Result<Vec<RunTensor>, GpuError> {
        let outputs = &self.shared.plan.outputs;
        let make = |n| (!self.shared.on_host(&outputs[n])).then(|| self.output_on_device(n)).transpose();
        let made = (0..outputs.len()).map(make).collect::<Result<Vec<_>, _>>()?;
        let places: Vec<Option<&DeviceTensor>> = made.iter().map(Option::as_ref).collect();
        let mut copies = vec![];
        for (n, input) in inputs.iter().enumerate().take(self.shared.plan.inputs.len()) {
            copies.push(match input {
                RunInput::Device(t) if !self.takes(n, t) => Some(t.read(&self.shared.gpu).await?),
                _ => None,
            });
        }
        let copy = |n: usize| copies.get(n).and_then(Option::as_ref);
        let inputs: Vec<RunInput<'_>> =
            inputs.iter().enumerate().map(|(n, input)| copy(n).map_or(*input, RunInput::Host)).collect();
        let done = self.run_in_place(&inputs, &places, recorder).await?;
        // The given buffers keep their results when the run's own memory goes to the next run.
        let on_host: Vec<usize> = (0..made.len()).filter(|&n| made[n].is_none()).collect();
        let mut read = done.read_of(&on_host).await?.into_iter();
        let all = made.into_iter().map(|t| t.map(RunTensor::Device).or_else(|| read.next().map(RunTensor::Host)));
        Ok(all.flatten().collect())
    }

    /// Uploads `t` for input `n` once, for many runs.
    ///
    /// # Errors
    /// There is no such input, or it is of another type or shape; a value that the device cannot hold; no memory.
    pub fn input_on_device(&self, n: usize, t: &Tensor) -> Result<DeviceTensor, GpuError> {
        let view = view(&self.shared.plan.inputs, n, "input")?;
        if t.dtype() != view.dtype || t.shape() != view.shape {
            let (wanted, got) = (format!("{}{:?}", view.dtype, view.shape), format!("{}{:?}", t.dtype(), t.shape()));
            return Err(GpuError::Input(format!("input `{}` is {wanted}, got {got}", view.name)));
        }
        let made = self.allocate_for(view)?;
        let slice_bytes = self.shared.plan.buffers[view.buffer].slice_bytes;
        write_by_queue(&self.shared.gpu.queue, (view, slice_bytes, &made.buffers), t)?;
        Ok(made)
    }

    /// True when kernels read input `n`, so that a tensor on the device is one.
    pub fn reads_on_device(&self, n: usize) -> bool {
        self.shared.plan.inputs.get(n).is_some_and(|view| !self.shared.on_host(view))
    }

    /// A buffer for result `n` that kernels can write to in the place of the session's own memory
    /// ([`Session::run_bound`]).
    ///
    /// # Errors
    /// There is no such result, or none on the device; no memory.
    pub fn output_on_device(&self, n: usize) -> Result<DeviceTensor, GpuError> {
        self.allocate_for(view(&self.shared.plan.outputs, n, "output")?)
    }

    fn allocate_for(&self, view: &BufferView) -> Result<DeviceTensor, GpuError> {
        let (gpu, plan): (&Gpu, _) = (&self.shared.gpu, &self.shared.plan);
        let b = &plan.buffers[view.buffer];
        if matches!(b.content, Content::Host(_)) {
            return Err(GpuError::Input(format!("`{}` is in host memory: no kernel touches it", view.name)));
        }
        let usage = buffer_usage(plan, view.buffer) | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
        let make = |size| {
            gpu.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some(view.name.as_str()),
                size,
                usage,
                mapped_at_creation: false,
            })
        };
        let scope = gpu.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let buffers = slice_sizes(b).into_iter().map(make).collect();
        match pollster::block_on(scope.pop()) {
            Some(e) => {
                let device = gpu.description.name.clone();
                Err(GpuError::OutOfMemory { device, need: b.bytes, why: e.to_string() })
            }
            None => Ok(DeviceTensor {
                buffers,
                dtype: view.dtype,
                shape: view.shape.clone(),
                encoding: view.encoding,
                constant: false,
            }),
        }
    }
}

impl DeviceTensor {
    /// Its elements in host memory, once the device is done with what was submitted before.
    ///
    /// # Errors
    /// Buffers that cannot be copied from; no memory; a lost device.
    pub async fn read(&self, gpu: &Gpu) -> Result<Tensor, GpuError> {
        if !self.can(wgpu::BufferUsages::COPY_SRC) {
            return Err(GpuError::Input("a tensor cannot be read: its buffer is not made to be copied from".into()));
        }
        let elements = self.shape.iter().product::<usize>() as u64;
        let total = self.encoding.storage_bytes(self.dtype, elements).next_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT);
        let staging = gpu.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("weft: a tensor to be read"),
            size: total,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = new_encoder(gpu);
        let mut at = 0;
        for slice in &self.buffers {
            let size = slice.size().min(total - at);
            encoder.copy_buffer_to_buffer(slice, 0, &staging, at, size);
            at += size;
        }
        let index = gpu.queue.submit([encoder.finish()]);
        let (sender, mapped) = async_channel::unbounded();
        let failed = sender.clone();
        staging.map_async(wgpu::MapMode::Read, .., move |r| {
            // Nobody listens any more when the wait was given up.
            let _ = sender.try_send(r.map_err(|e| GpuError::Lost(e.to_string())));
        });
        gpu.poller()?.watch(index, move |why| drop(failed.try_send(Err(GpuError::Lost(why)))));
        mapped.recv().await.map_err(|e| GpuError::Lost(e.to_string()))??;
        gpu.check_lost()?;
        let bytes = staging.get_mapped_range(..).map_err(|e| GpuError::Internal(e.to_string()))?;
        decode_tensor(&bytes, self.dtype, &self.shape, self.encoding).map_err(GpuError::of_fault)
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

fn view<'a>(list: &'a [BufferView], n: usize, what: &str) -> Result<&'a BufferView, GpuError> {
    list.get(n).ok_or_else(|| GpuError::Input(format!("there is no {what} {n}: the network has {}", list.len())))
}

impl DeviceOutputs {
    /// How many results there are.
    pub fn len(&self) -> usize {
        self.shared.plan.outputs.len()
    }
    /// True when the network has no results.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The n-th result: in the given buffer, or in the run's buffer. The tensor keeps the run's buffers alive, but
    /// their contents are valid only while the outputs are held.
    ///
    /// # Panics
    /// There are not that many.
    pub fn tensor(&self, n: usize) -> DeviceTensor {
        let view = &self.shared.plan.outputs[n];
        let given = self.resources.bindings.result(n).cloned();
        given.unwrap_or_else(|| DeviceTensor {
            buffers: self.resources.buffers[view.buffer].clone(),
            dtype: view.dtype,
            shape: self.resources.shape_of(view),
            encoding: view.encoding,
            constant: matches!(self.shared.plan.buffers[view.buffer].content, Content::Constant { .. }),
        })
    }
    /// Bytes that the run has moved. If inputs and results are on the device, these are only the bytes for branches and
    /// loops.
    pub fn transfers(&self) -> Transfers {
        self.resources.moved.so_far()
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
        let results = Readback::submit(&self.shared, &self.resources, None, views);
        self.taken(results).await
    }
    /// All results in host memory, once the device is done.
    ///
    /// # Errors
    /// A result in a given buffer that cannot be copied from; a lost device.
    pub async fn read(&self) -> Result<Vec<Tensor>, GpuError> {
        let readable = wgpu::BufferUsages::COPY_SRC;
        for view in &self.shared.plan.outputs {
            if self.resources.buffers[view.buffer].iter().any(|b| !b.usage().contains(readable)) {
                let text =
                    format!("the result `{}` cannot be read: its buffer is not made to be copied from", view.name);
                return Err(GpuError::Input(text));
            }
        }
        let results = Readback::submit(&self.shared, &self.resources, None, &self.shared.plan.outputs);
        self.taken(results).await
    }

    async fn taken(&self, results: Readback) -> Result<Vec<Tensor>, GpuError> {
        let recorder = &self.resources.recorder;
        recorder.doing(|| Doing::Wait);
        results.done(&self.shared.gpu, Polling::Thread).await?;
        recorder.doing(|| Doing::Readback);
        let mut tensors = vec![];
        results.tensors(&self.shared, &self.resources, &mut tensors)?;
        recorder.doing(|| Doing::Between);
        Ok(tensors)
    }
}
