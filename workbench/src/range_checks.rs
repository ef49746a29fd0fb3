//! `--check-indices`: indices beyond a dimension and divisions of integers by 0, counted by the interpreter.

use crate::error::{Error, Result};
use crate::settings::Settings;
use compiler::graph::Module;
use compiler::interpreter::{Interpreter, NodeOutOfRange};
use compiler::tensor::Tensor;

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
