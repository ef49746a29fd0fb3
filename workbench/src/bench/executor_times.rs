//! The time of each node on the interpreter.

use super::record::KernelTime;
use compiler::graph::{Function, Module, NodeId, TensorType};
use compiler::inspect::macs_of_node;
use compiler::trace::{Kind, RunSpans};
use indexmap::IndexMap;
use rustc_hash::FxHashMap;

/// The nodes of a run of the interpreter as `per_kernel` of `weft bench`, in the order in which they first ran.
pub fn per_node(module: &Module, run: &RunSpans) -> Vec<KernelTime> {
    let known: FxHashMap<&str, (&Function, NodeId)> = module
        .functions
        .values()
        .flat_map(|f| f.walk().into_iter().map(move |n| (f.nodes[n].name.as_str(), (f, n))))
        .collect();
    let mut rows: IndexMap<&str, (f64, u64)> = IndexMap::new();
    for s in run.spans.iter().filter(|s| s.kind == Kind::Step) {
        rows.entry(&s.name).or_default();
    }
    for r in run.rows.iter().filter(|r| r.kind == Kind::Step) {
        let row = rows.entry(&r.name).or_default();
        (row.0, row.1) = (row.0 + r.ms * 1e3, row.1 + r.count);
    }
    let row = |(id, (name, &(us_total, calls))): (usize, (&&str, &(f64, u64)))| {
        let node = known.get(*name);
        let op = node.map(|(f, n)| f.nodes[*n].op.name());
        let (flops, bytes) = node.map_or((0, 0), |(f, n)| work(module, f, *n));
        let row = KernelTime { id, name: name.to_string(), op, calls, us_total, ..KernelTime::default() };
        row.rated(flops.saturating_mul(calls), bytes.saturating_mul(calls), None)
    };
    rows.iter().enumerate().map(row).collect()
}

/// Floating-point operations of a node, and bytes of its operands and results; 0 where a size is open.
fn work(module: &Module, f: &Function, node: NodeId) -> (u64, u64) {
    let (inputs, outputs) = f.node_types(node);
    let size = |t: &TensorType| Some(t.const_shape()?.iter().product::<usize>() as u64 * t.dtype.size() as u64);
    let bytes: Option<u64> = inputs.into_iter().flatten().chain(outputs).map(size).sum();
    (2 * macs_of_node(module, f, node), bytes.unwrap_or(0))
}
