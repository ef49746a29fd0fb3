//! A race compares the times of compiled modules that compute the same function on one device.
//!
//! The modules stay on the device. Each round runs every module once, in a seeded order, and divides its time by the
//! time of the first module (the *incumbent*) in the same round, so that a change of the machine's load affects both.
//! The result is the median of these ratios. A module that takes 1.5 times as long after three rounds leaves the race.
//! A round in which the incumbent takes 1.5 times as long as before is repeated.
//!
//! On a GPU, a time is the sum of the device's timestamps. On a software device, it is the CPU time of this process:
//! beside ten busy processes its standard deviation is 5 %, that of wall time 23 %. CPU time does not count idle cores,
//! so a schedule with too few workgroups looks too fast; callers reject modules whose wall time is longer in nearly all
//! rounds ([`Standing::is_slower_by_the_wall`]). A sample takes at least 2 ms. Other targets race by [`race_of`].

use crate::device::Gpu;
use crate::error::GpuError;
use crate::margins::with_margins;
use crate::resident::Resident;
use crate::session::{Session, SessionOptions};
use compiler::compile::Compiled;
use compiler::dtype::DType;
use compiler::profile::DeviceProfile;
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
/// A runner is rejected if it takes longer by wall time in at least this share of the rounds.
const MOSTLY: f64 = 0.8;
/// A round is repeated where the incumbent takes so many times as long as usual; so often in a race at most.
const DISTURBED: f64 = 1.5;
const MOST_REPEATED: usize = 5;

/// For a normal distribution: the standard deviation divided by the median absolute deviation, and the standard error
/// of the median divided by the standard error of the mean.
const DEVIATION: f64 = 1.4826;
const OF_MEDIAN: f64 = 1.2533;

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
    /// Its nanoseconds by the host's clock in each round.
    pub wall_ns: Vec<f64>,
    /// Its time by the host's clock by that of the incumbent, in each round.
    pub wall_ratios: Vec<f64>,
}

impl Standing {
    /// The median of the ratios; infinite without rounds.
    pub fn ratio(&self) -> f64 {
        median(&self.ratios)
    }
    /// The standard error of [`Standing::ratio`]; infinite without rounds.
    pub fn uncertainty(&self) -> f64 {
        error_of_median(&self.ratios)
    }
    /// The median time in nanoseconds.
    pub fn median_ns(&self) -> f64 {
        median(&self.ns)
    }
    /// How long it took in each round, in nanoseconds: by the device's timestamps, or by the host's clock where the
    /// race's is CPU time.
    pub fn elapsed(&self, profile: &DeviceProfile) -> &[f64] {
        if profile.model().on_host { &self.wall_ns } else { &self.ns }
    }
    /// The median of [`Standing::elapsed`].
    pub fn median_elapsed(&self, profile: &DeviceProfile) -> f64 {
        median(self.elapsed(profile))
    }
    /// The median of the ratios by the host's clock; infinite without rounds.
    pub fn wall_ratio(&self) -> f64 {
        median(&self.wall_ratios)
    }
    /// True if its wall time is longer than the incumbent's in at least four fifths of the rounds. Wall time is noisy
    /// beside busy processes: a median above 1 would reject half of the equally fast candidates.
    pub fn is_slower_by_the_wall(&self) -> bool {
        let slower = self.wall_ratios.iter().filter(|r| **r > 1.0).count();
        slower as f64 >= MOSTLY * self.wall_ratios.len() as f64
    }
    /// The same times with ratios to an incumbent that was timed in another race, round by round.
    pub fn beside(&self, incumbent: &Standing) -> Standing {
        let ratios = |own: &[f64], other: &[f64]| own.iter().zip(other).map(|(a, b)| a / b).collect();
        Standing {
            ratios: ratios(&self.ns, &incumbent.ns),
            wall_ratios: ratios(&self.wall_ns, &incumbent.wall_ns),
            ..self.clone()
        }
    }
    /// Rounds in which it was faster than the incumbent.
    pub fn wins(&self) -> usize {
        self.ratios.iter().filter(|r| **r < 1.0).count()
    }
}

/// The standard error of the median of samples, in their unit, estimated from their median absolute deviation for a
/// normal distribution; infinite without samples.
pub fn error_of_median(samples: &[f64]) -> f64 {
    let middle = median(samples);
    let deviations: Vec<f64> = samples.iter().map(|s| (s - middle).abs()).collect();
    OF_MEDIAN * DEVIATION * median(&deviations) / (samples.len() as f64).sqrt()
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
    let racers: Result<Vec<_>, GpuError> = runners.iter().map(|r| racer(gpu.profile.model().on_host, r)).collect();
    race_of(racers?, rounds, seed)
}

