//! Floating-point operations of nodes, stages and dispatches.
//!
//! A tensor function that was written by hand has the operations of its loops ([`operations`](crate::tir::operations)).
//! The operations of a node are distributed over its stages, and those of a stage over the kernels that compute it, by
//! their iterations. So the dispatches of a group add up to the group's operations, however often it is split.

use super::kernels::Built;
use crate::graph::{Function, NodeId, TensorType, ValueId};
use crate::int::Int;
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::control::{CallTensor, Const};
use crate::plan::EmittedKernel;
use crate::tir::operations::{StageWork, iterations, visit_loops};
use crate::tir::{BufferId, Scope, Stmt, TensorFunction};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Operations of one node: two per multiply-accumulate, one per element of other ops.
pub(super) fn node_flops(f: &Function, n: NodeId) -> u64 {
    let (inputs, outputs) = types_of(f, n);
    operations(&f.nodes[n].op, &inputs, &outputs)
}

fn operations(op: &OpRef, inputs: &[Option<&TensorType>], outputs: &[&TensorType]) -> u64 {
    let numel = || outputs.iter().filter_map(|t| t.numel().as_const()).sum::<i64>().max(0) as u64;
    match op.macs(inputs, outputs) {
        0 => numel(),
        macs => 2 * macs,
    }
}

/// Multiply-accumulates of one node.
pub(super) fn node_macs(f: &Function, n: NodeId) -> u64 {
    let (inputs, outputs) = types_of(f, n);
    f.nodes[n].op.macs(&inputs, &outputs)
}

fn types_of(f: &Function, n: NodeId) -> (Vec<Option<&TensorType>>, Vec<&TensorType>) {
    let node = &f.nodes[n];
    let inputs = node.inputs.iter().map(|v| v.map(|v| f.ty(v))).collect();
    (inputs, node.outputs.iter().map(|&v| f.ty(v)).collect())
}

/// The work of a group's nodes, whatever its sizes.
pub(super) struct GroupWork {
    nodes: Vec<NodeWork>,
    stages: usize,
}

struct NodeWork {
    operations: Operations,
    /// Its stages and their iterations.
    stages: Vec<(usize, Int)>,
}

/// How the operations of a node are counted.
enum Operations {
    /// As the op says, for operands and results of these types.
    OfOp { op: OpRef, inputs: Vec<Option<TensorType>>, outputs: Vec<TensorType> },
    /// As the loops of its stages say: of a tensor function that somebody wrote, nothing else is known.
    OfStages(Vec<Int>),
}

impl GroupWork {
    /// Of the primitive function `f`, which was lowered to `t`, whose stages are of these nodes.
    pub fn of(f: &Function, stages: &[Option<NodeId>], t: &TensorFunction) -> GroupWork {
        let work = t.stage_work();
        let node = |n: NodeId| {
            let own: Vec<(usize, &StageWork)> =
                work.iter().enumerate().filter(|(s, _)| stages.get(*s) == Some(&Some(n))).collect();
            let node = &f.nodes[n];
            let ty = |v: ValueId| f.ty(v).clone();
            let operations = match node.op.is::<CallTensor>() {
                true => Operations::OfStages(own.iter().map(|(_, w)| w.operations.clone()).collect()),
                false => Operations::OfOp {
                    op: node.op.clone(),
                    inputs: node.inputs.iter().map(|v| v.map(ty)).collect(),
                    outputs: node.outputs.iter().map(|&v| ty(v)).collect(),
                },
            };
            NodeWork { operations, stages: own.iter().map(|(s, w)| (*s, w.iterations.clone())).collect() }
        };
        let nodes = f.walk().into_iter().filter(|&n| !f.nodes[n].op.is::<Const>()).map(node).collect();
        GroupWork { nodes, stages: stages.len() }
    }

    /// The work of a function of the source module. Its blocks are its stages; `symbols` are the caller's sizes.
    pub fn written(t: &TensorFunction, symbols: &[(Name, Int)]) -> GroupWork {
        let own = |e: &Int| e.replace(&mut |v| symbols.iter().find(|s| s.0 == v).map(|s| s.1.clone()));
        let work = t.stage_work();
        let stages = work.iter().enumerate().map(|(s, w)| (s, own(&w.iterations))).collect();
        let operations = Operations::OfStages(work.iter().map(|w| own(&w.operations)).collect());
        GroupWork { stages: work.len(), nodes: vec![NodeWork { operations, stages }] }
    }

