//! Calibration of mixed precision: which nodes must stay in f32 for given inputs.
//!
//! [`calibrate`] runs the f32 graph, as it is right before the pass `mixed-precision`, on the host. Nodes whose results
//! come near the largest f16 number stay in f32. Then the graph runs with every tensor rounded that the compiled module
//! would store in f16. If the result uses more of the tolerance (see [`agreement`](crate::agreement)) than
//! [`Limits::used`], parts of the kernels are rounded in separate runs: the effect of a rounding depends on the nodes
//! after it, so the error of a node alone does not show it. The kernels that reduce the error most per byte stay in
//! f32, as few as bring the result within the limit; a run with the other kernels rounded checks that.
//!
//! The work is bounded: all runs together cost at most [`Limits::runs`] runs of the f32 network, and the passes run at
//! most five times. `--amp fp16` is measured too, and used if it is better in both error and bytes.
//!
//! [`accumulate`] shows how errors grow along the graph, and at which node a result leaves the tolerance.
//!
//! Deliberately absent: devices and time. Kernels compute in f32 registers, so the host's rounding has the same effect.

mod accumulate;
mod ranges;
mod search;
mod storage;
mod trial;

pub use accumulate::{Accumulated, Passed, Point, Stored, accumulate, storage_of};
pub use ranges::{Ranges, StoredRange};

use crate::agreement::{F16_TOLERANCE, Tolerance};
use crate::dtype::DType;
use crate::graph::{Function, Module, NodeId};
use crate::interpreter::{ExecError, Interpreter};
use crate::name::Name;
use crate::passes::mixed_precision::{F16_MAX, rounding_loss};
use crate::passes::{AmpMode, KeepF32, PassContext, PassError, PipelineOptions, Sequential, default_pipeline};
use crate::profile::DeviceProfile;
use crate::tensor::Tensor;
use rustc_hash::{FxHashMap, FxHashSet};
use search::Search;
use std::collections::hash_map::Entry;
use std::ops::Range;
use storage::{Graph, Storage};
use trial::{Outcome, Trial, Values};

/// The largest magnitude that calibration lets into f16: other inputs may be larger than those it has seen.
pub const MAX_MAGNITUDE: f64 = F16_MAX / 4.0;

/// Choices of kernels that are measured, at most, before all of them stay in f32.
const CHOICES: usize = 3;
/// The remaining rounding error after the last choice, as a fraction of that of the first.
const LAST_CHOICE: f64 = 0.02;

/// The target of calibration, and the limit of its work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The tolerance of results.
    pub tolerance: Tolerance,
    /// The share of the tolerance that a result may take: devices, and other inputs, round otherwise.
    pub used: f64,
    /// Runs of the f32 network on the host, at most. The exact run and one with everything rounded are always made.
    pub runs: f64,
}
impl Default for Limits {
    /// Half of f16's tolerance, in the time of twelve runs.
    fn default() -> Limits {
        Limits { tolerance: Tolerance::uniform(F16_TOLERANCE), used: 0.5, runs: 12.0 }
    }
}

/// The measurement of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeMeasure {
    /// Name of the node.
    pub node: Name,
    /// A name in the model for it: its own, or the name of a source node.
    pub listed: Name,
    /// Largest finite magnitude of its f32 results.
    pub largest: f64,
}

/// The outcome of a calibration.
#[derive(Clone, Debug, Default)]
pub struct Calibration {
    /// Every node of the compiled program that mixed precision may change, in execution order.
    pub nodes: Vec<NodeMeasure>,
    /// The nodes to keep in f32, with the values that demand it.
    pub keep: Vec<KeepF32>,
    /// Compile as for `--amp fp16`: its heuristic is better than the result of the calibration.
    pub plain: bool,
    /// The largest error of a result in mixed precision, with those nodes kept.
    pub error: f64,
    /// The largest share of the tolerance that a result takes.
    pub used: f64,
    /// Bytes that f16 saves in constants and results of kernels.
    pub saved: u64,
    /// Runs of the f32 network that it has taken.
    pub runs: f64,
}

