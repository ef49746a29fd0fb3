//! The search for one function: candidates drafted by the estimate, raced, and improved one choice at a time.

use super::measurer::{Measurer, Opened};
use super::units::Unit;
use crate::error::{CliError, CliResult, Code};
use compiler::schedule::estimate::estimate;
use compiler::schedule::rules::{Choice, neighbours, schedule_with, values};
use compiler::schedule::{InstrRef, Rules, ScheduleProvider, ScheduleTarget, Workload};
use compiler::tir::TensorFunction;
use rustc_hash::FxHashSet;
use std::path::Path;
use std::time::Instant;
use weft::{Line, RefusedLine, TuningDatabase, TuningLine, describe_choices, parse_choices};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Candidates of a race; one more is taken at random.
const DRAFT: usize = 7;
/// Candidates by the choices of other functions.
const SEEDS: usize = 3;
/// Candidates of a step that changes one choice of the best.
const STEP: usize = 4;
/// Cheapest candidates whose own neighbours are drafted too.
const SECOND_RING: usize = 3;
/// Rounds of a race, and of the one that confirms.
const ROUNDS: usize = 5;
const CONFIRMING: usize = 15;
/// Rounds that a winner wins of these, and the ratio that it has at most.
const WINS: usize = 12;
const RATIO: f64 = 0.97;
/// A step that gains less is the last one.
const STEP_RATIO: f64 = 0.98;

/// A schedule to try.
#[derive(Clone)]
struct Candidate {
    trace: Vec<InstrRef>,
    estimated_ns: f64,
}

impl Candidate {
    fn key(&self) -> String {
        describe_choices(&values(&self.trace))
    }
}

/// What a search found.
pub struct Outcome {
    /// The choices of the winner; none where the default is best.
    pub choices: Option<Vec<Choice>>,
    defaults: Vec<Choice>,
    /// Microseconds of the default and of the winner.
    pub us: [f64; 2],
    /// The same, as they are estimated.
    pub estimated_us: [f64; 2],
    /// Rounds that confirmed, and those that it won.
    pub rounds: [usize; 2],
    ratio: f64,
}

impl Outcome {
    /// Its time by that of the default.
    pub fn ratio(&self) -> f64 {
        self.ratio
    }
    /// The choices that are not the default's, in words.
    pub fn differing(&self, choices: &[Choice]) -> String {
        let other: Vec<Choice> = choices.iter().filter(|c| !self.defaults.contains(c)).cloned().collect();
        describe_choices(&other)
    }
    /// The line of the database.
    pub fn line(&self, unit: &Unit, seed: u64) -> TuningLine {
        TuningLine {
            device: unit.workload.device.clone(),
            function: unit.workload.function.clone(),
            constants: unit.workload.constants.clone(),
            name: unit.function.name.to_string(),
            choices: self.choices.as_ref().map_or(vec![], |c| TuningLine::print_choices(c)),
            withdrawn: false,
            ratio: self.ratio,
            rounds: self.rounds,
            us: self.us,
            estimated_us: self.estimated_us,
            seed,
            by: "tune".into(),
            weft: VERSION.into(),
        }
    }
}

/// The search for one function.
pub struct Search<'a> {
    measurer: &'a mut Measurer,
    target: ScheduleTarget<'a>,
    unit: &'a Unit,
    seed: u64,
    seen: FxHashSet<String>,
    opened: usize,
    file: &'a Path,
    /// Candidates that gave wrong results or did not run, with why.
    pub refused: Vec<String>,
}

impl<'a> Search<'a> {
    /// Prepares the process that measures. Refused schedules are appended to `file`, those that are known are not tried.
    ///
    /// # Errors
    /// It does not start, or does not compute the function.
    pub fn new(
        measurer: &'a mut Measurer,
        target: ScheduleTarget<'a>,
        unit: &'a Unit,
        seed: u64,
        (file, known): (&'a Path, &TuningDatabase),
    ) -> CliResult<Search<'a>> {
        measurer.take(&unit.function, &unit.positions)?;
        let mut seen = FxHashSet::default();
        for line in known.refused.iter().filter(|l| l.workload() == unit.workload && l.weft == VERSION) {
            seen.insert(describe_choices(&parse_choices(&line.choices).map_err(CliError::input)?));
        }
        Ok(Search { measurer, target, unit, seed, seen, opened: 0, file, refused: vec![] })
    }

