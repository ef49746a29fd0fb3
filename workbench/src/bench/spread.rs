//! The spread of a measurement's samples, the other costs of a run, and whether the measurement can be trusted.

use serde_json::Value;

/// Deviation, as a share of the median, from which on a measurement is called unstable.
const SPREAD: f64 = 0.1;
/// Share by which the medians of both halves of the samples may differ.
const DRIFT: f64 = 0.1;
/// Share by which the time on the device may be above the latency of a whole run.
const ABOVE: f64 = 0.05;
/// Samples from which on a spread says something.
const FEWEST: usize = 5;

/// Why the measurement cannot be trusted, and what to do; `None` if it can.
pub fn unstable(r: &Value) -> Option<String> {
    let samples: Vec<f64> = r["latency_ms"]["samples"].as_array()?.iter().filter_map(Value::as_f64).collect();
    let (median, device) = (number(r, &["latency_ms", "median"]), number(r, &["device_ms", "median"]));
    if samples.len() < FEWEST || median <= 0.0 {
        return None;
    }
    let spread = number(r, &["latency_ms", "stddev"]) / median;
    let middle = |half: &[f64]| benches::statistics::Statistics::of(half).median;
    let (first, second) = samples.split_at(samples.len() / 2);
    let drift = middle(second) / middle(first).max(1e-9) - 1.0;
    let why = match () {
        () if spread > SPREAD => format!("latencies deviate by {:.0} % of their median", 100.0 * spread),
        () if drift.abs() > DRIFT => {
            format!("the second half of the runs took {:+.0} % of the time of the first", 100.0 * drift)
        }
        () if device > median * (1.0 + ABOVE) => {
            format!("the device was busy for {device:.2} ms of a run of {median:.2} ms: something else ran meanwhile")
        }
        () => return None,
    };
    let model = r["model"].as_str().unwrap_or("");
    Some(format!("warning: {model}: unstable: {why}; stop other programs, or measure longer with --duration 10s"))
}

/// The number at this path of a JSON value; 0 where there is none.
pub fn number(v: &Value, path: &[&str]) -> f64 {
    path.iter().fold(v, |v, k| &v[*k]).as_f64().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn result(samples: &[f64], device: f64) -> Value {
        let s = benches::statistics::Statistics::of(samples);
        let mut latency = serde_json::to_value(s).expect("numbers");
        latency["samples"] = json!(samples);
        json!({ "model": "m", "latency_ms": latency, "device_ms": { "median": device } })
    }

    #[test]
    fn spread_drift_and_busy_devices_are_unstable() {
        let says = |samples: &[f64], device: f64| unstable(&result(samples, device)).unwrap_or_default();
        assert_eq!(says(&[1.0, 1.01, 0.99, 1.0, 1.02, 1.0], 0.9), "");
        assert!(says(&[1.0, 2.0, 1.0, 1.5, 1.0, 0.5], 0.9).contains("deviate by"));
        assert!(says(&[1.0, 1.0, 1.0, 1.12, 1.12, 1.12], 0.9).contains("+12 %"));
        assert!(says(&[1.0; 6], 1.2).contains("something else ran"));
        assert_eq!(says(&[1.0, 9.0], 0.9), "", "two samples say nothing");
    }
}
