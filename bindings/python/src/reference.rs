//! References of comparisons.

use crate::arrays::{Dict, tensors_of};
use crate::errors::usage;
use crate::given::named;
use crate::model::Model;
use pyo3::prelude::*;
use weft::{AmpMode, Device, Options};
use workbench::arrays::Named;

/// The reference of a comparison.
pub enum Reference {
    /// Results by name.
    Given(Named),
    /// The model with other options, on a device.
    Run(Box<(Model, Options, Device)>),
}

impl Reference {
    /// The results of it for these inputs.
    ///
    /// # Errors
    /// As a run.
    pub fn results(self, inputs: &Named) -> Result<Named, weft::Error> {
        match self {
            Reference::Given(results) => Ok(results),
            Reference::Run(other) => {
                let (model, options, device) = *other;
                let session = model.compiled(&options, false)?.session(&device)?;
                Ok(session.run(&named(inputs))?.into_iter().collect())
            }
        }
    }
}

/// The reference that `against` names, for a session of this model, options and device.
///
/// # Errors
/// None of that name, or the session itself.
pub fn reference(
    against: Option<&Bound<'_, PyAny>>,
    own: &weft::Session,
    (model, options, device): (&Model, &Options, &Device),
) -> PyResult<Reference> {
    if let Some(Ok(results)) = against.map(|a| a.extract::<Dict<'_>>()) {
        return Ok(Reference::Given(tensors_of(&results.0)?));
    }
    let name = against.map_or(Ok("reference".to_string()), |a| a.str().map(|s| s.to_string()))?;
    let itself = |help: &str| Err(usage(format!("against={name:?} compares the session with itself"), help));
    let mut options = Options { cache: weft::Cache::default(), ..options.clone() };
    options.pipeline.amp = AmpMode::Off;
    let run = |options, device| Ok(Reference::Run(Box::new((model.clone(), options, device))));
    match name.as_str() {
        "reference" | "cpu" if own.place() == weft::INTERPRETER && !own.is_mixed() => {
            itself("compile for another device, with amp=\"fp16\", or give a dictionary of results")
        }
        "reference" | "cpu" => run(Options { profile: None, ..options }, Device::Interpreter),
        "fp32" if !own.is_mixed() => itself("compile with amp=\"fp16\" or amp=\"auto\""),
        "fp32" => run(options, device.clone()),
        _ => {
            let help = "it is \"reference\", \"fp32\" or a dictionary of arrays";
            Err(usage(format!("against={name:?}: no such reference"), help))
        }
    }
}
