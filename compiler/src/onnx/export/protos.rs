//! Protobuf messages of nodes, attributes and types.

use super::super::proto::{
    AttributeProto, DimensionProto, DimensionValue, NodeProto, TensorShapeProto, TensorTypeProto, TypeProto, TypeValue,
    ValueInfoProto, attribute_type as ty,
};
use super::super::tensor_data::{dtype_to_onnx, write_tensor};
use crate::graph::TensorType;
use crate::ops::onnx::{ExportNode, OnnxAttr};
use bytes::Bytes;

pub(super) fn identity(from: &str, to: &str) -> NodeProto {
    NodeProto {
        input: vec![from.into()],
        output: vec![to.into()],
        op_type: Some("Identity".into()),
        ..NodeProto::default()
    }
}

pub(super) fn node_proto(e: ExportNode, name: String) -> NodeProto {
    let mut input = e.inputs;
    while input.last().is_some_and(String::is_empty) {
        input.pop();
    }
    NodeProto {
        input,
        output: e.outputs,
        name: Some(name),
        op_type: Some(e.op_type),
        attribute: e.attrs.iter().map(|(k, v)| attribute(k, v)).collect(),
        domain: Some(e.domain),
        ..NodeProto::default()
    }
}

pub(super) fn attribute(name: &str, value: &OnnxAttr) -> AttributeProto {
    let mut a = AttributeProto { name: Some(name.into()), ..AttributeProto::default() };
    let text = |s: &String| Bytes::from(s.clone().into_bytes());
    let kind = match value {
        OnnxAttr::Int(v) => (a.i = Some(*v), ty::INT).1,
        OnnxAttr::Float(v) => (a.f = Some(*v), ty::FLOAT).1,
        OnnxAttr::Str(v) => (a.s = Some(text(v)), ty::STRING).1,
        OnnxAttr::Ints(v) => (a.ints = v.clone(), ty::INTS).1,
        OnnxAttr::Floats(v) => (a.floats = v.clone(), ty::FLOATS).1,
        OnnxAttr::Strs(v) => (a.strings = v.iter().map(text).collect(), ty::STRINGS).1,
        OnnxAttr::Tensor(t) => (a.t = Some(write_tensor("", t)), ty::TENSOR).1,
    };
    a.r#type = Some(kind);
    a
}

pub(super) fn value_info(name: &str, t: &TensorType) -> ValueInfoProto {
    let dim = |d: &crate::int::Dim| match d.as_const() {
        Some(c) => DimensionValue::Value(c),
        None => DimensionValue::Param(d.to_string()),
    };
    let dims = t.shape.iter().map(|d| DimensionProto { value: Some(dim(d)) }).collect();
    let tensor =
        TensorTypeProto { elem_type: Some(dtype_to_onnx(t.dtype)), shape: Some(TensorShapeProto { dim: dims }) };
    ValueInfoProto { name: Some(name.into()), r#type: Some(TypeProto { value: Some(TypeValue::Tensor(tensor)) }) }
}
