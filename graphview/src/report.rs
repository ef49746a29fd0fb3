//! The report: a trace as one self-contained HTML file, for readers without Weft and without the model.
//!
//! It has the placed graph of every stage, groups, remarks, kernels with schedule and WGSL, and times, errors and
//! driver statistics if the trace has them. Nothing is fetched: style, script and data are in the file. Stages with
//! equal graphs share one. `cargo xtask report` drives it in a browser.

use crate::layout::Route;
use crate::picture::{Category, Picture};
use crate::scene::{Arrangement, Scene};
use crate::svg::{escape, fill};
use compiler::trace::driver_stats::Executable;
use compiler::trace::{Call, CompileTrace, NodeError, TraceError};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

const PAGE: &str = include_str!("report/page.html");
const STYLE: &str = include_str!("report/style.css");
const SCRIPT: &str = include_str!("report/script.js");

/// The report of a trace.
///
/// # Errors
/// A trace whose stages cannot be restored or parsed: it is damaged.
pub fn report(trace: &CompileTrace) -> Result<String, TraceError> {
    let mut sources = Sources::new(trace);
    let (stages, graphs) = stages(trace, &mut sources)?;
    let groups: Vec<Value> = trace.groups.iter().map(|g| {
        json!({ "ops": g.ops, "org": sources.numbers(&g.origins), "kind": g.kind, "rule": g.rule, "anchor": g.anchor,
                "layout": g.layout, "flops": g.flops, "bytes": g.bytes })
    }).collect();
    let remarks: Vec<Value> = trace.remarks.iter().map(|r| {
        let nodes: Vec<String> = r.nodes.iter().map(|n| n.to_string()).collect();
        json!({ "pass": r.pass.to_string(), "kind": r.kind, "message": r.message, "nodes": sources.numbers(&nodes) })
    }).collect();
    let data = json!({
        "model": trace.model,
        "about": about(trace),
        "start": start_stage(trace),
        "stages": stages,
        "graphs": graphs,
        "groups": groups,
        "remarks": remarks,
        "calls": calls(trace),
        "errors": errors(trace, &mut sources),
        "kernels": kernels(trace),
        "sources": sources.list.iter().map(|(name, op)| json!({ "name": name, "op": op })).collect::<Vec<_>>(),
        "colours": Category::ALL.iter().map(|&c| (word(c), json!(fill(c)))).collect::<serde_json::Map<_, _>>(),
        "legend": Category::ALL.iter().map(|&c| json!([word(c), c.title()])).collect::<Vec<_>>(),
    });
    // Inside a script element only `</` and `<!--` could end it.
    let text = data.to_string().replace('<', "\\u003c");
    let title = escape(&format!("{}: Weft report", trace.model));
    let page = PAGE.replacen("{{title}}", &title, 1).replacen("{{style}}", STYLE, 1).replacen("{{script}}", SCRIPT, 1);
    Ok(page.replacen("{{data}}", &text, 1))
}

fn word(c: Category) -> String {
    serde_json::to_value(c).ok().and_then(|v| v.as_str().map(str::to_string)).unwrap_or_default()
}

fn about(t: &CompileTrace) -> String {
    let o = &t.options;
    let measured = t.times.as_ref().map(|m| format!("; {:.2} ms on {}", m.device_ms, m.device));
    let held = t.errors.as_ref().map(|e| format!("; held against {} on {}", e.against, e.device));
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
    [Some(compiled), measured, held].into_iter().flatten().collect()
}

/// The stage that a reader sees first: the last one that fusion left.
fn start_stage(t: &CompileTrace) -> usize {
    t.passes.len().min(t.stages.len().saturating_sub(1))
}

/// Source nodes by number: names are long and stand everywhere.
struct Sources {
    list: Vec<(String, String)>,
    number: FxHashMap<String, usize>,
}
impl Sources {
    fn new(t: &CompileTrace) -> Sources {
        let list: Vec<(String, String)> = t.sources.iter().map(|s| (s.name.clone(), s.op.clone())).collect();
        let number = list.iter().enumerate().map(|(i, s)| (s.0.clone(), i)).collect();
        Sources { list, number }
    }
    fn numbers(&mut self, names: &[String]) -> Vec<usize> {
        let mut out = Vec::with_capacity(names.len());
        for name in names {
            out.push(match self.number.get(name) {
                Some(&i) => i,
                None => {
                    self.list.push((name.clone(), String::new()));
                    self.number.insert(name.clone(), self.list.len() - 1);
                    self.list.len() - 1
                }
            });
        }
        out
    }
}

