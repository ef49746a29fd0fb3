//! A compilation as one HTML page.

use crate::error::{Error, Result};
use crate::inputs::Inputs;
use crate::settings::Settings;
use compiler::trace::CompileTrace;
use graphview::report::{Beside, Measured, page};
use std::path::PathBuf;

/// A page to make.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Path or zoo name of a model, or a trace or a bundle.
    pub model: String,
    /// Values for its inputs.
    pub input: Inputs,
    /// Further traces of the same compilation, with what they measured.
    pub traces: Vec<PathBuf>,
    /// A trace, or another model, to show beside it.
    pub beside: Option<PathBuf>,
    /// Everything else.
    pub settings: Settings,
}

/// The page of a trace, or of a model compiled now, with what further traces of the same compilation measured.
///
/// # Errors
/// Those of loading and compiling; a trace of another compilation.
pub fn report(a: &Request) -> Result<String> {
    let mut measured = Measured::new(crate::shown::trace(&a.model, &a.input, &a.settings)?);
    for path in &a.traces {
        measured.take(crate::traces::read(path)?).map_err(|e| {
            Error::input(format!("it is of another compilation than {}: {}", a.model, e.0))
                .at(path.display().to_string())
                .help("traces of one report need the same model, device and options")
        })?;
    }
    if let Some(path) = &a.beside {
        let names = [PathBuf::from(&a.model), path.clone()].map(|p| p.display().to_string());
        measured.beside = Some(Beside { trace: crate::shown::beside(&a.model, path, &a.input, &a.settings)?, names });
    }
    page(&measured).map_err(|e| Error::input(e.to_string()).at(&a.model))
}

/// The page of a trace.
///
/// # Errors
/// A trace that cannot be drawn.
pub fn of_trace(trace: CompileTrace) -> Result<String> {
    page(&Measured::new(trace)).map_err(|e| Error::input(e.to_string()))
}
