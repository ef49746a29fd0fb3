//! JSON as Python's dictionaries and lists.

use crate::errors::raise;
use pyo3::prelude::*;
use serde::Serialize;

/// The record as `json.loads` gives it.
///
/// # Errors
/// An error of Python.
pub fn loads<'py>(py: Python<'py>, record: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(record).map_err(|e| raise(&weft::Error::Input(e.to_string())))?;
    py.import("json")?.call_method1("loads", (text,))
}
