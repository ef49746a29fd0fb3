//! Calibration of mixed precision: which nodes must stay in f32 for given inputs.
//!
//! [`calibrate`] runs the f32 graph, as it is right before the pass `mixed-precision`, on the host and measures every node:
//! the largest magnitude of its results, and the error that f16 storage of its operands and results makes in it alone
//! (`norm(a-b) / norm(b)`, computed in f32 from the exact operands). Nodes beyond the limits are kept in f32. Then the
//! graph runs in mixed precision; as long as its results take more than [`MAX_USED`] of the tolerance (see
//! [`agreement`](crate::agreement)), stretches of the network are kept as well, those first that mend most of it: how much a
//! node's rounding matters depends on what comes after it, which its own error does not tell.
//!
//! Deliberately absent: devices. Kernels compute in f32 registers, so that the host's rounding stands for theirs.

use crate::agreement::{Difference, Tolerance, agree};
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

/// The largest magnitude that calibration lets into f16: other inputs may be larger than those it has seen.
pub const MAX_MAGNITUDE: f64 = F16_MAX / 4.0;
/// The largest error of one node alone: a quarter of what the whole network may have.
pub const MAX_NODE_ERROR: f64 = MAX_ERROR / 4.0;
/// The largest `norm(a-b) / norm(b)` of a network's result: the tolerance of f16.
pub const MAX_ERROR: f64 = crate::agreement::F16_TOLERANCE;
/// The share of the tolerance that calibration lets a result take: devices, and other inputs, round otherwise.
pub const MAX_USED: f64 = 0.5;
/// Stretches of nodes in execution order that are tried in f32 one by one.
const STRETCHES: usize = 8;

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
    /// The nodes of the model that those kept stand for, in execution order.
    pub fn kept_sources(&self) -> Vec<Name> {
        let patterns: FxHashSet<&str> = self.keep.iter().map(|k| k.pattern.as_str()).collect();
        let kept = self.nodes.iter().filter(|n| patterns.contains(escape_pattern(n.node.as_str()).as_str()));
        kept.flat_map(|n| n.sources.iter().copied()).collect()
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
    let (nodes, exact) = measure(&m, inputs)?;
    let mut keep: Vec<KeepF32> = nodes.iter().filter_map(demand).collect();
    let rest: Vec<&NodeMeasure> = nodes.iter().filter(|n| demand(n).is_none()).collect();
    let mut trial = Trial { m: &m, cx, pipeline, inputs, exact: &exact };
    let mut outcome = trial.run(&keep)?;
    if outcome.used > MAX_USED {
        for stretch in trial.ranked(&rest, &keep)? {
            let before = outcome.used;
            keep.extend(kept(stretch, ""));
            outcome = trial.run(&keep)?;
            let why = format!(
                "calibration: without this stretch of the network in f32 the result takes {before:.2} of the tolerance, with it {:.2}",
                outcome.used
            );
            let first = keep.len() - stretch.len();
            keep[first..].iter_mut().for_each(|k| k.why.clone_from(&why));
            if outcome.used <= MAX_USED {
                break;
            }
        }
    }
    Ok(Calibration { nodes, keep, error: outcome.error, agrees: outcome.used <= 1.0 })
}

fn kept<'a>(stretch: &'a [&NodeMeasure], why: &'a str) -> impl Iterator<Item = KeepF32> + 'a {
    stretch.iter().map(move |n| KeepF32::node(n.node, why))
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

/// Runs the f32 graph; the measures of its nodes, and its results.
fn measure(m: &Module, inputs: &[Tensor]) -> Result<(Vec<NodeMeasure>, Vec<Tensor>), ExecError> {
    let f = m.main();
    let mut values: FxHashMap<ValueId, Tensor> = f.params().iter().copied().zip(inputs.iter().cloned()).collect();
    let mut left: FxHashMap<ValueId, usize> = FxHashMap::default();
    for n in f.walk() {
        for v in f.nodes[n].inputs.iter().flatten() {
            *left.entry(*v).or_default() += 1;
        }
    }
    let mut nodes = Vec::new();
    let mut constants: FxHashMap<Name, Tensor> = FxHashMap::default();
    let results = {
        let mut interpreter = Interpreter::new(m).observe(|g, n, results| {
            if g.name != f.name {
                return;
            }
            nodes.extend(measure_node(m, f, n, &values, &mut constants, results));
            for v in f.nodes[n].inputs.iter().flatten() {
                let uses = left.entry(*v).or_default();
                *uses = uses.saturating_sub(1);
                if *uses == 0 {
                    values.remove(v);
                }
            }
            values.extend(f.nodes[n].outputs.iter().copied().zip(results.iter().cloned()));
        });
        interpreter.run(f.name, inputs)?
    };
    Ok((nodes, results))
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
    if strict || !node.regions.is_empty() || !node.op.has_compute() {
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

/// Runs of one graph in mixed precision.
struct Trial<'a> {
    m: &'a Module,
    cx: PassContext,
    pipeline: &'a PipelineOptions,
    inputs: &'a [Tensor],
    exact: &'a [Tensor],
}

/// How the results of a run differ from the exact ones.
#[derive(Clone, Copy)]
struct Outcome {
    /// The largest `norm(a-b) / norm(b)`.
    error: f64,
    /// The largest share of the tolerance.
    used: f64,
}

impl Trial<'_> {
    /// The nodes in stretches of execution order, that first whose f32 alone mends most of the result.
    fn ranked<'n>(
        &mut self,
        nodes: &'n [&'n NodeMeasure],
        keep: &[KeepF32],
    ) -> Result<Vec<&'n [&'n NodeMeasure]>, CalibrationError> {
        let mut out = Vec::with_capacity(STRETCHES);
        for stretch in nodes.chunks(nodes.len().div_ceil(STRETCHES).max(1)) {
            let with: Vec<KeepF32> = keep.iter().cloned().chain(kept(stretch, "")).collect();
            out.push((self.run(&with)?.used, stretch));
        }
        out.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(out.into_iter().map(|s| s.1).collect())
    }

    fn run(&mut self, keep: &[KeepF32]) -> Result<Outcome, CalibrationError> {
        let mut m = self.m.clone();
        self.cx.keep_f32 = self.pipeline.keep_f32.iter().chain(keep).cloned().collect();
        Sequential::new(["mixed-precision"]).run(&mut m, &mut self.cx)?;
        let got = crate::cpu::run_function(&m, m.entry, self.inputs)?;
        let tolerance = Tolerance::new(DType::F16, None, None);
        let float = got.iter().zip(self.exact).filter(|(_, b)| b.dtype().is_float());
        let differences: Vec<Difference> = float.map(|(a, b)| agree(a, b, &tolerance)).collect();
        let most = |of: fn(&Difference) -> f64| differences.iter().map(of).fold(0.0, f64::max);
        Ok(Outcome { error: most(|d| d.rel_l2), used: most(|d| d.used) })
    }
}
