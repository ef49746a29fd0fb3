//! Inner tensors of a model by name: of values as the model calls them, or of nodes.

use crate::error::{Error, Result};
use crate::executor::interpret_watched;
use crate::names::did_you_mean;
use crate::node_names;
use crate::settings::Settings;
use compiler::graph::{Function, Module, NodeId, ValueId, outer_operands};
use compiler::name::Name;
use compiler::ops::control::Const;
use compiler::tensor::Tensor;
use rustc_hash::{FxHashMap, FxHashSet};

/// A value of the entry function with the name that it has in files.
pub type NamedValue = (Name, ValueId);

/// The name of result `i` of a node: the model's name of the tensor, else the node's.
fn name_of_result(f: &Function, n: NodeId, i: usize) -> Name {
    let node = &f.nodes[n];
    let result = || f.results().iter().position(|&v| v == node.outputs[i]).map(|at| f.result_names[at]);
    let numbered = || match node.outputs.len() {
        1 => node.name,
        _ => Name::new(&format!("{}.{i}", node.name)),
    };
    f.values[node.outputs[i]].name.or_else(result).unwrap_or_else(numbered)
}

/// The results of a node, named.
pub fn results_of(f: &Function, n: NodeId) -> Vec<NamedValue> {
    let outputs = f.nodes[n].outputs.iter().enumerate();
    outputs.map(|(i, &v)| (name_of_result(f, n, i), v)).collect()
}

/// The nodes of the body that compute.
pub fn nodes_of(f: &Function) -> impl Iterator<Item = NodeId> {
    f.blocks[f.body].nodes.iter().copied().filter(|&n| !f.nodes[n].op.is::<Const>())
}

/// The tensor of this name: an input, a result, or one between them.
fn tensor(f: &Function, name: Name) -> Option<NamedValue> {
    let is_result = || f.result_names.iter().position(|&r| r == name).map(|i| f.results()[i]);
    let nodes = f.blocks[f.body].nodes.iter().flat_map(|&n| &f.nodes[n].outputs);
    let mut values = f.params().iter().chain(nodes).copied();
    values.find(|&v| f.values[v].name == Some(name)).or_else(is_result).map(|v| (name, v))
}

/// Whoever `text` names: a tensor, else nodes by [`node_names::find`].
pub enum Named {
    /// A tensor.
    Tensor(NamedValue),
    /// Nodes.
    Nodes(Vec<NodeId>),
}

/// Looks a name up in the entry function.
///
/// # Errors
/// No such name; a node inside a loop or a branch.
pub fn find(module: &Module, text: &str) -> Result<Named> {
    let (f, name) = (module.main(), Name::new(text));
    if let Some(found) = tensor(f, name) {
        return Ok(Named::Tensor(found));
    }
    let list: Vec<NodeId> = nodes_of(f).collect();
    let names: Vec<(&str, &str)> = list.iter().map(|&n| (f.nodes[n].name.as_str(), f.nodes[n].op.name())).collect();
    let found: Vec<NodeId> = node_names::find(text, &names).into_iter().map(|i| list[i]).collect();
    if found.is_empty() { Err(unknown(f, text, &names)) } else { Ok(Named::Nodes(found)) }
}

fn unknown(f: &Function, text: &str, nodes: &[(&str, &str)]) -> Error {
    let inside = |&n: &NodeId| f.nodes[n].block != Some(f.body) && f.nodes[n].name.as_str() == text;
    if f.walk().iter().any(inside) {
        return Error::usage(format!("`{text}` is inside a loop or a branch, which has no one value of it"))
            .help("name the loop or the branch itself");
    }
    let values = f.values.iter().filter_map(|(_, v)| v.name).map(|n| n.to_string());
    let known = node_names::known(nodes).into_iter().chain(values).collect();
    let error = Error::usage(format!("the model has no tensor or node `{text}`"));
    let help = did_you_mean(text, known);
    error.help(help.unwrap_or_else(|| "`weft explain MODEL` lists the nodes".into()))
}

