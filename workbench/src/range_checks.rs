//! `--check-indices`: indices beyond a dimension and divisions of integers by 0, counted by the interpreter.

use crate::error::{Error, Result};
use crate::settings::Settings;
use compiler::graph::Module;
use compiler::interpreter::{Interpreter, NodeOutOfRange};
use compiler::tensor::Tensor;
use schemars::JsonSchema;
use serde::Serialize;

/// Elements that are out of range in a run of the unchanged `module` by the interpreter.
///
/// # Errors
/// A node that fails.
pub fn count_out_of_range(module: &Module, inputs: &[Tensor], settings: &Settings) -> Result<Vec<NodeOutOfRange>> {
    let mut found = Vec::new();
    let interpreter = Interpreter::new(module).with_host(settings.functions.on_tensors());
    let run = interpreter.count_out_of_range(&mut found).run(module.main().name, inputs);
    run.map_err(|e| Error::input(e.to_string()))?;
    Ok(found)
}

/// A node that reads an index outside of a dimension, or divides an integer by 0.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RangeRecord {
    /// Its name.
    pub node: String,
    /// Its op.
    pub op: &'static str,
    /// Elements out of range.
    pub count: u64,
    /// The first such element.
    pub first: String,
}

/// The found elements as `--json` has them.
pub fn records(found: &[NodeOutOfRange]) -> Vec<RangeRecord> {
    let one = |n: &NodeOutOfRange| {
        let (node, op, first) = (n.node.to_string(), n.op, n.found.first.clone());
        RangeRecord { node, op, count: n.found.count, first }
    };
    found.iter().map(one).collect()
}