fn racer(on_host: bool, runner: &Runner) -> Result<Racer<'_, GpuError>, GpuError> {
    let mut resident = runner.session.resident(&runner.inputs)?;
    Ok(Box::new(move |runs| match on_host {
        true => Sample::of(true, || resident.run_pipelined(runs, 2).map(|_| ())),
        false => of_device(&mut resident, runs),
    }))
}

/// The time of so many runs by the device's timestamps.
fn of_device(resident: &mut Resident<'_>, runs: usize) -> Result<Sample, GpuError> {
    let (begin, mut ns) = (Instant::now(), 0.0);
    for _ in 0..runs {
        ns += resident.time_dispatches()?.iter().map(|d| d.2 * 1e3).sum::<f64>();
    }
    Ok(Sample { ns, wall_ns: begin.elapsed().as_nanos() as f64 })
}

/// Runs a candidate so many times, one after the other, and says how long all of them took.
pub type Racer<'r, E> = Box<dyn FnMut(usize) -> Result<Sample, E> + 'r>;

/// A race of anything that can be timed; see [`race`].
///
/// # Errors
/// Those of the racers.
pub fn race_of<E>(racers: Vec<Racer<'_, E>>, rounds: usize, seed: u64) -> Result<Vec<Standing>, E> {
    let mut lanes = racers.into_iter().map(Lane::new).collect::<Result<Vec<_>, E>>()?;
    let mut standings = vec![Standing::default(); lanes.len()];
    let (mut repeated, mut round) = (0, 0);
    while round < rounds {
        let mut times = vec![None; lanes.len()];
        for at in order(lanes.len(), seed.wrapping_add((round + repeated) as u64)) {
            if round < TRIAL || at == 0 || standings[at].ratio() < HOPELESS {
                times[at] = Some(lanes[at].sample()?);
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
                s.wall_ns.push(sample.wall_ns);
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

/// Nanoseconds, by the race's clock and by the host's.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// By the race's clock.
    pub ns: f64,
    /// By the host's.
    pub wall_ns: f64,
}

impl Sample {
    /// How long `work` takes: CPU time of this process where that is asked, else time by the host's clock.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn of<E>(of_process: bool, work: impl FnOnce() -> Result<(), E>) -> Result<Sample, E> {
        let (begin, start) = (Instant::now(), ProcessTime::now());
        work()?;
        let (cpu, wall) = (start.elapsed().as_nanos() as f64, begin.elapsed().as_nanos() as f64);
        Ok(Sample { ns: if of_process { cpu } else { wall }, wall_ns: wall })
    }
}

/// A candidate in a race, and the runs of a sample.
struct Lane<'r, E> {
    racer: Racer<'r, E>,
    runs: usize,
}

impl<'r, E> Lane<'r, E> {
    fn new(racer: Racer<'r, E>) -> Result<Lane<'r, E>, E> {
        let mut lane = Lane { racer, runs: 1 };
        // A driver may compile in the first run.
        lane.sample()?;
        let once = lane.sample()?.ns.max(1.0);
        lane.runs = (SAMPLE_NS / once).ceil().clamp(1.0, MOST_RUNS) as usize;
        Ok(lane)
    }
    /// The mean of some runs.
    fn sample(&mut self) -> Result<Sample, E> {
        let all = (self.racer)(self.runs)?;
        let runs = self.runs as f64;
        Ok(Sample { ns: all.ns / runs, wall_ns: all.wall_ns.max(1.0) / runs })
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
        let of = |wall: [f64; 5]| Standing {
            ratios: vec![0.9, 1.1, 0.8],
            wall_ratios: wall.to_vec(),
            ..Standing::default()
        };
        let s = of([1.2, 0.9, 1.1, 1.1, 1.3]);
        assert_eq!((s.ratio(), s.wins(), s.is_slower_by_the_wall()), (0.9, 2, true));
        assert!(!of([1.2, 0.9, 1.1, 0.8, 1.3]).is_slower_by_the_wall());
        let spread = Standing { ratios: vec![0.9, 1.0, 1.1, 1.0], ..Standing::default() };
        assert!(
            (spread.uncertainty() - 1.2533 * 1.4826 * 0.05 / 2.0).abs() < 1e-12
                && Standing::default().uncertainty().is_infinite()
        );
        let ran = |ns: f64| Standing { ns: vec![ns], wall_ns: vec![2.0 * ns], ..Standing::default() };
        let beside = ran(3.0).beside(&ran(4.0));
        assert_eq!((beside.ratio(), beside.wall_ratio(), beside.median_ns()), (0.75, 0.75, 3.0));
    }
}
