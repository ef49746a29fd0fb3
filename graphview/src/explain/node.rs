//! One source node: its kernel, what passes did with it, and what stopped the next fusion.

use super::explained::{Explained, NotExplained, Record, Result};
use super::record::{DispatchRecord, GroupRecord, LinesRecord, NodeExplained};
use super::relations::{Relations, how, join, numbers};
use crate::document::Document;
use crate::figures::si;
use crate::names;
use compiler::remark::{Remark, RemarkKind, SCHEDULING};
use compiler::schedule::estimate::KernelEstimate;
use compiler::trace::Call;

/// Runs of lines that are shown of a kernel.
const LINES: usize = 8;

/// Explains the node `name`; a layer, a group or a kernel stands for its source node.
///
/// # Errors
/// When no group and no remark knows the name: the message has similar ones.
pub fn explain(r: &Relations<'_>, name: &str, verbose: bool) -> Result<Explained> {
    let names::Named { node, groups } = names::find(r.t, name);
    let node = node.as_str();
    let remarks: Vec<&Remark> = r.t.remarks.iter().filter(|m| m.nodes.iter().any(|n| n.as_str() == node)).collect();
    if groups.is_empty() && remarks.is_empty() {
        return Err(unknown(r, node));
    }
    let mut out = Document::default();
    if groups.is_empty() {
        out.say(format!("{node} is in no kernel: the passes removed it"));
    }
    let estimates = if verbose { r.t.estimates().unwrap_or_default() } else { vec![] };
    for &i in &groups {
        out.say(group_text(r, i, node, &estimates));
    }
    let done: Vec<&&Remark> = remarks.iter().filter(|m| m.kind == RemarkKind::Applied).collect();
    section(&mut out, "Applied to it", done.iter().map(|m| format!("{}: {}", m.pass, m.message)));
    section(&mut out, "Why the next fusion stopped", groups.iter().flat_map(|&i| r.boundary_text(i, verbose)));
    let stops: Vec<String> = groups.iter().flat_map(|&i| r.boundary(i)).collect();
    let others = remarks.iter().filter(|m| m.kind == RemarkKind::Missed && m.pass.as_str() != SCHEDULING);
    let others = others.filter(|m| !stops.contains(&m.message));
    section(&mut out, "Other changes, not applied", others.map(|m| format!("{}: {}", m.pass, m.message)));
    let declined = groups.iter().flat_map(|&i| r.scheduling(i, RemarkKind::Missed)).map(str::to_string);
    section(&mut out, "Schedule rules that declined", declined);
    section(&mut out, "Its lines in the shaders", lines_text(r, node).into_iter());
    let texts = |i, kind| Some(r.scheduling(i, kind).into_iter().map(String::from).collect());
    let group = |&i: &usize| GroupRecord {
        scheduled: texts(i, RemarkKind::Applied),
        declined: texts(i, RemarkKind::Missed),
        ..group_record(r, i)
    };
    let record = NodeExplained {
        model: r.t.model.clone(),
        node: node.into(),
        lines: lines(r, node),
        groups: groups.iter().map(group).collect(),
        remarks: remarks.into_iter().cloned().collect(),
    };
    Ok(Explained::new(Record::Node(record), out))
}

fn section(out: &mut Document, title: &str, lines: impl Iterator<Item = String>) {
    let lines: Vec<String> = lines.map(|l| format!("  {l}")).collect();
    if !lines.is_empty() {
        out.say(format!("{title}\n{}", lines.join("\n")));
    }
}

