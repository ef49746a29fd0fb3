//! Compiles new pipelines when a session opens, on drivers that compile a pipeline at its first dispatch.
//!
//! Lavapipe makes machine code when a pipeline is first dispatched, which takes 10 to 1200 ms each. So that the first
//! run does not wait for it, a session that opens dispatches each new pipeline once with no workgroups, and shows the
//! progress.

use crate::buffers::new_encoder;
use crate::error::GpuError;
use crate::resources::{Bound, BoundStep, BoundSteps, Resources, Shared};
use std::collections::HashSet;

/// Collects the first dispatch of each of `new` kernels, in the order of the steps.
fn first_dispatches<'s>(steps: &'s BoundSteps, new: &mut HashSet<usize>, found: &mut Vec<&'s Bound>) {
    for step in steps.iter() {
        match step {
            BoundStep::Gpu(list) => found.extend(list.iter().filter(|d| new.remove(&d.kernel))),
            BoundStep::Branch(_, sides) => sides.iter().for_each(|s| first_dispatches(s, new, found)),
            BoundStep::Loop(l) => first_dispatches(l.body(), new, found),
            BoundStep::Host(_) | BoundStep::DeviceCall(..) | BoundStep::Copy(..) | BoundStep::Call(_) => {}
        }
    }
}

/// Dispatches each of the kernels `new` once with no workgroups, if the driver compiles at the first dispatch, and
/// waits for it. `progress` gets the stage `driver: NAME` with the kernel's name, the number done and the total.
///
/// # Errors
/// A lost device.
pub(crate) fn compile_in_driver(
    shared: &Shared,
    resources: &Resources,
    new: &[usize],
    progress: &mut dyn FnMut(&str, usize, usize),
) -> Result<(), GpuError> {
    let gpu = &shared.gpu;
    if !gpu.profile.model().compiles_at_dispatch {
        return Ok(());
    }
    let (mut new, mut list) = (new.iter().copied().collect(), vec![]);
    first_dispatches(&resources.steps, &mut new, &mut list);
    resources.calls.bodies().for_each(|body| first_dispatches(body, &mut new, &mut list));
    for (done, d) in list.iter().enumerate() {
        progress(&format!("driver: {}", shared.plan.kernels[d.kernel].name), done, list.len());
        let mut encoder = new_encoder(gpu);
        shared.dispatch_groups(&mut encoder.begin_compute_pass(&Default::default()), d, [0, 0, 0]);
        gpu.queue.submit([encoder.finish()]);
        gpu.wait()?;
    }
    Ok(())
}
