//! Networks before compilation.

use crate::arrays::{Dict, tensors_of};
use crate::errors::{Raised, raise, usage};
use crate::graph::{Module, verified};
use crate::interrupt::on_thread;
use crate::nodes::Held;
use crate::passes::{Step, run_steps};
use crate::ports::Port;
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyMemoryView};
use std::path::PathBuf;
use weft::plain_files::{BUNDLE_MAGIC, begins_as_bundle};
use weft::{Bundle, CompileTrace, CompiledModel, Options, Sizes};

/// A network, not yet compiled. `weft_nn.load` makes it from ONNX, or of a bundle, which is compiled already;
/// `Model.from_text` of text.
#[pyclass(frozen, module = "weft_nn")]
#[derive(Clone)]
pub struct Model {
    pub model: weft::Model,
    /// Its name in reports.
    pub name: String,
    /// The bundle that it is the network of.
    pub bundle: Option<Bundle>,
}

#[pymethods]
impl Model {
    /// A model in the text form of Weft's graphs, as `Model.text` gives it.
    ///
    /// allow_native: its external targets may run code of the machine (libraries, what a C compiler makes).
    ///
    /// Raises weft_nn.Error: code 3 with the line if the text does not parse or is no valid module; 2 for code of the
    /// machine that is not allowed.
    #[staticmethod]
    #[pyo3(signature = (text, *, allow_native=false))]
    fn from_text(text: &str, allow_native: bool) -> PyResult<Model> {
        let model = weft::Model::from_native_text(text, allow_native).map_err(|e| raise(&e))?;
        Ok(Model::new(model, "model".into()))
    }
    /// The model as text. Large constants stand there by name and shape alone.
    fn text(&self) -> String {
        self.model.text()
    }
    /// The model as the bytes of an ONNX file.
    ///
    /// Raises weft_nn.Error: code 3 for nodes that ONNX has no operator for.
    fn to_onnx<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let model = self.model.clone();
        Ok(PyBytes::new(py, &on_thread(py, move || model.to_onnx())?))
    }
    /// Its graph, to look at and to change: a copy, which `weft_nn.load` and `weft_nn.compile` take as a model.
    fn module(&self) -> Module {
        Module { held: Held::new(self.model.module().clone()) }
    }
    /// The model behind some passes, as `weft opt` makes it.
    ///
    /// passes: names of passes, with options if there are some, such as "fold-constants" or "fuse-ops {max_group=4}"
    ///     (docs/passes.md); or functions of a Module, as `weft_nn.compile` takes them.
    ///
    /// Returns a new model.
    ///
    /// Raises weft_nn.Error: code 2 for a pass that there is not, 3 if a function leaves an invalid module; and what a
    /// function raises.
    #[pyo3(signature = (*passes))]
    fn passed(&self, py: Python<'_>, passes: Vec<Bound<'_, PyAny>>) -> PyResult<Model> {
        let raised = Raised::default();
        let steps = passes.iter().map(|p| Step::of(p, &raised)).collect::<PyResult<Vec<_>>>()?;
        let (model, name) = (self.model.clone(), self.name.clone());
        let done = on_thread(py, move || run_steps(model, &steps));
        Ok(Model::new(raised.or(done)?, name))
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
    fn __repr__(&self) -> String {
        format!("<weft_nn.Model {:?}>", self.name)
    }
}

impl Model {
    /// A network that is no bundle's.
    pub fn new(model: weft::Model, name: String) -> Model {
        Model { model, name, bundle: None }
    }
    /// The network of a bundle.
    ///
    /// # Errors
    /// A damaged bundle.
    fn of_bundle(bundle: Bundle, name: String) -> Result<Model, weft::Error> {
        Ok(Model { model: bundle.model()?, name, bundle: Some(bundle) })
    }
    /// Itself, with code of the machine allowed.
    fn allowing_native(self, allows: bool) -> Model {
        if allows { Model { bundle: self.bundle.map(Bundle::allow_native), ..self } } else { self }
    }
    /// Compiled with these options; of a bundle, by its plan for their profile. `require`: nothing may be compiled.
    ///
    /// # Errors
    /// As compiling; a bundle without such a plan.
    pub fn compiled(&self, options: &Options, require: bool) -> Result<CompiledModel, weft::Error> {
        match &self.bundle {
            Some(bundle) => bundle.compile(options, require),
            None => self.model.compile(options),
        }
    }
    /// The record of its compilation; of a bundle, that for the profile of the options, else for its first one.
    ///
    /// # Errors
    /// As compiling.
    pub fn trace(&self, options: &Options) -> Result<CompileTrace, weft::Error> {
        let Some(bundle) = &self.bundle else { return self.model.trace(&self.name, options) };
        let wanted = options.profile.as_ref().map(|p| p.name.as_str());
        bundle.trace(wanted.filter(|name| bundle.profiles().contains(name)))
    }
    /// The model that an object is: one already, or a graph.
    ///
    /// # Errors
    /// A graph that is not valid.
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Option<Model>> {
        if let Ok(model) = object.cast::<Model>() {
            return Ok(Some(model.get().clone()));
        }
        let Ok(module) = object.cast::<Module>() else { return Ok(None) };
        module.get().held.change(|m| {
            verified(m).map_err(|why| raise(&weft::Error::Text(why)))?;
            Ok(Some(Model::new(weft::Model::from_module(m.clone()), "model".into())))
        })
    }
}

