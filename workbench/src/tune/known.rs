//! What the tuning database has for the search of a function: schedules to start from, and those that are not to be
//! tried; and where refused ones are recorded.

use super::candidate::Candidate;
use super::candidates::Maker;
use super::space::Watching;
use super::units::Unit;
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::worker::OTHER_SUMS;
use compiler::schedule::{Workload, estimate};
use compiler::tir::canonical::log2_distance;
use runtime_gpu::Standing;
use rustc_hash::FxHashSet;
use std::path::Path;
use weft::{Line, RefusedLine, SampleLine, TuningDatabase, TuningLine, describe_choices, parse_choices};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Candidates by the choices of other functions: those of the family whose sizes are nearest.
const SEEDS: usize = 4;

/// The keys of schedules that were refused before.
///
/// # Errors
/// A line that does not parse.
pub fn refused(known: &TuningDatabase, unit: &Unit) -> Result<FxHashSet<String>> {
    let mut keys = FxHashSet::default();
    for line in known.refused.iter().filter(|l| l.workload() == unit.workload && l.weft == VERSION) {
        let choices = describe_choices(&parse_choices(&line.choices).map_err(Error::input)?);
        keys.insert(if line.schedule.is_empty() { choices } else { line.schedule.join("\n") });
    }
    Ok(keys)
}

/// What the database has for the function itself, then schedules by the tuned choices of other functions of its family
/// on the device, where they apply: those whose sizes are nearest.
///
/// # Errors
/// A line that does not parse.
pub fn seeds(known: &TuningDatabase, maker: &Maker<'_>) -> Result<Vec<Candidate>> {
    let (unit, family) = (maker.unit, maker.unit.function.family());
    let (device, fingerprint) = (&unit.workload.device, family.fingerprint.to_string());
    let mut lines: Vec<(f64, &TuningLine)> = Vec::new();
    for (workload, line) in known.best() {
        if workload == unit.workload {
            lines.push((-1.0, line));
        } else if line.device == *device && line.family == fingerprint && line.schedule.is_empty() {
            lines.extend(log2_distance(&line.extents, &family.extents).map(|d| (d, line)));
        }
    }
    lines.sort_by(|a, b| a.0.total_cmp(&b.0));
    let default = maker.default_key()?;
    let mut all: Vec<Candidate> = Vec::new();
    for (_, line) in lines {
        let fresh = |c: &Candidate| c.key() != default && all.iter().all(|o| o.key() != c.key());
        all.extend(maker.of_line(line)?.filter(fresh));
        if all.len() == SEEDS {
            break;
        }
    }
    Ok(all)
}

/// Tells the user of a search, and appends refused schedules to the database.
pub struct Recorder<'a> {
    pub progress: &'a mut Progress,
    pub words: String,
    pub unit: &'a Unit,
    pub file: &'a Path,
    /// Candidates that gave wrong results or did not run, with why.
    pub refused: Vec<String>,
}

impl Watching for Recorder<'_> {
    fn ran(&mut self, done: usize, planned: usize) -> bool {
        self.progress.report(&self.words, done, planned);
        self.progress.stops()
    }

    fn raced(&mut self, c: &Candidate, standing: &Standing) -> Result<()> {
        let Some(estimate) = c.plain.filter(|_| !standing.ns.is_empty()) else { return Ok(()) };
        let line = SampleLine {
            device: self.unit.workload.device.clone(),
            function: self.unit.workload.function.clone(),
            name: self.unit.function.name.to_string(),
            schedule: c.name(),
            estimate,
            us: standing.median_ns() / 1e3,
            estimator: estimate::digest().into(),
            weft: VERSION.into(),
        };
        TuningDatabase::append(self.file, line).map_err(Error::usage)
    }

    fn refused(&mut self, c: &Candidate, why: &str) -> Result<()> {
        let Workload { device, function, constants } = self.unit.workload.clone();
        let (choices, schedule) = c.for_line();
        self.refused.push(format!("{}: {why}", c.name()));
        if why == OTHER_SUMS {
            // Without the option it may be tried.
            return Ok(());
        }
        let line =
            RefusedLine { device, function, constants, choices, schedule, why: why.into(), weft: VERSION.into() };
        TuningDatabase::append(self.file, Line::Refused(line)).map_err(Error::usage)
    }
}
