//! From a module of groups to tensor functions, kernels and the plan: each stage is a value, made of those before it.

use super::backend::{Backend, Progress};
use super::callees::Joined;
use super::check::check;
use super::compiled::Compiled;
use super::described::Described;
use super::error::CompileError;
use super::groups::Group;
use super::host::host_module;
use super::names::Sources;
use super::open::OpenPlan;
use super::placed::Placed;
use super::planned::{PlanOf, Planned};
use super::residency::check_device_calls;
use super::scheduled::{OpenSizes, Scheduled};
use super::sizes::Shown;
use super::steps::Steps;
use super::verify_plan::{PlanValues, verify_plan};
use crate::graph::{Module, open_dims};
use crate::plan::Plan;
use crate::remark::Remark;
use crate::report::GroupKind;
use std::sync::Arc;

/// Plans a module whose groups are formed; with `verify`, the plan is verified against the graph.
///
/// # Errors
/// Open dimensions, modules only the interpreter can run, bugs.
pub(super) fn plan_module(
    module: Module,
    backend: Backend<'_>,
    remarks: Vec<Remark>,
    sources: &Sources,
    (open_sizes, verify): (&OpenSizes<'_>, bool),
    progress: Progress<'_>,
) -> Result<Compiled, CompileError> {
    let profile = backend.target.profile;
    progress("lowering", 0, 1);
    let mut joined = Joined::of(module);
    check(&joined.module, &joined.main)?;
    let shown = Shown::of(&joined.module, open_sizes.source, &open_sizes.dims);
    check_device_calls(&joined.main, profile)?;
    let scheduled = Scheduled::of(&joined, backend, open_sizes, progress)?;
    progress("planning", 0, 1);
    let (unscheduled, versions) = scheduled.enter(&mut joined);
    let steps = Steps::of(&joined, &scheduled);
    let placed = Placed::of(&joined, &shown, &scheduled, &steps, profile)?;
    let described = Described::of(&joined, (&shown, sources), &scheduled, &steps, remarks);
    let kernels = described.named(scheduled.kernels, &steps, &joined.module);
    let Described { groups, remarks } = described;
    let stages = PlanOf { steps: &steps, placed: &placed, profile, tensor_functions: &joined.module.tensor_functions };
    let Planned { plan, memory } = Planned::of(stages, &shown.module, &shown.sizes, kernels.clone())?;
    let values = if verify { Some(verified(&joined, &groups, &plan)?) } else { None };
    let is_open = !open_dims(&joined.module).is_empty();
    let open = is_open.then(|| {
        Arc::new(OpenPlan {
            module: open_module(&joined, &steps),
            source: open_sizes.source.cloned(),
            profile: profile.clone(),
            ranges: open_sizes.dims.clone(),
            shown: shown.sizes,
            steps,
            placed,
            kernels,
            values,
        })
    });
    let empty = Compiled::empty(joined.part(), profile);
    Ok(Compiled { unscheduled, versions, groups, plan, open, memory, remarks, ..empty })
}

/// The functions and constants that a plan of open sizes needs, with the entry function as it was planned.
fn open_module(joined: &Joined, steps: &Steps) -> Module {
    let mut module = host_module(&joined.module, &joined.main, steps.host_nodes());
    module.functions.insert(module.entry, joined.main.clone());
    module
}

/// Verifies the plan; returns the reference for plans of other sizes.
fn verified(Joined { module, main, .. }: &Joined, groups: &[Group], plan: &Plan) -> Result<PlanValues, CompileError> {
    let is_view = |group: usize| groups.get(group).is_some_and(|g| g.kind == GroupKind::View);
    let values = PlanValues::of(module, main, is_view, &plan.kernels);
    verify_plan(plan, main, &values)?;
    Ok(values)
}