/// The stages that are graphs, and the different graphs among them.
fn stages(t: &CompileTrace, sources: &mut Sources) -> Result<(Vec<Value>, Vec<Value>), TraceError> {
    let (mut stages, mut graphs) = (Vec::new(), Vec::<Value>::new());
    for (i, text) in t.stage_texts()?.into_iter().enumerate().take(t.passes.len() + 1) {
        let stage = &t.stages[i];
        let changed = i == 0 || !stage.delta.is_empty();
        if changed {
            let picture = Picture::of_stage(&text)
                .map_err(|e| TraceError::Damaged(format!("stage `{}` does not parse: {e}", stage.label)))?;
            graphs.push(graph(&picture, sources));
        }
        let about = match i.checked_sub(1).and_then(|p| t.passes.get(p)) {
            None => "the model as it came".to_string(),
            Some(p) if p.changed => format!("{} to {} nodes, {:.1} ms", p.nodes_before, p.nodes_after, p.ms),
            Some(p) => format!("no change, {:.1} ms", p.ms),
        };
        stages.push(json!({ "label": stage.label, "about": about, "changed": changed, "graph": graphs.len() - 1 }));
    }
    Ok((stages, graphs))
}

fn tenth(x: f32) -> f64 {
    (x as f64 * 10.0).round() / 10.0
}

/// Regions of control flow are open, groups are one box each.
fn graph(picture: &Picture, sources: &mut Sources) -> Value {
    let scene = Scene::arrange(picture, &Arrangement::plain(&|n| n.category == Category::Control));
    let boxes: Vec<Value> = scene.boxes.iter().map(|b| {
        let n = &b.node;
        let weights: Vec<String> = n.weights.iter().map(|w| format!("{}: {}", w.name, w.ty)).collect();
        json!({ "key": n.key, "op": n.op, "name": n.name, "cat": word(n.category), "work": word(n.work), "org": sources.numbers(&n.origins),
                "attrs": n.attrs, "weights": weights, "out": n.outputs, "dtype": n.dtype, "layout": n.layout,
                "r": b.rect.map(tenth), "open": b.open, "lines": b.lines })
    }).collect();
    let edges: Vec<Value> = scene.edges.iter().map(|e| match &e.route {
        Route::Line(points) => {
            let p: Vec<f64> = points.iter().flat_map(|p| p.map(tenth)).collect();
            json!({ "a": e.from, "b": e.to, "t": e.label, "p": p })
        }
        Route::Portal(a, b) => {
            json!({ "a": e.from, "b": e.to, "t": e.label, "cut": [tenth(a[0]), tenth(a[1]), tenth(b[0]), tenth(b[1])] })
        }
    }).collect();
    let captions: Vec<Value> =
        scene.captions.iter().map(|c| json!({ "x": tenth(c.at[0]), "y": tenth(c.at[1]), "text": c.text })).collect();
    json!({ "boxes": boxes, "edges": edges, "captions": captions, "size": scene.size.map(tenth) })
}

/// The dispatches, with the median of their times in microseconds where they were measured.
fn calls(t: &CompileTrace) -> Vec<Value> {
    let times = t.times.as_ref().map_or(&[][..], |times| &times.dispatches);
    let one = |(i, c): (usize, &Call)| {
        json!({ "kernel": c.kernel, "group": c.group, "grid": t.kernels[c.kernel].grid,
                "us": times.get(i).map(|time| time.median_us) })
    };
    t.calls().enumerate().map(one).collect()
}

/// The errors of source nodes, then those of the model's results, which are no nodes; empty where nothing was compared.
fn errors(t: &CompileTrace, sources: &mut Sources) -> Vec<Value> {
    let Some(errors) = &t.errors else { return vec![] };
    let mut one = |e: &NodeError, node: bool| {
        let number = node.then(|| sources.numbers(std::slice::from_ref(&e.name))[0]);
        json!({ "name": e.name, "node": number, "abs": e.max_abs, "rel": e.rel_l2, "pass": e.pass })
    };
    let nodes: Vec<Value> = errors.nodes.iter().map(|e| one(e, true)).collect();
    nodes.into_iter().chain(errors.outputs.iter().map(|e| one(e, false))).collect()
}

fn kernels(t: &CompileTrace) -> Vec<Value> {
    t.kernels
        .iter()
        .enumerate()
        .map(|(i, k)| {
            let stats = t.driver_stats.as_ref().and_then(|s| s.kernels.get(i));
            let driver: Vec<Value> = stats.into_iter().flatten().map(Executable::to_json).collect();
            json!({ "name": k.name, "driver": driver, "schedule": k.schedule, "workgroup": k.workgroup, "bindings": k.bindings.len(),
                    "shared": k.shared_bytes, "proved": k.bounds_proved, "wgsl": k.wgsl })
        })
        .collect()
}
