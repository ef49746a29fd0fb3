//! The cost of host functions in the place of nodes, shown.

use crate::output::{print_text, show_table, table};
use serde_json::Value;
use workbench::Result;

/// Shows the calls of a result of `weft bench`, and what they cost or gain.
///
/// # Errors
/// Where nothing can be written.
pub fn show(result: &Value) -> Result<()> {
    let calls = result["host_functions"].as_array().cloned().unwrap_or_default();
    if !calls.is_empty() {
        let mut t = table(&["host function", "node", "works on", "bytes", "us each", "bytes moved", "us waiting"]);
        for c in &calls {
            let place = if c["on_device"] == true { "device buffers" } else { "host tensors" };
            let text = |key: &str| c[key].as_str().unwrap_or("").to_string();
            let us = c["us_median"].as_f64().unwrap_or(0.0);
            let bytes = c["bytes"].as_u64().filter(|b| *b > 0).map_or("-".to_string(), |b| b.to_string());
            let edges = c["edges"].as_array().cloned().unwrap_or_default();
            let moved: u64 = edges.iter().filter_map(|e| e["bytes"].as_u64()).sum();
            let waits: f64 = edges.iter().filter_map(|e| e["us_median"].as_f64()).sum();
            let [us, waits] = [us, waits].map(|us| format!("{us:.1}"));
            t.add_row([text("function"), text("name"), place.into(), bytes, us, moved.to_string(), waits]);
        }
        show_table(&t)?;
        show_edges(&calls)?;
    }
    let plain = &result["without_host_calls"];
    let Some(before) = plain["device_ms"].as_f64() else { return Ok(()) };
    let now = result["device_ms"]["median"].as_f64().unwrap_or(0.0);
    let (word, ratio) = (if now > before { "cost" } else { "gain" }, plain["device_ratio"].as_f64().unwrap_or(0.0));
    print_text(&format!(
        "the host calls {word} {:.2} ms on the device: {now:.2} with them, {before:.2} without, a ratio of {ratio:.3}",
        (now - before).abs()
    ))
}

/// Shows the tensors on their way to calls on the host and from them.
fn show_edges(calls: &[Value]) -> Result<()> {
    let mut t = table(&["tensor", "from", "to", "bytes moved", "us waiting"]);
    for c in calls {
        let function = c["function"].as_str().unwrap_or("").to_string();
        for e in c["edges"].as_array().into_iter().flatten() {
            let bytes = e["bytes"].as_u64().unwrap_or(0);
            let there = if bytes > 0 { "device" } else { "host" }.to_string();
            let [from, to] = if e["operand"] == true { [there, function.clone()] } else { [function.clone(), there] };
            let (tensor, us) = (e["tensor"].as_str().unwrap_or("").to_string(), e["us_median"].as_f64().unwrap_or(0.0));
            t.add_row([tensor, from, to, bytes.to_string(), format!("{us:.1}")]);
        }
    }
    show_table(&t)
}
