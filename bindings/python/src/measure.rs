//! Times of a session, and its errors against a reference.

use crate::arrays::tensors_of;
use crate::errors::usage;
use crate::model::Model;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;
use weft::statistics::Statistics;
use weft::{AmpMode, DType, Device, Difference, Options, Tensor, Tolerance, agree};

/// A measurement to make.
pub struct Bench {
    pub session: Arc<weft::Session>,
    pub inputs: Vec<(String, Tensor)>,
    pub warmup: usize,
    pub runs: usize,
}

/// The inputs as a session takes them.
fn named(inputs: &[(String, Tensor)]) -> Vec<(&str, Tensor)> {
    inputs.iter().map(|(name, t)| (name.as_str(), t.clone())).collect()
}

/// The inputs in the model's order.
fn in_order(session: &weft::Session, inputs: &[(String, Tensor)]) -> Vec<Tensor> {
    let find = |name: &String| inputs.iter().find(|i| i.0 == *name).map(|i| i.1.clone());
    session.inputs().iter().filter_map(|(name, _)| find(name)).collect()
}

impl Bench {
    /// Times runs.
    ///
    /// # Errors
    /// As a run.
    pub fn measure(&self) -> Result<Value, weft::Error> {
        // Says which input is missing or unknown.
        self.session.run(&named(&self.inputs))?;
        let inputs = in_order(&self.session, &self.inputs);
        let Some(session) = self.session.on_device() else {
            let latency = self.repeat(|| {
                let start = Instant::now();
                self.session.run_in_order(&inputs)?;
                Ok(start.elapsed().as_secs_f64() * 1e3)
            })?;
            return Ok(json!({ "latency_ms": summary(&latency) }));
        };
        let mut split: Vec<[f64; 4]> = vec![];
        let latency = self.repeat(|| {
            let (_, t) = session.run_timed(&inputs)?;
            split.push([t.upload, t.encode, t.gpu, t.readback]);
            Ok(t.total)
        })?;
        let counted = &split[split.len() - latency.len()..];
        let part = |i: usize| Statistics::of(&counted.iter().map(|s| s[i]).collect::<Vec<_>>()).median;
        let mut resident = session.resident(&inputs)?;
        let device = self.repeat(|| Ok(resident.run()?))?;
        Ok(json!({
            "latency_ms": summary(&latency), "device_ms": summary(&device),
            "split_ms": { "upload": part(0), "encode": part(1), "gpu": part(2), "readback": part(3) },
        }))
    }

    /// Milliseconds of each run that counts, as `run` gives them.
    fn repeat(&self, mut run: impl FnMut() -> Result<f64, weft::Error>) -> Result<Vec<f64>, weft::Error> {
        for _ in 0..self.warmup {
            run()?;
        }
        (0..self.runs).map(|_| run()).collect()
    }
}

fn summary(samples: &[f64]) -> Value {
    let mut v = json!(Statistics::of(samples));
    v["samples"] = json!(samples);
    v
}

/// What results are compared with.
pub enum Reference {
    /// Results by name.
    Given(Vec<(String, Tensor)>),
    /// The model with other options, on a device.
    Run(Box<(Model, Options, Device)>),
}

/// The reference that `against` names for results of `session`, of `model` with these options on this device.
///
/// # Errors
/// None of that name, or the session itself.
pub fn reference(
    session: &weft::Session,
    (model, options, device): (&Model, &Options, &Device),
    against: Option<&Bound<'_, PyAny>>,
) -> PyResult<Reference> {
    if let Some(Ok(results)) = against.map(|a| a.cast::<PyDict>()) {
        return Ok(Reference::Given(tensors_of(results)?));
    }
    let name = against.map_or(Ok("reference".to_string()), |a| a.str().map(|s| s.to_string()))?;
    let itself = |help: &str| Err(usage(format!("against={name:?} compares the session with itself"), help));
    let mut options = Options { cache: weft::Cache::default(), ..options.clone() };
    options.pipeline.amp = AmpMode::Off;
    let run = |options, device| Ok(Reference::Run(Box::new((model.clone(), options, device))));
    match name.as_str() {
        "reference" | "cpu" if session.place() == weft::INTERPRETER && !session.is_mixed() => {
            itself("compile for another device, with amp=\"fp16\", or give a dictionary of results")
        }
        "reference" | "cpu" => run(Options { profile: None, ..options }, Device::Interpreter),
        "fp32" if !session.is_mixed() => itself("compile with amp=\"fp16\" or amp=\"auto\""),
        "fp32" => run(options, device.clone()),
        _ => {
            let help = "it is \"reference\", \"fp32\" or a dictionary of arrays";
            Err(usage(format!("against={name:?}: no such reference"), help))
        }
    }
}

impl Reference {
    fn results(self, inputs: &[(String, Tensor)]) -> Result<Vec<(String, Tensor)>, weft::Error> {
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

/// The differences of the results of a session from those of a reference.
///
/// # Errors
/// As a run; a reference without one of the results.
pub fn compare(
    session: &weft::Session,
    inputs: &[(String, Tensor)],
    reference: Reference,
    (rtol, atol): (Option<f64>, Option<f64>),
) -> Result<Value, weft::Error> {
    let outputs = session.run(&named(inputs))?;
    let wanted = reference.results(inputs)?;
    let mut rows = vec![];
    for (name, t) in outputs.iter() {
        let lacking = || weft::Error::Input(format!("the reference has no result `{name}`"));
        let want = wanted.iter().find(|w| w.0 == name).map(|w| &w.1).ok_or_else(lacking)?;
        let dtype = if session.is_mixed() { DType::F16 } else { t.dtype() };
        rows.push(row(name, &agree(t, want, &Tolerance::new(dtype, rtol, atol))));
    }
    Ok(json!({ "pass": rows.iter().all(|r| r["pass"] == true), "outputs": rows }))
}

fn row(name: &str, d: &Difference) -> Value {
    let mut v = json!(d);
    (v["name"], v["pass"], v["why"]) = (name.into(), d.pass.into(), d.why.clone().into());
    v
}
