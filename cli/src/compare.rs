//! `weft compare`: what a comparison found, shown.

use crate::args::CompareArgs;
use crate::output::{print_text, show_table, table, verdict, write_json};
use crate::range_checks::print_out_of_range;
use comfy_table::Cell;
use compiler::agreement::Difference;
use compiler::calibrate::{Accumulated, Passed, Stored, StoredRange};
use compiler::passes::mixed_precision::escape_pattern;
use std::path::Path;
use workbench::Result;
use workbench::compare::record::Summary;
use workbench::compare::{
    Case, Cause, Comparison, FolderComparison, NodeError, Peer, Request, Side, WORST, compare, over_folder,
};
use workbench::figures::{few_ms, magnitude};
use workbench::written::write_file;

/// Nodes that the table of errors names, at most: those that add most.
const ROWS: usize = 12;

/// Compares a device with a reference.
pub fn execute(a: &CompareArgs) -> Result<()> {
    match &a.data {
        Some(folder) => over_inputs(a, folder),
        None => once(a),
    }
}

fn request(a: &CompareArgs) -> Request {
    Request {
        model: a.model.clone(),
        input: a.input.0.clone(),
        against: a.against.0.clone().by_new_name(),
        cumulative: a.cumulative,
        check_indices: a.check_indices,
        nodes: a.common.verbose > 0 || a.common.json.is_some(),
        trace: a.output.is_some(),
        keep: a.write_keep.is_some(),
        peer: a.peer.as_ref().map(|_| Peer { python: a.peer_python.clone() }),
        verbose: a.common.verbose > 0,
        settings: a.common.settings.0.clone(),
    }
}

fn once(a: &CompareArgs) -> Result<()> {
    let found = compare(&request(a))?;
    if let (Some(path), Some(keep)) = (&a.write_keep, &found.keep) {
        write_file(path, keep.text.as_bytes())?;
    }
    if let (Some(path), Some(trace)) = (&a.output, &found.trace) {
        workbench::traces::write(path, trace, &a.common)?;
    }
    if !write_json(&a.common, &found.record())? {
        show(a, &found)?;
    }
    found.failure().map_or(Ok(()), Err)
}

fn show(a: &CompareArgs, found: &Comparison) -> Result<()> {
    let Some(sides) = &found.sides else { return print_all_in_f32() };
    print_sides(sides)?;
    if let Some(s) = &found.stored {
        print_text(&stored_text(s))?;
    }
    print_table(a, &found.outputs, &found.nodes)?;
    found.times_ms.map_or(Ok(()), |ms| print_times(ms, sides))?;
    let lost = |l: &String| print_text(&format!("{l}: a fault of a kernel, which found nothing"));
    found.lost.iter().try_for_each(lost)?;
    found.rounded.iter().try_for_each(|r| print_text(&r.text()))?;
    found.cause.iter().try_for_each(|c| print_cause(c, a))?;
    let verbose = a.common.verbose > 0;
    found.models.iter().try_for_each(|d| crate::diff::models::show(d, verbose))?;
    found.out_of_range.as_deref().map_or(Ok(()), print_out_of_range)
}

fn print_all_in_f32() -> Result<()> {
    print_text("--amp auto keeps every node in f32 for these inputs: the results equal f32's, and nothing is saved")
}

fn print_sides([result, against]: &[Side; 2]) -> Result<()> {
    print_text(&format!("{} against {}", result.name(), against.name()))
}

/// Both medians, and which side is faster.
fn print_times([own, peer]: [f64; 2], [result, against]: &[Side; 2]) -> Result<()> {
    let mut t = table(&["median of 10 runs", "ms", "times as fast"]);
    t.add_row([result.name(), few_ms(own), format!("{:.2}", peer / own)]);
    t.add_row([against.name(), few_ms(peer), format!("{:.2}", own / peer)]);
    show_table(&t)
}

fn over_inputs(a: &CompareArgs, folder: &Path) -> Result<()> {
    let found = over_folder(&request(a), folder)?;
    if let (Some(path), Some(trace)) = (&a.output, &found.trace) {
        workbench::traces::write(path, trace, &a.common)?;
    }
    if !write_json(&a.common, &found.record())? {
        show_over_inputs(a, &found)?;
    }
    found.failure().map_or(Ok(()), Err)
}

