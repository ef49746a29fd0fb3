//! `weft results`: benchmarks of many machines in a folder, and their page.

use crate::args::{ResultsAction, ResultsArgs};
use crate::output::{print_text, write_json};
use workbench::figures::si;
use workbench::progress::log;
use workbench::record::Versioned;
use workbench::results::{add, page};
use workbench::written::write_file;
use workbench::{Error, Result};

/// Runs the command.
pub fn execute(a: &ResultsArgs) -> Result<()> {
    match (a.action, &a.output) {
        (ResultsAction::Add, Some(_)) => {
            Err(Error::usage("-o is of `weft results page`; `add` writes into the folder"))
        }
        (ResultsAction::Add, None) => added(a),
        (ResultsAction::Page, _) if !a.files.is_empty() => {
            Err(Error::usage("`weft results page` takes no files").help("`weft results add` files them in the folder"))
        }
        (ResultsAction::Page, output) => {
            let html = page(&a.folder)?;
            output.iter().try_for_each(|o| write_file(o, html.as_bytes()))?;
            let written = output.as_ref().map(|o| o.display().to_string()).unwrap_or_default();
            log(&a.common, format!("wrote the page to {written} ({}B)", si(html.len() as f64)));
            Ok(())
        }
    }
}

fn added(a: &ResultsArgs) -> Result<()> {
    let found = add(&a.files, &a.folder)?;
    let error = found.error();
    if !write_json(&a.common, &Versioned::new(&found))? {
        found.filed.iter().try_for_each(|name| print_text(&format!("filed {name}")))?;
        found.there.iter().try_for_each(|name| print_text(&format!("there already: {name}")))?;
    }
    error.map_or(Ok(()), Err)
}
