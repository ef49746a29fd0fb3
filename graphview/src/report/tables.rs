//! The tables of a report: groups, borders, remarks, kernels, times, errors, memory.

use super::measured::Measured;
use super::modelled;
use super::sources::Sources;
use crate::memory::{spans, steps};
use crate::reasons::beyond;
use compiler::trace::driver_stats::Executable;
use compiler::trace::{Call, CompileTrace, Content, DispatchTime, Errors, Kind, NodeError, TimeRow};
use serde_json::{Value, json};

pub(super) fn groups(t: &CompileTrace, sources: &mut Sources) -> Vec<Value> {
    let (borders, readers, stored) = (t.border_remarks(), t.readers(), modelled::stored(t));
    t.groups
        .iter()
        .enumerate()
        .map(|(i, g)| {
            let error = t.error_of_group(i).map(|e| error(e, Some(sources.one(&e.name))));
            json!({ "label": g.label, "layer": g.layer, "function": g.function, "ops": g.ops,
                "origins": sources.numbers(&g.origins), "kind": g.kind, "rule": g.rule, "anchor": g.anchor,
                "layout": g.layout, "dtype": dtype(t, i),
                "stores": stored[i].dtype.map(|d| d.to_string()), "flops": g.flops, "bytes": g.bytes, "reads": g.reads,
                "ends": t.border_of_group(i, &borders[i], &readers[i]),
                "us": t.time_of_group(i).map(time), "error": error,
                "f32_ms": stored[i].f32_ns.map(|ns| ns / 1e6) })
        })
        .collect()
}

/// `f16` if a kernel of a group reads or writes f16, else `f32`.
fn dtype(t: &CompileTrace, group: usize) -> Option<&str> {
    let list: Vec<&str> = t.kernels_of(group).into_iter().map(|k| t.kernels[k].dtype.as_str()).collect();
    list.iter().find(|d| **d == "f16").or(list.first()).copied()
}

fn time(t: DispatchTime) -> Value {
    json!({ "run": t.us, "least": t.min_us, "most": t.max_us })
}

/// For each group and each of its readers the remarks that say why both are not one group.
pub(super) fn borders(t: &CompileTrace) -> Vec<Value> {
    let (own, readers) = (t.border_remarks(), t.readers());
    let mut out = vec![];
    for (from, list) in readers.iter().enumerate() {
        for &to in list {
            let mut why: Vec<&str> =
                t.border_between(from, to, &own[from]).iter().map(|r| r.message.as_str()).collect();
            if why.is_empty() {
                // The sentences are about another reader.
                why = own[from].iter().map(|&r| t.remarks[r].message.as_str()).collect();
                why.dedup();
            }
            out.push(json!({ "from": from, "to": to, "why": why }));
        }
    }
    out
}

pub(super) fn remarks(t: &CompileTrace, sources: &mut Sources) -> Vec<Value> {
    let one = |r: &compiler::remark::Remark| {
        let nodes: Vec<&str> = r.nodes.iter().map(|n| n.as_str()).collect();
        json!({ "pass": r.pass.as_str(), "kind": r.kind, "message": r.message, "detail": r.detail,
                "nodes": sources.numbers(&nodes) })
    };
    t.remarks.iter().map(one).collect()
}

/// The dispatches in order.
pub(super) fn calls(t: &CompileTrace) -> Vec<Value> {
    let times = t.times.as_ref().map_or(&[][..], |times| &times.dispatches);
    let one = |(i, c): (usize, &Call)| {
        json!({ "kernel": c.kernel, "group": c.group, "grid": c.grid, "flops": c.flops, "bytes": c.bytes,
                "us": times.get(i).copied().map(time) })
    };
    t.calls().enumerate().map(one).collect()
}

pub(super) fn kernels(t: &CompileTrace) -> Vec<Value> {
    let estimates = modelled::estimates(t);
    let one = |(i, k): (usize, &compiler::trace::Kernel)| {
        let stats = t.driver_stats.as_ref().and_then(|s| s.kernels.get(i));
        let driver: Vec<_> = stats.into_iter().flatten().map(Executable::record).collect();
        json!({ "name": k.name, "function": k.function, "groups": k.groups, "when": k.when, "driver": driver,
                "schedule": k.schedule, "workgroup": k.workgroup, "grid": k.grid, "bindings": k.bindings.len(),
                "shared_bytes": k.shared_bytes, "dtype": k.dtype, "bounds_proved": k.bounds_proved, "wgsl": k.wgsl, "dispatches": t.dispatches_of_kernel(i), "estimate": estimates[i] })
    };
    t.kernels.iter().enumerate().map(one).collect()
}

/// Where the time of a run goes; null where nothing was measured.
pub(super) fn times(t: &CompileTrace) -> Value {
    let Some(times) = &t.times else { return Value::Null };
    let spent = t.time_spent().into_iter().map(|r| TimeRow { name: t.row_title(&r), ..r });
    let (kernels, rest): (Vec<TimeRow>, Vec<TimeRow>) = spent.partition(|r| r.kind == Kind::Kernel);
    let dispatches: f64 = kernels.iter().map(|r| r.ms).sum();
    let rest: Vec<Value> =
        rest.iter().map(|r| json!({ "what": r.name, "kind": r.kind, "ms": r.ms, "count": r.count })).collect();
    json!({ "device": times.device, "source": times.source, "latency_ms": times.latency_ms, "run_ms": t.run_ms(),
            "device_ms": times.device_ms, "dispatches_ms": dispatches, "rest": rest, "ceilings": times.ceilings })
}

/// The errors of nodes alone, and those that include the nodes before; each null where nothing was compared.
pub(super) fn errors(m: &Measured, sources: &mut Sources) -> Value {
    let mut list = |e: &Errors| {
        let nodes: Vec<Value> = e.nodes.iter().map(|n| error(n, Some(sources.one(&n.name)))).collect();
        let results: Vec<Value> = e.outputs.iter().map(|n| error(n, None)).collect();
        json!({ "device": e.device, "against": e.against, "nodes": nodes, "results": results,
                "beyond": beyond(e) })
    };
    json!({ "alone": m.trace.errors.as_ref().map(&mut list), "accumulated": m.accumulated.as_ref().map(&mut list) })
}

fn error(e: &NodeError, node: Option<usize>) -> Value {
    json!({ "name": e.name, "node": node, "max_abs": e.max_abs, "rel_l2": e.rel_l2,
            "max_magnitude": e.max_magnitude, "pass": e.pass })
}

pub(super) fn memory(t: &CompileTrace) -> Value {
    let steps = steps(t);
    let spans: Vec<Value> = spans(t, &steps)
        .into_iter()
        .map(|s| json!({ "buffer": s.buffer, "bytes": s.bytes, "first": s.first, "last": s.last }))
        .collect();
    let all = t.plan.buffers.iter().enumerate();
    let constants = all.filter_map(|(i, b)| match &b.content {
        Content::Constant { name, .. } => Some(json!({ "buffer": i, "name": name, "bytes": b.bytes })),
        _ => None,
    });
    let constants: Vec<Value> = constants.collect();
    let steps: Vec<Value> = steps.into_iter().map(|s| json!({ "group": s.group, "buffers": s.buffers })).collect();
    json!({ "weights": t.memory.weights, "activations_peak": t.memory.activations_peak,
            "activations_naive": t.memory.activations_naive, "steps": steps, "spans": spans, "constants": constants })
}
