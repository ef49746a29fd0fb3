//! Requests to the rules: values of choices, and parts of a schedule that are written already.
//!
//! A schedule in text is read in parts. A part begins with the line that says how a unit is scheduled (`choose` of
//! `function`, `windows` or `rule`) and ends before the next such line. A part without an edited choice is applied as
//! it is written; for any other part the rules are asked again, with the values of its lines.

use crate::attr::Attr;
use crate::attr::print::print_value;
use crate::name::Name;
use crate::schedule::{Choose, CutKernel, InstrRef, ScheduleError};

/// The point of a function that a rule may take as a whole: the rule, or [`APART`].
pub(super) const FUNCTION: &str = "function";
/// The point of windows over another unit's results: [`TOGETHER`] with it, or [`APART`].
pub(super) const WINDOWS: &str = "windows";
/// The point of any unit: the rule that takes it.
pub(super) const RULE: &str = "rule";
/// Units are scheduled one by one.
pub(super) const APART: &str = "apart";
/// Two units are scheduled as one.
pub(super) const TOGETHER: &str = "together";

/// The rule of what came with its instructions.
pub(in crate::schedule) const WRITTEN: &str = "written";

/// A value for a choice of a rule's.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// The unit that is scheduled: [`Choose::unit`].
    pub unit: Name,
    /// The name of the choice: [`Choose::point`].
    pub point: Name,
    /// The value.
    pub value: Attr,
}

/// `tile [8,16] of conv_0`
impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} of {}", self.point, print_value(&self.value), self.unit)
    }
}

/// The values of the choices that a schedule was made with: [`schedule_with`](super::schedule_with) makes it again.
pub fn values(trace: &[InstrRef]) -> Vec<Choice> {
    let all = trace.iter().filter_map(Choose::of_instruction);
    all.map(|c| Choice { unit: c.unit, point: c.point, value: c.value.clone() }).collect()
}

/// A requested choice. If it is not required and the domain lacks the value, the default is used.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    choice: Choice,
    pub required: bool,
}

/// Instructions for one unit.
#[derive(Clone, Debug)]
struct UnitScript {
    unit: Name,
    point: Name,
    edited: bool,
    instructions: Vec<InstrRef>,
}

/// The given parts of a schedule.
#[derive(Clone, Debug, Default)]
pub(super) struct Script {
    wishes: Vec<Wish>,
    /// Instructions before the first part; `None` if the rules prepare the function.
    pub before: Option<Vec<InstrRef>>,
    parts: Vec<UnitScript>,
    /// `cut-kernel` and what follows.
    pub end: Option<Vec<InstrRef>>,
    /// Concatenations of reductions stay in one nest, since the positions of the cuts are open sizes.
    pub whole: bool,
    /// Rules that do not take a unit, as (unit, rule).
    barred: Vec<(Name, String)>,
    /// Loops whose lengths are open sizes, which have typical lengths in the function that is scheduled.
    open: Vec<Name>,
}

/// Nothing is given but that concatenations stay whole.
pub(super) static WHOLE: Script = nothing(true);

/// Nothing is given.
pub(super) static NOTHING: Script = nothing(false);

const fn nothing(whole: bool) -> Script {
    Script { wishes: vec![], before: None, parts: vec![], end: None, whole, barred: vec![], open: vec![] }
}

impl Script {
    /// Values that must be taken.
    pub fn of_choices(choices: &[Choice]) -> Script {
        let wishes = choices.iter().map(|c| Wish { choice: c.clone(), required: true }).collect();
        Script { wishes, ..Script::default() }
    }

    /// True if nothing is given: the rules decide everything.
    pub fn is_empty(&self) -> bool {
        self.wishes.is_empty() && self.parts.is_empty() && self.before.is_none() && self.end.is_none() && !self.whole
    }

    /// Values that must be taken, and nothing else that is given but for what concatenations and open sizes are.
    pub fn with_choices(&self, choices: &[Choice]) -> Script {
        Script { whole: self.whole, open: self.open.clone(), ..Script::of_choices(choices) }
    }

    /// The same where these loops have open lengths.
    pub fn with_open(&self, open: &[Name]) -> Script {
        Script { open: open.to_vec(), ..self.clone() }
    }

    /// True if the length of the loop is an open size.
    pub fn is_open(&self, v: Name) -> bool {
        self.open.contains(&v)
    }

    /// From now on the rule does not take the unit; false if it did not take it before.
    pub fn bar(&mut self, unit: Name, rule: &str) -> bool {
        let new = self.admits(unit, rule);
        self.barred.extend(new.then(|| (unit, rule.to_string())));
        new
    }

    /// True if the rule may take the unit.
    pub fn admits(&self, unit: Name, rule: &str) -> bool {
        !self.barred.iter().any(|(u, r)| *u == unit && r == rule)
    }

