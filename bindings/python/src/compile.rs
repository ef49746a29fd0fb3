//! Compilation, and the devices that it is for.

use crate::arrays::{Dict, tensors_of};
use crate::errors::{Raise, Raised, raise, usage};
use crate::host;
use crate::interrupt::on_thread;
use crate::json::loads;
use crate::model::{GivenSizes, Model, model_of, shapes_of};
use crate::passes::own_passes;
use crate::schedules::tuned;
use crate::session::Session;
use crate::targets;
use crate::tools::take;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use weft::extend::{AttrStruct, Attrs, Name, ReplaceWithHostCalls};
use weft::{AmpMode, Cache, Device, Options, Tensor, Watch};
use workbench::executor::{open_device, pipeline_options, profile_on};
use workbench::options::Heading;
use workbench::settings::Settings;

/// The devices that this process has opened: sessions on one share kernels, weights and its queue.
static DEVICES: Mutex<Option<HashMap<(String, Option<u32>), Device>>> = Mutex::new(None);

/// The device of that name, opened once; the processor with so many threads.
fn device_of(settings: &Settings) -> Result<Device, workbench::Error> {
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let devices = devices.get_or_insert_default();
    let key = (settings.device.clone(), settings.threads);
    if let Some(device) = devices.get(&key) {
        return Ok(device.clone());
    }
    let device = match (settings.device.as_str(), settings.threads) {
        (name, Some(threads)) if Device::is_processor(name) => Device::with_threads(name, threads as usize)?,
        (_, Some(_)) => open_device(settings)?,
        ("auto", None) => Device::best(),
        (name, None) => Device::open(name)?,
    };
    devices.insert(key, device.clone());
    Ok(device)
}

/// The adapters of this machine: a list of dictionaries with name, backend, driver, type and limits, as `weft devices
/// --json` has them. `device=` of `weft_nn.compile` takes an `index` or a part of a `name`.
#[pyfunction]
pub fn devices(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let list = on_thread(py, || Ok::<_, weft::Error>(weft::list_adapters()))?;
    loads(py, &list)
}

/// A request for a compilation.
pub struct Request {
    pub settings: Settings,
    pub options: Options,
    /// Inputs that calibrate mixed precision.
    pub inputs: Vec<(String, Tensor)>,
    /// Of a bundle: nothing may be compiled.
    pub require_compiled: bool,
    /// Exceptions of functions in Python.
    pub raised: Raised,
}

/// Says what a bundle makes anew.
#[derive(Default)]
struct Anew(Mutex<Vec<String>>);

impl Anew {
    /// Warns of each.
    ///
    /// # Errors
    /// A filter of warnings that makes them exceptions.
    fn warn(&self, py: Python<'_>) -> PyResult<()> {
        for why in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let text = std::ffi::CString::new(format!("{why}: the network is compiled for this device"));
            PyErr::warn(py, &py.get_type::<pyo3::exceptions::PyUserWarning>(), &text.unwrap_or_default(), 1)?;
        }
        Ok(())
    }
}

impl Watch for Anew {
    fn makes_anew(&self, why: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(why.into());
    }
}

impl Request {
    /// Opens the device, compiles the model and opens a session.
    fn open(self, model: Model) -> Result<Session, workbench::Error> {
        let device = device_of(&self.settings)?;
        let profile = profile_on(&self.settings, &device)?;
        let profile = (!matches!(device, Device::Interpreter)).then_some(profile);
        let mut options = Options { profile, ..self.options };
        if options.pipeline.amp == AmpMode::Auto {
            options = options.calibrated(&model.model, &in_order(&model.model, &self.inputs)?)?;
        }
        Ok(Session::open(model, options, self.require_compiled, device, self.raised)?)
    }
}

/// The inputs in the model's order.
fn in_order(model: &weft::Model, inputs: &[(String, Tensor)]) -> Result<Vec<Tensor>, weft::Error> {
    let find = |name: &String| inputs.iter().find(|i| i.0 == *name).map(|i| i.1.clone());
    let missing = |name| weft::Error::Input(format!("amp=\"auto\" needs a value of input `{name}` in inputs="));
    model.inputs().into_iter().map(|(name, _)| find(&name).ok_or_else(|| missing(name))).collect()
}

