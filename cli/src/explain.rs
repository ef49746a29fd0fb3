//! `weft explain`: which kernel each node is in, what each pass did, and what stopped the next fusion.

mod model;
mod node;
mod relations;

use crate::args::ExplainArgs;
use crate::arrays::read_npz;
use crate::error::CliResult;
use crate::executor::{compile_for, target_profile};
use crate::models::load;
use relations::Relations;

/// Explains a model or one node of it.
pub fn execute(a: &ExplainArgs) -> CliResult<()> {
    if crate::trace::is_trace(&a.model) {
        return crate::trace::explain(&a.model, a.node.as_deref(), &a.common);
    }
    let given = a.input.as_ref().map(|p| read_npz(p)).transpose()?;
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
