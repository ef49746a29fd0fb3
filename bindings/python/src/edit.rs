//! Changes of a graph.

use crate::arrays::Operand;
use crate::errors::usage;
use pyo3::prelude::*;
use weft::extend::{self, Name, NodeId, OpRef, Origins, Rewriter, ValueId};

/// Adds a node before `at`; its results.
///
/// # Errors
/// Operands that the op does not take.
pub fn insert(
    r: &mut Rewriter<'_>,
    at: NodeId,
    op: OpRef,
    operands: Vec<Operand<ValueId>>,
    name: Option<Name>,
    origins: Origins,
) -> PyResult<Vec<ValueId>> {
    let name = name.unwrap_or_else(|| Name::new(&format!("{}.{}", r.f.nodes[at].name, op.name())));
    let kind = op.name();
    let mut inputs = vec![];
    for operand in operands {
        inputs.push(match operand {
            Operand::Value(v) => Some(v),
            Operand::Absent => None,
            Operand::Tensor(t) => {
                let constant = extend::Constant::from_tensor(&t);
                Some(r.constant_before(at, &format!("{name}.constant"), constant, origins.clone()))
            }
        });
    }
    r.add_before(at, op, inputs, name, origins).map_err(|e| {
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
        let mut f = new.tensor_functions[&first].clone();
        let same = |(name, there): (&Name, &extend::TensorFunction)| (*there == f).then_some(*name);
        if let Some(name) = module.tensor_functions.iter().find_map(same) {
            return Ok(name);
        }
        let taken = module.tensor_functions.contains_key(&first) || is_taken(module, first);
        let name = if taken { module.fresh_name(first.as_str()) } else { first };
        f.name = name;
        module.tensor_functions.insert(name, f);
        return Ok(name);
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
