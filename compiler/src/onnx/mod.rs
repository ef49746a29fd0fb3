//! ONNX import and export. This module has the protobuf layer. The meaning of an ONNX op is in the op's own file, as an
//! [`OnnxImport`] row and an [`Op::export`](crate::ops::Op::export) method; `ops/onnx.rs`
//! ([`ops::onnx`](crate::ops::onnx)) has the interface for these.
//!
//! Operators of `com.microsoft` become the ops that they were fused from (`ops/fused_*.rs`, `multi_head_attention.rs`,
//! `group_query_attention.rs`, `block_quantized.rs`, `quantized_functions.rs`). `cli/tests/ort_cases.rs` compares them
//! with ONNX Runtime's results, which `scripts/ort_cases.py` writes.
//!
//! No size in a file is trusted: types are bounded where nodes are added (`graph::builder::possible`), ranks by
//! `tensor::MAX_RANK`, constants that importers make by a budget, and memory whose size comes from a file or from data
//! by `tensor::reserve`.

mod error;
mod export;
mod external;
mod formats;
mod import;
mod inspect;
mod parameters;
mod proto;
mod skim;
mod tensor_data;

pub use crate::ops::onnx::{ExportContext, ExportNode, ImportContext, OnnxAttr, OnnxAttrs, OnnxImport};
pub use error::{ExportError, ImportError, OLDEST_OPSET, UnsupportedOp};
pub use export::{FUNCTION_DOMAIN, export_onnx, export_onnx_beside, export_tensor};
pub use external::{ExternalData, NoExternalData, verify_location};
pub use import::{ImportOptions, element_name, import_onnx, import_onnx_with, onnx_inputs, onnx_values};
pub use inspect::{inspect_onnx, onnx_metadata};
pub use skim::{MODEL_FILE, skim_model};
pub use tensor_data::{ValueData, ValueKind, dtype_from_onnx, dtype_to_onnx, parse_tensor_proto, parse_value_proto};

/// The opset of ai.onnx that exported models use: axes of reductions and `num_outputs` of Split follow it; Gelu and
/// GroupNormalization are not in it.
pub const EXPORT_OPSET: i64 = 18;
