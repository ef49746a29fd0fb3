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

use super::memory::Pool;
use super::numbering::Packers;
use super::steps::{Pending, Steps};
use super::storage::StorageLocation;
use super::verify_plan::{PlanValues, verify_plan};
use super::{CompileError, MemoryReport};
use crate::graph::{BindError, Function, Module, ValueId, bind_dims};
use crate::graph::{input_ports, instantiate_functions, open_dims, shapes_in_order, substitute_dims};
use crate::int::{Bounds, Cond, DimRange, DimRanges, Int, simplify, typical_size};
use crate::name::Name;
use crate::plan::{Content, KernelIndex, Plan, PlanKernel};
use crate::profile::DeviceProfile;
use crate::trace::OpenDim;
use indexmap::IndexMap;
use rustc_hash::{FxHashMap, FxHashSet};
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
    pub(super) shown: FxHashMap<Name, Int>,
    pub(super) location: FxHashMap<ValueId, StorageLocation>,
    pub(super) pool: Pool,
    pub(super) packers: Packers,
    pub(super) growing: FxHashSet<ValueId>,
    pub(super) pending: Vec<Pending>,
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

/// A size that a run cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Inputs that do not go with the network, or with each other.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A dimension beyond its range.
    #[error("`{dim}` is {size}, and was declared to be {range}")]
    OutOfRange {
        /// The dimension.
        dim: Name,
        /// The requested size.
        size: i64,
        /// Its range.
        range: DimRange,
    },
    /// Sizes within their ranges that a node does not take.
    #[error("the model does not take {sizes}: {why}")]
    Refused {
        /// The sizes: `height = 33, width = 64`.
        sizes: String,
        /// The node, and what it says.
        why: BindError,
    },
    /// A dimension that no input shape determines.
    #[error("the inputs do not say how large `{0}` is")]
    Unknown(Name),
    /// Beyond the limits of the kernels for all sizes: a tensor that exceeds one binding, or too many loop iterations.
    /// There may be a plan for these sizes alone.
    #[error("{0}")]
    BeyondOpenPlan(String),
    /// These sizes exceed a limit of the device.
    #[error("{0}")]
    BeyondDevice(String),
    /// A bug of ours.
    #[error("internal error in `{at}`: {message}")]
    Bug {
        /// Node, kernel or step.
        at: String,
        /// The error.
        message: String,
    },
}

impl From<CompileError> for SizeError {
    fn from(e: CompileError) -> SizeError {
        match e {
            CompileError::Bug { at, message } => SizeError::Bug { at, message },
            CompileError::NeedsCpu(why) => SizeError::BeyondOpenPlan(why),
            other => SizeError::BeyondDevice(other.to_string()),
        }
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
        let of = |p: &Pending| match p {
            Pending::Dispatch { kernel, group, version: Some(v), .. } => {
                Some(KernelVersion { kernel: *kernel, group: *group, when: v.conditions()?.to_vec() })
            }
            _ => None,
        };
        self.pending.iter().filter_map(of).collect()
    }

