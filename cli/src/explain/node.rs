//! One source node: the kernel it is in, what was done with it, and what stopped the next fusion.

use super::relations::{Relations, how, join, numbers};
use crate::args::ExplainArgs;
use crate::error::{CliError, CliResult};
use crate::output::{print_text, si, write_json};
use compiler::name::Name;
use compiler::remark::{Remark, RemarkKind};
use serde_json::{Value, json};

/// Prints the report about `node`, or its JSON.
///
/// # Errors
/// When no group and no remark knows the node: the message names similar ones.
pub fn explain(a: &ExplainArgs, r: &Relations<'_>, node: &str) -> CliResult<()> {
    let name = Name::new(node);
    let groups: Vec<usize> = (0..r.c.groups.len())
        .filter(|&i| r.group(i).origins.contains(&name) || r.group(i).nodes.contains(&name))
        .collect();
    let remarks: Vec<&Remark> = r.c.remarks.iter().filter(|m| m.nodes.contains(&name)).collect();
    if groups.is_empty() && remarks.is_empty() {
        return Err(unknown(r, node));
    }
    let list: Vec<Value> = groups
        .iter()
        .map(|&i| {
            let mut v = group_json(r, i);
            v["boundary"] = json!(r.boundary(i));
            v["declined"] = json!(r.declined(i).iter().map(|m| &m.message).collect::<Vec<_>>());
            v
        })
        .collect();
    let json = json!({ "schema": 1, "model": a.model, "node": node, "groups": list, "remarks": remarks });
    if write_json(&a.common, &json)? {
        return Ok(());
    }
    if groups.is_empty() {
        print_text(&format!("{node} is in no kernel: the passes removed it"))?;
    }
    for &i in &groups {
        print_text(&group_text(r, i, node))?;
    }
    let done: Vec<&&Remark> = remarks.iter().filter(|m| m.kind == RemarkKind::Applied).collect();
    section("What was done with it", done.iter().map(|m| format!("{}: {}", m.pass, m.message)))?;
    section("What stopped the next fusion", groups.iter().flat_map(|&i| r.boundary(i)))?;
    let stops: Vec<String> = groups.iter().flat_map(|&i| r.boundary(i)).collect();
    let others = remarks.iter().filter(|m| m.kind == RemarkKind::Missed && m.pass.as_str() != "schedule");
    let others = others.filter(|m| !stops.contains(&m.message));
    section("What else was not done", others.map(|m| format!("{}: {}", m.pass, m.message)))?;
    let declined = groups.iter().flat_map(|&i| r.declined(i)).map(|m| m.message.clone());
    section("Schedule rules that declined", declined)
}

fn section(title: &str, lines: impl Iterator<Item = String>) -> CliResult<()> {
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() {
        return Ok(());
    }
    print_text(&format!("{title}\n{}", lines.iter().map(|l| format!("  {l}")).collect::<Vec<_>>().join("\n")))
}

fn group_text(r: &Relations<'_>, i: usize, node: &str) -> String {
    let g = r.group(i);
    let place = format!("group {i} of {}: {} [{}]", r.c.groups.len(), g.ops.join(" + "), how(g));
    let mut text = format!("{node} is in {place}");
    let together: Vec<Name> = g.origins.iter().copied().filter(|n| n.as_str() != node).collect();
    let mut line = |label: &str, value: String| {
        if !value.is_empty() {
            text += &format!("\n  {label:9} {value}");
        }
    };
    line("with", join(&together, 20));
    line("reads", r.reads[i].iter().map(|&j| named(r, j)).collect::<Vec<_>>().join(", "));
    line("feeds", r.feeds[i].iter().map(|&j| named(r, j)).collect::<Vec<_>>().join(", "));
    line("work", format!("{}FLOP, {}B", si(g.flops as f64), si(g.bytes as f64)));
    for d in &r.dispatches[i] {
        let k = &r.c.plan.kernels[d.kernel].emitted;
        let (grid, threads) = (numbers(&k.grid.map(|x| x as usize)), numbers(&k.workgroup.map(|x| x as usize)));
        let checked = if k.bounds_proved { "" } else { ", bounds checked by the driver" };
        let shared = if k.shared_bytes > 0 { format!(", {} B shared", k.shared_bytes) } else { String::new() };
        line(
            "dispatch",
            format!("{}: grid {grid}, workgroup {threads}, {} bindings{shared}{checked}", k.name, k.bindings.len()),
        );
    }
    text
}

/// `group 4 (conv + relu)`.
fn named(r: &Relations<'_>, i: usize) -> String {
    format!("group {i} ({})", r.group(i).ops.join(" + "))
}

/// A group as JSON.
pub fn group_json(r: &Relations<'_>, i: usize) -> Value {
    let g = r.group(i);
    let dispatches: Vec<Value> = r.dispatches[i]
        .iter()
        .map(|d| {
            let k = &r.c.plan.kernels[d.kernel].emitted;
            json!({ "kernel": k.name, "grid": k.grid, "workgroup": k.workgroup, "bindings": k.bindings.len(),
                "shared_bytes": k.shared_bytes, "bounds_proved": k.bounds_proved })
        })
        .collect();
    json!({ "id": i, "kind": g.kind, "ops": g.ops, "nodes": g.nodes, "origins": g.origins, "rule": g.rule, "anchor": g.anchor,
        "layout": g.layout, "flops": g.flops, "bytes": g.bytes, "feeds": r.feeds[i], "reads": r.reads[i],
        "dispatches": dispatches })
}

fn unknown(r: &Relations<'_>, node: &str) -> CliError {
    let near: Vec<String> = r.c.groups.iter().flat_map(|g| &g.origins).map(|n| n.to_string()).collect();
    let mut near: Vec<String> = near.into_iter().filter(|n| n.contains(node)).collect();
    near.dedup();
    near.truncate(5);
    let help = match near.is_empty() {
        true => "`weft explain MODEL` lists the nodes".into(),
        false => format!("did you mean: {}", near.join(", ")),
    };
    CliError::usage(format!("no node `{node}` is left in the compiled graph, and no remark names it")).help(help)
}
