//! Functions in Python that a network calls by name.

use crate::arrays::{results_of, view_of};
use crate::errors::Raised;
use crate::interrupt::calling;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use weft::{HostFunctions, Tensor};

/// The functions of a dictionary, by name. They take Python's lock for each call.
///
/// # Errors
/// A name that is no text, or something that cannot be called.
pub fn host_functions(given: &Bound<'_, PyDict>, raised: &Raised) -> PyResult<HostFunctions> {
    let mut functions = HostFunctions::new();
    for (name, function) in given {
        let name: String = name.extract()?;
        if !function.is_callable() {
            return Err(crate::errors::usage(
                format!("host_functions={{{name:?}: ...}} is no function"),
                "give a function that takes the operands as arrays and returns an array, or a list of arrays",
            ));
        }
        let (function, raised, of) = (function.unbind(), raised.clone(), name.clone());
        functions.register(name, move |operands: &[Tensor]| {
            calling(|py| call(function.bind(py), &of, operands).map_err(|e| raised.keep(py, e)))
        });
    }
    Ok(functions)
}

/// Calls a function with arrays that lie where the operands do, and may not be written.
fn call(function: &Bound<'_, PyAny>, name: &str, operands: &[Tensor]) -> PyResult<Vec<Tensor>> {
    let py = function.py();
    let arrays = operands.iter().map(|t| view_of(py, t)).collect::<PyResult<Vec<_>>>()?;
    results_of(&format!("result of {name}"), &function.call1(PyTuple::new(py, arrays)?)?)
}
