//! Networks that are ready to run.

use crate::arrays::{Dict, Room, array_of, check, tensor_of};
use crate::device_tensor::{DeviceTensor, Place};
use crate::errors::{Raised, raise, usage};
use crate::given::{Given, in_memory, in_order, named};
use crate::interrupt::{here, on_thread, wait};
use crate::json::loads;
use crate::model::{Model, results};
use crate::ports::Port;
use crate::reference::reference;
use crate::schedules::{Kernel, kernels, rescheduled};
use crate::trace::Trace;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use weft::{Device, Options, RunInput, Tensor, TensorType};
use workbench::arrays::Named;
use workbench::bench::Timing;
use workbench::compare::{self, Against};
use workbench::settings::Settings;

/// A network that is ready to run. `weft_nn.compile` makes it; any number of threads may run it.
#[pyclass(frozen, module = "weft_nn")]
pub struct Session {
    /// `None` once it is closed.
    session: Mutex<Option<Arc<weft::Session>>>,
    ports: Vec<(String, TensorType)>,
    pub model: Model,
    pub options: Options,
    pub device: Device,
    /// Microseconds that the last run took; none is as long as can be.
    pub last: AtomicU64,
    /// Exceptions of functions in Python.
    pub raised: Raised,
    /// A run may call functions in Python.
    calls_python: bool,
}

impl Session {
    /// The session itself.
    ///
    /// # Errors
    /// It is closed.
    fn live(&self) -> PyResult<Arc<weft::Session>> {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.clone().ok_or_else(|| usage("the session is closed", "run it inside of its `with`"))
    }
    /// A session of the model, compiled with these options for this device.
    ///
    /// # Errors
    /// As compiling and opening.
    pub fn open(
        model: Model,
        options: Options,
        require: bool,
        device: Device,
        raised: Raised,
    ) -> Result<Session, weft::Error> {
        let session = model.compiled(&options, require)?.session(&device)?;
        let last = u64::MAX.into();
        // Regions of external targets run on the host.
        let calls_python = !options.host_functions.names().is_empty() || session.place() != "device";
        let ports = session.inputs();
        let session = Mutex::new(Some(Arc::new(session)));
        Ok(Session { session, ports, model, options, device, last, raised, calls_python })
    }

