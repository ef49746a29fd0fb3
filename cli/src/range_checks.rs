//! `--check-indices`: indices beyond a dimension and divisions of integers by 0, counted by the interpreter.

use crate::args::Common;
use crate::error::{CliError, CliResult};
use crate::output::{print_text, show_table, table};
use compiler::graph::Module;
use compiler::interpreter::{Interpreter, NodeOutOfRange};
use compiler::tensor::Tensor;
use serde_json::{Value, json};

/// Elements that are out of range in a run of the unchanged `module` by the interpreter.
///
/// # Errors
/// A node that fails.
pub fn count_out_of_range(module: &Module, inputs: &[Tensor], common: &Common) -> CliResult<Vec<NodeOutOfRange>> {
    let mut found = Vec::new();
    let interpreter = Interpreter::new(module).with_host(common.functions.on_tensors());
    let run = interpreter.count_out_of_range(&mut found).run(module.main().name, inputs);
    run.map_err(|e| CliError::input(e.to_string()))?;
    Ok(found)
}

/// The found elements, for JSON.
pub fn out_of_range_json(found: &[NodeOutOfRange]) -> Value {
    let node =
        |n: &NodeOutOfRange| json!({ "node": n.node, "op": n.op, "count": n.found.count, "first": n.found.first });
    found.iter().map(node).collect()
}

/// A table of the found elements, or a message that there are none.
pub fn print_out_of_range(found: &[NodeOutOfRange]) -> CliResult<()> {
    if found.is_empty() {
        return print_text("no index is outside of its dimension, and no integer is divided by 0");
    }
    let mut t = table(&["out of range", "op", "elements", "first"]);
    for n in found {
        t.add_row([n.node.to_string(), n.op.to_string(), n.found.count.to_string(), n.found.first.clone()]);
    }
    show_table(&t)
}
