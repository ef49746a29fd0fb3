//! The report: a trace as one self-contained HTML file, for readers without Weft and without the model.
//!
//! It has the graph of every stage in layers that open, groups, remarks, kernels with schedule and WGSL, memory, and
//! times, errors and driver statistics if the trace has them. Nothing is fetched: style, script and data are in the
//! file. The data is JSON that other tools can read ([`data`], `docs/report.md`). `cargo xtask report` drives the page
//! in a browser.

mod difference;
mod graphs;
mod measured;
mod modelled;
mod sources;
mod tables;

use crate::category::Category;
use crate::changes::{Mark, Marks, changes};
use crate::picture::Picture;
use crate::svg::{escape, fill};
use crate::timeline::{about_run, run_spans};
use compiler::bare::shown_in_json;
use compiler::trace::{CompileTrace, Span, TraceError};
pub use difference::Beside;
use graphs::Graphs;
pub use measured::{Measured, NotTheSame};
use serde_json::{Map, Value, json};

const PAGE: &str = include_str!("report/page.html");
/// The style of pages.
pub const STYLE: &str = include_str!("report/style.css");
const SCRIPT: [&str; 4] = [
    include_str!("report/graph.js"),
    include_str!("report/panes.js"),
    include_str!("report/timeline.js"),
    include_str!("report/start.js"),
];

/// Version of the data.
const SCHEMA: u32 = 1;

/// The report of a trace.
///
/// # Errors
/// A trace whose stages cannot be restored or parsed: it is damaged.
pub fn report(trace: &CompileTrace) -> Result<String, TraceError> {
    page(&Measured::new(trace.clone()))
}

/// The report of a compilation with what several runs measured of it.
///
/// # Errors
/// As for [`report`].
pub fn page(measured: &Measured) -> Result<String, TraceError> {
    let title = format!("{}: Weft report", measured.trace.model);
    Ok(self_contained(PAGE, &title, STYLE, &SCRIPT.concat(), &data(measured)?))
}

/// A page of a template, with `{{title}}`, `{{style}}`, `{{script}}` and `{{data}}`, once each, the data last.
pub fn self_contained(template: &str, title: &str, style: &str, script: &str, data: &Value) -> String {
    // Inside a script element only `</` and `<!--` could end it.
    let text = shown_in_json(&lines(data)).replace('<', "\\u003c");
    let page = template.replacen("{{title}}", &escape(title), 1).replacen("{{style}}", style, 1);
    page.replacen("{{script}}", script, 1).replacen("{{data}}", &text, 1)
}

/// JSON in which each field of the outermost object has a line: the page's script parses them one by one.
fn lines(data: &Value) -> String {
    let Value::Object(fields) = data else { return data.to_string() };
    let fields: Vec<String> = fields.iter().map(|(k, v)| format!("{}:{v}", Value::from(k.as_str()))).collect();
    format!("{{{}}}", fields.join(",\n"))
}

/// The data of a report, as `docs/report.md` describes it.
///
/// # Errors
/// As for [`report`].
pub fn data(measured: &Measured) -> Result<Value, TraceError> {
    let t = &measured.trace;
    let mut graphs = Graphs::new(t);
    let (stages, list) = stages(t, &mut graphs)?;
    let (mut sources, nodes, levels) = graphs.into_parts();
    let mut out = json!({
        "schema": SCHEMA,
        "model": t.model,
        "weft": t.weft,
        "profile": t.profile_name,
        "options": { "amp": t.options.amp, "layout": t.options.layout, "fuse": t.options.fuse, "opt_level": t.options.opt_level },
        "about": about(measured),
        "start": start_stage(t),
        "stages": stages,
        "graphs": list,
        "levels": levels,
        "nodes": nodes,
        "groups": tables::groups(t, &mut sources),
        "borders": tables::borders(t),
        "remarks": tables::remarks(t, &mut sources),
        "calls": tables::calls(t),
        "kernels": tables::kernels(t),
        "schedules": modelled::schedules(t),
        "left": modelled::left(t),
        "roofs": modelled::roofs(t),
        "times": tables::times(t),
        "timeline": timeline(t),
        "errors": tables::errors(measured, &mut sources),
        "difference": measured.beside.as_ref().map(|b| difference::difference(t, b)),
        "memory": tables::memory(t),
        "categories": Category::ALL.iter().map(|&c| json!({ "name": c, "title": c.title(), "colour": fill(c) })).collect::<Vec<_>>(),
    });
    out["sources"] = sources.to_json().into();
    Ok(out)
}