fn group_text(r: &Relations<'_>, i: usize, node: &str, estimates: &[Option<KernelEstimate>]) -> String {
    let g = r.group(i);
    let place = format!("group {i} of {}, {}: {} [{}]", r.t.groups.len(), g.label, g.ops.join(" + "), how(g));
    let mut text = format!("{node} is in {place}");
    let together: Vec<&str> = g.origins.iter().map(String::as_str).filter(|n| *n != node).collect();
    let mut line = |label: &str, value: String| {
        if !value.is_empty() {
            text += &format!("\n  {label:9} {value}");
        }
    };
    line("with", join(&together, 20));
    line("reads", g.reads.iter().map(|&j| named(r, j)).collect::<Vec<_>>().join(", "));
    line("feeds", r.feeds[i].iter().map(|&j| named(r, j)).collect::<Vec<_>>().join(", "));
    line("work", format!("{}FLOP, {}B", si(g.flops as f64), si(g.bytes as f64)));
    if let Some(t) = r.t.time_of_group(i) {
        line("time", format!("{:.1} us ({:.1} to {:.1})", t.us, t.min_us, t.max_us));
    }
    if let Some(e) = r.t.errors.iter().flat_map(|e| &e.nodes).find(|e| e.name == node) {
        line(
            "error",
            format!("{:.2e} relative, {:.2e} at most{}", e.rel_l2, e.max_abs, if e.pass { "" } else { ": FAIL" }),
        );
    }
    for d in &r.dispatches[i] {
        let k = &r.t.kernels[d.kernel];
        let (grid, threads) = (numbers(&d.grid.map(|x| x as usize)), numbers(&k.workgroup.map(|x| x as usize)));
        let checked = if k.bounds_proved { "" } else { ", bounds checked by the driver" };
        let shared = if k.shared_bytes > 0 { format!(", {} B shared", k.shared_bytes) } else { String::new() };
        line(
            "dispatch",
            format!("{}: grid {grid}, workgroup {threads}, {} bindings{shared}{checked}", k.name, k.bindings.len()),
        );
        if let Some(e) = estimates.get(d.kernel).and_then(Option::as_ref) {
            line("estimate", e.cost.to_string());
        }
    }
    text
}

/// `group 4 (conv + relu)`.
fn named(r: &Relations<'_>, i: usize) -> String {
    format!("group {i} ({})", r.group(i).ops.join(" + "))
}

/// A group with its dispatches, and why it ends where it does.
pub fn group_record(r: &Relations<'_>, i: usize) -> GroupRecord {
    let g = r.group(i).clone();
    let dispatch = |d: &&Call| {
        let k = &r.t.kernels[d.kernel];
        DispatchRecord {
            kernel: k.name.clone(),
            kernel_id: d.kernel,
            flops: d.flops,
            bytes: d.bytes,
            grid: d.grid,
            workgroup: k.workgroup,
            bindings: k.bindings.len(),
            shared_bytes: k.shared_bytes,
            bounds_proved: k.bounds_proved,
        }
    };
    GroupRecord {
        id: i,
        name: g.label,
        layer: g.layer,
        kind: g.kind,
        ops: g.ops,
        nodes: g.nodes,
        origins: g.origins,
        rule: g.rule,
        anchor: g.anchor,
        layout: g.layout,
        flops: g.flops,
        bytes: g.bytes,
        feeds: r.feeds[i].clone(),
        reads: g.reads,
        dispatches: r.dispatches[i].iter().map(dispatch).collect(),
        time: r.t.time_of_group(i),
        error: r.t.error_of_group(i).cloned(),
        boundary: r.boundary(i),
        scheduled: None,
        declined: None,
    }
}

/// `002_conv1: 12-40, 51` for each kernel that has lines of the node.
fn lines_text(r: &Relations<'_>, node: &str) -> Vec<String> {
    let mut out: Vec<(usize, Vec<String>)> = Vec::new();
    for (kernel, first, count) in r.t.lines_of_node(node) {
        let text = match count {
            1 => format!("{}", first + 1),
            n => format!("{}-{}", first + 1, first + n),
        };
        match out.last_mut().filter(|o| o.0 == kernel) {
            Some((_, list)) => list.push(text),
            None => out.push((kernel, vec![text])),
        }
    }
    let kernel = |(k, list): &(usize, Vec<String>)| {
        let (shown, more) = (list.len().min(LINES), list.len().saturating_sub(LINES));
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{}: {}{rest}", r.t.kernels[*k].file(*k), list[..shown].join(", "))
    };
    out.iter().map(kernel).collect()
}

fn lines(r: &Relations<'_>, node: &str) -> Vec<LinesRecord> {
    let lines = r.t.lines_of_node(node).into_iter();
    let run = |(kernel_id, first, count)| LinesRecord { kernel_id, first: first + 1, last: first + count };
    lines.map(run).collect()
}

fn unknown(r: &Relations<'_>, node: &str) -> NotExplained {
    let help = names::did_you_mean(node, names::all(r.t)).unwrap_or("`weft explain MODEL` lists the nodes".into());
    NotExplained::Unknown {
        why: format!("no node `{node}` is left in the compiled graph, and no remark names it"),
        help,
    }
}
