//! The whole model: what each pass changed, and the groups with the reason why each one ends where it does.

use super::relations::{Relations, how, join, numbers};
use crate::args::ExplainArgs;
use crate::error::CliResult;
use crate::output::{print_text, si, write_json};
use compiler::compile::GroupKind;
use compiler::remark::{Remark, RemarkKind};
use serde_json::{Value, json};

/// Remarks of one pass that are shown without `-v`.
const SHOWN: usize = 3;

/// Prints the report, or its JSON.
pub fn explain(a: &ExplainArgs, r: &Relations<'_>) -> CliResult<()> {
    if write_json(&a.common, &to_json(a, r))? {
        return Ok(());
    }
    let c = r.c;
    let count = |k: GroupKind| c.groups.iter().filter(|g| g.kind == k).count();
    print_text(&format!(
        "{} for {} (--fuse {} --layout {} --amp {} -O{})\n{} groups: {} kernels, {} views, {} on the host; {} dispatches of {} distinct kernels",
        a.model,
        c.profile.name,
        a.common.fuse,
        a.common.layout,
        a.common.amp,
        a.common.opt_level,
        c.groups.len(),
        count(GroupKind::Kernel),
        count(GroupKind::View),
        count(GroupKind::Host),
        r.dispatches.iter().map(Vec::len).sum::<usize>(),
        c.plan.kernels.len(),
    ))?;
    print_text("\nWhat each pass changed")?;
    for line in passes(r, if a.common.verbose > 0 { usize::MAX } else { SHOWN }) {
        print_text(&line)?;
    }
    print_text("\nGroups, in the order they run, and why each one ends there")?;
    for i in 0..c.groups.len() {
        print_text(&group(r, i, a.common.verbose > 0))?;
    }
    Ok(())
}

/// A line for each pass, and its remarks below: all runs of a pass share its name.
fn passes(r: &Relations<'_>, shown: usize) -> Vec<String> {
    let mut out = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for p in &r.c.passes {
        if !names.contains(&p.name.as_str()) {
            names.push(&p.name);
        }
    }
    names.extend(["lower-groups", "schedule"]);
    for name in names {
        let runs: Vec<_> = r.c.passes.iter().filter(|p| p.name == name).collect();
        let of = |kind| {
            let of_pass = |m: &&Remark| m.pass.as_str() == name && m.kind == kind;
            r.c.remarks.iter().filter(of_pass).collect::<Vec<_>>()
        };
        let (applied, missed) = (of(RemarkKind::Applied), of(RemarkKind::Missed));
        if runs.is_empty() && applied.is_empty() && missed.is_empty() {
            continue;
        }
        let steps: Vec<String> = runs
            .iter()
            .map(|p| match p.changed {
                true => format!("{} -> {} nodes in {:.1} ms", p.nodes_before, p.nodes_after, p.ms),
                false => "nothing".into(),
            })
            .collect();
        let tail = format!("{} applied, {} missed", applied.len(), missed.len());
        out.push(format!("  {name}: {}", [steps.join("; then "), tail].join(if runs.is_empty() { "" } else { "; " })));
        for (sign, list) in [("+", applied), ("-", missed)] {
            out.extend(list.iter().take(shown).map(|m| format!("      {sign} {}", m.message)));
            if list.len() > shown {
                out.push(format!("      {sign} ... {} more (-v shows them)", list.len() - shown));
            }
        }
    }
    out
}

fn group(r: &Relations<'_>, i: usize, verbose: bool) -> String {
    let g = r.group(i);
    let dispatches = match r.dispatches[i].len() {
        0 => String::new(),
        1 => "1 dispatch, ".into(),
        n => format!("{n} dispatches, "),
    };
    let work = format!("{dispatches}{}FLOP, {}B", si(g.flops as f64), si(g.bytes as f64));
    let to = match r.feeds[i].as_slice() {
        [] => String::new(),
        list => format!(" -> {}", numbers(list)),
    };
    let mut text = format!("{i:4}  {} [{}]: {work}{to}", g.ops.join(" + "), how(g));
    if !g.origins.is_empty() {
        text += &format!("\n        {}", join(&g.origins, if verbose { usize::MAX } else { 6 }));
    }
    for why in r.boundary(i) {
        text += &format!("\n        ends: {why}");
    }
    text
}

fn to_json(a: &ExplainArgs, r: &Relations<'_>) -> Value {
    let groups: Vec<Value> = (0..r.c.groups.len())
        .map(|i| {
            let mut v = super::node::group_json(r, i);
            v["boundary"] = json!(r.boundary(i));
            v
        })
        .collect();
    json!({ "schema": 1, "model": a.model, "profile": r.c.profile.name,
        "options": { "fuse": a.common.fuse, "layout": a.common.layout, "amp": a.common.amp, "opt_level": a.common.opt_level },
        "dispatches": r.dispatches.iter().map(Vec::len).sum::<usize>(), "kernels": r.c.plan.kernels.len(),
        "groups": groups, "passes": r.c.passes, "remarks": r.c.remarks })
}
