//! Why a module has no plan.

use crate::name::Name;

/// Why compilation failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// A pass failed.
    #[error(transparent)]
    Pass(#[from] crate::passes::PassError),
    /// An option that does not fit the module.
    #[error("{0}")]
    Option(String),
    /// The module cannot run on a device (recursion, data-dependent sizes); the interpreter can run it.
    #[error("{0}")]
    NeedsCpu(String),
    /// A tensor function came with a schedule for another device.
    #[error("tensor function @{function} is scheduled for another device: {message}")]
    OtherDevice {
        /// The function.
        function: String,
        /// What this device lacks.
        message: String,
    },
    /// A dimension is not known.
    #[error("dimension `{dim}` of `{value}` is open")]
    OpenDim {
        /// The symbol.
        dim: String,
        /// The value it belongs to.
        value: String,
    },
    /// A tensor function that came with the module does not go with its own schedule, or not with the device.
    #[error("tensor function @{function}: {message}")]
    Schedule {
        /// The function.
        function: String,
        /// The mismatch.
        message: String,
    },
    /// No schedule of a group is valid for all of its open sizes. A plan can run it on the host instead.
    #[error("no schedule of @{function} goes with all sizes of {dims}; give the sizes")]
    NoOpenSchedule {
        /// The group's tensor function.
        function: Name,
        /// The open dimensions.
        dims: String,
    },
    /// A bug of ours.
    #[error("internal error in `{at}`: {message}")]
    Bug {
        /// Function or kernel.
        at: String,
        /// The error.
        message: String,
    },
}
