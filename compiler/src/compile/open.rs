//! Plans of open sizes: everything except numbers is decided once, and each list of sizes gives a plan with the same
//! kernels.
//!
//! The *ranges* of open dimensions (`CompileOptions::dims`, [`DimRange`]) are known when a network is compiled; their
//! sizes only at run time. Passes, groups and tensor functions hold the sizes as expressions. Rules choose schedules
//! for typical sizes (`schedule::rules`), and estimates use typical sizes too. Kernels get sizes as immediates and a
//! grid as expressions (`plan::OpenGrid`, folded if an axis may be too long). They are proved for the whole range, or
//! keep clamps. Steps, lifetimes and kernels are decided once.
//!
//! [`OpenPlan::at`] makes the plan for given sizes by numbering: it shares memory anew for these sizes, and binds the
//! attributes of operators and host steps. A session over it shares pipelines and constants with the others
//! (`runtime_gpu::OpenSession`, which keeps 16 lists of sizes). Sizes are checked against the ranges before anything is
//! dispatched.
//!
//! - *A value beyond one binding*: the positions of the slices are part of the kernels, so a value must fit one binding
//!   at the sizes of a run. Sizes at which it does not get a plan of their own, compiled for them alone
//!   (`OpenSession::with_plans_alone`). If there is none, the interpreter runs.
//! - *Loops*: the number of iterations, the bytes of a collected row and the buffers of carried values are computed
//!   from the sizes too.
//! - *Values that are sizes* are expressions (`Op::infer_value`): shape arithmetic, and comparisons, choices and logic
//!   on it. A comparison that the ranges do not decide is an expression of minima and maxima with value 0 or 1
//!   (`Cond::truth`). So the shape that exporters write for an expansion (`Shape`, `Concat`, `Equal` to -1, `Where`,
//!   `Expand`) is an expression. So is the number of iterations of a loop that compares a counter with a size
//!   (`onnx/import/trips.rs`). A node that decides a size in another way splits the network (`network_parts.rs`), and
//!   a remark names it.
//! - *Sizes that the model does not accept* may be within a range: for example, two operands of a concatenation differ,
//!   or a window does not fit. For each new list of sizes, [`OpenPlan::at`] infers the types of the source network, and
//!   names the node that refuses them. If a value gets another shape than its expression says (for example a slice
//!   beyond the end), these sizes get a plan of their own. Sample runs of schedules skip sizes at which the unscheduled
//!   function fails too.
//! - *Empty sizes*: a range may begin at 0, as for a cache of keys that begins empty. A kernel whose results then have
//!   no elements gets a grid of no workgroups, and is proved for sizes from 1 on; other kernels are proved for 0 too.
//!   If a range begins at 1, size 0 gets a plan of its own.
//! - *Versions*: kernels for some of the sizes only (`schedule::rules::versions`).
//! - *Work*: the operations and bytes of a dispatch are expressions too (`work.rs`). A session reports the numbers for
//!   its sizes, and a trace can compute them for any sizes (`trace::OpenCall`).
//!
//! The facade decides which dimensions of a model stay open, and the sizes of the others (`weft::Sizes`).

use super::dispatches::AnyDispatch;
use super::placed::Placed;
use super::planned::{PlanOf, Planned};
use super::sizes::{SizeError, Sizes, at_sizes, check_range, check_sizes, number_in, sizes_of};
use super::steps::Steps;
use super::verify_plan::{PlanValues, verify_plan};
use crate::graph::{Module, open_dims};
use crate::int::{Bounds, Cond, DimRanges, Int, simplify};
use crate::name::Name;
use crate::plan::{Content, KernelIndex, Plan, PlanKernel};
use crate::profile::DeviceProfile;
use crate::report::MemoryReport;
use crate::trace::OpenDim;
use indexmap::IndexMap;
use std::collections::BTreeSet;

/// Makes the plan for given sizes. It has the steps before buffers are numbered, and sizes as expressions.
pub struct OpenPlan {
    /// Functions and constants, with open sizes; the entry function as it was planned.
    pub(super) module: Module,
    /// The source network, to check which sizes its nodes accept.
    pub(super) source: Option<Module>,
    pub(super) profile: DeviceProfile,
    pub(super) ranges: DimRanges,
    /// The sizes that numbers are shown for.
    pub(super) shown: Sizes,
    pub(super) steps: Steps,
    pub(super) placed: Placed,
    pub(super) kernels: Vec<PlanKernel>,
    /// The reference for verifying plans, if they are verified.
    pub(super) values: Option<PlanValues>,
}

impl std::fmt::Debug for OpenPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenPlan({:?})", self.dims())
    }
}

/// The numbers of a dispatch as expressions of the open dimensions.
pub(super) struct OpenNumbers {
    pub group: usize,
    /// Workgroups along x, y and z.
    pub grid: [Int; 3],
    /// Bytes of the buffers that it binds.
    pub bytes: Int,
    /// The ranges of all dimensions in them are declared.
    pub declared: bool,
}

impl OpenNumbers {
    /// Whether sizes change any of them.
    pub fn depends(&self) -> bool {
        self.grid.iter().chain([&self.bytes]).any(|e| e.as_const().is_none())
    }
}

