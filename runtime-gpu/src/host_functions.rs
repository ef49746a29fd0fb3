//! Host functions of a session: on tensors in host memory, or on device buffers with the queue.
//!
//! A function on device buffers is made in two steps. [`HostFunctions::register_on_device`] takes a preparation
//! function, which a session calls once when it opens, to make pipelines. That returns the function that each run
//! calls, in the plan's order; it adds its commands to the run's encoder, after those of the kernels before it. Nothing
//! is read back.
//!
//! A result in place of an operand shares the operand's buffer, or a copy of it if a later step needs the operand.

use crate::buffers::new_encoder;
use crate::device::Gpu;
use crate::error::GpuError;
use compiler::interpreter;
use compiler::name::Name;
use compiler::plan::{BufferView, HostSignature, Plan, Step};
use compiler::tensor::{Tensor, TensorMut};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A function on device buffers, ready to run.
pub type DeviceFunction = Arc<dyn Fn(&mut DeviceCall<'_>) -> Result<(), String> + Send + Sync>;

/// Prepares a function on device buffers for a device.
type Prepare = Arc<dyn Fn(&Gpu) -> Result<DeviceFunction, String> + Send + Sync>;

/// Host functions by name, as graphs call them with `call_host @name`.
#[derive(Clone, Default)]
pub struct HostFunctions {
    on_tensors: Arc<interpreter::HostFunctions>,
    on_device: BTreeMap<Name, Prepare>,
}

impl std::fmt::Debug for HostFunctions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.on_tensors.names()).entries(self.on_device.keys()).finish()
    }
}

