//! `weft explain`: an explanation, shown.

use crate::args::ExplainArgs;
use crate::output::{show_document, write_records};
use workbench::Result;
use workbench::explain::{Request, Subject, explain};
use workbench::record::Versioned;

/// Explains a model, a trace, or one node of either.
pub fn execute(a: &ExplainArgs) -> Result<()> {
    let request = Request {
        model: a.model.clone(),
        input: a.input.0.clone(),
        subject: subject(a),
        verbose: a.common.verbose > 0,
        settings: a.common.settings.0.clone(),
    };
    let found = explain(&request)?;
    let records: Vec<_> = found.iter().map(|e| Versioned::new(&e.record)).collect();
    if write_records(&a.common, &records)? {
        return Ok(());
    }
    found.iter().try_for_each(|e| show_document(&e.document))
}

fn subject(a: &ExplainArgs) -> Subject {
    match (&a.kernel, a.left, &a.node, &a.sort) {
        (Some(name), ..) => Subject::Kernel(name.clone()),
        (None, true, ..) => Subject::Left,
        (None, false, Some(node), _) => Subject::Node(node.clone()),
        (None, false, None, Some(by)) => Subject::Sorted(by.clone()),
        (None, false, None, None) => Subject::Model,
    }
}
