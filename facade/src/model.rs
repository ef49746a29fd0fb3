//! A network before compilation: from a file, from text, or built in Rust.

use crate::compiled::CompiledModel;
use crate::error::Error;
use crate::files::{licence, read_onnx};
use crate::options::Options;
use crate::origin::refuse_machine_code;
use crate::plain_files::read_text;
use bytes::Bytes;
use compiler::compile::check_ranges_of;
use compiler::graph::{Module, Sizes, TensorType, input_ports, set_input_shapes};
use compiler::int::DimRanges;
use compiler::name::Name;
use compiler::onnx::{ExternalData, ImportOptions, NoExternalData, import_onnx_with, onnx_inputs, onnx_metadata};
use std::path::Path;

/// A network, not yet compiled.
#[derive(Clone, Debug)]
pub struct Model {
    module: Module,
    /// The ranges of open sizes.
    ranges: DimRanges,
    licence: Option<String>,
}

impl Model {
    /// Loads an `.onnx` or `.weft` file; open first dimensions of inputs become 1. Large weights stay in the file until
    /// they are needed.
    ///
    /// # Errors
    /// A file that cannot be read or is none; operators that Weft does not have, all of them at once; sizes that are
    /// open.
    pub fn load(path: impl AsRef<Path>) -> Result<Model, Error> {
        Model::load_with(path, &Sizes::default())
    }

    /// As [`Model::load`], with sizes of inputs.
    ///
    /// # Errors
    /// As there; names that the model does not have, sizes that its nodes do not take.
    pub fn load_with(path: impl AsRef<Path>, sizes: &Sizes) -> Result<Model, Error> {
        Model::load_native(path, sizes, false)
    }

    /// As [`Model::load_with`]; `allows_native` as in [`Model::from_native_text`], for a `.weft` file.
    ///
    /// # Errors
    /// As there.
    pub fn load_native(path: impl AsRef<Path>, sizes: &Sizes, allows_native: bool) -> Result<Model, Error> {
        let path = path.as_ref();
        if path.extension().is_some_and(|e| e == "weft") {
            let text = read_text(path).map_err(|e| Error::file(path, e))?;
            return Model::from_native_text(&text, allows_native)?.with_sizes(sizes);
        }
        let (bytes, external) = read_onnx(path)?;
        Model::import(bytes, &*external, sizes).map_err(|e| e.in_file(path))
    }

    /// Imports an ONNX model with its inputs as `sizes` decides them.
    fn import(bytes: Bytes, external: &dyn ExternalData, sizes: &Sizes) -> Result<Model, Error> {
        let seen: Vec<_> = sizes.seen.iter().map(|(n, shape)| (Name::new(n), shape.clone())).collect();
        let ports = onnx_inputs(bytes.clone(), &seen)?;
        let decided = sizes.decide(&ports)?;
        let shapes = decided.closed();
        let values = sizes.values.iter().map(|(n, t)| (Name::new(n), t.clone())).collect();
        let ranges = decided.ranges.clone();
        let licence = licence(&onnx_metadata(bytes.clone())?);
        let options = ImportOptions { batch: None, dims: decided.dims.clone(), shapes, values, ranges };
        let mut module = import_onnx_with(bytes, external, &options)?;
        decided.bind(&mut module)?;
        Ok(Model { module, ranges: decided.ranges, licence })
    }

    /// An ONNX model in memory, without external data.
    ///
    /// # Errors
    /// As [`Model::load`].
    pub fn from_onnx(bytes: impl Into<Bytes>) -> Result<Model, Error> {
        Model::from_onnx_with(bytes, &Sizes::default())
    }

    /// As [`Model::from_onnx`], with sizes of inputs.
    ///
    /// # Errors
    /// As [`Model::load_with`].
    pub fn from_onnx_with(bytes: impl Into<Bytes>, sizes: &Sizes) -> Result<Model, Error> {
        Model::import(bytes.into(), &NoExternalData, sizes)
    }

    /// A model in `.weft` text.
    ///
    /// # Errors
    /// [`Error::Text`], [`Error::Schedule`], [`Error::NoEntry`]: text that does not parse or verify, with the place.
    /// [`Error::NativeText`], [`Error::MachineOptions`]: text that asks for code or folders of the machine.
    pub fn from_text(text: &str) -> Result<Model, Error> {
        Model::from_native_text(text, false)
    }

