//! Records of compilations.

use crate::errors::raise;
use crate::interrupt::on_thread;
use crate::json::loads;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use weft::CompileTrace;
use workbench::explain::{Subject, of_trace};

/// The record of a compilation. `weft explain`, `weft report`, `weft diff` and `weft view` read its file.
#[pyclass(frozen, module = "weft_nn")]
pub struct Trace {
    pub trace: CompileTrace,
    bytes: Vec<u8>,
}

impl Trace {
    /// With its file form.
    ///
    /// # Errors
    /// It has none.
    pub fn new(trace: CompileTrace) -> PyResult<Trace> {
        let bytes = trace.to_bytes().map_err(|e| raise(&weft::Error::Input(e.to_string())))?;
        Ok(Trace { trace, bytes })
    }
}

#[pymethods]
impl Trace {
    /// The content of the file that `save` writes.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.bytes)
    }
    /// Writes it to a file, for `weft view` and the other commands that read traces.
    fn save(&self, path: std::path::PathBuf) -> PyResult<()> {
        Ok(std::fs::write(path, &self.bytes)?)
    }
    /// Passes, groups, kernels, remarks and memory as a dictionary: the JSON of `weft compile --json`.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        loads(py, &self.trace.record())
    }
    /// What `weft explain` says of it, or of one node; a text.
    #[pyo3(signature = (node=None))]
    pub fn explain(&self, py: Python<'_>, node: Option<&str>) -> PyResult<String> {
        let subject = node.map_or(Subject::Model, |n| Subject::Node(n.into()));
        let trace = self.trace.clone();
        on_thread(py, move || of_trace(&trace, &subject, false).map(|d| d.document.text()))
    }
    /// The page of `weft report`, as HTML.
    fn report(&self, py: Python<'_>) -> PyResult<String> {
        let trace = self.trace.clone();
        on_thread(py, move || workbench::report::of_trace(trace))
    }
    /// Shows the page in a notebook, in a frame of `height` pixels.
    #[pyo3(signature = (*, height=800))]
    pub fn show<'py>(&self, py: Python<'py>, height: usize) -> PyResult<Bound<'py, PyAny>> {
        py.import("weft_nn._notebook")?.getattr("show")?.call1((self.report(py)?, height))
    }
}
