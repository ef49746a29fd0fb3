//! The cost of host functions in the place of nodes, shown.

use crate::output::{print_text, show_table, table};
use workbench::Result;
use workbench::bench::record::BenchRecord;
use workbench::host_calls::HostFunctionTime;

/// Shows the calls of a result of `weft bench`, and what they cost or gain.
///
/// # Errors
/// Where nothing can be written.
pub fn show(result: &BenchRecord) -> Result<()> {
    let calls = result.run.host_functions.as_deref().unwrap_or_default();
    if !calls.is_empty() {
        let mut t = table(&["host function", "node", "works on", "bytes", "us each", "bytes moved", "us waiting"]);
        for c in calls {
            let place = if c.on_device { "device buffers" } else { "host tensors" };
            let bytes = if c.bytes > 0 { c.bytes.to_string() } else { "-".into() };
            let moved: u64 = c.edges.iter().map(|e| e.bytes).sum();
            let waits: f64 = c.edges.iter().map(|e| e.us_median).sum();
            let [us, waits] = [c.us_median, waits].map(|us| format!("{us:.1}"));
            let function = c.function.clone().unwrap_or_default();
            t.add_row([function, c.name.clone(), place.into(), bytes, us, moved.to_string(), waits]);
        }
        show_table(&t)?;
        show_edges(calls)?;
    }
    let Some(plain) = &result.without_host_calls else { return Ok(()) };
    let (before, now, ratio) = (plain.device_ms, result.run.device(), plain.device_ratio);
    let word = if now > before { "cost" } else { "gain" };
    print_text(&format!(
        "the host calls {word} {:.2} ms on the device: {now:.2} with them, {before:.2} without, a ratio of {ratio:.3}",
        (now - before).abs()
    ))
}

/// Shows the tensors on their way to calls on the host and from them.
fn show_edges(calls: &[HostFunctionTime]) -> Result<()> {
    let mut t = table(&["tensor", "from", "to", "bytes moved", "us waiting"]);
    for c in calls {
        let function = c.function.clone().unwrap_or_default();
        for e in &c.edges {
            let there = if e.bytes > 0 { "device" } else { "host" }.to_string();
            let [from, to] = if e.operand { [there, function.clone()] } else { [function.clone(), there] };
            t.add_row([e.tensor.clone(), from, to, e.bytes.to_string(), format!("{:.1}", e.us_median)]);
        }
    }
    show_table(&t)
}
