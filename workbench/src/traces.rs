//! Compile traces: made, written and read.

use crate::bundles;
use crate::error::{Code, Error, Result};
use crate::figures::si;
use crate::progress::log;
use crate::settings::Settings;
use crate::written::write_file;
use compiler::compile::{CompileOptions, Compiled};
use compiler::trace::{CompileTrace, Contents};
pub use graphview::explain::count_groups;
use std::path::Path;
use weft::plain_files::{begins_as_trace, read_plain};

/// True for a file that ends in `.trace` or begins as a trace does.
pub fn is_trace(path: &str) -> bool {
    let path = Path::new(path);
    path.extension().is_some_and(|e| e == "trace") || begins_as_trace(path)
}

/// The trace that `path` is, or that a bundle has for the profile of `--target`; `None` for a model.
///
/// # Errors
/// Code 2 for options that ask for a compilation; those of [`read`].
pub fn given(path: &str, settings: &Settings) -> Result<Option<CompileTrace>> {
    if let Some(bundle) = bundles::find(path)? {
        settings.refuse_but(path, &["target"])?;
        return Ok(Some(bundle.trace(settings.target.as_deref())?));
    }
    if !is_trace(path) {
        return Ok(None);
    }
    settings.refuse_but(path, &[])?;
    Ok(Some(read(Path::new(path))?))
}

/// Reads a trace; of a bundle, that for its first profile.
///
/// # Errors
/// Code 3 when the file cannot be read, or is no trace of this version.
pub fn read(path: &Path) -> Result<CompileTrace> {
    let place = path.display().to_string();
    if let Some(bundle) = bundles::find(&place)? {
        return Ok(bundle.trace(None)?);
    }
    let bytes = read_plain(path).map_err(|e| Error::input(format!("cannot read {place}: {e}")))?;
    CompileTrace::from_bytes(&bytes).map_err(|e| Error::input(e.to_string()).at(place))
}

/// The trace of a compilation.
///
/// # Errors
/// Code 3 when a weight cannot be read.
pub fn of(model: &str, c: &Compiled, options: &CompileOptions, contents: Contents) -> Result<CompileTrace> {
    CompileTrace::new(model, c, options, weft::emitter(&c.profile), contents).map_err(Error::input)
}

/// Writes a trace.
///
/// # Errors
/// Code 2 when the file cannot be written.
pub fn write(path: &Path, trace: &CompileTrace, settings: &Settings) -> Result<()> {
    let bytes = trace.to_bytes().map_err(|e| Error::new(Code::Bug, e.to_string()))?;
    write_file(path, &bytes)?;
    log(settings, format!("wrote the trace to {} ({}B)", path.display(), si(bytes.len() as f64)));
    Ok(())
}
