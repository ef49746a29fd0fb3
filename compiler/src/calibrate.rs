//! Calibration of mixed precision: which nodes must stay in f32 for given inputs.
//!
//! [`calibrate`] runs the f32 graph, as it is right before the pass `mixed-precision`, on the host and measures every node:
//! the largest magnitude of its results, and the error that f16 storage of its operands and results makes in it alone
//! (`norm(a-b) / norm(b)`, computed in f32 from the exact operands). Nodes beyond the limits are kept in f32.
//!
//! Then the graph runs with every tensor rounded that the compiled module would store in f16. Where that takes more than
//! [`MAX_USED`] of the tolerance (see [`agreement`](crate::agreement)), the tensors of one kernel after the other are
//! rounded alone: how much a rounding matters depends on what comes after it, which a node's own error does not tell. The
//! kernels stay in f32 in the order of what that mends for each byte it costs, as many as bring the result within
//! [`MAX_USED`].
//!
//! Deliberately absent: devices. Kernels compute in f32 registers, so that the host's rounding stands for theirs.

mod storage;
mod trial;

use crate::cpu::{ExecError, Interpreter, eval_node};
use crate::dtype::DType;
use crate::graph::{Function, Module, NodeId, ValueId};
use crate::name::Name;
use crate::ops::Precision;
use crate::ops::control::Const;
use crate::passes::mixed_precision::{F16_MAX, escape_pattern, rounding_loss};
use crate::passes::{KeepF32, PassContext, PassError, PipelineOptions, Sequential, default_pipeline};
use crate::profile::DeviceProfile;
use crate::tensor::Tensor;
use half::f16;
use rustc_hash::{FxHashMap, FxHashSet};
use storage::Graph;
use trial::{Outcome, Part, Trial, Values};

/// The largest magnitude that calibration lets into f16: other inputs may be larger than those it has seen.
pub const MAX_MAGNITUDE: f64 = F16_MAX / 4.0;
/// The largest error of one node alone: a quarter of what the whole network may have.
pub const MAX_NODE_ERROR: f64 = MAX_ERROR / 4.0;
/// The largest `norm(a-b) / norm(b)` of a network's result: the tolerance of f16.
pub const MAX_ERROR: f64 = crate::agreement::F16_TOLERANCE;
/// The share of the tolerance that calibration lets a result take: devices, and other inputs, round otherwise.
pub const MAX_USED: f64 = 0.5;

/// How often calibration tries to give parts back to f16, each a run of the network.
const MAX_RETURNS: usize = 48;

/// What was measured of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeMeasure {
    /// Name of the node.
    pub node: Name,
    /// The nodes of the model that it stands for.
    pub sources: Vec<Name>,
    /// Largest finite magnitude of its f32 results.
    pub largest: f64,
    /// Error of f16 storage in this node alone; infinite where it gives infinities or NaN.
    pub error: f64,
}

/// The outcome of a calibration.
#[derive(Clone, Debug, Default)]
pub struct Calibration {
    /// Every node that mixed precision may change, in execution order.
    pub nodes: Vec<NodeMeasure>,
    /// The nodes to keep in f32, with the values that demand it.
    pub keep: Vec<KeepF32>,
    /// The largest error of a result in mixed precision, with those nodes kept.
    pub error: f64,
    /// The results agree within f16's tolerance.
    pub agrees: bool,
}

impl Calibration {
    /// The nodes of the model that those kept stand for, each once, in execution order.
    pub fn kept_sources(&self) -> Vec<Name> {
        let mut seen = FxHashSet::default();
        let patterns: FxHashSet<&str> = self.keep.iter().map(|k| k.pattern.as_str()).collect();
        let kept = self.nodes.iter().filter(|n| patterns.contains(escape_pattern(n.node.as_str()).as_str()));
        kept.flat_map(|n| n.sources.iter().copied()).filter(|n| seen.insert(*n)).collect()
    }
}

/// Why calibration failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrationError {
    /// A pass failed.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// The graph could not run.
    #[error(transparent)]
    Run(#[from] ExecError),
}