/// The results of a model.
pub fn results(model: &weft::Model) -> Vec<Port> {
    model.outputs().into_iter().zip(model.output_types()).map(|(name, ty)| Port::new(name, &ty)).collect()
}

/// Sizes as the functions of the package take them.
#[derive(Default)]
pub struct GivenSizes<'py> {
    pub batch: Option<usize>,
    pub dims: Option<Bound<'py, PyDict>>,
    pub shapes: Option<Vec<(String, Vec<usize>)>>,
    pub values: Option<Bound<'py, PyDict>>,
    pub keep_open: bool,
}

impl GivenSizes<'_> {
    /// True if nothing is given.
    pub fn is_empty(&self) -> bool {
        let GivenSizes { batch, dims, shapes, values, keep_open } = self;
        batch.is_none() && dims.is_none() && shapes.is_none() && values.is_none() && !keep_open
    }
    /// As the library takes them.
    ///
    /// # Errors
    /// A size that is none.
    pub fn decided(&self) -> PyResult<Sizes> {
        let mut sizes = Sizes {
            batch: self.batch,
            shapes: self.shapes.clone().unwrap_or_default(),
            keep_open: self.keep_open,
            values: self.values.as_ref().map(tensors_of).transpose()?.unwrap_or_default(),
            ..Sizes::default()
        };
        for (name, size) in self.dims.iter().flat_map(|d| d.iter()) {
            let (name, text) = (name.extract::<String>()?, size_text(&size)?);
            sizes.set_dim(&name, &text).map_err(|why| {
                usage(
                    format!("dims: {name:?}: {text}: {why}"),
                    "a size is a number, (low, high), (low, high, step), a text such as \"1..64\", or \"open\"",
                )
            })?;
        }
        Ok(sizes)
    }
}

/// A size of `dims` as `Sizes::set_dim` reads it: a number or text as it stands, a range as `A..B:STEP`.
pub fn size_text(size: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok((low, high)) = size.extract::<(i64, i64)>() {
        return Ok(format!("{low}..{high}"));
    }
    match size.extract::<(i64, i64, i64)>() {
        Ok((low, high, step)) => Ok(format!("{low}..{high}:{step}")),
        Err(_) => Ok(size.str()?.to_string()),
    }
}

/// The source of a model.
enum Source {
    Path(PathBuf),
    Onnx(Bytes),
}

/// The bytes of a Python object.
struct Owned(Py<PyBytes>);
impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        Python::attach(|py| {
            let bytes = self.0.bind(py).as_bytes();
            // SAFETY: an object of bytes never changes, and lives as long as `self`.
            unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) }
        })
    }
}

impl Source {
    fn of(source: &Bound<'_, PyAny>) -> PyResult<Source> {
        let serialized = if source.hasattr("SerializeToString")? {
            source.call_method0("SerializeToString")?
        } else if source.hasattr("read")? {
            source.call_method0("read")?
        } else if source.is_instance_of::<PyByteArray>() || source.is_instance_of::<PyMemoryView>() {
            PyBytes::new(source.py(), &source.extract::<Vec<u8>>()?).into_any()
        } else {
            source.clone()
        };
        match serialized.cast_into::<PyBytes>() {
            Ok(bytes) => Ok(Source::Onnx(Bytes::from_owner(Owned(bytes.unbind())))),
            Err(_) => source.extract().map(Source::Path).map_err(|_| {
                let given = source.get_type().name().map_or_else(|_| "?".into(), |n| n.to_string());
                usage(
                    format!("a model cannot be loaded from {given}"),
                    "give a path, bytes, an open file, or an onnx.ModelProto",
                )
            }),
        }
    }
    fn is_bundle(&self) -> bool {
        match self {
            Source::Path(path) => begins_as_bundle(path),
            Source::Onnx(bytes) => bytes.starts_with(BUNDLE_MAGIC),
        }
    }
    fn is_text(&self) -> bool {
        matches!(self, Source::Path(path) if path.extension().is_some_and(|e| e == "weft"))
    }
    fn load(self, sizes: &Sizes, allow_native: bool) -> Result<Model, weft::Error> {
        let (name, is_bundle) = (self.name(), self.is_bundle());
        match self {
            Source::Path(path) if is_bundle => Model::of_bundle(Bundle::open(path)?, name),
            Source::Onnx(bytes) if is_bundle => Model::of_bundle(Bundle::from_bytes(bytes)?, name),
            Source::Path(path) => Ok(Model::new(weft::Model::load_native(path, sizes, allow_native)?, name)),
            Source::Onnx(bytes) => Ok(Model::new(weft::Model::from_onnx_with(bytes, sizes)?, name)),
        }
    }
    fn metadata(self) -> Result<Vec<(String, String)>, weft::Error> {
        match self {
            Source::Path(path) => weft::files::metadata(weft::files::read_onnx(&path)?.0),
            Source::Onnx(bytes) => weft::files::metadata(bytes),
        }
    }
    fn name(&self) -> String {
        match self {
            Source::Path(path) => path.display().to_string(),
            Source::Onnx(_) => "model".into(),
        }
    }
}

