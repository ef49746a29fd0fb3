//! Floating-point operations: of nodes, of stages, of dispatches.
//!
//! A node's operations are shared out to its stages and a stage's to the kernels that compute it, by their iterations: the
//! dispatches of a group sum to the group's, however often it is split.

use crate::graph::{Function, NodeId, TensorType};
use crate::tir::{Stmt, TensorFunction};
use rustc_hash::FxHashMap;

/// Operations of one node: two per multiply-accumulate, one per element of other ops.
pub(super) fn node_flops(f: &Function, n: NodeId) -> u64 {
    let macs = node_macs(f, n);
    let numel: i64 = f.nodes[n].outputs.iter().filter_map(|&v| f.ty(v).numel().as_const()).sum();
    if macs > 0 { 2 * macs } else { numel.max(0) as u64 }
}

/// Multiply-accumulates of one node.
pub(super) fn node_macs(f: &Function, n: NodeId) -> u64 {
    let node = &f.nodes[n];
    let inputs: Vec<Option<&TensorType>> = node.inputs.iter().map(|v| v.map(|v| f.ty(v))).collect();
    let outputs: Vec<&TensorType> = node.outputs.iter().map(|&v| f.ty(v)).collect();
    node.op.macs(&inputs, &outputs)
}

/// Operations of each stage of `t`, which the primitive function `f` was lowered to.
pub(super) fn stage_flops(f: &Function, stages: &[Option<NodeId>], t: &TensorFunction) -> Vec<u64> {
    let mut iterations = vec![0; stages.len()];
    visit_iterations(&t.body, 1, &mut |times, stage| {
        if let Some(i) = iterations.get_mut(stage) {
            *i = times;
        }
    });
    let mut of_node: FxHashMap<NodeId, Vec<usize>> = FxHashMap::default();
    for (s, n) in stages.iter().enumerate() {
        if let Some(n) = n.filter(|&n| !f.nodes[n].op.is::<crate::ops::control::Const>()) {
            of_node.entry(n).or_default().push(s);
        }
    }
    let mut out = vec![0; stages.len()];
    for (n, list) in of_node {
        let weights: Vec<u64> = list.iter().map(|&s| iterations[s]).collect();
        for (&s, part) in list.iter().zip(share(node_flops(f, n), &weights)) {
            out[s] = part;
        }
    }
    out
}

/// `total` operations of a group shared out to the kernels of its scheduled function, given those of its stages.
pub(super) fn dispatch_flops(total: u64, stages: &[u64], scheduled: &TensorFunction) -> Vec<u64> {
    let kernels = scheduled.kernels();
    let mut iterations = vec![vec![0; kernels.len()]; stages.len()];
    let mut work = vec![0; kernels.len()];
    for (k, (_, body)) in kernels.iter().enumerate() {
        visit_iterations(body, 1, &mut |times, stage| {
            if let Some(i) = iterations.get_mut(stage) {
                i[k] += times;
            }
            work[k] += times;
        });
    }
    let mut out = vec![0; kernels.len()];
    for (&flops, weights) in stages.iter().zip(&iterations) {
        out.iter_mut().zip(share(flops, weights)).for_each(|(o, part)| *o += part);
    }
    // What belongs to no stage, such as a node that only passes its operand on.
    let rest = total.saturating_sub(out.iter().sum());
    out.iter_mut().zip(share(rest, &work)).for_each(|(o, part)| *o += part);
    out
}

/// `total` in parts as `weights` are to each other; the heaviest gets what rounding leaves. All zero for no weight.
fn share(total: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|&w| u128::from(w)).sum();
    if sum == 0 {
        return match weights.len() {
            0 => vec![],
            n => std::iter::once(total).chain(std::iter::repeat(0)).take(n).collect(),
        };
    }
    let mut parts: Vec<u64> = weights.iter().map(|&w| (u128::from(total) * u128::from(w) / sum) as u64).collect();
    let heaviest = (0..weights.len()).max_by_key(|&i| (weights[i], std::cmp::Reverse(i))).unwrap_or(0);
    parts[heaviest] += total - parts.iter().sum::<u64>();
    parts
}

/// Calls `f` with the iterations of each block, for each stage that it computes; an open extent counts as 1.
fn visit_iterations(s: &Stmt, times: u64, f: &mut dyn FnMut(u64, usize)) {
    match s {
        Stmt::Seq(list) => list.iter().for_each(|s| visit_iterations(s, times, f)),
        Stmt::For(l) => {
            let extent = l.extent.as_const().map_or(1, |e| e.max(0) as u64);
            visit_iterations(&l.body, times.saturating_mul(extent), f);
        }
        Stmt::Kernel(_, s) => visit_iterations(s, times, f),
        Stmt::Block(b) if b.stages.is_empty() => f(times, usize::MAX),
        Stmt::Block(b) => b.stages.iter().for_each(|stage| f(times, stage)),
        Stmt::Barrier => {}
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn parts_sum_to_the_whole() {
        assert_eq!(share(10, &[1, 1, 1]), [4, 3, 3]);
        assert_eq!(share(10, &[0, 3]), [0, 10]);
        assert_eq!(share(7, &[0, 0]), [7, 0]);
        assert_eq!(share(u64::MAX, &[u64::MAX, 1]).iter().map(|&p| u128::from(p)).sum::<u128>(), u128::from(u64::MAX));
        assert!(share(3, &[]).is_empty());
    }
}
