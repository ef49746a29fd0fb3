//! Tensors of device buffers that the host has too: those that a host step read or gave. A later host step that reads
//! the same tensor takes it from here, so a tensor goes from the device to the host once, and between two host steps
//! not at all.
//!
//! Who runs the steps forgets what a step on the device writes. Plans with loops or calls keep nothing, since these
//! exchange buffers.

use compiler::plan::{BufferIndex, BufferView, Content, Dispatch, Plan, Step};
use compiler::tensor::Tensor;
use compiler::tir::Access;
use std::collections::{BTreeMap, BTreeSet};

/// Tensors by the plan's buffer that holds the same.
#[derive(Default)]
pub(crate) struct HostCopies(BTreeMap<BufferIndex, (BufferView, Tensor)>);

impl HostCopies {
    /// The tensor that a buffer of the device holds, if the host has it.
    pub(crate) fn get(&self, view: &BufferView) -> Option<Tensor> {
        let (held, t) = self.0.get(&view.buffer)?;
        let same = held.dtype == view.dtype && held.shape == view.shape && held.encoding == view.encoding;
        same.then(|| t.clone())
    }
    /// Keeps what a host step read or gave, if its buffer is one of `kept`.
    pub(crate) fn keep(&mut self, kept: &BTreeSet<BufferIndex>, view: &BufferView, t: &Tensor) {
        if kept.contains(&view.buffer) {
            self.0.insert(view.buffer, (view.clone(), t.clone()));
        }
    }
    /// The device writes the buffer.
    pub(crate) fn forget(&mut self, buffer: BufferIndex) {
        self.0.remove(&buffer);
    }
    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

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

/// Which of the `kept` buffers a dispatch writes.
pub(crate) fn written(plan: &Plan, kept: &BTreeSet<BufferIndex>, d: &Dispatch) -> Vec<BufferIndex> {
    let bindings = &plan.kernels[d.kernel].emitted.bindings;
    let writes = bindings.iter().zip(&d.buffers).filter(|(b, _)| b.access != Access::Read).map(|(_, &(at, _))| at);
    writes.filter(|at| kept.contains(at)).collect()
}
