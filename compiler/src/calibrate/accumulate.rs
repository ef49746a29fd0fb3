//! Growth of errors of f16 storage along a graph, to explain a failing comparison.

use super::storage::{Graph, Kernel};
use super::trial::Trial;
use super::{CalibrationError, before_mixed_precision, measure, names_of};
use crate::agreement::{Tolerance, agree};
use crate::graph::{Function, Module, NodeId, ValueId};
use crate::interpreter::ExecError;
use crate::name::Name;
use crate::ops::control::Const;
use crate::passes::mixed_precision::escape_pattern;
use crate::passes::{KeepF32, PassError, PipelineOptions};
use crate::profile::DeviceProfile;
use crate::tensor::Tensor;
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// The error that a node's result has with the roundings before it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Point {
    /// A name of the model that means the node.
    #[serde(rename = "name")]
    #[schemars(with = "String")]
    pub node: Name,
    /// Its op.
    pub op: String,
    /// `norm(a-b) / norm(b)`; infinite where the result is not finite.
    #[serde(rename = "rel_l2")]
    #[schemars(with = "Option<f64>")]
    pub error: f64,
    /// The share of the tolerance that the result takes.
    #[serde(rename = "tolerance_used")]
    #[schemars(with = "Option<f64>")]
    pub used: f64,
}

/// Names as patterns that mean these nodes alone.
fn as_patterns<S: Serializer>(names: &[Name], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(names.iter().map(|n| escape_pattern(n.as_str())))
}

/// The node whose rounding takes the results beyond the tolerance.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Passed {
    /// A name of the model that means the node.
    #[serde(rename = "name")]
    #[schemars(with = "String")]
    pub node: Name,
    /// Its op.
    pub op: String,
    /// Share of the tolerance that the results take, with the roundings before the node.
    #[schemars(with = "Option<f64>")]
    pub before: f64,
    /// With the node's, too.
    #[schemars(with = "Option<f64>")]
    pub after: f64,
    /// Share of the tolerance that the results take with everything rounded but `keep`.
    #[schemars(with = "Option<f64>")]
    pub kept: f64,
    /// Bytes that keeping them costs.
    pub bytes: u64,
    /// Names of the model that keep it in f32, in the order of execution: as patterns for `--keep-f32`.
    #[serde(serialize_with = "as_patterns")]
    #[schemars(with = "Vec<String>")]
    pub keep: Vec<Name>,
}

/// How errors accumulate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Accumulated {
    /// Every node with a float result, in execution order.
    pub points: Vec<Point>,
    /// Share of the tolerance that the results take with everything rounded.
    pub used: f64,
    /// The node at which they leave the tolerance, or reach nine tenths of their final error; `None` if nothing is
    /// rounded.
    pub passed: Option<Passed>,
    /// Bytes that f16 saves.
    pub saved: u64,
}

/// Bytes that a compiled module keeps in f32, and bytes that f16 saves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Stored {
    /// Nodes of the compiled program that compute.
    pub nodes: usize,
    /// Those of them that are on the keep list.
    pub kept: usize,
    /// Bytes of constants and results of kernels, all in f32.
    #[serde(rename = "fp32_bytes")]
    pub single: u64,
    /// Bytes that f16 saves of them.
    #[serde(rename = "saved_bytes")]
    pub saved: u64,
}

/// The stored bytes of `module`, compiled with `pipeline`.
///
/// # Errors
/// An error of a pass.
pub fn storage_of(module: &Module, pipeline: &PipelineOptions, profile: &DeviceProfile) -> Result<Stored, PassError> {
    let m = before_mixed_precision(module, pipeline, profile)?;
    let f = m.main();
    let computes = |n: &&NodeId| !f.nodes[**n].op.is::<Const>();
    let kept = |n: &&NodeId| pipeline.keep_f32.iter().any(|k| k.covers(&f.nodes[**n]));
    let nodes: Vec<NodeId> = f.walk().iter().filter(computes).copied().collect();
    let storage = Graph::new(&m, pipeline, profile).storage(pipeline.amp, &[])?;
    let kept = nodes.iter().filter(kept).count();
    Ok(Stored { nodes: nodes.len(), kept, single: storage.single, saved: storage.saved(f) })
}

