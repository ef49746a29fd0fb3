//! Printing. Every function here is total: invalid functions print too, so that messages of the verifier can show them.

mod attrs;
mod expr;
mod tensor;

pub use attrs::print_attrs;
pub use attrs::print_value;
pub use expr::{print_cond, print_expr, print_int};
pub use tensor::{print_instruction, print_stmt, print_tensor_function};

pub(super) use expr::infix_op;
pub(super) use tensor::combiner_word;

use crate::tensor_type::TensorType;

/// `f32[n,64]`
pub fn print_type(t: &TensorType) -> String {
    format!("{t:?}")
}
