//! Schedules that a search tries: those of the rules, of templates, and of lines of the database.

use super::candidate::{Candidate, Origin, bug};
use super::space::Space;
use super::units::Unit;
use crate::error::{Error, Result};
use compiler::profile::{CostFactors, DeviceProfile};
use compiler::schedule::rules::{Choice, Scheduled, estimate_as_made, neighbours, schedule_with, values};
use compiler::schedule::template::{Match, Template};
use compiler::schedule::{InstrRef, Rules, ScheduleProvider, ScheduleTarget, TunedSchedule, schedule_as_written};
use compiler::text::print_instruction;
use compiler::tir::TensorFunction;
use rustc_hash::FxHashSet;
use weft::TuningLine;

/// Candidates of each template in a search's draft; one more is taken at random.
const OF_TEMPLATE: usize = 4;
/// Instances of a template that are estimated, at most.
const MOST_INSTANCES: usize = 128;

/// Makes candidates for a function.
pub struct Maker<'a> {
    /// The device, and what its rules are asked.
    pub target: ScheduleTarget<'a>,
    /// The function.
    pub unit: &'a Unit,
    /// The target's profile without factors on the estimate.
    plain: DeviceProfile,
    templates: &'a [Template],
    /// The templates that take the function.
    taken: Vec<(usize, Match)>,
}

impl<'a> Maker<'a> {
    /// For a function, with templates to try.
    pub fn new(target: ScheduleTarget<'a>, unit: &'a Unit, templates: &'a [Template]) -> Maker<'a> {
        let matches = |(n, t): (usize, &Template)| Some((n, t.matches(&unit.function, &unit.constants, target)?));
        let taken = templates.iter().enumerate().filter_map(matches).collect();
        let plain = DeviceProfile { factors: CostFactors::default(), ..target.profile.clone() };
        Maker { target, unit, plain, templates, taken }
    }

    fn candidate(&self, scheduled: Scheduled, origin: Origin) -> Option<Candidate> {
        let target = self.target.options.on(&self.plain);
        let (f, constants) = (&self.unit.function, &self.unit.constants);
        let plain = estimate_as_made(f, constants, target, &scheduled.function).ok()?.cost;
        let estimated_ns = plain.scaled(&self.target.profile.factors).total();
        Some(Candidate { estimated_ns, plain: Some(plain), trace: scheduled.function.trace, origin })
    }

    /// All schedules that changes of choices reach from the default, nearest first, at most so many.
    ///
    /// # Errors
    /// A function that no rule takes: a bug.
    pub fn reached(&self, most: usize) -> Result<Vec<Candidate>> {
        let mut all = vec![self.default()?];
        let mut seen: FxHashSet<String> = all.iter().map(Candidate::key).collect();
        let mut at = 0;
        while at < all.len() && all.len() < most {
            let near = self.around(&all[at]);
            all.extend(near.into_iter().filter(|c| seen.insert(c.key())));
            at += 1;
        }
        all.truncate(most);
        Ok(all)
    }

    /// The key of the default schedule.
    ///
    /// # Errors
    /// A function that no rule takes: a bug.
    pub fn default_key(&self) -> Result<String> {
        Ok(self.default()?.key())
    }

    /// A schedule by these choices, if the rules make one.
    pub fn of_choices(&self, choices: &[Choice]) -> Option<Candidate> {
        let made = schedule_with(&self.unit.function, &self.unit.constants, self.target, choices);
        made.ok().and_then(|s| self.candidate(s, Origin::Rules))
    }

    /// A line of the database on this function, where it applies.
    ///
    /// # Errors
    /// A line that does not parse.
    pub fn of_line(&self, line: &TuningLine) -> Result<Option<Candidate>> {
        let (f, constants) = (&self.unit.function, &self.unit.constants);
        let TunedSchedule { choices, instructions, .. } = line.tuned_schedule().map_err(Error::input)?;
        let written = !instructions.is_empty();
        let scheduled = match written {
            true => {
                let f = TensorFunction { pending: instructions, ..f.clone() };
                schedule_as_written(&f, constants, self.target)
            }
            false => schedule_with(f, constants, self.target, &choices),
        };
        let origin = Origin::Line { by: line.by.clone(), written };
        Ok(scheduled.ok().and_then(|s| self.candidate(s, origin)))
    }

    /// All instances of each template that takes the function, or some of them, drawn with a seed; and how many a
    /// search tries at first.
    pub fn of_templates(&self, seed: u64) -> Vec<(Vec<Candidate>, usize)> {
        let mut out = Vec::new();
        for (n, found) in &self.taken {
            let all: Vec<Vec<usize>> = self.templates[*n].instances(found).collect();
            let step = all.len().div_ceil(MOST_INSTANCES).max(1);
            let drawn = all.iter().skip(seed as usize % step).step_by(step);
            out.push((drawn.filter_map(|at| self.instance(*n, found, at).ok()).collect(), OF_TEMPLATE));
        }
        out
    }

    fn instance(&self, template: usize, found: &Match, at: &[usize]) -> Result<Candidate, String> {
        let (t, constants) = (&self.templates[template], &self.unit.constants);
        let scheduled = t.schedule(found, at, constants, self.target).map_err(|e| e.to_string())?;
        let written = !is_made_by_choices(self.unit, self.target, &scheduled.function.trace);
        let name = format!("template {} with {}", t.name, t.describe(at));
        let trace = scheduled.function.trace.clone();
        let origin = Origin::Template { template, at: at.to_vec(), name, written };
        // The estimate does not weigh everything that can be written; such a schedule is measured last.
        let unknown = Candidate { trace, estimated_ns: f64::MAX, plain: None, origin: origin.clone() };
        Ok(self.candidate(scheduled, origin).unwrap_or(unknown))
    }
}

impl Space for Maker<'_> {
    /// The schedule of the rules. The estimate of a schedule that it cannot weigh is infinite.
    fn default(&self) -> Result<Candidate> {
        let (f, constants) = (&self.unit.function, &self.unit.constants);
        let scheduled = Rules.schedule(f, constants, self.target).map_err(|e| bug(e.to_string()))?;
        let trace = scheduled.function.trace.clone();
        let unknown = Candidate { trace, estimated_ns: f64::INFINITY, plain: None, origin: Origin::Rules };
        Ok(self.candidate(scheduled, Origin::Rules).unwrap_or(unknown))
    }

