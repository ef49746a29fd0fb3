//! Ops and importers of other crates.

use super::onnx::OnnxImport;
use super::{ONNX_IMPORTS, OPS, OpDef};

/// Adds an op of another crate to the table, with its ONNX importers, so that text and models may use it. Call it
/// before anything is parsed.
///
/// # Errors
/// When there is an op of this name, or an importer of one of these operators, domains and opsets.
pub fn register_op(op: OpDef, onnx: &'static [OnnxImport]) -> Result<(), String> {
    let name = op.name;
    importers_are_new(onnx)?;
    OPS.add(op, |o| o.name == name).map_err(|_| format!("there is an op `{name}`"))?;
    register_importers(onnx)
}

/// Adds ONNX importers that make nodes of ops that are there. Call it before a model that needs them is loaded.
///
/// # Errors
/// When there is an importer of one of these operators, domains and opsets.
pub fn register_importers(onnx: &'static [OnnxImport]) -> Result<(), String> {
    importers_are_new(onnx)?;
    if onnx.is_empty() { Ok(()) } else { ONNX_IMPORTS.add(onnx, |_| false) }
}

fn importers_are_new(onnx: &[OnnxImport]) -> Result<(), String> {
    let taken = |i: &OnnxImport| onnx.iter().any(|o| (o.domain, o.op_type, o.since) == (i.domain, i.op_type, i.since));
    if let Some(i) = ONNX_IMPORTS.iter().flat_map(|family| family.iter()).find(|i| taken(i)) {
        return Err(format!("there is an importer of {} {} from opset {} on", i.domain, i.op_type, i.since));
    }
    Ok(())
}
