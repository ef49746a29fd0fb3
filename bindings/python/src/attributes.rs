//! Ops and their attributes, between Weft and Python.

use crate::arrays::{name_of, numpy_dtype};
use crate::errors::usage;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use weft::extend::{Attr, Attrs, OpRef, find_op};

/// The op of that name with attributes.
///
/// # Errors
/// An op or an attribute that there is not.
pub fn op_of(name: &str, attributes: Option<&Bound<'_, PyDict>>) -> PyResult<OpRef> {
    let Some(def) = find_op(name) else {
        return Err(usage(format!("there is no op `{name}`"), "Node.op and docs/ir.md have the names of ops"));
    };
    let mut attrs = Attrs::new();
    for (name, value) in attributes.iter().flat_map(|a| a.iter()) {
        attrs.insert(name.extract()?, attr_of(&value)?);
    }
    (def.from_attrs)(&attrs).or_else(|why| {
        let sized: Attrs = attrs.iter().map(|(name, a)| (name.clone(), with_sizes(a, false))).collect();
        (def.from_attrs)(&sized).map_err(|_| usage(why, format!("the op is `{name}`")))
    })
}

/// A value of Python as an attribute.
fn attr_of(value: &Bound<'_, PyAny>) -> PyResult<Attr> {
    if let Ok(flag) = value.extract::<bool>() {
        return Ok(Attr::Bool(flag));
    }
    if let Ok(text) = value.extract::<String>() {
        return Ok(Attr::Str(text));
    }
    if let Ok(number) = value.extract::<i64>() {
        return Ok(Attr::Int(number));
    }
    if let Ok(number) = value.extract::<f64>() {
        return Ok(Attr::Float(number));
    }
    if let Ok(list) = value.try_iter() {
        let items: Vec<Attr> = list.map(|item| attr_of(&item?)).collect::<PyResult<_>>()?;
        return Ok(Attr::List(items));
    }
    numpy_dtype(value).map(Attr::DType)
}

/// With texts in lists as open sizes.
fn with_sizes(attr: &Attr, in_list: bool) -> Attr {
    match attr {
        Attr::Str(text) if in_list => Attr::Expr(weft::Dim::var(text.as_str())),
        Attr::List(list) => Attr::List(list.iter().map(|a| with_sizes(a, true)).collect()),
        other => other.clone(),
    }
}

/// An attribute as Python has it.
///
/// # Errors
/// An error of Python.
pub fn attr_to_py<'py>(py: Python<'py>, attr: &Attr) -> PyResult<Bound<'py, PyAny>> {
    Ok(match attr {
        Attr::Int(v) => v.into_pyobject(py)?.into_any(),
        Attr::Float(v) => v.into_pyobject(py)?.into_any(),
        Attr::Bool(v) => v.into_pyobject(py)?.to_owned().into_any(),
        Attr::Str(v) => v.into_pyobject(py)?.into_any(),
        Attr::DType(t) => name_of(*t).into_pyobject(py)?.into_any(),
        Attr::Expr(e) => e.to_string().into_pyobject(py)?.into_any(),
        Attr::List(list) => {
            let items = list.iter().map(|a| attr_to_py(py, a)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, items)?.into_any()
        }
    })
}
