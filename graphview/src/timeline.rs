//! The dispatches of a trace as a timeline in the Trace Event format, which Perfetto and Chrome's tracing page open.

use compiler::trace::CompileTrace;
use serde_json::{Value, json};

/// The timeline of a run; dispatches follow each other as the plan has them. `None` where the trace has no times.
pub fn perfetto(trace: &CompileTrace) -> Option<Value> {
    let times = trace.times.as_ref()?;
    let named = |name: &str, args: Value| json!({ "ph": "M", "pid": 1, "tid": 1, "name": name, "args": args });
    let mut events = vec![
        named("process_name", json!({ "name": format!("{} on {}", trace.model, times.device) })),
        named("thread_name", json!({ "name": "dispatches" })),
    ];
    let mut start = 0.0;
    for (i, (call, time)) in trace.calls().zip(&times.dispatches).enumerate() {
        let (group, kernel) = (&trace.groups[call.group], &trace.kernels[call.kernel]);
        events.push(json!({
            "ph": "X", "pid": 1, "tid": 1, "cat": "dispatch", "name": group.label, "ts": start, "dur": time.median_us,
            "args": { "dispatch": i, "kernel": kernel.name, "grid": kernel.grid, "workgroup": kernel.workgroup,
                      "flops": call.flops, "bytes": call.bytes, "min_us": time.min_us, "max_us": time.max_us,
                      "nodes": group.origins },
        }));
        start += time.median_us;
    }
    Some(json!({ "traceEvents": events, "displayTimeUnit": "ms",
                 "otherData": { "source": times.source, "weft": trace.weft } }))
}
