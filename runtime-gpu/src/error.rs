//! Errors of devices and sessions.

use compiler::fault::{Fault, FaultKind};

/// Errors on a device. Each message says what was requested and what is available.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// No adapter fits the request.
    #[error("no device `{asked}`; there {}", list(.there))]
    NoDevice {
        /// What was asked for.
        asked: String,
        /// Names of what is there.
        there: Vec<String>,
    },
    /// The adapter refused to open.
    #[error("device `{name}` could not be opened: {why}")]
    Open {
        /// Adapter name.
        name: String,
        /// The driver's reason.
        why: String,
    },
    /// A buffer is larger than the device allows.
    #[error("`{what}` needs a buffer of {need} bytes; `{device}` allows {limit}")]
    BufferTooLarge {
        /// The content of the buffer.
        what: String,
        /// Bytes asked for.
        need: u64,
        /// The device.
        device: String,
        /// Its limit.
        limit: u64,
    },
    /// Memory ran out while the session opened.
    #[error("not enough memory on `{device}` for {need} bytes: {why}")]
    OutOfMemory {
        /// The device.
        device: String,
        /// Bytes the session needs in all.
        need: u64,
        /// The error.
        why: String,
    },
    /// There is no room in host memory for a tensor.
    #[error("{0}")]
    NoRoom(String),
    /// Host memory ran out while a constant was read.
    #[error("not enough memory for constant {name}: {why}")]
    HostMemory {
        /// The constant.
        name: String,
        /// How much was asked for.
        why: String,
    },
    /// Calls nest too deeply.
    #[error("calls of @{function} nest deeper than {most}")]
    Depth {
        /// The function.
        function: String,
        /// How deep calls may nest.
        most: usize,
    },
    /// The device was lost.
    #[error("the device was lost: {0}")]
    Lost(String),
    /// The device runs kernels, but their results are wrong.
    #[error("device `{device}` does not compute: {why}")]
    DoesNotCompute {
        /// The device.
        device: String,
        /// The results of a small kernel.
        why: String,
    },
    /// The driver took subgroups that a kernel on matrix units was not made for.
    #[error("`{device}` runs kernel {kernel} with subgroups of {size} threads; it was made for {} to {}", .made_for.0, .made_for.1)]
    SubgroupSize {
        /// The kernel.
        kernel: String,
        /// The device.
        device: String,
        /// Threads of its subgroups.
        size: u32,
        /// The fewest and the most threads that are right.
        made_for: (u32, u32),
    },
    /// The driver has no statistics about kernels.
    #[error("`{device}` has no statistics of kernels: {why}")]
    NoDriverStats {
        /// The device.
        device: String,
        /// The missing item.
        why: String,
    },
    /// A wrong input to a run.
    #[error("{0}")]
    Input(String),
    /// These sizes are beyond the limits of the kernels for all sizes.
    #[error("{0}")]
    BeyondOpenPlan(String),
    /// An integer does not fit the 32 bits in which the device holds it; the interpreter has no such limit.
    #[error("{0}; a run with its inputs and results in host memory, or one on `cpu`, computes it in 64 bits")]
    TooWide(String),
    /// A host function that the graph calls is not registered, or not in the form in which it is called.
    #[error("{0}")]
    HostFunction(String),
    /// A host step failed, or a constant could not be read.
    #[error("{0}")]
    Host(String),
    /// A plan from a file does what no plan of Weft does.
    #[error("its plan does not run, so it is damaged or forged: {0}")]
    Plan(String),
    /// The driver or wgpu refused something Weft made: a bug.
    #[error("internal error on the device: {0}")]
    Internal(String),
}

impl GpuError {
    /// The error of a plan that may come from a stranger: what would be a bug is an error of its file.
    pub(crate) fn of_plan(self, is_foreign: bool) -> GpuError {
        match self {
            GpuError::Internal(why) if is_foreign => GpuError::Plan(why),
            other => other,
        }
    }
    /// The error of a host computation.
    pub(crate) fn of_fault(fault: Fault) -> GpuError {
        match fault.kind {
            FaultKind::NoRoom | FaultKind::TooLarge => GpuError::NoRoom(fault.message),
            FaultKind::Invalid | FaultKind::Unsupported => GpuError::Host(fault.message),
        }
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "is none at all".into() } else { format!("are: {}", names.join(", ")) }
}