fn show_over_inputs(a: &CompareArgs, found: &FolderComparison) -> Result<()> {
    let list = &found.list;
    if list.is_empty() {
        return print_all_in_f32();
    }
    print_sides(&found.sides)?;
    print_text(&format!("{} of {} inputs agree within the tolerance", found.passed(), list.len()))?;
    print_distribution(&found.summaries(), list.len())?;
    print_worst(list)?;
    print_ranges(&found.ranges, a.common.verbose > 0)?;
    found.departure().map_or(Ok(()), |text| print_text(&text))
}

/// The effect of mixed precision, in one line.
fn stored_text(s: &Stored) -> String {
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let (kept, nodes) = (s.kept, s.nodes);
    format!(
        "f16 saves {:.2} of {:.2} MB of weights and intermediates; {kept} of {nodes} nodes are kept in f32",
        mb(s.saved),
        mb(s.single)
    )
}

fn print_table(a: &CompareArgs, rows: &[(String, Difference)], nodes: &[NodeError]) -> Result<()> {
    let mut t = table(&["", "output", "max abs", "max rel", "rel l2", "cosine", "nan, inf"]);
    for (n, d) in rows {
        t.add_row([
            verdict(d.pass),
            n.as_str().into(),
            format!("{:.3e}", d.max_abs).into(),
            format!("{:.3e}", d.max_rel).into(),
            format!("{:.3e}", d.rel_l2).into(),
            if d.cosine.is_nan() { "-".into() } else { format!("{:.7}", d.cosine).into() },
            (d.nan + d.inf).into(),
        ]);
    }
    show_table(&t)?;
    let bad: Vec<_> = nodes.iter().filter(|n| !n.difference.pass || a.common.verbose > 0).collect();
    if !bad.is_empty() {
        if a.peer.is_some() {
            print_text("each node against the interpreter:")?;
        }
        let mut t = table(&["", "node", "op", "max abs", "rel l2", "max magnitude", "nan, inf"]).spare(2);
        for NodeError { name, op, difference: d, .. } in bad {
            t.add_row([
                verdict(d.pass),
                name.as_str().into(),
                op.as_str().into(),
                format!("{:.3e}", d.max_abs).into(),
                format!("{:.3e}", d.rel_l2).into(),
                format!("{:.3e}", d.max_magnitude).into(),
                (d.nan + d.inf).into(),
            ]);
        }
        show_table(&t)?;
    }
    Ok(())
}

fn print_distribution(summaries: &[Summary], inputs: usize) -> Result<()> {
    let number = |x: f64| if x.is_finite() { format!("{x:.2e}") } else { "inf".into() };
    let mut t = table(&["", "output", "agree", "top 1", "error", "p50", "p90", "p99", "max"]);
    for s in summaries {
        let top = s.top1.as_ref().map_or("-".to_string(), |t| format!("{} of {}", t.same, t.rows));
        let agree = format!("{} of {inputs}", s.passed);
        let mut first = vec![verdict(s.passed == inputs), s.name.as_str().into(), agree.into(), top.into()];
        let figures = [("rel l2", &s.rel_l2), ("max abs", &s.max_abs), ("of the tolerance", &s.tolerance_used)];
        for (label, p) in figures {
            let mut row = std::mem::replace(&mut first, vec![Cell::new(""); 4]);
            row.push(label.into());
            row.extend([p.p50, p.p90, p.p99, p.max].map(|x| number(x).into()));
            t.add_row(row);
        }
    }
    show_table(&t)
}

fn print_worst(cases: &[Case]) -> Result<()> {
    let mut t = table(&["", "worst inputs", "of the tolerance", "rel l2", "max abs", "top 1"]);
    for c in cases.iter().take(WORST) {
        let top = c.misses().map(|list| match list.as_slice() {
            [] => "same".to_string(),
            list => list.iter().map(|m| format!("{}, expected {}", m.got, m.expected)).collect::<Vec<_>>().join("; "),
        });
        t.add_row([
            verdict(c.pass()),
            c.name().into(),
            format!("{:.2}", c.used()).into(),
            format!("{:.2e}", c.most(|d| d.rel_l2)).into(),
            format!("{:.2e}", c.most(|d| d.max_abs)).into(),
            top.unwrap_or_else(|| "-".into()).into(),
        ]);
    }
    show_table(&t)
}

