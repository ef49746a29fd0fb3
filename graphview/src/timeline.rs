//! The times of a trace as a timeline in the Trace Event format, which Perfetto and Chrome's tracing page open.

use compiler::trace::{CompileTrace, Kind, Lane, RunSpans, Span, TimeRow};
use serde_json::{Value, json};
use std::borrow::Cow;

/// The numbers of processes.
const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// A run: host and device stand on one axis, in microseconds from its beginning. `device` names the second process,
/// `about` says what is known of a dispatch.
pub fn events(run: &RunSpans, device: &str, about: &dyn Fn(usize) -> Value) -> Value {
    let mut events = vec![
        process(HOST, "host"),
        thread(HOST, 1, "run"),
        process(DEVICE, device),
        thread(DEVICE, 1, "queue"),
        thread(DEVICE, 2, "kernels"),
    ];
    events.extend(run.spans.iter().map(|s| match (s.dispatch, s.lane) {
        (Some(i), _) => complete(s, "kernel", (DEVICE, 2), about(i)),
        (None, Lane::Device) => complete(s, "queue", (DEVICE, 1), json!({})),
        (None, lane) => complete(s, lane.name(), (HOST, 1), json!({})),
    }));
    json!({ "traceEvents": events, "displayTimeUnit": "ms", "otherData": {
        "kernel_times": run.kernel_times, "device_clock_uncertainty_us": run.uncertainty_us, "run_ms": run.ms,
        "spent": run.rows } })
}

/// A complete event.
fn complete(s: &Span, category: &str, (process, thread): (u32, u32), about: Value) -> Value {
    json!({ "ph": "X", "name": s.name, "cat": category, "pid": process, "tid": thread, "ts": s.start_us,
        "dur": (s.end_us - s.start_us).max(0.0), "args": about })
}

fn process(id: u32, name: &str) -> Value {
    json!({ "ph": "M", "name": "process_name", "pid": id, "tid": 0, "args": { "name": name } })
}

fn thread(process: u32, id: u32, name: &str) -> Value {
    json!({ "ph": "M", "name": "thread_name", "pid": process, "tid": id, "args": { "name": name } })
}

/// The run that a trace holds, or where it holds none, its dispatches one after the other by their medians. `None`
/// where the trace has no times.
pub fn perfetto(trace: &CompileTrace) -> Option<Value> {
    let calls: Vec<_> = trace.calls().collect();
    let about = |i: usize| {
        calls.get(i).map_or(json!({}), |call| {
            let (group, kernel) = (&trace.groups[call.group], &trace.kernels[call.kernel]);
            json!({ "dispatch": i, "kernel": kernel.name, "grid": kernel.grid, "workgroup": kernel.workgroup,
                "flops": call.flops, "bytes": call.bytes, "nodes": group.origins })
        })
    };
    let mut run = run_spans(trace)?.into_owned();
    for s in &mut run.spans {
        if let Some(call) = s.dispatch.and_then(|i| calls.get(i)) {
            s.name.clone_from(&trace.groups[call.group].label);
        }
    }
    Some(events(&run, &trace.times.as_ref()?.device, &about))
}

/// What the axis of a run is, in a sentence or two.
pub fn about_run(trace: &CompileTrace, run: &RunSpans) -> String {
    let Some(times) = trace.times.as_ref() else { return String::new() };
    if times.run.is_none() {
        return "Each kernel was timed by itself, one after the other: this trace has no recorded run.".into();
    }
    let one = format!("One run of {:.2} ms; the median of the timed runs is {:.2} ms.", run.ms, times.latency_ms);
    let clock = match run.uncertainty_us > 0.0 {
        true => format!(" The device's clock fits the host's within {:.1} µs.", run.uncertainty_us),
        false => String::new(),
    };
    let left = match run.left_out {
        0 => String::new(),
        n => format!(" The first {} of {} spans are drawn.", run.spans.len(), run.spans.len() + n),
    };
    format!("{one}{clock}{left}")
}

/// The recorded run. Where none was recorded, what was timed by itself, one after the other; `None` where nothing
/// was timed.
pub fn run_spans(trace: &CompileTrace) -> Option<Cow<'_, RunSpans>> {
    let times = trace.times.as_ref()?;
    if let Some(run) = &times.run {
        return Some(Cow::Borrowed(run));
    }
    let mut run = RunSpans { kernel_times: times.source.clone(), ms: trace.run_ms(), ..RunSpans::default() };
    for TimeRow { kind, name, dispatch, group, ms, .. } in trace.time_spent().into_iter().filter(|r| r.ms > 0.0) {
        let (lane, waits) = if kind == Kind::Kernel { (Lane::Device, false) } else { (Lane::Host, true) };
        let start_us = run.end_us();
        run.spans.push(Span { lane, kind, name, dispatch, group, waits, start_us, end_us: start_us + ms * 1e3 });
    }
    Some(Cow::Owned(run))
}
