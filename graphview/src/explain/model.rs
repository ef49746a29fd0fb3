//! The whole model: the changes of each pass, and the groups with the reason why each ends where it does.

use super::explained::{Explained, Record, count_groups};
use super::record::{ModelExplained, OptionsRecord};
use super::relations::{Relations, how, join, numbers};
use crate::document::Document;
use crate::figures::si;
use crate::reasons::{General, Roofs};
use compiler::remark::{Remark, RemarkKind};
use compiler::schedule::estimate::Cost;
use compiler::trace::{Call, CompileTrace};

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
    let general = general(r);
    if !general.is_empty() {
        let of = if t.times.is_some() { "measured" } else { "estimated" };
        out.say(format!("\nSlow by a rule for any unit ({of})"));
        general.iter().for_each(|g| out.say(format!("  {}", g.words())));
    }
    Explained::new(Record::Model(Box::new(record(r, general))), out)
}

/// Groups that take much of the run, measured or estimated, by a general rule.
fn general(r: &Relations<'_>) -> Vec<General> {
    let (t, roofs) = (r.t, Roofs::of(r.t));
    let estimates = t.estimates().unwrap_or_default();
    let estimate = |c: &Call| estimates.get(c.kernel)?.as_ref().map(|e| e.total() / 1e3 * c.runs as f64);
    let whole = match t.times {
        Some(_) => t.run_ms() * 1e3,
        None => t.calls().filter_map(estimate).sum(),
    };
    let one = |i: usize| {
        let g = &t.groups[i];
        let own = || t.calls().filter(move |c| c.group == i);
        let us = match t.times {
            Some(_) => t.time_of_group(i)?.us,
            None => own().filter_map(estimate).sum(),
        };
        let (flops, bytes) = own().fold((0, 0), |(f, b), c| (f + c.flops, b + c.bytes));
        let part = |amount: u64, rate: Option<f64>| rate.map(|rate| amount as f64 / rate / 1e3);
        let least = part(flops, roofs.f32_gflops).into_iter().chain(part(bytes, roofs.gb_s)).reduce(f64::max);
        let loss = least.filter(|l| *l > 0.0).map(|l| us / l);
        General::of(&g.label, &g.rule, us / whole.max(1e-9), loss, &r.scheduling(i, RemarkKind::Missed))
    };
    (0..t.groups.len()).filter_map(one).collect()
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

fn record(r: &Relations<'_>, general: Vec<General>) -> ModelExplained {
    let (t, o) = (r.t, r.t.options.clone());
    ModelExplained {
        general,
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
