//! Checks that a module can have a plan. Any other module runs on the interpreter, or has open dimensions.

use super::callees::Callees;
use super::error::CompileError;
use crate::arena::Id;
use crate::graph::{Function, Module, NodeId, ValueId, open_dims};
use crate::int::Dim;
use crate::name::Name;
use crate::ops::control::{Call, If, Loop};
use crate::ops::function_values::Apply;

/// Refuses an entry function that has no plan.
///
/// # Errors
/// Refuses open dimensions, and modules that only the interpreter can run.
pub(super) fn check(module: &Module, main: &Function) -> Result<(), CompileError> {
    check_functions(main)?;
    check_sizes(main, &open_dims(module))?;
    check_nodes(module, main)
}

/// All sizes must be known. A module with sizes that a node defines at run time needs the interpreter.
fn check_sizes(main: &Function, known: &[Name]) -> Result<(), CompileError> {
    let nodes = main.walk();
    for &n in &nodes {
        let node = &main.nodes[n];
        if let Some(symbol) = node.op.defined_symbols().first().filter(|_| !only_collects(main, n, known)) {
            let (name, op) = (node.name, node.op.name());
            return Err(CompileError::NeedsCpu(format!(
                "the size `{symbol}` is known only when `{name}` ({op}) has run"
            )));
        }
    }
    let defined = |&n: &NodeId| {
        let node = &main.nodes[n];
        let rows = if only_collects(main, n, known) { collected(main, n) } else { &[] };
        let args = node.regions.iter().flat_map(|&r| main.blocks[r].args.iter().copied());
        args.chain(node.outputs.iter().copied().filter(|v| !rows.contains(v))).collect::<Vec<_>>()
    };
    let values = main.params().iter().copied().chain(nodes.iter().flat_map(defined));
    values.into_iter().try_for_each(|v| check_value(main, v, known))
}

/// The collected rows of a loop.
fn collected(main: &Function, n: NodeId) -> &[ValueId] {
    let node = &main.nodes[n];
    node.outputs.get(node.inputs.len().saturating_sub(Loop::CONTROL)..).unwrap_or(&[])
}

/// True for a loop whose number of iterations is known only at run time, and whose collected rows are only results of
/// the network: their buffer grows while the loop runs. The size of a row is known before.
fn only_collects(main: &Function, n: NodeId, known: &[Name]) -> bool {
    let node = &main.nodes[n];
    let rows = collected(main, n);
    let uses = main.count_uses();
    let shown = |v: &ValueId| main.results().iter().filter(|r| *r == v).count();
    let open_rows = |v: &ValueId| main.ty(*v).shape[1..].iter().any(|d| !is_known(d, known));
    node.op.is::<Loop>()
        && node.block == Some(main.body)
        && rows.iter().all(|v| uses[v.index()] as usize == shown(v) && !open_rows(v))
}

/// True for a number, and for what follows from these dimensions.
pub(super) fn is_known(d: &Dim, known: &[Name]) -> bool {
    let vars = d.vars();
    d.as_const().is_some() || !vars.is_empty() && vars.iter().all(|v| known.contains(v))
}

fn check_value(f: &Function, v: ValueId, known: &[Name]) -> Result<(), CompileError> {
    for d in &f.ty(v).shape {
        // What no input has, no run can know.
        if !is_known(d, known) {
            let value = f.values[v].name.map_or_else(|| f.describe_value(v), |n| n.to_string());
            return Err(CompileError::OpenDim { dim: d.to_string(), value });
        }
    }
    Ok(())
}

/// No node has a function value: those that are known before a run are gone.
fn check_functions(main: &Function) -> Result<(), CompileError> {
    let function = |n: &NodeId| {
        let node = &main.nodes[*n];
        let value = node.inputs.iter().flatten().chain(&node.outputs).find(|v| main.ty(**v).is_function())?;
        Some((*n, *value))
    };
    let found: Vec<(NodeId, ValueId)> = main.walk().iter().filter_map(function).collect();
    let applied = found.iter().find(|(n, _)| main.nodes[*n].op.is::<Apply>());
    let Some(&(n, v)) = applied.or(found.first()) else { return Ok(()) };
    let (node, value) = (&main.nodes[n], main.describe_value(v));
    let why = format!("`{}` ({}) has the function value {value}, which only a run knows", node.name, node.op.name());
    Err(CompileError::NeedsCpu(why))
}

/// The entry function holds nothing that only the interpreter runs.
fn check_nodes(module: &Module, main: &Function) -> Result<(), CompileError> {
    for n in main.walk() {
        let node = &main.nodes[n];
        let known = node.op.is::<If>() || node.op.is::<Loop>() || node.op.is::<Callees>();
        if !node.regions.is_empty() && !known {
            let op = node.op.name();
            let why = format!("`{}` ({op}) is control flow that only the interpreter runs", node.name);
            return Err(CompileError::NeedsCpu(why));
        }
        let Some(callee) = node.op.downcast::<Call>().map(|c| c.callee) else { continue };
        if !module.functions.contains_key(&callee) {
            return Err(CompileError::Bug { at: callee.to_string(), message: "the called function is missing".into() });
        }
    }
    Ok(())
}
