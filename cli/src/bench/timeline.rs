//! `--timeline F.json`: one run as Chrome's trace format has it, for Perfetto (<https://ui.perfetto.dev>) or `chrome://tracing`.
//!
//! Host and device stand on one axis, in microseconds from the beginning of the run.

use super::executor_times::NodeTime;
use crate::args::BenchArgs;
use crate::error::{CliError, CliResult, Code};
use crate::output::{log, write_file};
use compiler::compile::Compiled;
use compiler::tensor::Tensor;
use runtime_gpu::{Span, Timeline};
use serde_json::{Value, json};

const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// Writes a run of a session on a device, where it is asked for.
///
/// # Errors
/// What the run says; a file that cannot be written.
pub fn write(a: &BenchArgs, session: &runtime_gpu::Session, c: &Compiled, inputs: &[Tensor]) -> CliResult<()> {
    if a.timeline.is_none() {
        return Ok(());
    }
    let t = session.timeline(inputs)?;
    let source = serde_json::to_value(t.source).unwrap_or_default();
    let about = json!({ "kernel_times": source, "device_clock_uncertainty_us": t.uncertainty_us });
    store(a, of_device(&t, c), about)
}

/// Writes a run of the interpreter.
///
/// # Errors
/// A file that cannot be written.
pub fn write_nodes(a: &BenchArgs, nodes: &[NodeTime]) -> CliResult<()> {
    if a.timeline.is_none() {
        return Ok(());
    }
    let mut events = vec![process(HOST, "interpreter"), thread(HOST, 1, "nodes")];
    events.extend(nodes.iter().map(|n| event(&n.name, "kernel", (HOST, 1), n.start, n.end, json!({ "op": n.op }))));
    store(a, events, json!({ "kernel_times": "host-clock", "device_clock_uncertainty_us": 0 }))
}

/// A network in parts makes its plans as it runs.
///
/// # Errors
/// `--timeline` was asked for.
pub fn refuse(a: &BenchArgs, why: &str) -> CliResult<()> {
    match a.timeline {
        None => Ok(()),
        Some(_) => Err(CliError::new(Code::Device, format!("--timeline: {why}"))
            .help("`weft bench -o F.trace` and `weft explain F.trace --sort time` show times of its kernels")),
    }
}

fn of_device(t: &Timeline, c: &Compiled) -> Vec<Value> {
    let mut events = vec![
        process(HOST, "host"),
        thread(HOST, 1, "run"),
        process(DEVICE, "device"),
        thread(DEVICE, 1, "queue"),
        thread(DEVICE, 2, "kernels"),
    ];
    let span = |s: &Span, at: (u32, u32)| event(s.name, s.name, at, s.start, s.end, json!({}));
    events.extend(t.host.iter().map(|s| span(s, (HOST, 1))));
    events.extend(t.queue.iter().map(|s| span(s, (DEVICE, 1))));
    for (d, &(kernel, group, start, end)) in c.plan.dispatches().zip(&t.kernels) {
        let layers = &c.groups[group].origins;
        let about = json!({ "group": group, "kernel": kernel, "layers": layers, "flops": d.flops, "bytes": d.bytes });
        events.push(event(&c.plan.kernels[kernel].name, "kernel", (DEVICE, 2), start, end, about));
    }
    events
}

/// A complete event.
fn event(name: &str, category: &str, (process, thread): (u32, u32), start: f64, end: f64, about: Value) -> Value {
    json!({ "ph": "X", "name": name, "cat": category, "pid": process, "tid": thread, "ts": start, "dur": (end - start).max(0.0),
        "args": about })
}

fn process(id: u32, name: &str) -> Value {
    json!({ "ph": "M", "name": "process_name", "pid": id, "tid": 0, "args": { "name": name } })
}

fn thread(process: u32, id: u32, name: &str) -> Value {
    json!({ "ph": "M", "name": "thread_name", "pid": process, "tid": id, "args": { "name": name } })
}

fn store(a: &BenchArgs, events: Vec<Value>, about: Value) -> CliResult<()> {
    let Some(path) = &a.timeline else { return Ok(()) };
    let trace = json!({ "traceEvents": events, "displayTimeUnit": "ms", "otherData": about });
    write_file(path, trace.to_string().as_bytes())?;
    log(&a.common, format!("wrote the timeline to {}: ui.perfetto.dev shows it", path.display()));
    Ok(())
}
