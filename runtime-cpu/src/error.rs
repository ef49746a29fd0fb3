//! What may go wrong in a session.

use tensor_ir::fault::{Fault, FaultKind};

/// Why a session does not open or run.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CpuError {
    /// An instruction set that the machine lacks, or threads that do not start.
    #[error("{0}")]
    Open(String),
    /// There is no memory for the constants or for what a run computes.
    #[error("{0}")]
    NoRoom(String),
    /// An input that is missing, or of another type or shape.
    #[error("{0}")]
    Input(String),
    /// A constant that cannot be read or packed.
    #[error("constant {0}: {1}")]
    Constant(String, String),
    /// A value beyond the 32 bits in which kernels hold integers; the interpreter has no such limit.
    #[error("{0}")]
    TooWide(String),
    /// A host function is not registered.
    #[error("{0}")]
    HostFunction(String),
    /// A host step or a host function.
    #[error("{0}")]
    Host(String),
    /// A plan from a file does what no plan of Weft does.
    #[error("its plan does not run, so it is damaged or forged: {0}")]
    Plan(String),
    /// A bug.
    #[error("internal error: {0}")]
    Internal(String),
}

impl CpuError {
    /// The error of a fault: `other` makes it, unless there is no room.
    pub(crate) fn of(fault: Fault, other: impl FnOnce(String) -> CpuError) -> CpuError {
        match fault.kind {
            FaultKind::NoRoom | FaultKind::TooLarge => CpuError::NoRoom(fault.message),
            FaultKind::Invalid | FaultKind::Unsupported => other(fault.message),
        }
    }
}
