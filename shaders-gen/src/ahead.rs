//! Loads for the next iteration of a loop. Some compilers move loads behind arithmetic that does not need them (the
//! quirk `sinks-loads`), unless the loads stand under a condition. If the schedule has no condition, or it always
//! holds, the loads get one that always holds but that compilers cannot evaluate (`KernelEmitter::always`).

use crate::tree::{Leaf, Node};
use rustc_hash::FxHashSet;
use tensor_ir::tir::{BufferId, Scope, TensorFunction};

/// The kernel with each run of unconditional loads ahead as the body of a branch without conditions.
pub(crate) fn keep_loads(f: &TensorFunction, node: Node) -> Node {
    match node {
        Node::Seq(list) => Node::Seq(list.into_iter().map(|n| keep_loads(f, n)).collect()),
        Node::If { conds, body } => Node::If { conds, body: Box::new(keep_loads(f, *body)) },
        Node::Loop { var, extent, spread, body } => {
            let carried = if body.needs_uniform_flow(&|_| false) { carried(f, &body) } else { FxHashSet::default() };
            let body = match keep_loads(f, *body) {
                Node::Seq(list) => Node::Seq(in_branches(list, &|n| is_load(f, n, &carried))),
                other => other,
            };
            Node::Loop { var, extent, spread, body: Box::new(body) }
        }
        Node::Leaf(_) | Node::Barrier => node,
    }
}

/// Registers that the body of a loop reads before it stores to them: the iteration before filled them.
fn carried(f: &TensorFunction, body: &Node) -> FxHashSet<BufferId> {
    let (mut stored, mut carried) = (FxHashSet::default(), FxHashSet::default());
    body.visit_leaves(&mut |leaf| {
        leaf.visit_loads(&mut |b, _| {
            if f.buffers[b].scope == Scope::Register && !stored.contains(&b) {
                carried.insert(b);
            }
        });
        stored.insert(leaf.buffer);
    });
    carried
}

/// True for a load from device memory into registers of the next iteration.
fn is_load(f: &TensorFunction, n: &Node, carried: &FxHashSet<BufferId>) -> bool {
    let loads = |leaf: &Leaf| {
        let mut found = false;
        leaf.visit_loads(&mut |b, _| found |= f.buffers[b].scope == Scope::Global);
        found
    };
    matches!(n, Node::Leaf(leaf) if leaf.guards.is_empty() && carried.contains(&leaf.buffer) && loads(leaf))
}

/// The statements; neighbours for which `wanted` is true become one branch.
fn in_branches(list: Vec<Node>, wanted: &dyn Fn(&Node) -> bool) -> Vec<Node> {
    let mut out: Vec<Node> = Vec::with_capacity(list.len());
    let mut run: Vec<Node> = Vec::new();
    for n in list {
        if wanted(&n) {
            run.push(n);
            continue;
        }
        out.extend(branch(&mut run));
        out.push(n);
    }
    out.extend(branch(&mut run));
    out
}

fn branch(run: &mut Vec<Node>) -> Option<Node> {
    let body = std::mem::take(run);
    (!body.is_empty()).then(|| Node::If { conds: vec![], body: Box::new(Node::seq(body)) })
}
