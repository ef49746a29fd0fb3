//! A race compares the times of compiled modules that compute the same function on one device.
//!
//! The modules stay on the device. Each round runs every module once, in a seeded order, and divides its time by the
//! time of the first module (the *incumbent*) in the same round, so that a change of the machine's load affects both.
//! The result is the median of these ratios. A module that takes 1.5 times as long after three rounds leaves the race.
//! A round in which the incumbent takes 1.5 times as long as before is repeated.
//!
//! On a GPU, a time is the sum of the device's timestamps. On a software device, it is the CPU time of this process:
//! beside ten busy processes its standard deviation is 5 %, that of wall time 23 %. CPU time does not count idle cores,
//! so a schedule with too few workgroups looks too fast; callers reject modules whose wall time is longer
//! ([`Standing::is_slower_by_the_wall`]). A sample takes at least 2 ms.

use crate::device::Gpu;
use crate::error::GpuError;
use crate::margins::with_margins;
use crate::resident::Resident;
use crate::session::{Session, SessionOptions};
use compiler::compile::Compiled;
use compiler::dtype::DType;
use compiler::tensor::Tensor;
use compiler::text::random_tensor;
use cpu_time::ProcessTime;
use std::sync::Arc;
use std::time::Instant;

/// Nanoseconds of a sample, at least.
const SAMPLE_NS: f64 = 2e6;
/// Runs of a sample, at most.
const MOST_RUNS: f64 = 1000.0;
/// Rounds after which a runner may leave, and the ratio from which on it does.
const TRIAL: usize = 3;
const HOPELESS: f64 = 1.5;
/// A round is repeated where the incumbent takes so many times as long as usual; so often in a race at most.
const DISTURBED: f64 = 1.5;
const MOST_REPEATED: usize = 5;

/// A module on a device, with operands.
pub struct Runner {
    session: Session,
    inputs: Vec<Tensor>,
}

impl Runner {
    /// Opens it, with margins behind its results.
    ///
    /// # Errors
    /// A pipeline that the driver does not make, memory, and modules that run on the host in part.
    pub fn open(gpu: &Arc<Gpu>, compiled: &Compiled, inputs: &[Tensor]) -> Result<Runner, GpuError> {
        let options = SessionOptions::default();
        let plan = with_margins(gpu, &compiled.plan);
        let session = Session::open(gpu.clone(), &plan, &compiled.module, &options, &mut |_, _, _| ())?;
        if session.has_host_steps() {
            return Err(GpuError::Internal("a part of it runs on the host".into()));
        }
        Ok(Runner { session, inputs: inputs.to_vec() })
    }
    /// The results for `inputs`, and whether nothing was written beyond them. Elements that no kernel writes are NaN
    /// as floats and -1 as integers.
    ///
    /// # Errors
    /// A lost device.
    pub fn results(&self, inputs: &[Tensor]) -> Result<(Vec<Tensor>, bool), GpuError> {
        self.session.fill_with_pattern();
        Ok((self.session.run(inputs)?, self.session.margins_are_whole()?))
    }
}

/// How a runner did.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Standing {
    /// Its time by that of the incumbent, in each round.
    pub ratios: Vec<f64>,
    /// Its nanoseconds in each round.
    pub ns: Vec<f64>,
    /// Its time by the host's clock by that of the incumbent, in each round.
    pub wall_ratios: Vec<f64>,
}

impl Standing {
    /// The median of the ratios; infinite without rounds.
    pub fn ratio(&self) -> f64 {
        median(&self.ratios)
    }
    /// The median time in nanoseconds.
    pub fn median_ns(&self) -> f64 {
        median(&self.ns)
    }
    /// True where it takes longer than the incumbent by the host's clock.
    pub fn is_slower_by_the_wall(&self) -> bool {
        median(&self.wall_ratios) > 1.0
    }
    /// Rounds in which it was faster than the incumbent.
    pub fn wins(&self) -> usize {
        self.ratios.iter().filter(|r| **r < 1.0).count()
    }
}

