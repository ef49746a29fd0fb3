//! `--check-indices`: what was counted, shown.

use crate::output::{print_text, show_table, table};
use compiler::interpreter::NodeOutOfRange;
use workbench::Result;

/// A table of the found elements, or a message that there are none.
pub fn print_out_of_range(found: &[NodeOutOfRange]) -> Result<()> {
    if found.is_empty() {
        return print_text("no index is outside of its dimension, and no integer is divided by 0");
    }
    let mut t = table(&["out of range", "op", "elements", "first"]);
    for n in found {
        t.add_row([n.node.to_string(), n.op.to_string(), n.found.count.to_string(), n.found.first.clone()]);
    }
    show_table(&t)
}