/// Measures `module` on `inputs` and chooses the nodes to keep in f32 besides those of `pipeline.keep_f32`.
///
/// # Errors
/// What a pass or the CPU executor says.
pub fn calibrate(
    module: &Module,
    pipeline: &PipelineOptions,
    profile: &DeviceProfile,
    inputs: &[Tensor],
) -> Result<Calibration, CalibrationError> {
    let mut m = module.clone();
    let mut cx = PassContext::new(profile.clone());
    pipeline.configure(&mut cx);
    let list = default_pipeline(pipeline);
    Sequential::new(list.iter().take_while(|p| *p != "mixed-precision")).run(&mut m, &mut cx)?;
    let (nodes, values, exact) = measure(&m, inputs)?;
    let mut keep: Vec<KeepF32> = nodes.iter().filter_map(demand).collect();
    let graph = Graph::new(&m, pipeline, profile);
    let mut trial = Trial { module: &m, interpreter: Interpreter::new(&m), values: &values, exact: &exact };
    let kernels = graph.kernels(&keep)?;
    let mut outcome = trial.outcome(&kernels)?;
    if outcome.used > MAX_USED {
        let all = outcome.used;
        let mut kept = trial.ranked(&kernels)?;
        let few = trial.fewest(&kept, MAX_USED)?;
        let mut search = Search { graph: &graph, trial: &mut trial, own: std::mem::take(&mut keep), all };
        outcome = search.enough(&mut kept, few)?;
        if outcome.used <= MAX_USED {
            outcome = search.without_the_needless(&mut kept, outcome)?;
        }
        keep = search.keep(&kept);
    }
    Ok(Calibration { nodes, keep, error: outcome.error, agrees: outcome.used <= 1.0 })
}

/// Which parts of the graph stay in f32, besides the nodes that must.
struct Search<'a, 'g> {
    graph: &'a Graph<'g>,
    trial: &'a mut Trial<'g>,
    own: Vec<KeepF32>,
    /// The share of the tolerance that the rounding of all kernels takes.
    all: f64,
}

impl Search<'_, '_> {
    /// The nodes that keep these parts in f32, each once, after those that must stay so.
    fn keep(&self, parts: &[Part]) -> Vec<KeepF32> {
        let mut keep = self.own.clone();
        let mut known: FxHashSet<String> = keep.iter().map(|k| k.pattern.clone()).collect();
        for p in parts {
            let why = format!(
                "calibration: rounding what its kernel reads and stores takes {:.2} of the tolerance, that of all kernels {:.2}",
                p.used, self.all
            );
            let nodes = p.kernels.iter().flat_map(|k| &k.nodes).map(|n| KeepF32::node(*n, why.clone()));
            keep.extend(nodes.filter(|k| known.insert(k.pattern.clone())));
        }
        keep
    }

    fn outcome(&mut self, parts: &[Part]) -> Result<Outcome, CalibrationError> {
        let kernels = self.graph.kernels(&self.keep(parts))?;
        Ok(self.trial.outcome(&kernels)?)
    }

    /// Leaves the first `few` of the ranked parts, and as many more as the result needs: kept nodes make other groups, which
    /// may round what was not rounded before.
    fn enough(&mut self, ranked: &mut Vec<Part>, mut few: usize) -> Result<Outcome, CalibrationError> {
        loop {
            let outcome = self.outcome(&ranked[..few])?;
            if outcome.used <= MAX_USED || few == ranked.len() {
                ranked.truncate(few);
                return Ok(outcome);
            }
            few = (few + few.div_ceil(8)).min(ranked.len());
        }
    }

    /// Gives parts back to f16 that the result does not need: the ranking looks at each alone, and only together do they
    /// show which errors the same elements take. Runs of parts at first, from those that mend least, then shorter ones
    /// (after Zeller and Hildebrandt's delta debugging), as long as [`MAX_RETURNS`] tries last.
    fn without_the_needless(&mut self, kept: &mut Vec<Part>, mut best: Outcome) -> Result<Outcome, CalibrationError> {
        let mut tries = 0;
        let mut run = (kept.len() / 4).max(1);
        while run > 0 {
            let mut end = kept.len();
            while end > 0 && tries < MAX_RETURNS {
                let start = end.saturating_sub(run);
                let given: Vec<Part> = kept.drain(start..end).collect();
                let outcome = self.outcome(kept)?;
                match outcome.used <= MAX_USED {
                    true => best = outcome,
                    false => drop(kept.splice(start..start, given)),
                }
                (end, tries) = (start, tries + 1);
            }
            run /= 2;
        }
        Ok(best)
    }
}

