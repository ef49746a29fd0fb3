//! Networks before compilation.

use crate::arrays::tensors_of;
use crate::errors::{Raised, raise, usage};
use crate::graph::{Module, verified};
use crate::interrupt::on_thread;
use crate::nodes::Held;
use crate::passes::{Step, run_steps};
use crate::ports::Port;
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::path::PathBuf;
use weft::Sizes;

/// A network, not yet compiled. `weft_nn.load` makes it from ONNX, `Model.from_text` from text.
#[pyclass(frozen, module = "weft_nn")]
pub struct Model {
    pub model: weft::Model,
    /// Its name in reports.
    pub name: String,
}

#[pymethods]
impl Model {
    /// A model in the text form of Weft's graphs, as `Model.text` gives it.
    ///
    /// Raises weft_nn.Error (code 3) with the line if the text does not parse or is no valid module.
    #[staticmethod]
    fn from_text(text: &str) -> PyResult<Model> {
        Ok(Model { model: weft::Model::from_text(text).map_err(|e| raise(&e))?, name: "model".into() })
    }
    /// The model as text. Large constants stand there by name and shape alone.
    fn text(&self) -> String {
        self.model.text()
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
        Ok(Model { model: raised.or(done)?, name })
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
    /// The model that an object is: one already, or a graph.
    ///
    /// # Errors
    /// A graph that is not valid.
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Option<Model>> {
        if let Ok(model) = object.cast::<Model>() {
            let Model { model, name } = model.get();
            return Ok(Some(Model { model: model.clone(), name: name.clone() }));
        }
        let Ok(module) = object.cast::<Module>() else { return Ok(None) };
        module.get().held.change(|m| {
            verified(m).map_err(|why| raise(&weft::Error::Text(why)))?;
            Ok(Some(Model { model: weft::Model::from_module(m.clone()), name: "model".into() }))
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
fn size_text(size: &Bound<'_, PyAny>) -> PyResult<String> {
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
        let serialized = match source.hasattr("SerializeToString")? {
            true => source.call_method0("SerializeToString")?,
            false => source.clone(),
        };
        match serialized.cast_into::<PyBytes>() {
            Ok(bytes) => Ok(Source::Onnx(Bytes::from_owner(Owned(bytes.unbind())))),
            Err(_) => source.extract().map(Source::Path).map_err(|_| {
                let given = source.get_type().name().map_or_else(|_| "?".into(), |n| n.to_string());
                usage(format!("a model cannot be loaded from {given}"), "give a path, bytes, or an onnx.ModelProto")
            }),
        }
    }
    fn load(self, sizes: &Sizes) -> Result<weft::Model, weft::Error> {
        match self {
            Source::Path(path) => weft::Model::load_with(path, sizes),
            Source::Onnx(bytes) => weft::Model::from_onnx_with(bytes, sizes),
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

/// The model that `source` is, or that is loaded from it.
///
/// # Errors
/// As [`load`].
pub fn model_of(source: &Bound<'_, PyAny>, given: &GivenSizes<'_>) -> PyResult<Model> {
    let (py, sizes) = (source.py(), given.decided()?);
    if let Some(Model { model, name }) = Model::of(source)? {
        let unchanged = given.is_empty();
        let sized = on_thread(py, move || if unchanged { Ok(model) } else { model.with_sizes(&sizes) })?;
        return Ok(Model { model: sized, name });
    }
    let source = Source::of(source)?;
    let name = source.name();
    Ok(Model { model: on_thread(py, move || source.load(&sizes))?, name })
}

/// Loads a network.
///
/// source: a path of an `.onnx` or `.weft` file, the bytes of an ONNX model, an `onnx.ModelProto`, or a `Module`.
/// batch: the first dimension of every input that has dimensions.
/// dims: sizes of dimensions that the model leaves open, by name: a number; `(low, high)` or `(low, high, step)`, or
///     the text "low..high:step", for one that stays open in a range; "open" for one that stays open without a range.
/// shapes: whole shapes of inputs, by name.
/// values: inputs that become constants, by name, such as sizes and axes.
/// keep_open: dimensions that nothing gives a size stay open. Otherwise a first dimension is 1, and any other one is an
///     error (code 2) that names it.
///
/// Raises weft_nn.Error: code 3 for a file that is no model, 4 for operators that Weft does not have (all of them at
/// once), 2 for sizes that are open or do not fit.
#[pyfunction]
#[pyo3(signature = (source, *, batch=None, dims=None, shapes=None, values=None, keep_open=false))]
pub fn load(
    source: &Bound<'_, PyAny>,
    batch: Option<usize>,
    dims: Option<Bound<'_, PyDict>>,
    shapes: Option<Bound<'_, PyDict>>,
    values: Option<Bound<'_, PyDict>>,
    keep_open: bool,
) -> PyResult<Model> {
    let shapes = shapes.as_ref().map(shapes_of).transpose()?;
    model_of(source, &GivenSizes { batch, dims, shapes, values, keep_open })
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
