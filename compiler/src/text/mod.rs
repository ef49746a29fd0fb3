//! `.weft` text: a whole module, or parts of one, printed and parsed. The text is the test format, the reproducer and
//! the contract of `weft compile --emit weft`; `docs/ir.md` has the grammar.
//!
//! Always holds: `parse(print(m))` equals `m` (see [`compare_modules`]) except for the data of large constants, which
//! stand in text by reference; `print` is canonical: `print(parse(print(m))) == print(m)`. Values and buffers are
//! renumbered in print order, nodes that are in no block are left out. [`parse_module`] never panics; what it accepts
//! may still be refused by the verifier.

mod compare;
mod error;
mod fingerprint;
mod initial;
mod lexer;
mod parse;
mod print;

pub use compare::compare_modules;
pub use error::ParseError;
pub use fingerprint::module_fingerprint;
pub use initial::random_tensor;

pub use parse::{edit_distance, parse_instructions, parse_module, parse_pipeline, parse_tensor_function};
pub use print::{
    PrintOptions, print_attrs, print_cond, print_expr, print_function, print_instruction, print_int, print_module,
    print_module_with, print_stmt, print_tensor_function, print_type, print_value,
};

#[cfg(test)]
mod tests;