/// The values with which a part ends that is to end with `names`: of several nodes, those that others read.
///
/// # Errors
/// As [`find`].
pub fn ends(module: &Module, names: &[String]) -> Result<Vec<NamedValue>> {
    let f = module.main();
    let mut out = vec![];
    for name in names {
        match find(module, name)? {
            Named::Nodes(list) if list.len() > 1 && !name.contains(['*', '?']) => {
                let inside: FxHashSet<NodeId> = list.iter().copied().collect();
                let others = nodes_of(f).filter(|n| !inside.contains(n));
                let read: FxHashSet<ValueId> =
                    others.flat_map(|n| outer_operands(f, n)).chain(f.results().iter().copied()).collect();
                out.extend(list.into_iter().flat_map(|n| results_of(f, n)).filter(|v| read.contains(&v.1)));
            }
            _ => out.extend(values(module, std::slice::from_ref(name))?),
        }
    }
    Ok(out)
}

/// The values that `names` stand for, each once: tensors, and results of nodes.
///
/// # Errors
/// As [`find`].
pub fn values(module: &Module, names: &[String]) -> Result<Vec<NamedValue>> {
    let f = module.main();
    let mut out: Vec<NamedValue> = vec![];
    for name in names {
        let found = match find(module, name)? {
            Named::Tensor(v) => vec![v],
            Named::Nodes(list) => list.into_iter().flat_map(|n| results_of(f, n)).collect(),
        };
        out.extend(found);
    }
    let mut seen = FxHashSet::default();
    out.retain(|v| seen.insert(v.1));
    Ok(out)
}

/// What stands before some nodes: the tensors that they read and do not compute themselves, without what follows from
/// constants alone.
pub fn operands_of(f: &Function, nodes: &[NodeId]) -> Vec<NamedValue> {
    let variable = follow_from_inputs(f);
    let inside = |v: &ValueId| f.def_node(*v).is_some_and(|n| nodes.contains(&n));
    let mut out: Vec<NamedValue> = vec![];
    for v in nodes.iter().flat_map(|&n| outer_operands(f, n)).filter(|v| variable.contains(v) && !inside(v)) {
        if !out.iter().any(|o| o.1 == v) {
            out.push((name_of(f, v), v));
        }
    }
    out
}

/// The name of a value: an input's, or that of a node's result.
pub fn name_of(f: &Function, v: ValueId) -> Name {
    let of_node = |n: NodeId| {
        let i = f.nodes[n].outputs.iter().position(|&o| o == v).unwrap_or(0);
        name_of_result(f, n, i)
    };
    f.values[v].name.or_else(|| f.def_node(v).map(of_node)).unwrap_or_else(|| Name::new("input"))
}

/// The values of the body that inputs have a part in.
fn follow_from_inputs(f: &Function) -> FxHashSet<ValueId> {
    let mut out: FxHashSet<ValueId> = f.params().iter().copied().collect();
    for &n in &f.blocks[f.body].nodes {
        if outer_operands(f, n).iter().any(|v| out.contains(v)) {
            out.extend(&f.nodes[n].outputs);
        }
    }
    out
}

/// The module with more results behind its own.
pub fn with_results(module: &Module, more: &[NamedValue]) -> Module {
    let mut out = module.clone();
    let f = out.main_mut();
    for &(name, v) in more {
        let (ty, body) = (f.ty(v).clone(), f.body);
        f.blocks[body].results.push(v);
        f.result_names.push(name);
        f.result_types.push(ty);
    }
    out
}

/// Values of a run on the interpreter, and the model's results.
///
/// # Errors
/// An error of the run.
pub fn exact_values(
    module: &Module,
    inputs: &[Tensor],
    settings: &Settings,
    wanted: impl Fn(ValueId) -> bool,
) -> Result<(FxHashMap<ValueId, Tensor>, Vec<Tensor>)> {
    let params = module.main().params().iter().copied().zip(inputs.iter().cloned());
    let mut values: FxHashMap<ValueId, Tensor> = params.filter(|p| wanted(p.0)).collect();
    let results = interpret_watched(module, inputs, settings, "nodes", |g, n, outputs| {
        let list = g.nodes[n].outputs.iter().copied().zip(outputs.iter().cloned());
        values.extend(list.filter(|v| wanted(v.0)));
    })?;
    Ok((values, results))
}
