//! The summary of an ONNX model; it also works for models with unsupported operators.

use super::error::ImportError;
use super::external::ExternalData;
use super::import::{
    ImportOptions, Importer, decode_model, import_onnx_with, import_type, real_inputs, unsupported_ops,
};
use super::parameters::of_file;
use super::proto::{GraphProto, ModelProto, TypeValue, ValueInfoProto};
use super::tensor_data::dtype_from_onnx;
use crate::inspect::{Counted, Inspection, Port, count_macs, sort_histogram};
use bytes::Bytes;
use indexmap::IndexMap;

/// Summary of an ONNX model, with its inputs as `options` decide them. Operators are counted under their ONNX names,
/// branches and bodies included.
///
/// # Errors
/// As [`import_onnx_with`], except that unsupported operators are part of the summary.
pub fn inspect_onnx(
    bytes: Bytes,
    external: &dyn ExternalData,
    options: &ImportOptions,
) -> Result<Inspection, ImportError> {
    let model = decode_model(bytes.clone())?;
    let importer = Importer::new(&model, external)?;
    let mut unsupported = unsupported_ops(&importer);
    let mut inputs: Option<Vec<Port>> = None;
    let mut outputs: Option<Vec<Port>> = None;
    let mut macs = None;
    if unsupported.is_empty() {
        match import_onnx_with(bytes, external, options) {
            Ok(module) => {
                let f = crate::inspect::inspect_module(&module);
                (inputs, outputs, macs) = (Some(f.inputs), Some(f.outputs), count_macs(&module));
            }
            Err(ImportError::Unsupported(list)) => unsupported = list,
            Err(ImportError::UnsupportedType { .. }) => {}
            Err(other) => return Err(other),
        }
    }
    let empty = GraphProto::default();
    let graph = model.graph.as_ref().unwrap_or(&empty);
    let mut ops = IndexMap::new();
    count_ops(graph, &mut ops);
    sort_histogram(&mut ops);
    let Counted { parameters, quantised } = of_file(&model);
    Ok(Inspection {
        inputs: inputs.unwrap_or_else(|| real_inputs(graph).map(declared_port).collect()),
        outputs: outputs.unwrap_or_else(|| graph.output.iter().map(declared_port).collect()),
        opset: opset(&model),
        ops,
        parameters,
        quantised,
        macs,
        unsupported,
        open: None,
    })
}

/// The notes of an ONNX model's producer, by name, such as the classes of its results.
///
/// # Errors
/// Bytes that are no ONNX model.
pub fn onnx_metadata(bytes: Bytes) -> Result<Vec<(String, String)>, ImportError> {
    let notes = decode_model(bytes)?.metadata_props;
    Ok(notes.into_iter().map(|n| (n.key.unwrap_or_default(), n.value.unwrap_or_default())).collect())
}

fn opset(model: &ModelProto) -> Option<i64> {
    let main = |d: &Option<String>| matches!(d.as_deref(), None | Some("") | Some("ai.onnx"));
    model.opset_import.iter().find(|o| main(&o.domain)).and_then(|o| o.version)
}

fn declared_port(info: &ValueInfoProto) -> Port {
    let name = info.name.clone().unwrap_or_default();
    match import_type(info) {
        Ok(ty) => Port::new(name, &ty),
        Err(_) => {
            let tensor = match info.r#type.as_ref().and_then(|t| t.value.as_ref()) {
                Some(TypeValue::Tensor(t)) => t.elem_type,
                _ => None,
            };
            let code = tensor.unwrap_or(0);
            let dtype = dtype_from_onnx(code).map_or_else(|other| other, |d| d.to_string());
            Port { name, dtype, shape: None }
        }
    }
}

fn count_ops(graph: &GraphProto, ops: &mut IndexMap<String, usize>) {
    for node in &graph.node {
        *ops.entry(node.op_type.clone().unwrap_or_default()).or_insert(0) += 1;
        node.attribute.iter().filter_map(|a| a.g.as_ref()).for_each(|g| count_ops(g, ops));
    }
}
