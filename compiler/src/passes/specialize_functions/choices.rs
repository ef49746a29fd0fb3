//! An `if` that chooses between two functions: the use of the function moves into an `if` of the same condition.
//!
//! ```text
//! %f = if %c { %g = function @a %k; yield %g }          %y = if %c { %0 = call @a %k, %x; yield %0 }
//!            { %h = function @b; yield %h }       =>               { %1 = call @b %x; yield %1 }
//! %y = apply %f, %x
//! ```
//!
//! A value that a function captured inside its branch becomes a further result of the `if`; the other branch yields
//! zeros, which are not read.

use crate::arena::Id;
use crate::graph::{Block, Function, Module, Node, NodeId, ValueDef, ValueId};
use crate::ops::OpRef;
use crate::ops::control::{Const, If};
use crate::ops::function_values::FunctionValue;
use crate::tensor::Tensor;

/// Copies node `n` into the two branches of a new `if`, one copy for each of the two functions that its operand `at`
/// may be. False if these functions, or their captured values, are not available outside of the branches.
pub(super) fn split(module: &mut Module, f: &mut Function, n: NodeId, (at, v): (usize, ValueId)) -> bool {
    let ValueDef::Result(m, j) = f.values[v].def else { return false };
    let (Some(&Some(condition)), Some(block)) = (f.nodes[m].inputs.first(), f.nodes[n].block) else { return false };
    let mut sides = vec![];
    for s in 0..2 {
        let yielded = f.blocks[f.nodes[m].regions[s]].results[j];
        let Some(side) = expose(module, f, (m, s), yielded) else { return false };
        sides.push(side);
    }
    let choice =
        Node { op: OpRef::new(If::default()), inputs: vec![Some(condition)], regions: vec![], ..f.nodes[n].clone() };
    let choice = add_node(f, choice, block);
    for side in sides {
        let region = f.blocks.push(Block { owner: Some(choice), ..Block::default() });
        let mut inputs = f.nodes[n].inputs.clone();
        inputs[at] = Some(side);
        let one = add_node(f, Node { inputs, ..f.nodes[n].clone() }, region);
        f.blocks[region].nodes.push(one);
        f.blocks[region].results = f.nodes[one].outputs.clone();
        f.nodes[choice].regions.push(region);
    }
    for b in f.blocks[block].nodes.iter_mut().filter(|b| **b == n) {
        *b = choice;
    }
    f.nodes[n].block = None;
    let (old, new) = (f.nodes[n].outputs.clone(), f.nodes[choice].outputs.clone());
    f.replace_uses_many(&|v| old.iter().position(|&o| o == v).map_or(v, |i| new[i]));
    true
}

/// A node like `node` with results of its own, in no list of nodes yet.
fn add_node(f: &mut Function, node: Node, block: crate::graph::BlockId) -> NodeId {
    let id = NodeId::from_index(f.nodes.len());
    let types: Vec<_> = node.outputs.iter().map(|&v| (f.ty(v).clone(), f.values[v].name)).collect();
    let fresh = types.into_iter().enumerate().map(|(i, (ty, name))| f.fresh_value(ty, ValueDef::Result(id, i), name));
    let outputs = fresh.collect();
    f.nodes.push(Node { outputs, block: Some(block), ..node });
    id
}

/// Puts a node right behind node `m`.
fn put_behind(f: &mut Function, m: NodeId, node: NodeId) {
    let Some(block) = f.nodes[m].block else { return };
    let at = f.blocks[block].nodes.iter().position(|&n| n == m).map_or(0, |i| i + 1);
    f.blocks[block].nodes.insert(at, node);
}

/// The value `v` of region `s` of the `if` `m`, as one that is visible behind it.
fn expose(module: &mut Module, f: &mut Function, (m, s): (NodeId, usize), v: ValueId) -> Option<ValueId> {
    let region = f.nodes[m].regions[s];
    let ValueDef::Result(d, j) = f.values[v].def else { return Some(v) };
    if f.nodes[d].block != Some(region) {
        return Some(v);
    }
    let block = f.nodes[m].block?;
    if f.nodes[d].op.is::<FunctionValue>() || f.nodes[d].op.is::<Const>() {
        let mut inputs = vec![];
        for c in f.nodes[d].inputs.clone() {
            inputs.push(Some(expose(module, f, (m, s), c?)?));
        }
        let copy = add_node(f, Node { inputs, ..f.nodes[d].clone() }, block);
        // Behind what `expose` put there for its operands.
        let last = f.nodes[copy].inputs.iter().flatten().filter_map(|&v| f.def_node(v));
        let last = last.filter(|&n| f.nodes[n].block == Some(block)).max_by_key(|&n| position(f, n));
        let behind = last.filter(|&n| position(f, n) > position(f, m)).unwrap_or(m);
        put_behind(f, behind, copy);
        return Some(f.nodes[copy].outputs[0]);
    }
    if !f.ty(v).is_function() {
        return expose_tensor(module, f, (m, s), v);
    }
    if !f.nodes[d].op.is::<If>() {
        return None;
    }
    // A choice inside the branch: of either function, behind the branch.
    let condition = f.nodes[d].inputs.first().copied().flatten()?;
    let mut sides = vec![];
    for inner in 0..2 {
        let yielded = f.blocks[f.nodes[d].regions[inner]].results[j];
        let side = expose(module, f, (d, inner), yielded)?;
        sides.push(expose(module, f, (m, s), side)?);
    }
    let condition = expose(module, f, (m, s), condition)?;
    let choice = Node { inputs: vec![Some(condition)], outputs: vec![v], regions: vec![], ..f.nodes[d].clone() };
    let choice = add_node(f, choice, block);
    let mut behind = m;
    for &side in &sides {
        let region = f.blocks.push(Block { owner: Some(choice), results: vec![side], ..Block::default() });
        f.nodes[choice].regions.push(region);
        let def = f.def_node(side).filter(|&n| f.nodes[n].block == Some(block));
        behind = def.filter(|&n| position(f, n) > position(f, behind)).unwrap_or(behind);
    }
    put_behind(f, behind, choice);
    Some(f.nodes[choice].outputs[0])
}

/// Where a node stands in its block.
fn position(f: &Function, n: NodeId) -> Option<usize> {
    let block = f.nodes[n].block?;
    f.blocks[block].nodes.iter().position(|&m| m == n)
}

/// A tensor of a branch as a further result of the `if`.
fn expose_tensor(module: &mut Module, f: &mut Function, (m, s): (NodeId, usize), v: ValueId) -> Option<ValueId> {
    let ty = f.ty(v).clone();
    let zeros = Tensor::zeros(ty.dtype, ty.const_shape()?);
    let (here, there) = (f.nodes[m].regions[s], f.nodes[m].regions[1 - s]);
    if let Some(at) = f.blocks[here].results.iter().position(|&r| r == v) {
        return Some(f.nodes[m].outputs[at]);
    }
    let name = module.add_constant("untaken", &zeros);
    let unread = Node {
        op: OpRef::new(Const { name }),
        inputs: vec![],
        outputs: vec![v],
        regions: vec![],
        name,
        ..f.nodes[m].clone()
    };
    let unread = add_node(f, unread, there);
    f.values[f.nodes[unread].outputs[0]].name = None;
    f.blocks[there].nodes.push(unread);
    let other = f.nodes[unread].outputs[0];
    f.blocks[there].results.push(other);
    f.blocks[here].results.push(v);
    let result = f.fresh_value(ty, ValueDef::Result(m, f.nodes[m].outputs.len()), None);
    f.nodes[m].outputs.push(result);
    Some(result)
}
