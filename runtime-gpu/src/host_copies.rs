//! Tensors of device buffers that the host has too: those that a host step read or gave. A later host step that reads
//! the same tensor takes it from here, so a tensor goes from the device to the host once, and between two host steps not
//! at all.
//!
//! What a step on the device writes is forgotten. Plans with loops or calls keep nothing, since these exchange buffers.

use crate::resources::{BoundStep, Resources, Shared};
use compiler::plan::{BufferIndex, BufferView, Content, Dispatch, Plan, Step};
use compiler::tensor::Tensor;
use compiler::tir::Access;
use std::collections::{BTreeMap, BTreeSet};

/// Tensors by the plan's buffer that holds the same.
pub(crate) type HostCopies = BTreeMap<BufferIndex, (BufferView, Tensor)>;

/// The device buffers of which the host keeps tensors: those that a host step reads and another one reads or gives.
pub(crate) fn kept_on_host(plan: &Plan) -> BTreeSet<BufferIndex> {
    let steps = plan.all_steps();
    if steps.iter().any(|s| matches!(s, Step::Loop(_) | Step::Call(_))) {
        return BTreeSet::new();
    }
    let mut uses: BTreeMap<BufferIndex, [usize; 2]> = BTreeMap::new();
    for step in steps {
        let Step::Host(h) = step else { continue };
        if h.device_function().is_some() {
            continue;
        }
        h.inputs.iter().for_each(|v| uses.entry(v.buffer).or_default()[0] += 1);
        h.outputs.iter().for_each(|v| uses.entry(v.buffer).or_default()[1] += 1);
    }
    let on_device = |buffer: &BufferIndex| !matches!(plan.buffers[*buffer].content, Content::Host(_));
    let again = uses.into_iter().filter(|(_, [read, given])| *read > 0 && read + given > 1).map(|(buffer, _)| buffer);
    again.filter(on_device).collect()
}

/// Which of the kept buffers a dispatch writes.
pub(crate) fn written(shared: &Shared, d: &Dispatch) -> Vec<BufferIndex> {
    let bindings = &shared.plan.kernels[d.kernel].emitted.bindings;
    let writes = bindings.iter().zip(&d.buffers).filter(|(b, _)| b.access != Access::Read).map(|(_, &(at, _))| at);
    writes.filter(|at| shared.kept_on_host.contains(at)).collect()
}

impl Resources {
    /// The tensor that a buffer of the device holds, if the host has it.
    pub(crate) fn host_copy(&self, view: &BufferView) -> Option<Tensor> {
        let (held, t) = self.copies.get(&view.buffer)?;
        let same = held.dtype == view.dtype && held.shape == view.shape && held.encoding == view.encoding;
        same.then(|| t.clone())
    }
    /// Keeps what a host step read or gave.
    pub(crate) fn keep_copy(&mut self, shared: &Shared, view: &BufferView, t: &Tensor) {
        if shared.kept_on_host.contains(&view.buffer) {
            self.copies.insert(view.buffer, (view.clone(), t.clone()));
        }
    }
    /// Forgets what a step on the device writes.
    pub(crate) fn forget_copies(&mut self, step: &BoundStep) {
        if self.copies.is_empty() {
            return;
        }
        match step {
            BoundStep::Gpu(list) => list.iter().flat_map(|d| &d.written).for_each(|b| drop(self.copies.remove(b))),
            BoundStep::Copy(_, to) => drop(self.copies.remove(to)),
            BoundStep::DeviceCall(h, _) => h.outputs.iter().for_each(|v| drop(self.copies.remove(&v.buffer))),
            BoundStep::Host(_) | BoundStep::Branch(..) => {}
            BoundStep::Loop(_) | BoundStep::Call(_) => self.copies.clear(),
        }
    }
}
