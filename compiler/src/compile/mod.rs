//! The one pipeline: graph passes, lowering of groups to tensor functions, schedules, kernels, plan.
//!
//! [`lower_module`] takes a module whose entry function consists of constants, calls of primitive functions (fused
//! groups) and, where the device cannot take part, other nodes; it leaves `call_tensor`s, tensor functions and a
//! [`Plan`].

mod lower;
mod memory;
mod planning;

pub use lower::{LowerError, assign_encodings, lower_group};
pub use memory::{Lifetime, assign_pool};

use crate::graph::Module;
use crate::name::Name;
use crate::plan::{EmitKernel, Plan};
use crate::profile::DeviceProfile;
use crate::remark::Remark;
use crate::tir::TensorFunction;
use indexmap::IndexMap;

/// How a group is executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupKind {
    /// By one or more dispatches.
    Kernel,
    /// Not at all: the result is the operand's buffer under another shape.
    View,
    /// On the host.
    Host,
}

/// One fused group of the compiled module.
#[derive(Clone, Debug)]
pub struct Group {
    /// Primitive function of the group.
    pub function: Name,
    /// Source nodes, sorted.
    pub origins: Vec<Name>,
    /// Op names in order.
    pub ops: Vec<&'static str>,
    /// Names of the group's nodes, in order.
    pub nodes: Vec<Name>,
    /// Op name of the anchor.
    pub anchor: Option<&'static str>,
    /// Layout of the anchor.
    pub layout: Option<&'static str>,
    /// Schedule rule; empty for views and host groups.
    pub rule: &'static str,
    /// How it runs.
    pub kind: GroupKind,
    /// The tensor function (shared by equal groups).
    pub tensor_function: Option<Name>,
    /// Floating-point operations (two per multiply-accumulate, one per element of other ops).
    pub flops: u64,
    /// Bytes of operands and results.
    pub bytes: u64,
}

/// Byte counts of the plan.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct MemoryReport {
    /// Constants on the device.
    pub weights: u64,
    /// The activation pool.
    pub activations_peak: u64,
    /// The sum over the intermediates left after fusion.
    pub activations_naive: u64,
}

/// What compilation gives.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The module after all passes: `call_tensor`s in the entry function, scheduled tensor functions.
    pub module: Module,
    /// The tensor functions before scheduling, with the trace as pending instructions.
    pub unscheduled: IndexMap<Name, TensorFunction>,
    /// The groups, in execution order.
    pub groups: Vec<Group>,
    /// The plan.
    pub plan: Plan,
    /// Byte counts.
    pub memory: MemoryReport,
    /// Remarks of all passes.
    pub remarks: Vec<Remark>,
}

/// Why compilation failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// A pass failed.
    #[error(transparent)]
    Pass(#[from] crate::passes::PassError),
    /// The module cannot run on a device as it stands (recursion, data-dependent sizes): the CPU executor can.
    #[error("{0}")]
    NeedsCpu(String),
    /// A dimension is not known.
    #[error("dimension `{dim}` of `{value}` is open")]
    OpenDim {
        /// The symbol.
        dim: String,
        /// The value it belongs to.
        value: String,
    },
    /// A bug of ours.
    #[error("internal error in `{at}`: {message}")]
    Bug {
        /// Function or kernel.
        at: String,
        /// What went wrong.
        message: String,
    },
}

/// Called with a stage, the number done and the total.
pub type Progress<'a> = &'a mut dyn FnMut(&str, usize, usize);

/// Lowers a module whose groups are formed.
///
/// # Errors
/// Open dimensions, modules only the CPU executor can run, bugs.
pub fn lower_module(
    module: Module,
    profile: &DeviceProfile,
    emitter: &dyn EmitKernel,
    remarks: Vec<Remark>,
    progress: Progress<'_>,
) -> Result<Compiled, CompileError> {
    planning::Planner::new(module, profile, emitter, remarks).run(progress)
}
