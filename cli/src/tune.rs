//! `weft tune`: what a search found, shown.

use crate::args::{Common, TuneArgs};
use crate::output::{print_text, show_table, table, write_records};
use workbench::bench::seconds;
use workbench::record::Versioned;
use workbench::tune::{Request, Tuned, tune};
use workbench::{Error, Result};

/// Tunes models.
pub fn execute(a: &TuneArgs) -> Result<()> {
    let budget = seconds(&a.budget).map_err(|why| Error::usage(format!("--budget {}: {why}", a.budget)))?;
    let request = Request {
        models: a.models.clone(),
        input: a.input.0.clone(),
        budget,
        kernel: a.kernel.clone(),
        same_sums: a.same_sums,
        submit: a.submit.clone(),
        template: a.template.clone(),
        settings: a.common.settings.0.clone(),
    };
    let found = tune(&request, &mut |one| show(&a.common, one))?;
    write_records(&a.common, &found.iter().map(Versioned::new).collect::<Vec<_>>()).map(drop)
}

fn show(common: &Common, found: &Tuned) -> Result<()> {
    if common.json.as_deref() == Some("-") || common.quiet {
        return Ok(());
    }
    let mut t = table(&["layer", "share", "tried", "default us", "tuned us", "ratio", "schedule"]);
    for r in &found.functions {
        t.add_row([
            r.label.clone(),
            format!("{:.1} %", r.share * 1e2),
            r.tried.to_string(),
            format!("{:.1}", r.us[0]),
            format!("{:.1}", r.us[1]),
            format!("{:.3}", r.ratio),
            r.difference.clone(),
        ]);
    }
    show_table(&t)?;
    let refused: usize = found.functions.iter().map(|r| r.refused.len()).sum();
    if refused > 0 {
        print_text(&format!("{refused} candidates gave wrong results or did not run; --json names them"))?;
    }
    found.lines().iter().try_for_each(|line| print_text(line))
}
