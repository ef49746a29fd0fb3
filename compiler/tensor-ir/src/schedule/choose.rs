//! `choose`: records a choice of a rule, with the other values that it could have taken.
//!
//! Before -> after, `choose {unit=y, point=threads, value=64, of=[64,32,16]}`: nothing changes.
//!
//! ```text
//! for i in 0..640:                  for i in 0..640:
//!   y: y[i] = f(i)                    y: y[i] = f(i)
//! ```
//!
//! `of` begins with the value for which the following instructions were made; the rest of the domain follows. A line
//! with another `value` has been *edited*: the following instructions do not match it, so it cannot be applied.
//! [`follow_choices`](super::rules::follow_choices) asks the rules again and writes a schedule for the new value.

use super::loops::find_block;
use super::{InstrRef, Instruction, Refusal, ScheduleError};
use crate::attr::Attr;
use crate::attr::print::print_value;
use crate::attr_struct;
use crate::name::Name;
use crate::tir::TensorFunction;

attr_struct! {
    /// Records a choice of a schedule rule.
    pub struct Choose("choose") {
        /// The block that names the unit: its reduction, or the block that writes its result.
        pub unit: Name = "".into(),
        /// The name of the choice: `rule`, `rows`, `threads` ...
        pub point: Name = "".into(),
        /// The value.
        pub value: Attr = Attr::List(vec![]),
        /// The domain; first the value that the schedule was made with.
        pub of: Vec<Attr> = vec![],
    }
}

impl Choose {
    /// True when the schedule behind the line was made with another value.
    pub fn is_edited(&self) -> bool {
        self.of.first() != Some(&self.value)
    }
    /// The line of an instruction that is one.
    pub fn of_instruction(i: &InstrRef) -> Option<&Choose> {
        i.as_any().downcast_ref()
    }
}

/// The values of a domain, for messages.
pub(super) fn print_domain(values: &[Attr]) -> String {
    values.iter().map(print_value).collect::<Vec<_>>().join(", ")
}

impl Instruction for Choose {
    fn rewrites(&self) -> bool {
        false
    }
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        find_block(f, self.unit)?;
        if self.is_edited() {
            let made = self.of.first().map_or("nothing".into(), print_value);
            let (point, value) = (self.point, print_value(&self.value));
            return Err(Refusal::at(
                self.unit,
                format!("`{point}` is {value} here, but the instructions behind it were made with {made}"),
            ));
        }
        Ok(())
    }
}

/// Adds an instruction that rewrites nothing to the function's trace.
///
/// # Errors
/// When it does not apply.
pub(super) fn note(f: &mut TensorFunction, i: InstrRef) -> Result<(), ScheduleError> {
    i.apply(f).map_err(|r| ScheduleError {
        instruction: i.text(),
        message: r.message,
        loops: r.culprit.map(|c| super::print_loops(f, &f.body, Some(c))),
    })?;
    f.note_mention(&i);
    f.trace.push(i);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    #[test]
    fn a_choice_leaves_the_loops_as_they_are() {
        let f = matmul(4, 4, 4);
        let g = scheduled(&f, &["choose {unit=mm, point=rows, value=4, of=[4,2]}"]);
        assert_eq!(f.body, g.body);
        assert_eq!(g.trace.len(), 1);
        assert_same(&f, &g);
    }

    #[test]
    fn an_edited_choice_does_not_pass_for_what_stands_behind_it() {
        let f = matmul(4, 4, 4);
        let e = refusal(&f, "choose {unit=mm, point=rows, value=2, of=[4,2]}");
        assert!(e.contains("`rows` is 2 here, but the instructions behind it were made with 4"), "{e}");
        let e = refusal(&f, "choose {unit=none, point=rows, value=4, of=[4,2]}");
        assert!(e.contains("none"), "{e}");
    }
}