/// The kernel of a group for some sizes only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelVersion {
    /// Its index among the plan's kernels.
    pub kernel: KernelIndex,
    /// The group whose dispatch it is.
    pub group: usize,
    /// The conditions on open dimensions.
    pub when: Vec<Cond>,
}

impl OpenPlan {
    /// The kernels for some sizes only, per group in the order in which their conditions are tested. If no condition
    /// holds, the group's kernels for all sizes run.
    pub fn versions(&self) -> Vec<KernelVersion> {
        let of = |(group, d): (usize, &AnyDispatch)| {
            let when = d.version.as_ref()?.conditions()?.to_vec();
            Some(KernelVersion { kernel: d.kernel, group, when })
        };
        self.steps.dispatches().filter_map(of).collect()
    }

    /// The groups that dispatch a kernel, at any sizes.
    pub(super) fn groups_of(&self, kernel: KernelIndex) -> Vec<usize> {
        let own = self.steps.dispatches().filter(|(_, d)| d.kernel == kernel);
        own.map(|(group, _)| group).collect::<BTreeSet<usize>>().into_iter().collect()
    }

    /// The open dimensions, in the order in which the inputs have them.
    pub fn dims(&self) -> Vec<Name> {
        open_dims(&self.module)
    }

    /// The ranges of the dimensions.
    pub fn ranges(&self) -> &DimRanges {
        &self.ranges
    }

    /// The sizes of the open dimensions that inputs of these shapes have, in the order of [`OpenPlan::dims`].
    ///
    /// # Errors
    /// Shapes that do not go with the network's inputs.
    pub fn sizes(&self, shapes: &[&[usize]]) -> Result<Vec<(Name, i64)>, SizeError> {
        sizes_of(&self.module, shapes, &self.ranges)
    }

    /// The open dimensions with their ranges.
    pub(super) fn described(&self) -> Vec<OpenDim> {
        let of = |dim: Name| {
            let ((low, high), declared) = (self.ranges.range(dim), self.ranges.is_declared(dim));
            OpenDim { name: dim.to_string(), low, high, declared }
        };
        self.dims().into_iter().map(of).collect()
    }

    /// The numbers of the dispatches for any sizes that take the versions of the least ones, in order.
    pub(super) fn calls(&self) -> Vec<OpenNumbers> {
        let of = |(group, d): (usize, &AnyDispatch)| {
            let kernel = &self.kernels[d.kernel].emitted;
            let of_symbol = |v: Name| d.symbols.iter().find(|s| s.0 == v).map(|s| s.1.clone());
            let grid = match &kernel.open_grid {
                None => kernel.grid.map(|g| Int::new(i64::from(g))),
                Some(open) => open.exprs().map(|e| simplify(&e.replace(&mut |v| of_symbol(v)), &Bounds::new())),
            };
            let bytes = d.work.bytes.get(d.part).map_or(Int::new(0), |b| simplify(b, &Bounds::new()));
            let declared = grid.iter().chain([&bytes]).flat_map(Int::vars).all(|v| self.ranges.is_declared(v));
            OpenNumbers { group, grid, bytes, declared }
        };
        let least = number_in(&self.shown);
        self.steps.dispatches().filter(|(_, d)| d.is_picked(&least)).map(of).collect()
    }

    /// The plan for these sizes of all open dimensions, and what memory it takes.
    ///
    /// # Errors
    /// Sizes beyond their range, or beyond the device.
    pub fn at(&self, sizes: &[(Name, i64)]) -> Result<(Plan, MemoryReport), SizeError> {
        sizes.iter().try_for_each(|s| check_range(&self.ranges, *s))?;
        if let Some(source) = &self.source {
            check_sizes(source, sizes)?;
        }
        if let Some((dim, _)) = sizes.iter().find(|s| self.ranges.sizes(s.0).takes_empty(s.1)) {
            return Err(SizeError::BeyondOpenPlan(format!("`{dim}` is 0; an empty size gets a plan of its own")));
        }
        let values: Sizes = sizes.iter().map(|&(d, n)| (d, Int::new(n))).collect();
        if let Some(dim) = self.dims().into_iter().find(|d| !values.contains_key(d)) {
            return Err(SizeError::Unknown(dim));
        }
        let module = at_sizes(&self.module, &values);
        let (steps, placed, profile) = (&self.steps, &self.placed, &self.profile);
        let stages = PlanOf { steps, placed, profile, tensor_functions: &IndexMap::new() };
        let Planned { plan, memory } = Planned::of(stages, &module, &values, self.kernels.clone())?;
        self.values.as_ref().map_or(Ok(()), |values| verify_plan(&plan, module.main(), values))?;
        self.check_bindings(&plan)?;
        Ok((plan, memory))
    }

    /// Each value must fit one binding: positions of slices are part of the kernels.
    fn check_bindings(&self, plan: &Plan) -> Result<(), SizeError> {
        let open = |b: &&crate::plan::PlanBuffer| matches!(b.content, Content::Input(_) | Content::Pool);
        match plan.buffers.iter().filter(open).find(|b| b.bytes > self.profile.max_binding) {
            None => Ok(()),
            Some(b) => Err(SizeError::BeyondOpenPlan(format!(
                "a tensor of {} bytes is beyond one binding of {} ({} bytes); compiled for fixed sizes (`--dim`) it is cut",
                b.bytes, self.profile.name, self.profile.max_binding
            ))),
        }
    }
}
