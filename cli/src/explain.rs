//! `weft explain`: which kernel each node is in, what each pass did, and what stopped the next fusion.

mod model;
mod node;
mod relations;

use crate::args::ExplainArgs;
use crate::args::shared::refuse_for_trace;
use crate::error::CliResult;
use crate::executor::{compile_for, target_profile};
use crate::models::load;
use relations::Relations;

/// Explains a model or one node of it.
pub fn execute(a: &ExplainArgs) -> CliResult<()> {
    if crate::trace::is_trace(&a.model) {
        refuse_for_trace(&a.common, &a.model)?;
        return crate::trace::explain(&a.model, a.node.as_deref(), &a.common);
    }
    let given = crate::inputs::given(&a.input, &a.model, &a.common)?;
    let module = load(&a.model, &a.common, given.as_ref())?;
    let profile = target_profile(&a.common)?;
    let inputs = crate::precision::calibration_inputs(&module, given.as_ref(), &a.common)?;
    let compiled = compile_for(module, &a.common, &profile, &inputs)?;
    let relations = Relations::new(&compiled);
    match &a.node {
        Some(node) => node::explain(a, &relations, node),
        None => model::explain(a, &relations),
    }
}
