//! Why bytes are not a trace.

/// The version that this build writes and reads.
pub const VERSION: u32 = 19;

/// Why bytes are not a trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// Something else.
    #[error("this is not a compile trace: it does not begin with `WEFTRACE`")]
    NotATrace,
    /// Of another version of Weft.
    #[error("the trace has version {found}, this build reads version {VERSION}: make it again with `weft compile -o`")]
    Version {
        /// Its version.
        found: u32,
    },
    /// Cut off or changed.
    #[error("the trace is truncated or damaged: {0}")]
    Damaged(String),
    /// It could not be written.
    #[error("the trace cannot be written: {0}")]
    Write(String),
}
