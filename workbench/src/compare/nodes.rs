//! The error of each node on a device, for `weft compare`.
//!
//! Compiled groups are measured as they run. Only nodes whose results the compiled program stores are compared: others
//! are computed within a kernel, or folded into constants, and making them outputs would compile another program.
//!
//! Each group is measured alone: every float operand that another group stores becomes an input of the module, and
//! every result an output. The inputs are the exact values from a run of the f32 module on the interpreter. With
//! `--cumulative` the module is not changed, except that the results become outputs: errors then include those of
//! earlier groups.

use super::request::Request;
use crate::error::Result;
use crate::executor::{Device, INTERPRETER, compile_options, execute_with, profile_on};
use crate::progress::log;
use crate::values_by_name::{exact_values, with_results};
use compiler::agreement::{Difference, Tolerance, agree};
use compiler::attr::Attr;
use compiler::compile::compile_graph;
use compiler::dtype::DType;
use compiler::graph::{Function, Module, NodeId, ValueDef, ValueId};
use compiler::name::Name;
use compiler::ops::control::Const;
use compiler::passes::{FuseMode, PipelineOptions};
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use rustc_hash::{FxHashMap, FxHashSet};

/// How one node differs from the f32 module on the interpreter.
pub struct NodeError {
    /// Name of the node.
    pub name: String,
    /// Its op.
    pub op: String,
    /// The difference of its first result.
    pub difference: Difference,
    /// The norm of the difference with the errors of the nodes before it, relative to that of the reference. Measured
    /// for a trace, which shows both.
    pub accumulated: Option<f64>,
}

/// Errors of the nodes of the entry function, compiled with `pipeline`, in execution order. Only done where the caller
/// asks for it: with `-v`, `--cumulative`, `-o` or `--json`.
pub fn node_errors(
    a: &Request,
    module: &Module,
    inputs: &[Tensor],
    device: &Device,
    pipeline: &PipelineOptions,
) -> Result<Vec<NodeError>> {
    if !(a.cumulative || a.trace || a.nodes) {
        return Ok(vec![]);
    }
    let profile = profile_on(&a.settings, device)?;
    let stored = stored_nodes(module, a, device, pipeline, &profile)?;
    let nodes: Vec<NodeId> =
        observed_nodes(module).into_iter().filter(|&n| stored.contains(&module.main().nodes[n].name)).collect();
    let (exact, _) = exact_values(module, inputs, &a.settings, |_| true)?;
    let run = Observed { a, module, inputs, device, pipeline, profile: &profile, nodes: &nodes, exact: &exact };
    let mut errors = run.errors(a.cumulative)?;
    if a.trace && !a.cumulative {
        let accumulated = run.errors(true)?;
        let of: FxHashMap<&str, f64> = accumulated.iter().map(|e| (e.name.as_str(), e.difference.rel_l2)).collect();
        errors.iter_mut().for_each(|e| e.accumulated = of.get(e.name.as_str()).copied());
    }
    Ok(errors)
}

/// Nodes to compare, with their exact values.
struct Observed<'a> {
    a: &'a Request,
    module: &'a Module,
    inputs: &'a [Tensor],
    device: &'a Device,
    pipeline: &'a PipelineOptions,
    profile: &'a DeviceProfile,
    nodes: &'a [NodeId],
    exact: &'a FxHashMap<ValueId, Tensor>,
}

impl Observed<'_> {
    /// The errors of the nodes in a run of them all, or of each alone.
    fn errors(&self, cumulative: bool) -> Result<Vec<NodeError>> {
        let Observed { a, module, inputs, device, pipeline, profile, nodes, exact } = *self;
        let (changed, inputs) = match cumulative {
            true => (exposed(module, nodes), inputs.to_vec()),
            false => isolated(module, nodes, inputs, exact),
        };
        let mut pipeline = pipeline.clone();
        if !cumulative {
            // Nodes that follow their operands have inputs before them: those count as f16.
            let options = [("half_inputs".to_string(), Attr::Bool(true))].into_iter().collect();
            pipeline.config.push(("mixed-precision".into(), options));
        }
        let executor = execute_with(changed, pipeline, &a.settings, device, profile, false)?;
        let half = executor.is_mixed();
        let (got, place) = executor.run_unchecked(&inputs)?;
        if place == INTERPRETER && !half {
            log(&a.settings, "nodes: not compared, as the interpreter would be held against itself");
            return Ok(vec![]);
        }
        let f = module.main();
        let first = got.len() - nodes.len();
        let compared = nodes.iter().zip(&got[first..]).filter_map(|(&n, t)| {
            let want = exact.get(&f.nodes[n].outputs[0])?;
            let tol = Tolerance::new(if half { DType::F16 } else { t.dtype() }, a.against.rtol, a.against.atol);
            let (name, op) = (f.nodes[n].name.to_string(), f.nodes[n].op.name().to_string());
            Some(NodeError { name, op, difference: agree(t, want, &tol), accumulated: None })
        });
        Ok(compared.collect())
    }
}