    /// The groups that dispatch a kernel, at any sizes.
    pub(super) fn groups_of(&self, kernel: KernelIndex) -> Vec<usize> {
        let of = |p: &Pending| match p {
            Pending::Dispatch { kernel: own, group, .. } if *own == kernel => Some(*group),
            _ => None,
        };
        let groups: BTreeSet<usize> = self.pending.iter().filter_map(of).collect();
        groups.into_iter().collect()
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
        let of = |p: &Pending| {
            let Pending::Dispatch { kernel, group, work, part, symbols, version, .. } = p else { return None };
            let least = |v: Name| self.shown.get(&v).and_then(Int::as_const);
            if version.as_ref().is_some_and(|v| !v.is_picked(&least)) {
                return None;
            }
            let kernel = &self.kernels[*kernel].emitted;
            let of_symbol = |v: Name| symbols.iter().find(|s| s.0 == v).map(|s| s.1.clone());
            let grid = match &kernel.open_grid {
                None => kernel.grid.map(|g| Int::new(i64::from(g))),
                Some(open) => open.exprs().map(|e| simplify(&e.replace(&mut |v| of_symbol(v)), &Bounds::new())),
            };
            let bytes = work.bytes.get(*part).map_or(Int::new(0), |b| simplify(b, &Bounds::new()));
            let declared = grid.iter().chain([&bytes]).flat_map(Int::vars).all(|v| self.ranges.is_declared(v));
            Some(OpenNumbers { group: *group, grid, bytes, declared })
        };
        self.pending.iter().filter_map(of).collect()
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
        let values: FxHashMap<Name, Int> = sizes.iter().map(|&(d, n)| (d, Int::new(n))).collect();
        if let Some(dim) = self.dims().into_iter().find(|d| !values.contains_key(d)) {
            return Err(SizeError::Unknown(dim));
        }
        let mut module = self.module.clone();
        substitute_dims(&mut module, &values);
        let main: &Function = module.main();
        let pool = self.pool.at(&|v| values.get(&v).and_then(Int::as_const));
        let steps = Steps {
            module: &module,
            main,
            tensor_functions: &IndexMap::new(),
            profile: &self.profile,
            location: &self.location,
            pool: &pool,
            packers: &self.packers,
            growing: &self.growing,
            pending: &self.pending,
            sizes: &values,
        };
        let (plan, memory) = steps.number(self.kernels.clone())?;
        self.values.as_ref().map_or(Ok(()), |values| verify_plan(&plan, main, values))?;
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

/// The sizes of the open dimensions of a network that inputs of these shapes have, in the order in which the inputs
/// have them.
///
/// # Errors
/// Shapes that do not go with the network's inputs, sizes beyond their ranges.
pub(super) fn sizes_of(
    module: &Module,
    shapes: &[&[usize]],
    ranges: &DimRanges,
) -> Result<Vec<(Name, i64)>, SizeError> {
    let ports = input_ports(module);
    shapes_in_order(&ports, shapes)?;
    let mut sizes: FxHashMap<Name, i64> = FxHashMap::default();
    for ((_, ty), shape) in ports.iter().zip(shapes) {
        for (d, &n) in ty.shape.iter().zip(*shape) {
            if let Some(v) = d.as_var() {
                sizes.insert(v, n as i64);
            }
        }
    }
    let of = |dim: Name| Ok((dim, *sizes.get(&dim).ok_or(SizeError::Unknown(dim))?));
    let sizes: Vec<(Name, i64)> = open_dims(module).into_iter().map(of).collect::<Result<_, SizeError>>()?;
    sizes.iter().try_for_each(|s| check_range(ranges, *s))?;
    Ok(sizes)
}

fn check_range(ranges: &DimRanges, (dim, size): (Name, i64)) -> Result<(), SizeError> {
    let range = ranges.sizes(dim);
    let fits = range.contains(size) || range.takes_empty(size);
    if fits { Ok(()) } else { Err(SizeError::OutOfRange { dim, size, range }) }
}

/// Refuses sizes of inputs of these shapes that are beyond the ranges of the network's open dimensions.
///
/// # Errors
/// Only [`SizeError::OutOfRange`]; the caller that runs the network refuses other wrong shapes.
pub fn check_ranges(module: &Module, shapes: &[&[usize]], ranges: &DimRanges) -> Result<(), SizeError> {
    match sizes_of(module, shapes, ranges) {
        Err(e @ SizeError::OutOfRange { .. }) => Err(e),
        _ => Ok(()),
    }
}

/// The network for checking sizes: each function has the types that it is called with. `None` if type inference fails.
pub(super) fn as_called(module: &Module) -> Option<Module> {
    let mut source = module.clone();
    instantiate_functions(&mut source).ok()?;
    Some(source)
}

/// Infers the types of `source` anew for these sizes of its open dimensions.
///
/// # Errors
/// A node that does not take them; a value of another shape than the expressions say that kernels for any sizes are
/// made for, such as a slice beyond the end.
pub(super) fn check_sizes(source: &Module, sizes: &[(Name, i64)]) -> Result<(), SizeError> {
    let mut bound = source.clone();
    bind_dims(&mut bound, sizes).map_err(|why| SizeError::Refused { sizes: listed(sizes), why })?;
    let value = |v: Name| sizes.iter().find(|s| s.0 == v).map(|s| s.1);
    for (name, f) in &source.functions {
        let Some(sized) = bound.functions.get(name) else { continue };
        for (v, known) in f.values.iter() {
            let is = &sized.ty(v).shape;
            let differs = |(was, is): (&Int, &Int)| {
                let told = is.as_const().filter(|_| was.vars().into_iter().all(|v| value(v).is_some()));
                told.is_some_and(|is| was.eval(&value) != Some(is))
            };
            if known.ty.shape.len() != is.len() || known.ty.shape.iter().zip(is).any(differs) {
                return Err(SizeError::BeyondOpenPlan(format!(
                    "for {}, {} is {is:?}, which the kernels for any sizes are not made for",
                    listed(sizes),
                    f.describe_value(v)
                )));
            }
        }
    }
    Ok(())
}

/// `height = 33, width = 64`
fn listed(sizes: &[(Name, i64)]) -> String {
    sizes.iter().map(|(dim, n)| format!("{dim} = {n}")).collect::<Vec<_>>().join(", ")
}

/// Sizes of the open dimensions that numbers are shown for: the least that the kernels for any sizes serve.
pub(super) fn shown_sizes(source: Option<&Module>, open: &[Name], ranges: &DimRanges) -> FxHashMap<Name, Int> {
    let of = |pick: &dyn Fn(DimRange) -> i64| -> Vec<(Name, i64)> {
        open.iter().map(|&d| (d, pick(ranges.sizes(d)))).collect()
    };
    let up = |r: DimRange, n: i64| r.low + (n - r.low).max(0).div_euclid(r.step) * r.step;
    let least = [of(&|r| r.low), of(&|r| up(r, (r.low + 1).min(r.high)))];
    // Most networks that refuse small sizes want more, or multiples of a power of 2.
    let multiples = (3..=10).map(|k| of(&|r| up(r, (r.low.max(1) + (1 << k) - 1) >> k << k).min(r.high)));
    let further = [of(&|r| up(r, typical_size((r.low, r.high)))), of(&|r| r.high)];
    let tried: Vec<_> = least.into_iter().chain(multiples).chain(further).collect();
    let checked = |sizes: &[(Name, i64)]| source.map_or(Ok(()), |m| check_sizes(m, sizes));
    let served = tried.iter().find(|s| checked(s).is_ok());
    let taken = || tried.iter().find(|s| !matches!(checked(s), Err(SizeError::Refused { .. })));
    let picked = served.or_else(taken).unwrap_or(&tried[0]);
    picked.iter().map(|&(d, n)| (d, Int::new(n))).collect()
}

/// The module with numbers for open sizes.
pub(super) fn at_sizes(module: &Module, sizes: &FxHashMap<Name, Int>) -> Module {
    let mut shown = module.clone();
    substitute_dims(&mut shown, sizes);
    shown
}
