//! Runs a second, with several in flight: the host encodes some while the device works on others.

use super::request::Request;
use crate::progress::Progress;
use runtime_gpu::{GpuError, Resident};

/// Numbers of runs in flight that are tried where none is asked for. Beyond, the device waits for nothing any more.
const TRIED: [usize; 3] = [1, 2, 4];

/// A measurement.
pub struct Throughput {
    /// Runs a second.
    pub runs_per_s: f64,
    /// So many were in flight.
    pub in_flight: usize,
}

impl Throughput {
    /// Measures with `--in-flight` runs in flight, else with the number that gives the most runs a second; `timed` says
    /// how many runs were timed before.
    ///
    /// # Errors
    /// A failed host step, a lost device.
    pub fn measure(
        a: &Request,
        resident: &mut Resident<'_>,
        timed: usize,
        progress: &mut Progress,
    ) -> Result<Throughput, GpuError> {
        let asked = a.timing.in_flight.map(|n| vec![n]);
        let tried = asked.unwrap_or_else(|| TRIED.to_vec());
        let mut best = Throughput { runs_per_s: 0.0, in_flight: 1 };
        for (i, &in_flight) in tried.iter().enumerate() {
            progress.report("throughput", i, tried.len());
            let runs = timed.clamp(4, 16).max(2 * in_flight);
            let runs_per_s = runs as f64 / resident.run_pipelined(runs, in_flight)? * 1e3;
            if runs_per_s > best.runs_per_s {
                best = Throughput { runs_per_s, in_flight };
            }
        }
        Ok(best)
    }
}
