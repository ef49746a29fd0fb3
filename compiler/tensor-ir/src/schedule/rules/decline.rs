//! The reason why a rule does not take a unit.

use crate::schedule::ScheduleError;

/// Why a rule does not take a unit; empty when the unit is simply not of its kind.
#[derive(Clone, Debug)]
pub struct Decline(pub String);
impl From<ScheduleError> for Decline {
    fn from(e: ScheduleError) -> Decline {
        Decline(format!("{} does not apply: {}", e.instruction, e.message))
    }
}
impl Decline {
    /// Not of the rule's kind: nothing to explain.
    pub fn other_kind() -> Decline {
        Decline(String::new())
    }
}
