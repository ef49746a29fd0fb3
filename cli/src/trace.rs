//! Reading compile traces: `weft inspect F.trace` and `weft explain F.trace`.

use crate::args::Common;
use crate::compile::show;
use crate::error::{CliError, CliResult};
use crate::models::{open_plain, read_plain};
use crate::output::{print_text, si, table, write_json};
use compiler::remark::{Remark, RemarkKind};
use compiler::trace::{CompileTrace, MAGIC};
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;

/// True for a file that ends in `.trace` or begins as a trace does.
pub fn is_trace(path: &str) -> bool {
    let path = Path::new(path);
    path.extension().is_some_and(|e| e == "trace") || begins_as_trace(path)
}

/// True for a file that begins as a trace does.
pub fn begins_as_trace(path: &Path) -> bool {
    let mut start = [0; MAGIC.len()];
    let read = open_plain(path).and_then(|mut f| f.read_exact(&mut start));
    read.is_ok() && start == *MAGIC
}

/// Reads a trace.
///
/// # Errors
/// Code 3 when the file cannot be read, or is no trace of this version.
pub fn read(path: &Path) -> CliResult<CompileTrace> {
    let place = path.display().to_string();
    let bytes = read_plain(path).map_err(|e| CliError::input(format!("cannot read {place}: {e}")))?;
    CompileTrace::from_bytes(&bytes).map_err(|e| CliError::input(e.to_string()).at(place))
}

/// Shows traces as `weft compile` showed them, with passes, kernels and weights; `--json` is that of `weft compile`.
pub fn inspect(paths: &[String], common: &Common) -> CliResult<()> {
    let traces = paths.iter().map(|p| read(Path::new(p))).collect::<CliResult<Vec<_>>>()?;
    let mut values: Vec<Value> = traces.iter().map(CompileTrace::to_json).collect();
    let json = if values.len() == 1 { values.swap_remove(0) } else { values.into() };
    if write_json(common, &json)? {
        return Ok(());
    }
    for t in &traces {
        show(t)?;
        show_passes(t)?;
        show_kernels(t)?;
        show_weights(t, common)?;
    }
    Ok(())
}

fn show_passes(t: &CompileTrace) -> CliResult<()> {
    let mut rows = table(&["stage", "ms", "nodes before", "after", "lines removed", "added"]);
    for (i, stage) in t.stages.iter().enumerate() {
        let (removed, added) = stage.delta.size();
        let pass = i.checked_sub(1).and_then(|p| t.passes.get(p));
        let number = |f: fn(&compiler::passes::PassStats) -> String| pass.map_or(String::new(), f);
        rows.add_row([
            stage.label.clone(),
            number(|p| format!("{:.2}", p.ms)),
            number(|p| p.nodes_before.to_string()),
            number(|p| p.nodes_after.to_string()),
            removed.to_string(),
            added.to_string(),
        ]);
    }
    print_text(&rows.to_string())
}

fn show_kernels(t: &CompileTrace) -> CliResult<()> {
    let mut rows = table(&["kernel", "workgroup", "grid", "bindings", "shared", "bounds", "schedule", "groups"]);
    for (i, k) in t.kernels.iter().enumerate() {
        rows.add_row([
            k.name.clone(),
            format!("{:?}", k.workgroup),
            format!("{:?}", k.grid),
            k.bindings.len().to_string(),
            k.shared_bytes.to_string(),
            if k.bounds_proved { "proved" } else { "checked" }.into(),
            format!("{} instructions", k.schedule.len()),
            t.groups_of(i).len().to_string(),
        ]);
    }
    print_text(&rows.to_string())
}

fn show_weights(t: &CompileTrace, common: &Common) -> CliResult<()> {
    if common.verbose > 0 {
        let mut rows = table(&["weight", "dtype", "shape", "min", "max", "mean", "std", "sha256"]);
        for w in &t.weights {
            let values = [w.min, w.max, w.mean, w.std].map(|v| format!("{v:.4}"));
            let mut row = vec![w.name.clone(), w.dtype.to_string(), format!("{:?}", w.shape)];
            row.extend(values);
            row.push(w.hash()[..16].to_string());
            rows.add_row(row);
        }
        print_text(&rows.to_string())?;
    }
    let elements: usize = t.weights.iter().map(|w| w.shape.iter().product::<usize>()).sum();
    print_text(&format!(
        "{} weights of {} elements (-v lists them); {} remarks; {} nodes in the model; made by Weft {}",
        t.weights.len(),
        si(elements as f64).trim(),
        t.remarks.len(),
        t.sources.len(),
        t.weft
    ))
}