    fn by(&self, c: &Candidate) -> String {
        match &c.origin {
            Origin::Rules => "tune".into(),
            Origin::Template { template, .. } => format!("template {}", self.templates[*template].name),
            Origin::Line { by, .. } => by.clone(),
        }
    }

    /// The candidates that differ from `c` in one choice, or in one variable of its template.
    fn around(&self, c: &Candidate) -> Vec<Candidate> {
        let (f, constants) = (&self.unit.function, &self.unit.constants);
        match &c.origin {
            Origin::Template { template, at, .. } => {
                let found = self.taken.iter().find(|t| t.0 == *template).map(|t| &t.1);
                let near = |m: &Match| self.templates[*template].neighbours(m, at);
                let of = |m: &Match| near(m).iter().filter_map(|at| self.instance(*template, m, at).ok()).collect();
                found.map_or(vec![], of)
            }
            Origin::Line { written: true, .. } => vec![],
            Origin::Rules | Origin::Line { .. } => {
                let all = neighbours(f, constants, self.target, &c.trace).into_iter();
                all.filter_map(|n| self.candidate(n.scheduled, Origin::Rules)).collect()
            }
        }
    }
}

/// Why none of the template's schedules applies to the function; `None` if one does.
pub fn refusal(t: &Template, found: &Match, unit: &Unit, target: ScheduleTarget<'_>) -> Option<String> {
    let mut first = None;
    for at in t.instances(found).take(MOST_INSTANCES) {
        match t.schedule(found, &at, &unit.constants, target) {
            Ok(_) => return None,
            Err(e) => first = first.or(Some(format!("{e}\n(with {})", t.describe(&at)))),
        }
    }
    first
}

/// How a line of the database has a schedule: its choices if they make it again, else its instructions; the other one
/// is empty.
pub fn schedule_lines(unit: &Unit, target: ScheduleTarget<'_>, trace: &[InstrRef]) -> (Vec<String>, Vec<String>) {
    match is_made_by_choices(unit, target, trace) {
        true => (TuningLine::print_choices(&values(trace)), vec![]),
        false => (vec![], trace.iter().map(print_instruction).collect()),
    }
}

/// Whether the choices in a schedule make it.
fn is_made_by_choices(unit: &Unit, target: ScheduleTarget<'_>, trace: &[InstrRef]) -> bool {
    let again = schedule_with(&unit.function, &unit.constants, target, &values(trace));
    again.is_ok_and(|again| again.function.trace == trace)
}
