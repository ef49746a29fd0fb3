//! The whole model: the changes of each pass, and the groups with the reason why each ends where it does.

use super::explained::{Explained, Record, count_groups};
use super::record::{ModelExplained, OptionsRecord};
use super::relations::{Relations, how, join, numbers};
use crate::document::Document;
use crate::figures::si;
use compiler::remark::{Remark, RemarkKind};
use compiler::schedule::estimate::Cost;
use compiler::trace::CompileTrace;

/// Remarks of one pass that are shown without `-v`.
const SHOWN: usize = 3;

/// Explains a compilation.
pub fn explain(r: &Relations<'_>, verbose: bool) -> Explained {
    let mut out = Document::default();
    let (t, o) = (r.t, &r.t.options);
    out.say(format!(
        "{} for {} (--fuse {} --layout {} --amp {} -O{})\n{}; {} dispatches of {} distinct kernels",
        t.model,
        t.profile_name,
        o.fuse,
        o.layout,
        o.amp,
        o.opt_level,
        count_groups(t),
        r.count_dispatches(),
        t.kernels.len(),
    ));
    if let Some(cost) = (verbose).then(|| estimated(t)).flatten() {
        out.say(format!("estimated: {cost}"));
    }
    if let Some(times) = &t.times {
        out.say(format!(
            "measured on {}: {:.2} ms on the device (--sort time lists it)",
            times.device, times.device_ms
        ));
    }
    if let Some(errors) = &t.errors {
        out.say(format!("held against {} on {} (--sort error lists it)", errors.against, errors.device));
    }
    out.say("\nChanges by each pass");
    for line in passes(r, if verbose { usize::MAX } else { SHOWN }) {
        out.say(line);
    }
    out.say("\nGroups, in the order they run, and why each one ends there");
    for i in 0..t.groups.len() {
        out.say(group(r, i, verbose));
    }
    Explained::new(Record::Model(Box::new(record(r))), out)
}

/// The estimated time of all dispatches, if the compilation has their work.
fn estimated(t: &CompileTrace) -> Option<Cost> {
    let (cost, missing) = t.estimated_cost(&t.estimates().ok()?);
    (missing == 0).then_some(cost)
}

/// A line for each pass, and its remarks below: all runs of a pass share its name.
fn passes(r: &Relations<'_>, shown: usize) -> Vec<String> {
    let mut out = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for p in &r.t.passes {
        if !names.contains(&p.name.as_str()) {
            names.push(&p.name);
        }
    }
    // Steps of a compilation besides its passes.
    let besides = ["fuse-ops", "lower-groups", "schedule"];
    names.extend(besides.into_iter().filter(|name| r.t.passes.iter().all(|p| p.name != *name)));
    for name in names {
        let runs: Vec<_> = r.t.passes.iter().filter(|p| p.name == name).collect();
        let of = |kind| {
            let of_pass = |m: &&Remark| m.pass.as_str() == name && m.kind == kind;
            r.t.remarks.iter().filter(of_pass).collect::<Vec<_>>()
        };
        let (applied, missed) = (of(RemarkKind::Applied), of(RemarkKind::Missed));
        if runs.is_empty() && applied.is_empty() && missed.is_empty() {
            continue;
        }
        let steps: Vec<String> = runs
            .iter()
            .map(|p| match p.changed {
                true => format!("{} -> {} nodes", p.nodes_before, p.nodes_after),
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
    let time = r.t.time_of_group(i).map_or(String::new(), |t| format!(", {:.1} us", t.us));
    let mut text = format!("{i:4}  {}: {} [{}]: {work}{time}{to}", g.label, g.ops.join(" + "), how(g));
    if !g.origins.is_empty() {
        let names: Vec<&str> = g.origins.iter().map(String::as_str).collect();
        text += &format!("\n        {}", join(&names, if verbose { usize::MAX } else { 6 }));
    }
    if verbose {
        for line in r.scheduling(i, RemarkKind::Applied) {
            text += &format!("\n        {line}");
        }
    }
    for why in r.boundary_text(i, verbose) {
        text += &format!("\n        ends: {why}");
    }
    text
}

fn record(r: &Relations<'_>) -> ModelExplained {
    let (t, o) = (r.t, r.t.options.clone());
    ModelExplained {
        model: t.model.clone(),
        profile: t.profile_name.clone(),
        options: OptionsRecord { fuse: o.fuse, layout: o.layout, amp: o.amp, opt_level: o.opt_level },
        dispatches: r.count_dispatches(),
        kernels: t.kernels.len(),
        groups: (0..t.groups.len()).map(|i| super::node::group_record(r, i)).collect(),
        passes: t.passes.clone(),
        remarks: t.remarks.clone(),
        times: t.times.clone(),
        errors: t.errors.clone(),
        parts: None,
    }
}