    /// Candidates that ran.
    pub fn tried(&self) -> usize {
        self.opened
    }

    /// Searches until then. `progress` is told of candidates that ran, and of those that are planned.
    ///
    /// # Errors
    /// The process that measures does not start again; a default schedule that does not run.
    pub fn run(&mut self, until: Instant, progress: &mut dyn FnMut(usize, usize)) -> CliResult<Outcome> {
        let (f, constants) = (&self.unit.function, &self.unit.constants);
        let scheduled = Rules.schedule(f, constants, self.target).map_err(|e| bug(e.to_string()))?;
        let ns = |g: &TensorFunction| estimate(g, constants, self.target).map_or(f64::INFINITY, |e| e.total());
        let default = Candidate { estimated_ns: ns(&scheduled.function), trace: scheduled.function.trace };
        self.seen.insert(default.key());
        let incumbent = self.measurer.open_default(&default.trace)?;
        let incumbent = incumbent.map_err(|why| bug(format!("the default schedule: {why}")))?;
        self.opened += 1;
        let mut planned = 1 + DRAFT + 1;
        progress(self.opened, planned);
        let mut drafted = self.seeds()?;
        planned += drafted.len();
        drafted.extend(self.draft(&default, DRAFT, true));
        let mut best: Option<(Candidate, Opened)> = None;
        let mut round = drafted;
        loop {
            let mut opened: Vec<(Candidate, Opened)> = Vec::new();
            for c in round {
                if Instant::now() >= until {
                    break;
                }
                match self.measurer.open(&c.trace)? {
                    Ok(found) => {
                        self.opened += 1;
                        opened.push((c, found));
                    }
                    Err(why) => self.refuse(&c, why)?,
                }
                progress(self.opened.min(planned), planned);
            }
            if opened.is_empty() {
                break;
            }
            // The best so far is the one to beat.
            let first = best.as_ref().map_or(&incumbent, |b| &b.1);
            let all: Vec<&Opened> = std::iter::once(first).chain(opened.iter().map(|o| &o.1)).collect();
            let standings = self.measurer.race(&all, ROUNDS, self.seed.wrapping_add(self.opened as u64))?;
            let all = standings.iter().skip(1).zip(opened).filter(|(s, _)| !s.is_slower_by_the_wall());
            let found = all.min_by(|a, b| a.0.ratio().total_cmp(&b.0.ratio()));
            let Some((_, winner)) = found.filter(|(s, _)| s.ratio() < STEP_RATIO) else { break };
            self.measurer.keep(&[&incumbent, &winner.1]);
            round = self.draft(&winner.0, STEP, false);
            best = Some(winner);
            planned += STEP + 1;
            if Instant::now() >= until {
                break;
            }
        }
        self.confirm(&default, &incumbent, best)
    }

    /// Schedules by the tuned choices of other functions on the device, where they apply: functions of one family differ
    /// in their sizes alone.
    fn seeds(&mut self) -> CliResult<Vec<Candidate>> {
        let (f, constants) = (&self.unit.function, &self.unit.constants);
        let known = TuningDatabase::read(self.file).map_err(CliError::input)?;
        let of_others = |l: &&TuningLine| l.device == self.unit.workload.device && l.workload() != self.unit.workload;
        let mut all: Vec<Candidate> = Vec::new();
        for line in known.best().into_values().filter(of_others) {
            let choices = line.parse_choices().map_err(CliError::input)?;
            let Ok(scheduled) = schedule_with(f, constants, self.target, &choices) else { continue };
            let Ok(estimate) = estimate(&scheduled.function, constants, self.target) else { continue };
            all.push(Candidate { estimated_ns: estimate.total(), trace: scheduled.function.trace });
        }
        all.sort_by(|a, b| a.estimated_ns.total_cmp(&b.estimated_ns));
        let mut keys = FxHashSet::default();
        all.retain(|c| !self.seen.contains(&c.key()) && keys.insert(c.key()));
        all.truncate(SEEDS);
        self.seen.extend(all.iter().map(Candidate::key));
        Ok(all)
    }