    /// Operations for these sizes: of all nodes, and of each stage.
    fn flops(&self, size: &dyn Fn(Name) -> Option<i64>) -> (u64, Vec<u64>) {
        let sized = |t: &TensorType| {
            let dims = t.shape.iter().map(|d| d.replace(&mut |v| size(v).map(Int::new))).collect();
            TensorType { shape: dims, ..t.clone() }
        };
        let (mut total, mut of_stages) = (0u64, vec![0; self.stages]);
        for n in &self.nodes {
            let flops = match &n.operations {
                Operations::OfOp { op, inputs, outputs } => {
                    let inputs: Vec<Option<TensorType>> = inputs.iter().map(|t| t.as_ref().map(&sized)).collect();
                    let outputs: Vec<TensorType> = outputs.iter().map(&sized).collect();
                    let inputs: Vec<Option<&TensorType>> = inputs.iter().map(Option::as_ref).collect();
                    operations(op, &inputs, &outputs.iter().collect::<Vec<_>>())
                }
                Operations::OfStages(of_stages_of_node) => {
                    for ((s, _), own) in n.stages.iter().zip(of_stages_of_node) {
                        let own = number(own, size);
                        of_stages[*s] += own;
                        total = total.saturating_add(own);
                    }
                    continue;
                }
            };
            total = total.saturating_add(flops);
            let weights: Vec<u64> = n.stages.iter().map(|s| number(&s.1, size)).collect();
            n.stages.iter().zip(share(flops, &weights)).for_each(|(s, part)| of_stages[s.0] += part);
        }
        (total, of_stages)
    }
}

/// The work of a group's kernels, whatever its sizes.
pub(super) struct KernelWork {
    /// The work of the group.
    pub group: Arc<GroupWork>,
    /// For each kernel, the stages that its blocks compute and their iterations; `None` for blocks without a stage.
    pub iterations: Vec<Vec<(Option<usize>, Int)>>,
    /// Bytes of the buffers that each kernel binds.
    pub bytes: Vec<Int>,
}

impl KernelWork {
    /// Of the kernels of `built`, which node `n` of `main` calls with these sizes for its symbols.
    pub fn of(main: &Function, n: NodeId, group: Arc<GroupWork>, built: &Built, symbols: &[(Name, Int)]) -> KernelWork {
        let of_kernel = |(_, body): (Name, &Stmt)| {
            let mut blocks = vec![];
            visit_loops(body, &mut vec![], &mut |loops, block| match block.stages.is_empty() {
                true => blocks.push((None, iterations(loops))),
                false => blocks.extend(block.stages.iter().map(|stage| (Some(stage), iterations(loops)))),
            });
            blocks
        };
        let sizes = buffer_bytes(main, n, &built.function, symbols);
        let bytes = |kernel: &EmittedKernel| {
            let mut buffers: Vec<BufferId> = kernel.bindings.iter().map(|b| b.buffer).collect();
            buffers.dedup();
            buffers.iter().filter_map(|b| sizes.get(b)).fold(Int::new(0), |all, b| all + b)
        };
        KernelWork {
            group,
            iterations: built.function.kernels().into_iter().map(of_kernel).collect(),
            bytes: built.kernels.iter().map(bytes).collect(),
        }
    }

    /// Bytes of kernel `k` for these sizes.
    pub fn bytes(&self, k: usize, size: &dyn Fn(Name) -> Option<i64>) -> u64 {
        self.bytes.get(k).map_or(0, |b| b.eval(size).unwrap_or(0).max(0) as u64)
    }

    /// Operations of each kernel for these sizes; an extent without one counts as 1.
    pub fn flops(&self, size: &dyn Fn(Name) -> Option<i64>) -> Vec<u64> {
        let (total, of_stages) = self.group.flops(size);
        let mut iterations = vec![vec![0; self.iterations.len()]; of_stages.len()];
        let mut work = vec![0u64; self.iterations.len()];
        for (k, blocks) in self.iterations.iter().enumerate() {
            for (stage, times) in blocks {
                let times = number(times, size);
                work[k] += times;
                if let Some(i) = stage.and_then(|s| iterations.get_mut(s)) {
                    i[k] += times;
                }
            }
        }
        let mut out = vec![0; self.iterations.len()];
        for (&flops, weights) in of_stages.iter().zip(&iterations) {
            out.iter_mut().zip(share(flops, weights)).for_each(|(o, part)| *o += part);
        }
        // Operations that belong to no stage, for example of a node that only returns its operand.
        let rest = total.saturating_sub(out.iter().sum());
        out.iter_mut().zip(share(rest, &work)).for_each(|(o, part)| *o += part);
        out
    }
}

/// Divides `total` in proportion to `weights`; the heaviest gets the rounding remainder. All zero if all weights are 0.
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

/// Bytes that a kernel moves when it binds a buffer: those of the value, whatever its storage form; of scratch, the
/// buffer's.
fn buffer_bytes(main: &Function, n: NodeId, f: &TensorFunction, symbols: &[(Name, Int)]) -> FxHashMap<BufferId, Int> {
    let node = &main.nodes[n];
    let of = |v: Name| symbols.iter().find(|s| s.0 == v).map(|s| s.1.clone());
    let scratch = f.buffers.iter().filter(|(_, b)| b.scope == Scope::Global).map(|(id, b)| {
        let elements = b.numel().replace(&mut |v| of(v));
        (id, elements * b.dtype.size() as i64)
    });
    let mut out: FxHashMap<BufferId, Int> = scratch.collect();
    let values = node.inputs.iter().flatten().chain(&node.outputs);
    for (b, &v) in f.inputs().chain(f.outputs()).zip(values) {
        let ty = main.ty(v);
        out.insert(b, ty.numel() * ty.dtype.size() as i64);
    }
    out
}

/// An extent without a size counts as 1.
fn number(e: &Int, size: &dyn Fn(Name) -> Option<i64>) -> u64 {
    e.eval(size).map_or(1, |n| n.max(0) as u64)
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