fn about(measured: &Measured) -> String {
    let t = &measured.trace;
    let o = &t.options;
    let compiled = format!(
        "for {}: {} nodes, {} groups, {} dispatches of {} kernels; amp {}, layout {}, fuse {}, -O{}; Weft {}",
        t.profile_name,
        t.sources.len(),
        t.groups.len(),
        t.calls().count(),
        t.kernels.len(),
        o.amp,
        o.layout,
        o.fuse,
        o.opt_level,
        t.weft
    );
    let ran = t.times.as_ref().map(|m| {
        let device = format!("{:.2} ms with inputs and results on the device", m.device_ms);
        format!("; runs in {:.2} ms on {}, {device}", m.latency_ms, m.device)
    });
    let held = t.errors.as_ref().or(measured.accumulated.as_ref());
    let held = held.map(|e| format!("; held against {} on {}", e.against, e.device));
    [Some(compiled), ran, held].into_iter().flatten().collect()
}

/// A run on one axis, in lanes; null where nothing was timed.
fn timeline(t: &CompileTrace) -> Value {
    let Some(run) = run_spans(t) else { return Value::Null };
    let span = |s: &Span| {
        json!({ "lane": s.lane.name(), "name": s.name, "call": s.dispatch, "waits": s.waits,
                "start_us": s.start_us, "end_us": s.end_us })
    };
    json!({ "about": about_run(t, &run), "kernel_times": run.kernel_times,
            "recorded": t.times.as_ref().is_some_and(|t| t.run.is_some()), "left_out": run.left_out,
            "uncertainty_us": run.uncertainty_us, "spans": run.spans.iter().map(span).collect::<Vec<_>>() })
}

/// The stage that a reader sees first: the last graph that a pass changed.
fn start_stage(t: &CompileTrace) -> usize {
    let last = t.passes.len().min(t.stages.len().saturating_sub(1));
    (1..=last).rev().find(|&s| !t.stages[s].delta.is_empty()).unwrap_or(0)
}

/// The stages that are graphs, and the different graphs among them.
fn stages(t: &CompileTrace, graphs: &mut Graphs<'_>) -> Result<(Vec<Value>, Vec<Value>), TraceError> {
    let (mut stages, mut list) = (Vec::new(), Vec::<Value>::new());
    let mut before = Picture::default();
    for (i, text) in t.stage_texts()?.into_iter().enumerate().take(t.passes.len() + 1) {
        let stage = &t.stages[i];
        let changed = i == 0 || !stage.delta.is_empty();
        let mut marks = (Marks::default(), Marks::default());
        if changed {
            let picture = Picture::of_stage(&text)
                .map_err(|e| TraceError::Damaged(format!("stage `{}` does not parse: {e}", stage.label)))?;
            list.push(graphs.graph(&picture));
            if i > 0 {
                marks = changes(&before, &picture);
            }
            before = picture;
        }
        let pass = i.checked_sub(1).and_then(|p| t.passes.get(p));
        let same = stages.iter().filter(|s: &&Value| s["label"] == stage.label.as_str()).count();
        let id = if same == 0 { stage.label.clone() } else { format!("{}-{}", stage.label, same + 1) };
        stages.push(json!({
            "id": id, "label": stage.label, "changed": changed, "graph": list.len() - 1, "ms": pass.map(|p| p.ms),
            "nodes_before": pass.map(|p| p.nodes_before), "nodes_after": pass.map(|p| p.nodes_after),
            "removed": marked(&marks.0), "added": marked(&marks.1),
        }));
    }
    Ok((stages, list))
}

/// The marks of boxes by key.
fn marked(marks: &Marks) -> Map<String, Value> {
    let word = |m: Mark| Mark::ALL.into_iter().find(|w| w.0 == m).map_or("", |w| w.1);
    marks.keys().iter().filter_map(|k| Some((k.clone(), word(marks.of(k)?).into()))).collect()
}
