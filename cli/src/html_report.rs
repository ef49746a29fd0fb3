//! `weft report`: a compile trace as one HTML page.

use crate::args::ReportArgs;
use crate::error::{CliError, CliResult};
use crate::output::{log, si, write_file};
use graphview::report::{Measured, page};

/// Writes the report of a trace, with what further traces of the same compilation measured.
pub fn execute(a: &ReportArgs) -> CliResult<()> {
    let mut measured = Measured::default();
    for (i, path) in a.traces.iter().enumerate() {
        let trace = crate::trace::read(path)?;
        match i {
            0 => measured = Measured::new(trace),
            _ => measured.take(trace).map_err(|e| {
                let first = a.traces[0].display();
                CliError::input(format!("it is of another compilation than {first}: {}", e.0))
                    .at(path.display().to_string())
                    .help("traces of one report need the same model, device and options")
            })?,
        }
    }
    let place = a.traces.first().map_or(String::new(), |p| p.display().to_string());
    let html = page(&measured).map_err(|e| CliError::input(e.to_string()).at(place))?;
    write_file(&a.output, html.as_bytes())?;
    log(&a.common, format!("wrote the report to {} ({}B)", a.output.display(), si(html.len() as f64)));
    Ok(())
}