/// Ranges of the values that are stored in f16, over all inputs: those nearest to its end, all of them with `-v`.
fn print_ranges(ranges: &[StoredRange], all: bool) -> Result<()> {
    let shown = if all { ranges.len() } else { ranges.len().min(ROWS) };
    if shown == 0 {
        return Ok(());
    }
    let share = |part: f64| match part * 100.0 {
        0.0 => "-".to_string(),
        few if few < 0.01 => "<0.01 %".to_string(),
        percent => format!("{percent:.2} %"),
    };
    let mut t = table(&["stored in f16", "op", "largest", "of 65504", "inf", "to 0", "subnormal"]).spare(1);
    for r in &ranges[..shown] {
        let parts = [r.overflowing, r.zeroed, r.subnormal].map(|n| share(r.share(n)));
        let first = [r.name.to_string(), r.op.clone(), magnitude(r.largest), share(r.of_f16)];
        t.add_row(first.into_iter().chain(parts));
    }
    show_table(&t)?;
    match ranges.len() - shown {
        0 => Ok(()),
        rest => print_text(&format!("and {rest} more values, which are smaller (-v shows them)")),
    }
}

/// Shows where a failure comes from.
fn print_cause(cause: &Cause, a: &CompareArgs) -> Result<()> {
    if let Some(r) = &cause.rounding {
        print_points(a, r)?;
        if let Some(p) = &r.passed {
            print_text(&passed_text(r, p))?;
        }
    }
    if let Some(n) = cause.device.iter().find(|n| !n.difference.pass) {
        let why = &n.difference.why;
        return print_text(&format!("on the device, the first node that departs is {} ({}): {why}", n.name, n.op));
    }
    match (&cause.rounding, &cause.producer) {
        (None | Some(Accumulated { passed: None, .. }), Some((name, op))) => {
            print_text(&format!("no node departs by itself; what fails is given by {name} ({op})"))
        }
        _ => Ok(()),
    }
}

/// Nodes whose errors are larger than all before them, those that add most; all of them with `-v`.
fn print_points(a: &CompareArgs, r: &Accumulated) -> Result<()> {
    let mut most = 0.0f64;
    let mut rising: Vec<(f64, usize)> = Vec::new();
    for (i, p) in r.points.iter().enumerate().filter(|(_, p)| p.error > 0.0) {
        let more = if most.is_infinite() { 0.0 } else { p.error - most };
        if more > 0.0 || a.common.verbose > 0 {
            rising.push((more, i));
        }
        most = most.max(p.error);
    }
    if a.common.verbose == 0 {
        rising.sort_by(|x, y| y.0.total_cmp(&x.0));
        rising.truncate(ROWS);
        rising.sort_by_key(|r| r.1);
    }
    let mut t = table(&["errors along the graph", "op", "rel l2", "of the tolerance"]).spare(1);
    for p in rising.into_iter().map(|(_, i)| &r.points[i]) {
        let figures = [format!("{:.3e}", p.error), format!("{:.2}", p.used)];
        t.add_row([p.node.to_string(), p.op.clone()].into_iter().chain(figures));
    }
    show_table(&t)
}

fn passed_text(r: &Accumulated, p: &Passed) -> String {
    let (node, op) = (p.node, &p.op);
    let whole = match r.used <= 1.0 {
        false => format!("the tolerance is passed at {node} ({op})"),
        true => format!("rounding alone takes {:.2} of the tolerance, most of it up to {node} ({op})", r.used),
    };
    let keep: Vec<String> = p.keep.iter().map(|n| format!("--keep-f32 '{}'", escape_pattern(n.as_str()))).collect();
    format!(
        "{whole}: the results take {:.2} of it with the roundings before, {:.2} with this one\n\
         with {} it stays in f32, for {} of the {} bytes that f16 saves; the results then take {:.2} of the tolerance",
        p.before,
        p.after,
        keep.join(" "),
        p.bytes,
        r.saved,
        p.kept
    )
}
