//! `weft report`: a compile trace as one HTML page.

use crate::args::ReportArgs;
use crate::error::{CliError, CliResult};
use crate::output::{log, si, write_file};

/// Writes the report of a trace.
pub fn execute(a: &ReportArgs) -> CliResult<()> {
    let place = a.trace.display().to_string();
    let trace = crate::trace::read(&a.trace)?;
    let page = graphview::report::report(&trace).map_err(|e| CliError::input(e.to_string()).at(place))?;
    write_file(&a.output, page.as_bytes())?;
    log(&a.common, format!("wrote the report to {} ({}B)", a.output.display(), si(page.len() as f64)));
    Ok(())
}
