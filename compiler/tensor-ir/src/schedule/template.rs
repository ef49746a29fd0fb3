//! Templates: schedules with variables, which an expert writes as text, and a search fills in.
//!
//! ```text
//! template two-vectors {
//!   for $i, $j { block $y }
//!   where ($j % 4 == 0)
//!   $threads in [64, 128]
//!   schedule {
//!     split {loop=$j, factors=[0,4], into=[q,v]}
//!     fuse {loops=[$i,q], into=m}
//!     split {loop=m, factors=[0,$threads], into=[g,t]}
//!     bind {loop=g, axis=group_x}
//!     bind {loop=t}
//!     vectorize {loop=v}
//!     cut-kernel
//!   }
//! }
//! ```
//!
//! The nests are the pattern: they are compared with the function as [`rules::prepared`] gives it, one nest for each
//! block. Variables of loops and blocks stand for names, `$i.extent` for the extent of a loop; in `where` a loop's
//! variable is its extent. The other variables have a domain; a list of values, one for each, makes a schedule
//! ([`Template::schedule`]). A template does not know what a function computes: instructions keep results, and a
//! schedule that does not apply is refused.

use super::rules::{self, Scheduled, choices, prepared, schedule_with};
use super::{Choose, InstrRef, InstructionDef, ScheduleError, ScheduleTarget, schedule_as_written};
use crate::attr::print::print_value;
use crate::attr::{Attr, Attrs};
use crate::int::Cond;
use crate::name::Name;
use crate::tir::{BufferId, Combiner, TensorFunction};
use rustc_hash::FxHashMap;

/// What a loop's variable ends with where its extent is meant.
pub const EXTENT: &str = ".extent";

/// Lists of values that the domains of a template may have.
pub const MOST_INSTANCES: usize = 4096;

/// A schedule with variables, and the functions that it takes.
#[derive(Clone, Debug)]
pub struct Template {
    /// Its name.
    pub name: String,
    /// The nests of the functions, in order.
    pub nests: Vec<NestPattern>,
    /// Conditions on extents of loops and on values; names have their `$`.
    pub conditions: Vec<Cond>,
    /// The variables that are chosen, with their domains.
    pub domains: Vec<(Name, Vec<Attr>)>,
    /// The schedule.
    pub lines: Vec<TemplateLine>,
}

/// A nest of loops around one block; all names are variables.
#[derive(Clone, Debug)]
pub struct NestPattern {
    /// The loops, outermost first.
    pub loops: Vec<Name>,
    /// The block.
    pub block: Name,
    /// How the block reduces, if it does.
    pub reduce: Option<Combiner>,
}

/// An instruction with variables.
#[derive(Clone, Debug)]
pub struct TemplateLine {
    /// Its line in the file, from 1.
    pub line: usize,
    /// The row of the instruction.
    pub def: &'static InstructionDef,
    /// Its attributes.
    pub attrs: Vec<(String, TemplateValue)>,
}

impl std::fmt::Debug for InstructionDef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The value of an attribute.
#[derive(Clone, Debug)]
pub enum TemplateValue {
    /// Without variables.
    Plain(Attr),
    /// A variable, or a name that is made of some: `$rows`, `${conv}_m`.
    Word(Vec<Piece>),
    /// A list.
    List(Vec<TemplateValue>),
}

/// A part of a word.
#[derive(Clone, PartialEq, Debug)]
pub enum Piece {
    /// Characters.
    Text(String),
    /// The variable of this name, without `$`.
    Variable(String),
}

/// A function that a template takes.
#[derive(Clone, Debug)]
pub struct Match {
    function: TensorFunction,
    prepared: TensorFunction,
    /// The names that variables stand for, and the extents of those that are loops.
    names: FxHashMap<Name, (Name, Option<i64>)>,
}

/// Why a template gives no schedule.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}{error}", self.line.map(|l| format!("line {l}: ")).unwrap_or_default())]
pub struct TemplateError {
    /// The line of the instruction, where one is to blame.
    pub line: Option<usize>,
    /// What is wrong.
    pub error: ScheduleError,
}

impl From<ScheduleError> for TemplateError {
    fn from(error: ScheduleError) -> TemplateError {
        TemplateError { line: None, error }
    }
}

impl Template {
    /// Compares the pattern with an unscheduled function; `None` if the template does not take it.
    pub fn matches(&self, f: &TensorFunction, constants: &[BufferId], target: ScheduleTarget<'_>) -> Option<Match> {
        let prepared = prepared(f, constants, target).ok()?;
        let stages = prepared.stages()?;
        if stages.len() != self.nests.len() {
            return None;
        }
        let mut names: FxHashMap<Name, (Name, Option<i64>)> = FxHashMap::default();
        for (nest, stage) in self.nests.iter().zip(&stages) {
            if nest.loops.len() != stage.loops.len() || nest.reduce != stage.block.reduce.map(|r| r.combiner) {
                return None;
            }
            let loops = nest.loops.iter().zip(&stage.loops).map(|(v, (name, extent))| (*v, (*name, extent.as_const())));
            for (variable, found) in loops.chain([(nest.block, (stage.block.name, None))]) {
                if *names.entry(variable).or_insert(found) != found {
                    return None;
                }
            }
        }
        let found = Match { function: f.clone(), prepared, names };
        let any = self.instances(&found).next().is_some();
        any.then_some(found)
    }

