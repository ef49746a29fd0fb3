//! The spread of a measurement's samples, and the other costs of a run.

use crate::output::{print_text, show_table, table};
use workbench::Result;
use workbench::bench::record::BenchRecord;
use workbench::figures::{few_ms, si};
use workbench::statistics::{Ratio, Statistics};

/// Names of the times of a token: each at a length of the cache that is new to the session, and the last one again.
const OF_TOKENS: [&str; 2] = ["ms a token", "ms again"];

/// The cells of the ratio, its noise, and the word for it.
pub fn against(first: Statistics, latency: Statistics) -> [String; 3] {
    let (ratio, is_first) = (Ratio::of(&first, &latency), first == latency);
    [
        format!("{:.2}", ratio.value),
        known(ratio.plus_minus.filter(|_| !is_first)),
        if is_first { "" } else { ratio.word() }.to_string(),
    ]
}

/// A figure that may be missing.
pub fn known(by: Option<f64>) -> String {
    by.map_or(String::new(), |by| format!("{by:.2}"))
}

/// Statistics, compile time and memory of one result.
pub fn show(r: &BenchRecord) -> Result<()> {
    let mut t = table(&["", "min", "median", "+-", "p90", "p99", "mean", "deviation"]);
    let mut alone = vec![];
    let names = if r.decode.is_some() { OF_TOKENS } else { ["latency ms", "device ms"] };
    for (name, sampled) in names.into_iter().zip([&r.run.latency_ms, &r.run.device_ms]) {
        if let Some(sampled) = sampled.as_ref().filter(|s| s.of.median > 0.0) {
            let s = sampled.of;
            // One figure has no spread.
            if sampled.samples.as_ref().is_none_or(|all| all.len() < 2) {
                let of = if sampled.samples.is_some() { "one sample" } else { "of one run" };
                alone.push(format!("{name}: {:.3} ({of})", s.median));
                continue;
            }
            let mut row = vec![name.to_string()];
            let by = s.plus_minus.map_or(String::new(), |by| format!("{by:.3}"));
            row.extend([s.min, s.median].map(|ms| format!("{ms:.3}")));
            row.push(by);
            row.extend([s.p90, s.p99, s.mean].map(|ms| format!("{ms:.3}")));
            row.push(format!("{:.1} %", 100.0 * s.stddev / s.median));
            t.add_row(row);
        }
    }
    if !t.is_empty() {
        show_table(&t)?;
    }
    alone.iter().try_for_each(|line| print_text(line))?;
    if let Some(c) = &r.compile_ms {
        let warm = c.warm.map_or(String::new(), |ms| format!(", {ms:.0} ms warm"));
        let stages: Vec<String> = c.stages.iter().map(|s| format!("{} {}", s.name, few_ms(s.ms))).collect();
        let stages = stages.join(", ");
        print_text(&format!("compilation, session and first run: {:.0} ms cold ({stages}){warm}", c.cold))?;
    }
    if let Some(a) = &r.against_f32 {
        let finite = if a.not_finite == 0 { String::new() } else { format!(", {} numbers not finite", a.not_finite) };
        let [rel_l2, max_abs] = [a.rel_l2, a.max_abs].map(|x| format!("{x:.1e}"));
        let text = format!("results against f32: relative L2 error {rel_l2}, largest difference {max_abs}{finite}");
        print_text(&text)?;
    }
    if let Some((n, per_s)) = r.run.in_flight.zip(r.run.throughput_per_s) {
        let runs = if n == 1 { "1 run" } else { &format!("{n} runs") };
        print_text(&format!("throughput: {per_s:.1} a second with {runs} in flight"))?;
    }
    if let Some(m) = &r.run.memory {
        let [weights, peak] = [m.weights, m.activations_peak].map(|b| format!("{}B", si(b as f64)));
        print_text(&format!("memory on the device: {weights} of weights, {peak} of intermediates at the peak"))?;
    }
    Ok(())
}
