//! `weft explain`: which kernel each node is in, what each pass did, and what stopped the next fusion.

mod model;
mod node;
mod relations;

use crate::args::{CompareArgs, ExplainArgs};
use crate::arrays::read_npz;
use crate::error::{CliError, CliResult};
use crate::executor::{Device, compile_for, target_profile};
use crate::models::load;
use compiler::agreement::{Difference, Tolerance, agree};
use compiler::graph::{Module, NodeId};
use compiler::name::Name;
use compiler::tensor::Tensor;
use relations::Relations;

/// Explains a model or one node of it.
pub fn execute(a: &ExplainArgs) -> CliResult<()> {
    if crate::trace::is_trace(&a.model) {
        return crate::trace::explain(&a.model, a.node.as_deref(), &a.common);
    }
    let given = a.input.as_ref().map(|p| read_npz(p)).transpose()?;
    let module = load(&a.model, &a.common, given.as_ref())?;
    let profile = target_profile(&a.common)?;
    let compiled = compile_for(module, &a.common, &profile)?;
    let relations = Relations::new(&compiled);
    match &a.node {
        Some(node) => node::explain(a, &relations, node),
        None => model::explain(a, &relations),
    }
}

/// Error of each node's result on the device against the CPU: of one compilation in which every group's results are
/// outputs too (`--cumulative`: with the errors before it; otherwise the same run, as groups are compared as they come).
/// Only done where the caller asks for it: with `-v`, `--cumulative`, `--write-keep` or `--json`.
pub fn node_errors(
    a: &CompareArgs,
    module: &Module,
    inputs: &[Tensor],
    device: &Device,
) -> CliResult<Vec<((String, String), Difference)>> {
    let wanted = a.cumulative || a.write_keep.is_some() || a.common.verbose > 0;
    if !wanted || matches!(device, Device::Cpu) {
        return Ok(vec![]);
    }
    let mut exposed = module.clone();
    let (names, ids) = expose_all(&mut exposed);
    let executor = crate::executor::Executor::new(exposed, &a.common, device)?;
    let got = executor.run(inputs)?;
    let mut want: Vec<Option<Tensor>> = vec![None; ids.len()];
    {
        let entry = module.entry;
        let mut interpreter = compiler::cpu::Interpreter::new(module).observe(|f, n, outputs| {
            if f.name == entry
                && let Some(i) = ids.iter().position(|id| *id == n)
            {
                want[i] = outputs.first().cloned();
            }
        });
        interpreter.run(entry, inputs).map_err(|e| CliError::input(e.to_string()))?;
    }
    let tol = if a.common.amp == "off" { 1e-3 } else { 1e-2 };
    let first = got.len() - ids.len();
    Ok(names
        .into_iter()
        .zip(got[first..].iter().zip(want))
        .filter_map(|(n, (g, w))| w.map(|w| (n, agree(g, &w, &Tolerance::uniform(a.rtol.unwrap_or(tol))))))
        .collect())
}

type NodeNames = Vec<(String, String)>;

/// Makes the first result of every float node of the entry function an output; returns `(name, op)` and ids.
fn expose_all(module: &mut Module) -> (NodeNames, Vec<NodeId>) {
    let f = module.main_mut();
    let (mut names, mut ids) = (vec![], vec![]);
    for n in f.blocks[f.body].nodes.clone() {
        let node = &f.nodes[n];
        let Some(&v) = node.outputs.first() else { continue };
        if node.op.is::<compiler::ops::control::Const>() || !f.ty(v).dtype.is_float() {
            continue;
        }
        names.push((node.name.to_string(), node.op.name().to_string()));
        ids.push(n);
    }
    for (&n, (name, _)) in ids.iter().zip(&names) {
        let v = f.nodes[n].outputs[0];
        let ty = f.ty(v).clone();
        let body = f.body;
        f.blocks[body].results.push(v);
        f.result_names.push(Name::new(name));
        f.result_types.push(ty);
    }
    (names, ids)
}
