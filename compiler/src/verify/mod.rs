//! The verifier of modules. A module that it refuses is always a bug of the pass (or the text) that made it. It runs
//! after every pass in debug builds.
//!
//! Checked for a module:
//! - the entry is a graph function (if there is any graph function) and not a fused group;
//! - global names are distinct across graph functions, tensor functions and constants, and equal the keys of the
//!   tables;
//! - constants have as many bytes in memory as their type says;
//! - calls of graph functions expand to no more nodes than [`EXPANSION_LIMIT`](crate::graph::EXPANSION_LIMIT), and are
//!   not nested deeper than [`NESTING_LIMIT`](crate::graph::NESTING_LIMIT).
//!
//! Checked for a graph function:
//! - live nodes stand in exactly one block, blocks are owned by exactly one node, and both say so;
//! - definitions point back at their node or block;
//! - every operand and every block result is defined before, in the same block or an enclosing one;
//! - dimensions are not negative and read no buffer;
//! - the number of operands is within the op's arity, and result types are those that the op infers;
//! - regions of `if` and `let` take no arguments;
//! - function values are operands only of calls, `function`, `apply` and loops, and never parameters or results of the
//!   entry;
//! - operands of `call_tensor` have the types of the callee's read parameters (before prepacking);
//! - results have the declared names and types.
//!
//! The rules of tensor functions are listed in [`tensor_ir::verify`].
//!
//! Not checked here: that effectful nodes kept the order of the source; uniqueness of node names.

mod graph;
mod schedules;

pub use schedules::check_module;
pub use tensor_ir::verify::{VerifyError, verify_tensor_function};

use crate::graph::{Module, check_expansion};
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::control::CallHost;
use crate::tensor::ConstData;
use rustc_hash::FxHashMap;

/// Checks a whole module.
///
/// # Errors
/// Every broken rule.
pub fn verify_module(m: &Module) -> Result<(), Vec<VerifyError>> {
    let mut errors = Vec::new();
    let mut report = |function: Name, message: String| errors.push(VerifyError { function, place: None, message });
    if !m.functions.is_empty() && !m.functions.contains_key(&m.entry) {
        report(m.entry, "the entry is not in the module".into());
    }
    if m.functions.get(&m.entry).is_some_and(|f| f.primitive) {
        report(m.entry, "the entry is marked `primitive`, as a fused group is that another function calls".into());
    }
    if let Some(f) = m.functions.get(&m.entry)
        && let Some(v) =
            f.params().iter().chain(f.results()).find(|&&v| f.values.get(v).is_some_and(|v| v.ty.is_function()))
    {
        report(m.entry, format!("the entry takes and gives tensors, and {} is a function value", f.describe_value(*v)));
    }
    verify_names(m, &mut report);
    for (name, c) in &m.constants {
        if let ConstData::Inline(b) = &c.data
            && c.shape.iter().try_fold(c.dtype.size(), |a, &d| a.checked_mul(d)) != Some(b.len())
        {
            report(*name, format!("the constant has {} bytes, its type is {:?}", b.len(), c.ty()));
        }
    }
    for f in m.functions.values() {
        graph::verify(m, f, &mut errors);
    }
    for f in m.tensor_functions.values() {
        errors.extend(verify_tensor_function(f).err().unwrap_or_default());
    }
    if errors.is_empty()
        && let Err(message) = check_expansion(m.entry, &|name| calls_of(m, name))
    {
        errors.push(VerifyError { function: m.entry, place: None, message });
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// The nodes of a graph function, and the graph functions that they call. Those of a fused group are one kernel, so
/// only its calls count.
fn calls_of(m: &Module, name: Name) -> (u64, Vec<Name>) {
    let Some(f) = m.functions.get(&name) else { return (0, vec![]) };
    let nodes = f.walk();
    let reference = |op: &OpRef| op.downcast::<CallHost>().and_then(CallHost::reference_function);
    let called = nodes.iter().map(|&n| &f.nodes[n].op).filter_map(|op| reference(op).or_else(|| op.callee()));
    let called: Vec<Name> = called.filter(|c| m.functions.contains_key(c)).collect();
    (if f.primitive { called.len() } else { nodes.len() } as u64, called)
}

fn verify_names(m: &Module, report: &mut dyn FnMut(Name, String)) {
    let mut kinds: FxHashMap<Name, &str> = FxHashMap::default();
    let all = (m.constants.keys().map(|n| (*n, *n, "a constant")))
        .chain(m.functions.iter().map(|(k, f)| (*k, f.name, "a graph function")))
        .chain(m.tensor_functions.iter().map(|(k, f)| (*k, f.name, "a tensor function")));
    for (key, name, kind) in all {
        if key != name {
            report(key, format!("the function under this name calls itself @{name}"));
        }
        if let Some(other) = kinds.insert(key, kind) {
            report(key, format!("the name is taken by {other} and {kind}"));
        }
    }
}

#[cfg(test)]
mod tests;