impl HostFunctions {
    /// None.
    pub fn new() -> HostFunctions {
        HostFunctions::default()
    }
    /// Registers `f`, which takes tensors in host memory and returns its results.
    pub fn register(
        &mut self,
        name: impl Into<Name>,
        f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>, String> + Send + Sync + 'static,
    ) {
        Arc::make_mut(&mut self.on_tensors).register(name, f);
    }
    /// Registers `f`, which takes tensors in host memory and writes its results into memory that is there, as
    /// [`compiler::interpreter::HostFunctions::register_into`] says.
    pub fn register_into(
        &mut self,
        name: impl Into<Name>,
        f: impl Fn(&[Tensor], &mut [TensorMut]) -> Result<(), String> + Send + Sync + 'static,
    ) {
        Arc::make_mut(&mut self.on_tensors).register_into(name, f);
    }
    /// Registers a function on tensors in host memory that is prepared once for each call site and list of sizes, as
    /// [`compiler::interpreter::HostFunctions::register_prepared`] says.
    pub fn register_prepared<F>(
        &mut self,
        name: impl Into<Name>,
        prepare: impl Fn(&HostSignature<'_>) -> Result<F, String> + Send + Sync + 'static,
    ) where
        F: Fn(&[Tensor], &mut [TensorMut]) -> Result<(), String> + Send + Sync + 'static,
    {
        Arc::make_mut(&mut self.on_tensors).register_prepared(name, prepare);
    }
    /// Registers a function on device buffers: `prepare` makes it when a session opens. Graphs call it with
    /// `call_host @name ... {on_device=true}`.
    pub fn register_on_device<F>(
        &mut self,
        name: impl Into<Name>,
        prepare: impl Fn(&Gpu) -> Result<F, String> + Send + Sync + 'static,
    ) where
        F: Fn(&mut DeviceCall<'_>) -> Result<(), String> + Send + Sync + 'static,
    {
        let prepare = move |gpu: &Gpu| prepare(gpu).map(|f| Arc::new(f) as DeviceFunction);
        self.on_device.insert(name.into(), Arc::new(prepare));
    }
    /// True when a function on device buffers has that name.
    pub fn is_on_device(&self, name: Name) -> bool {
        self.on_device.contains_key(&name)
    }
    /// Those on tensors, for the interpreter.
    pub fn on_tensors(&self) -> &interpreter::HostFunctions {
        &self.on_tensors
    }
    /// All names, sorted.
    pub fn names(&self) -> Vec<Name> {
        let mut names = self.on_tensors.names();
        names.extend(self.on_device.keys());
        names.sort();
        names.dedup();
        names
    }

    /// Those on device buffers that `plan` calls, ready to run; checks that all others are there.
    ///
    /// # Errors
    /// A function is not registered, or not in the form in which it is called; or its preparation fails.
    pub(crate) fn prepare(&self, gpu: &Gpu, plan: &Plan) -> Result<BTreeMap<Name, DeviceFunction>, GpuError> {
        let mut ready = BTreeMap::new();
        for step in plan.all_steps() {
            let Step::Host(h) = step else { continue };
            let Some(call) = h.call.filter(|c| !c.external) else { continue };
            let (at, name) = (h.name, call.function);
            let (there, other) = match call.on_device {
                true => (self.is_on_device(name), self.on_tensors.contains(name)),
                false => (self.on_tensors.contains(name), self.is_on_device(name)),
            };
            if !there {
                return Err(GpuError::HostFunction(match other {
                    true if call.on_device => {
                        format!("`{at}` calls the host function `{name}` with device buffers, and it takes tensors")
                    }
                    true => {
                        format!("`{at}` calls the host function `{name}` with tensors, and it takes device buffers")
                    }
                    false => format!("`{at}` {}", self.unknown(name)),
                }));
            }
            if let (true, Some(prepare)) = (!ready.contains_key(&name), self.on_device.get(&name)) {
                let f = gpu
                    .validated(|| prepare(gpu))
                    .map_err(|e| GpuError::HostFunction(format!("the host function `{name}`: {e}")))?;
                ready.insert(name, f);
            }
        }
        Ok(ready)
    }

    fn unknown(&self, name: Name) -> String {
        let names: Vec<String> = self.names().iter().map(Name::to_string).collect();
        let there = if names.is_empty() { "none is".into() } else { format!("there are: {}", names.join(", ")) };
        format!("calls the host function `{name}`, which is not registered ({there})")
    }
}

/// A tensor in device buffers.
pub struct DeviceOperand<'a> {
    /// Name, type, shape and storage form.
    pub view: &'a BufferView,
    /// The buffer, or several slices in order if the tensor exceeds one binding.
    pub buffers: &'a [wgpu::Buffer],
}

/// One call of a function on device buffers.
pub struct DeviceCall<'a> {
    /// The device and its queue.
    pub gpu: &'a Gpu,
    /// The run's encoder: the function adds its own commands.
    pub encoder: &'a mut wgpu::CommandEncoder,
    /// Operands in order.
    pub inputs: Vec<DeviceOperand<'a>>,
    /// Results in order. One in place of an operand has its buffer.
    pub outputs: Vec<DeviceOperand<'a>>,
}

impl DeviceCall<'_> {
    /// Dispatches `pipeline` over these workgroups. Its bind group 0 has the buffers of the operands, then of the
    /// results that are not in place of an operand, with bindings from 0 on in this order.
    pub fn dispatch(&mut self, pipeline: &wgpu::ComputePipeline, workgroups: [u32; 3]) {
        let mut bound: Vec<&wgpu::Buffer> = vec![];
        for operand in self.inputs.iter().chain(&self.outputs) {
            for buffer in operand.buffers {
                if !bound.contains(&buffer) {
                    bound.push(buffer);
                }
            }
        }
        let numbered = (0..).zip(&bound);
        let entries: Vec<wgpu::BindGroupEntry<'_>> = numbered
            .map(|(binding, buffer)| wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() })
            .collect();
        let layout = pipeline.get_bind_group_layout(0);
        let group = self.gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &layout,
            entries: &entries,
        });
        let mut pass = self.encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(workgroups[0], workgroups[1], workgroups[2]);
    }

    /// Submits the commands so far. Submissions that the function then makes itself run after them and before the rest
    /// of the run.
    pub fn flush(&mut self) {
        let encoded = std::mem::replace(self.encoder, new_encoder(self.gpu));
        self.gpu.queue.submit([encoded.finish()]);
    }
}
