//! `--timeline F.json`: one run as Chrome's trace format has it, for Perfetto (<https://ui.perfetto.dev>) or `chrome://tracing`.
//!
//! Host and device stand on one axis, in microseconds from the beginning of the run.

use super::executor_times::NodeTime;
use crate::args::BenchArgs;
use crate::error::{CliError, CliResult, Code};
use crate::output::{log, write_file};
use compiler::compile::Compiled;
use compiler::plan::Dispatch;
use compiler::tensor::Tensor;
use runtime_cpu::Work;
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

/// Writes a run on the processor.
///
/// # Errors
/// What the run says; a file that cannot be written.
pub fn write_native(
    a: &BenchArgs,
    session: &runtime_cpu::Session,
    c: &Compiled,
    run: impl FnOnce(&runtime_cpu::Session) -> Result<Vec<runtime_cpu::Span>, runtime_cpu::CpuError>,
) -> CliResult<()> {
    if a.timeline.is_none() {
        return Ok(());
    }
    let spans = run(session)?;
    let dispatches: Vec<_> = session.plan().dispatches().collect();
    let mut events =
        vec![process(HOST, "host"), thread(HOST, 1, "run"), process(DEVICE, "CPU"), thread(DEVICE, 2, "kernels")];
    let host = |name: &str, s: &runtime_cpu::Span| event(name, name, (HOST, 1), s.start, s.end, json!({}));
    events.extend(spans.iter().map(|s| match &s.work {
        Work::Inputs => host("upload", s),
        Work::Outputs => host("readback", s),
        Work::Host(name) => event(name, "host step", (HOST, 1), s.start, s.end, json!({})),
        Work::Kernel(i) => kernel(c, dispatches[*i], s.start, s.end),
    }));
    store(a, events, json!({ "kernel_times": "host-clock", "device_clock_uncertainty_us": 0 }))
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
    events.extend(c.plan.dispatches().zip(&t.kernels).map(|(d, &(_, _, start, end))| kernel(c, d, start, end)));
    events
}

/// The event of a dispatch.
fn kernel(c: &Compiled, d: &Dispatch, start: f64, end: f64) -> Value {
    let layers = &c.groups[d.group].origins;
    let about = json!({ "group": d.group, "kernel": d.kernel, "layers": layers, "flops": d.flops, "bytes": d.bytes });
    event(&c.plan.kernels[d.kernel].name, "kernel", (DEVICE, 2), start, end, about)
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
