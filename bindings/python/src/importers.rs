//! Importers of ONNX operators in Python.

use crate::arrays::array_of;
use crate::errors::{self, usage};
use crate::graph::Module;
use crate::interrupt::calling;
use crate::nodes::{Held, Value};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use weft::Extensions;
use weft::extend::{Fault, ImportContext, OnnxAttr, OnnxAttrs, OnnxImport, ValueId, find_onnx};

/// The functions of this module's rows, by domain and operator.
static IMPORTERS: Mutex<Option<HashMap<(&'static str, &'static str), Py<PyAny>>>> = Mutex::new(None);

/// Lets a function import an operator: `weft_nn.register_onnx` is this with its arguments checked.
///
/// Raises weft_nn.Error (code 2) for an operator that Weft imports itself.
#[pyfunction]
pub fn add_importer(domain: String, operator: String, importer: Py<PyAny>) -> PyResult<()> {
    let mut all = IMPORTERS.lock().unwrap_or_else(PoisonError::into_inner);
    let all = all.get_or_insert_default();
    if let Some(there) = all.iter_mut().find(|(key, _)| **key == (domain.as_str(), operator.as_str())) {
        *there.1 = importer;
        return Ok(());
    }
    if find_onnx(&domain, &operator, i64::MAX).is_some() {
        return Err(usage(
            format!("Weft imports {operator} itself"),
            "an importer is for an operator of another domain",
        ));
    }
    let (domain, op_type): (&'static str, &'static str) = (domain.leak(), operator.leak());
    let row: &'static [OnnxImport] = Box::leak(Box::new([OnnxImport { op_type, domain, since: 1, import }]));
    let mut extensions = Extensions { importers: vec![row], ..Extensions::default() };
    extensions.register().map_err(|e| usage(e.to_string(), "an importer is for an operator of another domain"))?;
    all.insert((domain, op_type), importer);
    Ok(())
}

/// Imports a node by the function of its operator.
fn import(cx: &mut ImportContext<'_, '_>) -> Result<Vec<ValueId>, Fault> {
    let find = |py: Python<'_>| {
        let all = IMPORTERS.lock().unwrap_or_else(PoisonError::into_inner);
        all.as_ref().and_then(|all| Some(all.get(&cx.operator)?.clone_ref(py)))
    };
    let importer = calling(find).ok_or("its importer is gone")?;
    let (attrs, wanted) = (std::mem::take(&mut cx.attrs), cx.num_outputs);
    let operator = cx.operator.1;
    cx.build_apart(|module, operands| {
        calling(|py| {
            let held = Held::new(module);
            let made = call(importer.bind(py), &held, &operands, &attrs).and_then(|made| match made.len() >= wanted {
                true => Ok(made),
                false => Err(usage(
                    format!("the importer of {operator} returned {} results, the node names {wanted}", made.len()),
                    "return a value for each result, in order",
                )),
            });
            let module = held.take().ok_or("its module is gone")?;
            Ok((module, made.map_err(errors::fail)?))
        })
    })
}

/// Calls an importer; the values that it returns.
fn call(
    importer: &Bound<'_, PyAny>,
    held: &Held,
    operands: &[Option<ValueId>],
    attrs: &OnnxAttrs,
) -> PyResult<Vec<ValueId>> {
    let py = importer.py();
    let module = Bound::new(py, Module { held: held.clone() })?.into_any();
    let function = held.change(|m| Ok(m.entry))?;
    let value = |v: &Option<ValueId>| match v {
        Some(id) => Ok(Bound::new(py, Value { held: held.clone(), function, id: *id })?.into_any()),
        None => Ok(py.None().into_bound(py)),
    };
    let operands = operands.iter().map(value).collect::<PyResult<Vec<_>>>()?;
    let words = PyDict::new(py);
    attrs.0.iter().try_for_each(|(name, value)| words.set_item(name, attr(py, value)?))?;
    let result = match importer.hasattr("_add")? {
        true => {
            let of_op = PyDict::new(py);
            of_op.set_item("attributes", words)?;
            importer.call_method("_add", (module, PyTuple::new(py, operands)?), Some(&of_op))?
        }
        false => {
            let all: Vec<_> = std::iter::once(module).chain(operands).collect();
            importer.call(PyTuple::new(py, all)?, Some(&words))?
        }
    };
    let is_list = result.is_instance_of::<PyList>() || result.is_instance_of::<PyTuple>();
    let results: Vec<Bound<'_, PyAny>> =
        if is_list { result.try_iter()?.collect::<PyResult<_>>()? } else { vec![result] };
    let id = |v: &Bound<'_, PyAny>| match v.cast::<Value>() {
        Ok(v) if v.get().held.same(held) => Ok(v.get().id),
        _ => Err(usage(
            format!("an importer returned {}", v.repr()?),
            "return the values that `module.add` gives, or an operand",
        )),
    };
    results.iter().map(id).collect()
}

/// An attribute as Python has it.
fn attr<'py>(py: Python<'py>, attr: &OnnxAttr) -> PyResult<Bound<'py, PyAny>> {
    Ok(match attr {
        OnnxAttr::Int(v) => v.into_pyobject(py)?.into_any(),
        OnnxAttr::Float(v) => v.into_pyobject(py)?.into_any(),
        OnnxAttr::Str(v) => v.into_pyobject(py)?.into_any(),
        OnnxAttr::Ints(v) => PyList::new(py, v)?.into_any(),
        OnnxAttr::Floats(v) => PyList::new(py, v)?.into_any(),
        OnnxAttr::Strs(v) => PyList::new(py, v)?.into_any(),
        OnnxAttr::Tensor(t) => array_of(py, t.clone())?,
    })
}
