//! Networks that are ready to run.

use crate::arrays::{array_of, check, tensors_of};
use crate::interrupt::{here, on_thread, wait};
use crate::json::loads;
use crate::measure::{Bench, compare, reference};
use crate::model::{Port, results};
use crate::trace::Trace;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use weft::{Device, Options, Tensor};

/// A network that is ready to run. `weft_nn.compile` makes it; any number of threads may run it.
#[pyclass(frozen, module = "weft_nn")]
pub struct Session {
    pub session: Arc<weft::Session>,
    pub model: weft::Model,
    pub name: String,
    pub options: Options,
    pub device: Device,
    /// Microseconds that the last run took; none is as long as can be.
    pub last: AtomicU64,
}

impl Session {
    /// The tensors of arrays, which have the types and shapes of the inputs.
    fn given(&self, inputs: &Bound<'_, PyDict>) -> PyResult<Vec<(String, Tensor)>> {
        let tensors = tensors_of(inputs)?;
        check(&tensors, &self.session.inputs())?;
        Ok(tensors)
    }

    /// The results of a run. If the last run was short, nobody needs to look for signals during this one, which costs
    /// a change of threads.
    fn computed(&self, py: Python<'_>, inputs: &[(&str, Tensor)]) -> PyResult<weft::Outputs> {
        let start = Instant::now();
        let outputs = match self.last.load(Ordering::Relaxed) < SHORT {
            true => here(py, || self.session.run(inputs)),
            false => wait(py, self.session.run_async(inputs)),
        };
        self.last.store(start.elapsed().as_micros() as u64, Ordering::Relaxed);
        outputs
    }
}

/// Microseconds of a run that Ctrl-C need not end.
const SHORT: u64 = 50_000;

#[pymethods]
impl Session {
    /// Runs once.
    ///
    /// inputs: arrays by name, each with the element type and the shape of `Session.inputs`; also tensors in host memory
    ///     that speak DLPack. A contiguous one is read where it lies; do not write to it before the call returns.
    ///
    /// Returns a dictionary with an array for each result, by the model's names.
    ///
    /// Raises weft_nn.Error: code 3 for an input that is missing, unknown, or of another type or shape; code 5 for a
    /// lost device. Other threads run meanwhile, and Ctrl-C ends the call.
    fn run<'py>(&self, py: Python<'py>, inputs: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
        let given = self.given(inputs)?;
        let named: Vec<(&str, Tensor)> = given.iter().map(|(name, t)| (name.as_str(), t.clone())).collect();
        let outputs = self.computed(py, &named)?;
        let arrays = PyDict::new(py);
        outputs.into_iter().try_for_each(|(name, t)| arrays.set_item(name, array_of(py, t)?))?;
        Ok(arrays)
    }

    /// As `run`, for `await`: it runs in a thread of asyncio's. Cancelling it gives the result up; the run itself goes
    /// on to its end. With `runs_in_flight` of `compile` above 1, the device works on several.
    fn run_async<'py>(slf: Bound<'py, Self>, inputs: Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("asyncio")?.call_method1("to_thread", (slf.getattr("run")?, inputs))
    }

    /// The inputs: a list of Port, in the model's order.
    #[getter]
    fn inputs(&self) -> Vec<Port> {
        self.model.inputs().into_iter().map(|(name, ty)| Port::new(name, &ty)).collect()
    }
    /// The results: a list of Port, in the model's order.
    #[getter]
    fn outputs(&self) -> Vec<Port> {
        results(&self.model)
    }
    /// The device: its name, backend and driver.
    #[getter]
    fn device(&self) -> String {
        self.device.label()
    }
    /// Where a run takes place: "device", "device and host", "host", or the CPU executor.
    #[getter]
    fn place(&self) -> &'static str {
        self.session.place()
    }
    /// True if mixed precision has put anything into f16.
    #[getter]
    fn is_mixed(&self) -> bool {
        self.session.is_mixed()
    }

    /// Times the network.
    ///
    /// inputs: arrays by name, as `run` takes them.
    /// warmup, runs: how many runs are not counted, and how many are.
    ///
    /// Returns a dictionary: "latency_ms" from inputs in host memory to results in host memory, "device_ms" with
    /// inputs and results on the device (where the network runs there as a whole), each with median, p90, p99, min,
    /// mean, stddev and samples; "split_ms" with the medians of upload, encode, gpu and readback.
    ///
    /// Raises weft_nn.Error as `run`.
    #[pyo3(signature = (inputs, *, warmup=10, runs=100))]
    fn bench<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyDict>,
        warmup: usize,
        runs: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let bench = Bench { session: self.session.clone(), inputs: self.given(inputs)?, warmup, runs };
        loads(py, &on_thread(py, move || bench.measure())?)
    }

    /// Compares the results with a reference.
    ///
    /// inputs: arrays by name, as `run` takes them.
    /// against: "cpu" (the CPU executor in f32), "fp32" (this device without mixed precision), or a dictionary of
    ///     arrays by the names of the results.
    /// rtol, atol: tolerances; 1e-3 by default, 1e-2 where f16 is used. Two tensors agree if
    ///     `|a - b| <= atol * max|b| + rtol * |b|` for each element and `norm(a - b) <= rtol * norm(b)`.
    ///
    /// Returns a dictionary: "pass", and "outputs", a list with name, pass, why, max_abs, max_rel, rel_l2, cosine, nan
    /// and inf of each result.
    ///
    /// Raises weft_nn.Error: as `run`; code 2 if the reference is the session itself; code 3 if it lacks a result.
    #[pyo3(signature = (inputs, against=None, *, rtol=None, atol=None))]
    fn compare<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyDict>,
        against: Option<Bound<'py, PyAny>>,
        rtol: Option<f64>,
        atol: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let given = self.given(inputs)?;
        let reference = reference(&self.session, (&self.model, &self.options, &self.device), against.as_ref())?;
        let session = self.session.clone();
        loads(py, &on_thread(py, move || compare(&session, &given, reference, (rtol, atol)))?)
    }

    /// The record of the compilation, which is made for this: graphs after each pass, groups with the reasons of their
    /// borders, kernels with schedules and shaders.
    ///
    /// Raises weft_nn.Error as `compile`; code 5 for a model whose sizes data decide.
    fn trace(&self, py: Python<'_>) -> PyResult<Trace> {
        let (model, name, options) = (self.model.clone(), self.name.clone(), self.options.clone());
        on_thread(py, move || Ok(Trace::new(model.trace(&name, &options)?))).and_then(|t| t)
    }
    /// What `weft explain` says: which kernel each node is in, and what stopped the next fusion; with `node`, of that
    /// node alone. Returns a text.
    ///
    /// Raises weft_nn.Error as `trace`; code 2 for a node that is not there.
    #[pyo3(signature = (node=None))]
    fn explain(&self, py: Python<'_>, node: Option<&str>) -> PyResult<String> {
        self.trace(py)?.explain(py, node)
    }
    /// Shows the page of `weft report` in a notebook: passes, graphs, groups, reasons, kernels.
    ///
    /// height: of the frame, in pixels.
    ///
    /// Raises weft_nn.Error as `trace`; ImportError without the package IPython.
    #[pyo3(signature = (*, height=800))]
    fn show<'py>(&self, py: Python<'py>, height: usize) -> PyResult<Bound<'py, PyAny>> {
        self.trace(py)?.show(py, height)
    }
    fn __repr__(&self) -> String {
        format!("<weft_nn.Session {:?} on {}>", self.name, self.device.label())
    }
}
