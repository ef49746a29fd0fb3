//! Schedules that a search tries: those of the rules, of templates, and of lines of the database.

use super::units::Unit;
use crate::error::{CliError, CliResult, Code};
use compiler::schedule::estimate::estimate;
use compiler::schedule::rules::{Scheduled, neighbours, schedule_with, values};
use compiler::schedule::template::{Match, Template};
use compiler::schedule::{InstrRef, Rules, ScheduleProvider, ScheduleTarget, TunedSchedule, schedule_as_written};
use compiler::text::print_instruction;
use compiler::tir::TensorFunction;
use weft::{TuningLine, describe_choices};

/// Instances of a template that are estimated, at most.
const MOST_INSTANCES: usize = 128;

/// A schedule to try.
#[derive(Clone)]
pub struct Candidate {
    pub trace: Vec<InstrRef>,
    pub estimated_ns: f64,
    pub origin: Origin,
}

/// Where a schedule comes from.
#[derive(Clone)]
pub enum Origin {
    /// The rules, with other choices.
    Rules,
    /// A template, by its position, with the values at these positions. `written`: the choices in the schedule do not
    /// make it.
    Template { template: usize, at: Vec<usize>, name: String, written: bool },
    /// A line of the database, which says by what.
    Line { by: String, written: bool },
}

impl Candidate {
    /// Equal for equal schedules of one kind.
    pub fn key(&self) -> String {
        match self.is_written() {
            true => self.instructions().join("\n"),
            false => describe_choices(&values(&self.trace)),
        }
    }
    /// In words.
    pub fn name(&self) -> String {
        match &self.origin {
            Origin::Template { name, .. } => name.clone(),
            Origin::Line { by, written: true } => format!("the kept schedule by {by}"),
            _ => self.key(),
        }
    }
    /// Whether a template made it.
    pub fn is_of_template(&self) -> bool {
        matches!(self.origin, Origin::Template { .. })
    }
    /// Whether the line of the database has its instructions rather than its choices.
    fn is_written(&self) -> bool {
        matches!(self.origin, Origin::Template { written: true, .. } | Origin::Line { written: true, .. })
    }
    fn instructions(&self) -> Vec<String> {
        self.trace.iter().map(print_instruction).collect()
    }
    /// The choices and the instructions for a line of the database, one of which is empty.
    pub fn for_line(&self) -> (Vec<String>, Vec<String>) {
        match self.is_written() {
            true => (vec![], self.instructions()),
            false => (TuningLine::print_choices(&values(&self.trace)), vec![]),
        }
    }
}

/// Makes candidates for a function.
pub struct Maker<'a> {
    pub target: ScheduleTarget<'a>,
    pub unit: &'a Unit,
    templates: &'a [Template],
    /// The templates that take the function.
    taken: Vec<(usize, Match)>,
}

impl<'a> Maker<'a> {
    pub fn new(target: ScheduleTarget<'a>, unit: &'a Unit, templates: &'a [Template]) -> Maker<'a> {
        let matches = |(n, t): (usize, &Template)| Some((n, t.matches(&unit.function, &unit.constants, target)?));
        let taken = templates.iter().enumerate().filter_map(matches).collect();
        Maker { target, unit, templates, taken }
    }

    fn candidate(&self, scheduled: Scheduled, origin: Origin) -> Option<Candidate> {
        let estimate = estimate(&scheduled.function, &self.unit.constants, self.target).ok()?;
        Some(Candidate { estimated_ns: estimate.total(), trace: scheduled.function.trace, origin })
    }

    /// The schedule of the rules. The estimate of a schedule that it cannot weigh is infinite.
    ///
    /// # Errors
    /// A function that no rule takes: a bug.
    pub fn default(&self) -> CliResult<Candidate> {
        let (f, constants) = (&self.unit.function, &self.unit.constants);
        let scheduled = Rules.schedule(f, constants, self.target).map_err(|e| bug(e.to_string()))?;
        let trace = scheduled.function.trace.clone();
        let unknown = Candidate { trace, estimated_ns: f64::INFINITY, origin: Origin::Rules };
        Ok(self.candidate(scheduled, Origin::Rules).unwrap_or(unknown))
    }

    /// A line of the database on this function, where it applies.
    ///
    /// # Errors
    /// A line that does not parse.
    pub fn of_line(&self, line: &TuningLine) -> CliResult<Option<Candidate>> {
        let (f, constants) = (&self.unit.function, &self.unit.constants);
        let TunedSchedule { choices, instructions, .. } = line.tuned_schedule().map_err(CliError::input)?;
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

    /// All instances of the templates that take the function, or some of them, drawn with a seed; for each template the
    /// cheapest by the estimate first.
    pub fn of_templates(&self, seed: u64) -> Vec<Vec<Candidate>> {
        let mut out = Vec::new();
        for (n, found) in &self.taken {
            let all: Vec<Vec<usize>> = self.templates[*n].instances(found).collect();
            let step = all.len().div_ceil(MOST_INSTANCES).max(1);
            let drawn = all.iter().skip(seed as usize % step).step_by(step);
            let mut made: Vec<Candidate> = drawn.filter_map(|at| self.instance(*n, found, at).ok()).collect();
            made.sort_by(|a, b| a.estimated_ns.total_cmp(&b.estimated_ns));
            out.push(made);
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
        let unknown = Candidate { trace, estimated_ns: f64::MAX, origin: origin.clone() };
        Ok(self.candidate(scheduled, origin).unwrap_or(unknown))
    }

    /// What made a candidate, for its line.
    pub fn by(&self, c: &Candidate) -> String {
        match &c.origin {
            Origin::Rules => "tune".into(),
            Origin::Template { template, .. } => format!("template {}", self.templates[*template].name),
            Origin::Line { by, .. } => by.clone(),
        }
    }

    /// The candidates that differ from `c` in one choice, or in one variable of its template.
    pub fn around(&self, c: &Candidate) -> Vec<Candidate> {
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
                let one = |n: compiler::schedule::rules::Neighbour| Candidate {
                    estimated_ns: n.estimate.total(),
                    trace: n.scheduled.function.trace,
                    origin: Origin::Rules,
                };
                all.map(one).collect()
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

/// An error that is a bug.
pub fn bug(message: impl Into<String>) -> CliError {
    CliError::new(Code::Bug, message.into())
}
