//! The time of each node on the interpreter.

use super::record::KernelTime;
use super::request::Request;
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::settings::Settings;
use benches::statistics::Statistics;
use compiler::graph::{Function, Module, NodeId, TensorType};
use compiler::inspect::macs_of_node;
use compiler::interpreter::Interpreter;
use compiler::name::Name;
use compiler::ops::control::Const;
use compiler::tensor::Tensor;
use indexmap::IndexMap;
use std::time::Instant;

/// One run of a node, in microseconds from the beginning of the run.
pub struct NodeTime {
    pub function: Name,
    pub node: NodeId,
    pub name: String,
    pub op: &'static str,
    pub start: f64,
    pub end: f64,
}

/// The runs of all nodes in one run of the module.
fn one_run(module: &Module, inputs: &[Tensor], settings: &Settings) -> Result<Vec<NodeTime>> {
    let mut out: Vec<NodeTime> = vec![];
    let begin = Instant::now();
    let mut last = 0.0;
    let observe = |f: &Function, node: NodeId, _: &[Tensor]| {
        let end = begin.elapsed().as_secs_f64() * 1e6;
        let n = &f.nodes[node];
        // A constant is a name for what is there.
        if !n.op.is::<Const>() {
            out.push(NodeTime { function: f.name, node, name: n.name.to_string(), op: n.op.name(), start: last, end });
        }
        last = end;
    };
    let mut executor = Interpreter::new(module).with_host(settings.functions.on_tensors()).observe(observe);
    let done = executor.run(module.entry, inputs).map_err(|e| Error::input(e.to_string()));
    drop(executor);
    done.map(|_| out)
}

/// Times of the nodes over some runs, as `per_kernel` of `weft bench`; and the last of the runs.
///
/// # Errors
/// An error of a run.
pub fn per_node(
    a: &Request,
    module: &Module,
    inputs: &[Tensor],
    progress: &mut Progress,
) -> Result<(Vec<KernelTime>, Vec<NodeTime>)> {
    let rounds = a.timing.runs.clamp(1, 5);
    let mut rows: IndexMap<(Name, NodeId), Row> = IndexMap::new();
    let mut last = vec![];
    for round in 0..rounds {
        progress.report("kernels", round, rounds);
        last = one_run(module, inputs, &a.settings)?;
        for t in &last {
            let row = rows.entry((t.function, t.node)).or_default();
            row.us.resize(round + 1, 0.0);
            row.us[round] += t.end - t.start;
            row.runs += 1;
        }
    }
    let rows = rows.iter().enumerate().map(|(id, (place, row))| row.time(module, id, *place, rounds));
    Ok((rows.collect(), last))
}

/// A node over all rounds.
#[derive(Default)]
struct Row {
    /// Microseconds of all of its runs, by round.
    us: Vec<f64>,
    runs: usize,
}

impl Row {
    fn time(&self, module: &Module, id: usize, (function, node): (Name, NodeId), rounds: usize) -> KernelTime {
        let f = &module.functions[&function];
        let calls = self.runs.div_ceil(rounds) as u64;
        let (flops, bytes) = work(module, f, node);
        let (name, op) = (f.nodes[node].name.to_string(), Some(f.nodes[node].op.name()));
        let us_total = Statistics::of(&self.us).median;
        KernelTime { id, name, op, calls, us_total, ..KernelTime::default() }.rated(
            flops.saturating_mul(calls),
            bytes.saturating_mul(calls),
            None,
        )
    }
}

/// Floating-point operations of a node, and bytes of its operands and results; 0 where a size is open.
fn work(module: &Module, f: &Function, node: NodeId) -> (u64, u64) {
    let (inputs, outputs) = f.node_types(node);
    let size = |t: &TensorType| Some(t.const_shape()?.iter().product::<usize>() as u64 * t.dtype.size() as u64);
    let bytes: Option<u64> = inputs.into_iter().flatten().chain(outputs).map(size).sum();
    (2 * macs_of_node(module, f, node), bytes.unwrap_or(0))
}
