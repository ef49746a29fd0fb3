//! Measurements of a model, by group: times on a device, errors against a reference.

use super::explained::{Explained, NotExplained, Record, Result};
use super::record::{MeasuredGroup, SortedExplained};
use super::relations::{Relations, how};
use crate::document::Document;
use compiler::trace::{CompileTrace, DispatchTime, Group, Kind, NodeError, TimeRow};

/// A group with what was measured of it.
struct Row<'a> {
    id: usize,
    group: &'a Group,
    time: Option<DispatchTime>,
    error: Option<&'a NodeError>,
    /// Nanoseconds more, by the estimate, were its results and constants in f32; none if none of them is f16.
    f32_ns: Option<f64>,
}

/// The groups from the longest time or the largest error on.
///
/// # Errors
/// Code 2 when the trace holds no such measurement.
pub fn explain(r: &Relations<'_>, by: &str) -> Result<Explained> {
    let t = r.t;
    let (there, command) = if by == "time" { (t.times.is_some(), "bench") } else { (t.errors.is_some(), "compare") };
    if !there {
        let why = format!("--sort {by}: nothing was measured");
        let help = format!("`weft {command} MODEL -o F.trace` makes a trace that holds it");
        return Err(NotExplained::Unknown { why, help });
    }
    let stored = t.stored().unwrap_or_default();
    let f32_ns = |id: usize| stored.get(id).and_then(|s| s.f32_ns);
    let row =
        |id| Row { id, group: r.group(id), time: t.time_of_group(id), error: t.error_of_group(id), f32_ns: f32_ns(id) };
    let mut rows: Vec<Row<'_>> = (0..t.groups.len()).map(row).collect();
    let key = |r: &Row<'_>| match by {
        "time" => r.time.map_or(-1.0, |t| t.us),
        _ => r.error.map_or(-1.0, |e| e.rel_l2),
    };
    rows.sort_by(|x, y| key(y).total_cmp(&key(x)));
    let total = t.run_ms() * 1e3;
    let mut out = Document::default();
    tell(&mut out, r, &rows, total);
    let record = SortedExplained {
        model: t.model.clone(),
        sort: by.into(),
        run_ms: t.run_ms(),
        spent: spent(t),
        groups: rows.iter().map(|r| group(r, total)).collect(),
        times: t.times.clone(),
        errors: t.errors.clone(),
    };
    Ok(Explained::new(Record::Sorted(Box::new(record)), out))
}

/// Where the time of a run goes, in milliseconds; the sum is the run.
fn spent(t: &CompileTrace) -> Vec<TimeRow> {
    t.time_spent().into_iter().map(|r| TimeRow { name: t.row_title(&r), ..r }).collect()
}

fn rates(r: &Row<'_>) -> Option<(f64, f64)> {
    let us = r.time?.us.max(1e-3);
    Some((r.group.flops as f64 / us / 1e3, r.group.bytes as f64 / us / 1e3))
}

fn group(r: &Row<'_>, total: f64) -> MeasuredGroup {
    let (rates, g) = (rates(r), r.group.clone());
    MeasuredGroup {
        id: r.id,
        name: g.label,
        layer: g.layer,
        origins: g.origins,
        rule: g.rule,
        time: r.time,
        share: r.time.map(|t| t.us / total.max(1e-9)),
        gflops: rates.map(|r| r.0),
        gb_s: rates.map(|r| r.1),
        error: r.error.cloned(),
        f32_ms: r.f32_ns.map(|ns| ns / 1e6),
    }
}

fn tell(out: &mut Document, r: &Relations<'_>, rows: &[Row<'_>], total: f64) {
    if let Some(t) = &r.t.times {
        out.say(format!(
            "{} on {}: {:.2} ms a run, end to end; {:.2} ms with inputs and results on the device; shares are of a \
             recorded run of {:.2} ms ({})",
            r.t.model,
            t.device,
            t.latency_ms,
            t.device_ms,
            r.t.run_ms(),
            t.source
        ));
    }
    if let Some(e) = &r.t.errors {
        out.say(format!("{} on {} against {}", r.t.model, e.device, e.against));
    }
    let header = [
        "group",
        "layer",
        "by",
        "us",
        "least",
        "most",
        "share",
        "GFLOP/s",
        "GB/s",
        "rel l2",
        "largest",
        "f32 costs us",
        "worst node",
    ];
    let cells = |row: &Row<'_>| {
        let time = |f: fn(DispatchTime) -> f64| row.time.map_or(String::new(), |t| format!("{:.1}", f(t)));
        let rate = |f: fn((f64, f64)) -> f64| rates(row).map_or(String::new(), |r| format!("{:.1}", f(r)));
        vec![
            row.id.to_string(),
            row.group.label.clone(),
            how(row.group),
            time(|t| t.us),
            time(|t| t.min_us),
            time(|t| t.max_us),
            row.time.map_or(String::new(), |t| format!("{:.1}%", 100.0 * t.us / total.max(1e-9))),
            rate(|r| r.0),
            rate(|r| r.1),
            row.error.map_or(String::new(), |e| format!("{:.2e}", e.rel_l2)),
            row.error.map_or(String::new(), |e| format!("{:.1e}", e.max_magnitude)),
            row.f32_ns.map_or(String::new(), |ns| format!("{:.1}", ns / 1e3)),
            row.error.map_or(String::new(), |e| e.name.clone()),
        ]
    };
    out.table(&header, rows.iter().map(cells));
    for row in r.t.time_spent().into_iter().filter(|row| row.kind != Kind::Kernel) {
        let times = if row.count > 1 { format!(" x{}", row.count) } else { String::new() };
        let share = if total > 0.0 { format!(" ({:.1}%)", 1e5 * row.ms / total) } else { String::new() };
        out.say(format!("{}{times}: {:.2} ms{share}", row.name, row.ms));
    }
}
