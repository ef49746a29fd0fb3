//! `weft bisect`: what makes a result wrong, shown.

use crate::args::BisectArgs;
use crate::output::{print_text, show_table, table, verdict, write_json};
use workbench::Result;
use workbench::bisect::{Bisection, Request, bisect};

/// Looks for what makes a result wrong.
pub fn execute(a: &BisectArgs) -> Result<()> {
    let request = Request {
        model: a.model.clone(),
        input: a.input.0.clone(),
        right: a.right.0.clone(),
        folder: a.output.clone(),
        settings: a.common.settings.0.clone(),
    };
    let found = bisect(&request)?;
    if !write_json(&a.common, &found.to_json())? {
        show(&found)?;
    }
    found.failure().map_or(Ok(()), Err)
}

fn show(found: &Bisection) -> Result<()> {
    let mut t = table(&["", "tried", "difference"]);
    for row in &found.tried {
        t.add_row([verdict(row.outcome.agrees()), row.what.as_str().into(), row.outcome.text().into()]);
    }
    show_table(&t)?;
    let cause = found.cause.as_ref().map(|c| format!("cause: {}", c.text()));
    let agreed = format!("the results agree with {}: there is nothing to find", found.against);
    print_text(&cause.unwrap_or(agreed))?;
    found.reproducer.as_ref().map_or(Ok(()), |r| print_text(&r.text()))
}
