//! A network as compute shaders on `wgpu`, written by Weft, which the crate does not need.
//!
//! [`Network::open`] opens it on a device of the machine, [`Network::new`] on one of the
//! application's own, and [`Network::run`] runs it. The module `network` has what the network alone
//! has: inputs and outputs, tables of buffers, kernels and steps, and the weights.
//!
//! Tensors are dense and row-major. `u16` holds the bits of 16-bit floats, `u8` holds truth values:
//! 0 is false.

mod network;

pub use network::{Inputs, Outputs, WEIGHTS};

use network::{BUFFERS, FEATURES, INPUTS, KERNELS, OUTPUTS, STEPS, SUBGROUPS, WEIGHT_BYTES};
use std::fmt;
use std::sync::mpsc;

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

/// A buffer of the device.
struct Buffer {
    bytes: u64,
    /// Where its data begin in the weights; none: runs write it.
    weights: Option<usize>,
}

/// A compute shader. Equal layers share one.
struct Kernel {
    /// The first layer that it computes.
    name: &'static str,
    wgsl: &'static str,
    entry: &'static str,
    /// For each of its bindings: whether it writes there.
    writes: &'static [bool],
    /// Weft proved that each access is in bounds and that each loop ends, so that `wgpu` adds no
    /// checks.
    proved: bool,
}

/// An input, an output or a condition.
struct Tensor {
    name: &'static str,
    shape: &'static [usize],
    /// Bytes of an element outside of the device.
    size: usize,
    form: Form,
    place: Place,
}

/// How elements stand in a buffer.
#[allow(dead_code, reason = "few networks have all kinds")]
enum Form {
    /// As they are.
    Plain,
    /// Integers, in 32 bits each.
    Words { signed: bool },
    /// Truth values, in this many bytes each.
    Truth { bytes: usize },
}

/// Where a tensor is.
#[allow(dead_code, reason = "few networks have all kinds")]
enum Place {
    /// In these buffers, one after another. No kernel reads an input that is in none.
    Buffers(&'static [usize]),
    /// An output or a condition that is this input.
    Input(usize),
}

/// A step of a run.
#[allow(dead_code, reason = "few networks have all kinds")]
enum Step {
    /// Runs a kernel with these buffers at its bindings.
    Run {
        kernel: usize,
        buffers: &'static [usize],
        grid: [u32; 3],
    },
    Copy {
        from: usize,
        to: usize,
    },
    /// Reads the condition back, and takes one of two lists of steps.
    Branch {
        condition: &'static Tensor,
        then: &'static [Step],
        otherwise: &'static [Step],
    },
}

/// A step with its buffers bound.
enum Bound {
    Run {
        kernel: usize,
        group: wgpu::BindGroup,
        grid: [u32; 3],
    },
    Copy {
        from: usize,
        to: usize,
    },
    Branch {
        condition: &'static Tensor,
        sides: [Vec<Bound>; 2],
    },
}

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
                "the weights have {} bytes, those of this network {WEIGHT_BYTES}",
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

/// Whether a device has what the kernels need; else what it lacks.
fn fits(
    features: wgpu::Features,
    limits: &wgpu::Limits,
    info: &wgpu::AdapterInfo,
) -> Result<(), String> {
    let mut lacks = vec![];
    if !features.contains(FEATURES) {
        lacks.push(format!("it lacks {:?}", FEATURES - features));
    }
    network::limits().check_limits_with_fail_fn(limits, false, |name, need, has| {
        lacks.push(format!("{name} is {has}, the kernels need {need}"));
    });
    let [least, most] = SUBGROUPS;
    if FEATURES.contains(wgpu::Features::SUBGROUP)
        && (info.subgroup_min_size < least || info.subgroup_max_size > most)
    {
        let sizes = [info.subgroup_min_size, info.subgroup_max_size];
        lacks.push(format!(
            "it has subgroups of {sizes:?} threads, the kernels are for {SUBGROUPS:?}"
        ));
    }
    if lacks.is_empty() {
        Ok(())
    } else {
        Err(lacks.join(", "))
    }
}

fn allocate(device: &wgpu::Device, b: &Buffer, weights: &[u8]) -> wgpu::Buffer {
    use wgpu::BufferUsages as U;
    let usage = if b.weights.is_some() {
        U::STORAGE
    } else {
        U::STORAGE | U::COPY_SRC | U::COPY_DST
    };
    let mapped_at_creation = b.weights.is_some();
    let buffer = device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: b.bytes,
        usage,
        mapped_at_creation,
    });
    if let Some(at) = b.weights {
        // Without memory the buffer is not mapped; the error scope around says so.
        if let Ok(mut to) = buffer.get_mapped_range_mut(..) {
            to.copy_from_slice(&weights[at..at + b.bytes as usize]);
        }
        buffer.unmap();
    }
    buffer
}

fn layout(device: &wgpu::Device, k: &Kernel) -> wgpu::BindGroupLayout {
    let entry = |(i, writes): (usize, &bool)| wgpu::BindGroupLayoutEntry {
        binding: i as u32,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only: !writes },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    };
    let entries: Vec<_> = k.writes.iter().enumerate().map(entry).collect();
    device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: Some(k.name),
        entries: &entries,
    })
}

