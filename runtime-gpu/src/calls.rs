//! Calls of the plan's functions. Each active call has its own buffers for the values that the function writes. The
//! first call of a function uses the plan's buffers. A deeper call uses others, which are allocated when a run first
//! reaches that depth and kept for later runs.
//!
//! During a call its buffers replace those of the enclosing call, which are put aside. So steps, loops and readbacks do
//! not depend on the depth.

use crate::buffers::{allocate, new_encoder};
use crate::error::GpuError;
use crate::host_memory::available_memory;
use crate::resources::{Active, BoundSteps, Frame, Resources, Shared, bind_steps};
use compiler::interpreter::MAX_CALL_DEPTH;
use compiler::plan::{Call, Handover};
use compiler::tensor::Tensor;

/// A value on its way from one function to another.
enum Value {
    Host(Option<Tensor>),
    Device(Vec<wgpu::Buffer>),
}

impl Resources {
    /// Begins a call: copies the operands to the buffers that its steps read.
    ///
    /// # Errors
    /// Calls that nest too deeply; no memory for one more.
    pub(crate) fn enter(
        &mut self,
        shared: &Shared,
        encoder: &mut Option<wgpu::CommandEncoder>,
        call: &Call,
    ) -> Result<BoundSteps, GpuError> {
        let f = &shared.plan.functions[call.callee];
        // The entry function counts.
        if self.calls.active.len() + 1 >= MAX_CALL_DEPTH {
            return Err(GpuError::Depth { function: f.name.to_string(), most: MAX_CALL_DEPTH });
        }
        let operands = self.take_values(shared, &call.arguments);
        let depth = self.calls.functions[call.callee].depth;
        if depth > self.calls.functions[call.callee].frames.len() {
            self.add_frame(shared, call.callee)?;
        }
        let swapped = std::mem::take(&mut self.swapped);
        self.calls.active.push(Active { callee: call.callee, swapped });
        self.calls.functions[call.callee].depth += 1;
        self.change_frame(shared, call.callee, depth);
        self.put_values(shared, encoder, operands, &call.arguments);
        let f = &self.calls.functions[call.callee];
        Ok(depth.checked_sub(1).map_or(&f.body, |i| &f.frames[i].steps).clone())
    }

    /// Ends the innermost call, which is this one: results go to the caller.
    pub(crate) fn leave(&mut self, shared: &Shared, encoder: &mut Option<wgpu::CommandEncoder>, call: &Call) {
        let results = self.take_values(shared, &call.results);
        self.end_call(shared);
        self.put_values(shared, encoder, results, &call.results);
    }

    /// Ends the innermost call and restores the buffers of the enclosing one; `None` without an active call.
    pub(crate) fn end_call(&mut self, shared: &Shared) -> Option<()> {
        let Active { callee, swapped } = self.calls.active.pop()?;
        self.calls.functions[callee].depth -= 1;
        let depth = self.calls.functions[callee].depth;
        self.change_frame(shared, callee, depth);
        self.swapped = swapped;
        Some(())
    }

    /// Swaps the buffers of the frame of that depth with those in the plan's places. The first call uses the plan's
    /// buffers.
    fn change_frame(&mut self, shared: &Shared, callee: usize, depth: usize) {
        let Some(i) = depth.checked_sub(1) else { return };
        let frame = &mut self.calls.functions[callee].frames[i];
        for (at, &buffer) in shared.plan.functions[callee].buffers.iter().enumerate() {
            std::mem::swap(&mut self.buffers[buffer], &mut frame.buffers[at]);
            std::mem::swap(&mut self.host[buffer], &mut frame.host[at]);
        }
    }

    /// Buffers for one more call inside calls of the function.
    fn add_frame(&mut self, shared: &Shared, callee: usize) -> Result<(), GpuError> {
        let (gpu, f) = (&shared.gpu, &shared.plan.functions[callee]);
        let need = f.buffers.iter().map(|&b| shared.plan.buffers[b].bytes).sum();
        let refuse = |why: String| Err(GpuError::OutOfMemory { device: gpu.description.name.clone(), need, why });
        let nested = self.calls.functions[callee].frames.len() + 2;
        if gpu.profile.model().on_host
            && let Some(free) = available_memory()
            && need > free
        {
            return refuse(format!("{nested} calls of @{} inside each other; {free} bytes are available", f.name));
        }
        let memory = gpu.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let own: Vec<Vec<wgpu::Buffer>> =
            f.buffers.iter().map(|&b| allocate(gpu, &shared.plan, b, &shared.plan.buffers[b])).collect();
        if let Some(e) = pollster::block_on(memory.pop()) {
            return refuse(format!("{nested} calls of @{} inside each other: {e}", f.name));
        }
        let mut bound = self.buffers.clone();
        for (&buffer, own) in f.buffers.iter().zip(&own) {
            bound[buffer] = own.clone();
        }
        let steps = bind_steps(shared, &bound, &f.body);
        let host = vec![None; own.len()];
        self.calls.functions[callee].frames.push(Frame { buffers: own, host, steps });
        Ok(())
    }

    /// The values to hand over, taken before the buffers are swapped.
    fn take_values(&self, shared: &Shared, list: &[Handover]) -> Vec<Value> {
        let take = |h: &Handover| match shared.holds_tensor(h.to) {
            true => Value::Host(self.host[h.from].clone()),
            false => Value::Device(self.buffers[h.from].clone()),
        };
        list.iter().map(take).collect()
    }

    fn put_values(
        &mut self,
        shared: &Shared,
        encoder: &mut Option<wgpu::CommandEncoder>,
        values: Vec<Value>,
        list: &[Handover],
    ) {
        for (value, h) in values.into_iter().zip(list) {
            match value {
                Value::Host(t) => self.host[h.to] = t,
                Value::Device(from) => {
                    let encoder = encoder.get_or_insert_with(|| new_encoder(&shared.gpu));
                    self.copy_slices(encoder, (&from, &self.buffers[h.to]), &shared.plan.buffers[h.from]);
                }
            }
        }
    }
}
