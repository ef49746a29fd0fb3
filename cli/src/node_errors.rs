//! The error of each node on a device, for `weft compare`.
//!
//! Each node is measured alone: every float operand of a node becomes an input of the module, and every result an
//! output. The inputs are the exact values from a run of the f32 module on the CPU executor. With `--cumulative` the
//! module is not changed, except that every node's result becomes an output: errors then include those of earlier
//! nodes.

use crate::args::CompareArgs;
use crate::error::CliResult;
use crate::executor::{CPU_EXECUTOR, Device, execute_with, profile_on};
use crate::output::log;
use crate::values_by_name::{exact_values, with_results};
use compiler::agreement::{Difference, Tolerance, agree};
use compiler::attr::Attr;
use compiler::dtype::DType;
use compiler::graph::{Module, NodeId, ValueDef, ValueId};
use compiler::name::Name;
use compiler::ops::control::Const;
use compiler::passes::PipelineOptions;
use compiler::tensor::Tensor;
use rustc_hash::FxHashMap;

/// How one node differs from the f32 module on the CPU executor.
pub struct NodeError {
    /// Name of the node.
    pub name: String,
    /// Its op.
    pub op: String,
    /// The difference of its first result.
    pub difference: Difference,
}

/// Errors of the nodes of the entry function, compiled with `pipeline`, in execution order. Only done where the caller
/// asks for it: with `-v`, `--cumulative`, `-o` or `--json`.
pub fn node_errors(
    a: &CompareArgs,
    module: &Module,
    inputs: &[Tensor],
    device: &Device,
    pipeline: &PipelineOptions,
) -> CliResult<Vec<NodeError>> {
    if !(a.cumulative || a.output.is_some() || a.common.verbose > 0 || a.common.json.is_some()) {
        return Ok(vec![]);
    }
    let nodes = observed_nodes(module);
    let (exact, _) = exact_values(module, inputs, &a.common, |_| true)?;
    let (changed, inputs) = match a.cumulative {
        true => (exposed(module, &nodes), inputs.to_vec()),
        false => isolated(module, &nodes, inputs, &exact),
    };
    let profile = profile_on(&a.common, device)?;
    let mut pipeline = pipeline.clone();
    if !a.cumulative {
        // Nodes that follow their operands have inputs before them: those count as f16.
        let options = [("half_inputs".to_string(), Attr::Bool(true))].into_iter().collect();
        pipeline.config.push(("mixed-precision".into(), options));
    }
    let executor = execute_with(changed, pipeline, &a.common, device, &profile, false)?;
    let half = executor.is_mixed();
    let (got, place) = executor.run_placed(&inputs)?;
    if place == CPU_EXECUTOR && !half {
        log(&a.common, "nodes: not compared, as the CPU executor would be held against itself");
        return Ok(vec![]);
    }
    let f = module.main();
    let first = got.len() - nodes.len();
    let compared = nodes.iter().zip(&got[first..]).filter_map(|(&n, t)| {
        let want = exact.get(&f.nodes[n].outputs[0])?;
        let tol = Tolerance::new(if half { DType::F16 } else { t.dtype() }, a.rtol, a.atol);
        let (name, op) = (f.nodes[n].name.to_string(), f.nodes[n].op.name().to_string());
        Some(NodeError { name, op, difference: agree(t, want, &tol) })
    });
    Ok(compared.collect())
}

/// Nodes of the entry function's body whose first result is float.
pub fn observed_nodes(module: &Module) -> Vec<NodeId> {
    let f = module.main();
    let float = |n: &NodeId| f.nodes[*n].outputs.first().is_some_and(|&v| f.ty(v).dtype.is_float());
    f.blocks[f.body].nodes.iter().copied().filter(|n| !f.nodes[*n].op.is::<Const>() && float(n)).collect()
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
    let mut out = exposed(module, nodes);
    let mut inputs = inputs.to_vec();
    let f = out.main_mut();
    let body = f.body;
    let mut fresh: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    for &n in nodes {
        for &v in &module.main().nodes[n].outputs {
            let (Some(t), true) = (exact.get(&v), f.ty(v).dtype.is_float()) else { continue };
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
    }
    let results = std::mem::take(&mut f.blocks[body].results);
    f.replace_uses_many(&|v| fresh.get(&v).copied().unwrap_or(v));
    f.blocks[body].results = results;
    (out, inputs)
}
