//! `weft report`: a compilation as one HTML page.

use crate::args::ReportArgs;
use workbench::Result;
use workbench::figures::si;
use workbench::progress::log;
use workbench::report::{Request, report};
use workbench::written::write_file;

/// Writes the page.
pub fn execute(a: &ReportArgs) -> Result<()> {
    let request = Request {
        model: a.model.clone(),
        input: a.input.0.clone(),
        traces: a.traces.clone(),
        beside: a.beside.clone(),
        settings: a.common.settings.0.clone(),
    };
    let html = report(&request)?;
    write_file(&a.output, html.as_bytes())?;
    log(&a.common, format!("wrote the report to {} ({}B)", a.output.display(), si(html.len() as f64)));
    Ok(())
}
