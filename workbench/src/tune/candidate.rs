//! A schedule that a search tries.

use crate::error::{Code, Error};
use compiler::schedule::InstrRef;
use compiler::schedule::estimate::Cost;
use compiler::schedule::rules::values;
use compiler::text::print_instruction;
use weft::{TuningLine, describe_choices};

/// A schedule to try.
#[derive(Clone)]
pub struct Candidate {
    /// Its instructions.
    pub trace: Vec<InstrRef>,
    /// Nanoseconds by the estimate.
    pub estimated_ns: f64,
    /// The estimate without factors by measured times, if it can weigh the schedule.
    pub plain: Option<Cost>,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where a schedule comes from.
#[derive(Clone)]
#[allow(missing_docs)]
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

/// An error that is a bug.
pub fn bug(message: impl Into<String>) -> Error {
    Error::new(Code::Bug, message.into())
}