impl Calibration {
    /// The results agree within the tolerance.
    pub fn agrees(&self) -> bool {
        self.used <= 1.0
    }
    /// Nothing is stored in f16.
    pub fn all_in_f32(&self) -> bool {
        self.saved == 0
    }
    /// The options to compile with.
    pub fn apply(&self, pipeline: &mut PipelineOptions) {
        pipeline.amp = if self.plain { AmpMode::Fp16 } else { pipeline.amp };
        pipeline.keep_f32.extend(self.keep.iter().cloned());
    }
    /// Names of the model that mean the nodes kept, each once, in execution order.
    pub fn listed(&self) -> Vec<Name> {
        let kept = |n: &&NodeMeasure| self.keep.iter().any(|k| *k == KeepF32::node(n.node, k.why.clone()));
        let mut out: Vec<Name> = Vec::new();
        for n in self.nodes.iter().filter(kept) {
            if !out.contains(&n.listed) {
                out.push(n.listed);
            }
        }
        out
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

/// Measures `module` on `inputs` and chooses the nodes to keep in f32 besides those of `pipeline.keep_f32`. `progress`
/// gets the runs of the network that are done: 0 right before the exact one, 1 behind it.
///
/// # Errors
/// An error of a pass or of the interpreter.
pub fn calibrate(
    module: &Module,
    pipeline: &PipelineOptions,
    profile: &DeviceProfile,
    inputs: &[Tensor],
    limits: &Limits,
    progress: &mut dyn FnMut(f64),
) -> Result<Calibration, CalibrationError> {
    let m = before_mixed_precision(module, pipeline, profile)?;
    progress(0.0);
    let (nodes, values, exact) = measure(module, &m, inputs)?;
    let mut trial = Trial::new(&m, &values, &exact, limits.tolerance);
    trial.spent = 1.0;
    progress(trial.spent);
    let own: Vec<KeepF32> = nodes.iter().filter_map(too_large).collect();
    let mut c = Chooser { graph: &Graph::new(&m, pipeline, profile), trial: &mut trial, limits, progress };
    let Choice { keep, plain, outcome, storage } = c.choose(own, &nodes)?;
    let saved = storage.saved(m.main());
    Ok(Calibration { nodes, keep, plain, error: outcome.error, used: outcome.used, saved, runs: trial.spent })
}

/// The module as the pass `mixed-precision` finds it.
fn before_mixed_precision(
    module: &Module,
    pipeline: &PipelineOptions,
    profile: &DeviceProfile,
) -> Result<Module, PassError> {
    let mut m = module.clone();
    let mut cx = PassContext::new(profile.clone());
    pipeline.configure(&mut cx);
    let list = default_pipeline(pipeline);
    Sequential::new(list.iter().take_while(|p| *p != "mixed-precision")).run(&mut m, &mut cx)?;
    Ok(m)
}

/// A choice of nodes to keep in f32, and its result.
struct Choice {
    keep: Vec<KeepF32>,
    plain: bool,
    outcome: Outcome,
    storage: Storage,
}

/// Measures choices.
struct Chooser<'c, 'a, 'g> {
    graph: &'c Graph<'g>,
    trial: &'c mut Trial<'a>,
    limits: &'c Limits,
    progress: &'c mut dyn FnMut(f64),
}

impl Chooser<'_, '_, '_> {
    fn choose(&mut self, own: Vec<KeepF32>, nodes: &[NodeMeasure]) -> Result<Choice, CalibrationError> {
        let storage = self.graph.storage(AmpMode::Auto, &own)?;
        let results = self.trial.run(&storage.kernels, &mut |_, _| ())?;
        (self.progress)(self.trial.spent);
        let few = Choice { keep: own, plain: false, outcome: self.trial.judge(&results), storage };
        let limit = self.limits.used;
        let enough = |c: &Choice| c.outcome.used <= limit;
        if few.keep.is_empty() && enough(&few) {
            return Ok(few);
        }
        let plain = self.plain(&few)?;
        let chosen = match (enough(&few), enough(&plain)) {
            (true, _) | (_, true) => None,
            _ => Some(self.search(&few, &results, nodes)?),
        };
        let mut all: Vec<Choice> = chosen.into_iter().collect();
        all.extend(if enough(&few) { [few, plain] } else { [plain, few] });
        let better = (1..all.len()).find(|&i| self.is_better(&all[i], &all[0])).unwrap_or(0);
        Ok(all.swap_remove(better))
    }

    /// `a` errs less than `b` and saves as much.
    fn is_better(&self, a: &Choice, b: &Choice) -> bool {
        let f = self.graph.module.main();
        let within = a.outcome.used <= b.outcome.used.max(1.0);
        within && a.outcome.error <= b.outcome.error && a.storage.saved(f) >= b.storage.saved(f)
    }

    /// The choice of `--amp fp16`.
    fn plain(&mut self, few: &Choice) -> Result<Choice, CalibrationError> {
        let storage = self.graph.storage(AmpMode::Fp16, &[])?;
        let same = storage.kernels.iter().map(|k| &k.values).eq(few.storage.kernels.iter().map(|k| &k.values));
        let outcome = if same { few.outcome } else { self.trial.outcome(&storage.kernels)? };
        (self.progress)(self.trial.spent);
        Ok(Choice { keep: vec![], plain: true, outcome, storage })
    }

