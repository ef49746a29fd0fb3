//! Unscheduled tensor functions, stage by stage.

use super::bind::{Bound, bind};
use super::lockstep::interpret;
use crate::name::Name;
use crate::tensor::Tensor;
use crate::tir::{BufferId, TensorFunction};

/// Runs the stages of an unscheduled tensor function; anything else goes to the interpreter. Symbols are bound by the
/// operands' shapes. Results are in parameter order.
///
/// # Errors
/// Operands that do not fit, or an access out of bounds.
pub fn run_tensor_function(f: &TensorFunction, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    run_tensor_function_with(f, &[], inputs)
}

/// [`run_tensor_function`] with values for symbols that the operands' shapes do not bind.
///
/// # Errors
/// As [`run_tensor_function`].
pub fn run_tensor_function_with(
    f: &TensorFunction,
    symbols: &[(Name, i64)],
    inputs: &[Tensor],
) -> Result<Vec<Tensor>, String> {
    let Bound { f, inputs } = bind(f, symbols, inputs)?;
    let outputs: Vec<BufferId> = f.outputs().collect();
    execute(&f, &inputs, &outputs)
}

/// Runs a concrete function and gives the content of `outputs`, any of its global buffers.
pub(super) fn execute(f: &TensorFunction, inputs: &[Tensor], outputs: &[BufferId]) -> Result<Vec<Tensor>, String> {
    interpret(f, inputs, outputs)
}
