//! The spread of a measurement's samples, and the other costs of a run.

use crate::output::{print_text, show_table, table};
use serde_json::Value;
use workbench::Result;
use workbench::bench::number;
use workbench::figures::si;

/// Statistics, compile time and memory of one result.
pub fn show(r: &Value) -> Result<()> {
    let mut t = table(&["", "min", "median", "p90", "p99", "mean", "deviation"]);
    for (name, key) in [("latency ms", "latency_ms"), ("device ms", "device_ms")] {
        let n = |k: &str| number(r, &[key, k]);
        if n("median") > 0.0 {
            let mut row = vec![name.to_string()];
            row.extend(["min", "median", "p90", "p99", "mean"].map(|k| format!("{:.3}", n(k))));
            row.push(format!("{:.1} %", 100.0 * n("stddev") / n("median")));
            t.add_row(row);
        }
    }
    show_table(&t)?;
    let ms = |k: &str| r["compile_ms"][k].as_f64().map(|ms| format!("{ms:.0} ms {k}"));
    let compile: Vec<String> = ["cold", "warm"].into_iter().filter_map(ms).collect();
    print_text(&format!("compilation, session and first run: {}", compile.join(", ")))?;
    if let Some(n) = r["in_flight"].as_u64() {
        let runs = if n == 1 { "1 run" } else { &format!("{n} runs") };
        print_text(&format!("throughput: {:.1} a second with {runs} in flight", number(r, &["throughput_per_s"])))?;
    }
    let bytes = |k: &str| r["memory"][k].as_f64().map(|b| format!("{}B", si(b)));
    if let (Some(weights), Some(peak)) = (bytes("weights"), bytes("activations_peak")) {
        print_text(&format!("memory on the device: {weights} of weights, {peak} of intermediates at the peak"))?;
    }
    Ok(())
}
