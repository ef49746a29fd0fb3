//! Execution order of the nodes of a graph: as written where that is right, sorted where it is not.

use super::super::error::ImportError;
use super::super::proto::{GraphProto, NodeProto};
use crate::name::Name;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Names that `node` reads: its operands, and what its branches and bodies capture.
fn reads<'p>(node: &'p NodeProto, out: &mut Vec<&'p str>) {
    out.extend(node.input.iter().map(String::as_str).filter(|n| !n.is_empty()));
    for g in node.attribute.iter().filter_map(|a| a.g.as_ref()) {
        captures(g, out);
    }
}

/// Names that `g` reads and does not define.
fn captures<'p>(g: &'p GraphProto, out: &mut Vec<&'p str>) {
    let inputs = g.input.iter().filter_map(|v| v.name.as_deref());
    let constants = g.initializer.iter().filter_map(|t| t.name.as_deref());
    let results = g.node.iter().flat_map(|n| n.output.iter().map(String::as_str));
    let own: FxHashSet<&str> = inputs.chain(constants).chain(results).collect();
    let mut inner = Vec::new();
    g.node.iter().for_each(|n| reads(n, &mut inner));
    inner.extend(g.output.iter().filter_map(|v| v.name.as_deref()));
    out.extend(inner.into_iter().filter(|n| !own.contains(n)));
}

/// Every name that the nodes read, captures included.
pub(super) fn used_names(nodes: &[NodeProto]) -> FxHashSet<&str> {
    let mut out = Vec::new();
    nodes.iter().for_each(|n| reads(n, &mut out));
    out.into_iter().collect()
}

/// Indices of `nodes` in an order in which every name is defined before it is read; as written where that holds.
/// `names` are the nodes' names; `defined` tells the names from outside.
///
/// # Errors
/// A name that is defined twice or nowhere, or a cycle.
pub(super) fn order_nodes(
    nodes: &[NodeProto],
    names: &[Name],
    defined: &dyn Fn(&str) -> bool,
) -> Result<Vec<usize>, ImportError> {
    let op = |i: usize| nodes[i].op_type.clone().unwrap_or_default();
    let mut producer: FxHashMap<&str, usize> = FxHashMap::default();
    for (i, n) in nodes.iter().enumerate() {
        for o in n.output.iter().filter(|o| !o.is_empty()) {
            if producer.insert(o, i).is_some() {
                let message = format!("its result `{o}` is also the result of another node");
                return Err(ImportError::Invalid { node: names[i], op: op(i), message });
            }
        }
    }
    let mut waiting = vec![0usize; nodes.len()];
    let mut users: Vec<Vec<usize>> = vec![vec![]; nodes.len()];
    let mut sorted = true;
    let mut list = Vec::new();
    for (i, n) in nodes.iter().enumerate() {
        list.clear();
        reads(n, &mut list);
        list.sort_unstable();
        list.dedup();
        for name in &list {
            match producer.get(name) {
                Some(&p) => {
                    users[p].push(i);
                    waiting[i] += 1;
                    sorted &= p < i;
                }
                None if defined(name) => {}
                None => {
                    let message = format!("its input `{name}` is defined nowhere");
                    return Err(ImportError::Invalid { node: names[i], op: op(i), message });
                }
            }
        }
    }
    if sorted { Ok((0..nodes.len()).collect()) } else { sort(names, waiting, &users) }
}

/// Kahn's algorithm; of the nodes that are ready, the one written first comes first.
fn sort(names: &[Name], mut waiting: Vec<usize>, users: &[Vec<usize>]) -> Result<Vec<usize>, ImportError> {
    let ready = (0..waiting.len()).filter(|&i| waiting[i] == 0).map(Reverse);
    let mut heap: BinaryHeap<Reverse<usize>> = ready.collect();
    let mut order = Vec::with_capacity(waiting.len());
    while let Some(Reverse(i)) = heap.pop() {
        order.push(i);
        for &u in &users[i] {
            waiting[u] -= 1;
            if waiting[u] == 0 {
                heap.push(Reverse(u));
            }
        }
    }
    if order.len() == waiting.len() {
        return Ok(order);
    }
    Err(ImportError::Cycle(find_cycle(&waiting, users).into_iter().map(|i| names[i]).collect()))
}

/// One cycle among the nodes still waiting: each of those has a producer that waits too.
fn find_cycle(waiting: &[usize], users: &[Vec<usize>]) -> Vec<usize> {
    let mut before = vec![usize::MAX; waiting.len()];
    for (p, list) in users.iter().enumerate().filter(|(p, _)| waiting[*p] > 0) {
        list.iter().for_each(|&u| before[u] = p);
    }
    let mut at = waiting.iter().position(|&w| w > 0).expect("a node that waits");
    let mut seen = vec![false; waiting.len()];
    while !seen[at] {
        seen[at] = true;
        at = before[at];
    }
    let start = at;
    let mut cycle = vec![start];
    while before[at] != start {
        at = before[at];
        cycle.push(at);
    }
    cycle.reverse();
    cycle
}