/// Nodes of the entry function's body whose first result is float.
pub fn observed_nodes(module: &Module) -> Vec<NodeId> {
    let f = module.main();
    let float = |n: &NodeId| f.nodes[*n].outputs.first().is_some_and(|&v| f.ty(v).dtype.is_float());
    f.blocks[f.body].nodes.iter().copied().filter(float).collect()
}

/// Nodes of the model whose results the compiled program stores. The interpreter fuses nothing.
fn stored_nodes(
    module: &Module,
    a: &Request,
    device: &Device,
    pipeline: &PipelineOptions,
    profile: &DeviceProfile,
) -> Result<FxHashSet<Name>> {
    let mut pipeline = pipeline.clone();
    if matches!(device, Device::Interpreter) {
        pipeline.fuse = FuseMode::Off;
    }
    let compiled = compile_graph(module.clone(), &compile_options(pipeline, &a.settings, profile)?, profile)?.module;
    let (f, source) = (compiled.main(), module.main());
    let order = source.blocks[source.body].nodes.iter().enumerate().map(|(i, &n)| (source.nodes[n].name, i)).collect();
    let nodes = f.blocks[f.body].nodes.iter().map(|&n| &f.nodes[n]).filter(|n| !n.op.is::<Const>());
    let values = nodes.flat_map(|n| &n.outputs);
    Ok(values.filter_map(|&v| source_of(&compiled, f, v, &order)).collect())
}

/// The node of the model that a value of the compiled program is the result of: the last of the source nodes that its
/// maker came from. Nodes that passes put in give on what they read.
fn source_of(module: &Module, f: &Function, v: ValueId, order: &FxHashMap<Name, usize>) -> Option<Name> {
    let node = &f.nodes[f.def_node(v)?];
    if let Some(g) = node.op.callee().and_then(|c| module.functions.get(&c)) {
        let result = node.outputs.iter().position(|o| *o == v)?;
        return source_of(module, g, *g.results().get(result)?, order);
    }
    if node.origins.are_served() {
        return source_of(module, f, node.inputs.first().copied().flatten()?, order);
    }
    // A node that no pass made may have its name alone.
    let names = node.origins.names().iter().chain([&node.name]).copied();
    names.filter(|n| order.contains_key(n)).max_by_key(|n| order[n])
}

/// The module with the first result of every node of `nodes` as an output behind its own.
fn exposed(module: &Module, nodes: &[NodeId]) -> Module {
    let f = module.main();
    let first: Vec<_> = nodes.iter().map(|&n| (f.nodes[n].name, f.nodes[n].outputs[0])).collect();
    with_results(module, &first)
}

/// The exposed module in which every float value that a node computes reaches its users as an input of its own; and the
/// inputs.
fn isolated(
    module: &Module,
    nodes: &[NodeId],
    inputs: &[Tensor],
    exact: &FxHashMap<ValueId, Tensor>,
) -> (Module, Vec<Tensor>) {
    let f = module.main();
    let values = nodes.iter().flat_map(|&n| &f.nodes[n].outputs).copied();
    fed(exposed(module, nodes), values.filter(|&v| f.ty(v).dtype.is_float()), inputs, exact)
}

/// The module in which each of these values reaches its users, but for the results, as an input of its own; and the
/// inputs with their exact values.
pub fn fed(
    mut out: Module,
    values: impl Iterator<Item = ValueId>,
    inputs: &[Tensor],
    exact: &FxHashMap<ValueId, Tensor>,
) -> (Module, Vec<Tensor>) {
    let mut inputs = inputs.to_vec();
    let f = out.main_mut();
    let body = f.body;
    let mut fresh: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    for v in values {
        let Some(t) = exact.get(&v) else { continue };
        let ty = f.ty(v).clone();
        if t.shape().is_empty() && ty.rank() != 0 || ty.const_shape().is_none() {
            continue;
        }
        let at = f.blocks[body].args.len();
        let name = Name::new(&format!("exact{at}"));
        let arg = f.fresh_value(ty, ValueDef::Arg(body, at), Some(name));
        f.blocks[body].args.push(arg);
        inputs.push(t.clone());
        fresh.insert(v, arg);
    }
    let results = std::mem::take(&mut f.blocks[body].results);
    f.replace_uses_many(&|v| fresh.get(&v).copied().unwrap_or(v));
    f.blocks[body].results = results;
    (out, inputs)
}
