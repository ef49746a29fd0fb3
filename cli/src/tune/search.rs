//! The search for one function: candidates drafted by the estimate, raced, and improved one choice at a time.

use super::candidates::{Candidate, Maker, bug};
use super::measurer::{Measurer, Opened};
use super::units::Unit;
use crate::error::{CliError, CliResult};
use crate::measuring::OTHER_SUMS;
use compiler::schedule::Workload;
use compiler::schedule::rules::{Choice, values};
use compiler::tir::canonical::log2_distance;
use rustc_hash::FxHashSet;
use std::path::Path;
use std::time::Instant;
use weft::{Line, RefusedLine, TuningDatabase, TuningLine, describe_choices, parse_choices};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Candidates of a race; one more is taken at random.
const DRAFT: usize = 7;
/// Candidates by the choices of other functions: those of the family whose sizes are nearest.
const SEEDS: usize = 4;
/// Candidates of each template; one more is taken at random.
const OF_TEMPLATE: usize = 4;
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

/// What a search found.
pub struct Outcome {
    /// None where the default is best.
    pub winner: Option<Winner>,
    defaults: Vec<Choice>,
    /// Microseconds of the default and of the winner.
    pub us: [f64; 2],
    /// The same, as they are estimated.
    pub estimated_us: [f64; 2],
    /// Rounds that confirmed, and those that it won.
    pub rounds: [usize; 2],
    ratio: f64,
}

/// A schedule that is faster than the default.
pub struct Winner {
    candidate: Candidate,
    /// What made it: `tune`, `template NAME`.
    pub by: String,
}

impl Outcome {
    /// Its time by that of the default.
    pub fn ratio(&self) -> f64 {
        self.ratio
    }
    /// What is not as the default has it, in words.
    pub fn describe(&self) -> String {
        let Some(Winner { candidate, .. }) = &self.winner else { return "the default is best".into() };
        if candidate.for_line().1.is_empty() {
            let other = values(&candidate.trace).into_iter().filter(|c| !self.defaults.contains(c));
            return describe_choices(&other.collect::<Vec<_>>());
        }
        candidate.name()
    }
    /// The choices and the instructions of the winner.
    pub fn schedule(&self) -> (Vec<String>, Vec<String>) {
        self.winner.as_ref().map_or((vec![], vec![]), |w| w.candidate.for_line())
    }
    /// The line of the database.
    pub fn line(&self, unit: &Unit, seed: u64) -> TuningLine {
        let ((choices, schedule), family) = (self.schedule(), unit.function.family());
        TuningLine {
            device: unit.workload.device.clone(),
            function: unit.workload.function.clone(),
            constants: unit.workload.constants.clone(),
            name: unit.function.name.to_string(),
            family: family.fingerprint.to_string(),
            extents: family.extents,
            choices,
            schedule,
            withdrawn: false,
            ratio: self.ratio,
            rounds: self.rounds,
            us: self.us,
            estimated_us: self.estimated_us,
            seed,
            by: self.winner.as_ref().map_or("tune", |w| &w.by).into(),
            kept_at: 0,
            weft: VERSION.into(),
        }
    }
}

/// The search for one function.
pub struct Search<'a> {
    measurer: &'a mut Measurer,
    maker: Maker<'a>,
    unit: &'a Unit,
    seed: u64,
    seen: FxHashSet<String>,
    opened: usize,
    file: &'a Path,
    /// Candidates that gave wrong results or did not run, with why.
    pub refused: Vec<String>,
    /// The candidates of templates that ran.
    pub by_templates: usize,
}

