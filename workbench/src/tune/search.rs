//! The search for one function: candidates drafted by the estimate, raced, and improved one choice at a time. It knows
//! neither files nor devices: a [`Space`] has the schedules, a [`Racing`] measures them.

use super::candidate::{Candidate, bug};
use super::learned::Learned;
use super::space::{Opened, Racing, Space, Watching};
use super::units::Unit;
use crate::error::Result;
use crate::progress::stopped;
use compiler::schedule::rules::{Choice, values};
use rustc_hash::FxHashSet;
use std::time::Instant;
use weft::{TuningLine, describe_choices};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Candidates of a race; one more is taken at random.
const DRAFT: usize = 7;
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
/// A step that gains less gains nothing; after so many of these the search ends.
const STEP_RATIO: f64 = 0.98;
const IDLE: usize = 2;

/// The outcome of a search.
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
    /// Its maker: `tune`, `template NAME`.
    pub by: String,
}

impl Outcome {
    /// Its time by that of the default.
    pub fn ratio(&self) -> f64 {
        self.ratio
    }
    /// The schedule that is faster.
    pub fn winner(&self) -> Option<&Candidate> {
        self.winner.as_ref().map(|w| &w.candidate)
    }
    /// The differences from the default, in words.
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
    /// Who times candidates.
    pub racing: &'a mut dyn Racing,
    /// Who makes them.
    pub space: &'a dyn Space,
    /// Who is told.
    pub watching: &'a mut dyn Watching,
    /// The seed of the choices.
    pub seed: u64,
    /// Candidates that are not to be tried, by their keys.
    pub seen: FxHashSet<String>,
    /// Candidates that run, at most; the default is one.
    pub most: usize,
    /// A candidate that takes this many nanoseconds is good enough.
    pub enough_ns: f64,
    /// Candidates that ran.
    pub opened: usize,
    /// Those of templates.
    pub by_templates: usize,
    learned: Learned,
}

