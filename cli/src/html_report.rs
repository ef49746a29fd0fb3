//! `weft report`: a compilation as one HTML page.

use crate::args::ReportArgs;
use crate::error::{CliError, CliResult};
use crate::output::{log, si, write_file};
use graphview::report::{Beside, Measured, page};
use std::path::PathBuf;

/// Writes the report of a trace, or of a model compiled now, with what further traces of the same compilation measured.
pub fn execute(a: &ReportArgs) -> CliResult<()> {
    let mut measured = Measured::new(crate::shown::trace(&a.model, &a.input, &a.common)?);
    for path in &a.traces {
        measured.take(crate::trace::read(path)?).map_err(|e| {
            CliError::input(format!("it is of another compilation than {}: {}", a.model, e.0))
                .at(path.display().to_string())
                .help("traces of one report need the same model, device and options")
        })?;
    }
    if let Some(path) = &a.beside {
        let names = [PathBuf::from(&a.model), path.clone()].map(|p| p.display().to_string());
        measured.beside = Some(Beside { trace: crate::trace::read(path)?, names });
    }
    let html = page(&measured).map_err(|e| CliError::input(e.to_string()).at(&a.model))?;
    write_file(&a.output, html.as_bytes())?;
    log(&a.common, format!("wrote the report to {} ({}B)", a.output.display(), si(html.len() as f64)));
    Ok(())
}