    /// Searches for kernels to keep in f32 besides the nodes of `few` (which give `results`), so that the results are
    /// within the limit; all nodes if no choice is.
    fn search(&mut self, few: &Choice, results: &[Tensor], nodes: &[NodeMeasure]) -> Result<Choice, CalibrationError> {
        let limit = self.limits.used;
        let mut search = Search::new(self.trial, &few.storage.kernels, results);
        search.refine(self.trial, (limit, self.limits.runs - CHOICES as f64), self.progress)?;
        let (mut target, mut best) = (limit, None::<Choice>);
        for choice in 1..=CHOICES {
            let parts: Vec<(Range<usize>, f64)> =
                search.kept(target).iter().map(|p| (p.kernels.clone(), p.used)).collect();
            let keep = keep_parts(few, &parts);
            let storage = self.graph.storage(AmpMode::Auto, &keep)?;
            let outcome = self.trial.outcome(&storage.kernels)?;
            (self.progress)(self.trial.spent);
            if best.as_ref().is_none_or(|b| outcome.used < b.outcome.used) {
                best = Some(Choice { keep, plain: false, outcome, storage });
            }
            if outcome.used <= limit {
                break;
            }
            // Keeping nodes changes the groups, and these may round other values than before.
            target *= (limit / outcome.used).clamp(0.1, 0.9);
            target = if choice + 1 == CHOICES { target.min(limit * LAST_CHOICE) } else { target };
        }
        Ok(best.filter(|b| b.outcome.used <= limit.max(1.0)).unwrap_or_else(|| {
            let why = format!(
                "calibration: whichever kernels stay in f32, the result takes more than {limit} of the tolerance"
            );
            let keep = nodes.iter().map(|n| KeepF32::node(n.node, why.clone())).collect();
            Choice { keep, plain: false, outcome: Outcome { error: 0.0, used: 0.0 }, storage: Storage::default() }
        }))
    }
}

/// The nodes that keep these parts of `few`'s kernels in f32, each once, after those that must stay so.
fn keep_parts(few: &Choice, parts: &[(Range<usize>, f64)]) -> Vec<KeepF32> {
    let mut keep = few.keep.clone();
    for (kernels, used) in parts {
        let whose = match kernels.len() {
            1 => "its kernel reads and stores".to_string(),
            n => format!("its kernel and {} neighbours read and store", n - 1),
        };
        let why = format!(
            "calibration: rounding what {whose} takes {used:.2} of the tolerance; rounding by all kernels {:.2}",
            few.outcome.used
        );
        let nodes = few.storage.kernels[kernels.clone()].iter().flat_map(|k| &k.nodes);
        for n in nodes.map(|n| KeepF32::node(*n, why.clone())) {
            if !keep.iter().any(|k| k.pattern == n.pattern) {
                keep.push(n);
            }
        }
    }
    keep
}

/// Why a node must stay in f32 by itself.
fn too_large(n: &NodeMeasure) -> Option<KeepF32> {
    let why = || format!("calibration: its result reaches {:.4}, the limit is {MAX_MAGNITUDE}", n.largest);
    (n.largest > MAX_MAGNITUDE).then(|| KeepF32::node(n.node, why()))
}

/// Runs the f32 graph; the measures of its nodes, all its values but constants, and its results.
fn measure(
    model: &Module,
    m: &Module,
    inputs: &[Tensor],
) -> Result<(Vec<NodeMeasure>, Values, Vec<Tensor>), ExecError> {
    let f = m.main();
    let known = names_of(model);
    let mut values: Values = f.params().iter().copied().zip(inputs.iter().cloned()).collect();
    let (mut nodes, mut at) = (Vec::<NodeMeasure>::new(), FxHashMap::default());
    let results = {
        let mut interpreter = Interpreter::new(m).observe(|g, n, results| {
            if g.name != f.name {
                return;
            }
            if let Some(found) = measure_node(f, n, &known, results) {
                // Nodes of loops are measured in every iteration.
                match at.entry(n) {
                    Entry::Vacant(e) => {
                        e.insert(nodes.len());
                        nodes.push(found);
                    }
                    Entry::Occupied(e) => nodes[*e.get()].largest = nodes[*e.get()].largest.max(found.largest),
                }
            }
            values.extend(f.nodes[n].outputs.iter().copied().zip(results.iter().cloned()));
        });
        interpreter.run(f.name, inputs)?
    };
    Ok((nodes, values, results))
}

/// The names that nodes of the model have, or stand for.
fn names_of(model: &Module) -> FxHashSet<Name> {
    let nodes = model.functions.values().flat_map(|f| f.walk().into_iter().map(|n| &f.nodes[n]));
    nodes.flat_map(|n| n.origins.names().iter().copied().chain([n.name])).collect()
}

fn measure_node(f: &Function, n: NodeId, known: &FxHashSet<Name>, results: &[Tensor]) -> Option<NodeMeasure> {
    let node = &f.nodes[n];
    let singles: Vec<&Tensor> = results.iter().filter(|t| t.dtype() == DType::F32).collect();
    if singles.is_empty() {
        return None;
    }
    let largest = singles.iter().map(|t| rounding_loss(&t.to_f32_vec()).1).fold(0.0, f64::max);
    let listed = [node.name].into_iter().chain(node.origins.names().iter().copied()).find(|n| known.contains(n));
    Some(NodeMeasure { node: node.name, listed: listed.unwrap_or(node.name), largest })
}

#[cfg(test)]
mod tests;