/// The model that `source` is, or that is loaded from it. `allow_native`: a text or a bundle may run code of the
/// machine.
///
/// # Errors
/// As [`load`].
pub fn model_of(source: &Bound<'_, PyAny>, given: &GivenSizes<'_>, allow_native: bool) -> PyResult<Model> {
    let not_native = || usage("allow_native=True is for texts and bundles, and this is a model", "leave it out");
    let (py, sizes) = (source.py(), given.decided()?);
    let has_sizes =
        || usage("a bundle has its sizes already", "load it without batch=, dims=, shapes=, values= and keep_open=");
    if let Some(model) = Model::of(source)? {
        if allow_native && model.bundle.is_none() {
            return Err(not_native());
        }
        if given.is_empty() {
            return Ok(model.allowing_native(allow_native));
        }
        if model.bundle.is_some() {
            return Err(has_sizes());
        }
        let name = model.name;
        let sized = on_thread(py, move || model.model.with_sizes(&sizes))?;
        return Ok(Model::new(sized, name));
    }
    let source = Source::of(source)?;
    if !given.is_empty() && source.is_bundle() {
        return Err(has_sizes());
    }
    if allow_native && !source.is_bundle() && !source.is_text() {
        return Err(not_native());
    }
    Ok(on_thread(py, move || source.load(&sizes, allow_native))?.allowing_native(allow_native))
}

/// Loads a network.
///
/// source: a path of an `.onnx` or `.weft` file or of a bundle (docs/bundle.md), the bytes of an ONNX model or of a
/// bundle, a file that is open for reading bytes, an `onnx.ModelProto`, or a `Module`.
/// batch: the first dimension of every input that has dimensions.
/// dims: sizes of dimensions that the model leaves open, by name: a number; `(low, high)` or `(low, high, step)`, or
///     the text "low..high:step", for one that stays open in a range; "open" for one that stays open without a range.
/// shapes: whole shapes of inputs, by name.
/// values: inputs that become constants, by name, such as sizes and axes.
/// keep_open: dimensions that nothing gives a size stay open. Otherwise a first dimension is 1, and any other one is an
///     error (code 2) that names it.
/// allow_native: of a text or a bundle: its external targets may run code of the machine (libraries, what a C compiler
///     makes). Without, loading such a text, and compiling such a bundle, is an error (code 2).
///
/// Raises weft_nn.Error: code 3 for a file that is no model or is damaged, 4 for operators that Weft does not have (all
/// of them at once), 2 for sizes that are open or do not fit.
#[pyfunction]
#[pyo3(signature = (source, *, batch=None, dims=None, shapes=None, values=None, keep_open=false,
    allow_native=false))]
pub fn load(
    source: &Bound<'_, PyAny>,
    batch: Option<usize>,
    dims: Option<Dict<'_>>,
    shapes: Option<Dict<'_>>,
    values: Option<Dict<'_>>,
    keep_open: bool,
    allow_native: bool,
) -> PyResult<Model> {
    let shapes = shapes.map(|d| shapes_of(&d.0)).transpose()?;
    let (dims, values) = (dims.map(|d| d.0), values.map(|d| d.0));
    model_of(source, &GivenSizes { batch, dims, shapes, values, keep_open }, allow_native)
}

/// Shapes by name.
///
/// # Errors
/// A shape that is none.
pub fn shapes_of(shapes: &Bound<'_, PyDict>) -> PyResult<Vec<(String, Vec<usize>)>> {
    shapes.iter().map(|(name, shape)| Ok((name.extract()?, shape.extract()?))).collect()
}

/// The notes of an ONNX model's producer: a dictionary of texts.
///
/// source: as `load` takes it, but for text.
#[pyfunction]
pub fn metadata(source: &Bound<'_, PyAny>) -> PyResult<std::collections::HashMap<String, String>> {
    let (py, source) = (source.py(), Source::of(source)?);
    Ok(on_thread(py, move || source.metadata())?.into_iter().collect())
}
