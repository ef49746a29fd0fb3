//! JSON as Python's dictionaries and lists.

use pyo3::prelude::*;
use serde_json::Value;

/// The value as `json.loads` gives it.
///
/// # Errors
/// An error of Python.
pub fn loads<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (value.to_string(),))
}