    /// As [`Model::from_text`]; `allows_native`: external targets in it may run code of the machine, such as a library
    /// or what a C compiler makes.
    ///
    /// # Errors
    /// As there.
    pub fn from_native_text(text: &str, allows_native: bool) -> Result<Model, Error> {
        let module = compiler::text::parse_module(text).map_err(|e| Error::Text(e.to_string()))?;
        compiler::verify::verify_module(&module).map_err(|list| {
            let lines: Vec<String> = list.iter().map(ToString::to_string).collect();
            Error::Text(lines.join("\n"))
        })?;
        compiler::verify::check_module(&module).map_err(|e| Error::Schedule(e.to_string()))?;
        if !module.functions.contains_key(&module.entry) {
            return Err(Error::NoEntry);
        }
        refuse_machine_code(&module, allows_native)?;
        Ok(Model::from_module(module))
    }

    /// A module built in Rust.
    pub fn from_module(module: Module) -> Model {
        Model::of_module(module, DimRanges::default())
    }

    /// A module with ranges of its open sizes.
    pub(crate) fn of_module(module: Module, ranges: DimRanges) -> Model {
        Model { module, ranges, licence: None }
    }

    /// The model with sizes for the open dimensions of its inputs.
    ///
    /// # Errors
    /// As [`Sizes::decide`]; sizes that the model's nodes do not take.
    pub fn with_sizes(mut self, sizes: &Sizes) -> Result<Model, Error> {
        let decided = sizes.decide(&input_ports(&self.module))?;
        set_input_shapes(&mut self.module, &decided.closed())?;
        decided.bind(&mut self.module)?;
        self.ranges = decided.ranges;
        Ok(self)
    }

    /// The model with its module changed, for passes.
    ///
    /// # Errors
    /// That of the change.
    pub fn changed<E>(mut self, change: impl FnOnce(&mut Module) -> Result<(), E>) -> Result<Model, Error>
    where
        Error: From<E>,
    {
        change(&mut self.module)?;
        Ok(self)
    }
    /// The model with this licence, which a bundle of it keeps as text.
    pub fn with_licence(self, licence: Option<String>) -> Model {
        Model { licence, ..self }
    }
    /// The text of its licence: that of [`Model::with_licence`], or what an ONNX file says of it.
    pub fn licence(&self) -> Option<&str> {
        self.licence.as_deref()
    }

    /// The module itself.
    pub fn module(&self) -> &Module {
        &self.module
    }
    /// Takes the module out of the model.
    pub fn into_module(self) -> Module {
        self.module
    }
    /// Names and types of the inputs, in order.
    pub fn inputs(&self) -> Vec<(String, TensorType)> {
        input_ports(&self.module).into_iter().map(|(n, t)| (n.to_string(), t)).collect()
    }
    /// Refuses a shape for the input of that name whose sizes are beyond the declared ranges.
    ///
    /// # Errors
    /// [`Error::Input`] with the dimension and its range.
    pub fn check_sizes_of(&self, name: &str, shape: &[usize]) -> Result<(), Error> {
        let ports = input_ports(&self.module);
        let Some((_, ty)) = ports.iter().find(|p| p.0.as_str() == name) else { return Ok(()) };
        check_ranges_of(ty, shape, &self.ranges).map_err(|e| Error::Input(format!("input `{name}`: {e}")))
    }
    /// Names of the results, in order.
    pub fn outputs(&self) -> Vec<String> {
        self.module.main().result_names.iter().map(|n| n.to_string()).collect()
    }
    /// Types of the results, in order.
    pub fn output_types(&self) -> Vec<TensorType> {
        let f = self.module.main();
        f.results().iter().map(|&v| f.ty(v).clone()).collect()
    }
    /// The model as an ONNX file.
    ///
    /// # Errors
    /// Nodes that ONNX has no operator for.
    pub fn to_onnx(&self) -> Result<Vec<u8>, Error> {
        compiler::onnx::export_onnx(&self.module).map_err(|e| Error::Input(e.to_string()))
    }
    /// The model as `.weft` text, which [`Model::from_text`] reads; large constants come by name and shape alone.
    pub fn text(&self) -> String {
        compiler::text::print_module(&self.module)
    }

    /// Compiles for the device of `options`; with a cache, a cached plan is used. A model that the device cannot run as
    /// a whole runs in parts, or on the interpreter; [`crate::Session::place`] tells which.
    ///
    /// # Errors
    /// [`Error::Compile`]: sizes that are open, options that do not fit, schedules that do not.
    pub fn compile(&self, options: &Options) -> Result<CompiledModel, Error> {
        CompiledModel::new(self.module.clone(), &self.ranged(options))
    }

    /// The options with the ranges of open sizes.
    pub(crate) fn ranged(&self, options: &Options) -> Options {
        let mut options = options.clone();
        options.compile.dims.extend(&self.ranges);
        options
    }
}