impl<'a> Search<'a> {
    /// Of any number of candidates.
    pub fn new(
        racing: &'a mut dyn Racing,
        space: &'a dyn Space,
        watching: &'a mut dyn Watching,
        seed: u64,
    ) -> Search<'a> {
        let seen = FxHashSet::default();
        Search {
            racing,
            space,
            watching,
            seed,
            seen,
            most: usize::MAX,
            enough_ns: 0.0,
            opened: 0,
            by_templates: 0,
            learned: Learned::default(),
        }
    }

    /// Searches until then. `lists` are tried first: of each the cheapest, with their number, and one at random.
    ///
    /// # Errors
    /// Nothing can be measured any more; a default schedule that does not run.
    pub fn run(&mut self, lists: Vec<(Vec<Candidate>, usize)>, until: Instant) -> Result<Outcome> {
        let default = self.space.default()?;
        self.seen.insert(default.key());
        let incumbent = self.racing.open_default(&default)?;
        let incumbent = incumbent.map_err(|why| bug(format!("the default schedule: {why}")))?;
        self.opened += 1;
        let mut drafted: Vec<Candidate> = Vec::new();
        for (all, count) in lists {
            drafted.extend(self.some(all, count));
        }
        drafted.extend(self.draft(&default, DRAFT.min(self.most / 2), true));
        let mut planned = 1 + drafted.len();
        let mut best: Option<(Candidate, Opened)> = None;
        // The time of the best by that of the default, and rounds without a better one.
        let (mut lead, mut idle) = (1.0, 0);
        self.learned.add(&default, 1.0, 1.0);
        let mut round = drafted;
        loop {
            let opened = self.open(round, until, planned)?;
            if opened.is_empty() {
                break;
            }
            // The best so far is the one to beat.
            let first = best.as_ref().map_or(&incumbent, |b| &b.1);
            let all: Vec<&Opened> = std::iter::once(first).chain(opened.iter().map(|o| &o.1)).collect();
            let standings = self.racing.race(&all, ROUNDS, self.seed.wrapping_add(self.opened as u64))?;
            if best.is_none() {
                self.watching.raced(&default, &standings[0])?;
            }
            for (s, (c, _)) in standings.iter().skip(1).zip(&opened) {
                self.watching.raced(c, s)?;
                self.learned.add(c, s.ratio() * lead, c.estimated_ns / default.estimated_ns);
            }
            let all = standings.iter().skip(1).zip(opened).filter(|(s, _)| !s.is_slower_by_the_wall());
            let found = all.min_by(|a, b| a.0.ratio().total_cmp(&b.0.ratio()));
            let mut enough = false;
            match found.filter(|(s, _)| s.ratio() < STEP_RATIO) {
                Some((standing, winner)) => {
                    (lead, idle, enough) = (lead * standing.ratio(), 0, standing.median_ns() <= self.enough_ns);
                    best = Some(winner);
                }
                None => idle += 1,
            }
            match &best {
                Some(best) => self.racing.keep(&[&incumbent, &best.1]),
                None => self.racing.keep(&[&incumbent]),
            }
            if idle == IDLE || enough || Instant::now() >= until {
                break;
            }
            let from = best.as_ref().map_or(&default, |b| &b.0).clone();
            round = self.draft(&from, STEP, best.is_none());
            planned += round.len();
        }
        self.confirm(&default, &incumbent, best)
    }

    /// Opens candidates until then; those that are refused are left out.
    fn open(&mut self, round: Vec<Candidate>, until: Instant, planned: usize) -> Result<Vec<(Candidate, Opened)>> {
        let mut opened: Vec<(Candidate, Opened)> = Vec::new();
        for c in round {
            if Instant::now() >= until || self.opened >= self.most {
                break;
            }
            match self.racing.open(&c)? {
                Ok(found) => {
                    self.opened += 1;
                    self.by_templates += usize::from(c.is_of_template());
                    opened.push((c, found));
                }
                Err(why) => self.watching.refused(&c, &why)?,
            }
            if self.watching.ran(self.opened.min(planned), planned) {
                return Err(stopped());
            }
        }
        Ok(opened)
    }

    /// Races the best against the default on fresh rounds.
    fn confirm(
        &mut self,
        default: &Candidate,
        incumbent: &Opened,
        best: Option<(Candidate, Opened)>,
    ) -> Result<Outcome> {
        let defaults = values(&default.trace);
        let estimated = default.estimated_ns / 1e3;
        let Some((winner, opened)) = best else {
            let own = self.racing.race(&[incumbent], ROUNDS, self.seed)?[0].median_ns() / 1e3;
            let (us, estimated_us) = ([own; 2], [estimated; 2]);
            return Ok(Outcome { winner: None, defaults, us, estimated_us, rounds: [0, 0], ratio: 1.0 });
        };
        let standings = self.racing.race(&[incumbent, &opened], CONFIRMING, !self.seed)?;
        let (own, won) = (standings[0].median_ns() / 1e3, &standings[1]);
        let confirmed = won.wins() >= WINS && won.ratio() <= RATIO && !won.is_slower_by_the_wall();
        Ok(match confirmed {
            true => Outcome {
                us: [own, won.median_ns() / 1e3],
                estimated_us: [estimated, winner.estimated_ns / 1e3],
                winner: Some(Winner { by: self.space.by(&winner), candidate: winner }),
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

    /// The cheapest candidates by the estimate that were not looked at, and one at random: those that differ from
    /// `from` in one choice, and with `further` those that differ from the cheapest of these in one.
    fn draft(&mut self, from: &Candidate, count: usize, further: bool) -> Vec<Candidate> {
        let mut all = self.space.around(from);
        if further {
            let second: Vec<Candidate> = all.iter().take(SECOND_RING).flat_map(|c| self.space.around(c)).collect();
            all.extend(second);
        }
        self.some(all, count)
    }

    /// The cheapest of these that were not looked at, and one at random.
    fn some(&mut self, mut all: Vec<Candidate>, count: usize) -> Vec<Candidate> {
        let mut keys = FxHashSet::default();
        all.retain(|c| !self.seen.contains(&c.key()) && keys.insert(c.key()));
        all.sort_by(|a, b| a.estimated_ns.total_cmp(&b.estimated_ns));
        let mut drawn = self.learned.choose(&mut all, count);
        if !all.is_empty() {
            let at = (self.seed as usize).wrapping_add(self.opened);
            drawn.push(all[at % all.len()].clone());
        }
        self.seen.extend(drawn.iter().map(Candidate::key));
        drawn
    }
}
