//! Text of tensor functions, printed and parsed: index expressions, value expressions, attributes, schedule
//! instructions and whole functions. `docs/ir.md` has the grammar. The compiler's `text` has modules, on top of
//! [`parse::Parser`].
//!
//! Always holds: `parse(print(f))` equals `f` up to the numbering of buffers; `print` is canonical:
//! `print(parse(print(f))) == print(f)`. [`parse_tensor_function`] never panics. The verifier may still refuse a
//! function that it accepts.

mod error;
mod initial;
pub mod lexer;
pub mod parse;
mod print;

pub use error::ParseError;
pub use initial::{RandomData, random_tensor};
pub use parse::{edit_distance, parse_instructions, parse_templates, parse_tensor_function};
pub use print::{
    print_attrs, print_cond, print_expr, print_instruction, print_int, print_stmt, print_tensor_function, print_type,
    print_value,
};

#[cfg(test)]
mod tests;