    /// The inputs of a dictionary, which have the types and shapes of the model's.
    fn given(&self, inputs: &Bound<'_, PyDict>) -> PyResult<Vec<(String, Given)>> {
        let one = |(name, item): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            let name: String = name.extract()?;
            let given = match item.cast::<DeviceTensor>() {
                Ok(tensor) => Given::Device(tensor.clone().unbind()),
                Err(_) => Given::Host(tensor_of(&name, &item)?),
            };
            Ok((name, given))
        };
        let list = inputs.iter().map(one).collect::<PyResult<Vec<_>>>()?;
        let forms = list.iter().map(|(name, given)| match given {
            Given::Host(t) => (name.as_str(), t.dtype(), t.shape()),
            Given::Device(t) => (name.as_str(), t.get().form().0, t.get().form().1),
        });
        check(forms, &self.ports)?;
        Ok(list)
    }

    /// The results of a run. If the last run was short, nobody needs to look for signals during this one, which costs
    /// a change of threads. A run that calls Python has a thread of its own, so that an interrupt finds it there.
    fn computed(&self, py: Python<'_>, inputs: Vec<(String, Tensor)>) -> PyResult<weft::Outputs> {
        let session = self.live()?;
        let start = Instant::now();
        let outputs = match self.last.load(Ordering::Relaxed) < SHORT {
            true => here(py, || session.run(&named(&inputs))),
            false if self.calls_python => on_thread(py, move || session.run(&named(&inputs))),
            false => wait(py, session.run_async(&named(&inputs))),
        };
        self.last.store(start.elapsed().as_micros() as u64, Ordering::Relaxed);
        self.raised.or(outputs)
    }

    /// A run whose results by these names are written to arrays.
    fn written<'py>(
        &self,
        py: Python<'py>,
        inputs: Vec<(String, Tensor)>,
        out: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let session = self.live()?;
        let (mut rooms, names) = (Room::of_each(out)?, session.output_names());
        let start = Instant::now();
        let work = move || {
            let memory = rooms.iter_mut().map(|r| (r.name.clone(), r)).collect::<Vec<_>>();
            let memory = memory.into_iter().map(|(name, r)| (name, r.memory()));
            session.run_to_memory(&named(&inputs), memory.collect())
        };
        let outputs = match self.last.load(Ordering::Relaxed) < SHORT {
            true => here(py, work),
            // An abandoned run keeps the arrays.
            false => on_thread(py, work),
        };
        self.last.store(start.elapsed().as_micros() as u64, Ordering::Relaxed);
        let mut rest: BTreeMap<String, Tensor> = self.raised.or(outputs)?.into_iter().collect();
        let arrays = PyDict::new(py);
        for name in names {
            match rest.remove(&name) {
                Some(t) => arrays.set_item(name, array_of(py, t)?)?,
                None => arrays.set_item(&name, out.get_item(&name)?)?,
            }
        }
        Ok(arrays)
    }

    /// A run of a session on a device that leaves its results there, with inputs that are there where they can.
    fn submitted<'py>(&self, py: Python<'py>, given: Vec<(String, Given)>) -> PyResult<Bound<'py, PyDict>> {
        // What is on another device goes through host memory.
        let elsewhere = |given: Given| match given {
            Given::Device(t) if t.get().on(&self.device).is_none() => t.get().read(py).map(Given::Host),
            there => Ok(there),
        };
        let given = given.into_iter().map(|(name, g)| Ok((name, elsewhere(g)?))).collect::<PyResult<Vec<_>>>()?;
        let mut inputs: Vec<(&str, RunInput<'_>)> = vec![];
        for (name, given) in &given {
            match given {
                Given::Host(t) => inputs.push((name, RunInput::Host(t))),
                Given::Device(t) => inputs.extend(t.get().on(&self.device).map(|t| (name.as_str(), t))),
            }
        }
        let results = self.raised.or(wait(py, self.live()?.run_to_tensors_async(&inputs)))?;
        let tensors = PyDict::new(py);
        for (name, tensor) in results {
            let place = Place::of(tensor, &self.device);
            tensors.set_item(name, Bound::new(py, DeviceTensor { place })?)?;
        }
        Ok(tensors)
    }
}

/// Microseconds of a run that Ctrl-C need not end.
const SHORT: u64 = 50_000;

