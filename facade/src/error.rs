//! Errors from loading a file to reading results.

use compiler::calibrate::CalibrationError;
use compiler::compile::CompileError;
use compiler::graph::{BindError, SizesError};
use compiler::interpreter::ExecError;
use compiler::name::Name;
use compiler::onnx::ImportError;
use compiler::passes::PassError;
use runtime_cpu::CpuError;
use runtime_gpu::{GpuError, PartError};
use std::fmt::Display;
use std::path::Path;

/// Why a model was not loaded, compiled or run. Each message has the error and its place.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {path}: {why}")]
    File {
        /// The file.
        path: String,
        /// The system's error.
        why: String,
    },
    /// A compile trace instead of a model.
    #[error("{0} is a compile trace, not a model")]
    Trace(String),
    /// A bundle instead of a model.
    #[error("{0} is a bundle, which is compiled already")]
    IsBundle(String),
    /// Bytes that are no bundle, or are damaged.
    #[error("{why}")]
    Bundle {
        /// The file.
        place: String,
        /// What is wrong.
        why: String,
    },
    /// A bundle without a plan for the device, where nothing may be compiled.
    #[error("nothing may be compiled, and {why}")]
    NotCompiled {
        /// The file.
        place: String,
        /// Why there is no plan.
        why: String,
    },
    /// A bundle whose external targets run code of the machine, where that is not allowed.
    #[error("the bundle runs code of this machine through {}, which has to be allowed", targets.join(", "))]
    Native {
        /// The file.
        place: String,
        /// The targets.
        targets: Vec<String>,
    },
    /// A text whose external targets run code of the machine, where that is not allowed.
    #[error("the text runs code of this machine through {}, which has to be allowed", .0.join(", "))]
    NativeText(Vec<String>),
    /// A network from a file that sets options of external targets which are the caller's: each as `TARGET:OPTION`.
    #[error(
        "the network sets {}, which name a program, a library or a folder of this machine; a file must not set them",
        .0.iter().map(|o| format!("`{o}`")).collect::<Vec<_>>().join(" and ")
    )]
    MachineOptions(Vec<String>),
    /// A model that has no plan before a run, for a bundle.
    #[error("a bundle holds plans, and the model has none before a run: {0}")]
    NotPlanned(String),
    /// Something cannot be written.
    #[error("cannot write {0}")]
    Write(String),
    /// Something in an ONNX file that is wrong, or that Weft does not have.
    #[error("{place}: {source}")]
    Onnx {
        /// The file.
        place: String,
        /// What it is.
        source: ImportError,
    },
    /// `.weft` text that does not parse or verify.
    #[error("{0}")]
    Text(String),
    /// A tensor function with an invalid schedule.
    #[error("{0}")]
    Schedule(String),
    /// Text without a graph function.
    #[error("the text has no graph function for a run to start in")]
    NoEntry,
    /// Shapes that the model does not take.
    #[error(transparent)]
    Shape(#[from] BindError),
    /// The model does not compile, or not with these options.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A device that is not there, has not enough memory, or was lost; inputs that do not fit.
    #[error(transparent)]
    Device(#[from] GpuError),
    /// The processor does not run the model: wrong inputs, host functions that fail.
    #[error(transparent)]
    Processor(#[from] CpuError),
    /// The interpreter was given wrong inputs, or its memory does not do.
    #[error(transparent)]
    Run(#[from] ExecError),
    /// Dimensions of inputs that nothing gives a size.
    #[error("the model leaves {} open", listed(dims))]
    OpenSizes {
        /// The dimensions.
        dims: Vec<Name>,
        /// The inputs that have them, with their types.
        inputs: String,
    },
    /// Inputs that the model does not have, or lacks.
    #[error("{0}")]
    Input(String),
    /// Not enough host memory.
    #[error("{what} {} MiB, the machine has {} MiB available", .need >> 20, .free >> 20)]
    NoRoom {
        /// What takes it.
        what: &'static str,
        /// Bytes needed.
        need: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// A profile whose kernels are shaders, for the processor.
    #[error("target {name}: its kernels are shaders, which the CPU does not run")]
    NoShaders {
        /// The profile.
        name: String,
    },
    /// No profile of that name.
    #[error("no profile `{name}`; there are: {}", .there.join(", "))]
    NoProfile {
        /// What was asked for.
        name: String,
        /// The names of all profiles.
        there: Vec<String>,
    },
    /// A row of this name is in the tables already.
    #[error("{0}")]
    Extension(String),
}

impl Error {
    pub(crate) fn file(path: &Path, why: impl Display) -> Error {
        Error::File { path: path.display().to_string(), why: why.to_string() }
    }
    /// The error of an import with its file as the place.
    pub(crate) fn in_file(self, path: &Path) -> Error {
        match self {
            Error::Onnx { source, .. } => Error::Onnx { place: path.display().to_string(), source },
            other => other,
        }
    }
}

impl PartError for Error {
    fn is_too_wide(&self) -> bool {
        matches!(self, Error::Device(GpuError::TooWide(_)) | Error::Processor(CpuError::TooWide(_)))
    }
}

fn listed(dims: &[Name]) -> String {
    dims.iter().map(|d| format!("`{d}`")).collect::<Vec<_>>().join(" and ")
}

impl From<SizesError> for Error {
    fn from(e: SizesError) -> Error {
        match e {
            SizesError::Bind(e) => Error::Shape(e),
            SizesError::Open { dims, inputs } => Error::OpenSizes { dims, inputs },
            other => Error::Input(other.to_string()),
        }
    }
}

impl From<PassError> for Error {
    fn from(e: PassError) -> Error {
        Error::Compile(e.into())
    }
}

impl From<ImportError> for Error {
    /// Of a model in memory.
    fn from(source: ImportError) -> Error {
        Error::Onnx { place: "model".into(), source }
    }
}

impl From<CalibrationError> for Error {
    fn from(e: CalibrationError) -> Error {
        match e {
            CalibrationError::Pass(e) => e.into(),
            CalibrationError::Run(e) => e.into(),
            other => Error::Input(other.to_string()),
        }
    }
}