/// Why a node must stay in f32 by itself.
fn demand(n: &NodeMeasure) -> Option<KeepF32> {
    let why = if n.largest > MAX_MAGNITUDE {
        format!("calibration: its result reaches {:.4}, the limit is {MAX_MAGNITUDE}", n.largest)
    } else if n.error > MAX_NODE_ERROR {
        format!("calibration: f16 makes an error of {:.1e} in it, the limit is {MAX_NODE_ERROR:.1e}", n.error)
    } else {
        return None;
    };
    Some(KeepF32::node(n.node, why))
}

/// Runs the f32 graph; the measures of its nodes, all its values but constants, and its results.
fn measure(m: &Module, inputs: &[Tensor]) -> Result<(Vec<NodeMeasure>, Values, Vec<Tensor>), ExecError> {
    let f = m.main();
    let mut values: Values = f.params().iter().copied().zip(inputs.iter().cloned()).collect();
    let mut nodes = Vec::new();
    let mut constants: FxHashMap<Name, Tensor> = FxHashMap::default();
    let results = {
        let mut interpreter = Interpreter::new(m).observe(|g, n, results| {
            if g.name != f.name {
                return;
            }
            nodes.extend(measure_node(m, f, n, &values, &mut constants, results));
            values.extend(f.nodes[n].outputs.iter().copied().zip(results.iter().cloned()));
        });
        interpreter.run(f.name, inputs)?
    };
    Ok((nodes, values, results))
}

fn measure_node(
    m: &Module,
    f: &Function,
    n: NodeId,
    values: &FxHashMap<ValueId, Tensor>,
    constants: &mut FxHashMap<Name, Tensor>,
    results: &[Tensor],
) -> Option<NodeMeasure> {
    let node = &f.nodes[n];
    let singles: Vec<&Tensor> = results.iter().filter(|t| t.dtype() == DType::F32).collect();
    if singles.is_empty() {
        return None;
    }
    let largest = singles.iter().map(|t| rounding_loss(&t.to_f32_vec()).1).fold(0.0, f64::max);
    let sources = if node.origins.names().is_empty() { vec![node.name] } else { node.origins.names().to_vec() };
    let mut measure = NodeMeasure { node: node.name, sources, largest, error: 0.0 };
    let strict = node.op.precision() == Precision::Never && !node.op.widens();
    let calls = node.op.callee().is_some();
    if strict || calls || !node.regions.is_empty() || !node.op.has_compute() {
        return Some(measure);
    }
    let mut operand = |v: &Option<ValueId>| -> Option<Option<Tensor>> {
        let Some(v) = v else { return Some(None) };
        let t = match f.def_op::<Const>(*v) {
            Some((_, c)) => match constants.get(&c.name) {
                Some(t) => t.clone(),
                None => {
                    let t = halved(&m.constants.get(&c.name)?.load().ok()?);
                    constants.insert(c.name, t.clone());
                    t
                }
            },
            None => halved(values.get(v)?),
        };
        Some(Some(t))
    };
    let operands: Option<Vec<Option<Tensor>>> = node.inputs.iter().map(&mut operand).collect();
    if let Some(Ok(rounded)) = operands.map(|o| eval_node(&node.op, &o, m)) {
        measure.error = results.iter().zip(&rounded).map(|(b, a)| distance(&halved(a), b)).fold(0.0, f64::max);
    }
    Some(measure)
}

/// An f32 tensor rounded to f16 and back; others as they are.
fn halved(t: &Tensor) -> Tensor {
    match t.as_slice::<f32>() {
        Some(x) => Tensor::from_vec(t.shape().to_vec(), x.iter().map(|&x| f16::from_f32(x).to_f32()).collect()),
        None => t.clone(),
    }
}

/// `norm(a-b) / norm(b)` of float tensors; infinite where `a` has infinities or NaN that `b` has not.
fn distance(a: &Tensor, b: &Tensor) -> f64 {
    if !b.dtype().is_float() || a.shape() != b.shape() {
        return 0.0;
    }
    let (mut error, mut norm) = (0.0f64, 0.0f64);
    for (x, y) in a.to_f64_vec().into_iter().zip(b.to_f64_vec()) {
        if x == y || !y.is_finite() {
            norm += if y.is_finite() { y * y } else { 0.0 };
            continue;
        }
        if !x.is_finite() {
            return f64::INFINITY;
        }
        (error, norm) = (error + (x - y) * (x - y), norm + y * y);
    }
    if error == 0.0 { 0.0 } else { (error / norm.max(f64::MIN_POSITIVE)).sqrt() }
}

#[cfg(test)]
mod tests;
