//! ONNX in and out. The protobuf layer lives here; what one ONNX op means lives in the op's own file, as an
//! [`OnnxImport`] row and an [`Op::export`](crate::ops::Op::export) method.

mod context;
pub use context::{ExportContext, ExportNode, ImportContext, OnnxAttr, OnnxAttrs, OnnxImport};
