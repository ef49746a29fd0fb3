//! Why a kernel cannot be emitted.

use tensor_ir::name::Name;
use tensor_ir::plan::EmitFailure;

/// Why a kernel cannot be emitted. For a limit, the error has the needed and the available amount.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmitError {
    /// The function has no kernel of that name.
    #[error("the function has no kernel `{0}`")]
    NoKernel(Name),
    /// The kernel is beyond a limit of the device.
    #[error("kernel `{kernel}` needs {needed} {what}, the device has {available}")]
    Limit {
        /// The kernel.
        kernel: Name,
        /// The limited resource.
        what: &'static str,
        /// The amount that the kernel needs.
        needed: u64,
        /// The amount that the device has.
        available: u64,
    },
    /// The kernel uses something that the device does not have.
    #[error("kernel `{kernel}` uses {what}, which the device does not have")]
    Lacks {
        /// The kernel.
        kernel: Name,
        /// What it uses.
        what: String,
    },
    /// An index that 32-bit integers do not hold.
    #[error("kernel `{kernel}`: block `{block}` has {what} in an index, beyond {bits} bits")]
    IndexTooWide {
        /// The kernel.
        kernel: Name,
        /// The block.
        block: Name,
        /// The constant or the expression.
        what: String,
        /// The bits that there are.
        bits: u32,
    },
    /// A store into a packed buffer that does not own whole words.
    #[error("block `{block}`: packed store needs a vectorised innermost loop (buffer `{buffer}`)")]
    PackedStore {
        /// The storing block.
        block: Name,
        /// The packed buffer.
        buffer: Name,
    },
    /// Something that no shader can express here.
    #[error("{0}")]
    Unsupported(String),
    /// The generated module does not validate: a bug of the lowering.
    #[error("bug: naga refuses the shader of `{kernel}`: {message}")]
    Invalid {
        /// The kernel.
        kernel: String,
        /// naga's message.
        message: String,
    },
}

impl From<EmitError> for EmitFailure {
    fn from(e: EmitError) -> EmitFailure {
        let text = e.to_string();
        match e {
            EmitError::Limit { .. } | EmitError::Lacks { .. } | EmitError::IndexTooWide { .. } => {
                EmitFailure::BeyondDevice(text)
            }
            EmitError::NoKernel(_)
            | EmitError::PackedStore { .. }
            | EmitError::Unsupported(_)
            | EmitError::Invalid { .. } => EmitFailure::Lowering(text),
        }
    }
}

impl EmitError {
    pub(crate) fn unsupported(message: impl Into<String>) -> EmitError {
        EmitError::Unsupported(message.into())
    }
}