/// Runs the f32 graph of `module` on the host with everything rounded that it stores in f16 when it is compiled with
/// `pipeline`, and finds the first kernel up to which rounding makes the results leave the tolerance.
///
/// # Errors
/// An error of a pass or of the interpreter.
pub fn accumulate(
    module: &Module,
    pipeline: &PipelineOptions,
    profile: &DeviceProfile,
    inputs: &[Tensor],
    tolerance: Tolerance,
    progress: &mut dyn FnMut(f64),
) -> Result<Accumulated, CalibrationError> {
    let m = before_mixed_precision(module, pipeline, profile)?;
    let (nodes, values, exact) = measure(module, &m, inputs)?;
    let known = names_of(module);
    let (f, graph) = (m.main(), Graph::new(&m, pipeline, profile));
    let storage = graph.storage(pipeline.amp, &[])?;
    let (kernels, saved) = (&storage.kernels, storage.saved(f));
    let mut trial = Trial::new(&m, &values, &exact, tolerance);
    let mut errors: FxHashMap<ValueId, (f64, f64)> = FxHashMap::default();
    let results = trial.run(kernels, &mut |v, t| {
        if let Some(b) = values.get(&v).filter(|b| b.dtype().is_float()) {
            let d = agree(t, b, &tolerance);
            errors.insert(v, (d.rel_l2, d.used));
        }
    })?;
    progress(trial.spent);
    let listed: FxHashMap<Name, Name> = nodes.iter().map(|n| (n.node, n.listed)).collect();
    let name_of = |n: NodeId| {
        let node = &f.nodes[n];
        let own = || known.contains(&node.name).then_some(node.name);
        listed.get(&node.name).copied().or_else(own).unwrap_or(node.name)
    };
    let point = |n: &NodeId| {
        let (error, used) = *errors.get(f.nodes[*n].outputs.first()?)?;
        Some(Point { node: name_of(*n), op: f.nodes[*n].op.name().to_string(), error, used })
    };
    let points = f.blocks[f.body].nodes.iter().filter_map(point).collect();
    let used = trial.judge(&results).used;
    let Some((at, before, after)) = crossing(&mut trial, kernels, used, progress)? else {
        return Ok(Accumulated { points, used, passed: None, saved });
    };
    let kernel = &kernels[at];
    let own: Vec<KeepF32> = kernel.nodes.iter().map(|n| KeepF32::node(*n, "")).collect();
    let rest = graph.storage(pipeline.amp, &own)?;
    let kept = trial.outcome(&rest.kernels)?.used;
    let bytes = saved.saturating_sub(rest.saved(f));
    let mut keep: Vec<Name> = Vec::new();
    for n in nodes.iter().filter(|n| kernel.nodes.contains(&n.node)) {
        if !keep.contains(&n.listed) {
            keep.push(n.listed);
        }
    }
    let maker = maker_of(f, kernel);
    let (node, op) = match maker {
        Some(n) => (name_of(n), f.nodes[n].op.name().to_string()),
        None => (keep.first().copied().unwrap_or(f.name), "input".to_string()),
    };
    Ok(Accumulated { points, used, passed: Some(Passed { node, op, before, after, keep, kept, bytes }), saved })
}

/// The first kernel whose rounding, together with all earlier ones, takes the results beyond the tolerance; and the
/// fractions of the tolerance without and with it.
fn crossing(
    trial: &mut Trial<'_>,
    kernels: &[Kernel],
    all: f64,
    progress: &mut dyn FnMut(f64),
) -> Result<Option<(usize, f64, f64)>, ExecError> {
    if kernels.is_empty() || all == 0.0 {
        return Ok(None);
    }
    let limit = (0.9 * all).min(1.0);
    let (mut within, mut beyond) = ((0, 0.0), (kernels.len(), all));
    while beyond.0 - within.0 > 1 {
        let middle = within.0.midpoint(beyond.0);
        let used = trial.outcome(&kernels[..middle])?.used;
        progress(trial.spent);
        match used > limit {
            true => beyond = (middle, used),
            false => within = (middle, used),
        }
    }
    Ok(Some((within.0, within.1, beyond.1)))
}

/// The node that gives what the kernel stores in f16, else the one that reads its constants.
fn maker_of(f: &Function, kernel: &Kernel) -> Option<NodeId> {
    let stored = kernel.values.iter().filter_map(|v| f.def_node(*v)).find(|n| !f.nodes[*n].op.is::<Const>());
    stored.or_else(|| f.walk().into_iter().find(|n| kernel.nodes.contains(&f.nodes[*n].name)))
}