#[pymethods]
impl Session {
    /// Runs once.
    ///
    /// inputs: arrays by name, each with the element type and the shape of `Session.inputs`; also tensors in host
    /// memory that speak DLPack. A contiguous one is read where it lies; do not write to it before the call returns.
    ///
    ///     A DeviceTensor of a run on the same device is used where it is.
    /// on_device: leave the results where they are; then the call does not wait for the device.
    /// out: arrays by the names of results, which these are written to, and which are returned: contiguous ones, each
    ///     with the element type and the shape of the result. On the processor kernels write there directly.
    ///
    /// Returns a dictionary with an array for each result, by the model's names; with on_device, a DeviceTensor.
    ///
    /// Raises weft_nn.Error: code 3 for an input that is missing, unknown, or of another type or shape; code 5 for a
    /// lost device; and what a host function raises. Other threads run meanwhile, and Ctrl-C ends the call.
    #[pyo3(signature = (inputs, *, on_device=false, out=None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        inputs: Dict<'py>,
        on_device: bool,
        out: Option<Dict<'py>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let given = self.given(&inputs.0)?;
        if let Some(out) = out {
            if on_device {
                return Err(usage("out= is for results in host memory", "leave on_device=True out"));
            }
            return self.written(py, in_memory(py, given)?, &out.0);
        }
        let stays = |given: &Given| matches!(given, Given::Device(t) if matches!(t.get().place, Place::Device(..)));
        let any_there = on_device || given.iter().any(|(_, g)| stays(g));
        if any_there && self.live()?.keeps_tensors_on_device() {
            let tensors = self.submitted(py, given)?;
            if !on_device {
                for (name, tensor) in tensors.iter() {
                    tensors.set_item(name, tensor.call_method0("numpy")?)?;
                }
            }
            return Ok(tensors);
        }
        let given = in_memory(py, given)?;
        let outputs = self.computed(py, given)?;
        let arrays = PyDict::new(py);
        outputs.into_iter().try_for_each(|(name, t)| match on_device {
            true => arrays.set_item(name, Bound::new(py, DeviceTensor { place: Place::Host(t) })?),
            false => arrays.set_item(name, array_of(py, t)?),
        })?;
        Ok(arrays)
    }

    /// Uploads an array for an input once, for many runs.
    ///
    /// name: of the input. array: with the element type and the shape of the input.
    ///
    /// Returns a DeviceTensor. Where the session computes in host memory, no kernel reads the input, or its sizes are
    /// open, it stays there.
    ///
    /// Raises weft_nn.Error: code 3 for an unknown input, another type or shape, or an open size beyond its range;
    /// code 5 without enough memory.
    fn to_device<'py>(&self, py: Python<'py>, name: &str, array: &Bound<'py, PyAny>) -> PyResult<DeviceTensor> {
        let inputs = PyDict::new(py);
        inputs.set_item(name, array)?;
        if !self.ports.iter().any(|i| i.0 == name) {
            let names: Vec<&str> = self.ports.iter().map(|i| i.0.as_str()).collect();
            let why = format!("the model has no input `{name}`; there are: {}", names.join(", "));
            return Err(raise(&weft::Error::Input(why)));
        }
        let (_, tensor) = in_memory(py, self.given(&inputs)?)?.remove(0);
        self.model.model.check_sizes_of(name, tensor.shape()).map_err(|e| raise(&e))?;
        let session = self.live()?;
        let placed = here(py, || session.input_where_read(name, &tensor))?;
        Ok(DeviceTensor { place: Place::of(placed, &self.device) })
    }

    /// As `run`, for `await`: it runs in a thread of asyncio's. Cancelling it gives the result up; the run itself goes
    /// on to its end. With `runs_in_flight` of `compile` above 1, the device works on several.
    #[pyo3(signature = (inputs, *, on_device=false))]
    fn run_async<'py>(
        slf: Bound<'py, Self>,
        inputs: Bound<'py, PyAny>,
        on_device: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let words = PyDict::new(slf.py());
        words.set_item("on_device", on_device)?;
        slf.py().import("asyncio")?.call_method("to_thread", (slf.getattr("run")?, inputs), Some(&words))
    }

    /// The inputs: a list of Port, in the model's order.
    #[getter]
    fn inputs(&self) -> Vec<Port> {
        self.model.model.inputs().into_iter().map(|(name, ty)| Port::new(name, &ty)).collect()
    }
    /// The results: a list of Port, in the model's order.
    #[getter]
    fn outputs(&self) -> Vec<Port> {
        results(&self.model.model)
    }
    /// The device: its name, backend and driver.
    #[getter]
    fn device(&self) -> String {
        self.device.label()
    }
    /// Where a run takes place: "device", "device and host", "host", or the CPU executor.
    #[getter]
    fn place(&self) -> PyResult<&'static str> {
        Ok(self.live()?.place())
    }
    /// True if the session runs on the processor, by Weft's own kernels.
    #[getter]
    fn on_processor(&self) -> bool {
        matches!(self.device, Device::Cpu(_))
    }
    /// True if mixed precision has put anything into f16.
    #[getter]
    fn is_mixed(&self) -> PyResult<bool> {
        Ok(self.live()?.is_mixed())
    }

    /// Gives back what the session holds, memory above all. Runs that are under way end as usual; later ones raise
    /// weft_nn.Error (code 2). `with weft_nn.compile(...) as session:` does this at its end.
    fn close(&self) {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }
    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyTuple>) {
        self.close();
    }

    /// Times the network.
    ///
    /// inputs: arrays by name, as `run` takes them.
    /// warmup, runs: how many runs are not counted, and how many are.
    ///
    /// Returns a dictionary: "latency_ms" from inputs in host memory to results in host memory, "device_ms" with
    /// inputs and results on the device (where the network runs there as a whole), each with median, plus_minus, p90,
    /// p99, min, mean, stddev and samples; "spent" with where the time of one run goes: its rows are all of it;
    /// "per_kernel" with the time of each kernel in that run, and the rest of what `weft bench --json` has of a run
    /// (docs/json.md).
    ///
    /// Raises weft_nn.Error as `run`.
    #[pyo3(signature = (inputs, *, warmup=10, runs=100))]
    fn bench<'py>(
        &self,
        py: Python<'py>,
        inputs: Dict<'py>,
        warmup: usize,
        runs: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let given = in_memory(py, self.given(&inputs.0)?)?;
        let (session, functions) = (self.live()?, self.options.host_functions.clone());
        let timing = Timing { warmup: Some(warmup), runs: Some(runs), ..Timing::default() };
        let settings = Settings { functions, ..Settings::of_program() };
        let done = on_thread(py, move || {
            // Says which input is missing or unknown.
            session.run(&named(&given))?;
            workbench::bench::of_session(&session, &in_order(&session, &given), &timing, &settings)
        });
        loads(py, &self.raised.or(done)?)
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
        inputs: Dict<'py>,
        against: Option<Bound<'py, PyAny>>,
        rtol: Option<f64>,
        atol: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let given = in_memory(py, self.given(&inputs.0)?)?;
        let session = self.live()?;
        let reference = reference(against.as_ref(), session.as_ref(), (&self.model, &self.options, &self.device))?;
        let against = Against { rtol, atol, ..Against::default() };
        let compared = on_thread(py, move || {
            let got: Named = session.run(&named(&given))?.into_iter().collect();
            compare::of_results(&got, &reference.results(&given)?, session.is_mixed(), &against)
        });
        loads(py, &self.raised.or(compared)?)
    }

    /// The record of the compilation, which is made for this: graphs after each pass, groups with the reasons of their
    /// borders, kernels with schedules and shaders.
    ///
    /// Raises weft_nn.Error as `compile`; code 5 for a model whose sizes data decide.
    fn trace(&self, py: Python<'_>) -> PyResult<Trace> {
        let (model, options) = (self.model.clone(), self.options.clone());
        let trace = on_thread(py, move || Ok::<_, weft::Error>(Trace::new(model.trace(&options)?)));
        self.raised.or(trace).and_then(|t| t)
    }
    /// The kernels, with their schedules and shaders: a list of Kernel, in the order of their first dispatch. They are
    /// compiled again for this.
    ///
    /// Raises weft_nn.Error as `trace`.
    #[getter]
    fn kernels(&self, py: Python<'_>) -> PyResult<Vec<Kernel>> {
        Ok(kernels(&self.trace(py)?.trace))
    }
    /// A session of the same network with other schedules.
    ///
    /// schedules: instructions (docs/schedule.md) by the names of tensor functions, as `Kernel.schedule` and
    ///     `Kernel.function` have them. All other functions keep their schedules.
    ///
    /// Returns a new Session.
    ///
    /// Raises weft_nn.Error: code 3 for a function that there is not, or a text that is no schedule or does not apply.
    fn with_schedules(&self, py: Python<'_>, schedules: BTreeMap<String, String>) -> PyResult<Session> {
        let (model, options) = (self.model.clone(), self.options.clone());
        if model.bundle.is_some() {
            return Err(usage(
                "a bundle has its kernels already",
                "compile the model itself, and change its schedules",
            ));
        }
        let (device, raised) = (self.device.clone(), self.raised.clone());
        let session = on_thread(py, move || {
            let changed = Model::new(rescheduled(&model.model, &options, &schedules)?, model.name);
            let mut options = Options { cache: weft::Cache::default(), ..options };
            // What was to change the graph has changed it.
            options.pipeline.own.clear();
            options.pipeline.config.clear();
            Session::open(changed, options, false, device, raised)
        });
        self.raised.or(session)
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
        format!("<weft_nn.Session {:?} on {}>", self.model.name, self.device.label())
    }
}
