//! The spread of a measurement's samples, the other costs of a run, and whether the measurement can be trusted.

use super::record::BenchRecord;
use benches::statistics::Statistics;

/// Deviation, as a share of the median, from which on a measurement is called unstable.
const SPREAD: f64 = 0.1;
/// Share by which the medians of both halves of the samples may differ.
const DRIFT: f64 = 0.1;
/// Share by which the time on the device may be above the latency of a whole run.
const ABOVE: f64 = 0.05;
/// Samples from which on a spread says something.
const FEWEST: usize = 5;

/// Why the measurement cannot be trusted, and the kernels that are slow by a rule for any unit.
pub fn warnings(r: &BenchRecord) -> Vec<String> {
    let general = r.run.general.iter().map(|g| format!("warning: {}: {}", r.model, g.words()));
    unstable(r).into_iter().chain(general).collect()
}

/// Why the measurement cannot be trusted, and what to do; `None` if it can.
fn unstable(r: &BenchRecord) -> Option<String> {
    let latency = r.run.latency_ms.as_ref()?;
    let (samples, median, device) = (latency.samples.as_ref()?, latency.of.median, r.run.device());
    if samples.len() < FEWEST || median <= 0.0 {
        return None;
    }
    let spread = latency.of.stddev / median;
    let middle = |half: &[f64]| Statistics::of(half).median;
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
    let model = &r.model;
    Some(format!("warning: {model}: unstable: {why}; stop other programs, or measure longer with --duration 10s"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::record::{Run, Sampled};

    fn result(samples: &[f64], device: f64) -> BenchRecord {
        let (latency_ms, device_ms) = (Some(Sampled::of(samples.to_vec())), Some(Sampled::sum(device)));
        BenchRecord { run: Run { latency_ms, device_ms, ..Run::default() }, ..BenchRecord::default() }
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
