//! The first node whose f16 makes the results wrong: nodes behind it are kept in f32.

use super::cause::{Cause, Overflow};
use super::trial::{Case, Setting, Trials, first_wrong};
use crate::compare::nodes::observed_nodes;
use crate::error::Result;
use crate::values_by_name::exact_values;
use compiler::graph::{Function, NodeId, ValueId, outer_operands};
use compiler::passes::mixed_precision::KeepF32;
use compiler::tensor::Tensor;
use rustc_hash::FxHashMap;

/// The largest finite number of f16.
const LARGEST_F16: f64 = 65504.0;

/// Looks for the node whose f16 makes the results wrong, where the results of f32 are right.
///
/// # Errors
/// An error of compilation or of a run.
pub fn wrong_precision(trials: &Trials<'_>, case: &Case, setting: &Setting) -> Result<Cause> {
    let f = case.module.main();
    let nodes = observed_nodes(&case.module);
    let at = first_wrong(nodes.len(), |count| {
        let what = format!("the first {count} of {} nodes in f16", nodes.len());
        Ok(!trials.run(case, &keeping(setting, f, &nodes[count..]), &what)?.agrees())
    })?;
    let overflow = overflow(trials, case, nodes[at - 1])?;
    // A value that is too large is an operand in f16 first, where its own node is still in f32.
    let made = overflow.as_ref().and_then(|o| f.def_node(o.1));
    let mut remedy = None;
    for node in made.into_iter().chain([nodes[at - 1]]) {
        let what = format!("`{}` alone kept in f32", f.nodes[node].name);
        if remedy.is_none() && trials.run(case, &keeping(setting, f, &[node]), &what)?.agrees() {
            remedy = Some(f.nodes[node].name);
        }
    }
    let node = &f.nodes[made.unwrap_or(nodes[at - 1])];
    Ok(Cause::Precision { name: node.name, op: node.op.name().to_string(), overflow: overflow.map(|o| o.0), remedy })
}

/// The setting with some nodes kept in f32.
fn keeping(setting: &Setting, f: &Function, nodes: &[NodeId]) -> Setting {
    let mut out = setting.clone();
    out.pipeline.keep_f32.extend(nodes.iter().map(|&n| KeepF32::node(f.nodes[n].name, "bisection keeps it")));
    out
}

/// A value of the node that f16 cannot hold: an operand, else its result.
fn overflow(trials: &Trials<'_>, case: &Case, node: NodeId) -> Result<Option<(Overflow, ValueId)>> {
    let f = case.module.main();
    let values: Vec<ValueId> = [outer_operands(f, node), f.nodes[node].outputs.clone()].concat();
    let (exact, _) = exact_values(&case.module, &case.inputs, &trials.a.settings, |v| values.contains(&v))?;
    Ok(values.into_iter().find_map(|v| beyond(f, v, &exact)))
}

fn beyond(f: &Function, v: ValueId, exact: &FxHashMap<ValueId, Tensor>) -> Option<(Overflow, ValueId)> {
    let t = exact.get(&v).filter(|t| t.dtype().is_float())?;
    let largest = t.to_f64_vec().into_iter().filter(|x| x.is_finite()).fold(0.0, |m: f64, x| m.max(x.abs()));
    (largest > LARGEST_F16).then(|| (Overflow { value: crate::values_by_name::name_of(f, v), largest }, v))
}
