//! Counts elements that are out of range (indices, divisors of 0) in the operands of nodes that the interpreter runs.

use crate::graph::{Node, TensorType};
use crate::name::Name;
use crate::ops::OutOfRange;
use crate::tensor::Tensor;

/// What is out of range in the operands of a node, over all its runs.
#[derive(Clone, Debug, PartialEq, serde::Serialize, schemars::JsonSchema)]
pub struct NodeOutOfRange {
    /// Name of the node.
    #[schemars(with = "String")]
    pub node: Name,
    /// Name of its op.
    pub op: &'static str,
    /// The elements.
    #[serde(flatten)]
    pub found: OutOfRange,
}

/// Adds what is out of range in these operands of `node` to `all`, where they are counted.
pub(super) fn note_out_of_range(all: Option<&mut Vec<NodeOutOfRange>>, node: &Node, operands: &[Option<Tensor>]) {
    let Some(all) = all else { return };
    let own = |t: &Option<Tensor>| t.as_ref().map(|t| TensorType::fixed(t.dtype(), t.shape()));
    let types: Vec<Option<TensorType>> = operands.iter().map(own).collect();
    let types: Vec<Option<&TensorType>> = types.iter().map(Option::as_ref).collect();
    let Some(checked) = node.op.checked(&types) else { return };
    let Some(Some(elements)) = operands.get(checked.operand()) else { return };
    let found = checked.count(elements);
    match all.iter_mut().find(|n| n.node == node.name) {
        _ if found.count == 0 => {}
        Some(known) => known.found.count += found.count,
        None => all.push(NodeOutOfRange { node: node.name, op: node.op.name(), found }),
    }
}
