//! `weft bisect`: what makes a result wrong, shown.

use crate::args::BisectArgs;
use crate::output::{print_text, show_table, table, verdict, write_json};
use workbench::Result;
use workbench::bisect::{Bisection, Request, bisect};
use workbench::record::Versioned;

/// Looks for what makes a result wrong.
pub fn execute(a: &BisectArgs) -> Result<()> {
    let request = Request {
        model: a.model.clone(),
        input: a.input.0.clone(),
        right: a.right.0.clone(),
        folder: a.output.clone(),
        settings: a.common.settings.0.clone(),
    };
    crate::interrupt::asks_to_stop();
    let found = bisect(&request)?;
    if !write_json(&a.common, &Versioned::new(&found))? {
        show(&found)?;
    }
    found.failure().map_or(Ok(()), Err)
}

fn show(found: &Bisection) -> Result<()> {
    let mut t = table(&["", "tried", "difference"]);
    for row in &found.tried {
        t.add_row([verdict(row.agrees), row.what.as_str().into(), row.difference().into()]);
    }
    show_table(&t)?;
    print_text(&match &found.cause {
        Some(cause) => format!("cause: {}", cause.text),
        None if found.stopped => "the search was stopped before it found the cause".into(),
        None => format!("the results agree with {}: there is nothing to find", found.against),
    })?;
    found.reproducer.as_ref().map_or(Ok(()), |r| print_text(&r.text()))
}