    /// Records a candidate that is not to be tried again.
    fn refuse(&mut self, c: &Candidate, why: String) -> CliResult<()> {
        let Workload { device, function, constants } = self.unit.workload.clone();
        let choices = TuningLine::print_choices(&values(&c.trace));
        self.refused.push(format!("{}: {why}", c.key()));
        let line = RefusedLine { device, function, constants, choices, why, weft: VERSION.into() };
        TuningDatabase::append(self.file, Line::Refused(line)).map_err(CliError::input)
    }

    /// Races the best against the default on fresh rounds.
    fn confirm(
        &mut self,
        default: &Candidate,
        incumbent: &Opened,
        best: Option<(Candidate, Opened)>,
    ) -> CliResult<Outcome> {
        let defaults = values(&default.trace);
        let estimated = default.estimated_ns / 1e3;
        let Some((winner, opened)) = best else {
            let own = self.measurer.race(&[incumbent], ROUNDS, self.seed)?[0].median_ns() / 1e3;
            let (us, estimated_us) = ([own; 2], [estimated; 2]);
            return Ok(Outcome { choices: None, defaults, us, estimated_us, rounds: [0, 0], ratio: 1.0 });
        };
        let standings = self.measurer.race(&[incumbent, &opened], CONFIRMING, !self.seed)?;
        let (own, won) = (standings[0].median_ns() / 1e3, &standings[1]);
        let confirmed = won.wins() >= WINS && won.ratio() <= RATIO && !won.is_slower_by_the_wall();
        Ok(match confirmed {
            true => Outcome {
                choices: Some(values(&winner.trace)),
                defaults,
                us: [own, won.median_ns() / 1e3],
                estimated_us: [estimated, winner.estimated_ns / 1e3],
                rounds: [won.ratios.len(), won.wins()],
                ratio: won.ratio(),
            },
            false => Outcome {
                choices: None,
                defaults,
                us: [own; 2],
                estimated_us: [estimated; 2],
                rounds: [won.ratios.len(), won.wins()],
                ratio: 1.0,
            },
        })
    }

    /// The cheapest candidates by the estimate that were not looked at, and one at random: those that differ from `from`
    /// in one choice, and with `further` those that differ from the cheapest of these in one.
    fn draft(&mut self, from: &Candidate, count: usize, further: bool) -> Vec<Candidate> {
        let (f, constants) = (&self.unit.function, &self.unit.constants);
        let around = |c: &Candidate| -> Vec<Candidate> {
            let all = neighbours(f, constants, self.target, &c.trace).into_iter();
            all.map(|n| Candidate { estimated_ns: n.estimate.total(), trace: n.scheduled.function.trace }).collect()
        };
        let mut all = around(from);
        if further {
            let second: Vec<Candidate> = all.iter().take(SECOND_RING).flat_map(around).collect();
            all.extend(second);
        }
        let mut keys = FxHashSet::default();
        all.retain(|c| !self.seen.contains(&c.key()) && keys.insert(c.key()));
        all.sort_by(|a, b| a.estimated_ns.total_cmp(&b.estimated_ns));
        let rest = all.split_off(count.min(all.len()));
        if !rest.is_empty() {
            let at = (self.seed as usize).wrapping_add(self.opened);
            all.push(rest[at % rest.len()].clone());
        }
        self.seen.extend(all.iter().map(Candidate::key));
        all
    }
}

fn bug(message: impl Into<String>) -> CliError {
    CliError::new(Code::Bug, message.into())
}
