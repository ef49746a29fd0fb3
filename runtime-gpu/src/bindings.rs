//! A caller's buffers in place of a run's own buffers.
//!
//! An input buffer is always bound directly. A result buffer is bound directly if kernels may write it; otherwise the
//! result is copied once. Bind groups are kept for the last eight combinations of buffers. A buffer that the same run
//! writes for another purpose is refused. The bytes that a run moves are counted ([`Transfers`](crate::Transfers)).

use crate::buffers::{is_copied, new_encoder, slice_sizes};
use crate::error::GpuError;
use crate::resources::{Given, Resources, Shared, bind_steps};
use crate::tensors::{DeviceTensor, RunInput};
use compiler::plan::storage::stored_bytes;
use compiler::plan::{BufferView, Content, Step};
use compiler::tensor::Tensor;

/// Number of combinations of given buffers whose bind groups are kept: enough for two sessions with two or three runs
/// in flight.
const KEPT: usize = 8;

fn refused<T>(what: &str, view: &BufferView, why: &str) -> Result<T, GpuError> {
    Err(GpuError::Input(format!("{what} `{}` cannot be bound: {why}", view.name)))
}

impl Resources {
    /// Writes the inputs, in the order of the plan's inputs; results go to the run's own buffers. The caller must
    /// submit the returned encoder.
    ///
    /// # Errors
    /// A wrong number, dtype or shape.
    pub(crate) fn write_inputs(
        &mut self,
        shared: &Shared,
        inputs: &[Tensor],
    ) -> Result<Option<wgpu::CommandEncoder>, GpuError> {
        let inputs: Vec<RunInput<'_>> = inputs.iter().map(RunInput::Host).collect();
        self.bind(shared, &inputs, &[])
    }

