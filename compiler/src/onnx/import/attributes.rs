//! Attributes of a node, with references to the attributes of an enclosing function resolved.

use super::super::proto::{AttributeProto, GraphProto, NodeProto, attribute_type as ty};
use super::super::tensor_data::{TensorError, read_constant, read_sparse};
use super::super::{ExternalData, OnnxAttr, OnnxAttrs};
use crate::fault::Fault;
use crate::graph::Constant;
use crate::ops::OpResult;
use bytes::Bytes;
use indexmap::IndexMap;
use rustc_hash::FxHashMap;

/// Attributes that the call of a model-local function gives to its body.
pub(super) type FunctionAttrs<'p> = FxHashMap<&'p str, &'p AttributeProto>;

/// The attributes of `node` after references are resolved; a reference to an attribute that the caller does not give
/// and that has no default is absent.
pub(super) fn resolve<'p>(
    node: &'p NodeProto,
    outer: Option<&FunctionAttrs<'p>>,
) -> Vec<(&'p str, &'p AttributeProto)> {
    let mut out = Vec::with_capacity(node.attribute.len());
    for a in &node.attribute {
        let name = a.name.as_deref().unwrap_or("");
        match a.ref_attr_name.as_deref().filter(|r| !r.is_empty()) {
            None => out.push((name, a)),
            Some(reference) => {
                if let Some(value) = outer.and_then(|o| o.get(reference)) {
                    out.push((name, *value));
                }
            }
        }
    }
    out
}

/// The graph attribute `name`.
pub(super) fn graph_attr<'p>(attrs: &[(&'p str, &'p AttributeProto)], name: &str) -> Result<&'p GraphProto, String> {
    let found = attrs.iter().find(|a| a.0 == name).and_then(|a| a.1.g.as_ref());
    found.ok_or_else(|| format!("the attribute `{name}` is missing or no graph"))
}

/// Every attribute that is no graph, converted.
pub(super) fn convert(attrs: &[(&str, &AttributeProto)], external: &dyn ExternalData) -> OpResult<OnnxAttrs> {
    let mut out = IndexMap::new();
    for (name, a) in attrs {
        if let Some(value) = convert_one(name, a, external)? {
            out.insert(name.to_string(), value);
        }
    }
    Ok(OnnxAttrs(out))
}

fn convert_one(name: &str, a: &AttributeProto, external: &dyn ExternalData) -> OpResult<Option<OnnxAttr>> {
    let text = |s: &Bytes| {
        let text = std::str::from_utf8(s).map(str::to_string);
        text.map_err(|_| Fault::from(format!("attribute `{name}` is no UTF-8")))
    };
    Ok(Some(match kind(a) {
        ty::FLOAT => OnnxAttr::Float(a.f.unwrap_or(0.0)),
        ty::INT => OnnxAttr::Int(a.i.unwrap_or(0)),
        ty::STRING => OnnxAttr::Str(text(a.s.as_ref().unwrap_or(&Bytes::new()))?),
        ty::TENSOR => OnnxAttr::Tensor(tensor_attr(name, a, external)?.load()?),
        ty::FLOATS => OnnxAttr::Floats(a.floats.clone()),
        ty::INTS => OnnxAttr::Ints(a.ints.clone()),
        ty::STRINGS => OnnxAttr::Strs(a.strings.iter().map(text).collect::<Result<_, _>>()?),
        ty::GRAPH => return Ok(None),
        ty::SPARSE_TENSOR => OnnxAttr::Tensor(tensor_attr(name, a, external)?.load()?),
        other => {
            return Err(Fault::unsupported(format!("unsupported kind {other} of the attribute `{name}`")));
        }
    }))
}

/// A tensor or sparse tensor attribute as a constant that shares the file's bytes.
pub(super) fn tensor_attr(
    name: &str,
    a: &AttributeProto,
    external: &dyn ExternalData,
) -> Result<Constant, TensorError> {
    match (&a.t, &a.sparse_tensor) {
        (Some(t), _) => read_constant(t, external),
        (None, Some(s)) => read_sparse(s, external),
        (None, None) => Err(TensorError::Invalid(format!("the attribute `{name}` has no tensor"))),
    }
}

/// The declared kind; files of before IR version 2 leave it out, so it then follows from the field that is filled.
fn kind(a: &AttributeProto) -> i32 {
    match a.r#type {
        Some(t) if t != 0 => t,
        _ if a.f.is_some() => ty::FLOAT,
        _ if a.i.is_some() => ty::INT,
        _ if a.s.is_some() => ty::STRING,
        _ if a.t.is_some() => ty::TENSOR,
        _ if a.g.is_some() => ty::GRAPH,
        _ if !a.floats.is_empty() => ty::FLOATS,
        _ if !a.strings.is_empty() => ty::STRINGS,
        _ => ty::INTS,
    }
}
