//! Requests: a network with its sizes, and the profile that it is compiled for.

use crate::files::{Files, Named, Reading, Together};
use compiler::graph::{Module, Sizes, input_ports, set_input_shapes};
use compiler::int::{Dim, DimRanges};
use compiler::onnx::{ImportOptions, import_onnx_with, onnx_inputs, skim_model};
use compiler::profile::DeviceProfile;
use std::collections::BTreeMap;
use std::io::BufReader;
use std::sync::Arc;

/// The seed of the weights of networks without a file: the command has the same.
const SEED: u64 = 0;

/// The model to compile, and the profile.
#[derive(serde::Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// The name of a file, or of a network of the zoo.
    pub model: String,
    /// The model's file, then the files of its external data; none: a network of the zoo.
    pub files: Vec<Named>,
    /// The name of a profile, or a profile.
    pub profile: serde_json::Value,
    /// The first dimension of every input.
    pub batch: Option<usize>,
    /// Sizes of dimensions that the model leaves open, as `--dim` takes them.
    pub dims: BTreeMap<String, String>,
    /// Records each stage, for [`Network::trace`](crate::Network::trace).
    pub record: bool,
}

impl Request {
    /// The profile.
    ///
    /// # Errors
    /// A name that no profile has; a profile with values that no device has.
    pub fn profile(&self) -> Result<DeviceProfile, String> {
        match &self.profile {
            serde_json::Value::String(name) => {
                DeviceProfile::named(name).ok_or_else(|| format!("there is no profile `{name}`"))
            }
            own => compiler::profile_file::parse_profile(&own.to_string()),
        }
    }

    /// The module of the model in `files` (ONNX, or Weft's text), or of the zoo where there are none, and the ranges of
    /// the sizes that stay open. Large tensors of an ONNX file stay there until they are needed.
    ///
    /// # Errors
    /// A model that is no model; sizes that it does not have, or still needs.
    pub fn module(&self, files: Arc<dyn Files>) -> Result<(Module, DimRanges), String> {
        let mut sizes = Sizes { batch: self.batch, ..Sizes::default() };
        for (name, text) in &self.dims {
            sizes.set_dim(name, text).map_err(|why| format!("dimension `{name}` {why}, not `{text}`"))?;
        }
        let Some(model) = self.files.first() else { return self.of_zoo(&sizes) };
        if !self.model.ends_with(".weft") {
            return self.of_onnx(files, model.size, &sizes);
        }
        let wrong = |e: &dyn std::fmt::Display| format!("{}: {e}", self.model);
        let length = usize::try_from(model.size).map_err(|e| wrong(&e))?;
        let bytes = files.read(0, 0, length).map_err(|e| wrong(&e))?;
        let text = str::from_utf8(&bytes).map_err(|_| format!("{} is no text", self.model))?;
        sized(compiler::text::parse_module(text).map_err(|e| wrong(&e))?, &sizes)
    }

    fn of_zoo(&self, sizes: &Sizes) -> Result<(Module, DimRanges), String> {
        // Every network of the zoo can leave its batch open; the encoder can leave its length open too.
        let open = |name: &str| self.dims.contains_key(name).then(|| Dim::var(name));
        let batch = open("batch").unwrap_or_else(|| Dim::from(self.batch.unwrap_or(1)));
        let module = benches::zoo::build_open(&self.model, &batch, open("sequence").as_ref(), SEED);
        sized(module.map_err(|e| e.to_string())?, &Sizes { batch: None, ..sizes.clone() })
    }

    fn of_onnx(&self, files: Arc<dyn Files>, size: u64, sizes: &Sizes) -> Result<(Module, DimRanges), String> {
        let wrong = |e: &dyn std::fmt::Display| format!("{}: {e}", self.model);
        let mut file = BufReader::new(Reading { files: files.clone(), size, at: 0 });
        let bytes = skim_model(&mut file).map_err(|e| wrong(&e))?;
        let ports = onnx_inputs(bytes.clone(), &[]).map_err(|e| wrong(&e))?;
        let decided = sizes.decide(&ports).map_err(|e| wrong(&e))?;
        let (dims, shapes, ranges) = (decided.dims.clone(), decided.closed(), decided.ranges.clone());
        let options = ImportOptions { batch: None, dims, shapes, values: vec![], ranges };
        let mut module =
            import_onnx_with(bytes, &Together { files, list: self.files.clone() }, &options).map_err(|e| wrong(&e))?;
        decided.bind(&mut module).map_err(|e| wrong(&e))?;
        Ok((module, decided.ranges))
    }
}

/// A module with its open sizes decided.
fn sized(mut module: Module, sizes: &Sizes) -> Result<(Module, DimRanges), String> {
    let decided = sizes.decide(&input_ports(&module)).map_err(|e| e.to_string())?;
    set_input_shapes(&mut module, &decided.closed()).map_err(|e| e.to_string())?;
    decided.bind(&mut module).map_err(|e| e.to_string())?;
    Ok((module, decided.ranges))
}
