//! Why a model could not be imported or exported.

pub use crate::inspect::UnsupportedOp;
use crate::name::Name;

/// The oldest opset of ai.onnx that is imported as a whole: broadcasting follows NumPy since then. Of older ones those
/// operators are known that did not change.
pub const OLDEST_OPSET: i64 = 7;

fn list(ops: &[UnsupportedOp]) -> String {
    ops.iter().map(UnsupportedOp::to_string).collect::<Vec<_>>().join("; ")
}

/// Why a model could not be imported.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The bytes are no ONNX model, or the file is cut off.
    #[error("not a complete ONNX model: {0}")]
    Malformed(String),
    /// The file is of another format.
    #[error("it is {what}, not an ONNX model; {help}")]
    OtherFormat {
        /// What it is.
        what: &'static str,
        /// What to do.
        help: &'static str,
    },
    /// The opset of ai.onnx is older than what can be imported.
    #[error("the model uses opset {version}; the oldest that can be imported is {}", OLDEST_OPSET)]
    OldOpset {
        /// The model's opset.
        version: i64,
    },
    /// A node is wrong.
    #[error("node `{node}` ({op}): {message}")]
    Invalid {
        /// The node.
        node: Name,
        /// Its ONNX op type.
        op: String,
        /// The error.
        message: String,
    },
    /// A function of the model calls itself, at once or through others.
    #[error("node `{node}` ({op}): the function calls itself")]
    SelfCall {
        /// The node that calls.
        node: Name,
        /// The function.
        op: String,
    },
    /// Something that is not a node is wrong: an input, an initializer, an output.
    #[error("{what} `{name}`: {message}")]
    InvalidValue {
        /// What it is: `input`, `initializer` ...
        what: &'static str,
        /// Its name.
        name: Name,
        /// The error.
        message: String,
    },
    /// Nodes depend on each other in a circle.
    #[error("the graph has a cycle through the nodes {}", .0.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", "))]
    Cycle(Vec<Name>),
    /// Element types or value kinds that Weft does not have.
    #[error("{what} `{name}` has the type {ty}, which is not supported")]
    UnsupportedType {
        /// What it is: `input`, `initializer` ...
        what: &'static str,
        /// Its name.
        name: Name,
        /// The ONNX type.
        ty: String,
    },
    /// A node's result, or the constants that the model makes, are beyond any memory: nothing else is wrong with it.
    #[error("node `{node}` ({op}): {message}")]
    TooLarge {
        /// The node.
        node: Name,
        /// Its ONNX op type.
        op: String,
        /// How large.
        message: String,
    },
    /// Functions and loops of the model become more nodes than a network may have.
    #[error("the model is too large: {0}")]
    Expansion(String),
    /// Shapes were chosen that the model's inputs do not have.
    #[error(transparent)]
    Shape(#[from] crate::graph::BindError),
    /// All operators that are not supported, at once.
    #[error("unsupported operators: {}", list(.0))]
    Unsupported(Vec<UnsupportedOp>),
}

/// Why a module could not be exported.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// All nodes that ONNX has no operators for, at once: node, op, why.
    #[error("no ONNX form: {}", .0.iter().map(|(n, o, w)| format!("`{n}` ({o}): {w}")).collect::<Vec<_>>().join("; "))]
    Unsupported(Vec<(Name, &'static str, String)>),
    /// A constant could not be read.
    #[error("constant @{name}: {message}")]
    Constant {
        /// The constant.
        name: Name,
        /// The error of its source.
        message: String,
    },
    /// The file of the constants could not be written.
    #[error("{0}")]
    Write(String),
    /// Protobuf messages end at 2 GiB.
    #[error("the model has {bytes} bytes of constants; an ONNX file ends at 2 GiB")]
    TooLarge {
        /// Bytes of all constants.
        bytes: u64,
    },
}

/// An input, output or initializer that is not as it should be.
pub(super) fn invalid_value(what: &'static str, name: &str, message: &str) -> ImportError {
    ImportError::InvalidValue { what, name: Name::new(name), message: message.to_string() }
}