impl<'a> Search<'a> {
    /// Prepares the process that measures. Refused schedules are appended to `file`, those that are known are not tried.
    ///
    /// # Errors
    /// It does not start, or does not compute the function.
    pub fn new(
        measurer: &'a mut Measurer,
        maker: Maker<'a>,
        seed: u64,
        (file, known): (&'a Path, &TuningDatabase),
    ) -> CliResult<Search<'a>> {
        let unit = maker.unit;
        measurer.take(&unit.function, &unit.positions)?;
        let mut seen = FxHashSet::default();
        for line in known.refused.iter().filter(|l| l.workload() == unit.workload && l.weft == VERSION) {
            let choices = describe_choices(&parse_choices(&line.choices).map_err(CliError::input)?);
            seen.insert(if line.schedule.is_empty() { choices } else { line.schedule.join("\n") });
        }
        Ok(Search { measurer, maker, unit, seed, seen, opened: 0, file, refused: vec![], by_templates: 0 })
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
        let default = self.maker.default()?;
        self.seen.insert(default.key());
        let incumbent = self.measurer.open_default(&default.trace)?;
        let incumbent = incumbent.map_err(|why| bug(format!("the default schedule: {why}")))?;
        self.opened += 1;
        let mut planned = 1 + DRAFT + 1;
        progress(self.opened, planned);
        let mut drafted = self.seeds()?;
        drafted.extend(self.of_templates());
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
                        self.by_templates += usize::from(c.is_of_template());
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

    /// What the database has for the function itself, then schedules by the tuned choices of other functions of its
    /// family on the device, where they apply: those whose sizes are nearest.
    fn seeds(&mut self) -> CliResult<Vec<Candidate>> {
        let (known, family) = (TuningDatabase::read(self.file).map_err(CliError::input)?, self.unit.function.family());
        let (device, fingerprint) = (&self.unit.workload.device, family.fingerprint.to_string());
        let mut lines: Vec<(f64, &TuningLine)> = Vec::new();
        for (workload, line) in known.best() {
            if workload == self.unit.workload {
                lines.push((-1.0, line));
            } else if line.device == *device && line.family == fingerprint && line.schedule.is_empty() {
                lines.extend(log2_distance(&line.extents, &family.extents).map(|d| (d, line)));
            }
        }
        lines.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut all: Vec<Candidate> = Vec::new();
        for (_, line) in lines {
            let fresh = |c: &Candidate| !self.seen.contains(&c.key());
            let Some(c) = self.maker.of_line(line)?.filter(fresh) else { continue };
            self.seen.insert(c.key());
            all.push(c);
            if all.len() == SEEDS {
                break;
            }
        }
        Ok(all)
    }

    /// The cheapest instances of each template by the estimate, and one at random.
    fn of_templates(&mut self) -> Vec<Candidate> {
        let mut out = Vec::new();
        for all in self.maker.of_templates(self.seed) {
            out.extend(self.some(all, OF_TEMPLATE));
        }
        out
    }

    /// Records a candidate that is not to be tried again.
    fn refuse(&mut self, c: &Candidate, why: String) -> CliResult<()> {
        let Workload { device, function, constants } = self.unit.workload.clone();
        let (choices, schedule) = c.for_line();
        self.refused.push(format!("{}: {why}", c.name()));
        if why == OTHER_SUMS {
            // Without the option it may be tried.
            return Ok(());
        }
        let line = RefusedLine { device, function, constants, choices, schedule, why, weft: VERSION.into() };
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
            return Ok(Outcome { winner: None, defaults, us, estimated_us, rounds: [0, 0], ratio: 1.0 });
        };
        let standings = self.measurer.race(&[incumbent, &opened], CONFIRMING, !self.seed)?;
        let (own, won) = (standings[0].median_ns() / 1e3, &standings[1]);
        let confirmed = won.wins() >= WINS && won.ratio() <= RATIO && !won.is_slower_by_the_wall();
        Ok(match confirmed {
            true => Outcome {
                us: [own, won.median_ns() / 1e3],
                estimated_us: [estimated, winner.estimated_ns / 1e3],
                winner: Some(Winner { by: self.maker.by(&winner), candidate: winner }),
                defaults,
                rounds: [won.ratios.len(), won.wins()],
                ratio: won.ratio(),
            },
            false => Outcome {
                winner: None,
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
        let mut all = self.maker.around(from);
        if further {
            let second: Vec<Candidate> = all.iter().take(SECOND_RING).flat_map(|c| self.maker.around(c)).collect();
            all.extend(second);
        }
        self.some(all, count)
    }

    /// The cheapest of these that were not looked at, and one at random.
    fn some(&mut self, mut all: Vec<Candidate>, count: usize) -> Vec<Candidate> {
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
