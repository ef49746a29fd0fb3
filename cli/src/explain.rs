//! `weft explain`: which kernel each node is in, and what stopped the next fusion.

use crate::args::{CompareArgs, ExplainArgs};
use crate::arrays::read_npz;
use crate::compare::{Difference, Tolerance, agree};
use crate::error::{CliError, CliResult};
use crate::executor::{Device, compile_for, target_profile};
use crate::models::load;
use crate::output::{print_text, table, write_json};
use compiler::compile::{Compiled, GroupKind};
use compiler::graph::{Module, NodeId};
use compiler::name::Name;
use compiler::remark::{Remark, RemarkKind};
use compiler::tensor::Tensor;

/// Explains a model or one node of it.
pub fn execute(a: &ExplainArgs) -> CliResult<()> {
    let given = a.input.as_ref().map(|p| read_npz(p)).transpose()?;
    let module = load(&a.model, &a.common, given.as_ref())?;
    let profile = target_profile(&a.common)?;
    let compiled = compile_for(module, &a.common, &profile)?;
    match &a.node {
        Some(node) => explain_node(a, &compiled, node),
        None => explain_model(a, &compiled),
    }
}

fn missed_for<'a>(c: &'a Compiled, origins: &'a [Name]) -> impl Iterator<Item = &'a Remark> {
    c.remarks.iter().filter(move |r| r.kind == RemarkKind::Missed && r.nodes.iter().any(|n| origins.contains(n)))
}

fn explain_model(a: &ExplainArgs, c: &Compiled) -> CliResult<()> {
    let groups: Vec<serde_json::Value> = c
        .groups
        .iter()
        .enumerate()
        .map(|(i, g)| {
            let why: Vec<&str> = missed_for(c, &g.origins).map(|r| r.message.as_str()).collect();
            serde_json::json!({ "id": i, "kind": g.kind, "ops": g.ops, "nodes": g.nodes, "origins": g.origins, "rule": g.rule,
                "anchor": g.anchor, "layout": g.layout, "boundary": why })
        })
        .collect();
    let passes = serde_json::to_value(&c.passes).unwrap_or_default();
    if write_json(
        &a.common,
        &serde_json::json!({ "schema": 1, "model": a.model, "groups": groups, "passes": passes, "remarks": c.remarks }),
    )? {
        return Ok(());
    }
    let mut t = table(&["pass", "ms", "nodes before", "after", "remarks"]);
    for p in &c.passes {
        let n = c.remarks.iter().filter(|r| r.pass.as_str() == p.name && r.kind == RemarkKind::Applied).count();
        t.add_row([
            p.name.clone(),
            format!("{:.2}", p.ms),
            p.nodes_before.to_string(),
            p.nodes_after.to_string(),
            n.to_string(),
        ]);
    }
    print_text(&t.to_string())?;
    let mut t = table(&["", "kind", "rule", "layout", "ops", "nodes", "why it ends here"]);
    for (i, g) in c.groups.iter().enumerate() {
        let why = missed_for(c, &g.origins)
            .filter(|r| r.pass.as_str() == "fuse-ops")
            .last()
            .map_or(String::new(), |r| r.message.clone());
        let kind = match g.kind {
            GroupKind::Kernel => "kernel",
            GroupKind::View => "view",
            GroupKind::Host => "host",
        };
        t.add_row([
            i.to_string(),
            kind.into(),
            g.rule.into(),
            g.layout.unwrap_or("").into(),
            g.ops.join("+"),
            join(&g.origins, 3),
            why,
        ]);
    }
    print_text(&t.to_string())
}

fn join(names: &[Name], most: usize) -> String {
    let mut text = names.iter().take(most).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
    if names.len() > most {
        text += &format!(" (+{})", names.len() - most);
    }
    text
}

fn explain_node(a: &ExplainArgs, c: &Compiled, node: &str) -> CliResult<()> {
    let name = Name::new(node);
    let groups: Vec<(usize, &compiler::compile::Group)> =
        c.groups.iter().enumerate().filter(|(_, g)| g.origins.contains(&name) || g.nodes.contains(&name)).collect();
    let remarks: Vec<&Remark> = c.remarks.iter().filter(|r| r.nodes.contains(&name)).collect();
    if groups.is_empty() && remarks.is_empty() {
        let near: Vec<String> = c
            .groups
            .iter()
            .flat_map(|g| &g.origins)
            .filter(|n| n.as_str().contains(node))
            .take(5)
            .map(|n| n.to_string())
            .collect();
        let help = if near.is_empty() {
            "`weft explain MODEL` lists the nodes".into()
        } else {
            format!("did you mean: {}", near.join(", "))
        };
        return Err(CliError::usage(format!("no node `{node}` is left in the compiled graph, and no remark names it"))
            .help(help));
    }
    let json = serde_json::json!({ "schema": 1, "model": a.model, "node": node,
        "groups": groups.iter().map(|(i, g)| serde_json::json!({ "id": i, "kind": g.kind, "ops": g.ops, "origins": g.origins, "rule": g.rule })).collect::<Vec<_>>(),
        "remarks": remarks });
    if write_json(&a.common, &json)? {
        return Ok(());
    }
    for (i, g) in &groups {
        print_text(&format!("{node} is in group {i} ({:?}, rule {}): {}", g.kind, g.rule, g.ops.join(" + ")))?;
        print_text(&format!("  together with: {}", join(&g.origins, 20)))?;
        for d in c
            .plan
            .steps
            .iter()
            .flat_map(|s| if let compiler::plan::Step::Gpu(l) = s { l.as_slice() } else { &[] })
            .filter(|d| d.group == *i)
        {
            let k = &c.plan.kernels[d.kernel].emitted;
            print_text(&format!(
                "  kernel {} grid {:?} workgroup {:?}, {} bindings",
                k.name,
                k.grid,
                k.workgroup,
                k.bindings.len()
            ))?;
        }
    }
    for r in remarks {
        let kind = if r.kind == RemarkKind::Applied { "applied" } else { "missed" };
        print_text(&format!("  {kind} {}: {}", r.pass, r.message))?;
    }
    Ok(())
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