fn pipeline(
    device: &wgpu::Device,
    k: &Kernel,
    layout: &wgpu::BindGroupLayout,
) -> wgpu::ComputePipeline {
    let descriptor = wgpu::ShaderModuleDescriptor {
        label: Some(k.name),
        source: wgpu::ShaderSource::Wgsl(k.wgsl.into()),
    };
    let module = match k.proved {
        // SAFETY: every access of the kernel is in bounds of the buffers in the tables, and its
        // loops are counted.
        true => unsafe {
            device.create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked())
        },
        false => device.create_shader_module(descriptor),
    };
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(k.name),
        bind_group_layouts: &[Some(layout)],
        immediate_size: 0,
    });
    device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(k.name),
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some(k.entry),
        compilation_options: wgpu::PipelineCompilationOptions {
            zero_initialize_workgroup_memory: false,
            ..Default::default()
        },
        cache: None,
    })
}

fn bind(
    device: &wgpu::Device,
    layouts: &[wgpu::BindGroupLayout],
    buffers: &[wgpu::Buffer],
    steps: &'static [Step],
) -> Vec<Bound> {
    let one = |step: &'static Step| match step {
        Step::Copy { from, to } => Bound::Copy {
            from: *from,
            to: *to,
        },
        Step::Branch {
            condition,
            then,
            otherwise,
        } => Bound::Branch {
            condition,
            sides: [then, otherwise].map(|list| bind(device, layouts, buffers, list)),
        },
        Step::Run {
            kernel,
            buffers: list,
            grid,
        } => {
            let entry = |(i, &b): (usize, &usize)| wgpu::BindGroupEntry {
                binding: i as u32,
                resource: buffers[b].as_entire_binding(),
            };
            let entries: Vec<_> = list.iter().enumerate().map(entry).collect();
            let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &layouts[*kernel],
                entries: &entries,
            });
            Bound::Run {
                kernel: *kernel,
                group,
                grid: *grid,
            }
        }
    };
    steps.iter().map(one).collect()
}

impl Tensor {
    fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes in buffers, in whole words.
    fn stored_bytes(&self) -> u64 {
        let element = match self.form {
            Form::Plain => self.size,
            Form::Words { .. } => 4,
            Form::Truth { bytes } => bytes,
        };
        (self.elements() * element).next_multiple_of(4) as u64
    }

    /// The bytes of buffers for these elements.
    fn stored(&self, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let (name, need) = (self.name, self.elements() * self.size);
        if bytes.len() != need {
            let text = format!(
                "input `{name}` of the shape {:?} has {need} bytes, got {}",
                self.shape,
                bytes.len()
            );
            return Err(Error::Input(text));
        }
        let mut out = match self.form {
            Form::Plain => bytes.to_vec(),
            Form::Truth { bytes: n } => bytes
                .iter()
                .flat_map(|&b| [u8::from(b != 0), 0, 0, 0].into_iter().take(n))
                .collect(),
            Form::Words { signed } => {
                let mut out = Vec::with_capacity(self.elements() * 4);
                for element in bytes.chunks_exact(self.size) {
                    let fill = if signed && element[self.size - 1] & 0x80 != 0 {
                        0xff
                    } else {
                        0
                    };
                    let mut all = [fill; 8];
                    all[..self.size].copy_from_slice(element);
                    let v = i64::from_le_bytes(all);
                    let word = i32::try_from(v);
                    let word = word.map_err(|_| {
                        Error::Input(format!("input `{name}`: {v} does not fit 32 bits"))
                    })?;
                    out.extend(word.to_le_bytes());
                }
                out
            }
        };
        out.resize(self.stored_bytes() as usize, 0);
        Ok(out)
    }

    /// The elements in these bytes of buffers.
    fn loaded(&self, stored: &[u8]) -> Vec<u8> {
        match self.form {
            Form::Plain => stored[..self.elements() * self.size].to_vec(),
            Form::Truth { bytes } => {
                let words = stored.chunks_exact(bytes).take(self.elements());
                words
                    .map(|word| u8::from(word.iter().any(|&b| b != 0)))
                    .collect()
            }
            Form::Words { signed } => {
                let element = |word: &[u8]| {
                    let fill = if signed && word[3] & 0x80 != 0 {
                        0xff
                    } else {
                        0
                    };
                    let mut all = [fill; 8];
                    all[..4].copy_from_slice(word);
                    all.into_iter().take(self.size)
                };
                stored.chunks_exact(4).flat_map(element).collect()
            }
        }
    }
}

/// A number in the memory of the host.
trait Element: Copy {
    fn put(self, to: &mut Vec<u8>);
    fn take(from: &[u8]) -> Self;
}

macro_rules! elements {
    ($($t:ty),*) => {
        $(impl Element for $t {
            fn put(self, to: &mut Vec<u8>) {
                to.extend(self.to_le_bytes());
            }
            fn take(from: &[u8]) -> Self {
                let mut bytes = [0; size_of::<$t>()];
                bytes.copy_from_slice(from);
                <$t>::from_le_bytes(bytes)
            }
        })*
    };
}
elements!(f32, u8, i8, u16, i16, u32, i32, u64, i64);

fn to_bytes<T: Element>(list: &[T]) -> Vec<u8> {
    let mut out = Vec::with_capacity(size_of_val(list));
    list.iter().for_each(|x| x.put(&mut out));
    out
}

fn from_bytes<T: Element>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(T::take).collect()
}
