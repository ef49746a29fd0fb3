//! A network as it came: from a file, from text, or built in Rust.

use crate::compiled::CompiledModel;
use crate::error::Error;
use crate::files::read_onnx;
use crate::options::Options;
use crate::plain_files::read_text;
use compiler::graph::{Module, TensorType, choose_shapes, input_ports, set_input_shapes};
use compiler::name::Name;
use compiler::onnx::{ImportOptions, NoExternalData, import_onnx, import_onnx_with, onnx_inputs};
use compiler::tensor::Tensor;
use std::path::Path;

/// Sizes that a model leaves open, and inputs whose values are known.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    /// The first dimension of every input that has dimensions.
    pub batch: Option<usize>,
    /// Sizes of named dimensions.
    pub dims: Vec<(String, usize)>,
    /// Whole shapes of inputs, by name; they go before the others.
    pub shapes: Vec<(String, Vec<usize>)>,
    /// Inputs of an ONNX model that become constants, such as sizes and axes.
    pub values: Vec<(String, Tensor)>,
}

impl Sizes {
    /// The shapes of `ports`; an open first dimension is 1 where nothing says otherwise.
    fn shapes(&self, ports: Vec<(Name, TensorType)>) -> Result<Vec<(Name, Vec<usize>)>, Error> {
        let names: Vec<Name> = ports.iter().map(|p| p.0).collect();
        let shapes: Vec<_> = self.shapes.iter().map(|(n, s)| (Name::new(n), s.clone())).collect();
        let mut dims: Vec<_> = self.dims.iter().map(|(n, d)| (Name::new(n), *d as i64)).collect();
        let open = choose_shapes(ports.clone(), self.batch, &dims, &shapes)?;
        let firsts = open.iter().filter_map(|t| t.shape.first()?.as_var());
        for symbol in firsts {
            if !dims.iter().any(|d| d.0 == symbol) {
                dims.push((symbol, 1));
            }
        }
        let types = choose_shapes(ports, self.batch, &dims, &shapes)?;
        let closed = names.into_iter().zip(types).map(|(name, ty)| match ty.const_shape() {
            Some(shape) => Ok((name, shape)),
            None => Err(Error::Input(format!("input `{name}` is {ty:?}: give the sizes that the model leaves open"))),
        });
        closed.collect()
    }
}

/// A network, not yet compiled.
#[derive(Clone, Debug)]
pub struct Model {
    module: Module,
}

impl Model {
    /// Loads an `.onnx` or `.weft` file; what it leaves open of its inputs' first dimensions is 1. Large weights stay in the file until they
    /// are needed.
    ///
    /// # Errors
    /// A file that cannot be read or is none; operators that Weft does not have, all of them at once; sizes that are open.
    pub fn load(path: impl AsRef<Path>) -> Result<Model, Error> {
        Model::load_with(path, &Sizes::default())
    }

    /// As [`Model::load`], with sizes of inputs.
    ///
    /// # Errors
    /// As there; names that the model does not have, sizes that its nodes do not take.
    pub fn load_with(path: impl AsRef<Path>, sizes: &Sizes) -> Result<Model, Error> {
        let path = path.as_ref();
        if path.extension().is_some_and(|e| e == "weft") {
            let text = read_text(path).map_err(|e| Error::file(path, e))?;
            return Model::from_text(&text)?.with_sizes(sizes);
        }
        let (bytes, external) = read_onnx(path)?;
        let ports = onnx_inputs(bytes.clone()).map_err(|e| Error::onnx(path, e))?;
        let shapes = sizes.shapes(ports)?;
        let values = sizes.values.iter().map(|(n, t)| (Name::new(n), t.clone())).collect();
        let options = ImportOptions { shapes, values, ..ImportOptions::default() };
        let module = import_onnx_with(bytes, &*external, &options).map_err(|e| Error::onnx(path, e))?;
        Ok(Model { module })
    }

    /// An ONNX model in memory, without external data.
    ///
    /// # Errors
    /// As [`Model::load`].
    pub fn from_onnx(bytes: impl Into<bytes::Bytes>) -> Result<Model, Error> {
        let module = import_onnx(bytes.into(), &NoExternalData).map_err(|e| Error::onnx(Path::new("model"), e))?;
        Model { module }.with_sizes(&Sizes::default())
    }

    /// A model in `.weft` text.
    ///
    /// # Errors
    /// [`Error::Text`], [`Error::Schedule`], [`Error::NoEntry`]: what does not parse or verify, with its place.
    pub fn from_text(text: &str) -> Result<Model, Error> {
        let module = compiler::text::parse_module(text).map_err(|e| Error::Text(e.to_string()))?;
        compiler::verify::verify_module(&module).map_err(|list| {
            let lines: Vec<String> = list.iter().map(ToString::to_string).collect();
            Error::Text(lines.join("\n"))
        })?;
        compiler::schedule::check_module(&module).map_err(|e| Error::Schedule(e.to_string()))?;
        if !module.functions.contains_key(&module.entry) {
            return Err(Error::NoEntry);
        }
        Ok(Model { module })
    }

    /// A module built in Rust.
    pub fn from_module(module: Module) -> Model {
        Model { module }
    }

    fn with_sizes(mut self, sizes: &Sizes) -> Result<Model, Error> {
        let shapes = sizes.shapes(input_ports(&self.module))?;
        set_input_shapes(&mut self.module, &shapes)?;
        Ok(self)
    }

    /// The module itself.
    pub fn module(&self) -> &Module {
        &self.module
    }
    /// Names and types of the inputs, in order.
    pub fn inputs(&self) -> Vec<(String, TensorType)> {
        input_ports(&self.module).into_iter().map(|(n, t)| (n.to_string(), t)).collect()
    }
    /// Names of the results, in order.
    pub fn outputs(&self) -> Vec<String> {
        self.module.main().result_names.iter().map(|n| n.to_string()).collect()
    }

    /// Compiles for the device that `options` name; with a cache, a plan that is there is taken. What the device cannot run as a whole
    /// runs in parts, or on the CPU executor: [`crate::Session::place`] says so.
    ///
    /// # Errors
    /// [`Error::Compile`]: sizes that are open, options that do not fit, schedules that do not.
    pub fn compile(&self, options: &Options) -> Result<CompiledModel, Error> {
        CompiledModel::new(self.module.clone(), options)
    }
}
