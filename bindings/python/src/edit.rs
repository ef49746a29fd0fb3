//! Changes of a graph.

use crate::arrays::Operand;
use crate::errors::usage;
use pyo3::prelude::*;
use weft::extend::{self, BlockId, Name, NodeId, OpRef, Origins, Rewriter, ValueId};

/// Where a new node goes.
#[derive(Clone, Copy)]
pub enum Place {
    Before(NodeId),
    /// At the end of a block.
    End(BlockId),
}

/// Adds a node; its results.
///
/// # Errors
/// Operands that the op does not take.
pub fn insert(
    r: &mut Rewriter<'_>,
    at: Place,
    op: OpRef,
    operands: Vec<Operand<ValueId>>,
    name: Option<Name>,
) -> PyResult<Vec<ValueId>> {
    let kind = op.name();
    let origins = match at {
        Place::Before(n) => r.f.nodes[n].origins.clone(),
        Place::End(_) => Origins::none(),
    };
    let name = name.unwrap_or_else(|| match at {
        Place::Before(n) => Name::new(&format!("{}.{kind}", r.f.nodes[n].name)),
        Place::End(_) => Name::new(&format!("{kind}_{}", r.f.nodes.len())),
    });
    let mut inputs = vec![];
    for operand in operands {
        inputs.push(match operand {
            Operand::Value(v) => Some(v),
            Operand::Absent => None,
            Operand::Tensor(t) => {
                let (base, constant) = (format!("{name}.constant"), extend::Constant::from_tensor(&t));
                Some(match at {
                    Place::Before(n) => r.constant_before(n, &base, constant, origins.clone()),
                    Place::End(block) => r.constant_at_end(block, &base, constant, origins.clone()),
                })
            }
        });
    }
    let added = match at {
        Place::Before(n) => r.add_before(n, op, inputs, name, origins),
        Place::End(block) => r.add_at_end(block, op, inputs, name, origins),
    };
    added.map_err(|e| {
        usage(format!("`{kind}` does not take these operands: {}", e.message), format!("it is to be added as `{name}`"))
    })
}

/// Puts `new` in the place of `old`, and removes what nobody needs any more.
///
/// # Errors
/// Values of different types.
pub fn replace(r: &mut Rewriter<'_>, old: ValueId, new: ValueId) -> PyResult<()> {
    let (old_type, new_type) = (r.f.ty(old), r.f.ty(new));
    if old_type != new_type {
        let why = format!("a value of type {old_type:?} cannot be replaced by one of type {new_type:?}");
        return Err(usage(why, "add a cast, a reshape or an expand"));
    }
    r.replace(old, new);
    if let Some(n) = r.f.def_node(old) {
        sweep(r, n);
    }
    Ok(())
}

/// Removes `n` and what it alone needed, as far as that has no effects.
fn sweep(r: &mut Rewriter<'_>, n: NodeId) {
    let mut left = vec![n];
    while let Some(n) = left.pop() {
        let node = &r.f.nodes[n];
        let unused = node.outputs.iter().all(|&v| r.num_uses(v) == 0);
        if r.is_dead(n) || !unused || node.op.effects().stateful || !node.regions.is_empty() {
            continue;
        }
        let operands: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
        r.erase(n);
        left.extend(operands.into_iter().filter_map(|v| r.f.def_node(r.resolve(v))));
    }
}

/// Adds the items of `new`; the name of its first function.
///
/// # Errors
/// Names that are taken; a text without a function.
pub fn define(module: &mut extend::Module, new: extend::Module) -> Result<Name, String> {
    let first = new.tensor_functions.keys().chain(new.functions.keys()).next().copied();
    let Some(first) = first else { return Err("the text defines no function".into()) };
    // One function with another name calls nothing by it.
    if new.tensor_functions.len() == 1 && new.functions.is_empty() {
        return Ok(module.add_tensor_function(&new.tensor_functions[&first]));
    }
    let names = new.tensor_functions.keys().chain(new.functions.keys()).chain(new.constants.keys());
    if let Some(name) = names.copied().find(|&n| module.tensor_functions.contains_key(&n) || is_taken(module, n)) {
        return Err(format!("the module has a @{name} already"));
    }
    module.tensor_functions.extend(new.tensor_functions);
    module.functions.extend(new.functions);
    module.constants.extend(new.constants);
    Ok(first)
}

fn is_taken(module: &extend::Module, name: Name) -> bool {
    module.functions.contains_key(&name) || module.constants.contains_key(&name)
}
