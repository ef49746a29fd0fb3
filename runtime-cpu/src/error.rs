//! What may go wrong in a session.

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
    /// A bug.
    #[error("internal error: {0}")]
    Internal(String),
}
