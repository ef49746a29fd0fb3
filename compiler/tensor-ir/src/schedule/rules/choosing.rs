//! Choices of the rule at work, in a sketch.

use super::decline::Decline;
use super::sketch::Sketch;
use crate::attr::print::print_value;
use crate::attr::{Attr, AttrValue};
use crate::name::Name;
use crate::schedule::choose::print_domain;
use crate::schedule::{Choose, InstrRef, ScheduleError, apply};

impl Sketch<'_> {
    /// A free choice of the rule at work: the value that is given for it, else `default`. It stands in the trace with
    /// its `domain`, unless there is nothing else to choose.
    ///
    /// # Errors
    /// Declines when the value that is given is not in the domain.
    pub fn choose<T: AttrValue>(&mut self, point: &str, domain: &[T], default: T) -> Result<T, Decline> {
        debug_assert!(domain.contains(&default), "the default of {point} is not in its domain");
        let wish = self.script.wish(self.unit, point);
        let value = match wish {
            None => default,
            Some((given, required)) => match T::from_attr(given).filter(|v| domain.contains(v)) {
                Some(v) => v,
                None if !required => default,
                None => {
                    let all: Vec<Attr> = domain.iter().map(T::to_attr).collect();
                    let given = print_value(given);
                    return Err(Decline(format!("`{point}` is one of {}, not {given}", print_domain(&all))));
                }
            },
        };
        if domain.len() > 1 || wish.is_some() {
            self.note_choice(self.unit, point, &value, domain);
        }
        Ok(value)
    }

    /// Records a choice.
    pub(super) fn note_choice<T: AttrValue>(&mut self, unit: Name, point: &str, value: &T, domain: &[T]) {
        let others = domain.iter().filter(|v| *v != value);
        let of = std::iter::once(value).chain(others).map(T::to_attr).collect();
        let line = Choose { unit, point: Name::new(point), value: value.to_attr(), of };
        // Refused for a unit that is not there, and then there is nothing to record.
        let _ = apply(&mut self.f, InstrRef::new(line));
    }

    /// Applies instructions as they are written.
    ///
    /// # Errors
    /// At the first that does not apply.
    pub(super) fn replay(&mut self, list: &[InstrRef]) -> Result<(), ScheduleError> {
        crate::schedule::replay(&mut self.f, list)
    }
}