/// Why each group is as it is, or what became of one node.
pub fn explain(path: &str, node: Option<&str>, common: &Common) -> CliResult<()> {
    let t = read(Path::new(path))?;
    match node {
        Some(node) => explain_node(&t, node, common),
        None => explain_groups(&t, common),
    }
}

/// The remarks that are about one of these nodes.
fn about<'t>(t: &'t CompileTrace, nodes: &'t [String]) -> impl Iterator<Item = &'t Remark> {
    t.remarks.iter().filter(move |r| r.nodes.iter().any(|n| nodes.iter().any(|o| o == n.as_str())))
}

fn explain_groups(t: &CompileTrace, common: &Common) -> CliResult<()> {
    let missed = |g: &compiler::trace::Group| -> Vec<String> {
        about(t, &g.origins).filter(|r| r.kind == RemarkKind::Missed).map(|r| r.message.clone()).collect()
    };
    let groups: Vec<Value> = t
        .groups
        .iter()
        .enumerate()
        .map(|(i, g)| {
            json!({ "id": i, "kind": g.kind, "ops": g.ops, "nodes": g.nodes, "origins": g.origins, "rule": g.rule,
                "anchor": g.anchor, "layout": g.layout, "boundary": missed(g) })
        })
        .collect();
    let all = json!({ "schema": 1, "model": t.model, "groups": groups, "passes": t.passes, "remarks": t.remarks });
    if write_json(common, &all)? {
        return Ok(());
    }
    let mut rows = table(&["", "kind", "rule", "layout", "ops", "nodes", "why it ends here"]);
    for (i, g) in t.groups.iter().enumerate() {
        rows.add_row([
            i.to_string(),
            format!("{:?}", g.kind).to_lowercase(),
            g.rule.clone(),
            g.layout.clone().unwrap_or_default(),
            g.ops.join("+"),
            g.origins.join(" "),
            missed(g).pop().unwrap_or_default(),
        ]);
    }
    print_text(&rows.to_string())
}

fn explain_node(t: &CompileTrace, node: &str, common: &Common) -> CliResult<()> {
    let groups = t.groups_of_node(node);
    let own = [node.to_string()];
    let remarks: Vec<&Remark> = about(t, &own).collect();
    if groups.is_empty() && remarks.is_empty() {
        let near: Vec<&str> = t.sources.iter().map(|s| s.name.as_str()).filter(|n| n.contains(node)).take(5).collect();
        let help = if near.is_empty() {
            "`weft explain F.trace` lists the nodes".to_string()
        } else {
            format!("did you mean: {}", near.join(", "))
        };
        return Err(CliError::usage(format!("no node `{node}` is in the trace, and no remark names it")).help(help));
    }
    let list: Vec<Value> = groups
        .iter()
        .map(|&i| {
            let g = &t.groups[i];
            json!({ "id": i, "kind": g.kind, "ops": g.ops, "origins": g.origins, "rule": g.rule })
        })
        .collect();
    if write_json(common, &json!({ "schema": 1, "model": t.model, "node": node, "groups": list, "remarks": remarks }))?
    {
        return Ok(());
    }
    for &i in &groups {
        let g = &t.groups[i];
        print_text(&format!("{node} is in group {i} ({:?}, rule {}): {}", g.kind, g.rule, g.ops.join(" + ")))?;
        print_text(&format!("  together with: {}", g.origins.join(" ")))?;
        for k in t.kernels_of(i) {
            let k = &t.kernels[k];
            let (grid, threads, bindings) = (k.grid, k.workgroup, k.bindings.len());
            print_text(&format!("  kernel {} grid {grid:?} workgroup {threads:?}, {bindings} bindings", k.name))?;
        }
    }
    for r in remarks {
        let kind = if r.kind == RemarkKind::Applied { "applied" } else { "missed" };
        print_text(&format!("  {kind} {}: {}", r.pass, r.message))?;
    }
    Ok(())
}
