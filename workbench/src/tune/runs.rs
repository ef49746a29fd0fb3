//! Times of the dispatches of whole networks: of one network alone, or of one in turn with a control network.

use crate::error::{Code, Error, Result};
use crate::settings::Settings;
use compiler::compile::Compiled;
use compiler::plan::Dispatch;
use compiler::tensor::Tensor;
use runtime_cpu::DispatchTime;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use weft::statistics::Statistics;

/// Least and largest number of runs. In between, no further run starts after this time.
const RUNS: (usize, usize) = (3, 9);
const ENOUGH: Duration = Duration::from_millis(1500);

/// The time and the calls of a function in a run.
#[derive(Clone, Copy, Default)]
pub struct Taken {
    pub us: f64,
    pub calls: usize,
}

/// One dispatch in a run: its kernel, its group, microseconds.
type Dispatched = (usize, usize, f64);

/// Runs a network once and returns the time of each dispatch.
type Timer<'e> = Box<dyn FnMut() -> Result<Vec<Dispatched>> + 'e>;

/// The dispatches of some runs of a network.
pub struct Runs(Vec<Vec<Dispatched>>);

impl Runs {
    /// Runs a network alone.
    ///
    /// # Errors
    /// A model whose kernels are not known before a run; a run that fails.
    pub fn of(executor: &weft::Session, settings: &Settings, inputs: &[Tensor]) -> Result<Runs> {
        Runs::with(timer(executor, settings, inputs)?, || Ok(1.0))
    }
    /// Calls `pace` before each run and multiplies the times of the run by the result.
    fn with(mut run: Timer<'_>, mut pace: impl FnMut() -> Result<f64>) -> Result<Runs> {
        // A driver may compile in the first run.
        run()?;
        let (start, mut all) = (Instant::now(), vec![]);
        while all.len() < RUNS.0 || (all.len() < RUNS.1 && start.elapsed() < ENOUGH) {
            let pace = pace()?;
            all.push(scaled(&run()?, pace));
        }
        Ok(Runs(all))
    }
    /// Median microseconds of each tensor function's dispatches in a run, and its calls.
    pub fn functions(&self, compiled: &Compiled) -> BTreeMap<String, Taken> {
        let mut groups: BTreeMap<String, (BTreeSet<usize>, Vec<f64>)> = BTreeMap::new();
        for (at, run) in self.0.iter().enumerate() {
            for (kernel, group, us) in run {
                let name = compiled.plan.kernels[*kernel].function.to_string();
                let (own, sums) = groups.entry(name).or_insert_with(|| (BTreeSet::new(), vec![0.0; self.0.len()]));
                own.insert(*group);
                sums[at] += us;
            }
        }
        let taken =
            |(own, sums): (BTreeSet<usize>, Vec<f64>)| Taken { us: Statistics::of(&sums).median, calls: own.len() };
        groups.into_iter().map(|(name, found)| (name, taken(found))).collect()
    }
}

fn scaled(run: &[Dispatched], by: f64) -> Vec<Dispatched> {
    run.iter().map(|d| (d.0, d.1, d.2 * by)).collect()
}

fn total(run: &[Dispatched]) -> f64 {
    run.iter().map(|d| d.2).sum::<f64>().max(1e-3)
}

/// A network that runs in turn with others, as a reference for the machine's present speed: other processes and heat
/// change the speed within seconds. Times are scaled to the control's usual time, the median of its first runs.
pub struct Control<'e> {
    run: Timer<'e>,
    usual_us: f64,
    own: Runs,
}

impl<'e> Control<'e> {
    /// # Errors
    /// Those of [`Runs::of`].
    pub fn new(executor: &'e weft::Session, settings: &'e Settings, inputs: &'e [Tensor]) -> Result<Control<'e>> {
        let mut run = timer(executor, settings, inputs)?;
        let own = Runs::with(Box::new(&mut run), || Ok(1.0))?;
        let usual_us = Statistics::of(&own.0.iter().map(|r| total(r)).collect::<Vec<_>>()).median;
        let own = Runs(own.0.iter().map(|r| scaled(r, usual_us / total(r))).collect());
        Ok(Control { run, usual_us, own })
    }
    /// The control's first runs, each scaled to the usual time.
    pub fn runs(&self) -> &Runs {
        &self.own
    }
    /// Runs the control once. Returns its usual time divided by the time of this run.
    ///
    /// # Errors
    /// A run that fails.
    pub fn pace(&mut self) -> Result<f64> {
        Ok(self.usual_us / total(&(self.run)()?))
    }
    /// Runs another network in turn with the control.
    ///
    /// # Errors
    /// Those of [`Runs::of`].
    pub fn beside(&mut self, executor: &weft::Session, settings: &Settings, inputs: &[Tensor]) -> Result<Runs> {
        Runs::with(timer(executor, settings, inputs)?, || self.pace())
    }
}

fn timer<'e>(executor: &'e weft::Session, settings: &'e Settings, inputs: &'e [Tensor]) -> Result<Timer<'e>> {
    if let Some(session) = executor.on_device() {
        let mut resident = session.resident(inputs)?;
        return Ok(Box::new(move || Ok(resident.time_dispatches()?)));
    }
    let session = executor
        .on_processor()
        .ok_or_else(|| Error::new(Code::Device, "the model runs in parts: its kernels are not known before a run"))?;
    Ok(Box::new(move || {
        let (_, spans) = session.run_measured(inputs, settings.functions.on_tensors())?;
        let times = DispatchTime::of(&spans, session.plan().dispatches().count());
        let us = |(d, t): (&Dispatch, DispatchTime)| (d.kernel, d.group, t.ns / 1e3);
        Ok(session.plan().dispatches().zip(times).map(us).collect())
    }))
}
