//! Printing. Every function here is total: invalid modules print too, so that messages of the verifier can show them.

mod constants;
mod graph;
mod options;

pub use graph::print_function;
pub use options::PrintOptions;

pub(super) use graph::{default_node_name, symbol_attr};

use crate::bare;
use crate::graph::Module;
use crate::name::Name;
use tensor_ir::text::print_tensor_function;

/// Text of a whole module.
pub fn print_module(m: &Module) -> String {
    print_module_with(m, PrintOptions::default())
}

/// Text of a whole module. Only the default options give text that parses to an equal module.
pub fn print_module_with(m: &Module, options: PrintOptions) -> String {
    let mut parts = Vec::new();
    if m.entry != default_entry(m) {
        parts.push(format!("entry @{}\n", bare::after_sigil(m.entry.as_str())));
    }
    let constants: String =
        m.constants.iter().map(|(n, c)| constants::print_constant(*n, c, options.inline_elements)).collect();
    if !constants.is_empty() {
        parts.push(constants);
    }
    parts.extend(m.functions.values().map(|f| graph::print_function_with(f, options)));
    parts.extend(m.tensor_functions.values().map(print_tensor_function));
    parts.join("\n")
}

/// The entry that is not written: the first graph function, or `main` where there is none.
pub(super) fn default_entry(m: &Module) -> Name {
    m.functions.keys().next().copied().unwrap_or_else(|| Name::new("main"))
}