fn median(list: &[f64]) -> f64 {
    let mut sorted = list.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::INFINITY,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// Runs `rounds` rounds of the runners, the first of which is the incumbent. `seed` decides their order in each.
///
/// # Errors
/// A lost device.
pub fn race(gpu: &Gpu, runners: &[&Runner], rounds: usize, seed: u64) -> Result<Vec<Standing>, GpuError> {
    let clock = if gpu.profile.software { Clock::Process } else { Clock::Device };
    let mut lanes = Vec::with_capacity(runners.len());
    for r in runners {
        lanes.push(Lane::new(r, clock)?);
    }
    let mut standings = vec![Standing::default(); lanes.len()];
    let (mut repeated, mut round) = (0, 0);
    while round < rounds {
        let mut times = vec![None; lanes.len()];
        for at in order(lanes.len(), seed.wrapping_add((round + repeated) as u64)) {
            if round < TRIAL || at == 0 || standings[at].ratio() < HOPELESS {
                times[at] = Some(lanes[at].sample(clock)?);
            }
        }
        let Some(incumbent) = times.first().copied().flatten() else { break };
        if round > 0 && incumbent.ns > DISTURBED * standings[0].median_ns() && repeated < MOST_REPEATED {
            repeated += 1;
            continue;
        }
        for (s, sample) in standings.iter_mut().zip(times) {
            if let Some(sample) = sample {
                s.ns.push(sample.ns);
                s.ratios.push(sample.ns / incumbent.ns);
                s.wall_ratios.push(sample.wall_ns / incumbent.wall_ns);
            }
        }
        round += 1;
    }
    Ok(standings)
}

/// A permutation of the numbers below `n`.
fn order(n: usize, seed: u64) -> Vec<usize> {
    let keys = random_tensor(DType::F32, &[n], seed).to_f64_vec();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| keys[*a].total_cmp(&keys[*b]));
    order
}

/// Where times come from.
#[derive(Clone, Copy, PartialEq)]
enum Clock {
    /// The device's timestamps.
    Device,
    /// The CPU time of this process.
    Process,
}

/// Nanoseconds of a run, by the race's clock and by the host's.
#[derive(Clone, Copy)]
struct Sample {
    ns: f64,
    wall_ns: f64,
}

/// A runner in a race, and the runs of a sample.
struct Lane<'r> {
    resident: Resident<'r>,
    runs: usize,
}

impl<'r> Lane<'r> {
    fn new(runner: &'r Runner, clock: Clock) -> Result<Lane<'r>, GpuError> {
        let mut lane = Lane { resident: runner.session.resident(&runner.inputs)?, runs: 1 };
        // The driver may compile in the first run.
        lane.sample(clock)?;
        let once = lane.sample(clock)?.ns.max(1.0);
        lane.runs = (SAMPLE_NS / once).ceil().clamp(1.0, MOST_RUNS) as usize;
        Ok(lane)
    }
    /// The mean of some runs.
    fn sample(&mut self, clock: Clock) -> Result<Sample, GpuError> {
        let begin = Instant::now();
        let ns = match clock {
            Clock::Process => {
                let start = ProcessTime::now();
                self.resident.run_pipelined(self.runs, 2)?;
                start.elapsed().as_nanos() as f64
            }
            Clock::Device => {
                let mut sum = 0.0;
                for _ in 0..self.runs {
                    sum += self.resident.time_dispatches()?.1.iter().map(|d| d.2 * 1e3).sum::<f64>();
                }
                sum
            }
        };
        let (wall_ns, runs) = (begin.elapsed().as_nanos() as f64, self.runs as f64);
        Ok(Sample { ns: ns / runs, wall_ns: wall_ns.max(1.0) / runs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_permutations_that_differ_by_seed() {
        let all: Vec<Vec<usize>> = (0..20).map(|seed| order(5, seed)).collect();
        for o in &all {
            let mut sorted = o.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4]);
        }
        assert!(all.iter().any(|o| *o != all[0]) && order(5, 3) == order(5, 3));
    }

    #[test]
    fn the_median_is_of_the_middle() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0])), (2.0, 2.5));
        assert!(median(&[]).is_infinite());
        let s = Standing { ratios: vec![0.9, 1.1, 0.8], ns: vec![], wall_ratios: vec![1.2, 0.9, 1.1] };
        assert_eq!((s.ratio(), s.wins(), s.is_slower_by_the_wall()), (0.9, 2, true));
    }
}