/// Compiles a network for a device, and opens a session that runs it.
///
/// model: a weft_nn.Model, or what `weft_nn.load` takes; `batch`, `dims`, `shapes` and `keep_open` are those of `load`.
/// device: "auto" (the best GPU; a software driver only when there is none; the CPU executor when there is no driver),
///     an index or a part of a name as `weft_nn.devices` lists them, "vulkan:0", or "cpu".
/// target: compile for a named profile (`weft devices --profiles`), as far as the device can run it.
/// amp: mixed precision: "off", "fp16", or "auto", which keeps nodes in f32 that `inputs` show to need it.
/// keep_f32: names of nodes that stay in f32 (`*` matches anything).
/// layout: "auto", "nchw", "nhwc", "nchw4c", "nchw8c", "nchw16c", or "none".
/// fuse: "full", "classic", or "off".
/// opt_level: 0 to 3.
/// threads: of the CPU; by default one for each core.
/// Further options of the command for devices and compilations (`weft help compile`), with underscores: nan="fast",
///     rules="direct", pin_layout=["NODE=nhwc"], disable_pass=["PASS"], quirk={"NAME": "off"} ...
/// cache: a folder for plans and the driver's pipelines, so that a later start compiles nothing; True is the user's
///     cache folder. cache_weights: weights too, in the form for the device.
/// runs_in_flight: runs of the session that may be under way at once, each with memory of its own.
/// inputs: arrays by name, for amp="auto".
/// passes: functions of a `weft_nn.Module`, which look at the graph and change it. They run first, on the model as it
///     was read; a pair `(function, "fuse-ops")` runs right before that pass (docs/passes.md has the names). With
///     passes nothing is taken from the cache.
/// host_functions: functions by the names with which the model calls them (`call_host`). They take the operands as
///     arrays that may not be written, and return an array, or a list of arrays. Python's lock is taken for each call.
/// host_calls: nodes that such functions replace: `{"NODE": "name"}`, with a node's name, a pattern (`*`) or "op:NAME".
/// external: external targets that take the parts which they support, each "NAME" or "NAME:OPTION=VALUE", in this order
/// of preference; `weft_nn.register_target` adds one. With one in Python nothing is taken from the cache of plans.
/// tuning: a file of `weft_nn.tune`, whose choices are used.
/// require_compiled: of a bundle: an error (code 5) if it has no plan for the device. Without, its network is then
/// compiled, and a warning says why.
/// allow_native: of a text or a bundle, as `weft_nn.load` takes it.
///
/// A bundle takes the options of sessions alone: device, cache, runs_in_flight, host_functions and these two.
///
/// Raises weft_nn.Error: as `load`; code 2 for options that do not fit, 5 for a device that is not there or has not
/// enough memory. Other threads run during the compilation, and Ctrl-C ends the call.
#[pyfunction]
#[pyo3(signature = (model, *, cache=None, cache_weights=false, runs_in_flight=1, inputs=None, batch=None, dims=None,
    shapes=None, keep_open=false, passes=vec![], host_functions=None, host_calls=None, external=vec![],
    tuning=None, require_compiled=false, allow_native=false, **options))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub fn compile(
    py: Python<'_>,
    model: &Bound<'_, PyAny>,
    cache: Option<Bound<'_, PyAny>>,
    cache_weights: bool,
    runs_in_flight: usize,
    inputs: Option<Dict<'_>>,
    batch: Option<usize>,
    dims: Option<Dict<'_>>,
    shapes: Option<Dict<'_>>,
    keep_open: bool,
    passes: Vec<Bound<'_, PyAny>>,
    host_functions: Option<Dict<'_>>,
    host_calls: Option<BTreeMap<String, String>>,
    external: Vec<String>,
    tuning: Option<PathBuf>,
    require_compiled: bool,
    allow_native: bool,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Session> {
    weft::external::register().map_err(|e| raise(&e))?;
    let mut settings = Settings { allow_native, ..Settings::of_program() };
    take(&mut settings, options, &[Heading::Device, Heading::Compiler])?;
    let raised = Raised::default();
    let asked = [
        ("inputs", inputs.is_some()),
        ("passes", !passes.is_empty()),
        ("host_calls", host_calls.is_some()),
        ("external", !external.is_empty()),
        ("tuning", tuning.is_some()),
    ];
    let of_sessions = ["device", "threads"];
    let given = settings.given.iter().map(String::as_str).find(|name| !of_sessions.contains(name));
    let of_compilation = given.or_else(|| asked.iter().find(|a| a.1).map(|a| a.0)).map(str::to_string);
    let mut options = Options { cache: cache_of(cache, cache_weights)?, runs_in_flight, ..Options::default() };
    options.pipeline = pipeline_options(&settings).map_err(|e| e.raise())?;
    options.pipeline.own = own_passes(&passes, &raised)?;
    options.pipeline.config.extend(host_calls.map(replacing));
    let mut options = with_external(options, &external)?;
    if let Some(given) = &host_functions {
        options.host_functions = host::host_functions(&given.0, &raised)?;
    }
    if let Some(path) = tuning {
        tuned(py, &mut options, &path)?;
    }
    let inputs = inputs.map(|d| tensors_of(&d.0)).transpose()?.unwrap_or_default();
    let shapes = shapes.map(|d| shapes_of(&d.0)).transpose()?;
    let dims = dims.map(|d| d.0);
    let model = model_of(model, &GivenSizes { batch, dims, shapes, values: None, keep_open }, allow_native)?;
    fits_bundle(&model, of_compilation.as_deref(), require_compiled)?;
    let anew = Arc::new(Anew::default());
    options.watch = anew.clone();
    let request = Request { settings, options, inputs, require_compiled, raised: raised.clone() };
    let session = raised.or(on_thread(py, move || request.open(model)))?;
    anew.warn(py)?;
    Ok(session)
}

/// With external targets. What targets in Python support no cache knows.
///
/// # Errors
/// As [`targets::external`].
fn with_external(mut options: Options, external: &[String]) -> PyResult<Options> {
    if external.is_empty() {
        return Ok(options);
    }
    options.cache.plans &= !targets::external(external)?;
    Ok(options.external(&external.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// Whether what was asked applies to the model: `of_compilation` is an option that changes a compilation.
///
/// # Errors
/// An option that does not apply.
fn fits_bundle(model: &Model, of_compilation: Option<&str>, require_compiled: bool) -> PyResult<()> {
    match (&model.bundle, of_compilation) {
        (Some(_), Some(option)) => {
            let why = format!("{option}= does not apply to a bundle, which is compiled already");
            Err(usage(why, "compile the model itself with it"))
        }
        (None, _) if require_compiled => {
            Err(usage("require_compiled=True is for bundles, and this is a model", "leave it out"))
        }
        _ => Ok(()),
    }
}

/// The pass that replaces nodes by calls of host functions.
fn replacing(calls: BTreeMap<String, String>) -> (String, Attrs) {
    let functions = calls.values().map(|f| Name::new(f)).collect();
    let pass = ReplaceWithHostCalls { nodes: calls.into_keys().collect(), functions, ..Default::default() };
    (ReplaceWithHostCalls::NAME.into(), pass.to_attrs())
}

/// The cache that `cache=` names.
fn cache_of(cache: Option<Bound<'_, PyAny>>, weights: bool) -> PyResult<Cache> {
    let Some(cache) = cache else { return Ok(Cache::default()) };
    let cache = match cache.extract::<bool>() {
        Ok(true) => Cache::of_user(),
        Ok(false) => Cache::default(),
        Err(_) => Cache::at(cache.extract::<PathBuf>()?),
    };
    Ok(if weights { cache.with_weights() } else { cache })
}
