//! Folding of shape arithmetic during import.
//!
//! Shapes are often computed by chains of small nodes, and must be known when a node that uses them is imported: the
//! importers of Pad and Reshape read them once. So a node whose result is known and small is replaced by a constant at
//! once.

use super::constants::add_constant;
use crate::arena::Id;
use crate::dtype::DType;
use crate::graph::{Constant, FunctionBuilder, NodeId, ValueId};
use crate::interpreter::eval_node;
use crate::ops::control::Const;
use crate::ops::{const_value, int_value};
use crate::tensor::Tensor;

/// The most elements of an operand or result.
const SIZE_LIMIT: usize = 1024;

/// Replaces those nodes from `first` on whose results are known by constants named after `name`; returns `results` with
/// the replacements.
pub(super) fn fold_new_nodes(
    b: &mut FunctionBuilder<'_>,
    first: usize,
    name: &str,
    mut results: Vec<ValueId>,
) -> Vec<ValueId> {
    let last = b.function.nodes.len();
    for n in (first..last).map(NodeId::from_index) {
        let Some(values) = fold(b, n) else { continue };
        let old = b.function.nodes[n].outputs.clone();
        unlink(b, n);
        for (from, t) in old.into_iter().zip(values) {
            let to = add_constant(b, name, Constant::from_tensor(&t));
            b.function.values[to].name = None;
            for m in (n.index() + 1..last).map(NodeId::from_index) {
                b.function.nodes[m].inputs.iter_mut().flatten().filter(|v| **v == from).for_each(|v| *v = to);
            }
            results.iter_mut().filter(|v| **v == from).for_each(|v| *v = to);
            hoist(b, to, n);
        }
    }
    results
}

/// The results of a node, where they are known now.
fn fold(b: &FunctionBuilder<'_>, n: NodeId) -> Option<Vec<Tensor>> {
    let node = &b.function.nodes[n];
    if node.op.is::<Const>() || !node.regions.is_empty() || node.op.effects().stateful {
        return None;
    }
    let small = |v: ValueId| {
        let shape = b.ty(v).const_shape()?;
        (shape.iter().product::<usize>() <= SIZE_LIMIT).then_some(shape)
    };
    if let [v] = node.outputs[..]
        && !b.ty(v).dtype.is_float()
        && let Some(shape) = small(v)
        && let Some(known) = int_value(b.module, &b.function, v, 0)
        && let Some(values) = known.iter().map(|d| d.as_const()).collect::<Option<Vec<i64>>>()
        && values.len() == shape.iter().product::<usize>()
    {
        return Some(vec![Tensor::from_i64(b.ty(v).dtype, shape, &values)]);
    }
    let mut inputs = Vec::with_capacity(node.inputs.len());
    for v in &node.inputs {
        inputs.push(match v {
            Some(v) => {
                small(*v)?;
                // Bytes are no shapes, but weights and their zero points, which passes look for.
                if matches!(b.ty(*v).dtype, DType::I8 | DType::U8) {
                    return None;
                }
                Some(const_value(b.module, &b.function, *v)?)
            }
            None => None,
        });
    }
    if inputs.is_empty() || node.outputs.iter().any(|&v| small(v).is_none()) {
        return None;
    }
    eval_node(&node.op, &inputs, b.module).ok().filter(|t| t.len() == node.outputs.len())
}

/// Takes a node out of its block; new nodes are at the end.
fn unlink(b: &mut FunctionBuilder<'_>, n: NodeId) {
    let Some(block) = b.function.nodes[n].block.take() else { return };
    let nodes = &mut b.function.blocks[block].nodes;
    if let Some(at) = nodes.iter().rposition(|&m| m == n) {
        nodes.remove(at);
    }
}

/// Moves a constant from the end of its block to before all nodes that came after `folded`, since they may read it.
fn hoist(b: &mut FunctionBuilder<'_>, constant: ValueId, folded: NodeId) {
    let Some(node) = b.function.def_node(constant) else { return };
    let Some(block) = b.function.nodes[node].block else { return };
    let nodes = &mut b.function.blocks[block].nodes;
    let at = nodes.iter().rposition(|m| m.index() < folded.index()).map_or(0, |i| i + 1);
    nodes.pop();
    nodes.insert(at, node);
}