    /// A schedule as it is written; edited choices are required.
    pub fn read(instructions: &[InstrRef]) -> Script {
        let cut = instructions.iter().position(|i| i.as_any().is::<CutKernel>()).unwrap_or(instructions.len());
        let (body, end) = instructions.split_at(cut);
        let mut script = Script { end: (!end.is_empty()).then(|| end.to_vec()), ..Script::default() };
        let mut before = Vec::new();
        for i in body {
            if let Some(c) = Choose::of_instruction(i) {
                script.note(c);
            }
            match script.parts.last_mut() {
                Some(part) => part.instructions.push(i.clone()),
                None => before.push(i.clone()),
            }
        }
        match body.iter().any(|i| i.rewrites()) {
            true => script.before = Some(before),
            // Choices alone, for the rules to schedule by.
            false => script.parts.clear(),
        }
        script
    }

    /// A line of the text: a wish, and perhaps the beginning of a part.
    fn note(&mut self, c: &Choose) {
        let choice = Choice { unit: c.unit, point: c.point, value: c.value.clone() };
        self.wishes.push(Wish { choice, required: c.is_edited() });
        let joined = |p: &UnitScript| p.point.as_str() == WINDOWS && p.instructions.iter().any(|i| i.rewrites());
        let begins = match c.point.as_str() {
            FUNCTION | WINDOWS => true,
            // The rule of two units that were made one belongs to the part that did.
            RULE => !self.parts.last().is_some_and(|p| joined(p) && p.count(RULE) == 0),
            _ => false,
        };
        if begins {
            self.parts.push(UnitScript { unit: c.unit, point: c.point, edited: false, instructions: vec![] });
        }
        if let Some(part) = self.parts.last_mut() {
            part.edited |= c.is_edited();
        }
    }

    /// The part of a unit as it is written, unless a choice in it was edited.
    pub fn written(&self, unit: Name, point: &str) -> Option<&[InstrRef]> {
        let part = self.parts.iter().find(|p| p.unit == unit && p.point.as_str() == point && !p.edited)?;
        Some(&part.instructions)
    }

    /// True when units that can run in one nest are still to be merged.
    pub fn leaves_merging(&self) -> bool {
        self.before.is_none() || self.parts.iter().any(|p| p.point.as_str() == FUNCTION && p.edited)
    }

    /// The value that is given for a choice.
    pub fn wish(&self, unit: Name, point: &str) -> Option<(&Attr, bool)> {
        let mine = |w: &&Wish| w.choice.unit == unit && w.choice.point.as_str() == point;
        self.wishes.iter().find(mine).map(|w| (&w.choice.value, w.required))
    }

    /// True if a value must be taken for a choice of the unit.
    pub fn requires(&self, unit: Name) -> bool {
        self.wishes.iter().any(|w| w.required && w.choice.unit == unit)
    }

    /// The same as [`Script::wish`], of a choice between words.
    pub fn wished_word(&self, unit: Name, point: &str) -> Option<(&str, bool)> {
        match self.wish(unit, point)? {
            (Attr::Str(word), required) => Some((word, required)),
            _ => None,
        }
    }

    /// Holds a trace to the values that are required.
    ///
    /// # Errors
    /// Names the value that no rule took, and `why`.
    pub fn require(&self, trace: &[InstrRef], why: &[String]) -> Result<(), ScheduleError> {
        let made = || trace.iter().filter_map(Choose::of_instruction);
        let taken = |w: &&Wish| {
            let Choice { unit, point, value } = &w.choice;
            made().any(|c| c.unit == *unit && c.point == *point && c.value == *value)
        };
        let Some(open) = self.wishes.iter().filter(|w| w.required).find(|w| !taken(w)) else { return Ok(()) };
        let Choice { unit, point, value } = &open.choice;
        let mut own: Vec<&String> = why.iter().filter(|w| w.contains(&format!("`{point}`"))).collect();
        if own.is_empty() {
            own.extend(why);
        }
        let mut message = match own.is_empty() {
            true if point.as_str() == FUNCTION => format!("{} does not take the function", print_value(value)),
            true => format!("nothing chooses `{point}` for `{unit}`"),
            false => own.into_iter().map(String::as_str).collect::<Vec<_>>().join("; "),
        };
        if !made().any(|c| c.unit == *unit && c.point == *point) {
            let points: Vec<String> = made().map(|c| format!("{} of {}", c.point, c.unit)).collect();
            message.push_str(&format!("; choices here: {}", points.join(", ")));
        }
        let instruction = format!("choose {{unit={unit}, point={point}, value={}}}", print_value(value));
        Err(ScheduleError { instruction, message, loops: None })
    }
}

impl UnitScript {
    fn count(&self, point: &str) -> usize {
        let lines = self.instructions.iter().filter_map(Choose::of_instruction);
        lines.filter(|c| c.point.as_str() == point).count()
    }
}
