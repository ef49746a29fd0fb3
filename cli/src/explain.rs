//! `weft explain`: which kernel each node is in, what each pass did, what stopped the next fusion, and what was
//! measured.
//!
//! A model is compiled first, and its trace is explained, so that a model and its trace give the same output.

mod kernel;
mod left;
mod measured;
mod model;
mod names;
mod node;
mod relations;

use crate::args::ExplainArgs;
use crate::error::CliResult;
use crate::executor::{compile_options, pipeline_for, target_profile};
use crate::models::load;
use crate::parts::{Parts, compile_parts};
use compiler::compile::CompileOptions;
use compiler::trace::{CompileTrace, Contents};
pub use names::did_you_mean;
use relations::Relations;

/// Explains a model, a trace, or one node of either.
pub fn execute(a: &ExplainArgs) -> CliResult<()> {
    let (trace, parts) = match crate::trace::given(&a.model, &a.common)? {
        Some(trace) => (trace, None),
        None => compiled(a)?,
    };
    let relations = Relations::new(&trace);
    if let Some(name) = &a.kernel {
        return kernel::explain(a, &relations, name);
    }
    if a.left {
        return left::explain(a, &relations);
    }
    match (&a.node, &a.sort) {
        (Some(node), _) => node::explain(a, &relations, node),
        (None, Some(by)) => measured::explain(a, &relations, by),
        (None, None) => model::explain(a, &relations, parts.as_ref()),
    }
}

/// The compilation of a model; of one in parts, of what is known before a run, with the parts.
fn compiled(a: &ExplainArgs) -> CliResult<(CompileTrace, Option<Parts>)> {
    let given = crate::inputs::given(&a.input, &a.model, &a.common)?;
    let module = load(&a.model, &a.common, given.as_ref())?;
    let profile = target_profile(&a.common)?;
    let inputs = crate::models::calibration_inputs(&module, given.as_ref(), &a.common)?;
    // Estimates are told from the recorded stages.
    let record = a.common.verbose > 0 || a.kernel.is_some() || a.left;
    let pipeline = pipeline_for(&module, &a.common, &profile, &inputs)?;
    let options = CompileOptions { record, ..compile_options(pipeline, &a.common, &profile)? };
    let c = compile_parts(module, &options, &a.common, &profile)?;
    Ok((c.trace(&a.model, &options, Contents::Summary)?, c.parts))
}
