//! Constants of the module that is being made, and values that are known while it is.

use crate::graph::{Constant, FunctionBuilder, Origins, ValueId};
use crate::ops::int_value;

/// Adds a constant of the module named after `name`, and the node that reads it.
pub(super) fn add_constant(b: &mut FunctionBuilder<'_>, name: &str, constant: Constant) -> ValueId {
    // The entry function is not in the module yet, but its name is taken.
    let base = if name == b.module.entry.as_str() { format!("{name}_const") } else { name.to_string() };
    let global = b.module.fresh_name(&base);
    b.module.constants.insert(global, constant);
    b.set_source(Some(global));
    b.set_origins(Origins::none());
    let value = b.const_ref(global);
    if !name.is_empty() {
        b.name_value(value, name);
    }
    value
}

/// A boolean or integer scalar that is known now.
pub(super) fn known_scalar(b: &FunctionBuilder<'_>, v: ValueId) -> Option<i64> {
    int_value(b.module, &b.function, v, 0)?.first()?.as_const()
}
