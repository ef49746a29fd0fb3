//! A network as compute shaders on `wgpu`, written by Weft, which the crate does not need.
//!
//! [`Network::open`] opens it on a device of the machine, [`Network::new`] on one of the
//! application's own, and [`Network::run`] runs it. The module `network` has what the network alone
//! has: inputs and outputs, tables of buffers, kernels and steps, and the weights.
//!
//! Tensors are dense and row-major. `u16` holds the bits of 16-bit floats, `u8` holds truth values:
//! 0 is false.

mod device;
mod network;
mod tensor;

pub use network::{Inputs, Outputs, WEIGHTS};

use device::{Bound, allocate, bind, fits, layout, pipeline};
use network::{BUFFERS, FEATURES, INPUTS, KERNELS, OUTPUTS, STEPS, WEIGHT_BYTES};
use std::fmt;
use std::sync::mpsc;
use tensor::{Place, Tensor};

/// Why a network does not open or run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// No device has what the kernels need, or the device failed.
    Device(String),
    /// Weights or inputs that do not fit.
    Input(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Error::Device(text) | Error::Input(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for Error {}

/// The network on a device. A run uses its buffers, so there is one at a time.
pub struct Network {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipelines: Vec<wgpu::ComputePipeline>,
    buffers: Vec<wgpu::Buffer>,
    steps: Vec<Bound>,
    /// Memory that the host reads results from.
    staging: wgpu::Buffer,
}

impl Network {
    /// The features and limits that a device needs. Open one with
    /// `required_limits: limits.or_better_values_from(&your_own)`.
    pub fn needs() -> (wgpu::Features, wgpu::Limits) {
        (FEATURES, network::limits())
    }

    /// Opens the network on a device of this machine: the first that has what the kernels need,
    /// GPUs before software drivers. `weights`: [`WEIGHTS`], or the content of `weights.bin`.
    ///
    /// # Errors
    /// No such device, with what each lacks; those of [`Network::new`].
    pub fn open(weights: &[u8]) -> Result<Network, Error> {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let mut adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()));
        adapters.sort_by_key(|a| match a.get_info().device_type {
            wgpu::DeviceType::DiscreteGpu => 0,
            wgpu::DeviceType::IntegratedGpu => 1,
            wgpu::DeviceType::Cpu => 3,
            _ => 2,
        });
        let mut said = vec![];
        for adapter in adapters {
            let info = adapter.get_info();
            if let Err(why) = fits(adapter.features(), &adapter.limits(), &info) {
                said.push(format!("{}: {why}", info.name));
                continue;
            }
            let descriptor = wgpu::DeviceDescriptor {
                required_features: FEATURES,
                required_limits: network::limits().or_better_values_from(&adapter.limits()),
                ..Default::default()
            };
            let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))
                .map_err(|e| Error::Device(format!("{}: {e}", info.name)))?;
            return Network::new(device, queue, weights);
        }
        let list = if said.is_empty() {
            "there is none".into()
        } else {
            said.join("; ")
        };
        Err(Error::Device(format!(
            "no device can run the network: {list}"
        )))
    }

    /// Opens the network on a device, which has what [`Network::needs`] says. `weights`:
    /// [`WEIGHTS`], or the content of `weights.bin`.
    ///
    /// # Errors
    /// A device that lacks something or has not enough memory; other weights.
    pub fn new(device: wgpu::Device, queue: wgpu::Queue, weights: &[u8]) -> Result<Network, Error> {
        fits(device.features(), &device.limits(), &device.adapter_info()).map_err(Error::Device)?;
        if weights.len() != WEIGHT_BYTES {
            let text = format!(
                "the weights have {} bytes, and this network needs {WEIGHT_BYTES}",
                weights.len()
            );
            return Err(Error::Input(text));
        }
        let scopes = [
            wgpu::ErrorFilter::Internal,
            wgpu::ErrorFilter::Validation,
            wgpu::ErrorFilter::OutOfMemory,
        ]
        .map(|filter| device.push_error_scope(filter));
        let buffers: Vec<wgpu::Buffer> = BUFFERS
            .iter()
            .map(|b| allocate(&device, b, weights))
            .collect();
        let layouts: Vec<wgpu::BindGroupLayout> =
            KERNELS.iter().map(|k| layout(&device, k)).collect();
        let pipelines = KERNELS
            .iter()
            .zip(&layouts)
            .map(|(k, layout)| pipeline(&device, k, layout))
            .collect();
        let steps = bind(&device, &layouts, &buffers, STEPS);
        let bytes: u64 = OUTPUTS.iter().map(Tensor::stored_bytes).sum();
        let staging = device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes.max(16),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        // The scope that was opened last is closed first.
        for scope in scopes.into_iter().rev() {
            if let Some(e) = pollster::block_on(scope.pop()) {
                return Err(Error::Device(e.to_string()));
            }
        }
        Ok(Network {
            device,
            queue,
            pipelines,
            buffers,
            steps,
            staging,
        })
    }

    /// The name of the device.
    pub fn device_name(&self) -> String {
        self.device.adapter_info().name
    }

    /// Runs the network once, and waits for the results.
    ///
    /// # Errors
    /// Inputs with another number of elements, an integer beyond 32 bits, a device that is lost.
    pub fn run(&mut self, inputs: &Inputs) -> Result<Outputs, Error> {
        let bytes = inputs.bytes();
        let bytes: Vec<&[u8]> = bytes.iter().map(|b| &b[..]).collect();
        Ok(Outputs::of(self.run_bytes(&bytes)?))
    }

    /// As [`Network::run`], with the bytes of each input in the order of [`Inputs`] and of each
    /// output in the order of [`Outputs`], little-endian.
    ///
    /// # Errors
    /// As [`Network::run`].
    pub fn run_bytes(&mut self, inputs: &[&[u8]]) -> Result<Vec<Vec<u8>>, Error> {
        if inputs.len() != INPUTS.len() {
            return Err(Error::Input(format!(
                "the network takes {} inputs, got {}",
                INPUTS.len(),
                inputs.len()
            )));
        }
        for (t, bytes) in INPUTS.iter().zip(inputs) {
            let stored = t.stored(bytes)?;
            let Place::Buffers(list) = t.place else {
                continue;
            };
            let mut rest = &stored[..];
            for &b in list {
                let (now, later) = rest.split_at(rest.len().min(BUFFERS[b].bytes as usize));
                self.queue.write_buffer(&self.buffers[b], 0, now);
                rest = later;
            }
        }
        let encoder = self.device.create_command_encoder(&Default::default());
        let encoder = self.execute(&self.steps, inputs, encoder)?;
        let on_device: Vec<&Tensor> = OUTPUTS
            .iter()
            .filter(|t| matches!(t.place, Place::Buffers(_)))
            .collect();
        let mut read = self.read(encoder, &on_device)?.into_iter();
        let result = |t: &Tensor| match t.place {
            Place::Input(n) => inputs[n].to_vec(),
            Place::Buffers(_) => read.next().unwrap_or_default(),
        };
        Ok(OUTPUTS.iter().map(result).collect())
    }

    /// Encodes the steps.
    fn execute(
        &self,
        steps: &[Bound],
        inputs: &[&[u8]],
        mut encoder: wgpu::CommandEncoder,
    ) -> Result<wgpu::CommandEncoder, Error> {
        let mut steps = steps.iter().peekable();
        while let Some(step) = steps.peek() {
            match step {
                Bound::Run { .. } => {
                    let mut pass = encoder.begin_compute_pass(&Default::default());
                    while let Some(Bound::Run {
                        kernel,
                        group,
                        grid: [x, y, z],
                    }) = steps.peek()
                    {
                        pass.set_pipeline(&self.pipelines[*kernel]);
                        pass.set_bind_group(0, group, &[]);
                        pass.dispatch_workgroups(*x, *y, *z);
                        steps.next();
                    }
                    continue;
                }
                Bound::Copy { from, to } => {
                    let bytes = BUFFERS[*from].bytes.min(BUFFERS[*to].bytes);
                    encoder.copy_buffer_to_buffer(
                        &self.buffers[*from],
                        0,
                        &self.buffers[*to],
                        0,
                        bytes,
                    );
                }
                Bound::Branch { condition, sides } => {
                    let truth = match condition.place {
                        Place::Input(n) => inputs[n].to_vec(),
                        Place::Buffers(_) => {
                            let read = self.read(encoder, &[condition])?;
                            encoder = self.device.create_command_encoder(&Default::default());
                            read.concat()
                        }
                    };
                    let taken = truth.iter().any(|&b| b != 0);
                    encoder = self.execute(&sides[usize::from(!taken)], inputs, encoder)?;
                }
            }
            steps.next();
        }
        Ok(encoder)
    }

    /// Submits the commands, waits, and reads tensors back.
    fn read(
        &self,
        mut encoder: wgpu::CommandEncoder,
        tensors: &[&Tensor],
    ) -> Result<Vec<Vec<u8>>, Error> {
        let mut at = 0;
        for t in tensors {
            let mut left = t.stored_bytes();
            let Place::Buffers(list) = t.place else {
                continue;
            };
            for &b in list {
                let bytes = left.min(BUFFERS[b].bytes);
                encoder.copy_buffer_to_buffer(&self.buffers[b], 0, &self.staging, at, bytes);
                (at, left) = (at + bytes, left - bytes);
            }
        }
        self.queue.submit([encoder.finish()]);
        let failed = |e: &dyn fmt::Display| Error::Device(format!("{}: {e}", self.device_name()));
        let (sender, mapped) = mpsc::channel();
        self.staging
            .map_async(wgpu::MapMode::Read, .., move |r| drop(sender.send(r)));
        self.device
            .poll(wgpu::PollType::wait_indefinitely())
            .map_err(|e| failed(&e))?;
        mapped
            .recv()
            .map_err(|e| failed(&e))?
            .map_err(|e| failed(&e))?;
        let mut results = vec![];
        {
            let view = self.staging.get_mapped_range(..).map_err(|e| failed(&e))?;
            let mut rest = &view[..];
            for t in tensors {
                let (now, later) = rest.split_at(t.stored_bytes() as usize);
                results.push(t.loaded(now));
                rest = later;
            }
        }
        self.staging.unmap();
        Ok(results)
    }
}