    /// Begins a run: encodes the upload of inputs that come from the host, binds those on the device, and the buffers
    /// that results are wanted in; both in the order of the plan's, `outputs` of none or of all.
    ///
    /// # Errors
    /// A wrong number, dtype or shape; a tensor on the device that cannot be bound.
    pub(crate) fn bind(
        &mut self,
        shared: &Shared,
        inputs: &[RunInput<'_>],
        outputs: &[Option<&DeviceTensor>],
    ) -> Result<Option<wgpu::CommandEncoder>, GpuError> {
        let views = &shared.plan.inputs;
        if inputs.len() != views.len() {
            let text = format!("the network takes {} inputs, got {}", views.len(), inputs.len());
            return Err(GpuError::Input(text));
        }
        self.restore_buffers(shared);
        self.moved.reset();
        let mut given = vec![];
        for (view, input) in views.iter().zip(inputs) {
            let (dtype, shape) = (input.dtype(), input.shape());
            if dtype != view.dtype || shape != view.shape {
                let wanted = format!("{}{:?}", view.dtype, view.shape);
                return Err(GpuError::Input(format!("input `{}` is {wanted}, got {dtype}{shape:?}", view.name)));
            }
            if let RunInput::Device(t) = input {
                self.check_input(shared, view, t)?;
                given.push((view.buffer, t.buffers.clone()));
            }
        }
        self.bind_outputs(shared, outputs, &mut given)?;
        self.put_in_place(shared, given);
        let mut encoder = None;
        for (view, input) in views.iter().zip(inputs) {
            if let RunInput::Host(t) = input {
                self.write_input(shared, &mut encoder, view, t)?;
            }
        }
        Ok(encoder)
    }

    fn check_input(&self, shared: &Shared, view: &BufferView, t: &DeviceTensor) -> Result<(), GpuError> {
        let refuse = |why: &str| refused("input", view, why);
        if shared.on_host(view) {
            return refuse("no kernel reads it, so it is in host memory");
        }
        if t.encoding != view.encoding {
            return refuse("the device stores its type in another form than the given buffer");
        }
        let b = &shared.plan.buffers[view.buffer];
        let sizes = slice_sizes(b);
        if !fits(&t.buffers, &sizes) {
            return refuse(&format!("it needs {} bytes, padded to 16, in {} buffers", b.bytes, sizes.len()));
        }
        if !t.can(wgpu::BufferUsages::STORAGE) {
            return refuse("its buffer is not for storage");
        }
        if is_copied(&shared.plan, view.buffer) && !t.can(wgpu::BufferUsages::COPY_SRC) {
            return refuse("the host reads it in a run, and its buffer cannot be copied from");
        }
        if self.owns(shared, &t.buffers) {
            return refuse("the run writes to it: hold the outputs that it came with");
        }
        Ok(())
    }

    /// True when one of the buffers is one that this run writes.
    fn owns(&self, shared: &Shared, buffers: &[wgpu::Buffer]) -> bool {
        let written = |i: usize| matches!(shared.plan.buffers[i].content, Content::Pool | Content::Input(_));
        let held = |i: usize| self.bindings.own.get(&i).unwrap_or(&self.buffers[i]);
        (0..self.buffers.len()).filter(|&i| written(i)).any(|i| held(i).iter().any(|b| buffers.contains(b)))
    }

    /// Adds the buffers for results to the `given` ones if kernels can write them; for the other buffers, results will
    /// be copied.
    fn bind_outputs(
        &mut self,
        shared: &Shared,
        outputs: &[Option<&DeviceTensor>],
        given: &mut Given,
    ) -> Result<(), GpuError> {
        let views = &shared.plan.outputs;
        if !outputs.is_empty() && outputs.len() != views.len() {
            let text = format!("the network has {} outputs, got places for {}", views.len(), outputs.len());
            return Err(GpuError::Input(text));
        }
        let b = &mut self.bindings;
        b.results.clear();
        b.results.extend(outputs.iter().map(|t| t.cloned()));
        b.copied.clear();
        for (n, (view, t)) in views.iter().zip(outputs).enumerate() {
            let Some(t) = t else { continue };
            let (plan, to) = (&shared.plan, &t.buffers);
            self.check_output(shared, n, view, t)?;
            let buffer = &plan.buffers[view.buffer];
            let free = given.iter().all(|(i, g)| *i != view.buffer && !g.iter().any(|b| to.contains(b)));
            let written = matches!(buffer.content, Content::Pool) && fits(to, &slice_sizes(buffer));
            let copies = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
            let used = t.can(wgpu::BufferUsages::STORAGE) && (!is_copied(plan, view.buffer) || t.can(copies));
            if free && written && used {
                given.push((view.buffer, to.clone()));
            } else if t.can(wgpu::BufferUsages::COPY_DST) {
                self.bindings.copied.push(n);
            } else {
                return refused(
                    "output",
                    view,
                    "its buffer is neither large enough for the run's memory nor to be copied to",
                );
            }
        }
        Ok(())
    }

    fn check_output(&self, shared: &Shared, n: usize, view: &BufferView, t: &DeviceTensor) -> Result<(), GpuError> {
        let refuse = |why: &str| refused("output", view, why);
        if t.dtype != view.dtype || t.shape != view.shape {
            let (wanted, got) = (format!("{}{:?}", view.dtype, view.shape), format!("{}{:?}", t.dtype, t.shape));
            return Err(GpuError::Input(format!("output `{}` is {wanted}, got a buffer for {got}", view.name)));
        }
        if shared.on_host(view) {
            return refuse("no kernel writes it, so it is in host memory");
        }
        if t.constant {
            return refuse("its buffer holds a constant, which sessions share");
        }
        let grows =
            |s: &&Step| matches!(s, Step::Loop(l) if l.collected.iter().any(|c| c.grows && c.all == view.buffer));
        if shared.plan.all_steps().iter().any(grows) {
            return refuse("only the run decides how many rows it has");
        }
        if t.encoding != view.encoding {
            return refuse("the device stores its type in another form than the given buffer");
        }
        let need = stored_bytes(view);
        if t.bytes() < need
            || (t.buffers.len() > 1 && !fits(&t.buffers, &slice_sizes(&shared.plan.buffers[view.buffer])))
        {
            return refuse(&format!("it needs {need} bytes"));
        }
        let others = self.bindings.results[..n].iter().flatten();
        if others.flat_map(|o| &o.buffers).any(|b| t.buffers.contains(b)) {
            return refuse("another result is wanted in the same buffer");
        }
        if self.owns(shared, &t.buffers) {
            return refuse("its buffer belongs to this run: hold the outputs that it came with");
        }
        Ok(())
    }

    /// Puts the given buffers in the place of own ones, and steps that are bound to them in the place of others.
    fn put_in_place(&mut self, shared: &Shared, given: Given) {
        let b = &mut self.bindings;
        if b.now == given {
            return;
        }
        let own_steps = b.own_steps.get_or_insert_with(|| self.steps.clone()).clone();
        for (buffer, own) in std::mem::take(&mut b.own) {
            self.buffers[buffer] = own;
        }
        for (buffer, t) in &given {
            let own = std::mem::replace(&mut self.buffers[*buffer], t.clone());
            b.own.insert(*buffer, own);
        }
        self.steps = match b.kept.iter().position(|(g, _)| *g == given) {
            _ if given.is_empty() => own_steps,
            Some(at) => {
                let found = b.kept.remove(at);
                let steps = found.as_ref().map_or(own_steps, |f| f.1.clone());
                b.kept.extend(found);
                steps
            }
            None => {
                let steps = bind_steps(shared, &self.buffers, &shared.plan.steps);
                b.kept.push_back((given.clone(), steps.clone()));
                if b.kept.len() > KEPT {
                    b.kept.pop_front();
                }
                steps
            }
        };
        b.now = given;
    }

    /// Encodes copies of the results that are wanted in buffers which could not be bound.
    ///
    /// # Errors
    /// A result in a buffer of the caller's that cannot be copied from.
    pub(crate) fn copy_results(
        &self,
        shared: &Shared,
        encoder: &mut Option<wgpu::CommandEncoder>,
    ) -> Result<(), GpuError> {
        for &n in &self.bindings.copied {
            let view = &shared.plan.outputs[n];
            let Some(to) = self.bindings.result(n) else { continue };
            let from = &self.buffers[view.buffer];
            if from.iter().any(|b| !b.usage().contains(wgpu::BufferUsages::COPY_SRC)) {
                return refused("output", view, "it is in a given buffer too, and that cannot be copied from");
            }
            let encoder = encoder.get_or_insert_with(|| new_encoder(&shared.gpu));
            let (mut left, mut at) = (stored_bytes(view), 0);
            self.moved.copy(left);
            for (i, from) in from.iter().enumerate() {
                let n = left.min(from.size());
                let (to, offset) = if to.buffers.len() > 1 { (&to.buffers[i], 0) } else { (&to.buffers[0], at) };
                if n > 0 {
                    encoder.copy_buffer_to_buffer(from, 0, to, offset, n);
                }
                left -= n;
                at += n;
            }
        }
        Ok(())
    }
}

/// True when the buffers are as many as the slices, and as large.
fn fits(buffers: &[wgpu::Buffer], sizes: &[u64]) -> bool {
    sizes.len() == buffers.len() && buffers.iter().zip(sizes).all(|(b, &size)| b.size() >= size)
}
