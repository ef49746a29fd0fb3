//! The memory of the system, and the memory that a model needs.

use crate::error::Error;
use compiler::graph::Module;
use compiler::plan::{BufferView, Content, Plan, Step};
use std::collections::BTreeMap;

/// Inputs and results must fit in memory.
///
/// # Errors
/// [`Error::NoRoom`].
pub fn check_memory(module: &Module) -> Result<(), Error> {
    let f = module.main();
    let ports = f.params().iter().chain(f.results());
    check_room("inputs and results take", total(ports.filter_map(|&v| f.ty(v).bytes()).map(|n| n as u64)))
}

/// Checks that the peak memory of the interpreter fits the available memory.
///
/// # Errors
/// [`Error::NoRoom`].
pub fn check_cpu_memory(module: &Module) -> Result<(), Error> {
    check_room("on the CPU the model takes", compiler::interpreter::peak_bytes(module.main()))
}

/// Checks that the weights of a plan fit the available memory. `is_ready` is true for buffers whose data are part of a
/// file.
///
/// # Errors
/// [`Error::NoRoom`].
pub(crate) fn check_weights(plan: &Plan, is_ready: impl Fn(usize) -> bool) -> Result<(), Error> {
    let weights =
        plan.buffers.iter().enumerate().filter(|(i, b)| matches!(b.content, Content::Constant { .. }) && !is_ready(*i));
    let sizes: Vec<u64> = weights.map(|(_, b)| b.bytes).collect();
    // Each is there twice while it is packed.
    let packed = sizes.iter().copied().max().unwrap_or(0);
    check_room("the weights take", total(sizes).saturating_add(packed))
}

/// Checks that a run of a plan on the processor fits the available memory: its buffers, the tensors between host steps,
/// and the results. Weights are there already, and the caller has the inputs.
///
/// # Errors
/// [`Error::NoRoom`].
pub(crate) fn check_run_memory(plan: &Plan) -> Result<(), Error> {
    let arena = plan.buffers.iter().filter(|b| matches!(b.content, Content::Input(_) | Content::Pool)).map(|b| b.bytes);
    let results = total(plan.outputs.iter().map(bytes_of));
    let (mut on_host, mut most) = (BTreeMap::new(), results);
    for step in plan.all_steps() {
        let Step::Host(h) = step else { continue };
        // Operands and results that are in buffers of the plan are tensors while the step computes.
        let (kept, passing): (Vec<&BufferView>, Vec<_>) =
            h.inputs.iter().chain(&h.outputs).partition(|view| is_on_host(plan, view));
        most = most.max(total(passing.into_iter().map(bytes_of)));
        on_host.extend(kept.into_iter().map(|view| (view.buffer, bytes_of(view))));
    }
    let need = total(arena).saturating_add(total(on_host.into_values())).saturating_add(most);
    check_room("a run on the CPU takes", need)
}

fn is_on_host(plan: &Plan, view: &BufferView) -> bool {
    matches!(plan.buffers[view.buffer].content, Content::Host(_))
}

/// Bytes of a tensor in host memory.
fn bytes_of(view: &BufferView) -> u64 {
    view.shape.iter().fold(view.dtype.size() as u64, |n, &d| n.saturating_mul(d as u64))
}

fn total(sizes: impl IntoIterator<Item = u64>) -> u64 {
    sizes.into_iter().fold(0, u64::saturating_add)
}

/// Bytes of memory that the process may still allocate.
pub fn free_memory() -> Option<u64> {
    runtime_gpu::available_memory()
}

fn check_room(what: &'static str, need: u64) -> Result<(), Error> {
    match free_memory() {
        Some(free) if need > free => Err(Error::NoRoom { what, need, free }),
        _ => Ok(()),
    }
}
