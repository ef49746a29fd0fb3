//! `.weft` text: a whole module, or parts of one, printed and parsed. It is the format of tests, of reproducers, of
//! `weft opt` and of `weft compile --emit weft`; `docs/ir.md` has the grammar.
//!
//! Always holds: `parse(print(m))` equals `m` (see [`compare_modules`]) except for the data of large constants, which
//! stand in text by reference; `print` is canonical: `print(parse(print(m))) == print(m)`. Values and buffers are
//! renumbered in print order, and nodes that are in no block are left out. [`parse_module`] never panics. The verifier
//! may still refuse a module that it accepts.

mod compare;
mod fingerprint;
mod parse;
mod print;

pub use compare::compare_modules;
pub use fingerprint::module_fingerprint;
pub use parse::{parse_module, parse_pipeline};
pub use print::{PrintOptions, print_function, print_module, print_module_with};
pub use tensor_ir::text::{
    ParseError, edit_distance, parse_instructions, parse_templates, parse_tensor_function, print_attrs, print_cond,
    print_expr, print_instruction, print_int, print_stmt, print_tensor_function, print_type, print_value,
    random_tensor,
};

#[cfg(test)]
mod tests;