    /// Positions in the domains, for all lists of values that the conditions admit.
    pub fn instances<'a>(&'a self, found: &'a Match) -> impl Iterator<Item = Vec<usize>> + 'a {
        let count: usize = self.domains.iter().map(|d| d.1.len()).product();
        (0..count).map(|n| self.positions(n)).filter(|at| {
            let value = |name: Name| self.number(found, at, name);
            self.conditions.iter().all(|c| c.holds(&value) == Some(true))
        })
    }

    /// The instances that differ from `at` in one value.
    pub fn neighbours(&self, found: &Match, at: &[usize]) -> Vec<Vec<usize>> {
        let near = |other: &Vec<usize>| other.iter().zip(at).filter(|(a, b)| a != b).count() == 1;
        self.instances(found).filter(near).collect()
    }

    /// The `n`th list of values; the last variable changes first.
    fn positions(&self, n: usize) -> Vec<usize> {
        let mut rest = n;
        let mut at: Vec<usize> = self
            .domains
            .iter()
            .rev()
            .map(|(_, domain)| {
                let position = rest % domain.len().max(1);
                rest /= domain.len().max(1);
                position
            })
            .collect();
        at.reverse();
        at
    }

    fn chosen(&self, at: &[usize], variable: &str) -> Option<&Attr> {
        let n = self.domains.iter().position(|d| d.0.as_str() == variable)?;
        self.domains[n].1.get(*at.get(n)?)
    }

    /// What a name stands for in a condition.
    fn number(&self, found: &Match, at: &[usize], name: Name) -> Option<i64> {
        let variable = name.as_str().strip_prefix('$')?;
        match self.chosen(at, variable) {
            Some(Attr::Int(v)) => Some(*v),
            Some(_) => None,
            None => found.names.get(&Name::new(variable))?.1,
        }
    }

    /// The values at these positions, in words: `rows 16, lanes 8`.
    pub fn describe(&self, at: &[usize]) -> String {
        let values = self.domains.iter().filter_map(|(name, _)| Some((name, self.chosen(at, name.as_str())?)));
        values.map(|(name, value)| format!("{name} {}", print_value(value))).collect::<Vec<_>>().join(", ")
    }

    /// The function with the template's schedule for the values at these positions. A template of choices alone leaves
    /// the rest to the rules.
    ///
    /// # Errors
    /// An instruction that does not apply, with its line.
    pub fn schedule(
        &self,
        found: &Match,
        at: &[usize],
        constants: &[BufferId],
        target: ScheduleTarget<'_>,
    ) -> Result<Scheduled, TemplateError> {
        let value = |variable: &str| -> Option<Attr> {
            let of = |v: &str| found.names.get(&Name::new(v));
            match variable.strip_suffix(EXTENT) {
                Some(of_loop) => of(of_loop)?.1.map(Attr::Int),
                None => self.chosen(at, variable).cloned().or_else(|| Some(Attr::Str(of(variable)?.0.to_string()))),
            }
        };
        let mut list = Vec::new();
        for line in &self.lines {
            list.push(line.fill(&value).map_err(|message| {
                let error = ScheduleError { instruction: line.def.name.into(), message, loops: None };
                TemplateError { line: Some(line.line), error }
            })?);
        }
        if !list.iter().any(|i: &InstrRef| i.rewrites()) {
            let values = choices(&list).into_iter().map(|c: &Choose| rules::Choice {
                unit: c.unit,
                point: c.point,
                value: c.value.clone(),
            });
            return Ok(schedule_with(&found.function, constants, target, &values.collect::<Vec<_>>())?);
        }
        let before = found.prepared.trace.clone();
        let pending = before.into_iter().chain(list.iter().cloned()).collect();
        let written = TensorFunction { pending, ..found.function.clone() };
        schedule_as_written(&written, constants, target).map_err(|error| {
            let at = list.iter().position(|i| i.text() == error.instruction);
            TemplateError { line: at.map(|n| self.lines[n].line), error }
        })
    }
}

impl TemplateLine {
    /// The instruction with the values of variables.
    ///
    /// # Errors
    /// A value that an attribute cannot take, or a variable without a value.
    pub fn fill(&self, value: &dyn Fn(&str) -> Option<Attr>) -> Result<InstrRef, String> {
        let mut attrs = Attrs::new();
        for (key, own) in &self.attrs {
            attrs.insert(key.clone(), own.fill(value)?);
        }
        (self.def.from_attrs)(&attrs)
    }
}

impl TemplateValue {
    fn fill(&self, value: &dyn Fn(&str) -> Option<Attr>) -> Result<Attr, String> {
        let of = |v: &str| value(v).ok_or_else(|| format!("there is no variable `${v}`"));
        match self {
            TemplateValue::Plain(a) => Ok(a.clone()),
            TemplateValue::List(list) => Ok(Attr::List(list.iter().map(|v| v.fill(value)).collect::<Result<_, _>>()?)),
            TemplateValue::Word(pieces) => match pieces.as_slice() {
                [Piece::Variable(v)] => of(v),
                pieces => {
                    let mut out = String::new();
                    for piece in pieces {
                        match piece {
                            Piece::Text(text) => out.push_str(text),
                            Piece::Variable(v) => match of(v)? {
                                Attr::Str(s) => out.push_str(&s),
                                other => out.push_str(&print_value(&other)),
                            },
                        }
                    }
                    Ok(Attr::Str(out))
                }
            },
        }
    }
}
