//! The state of an edited schedule.

use crate::live::attempt::{Attempt, Outcome, Refusal, Trier};
use std::sync::Arc;

/// The schedule that is being edited.
#[derive(Default)]
pub struct Edit {
    /// The kernel whose function's schedule it is.
    pub(super) kernel: Option<usize>,
    /// The instructions as they are now, one a line.
    pub text: String,
    pub(super) original: String,
    /// The text can be written in.
    pub writing: bool,
    pub(super) asked: Option<Attempt>,
    /// What came of keeping it.
    pub(super) said: Option<String>,
    pub(super) trier: Option<Trier>,
    /// All values of a choice.
    pub(super) sweep: Option<Sweep>,
}

/// All values of one choice, each tried.
pub(super) struct Sweep {
    /// The choice.
    pub(super) point: String,
    /// The value that the schedule has.
    pub(super) current: String,
    /// Values, each with its schedule.
    pub(super) tries: Vec<(String, Attempt)>,
}

/// The answer to an attempt.
pub(super) type Answer = Result<Arc<Outcome>, Refusal>;

impl Edit {
    /// Whether something is being tried.
    pub fn busy(&mut self) -> bool {
        self.trier.as_mut().is_some_and(Trier::busy)
    }
    pub(super) fn changed(&self) -> bool {
        self.text != self.original
    }
    /// Starts with the schedule of a kernel.
    pub(super) fn take(&mut self, kernel: usize, schedule: &[String]) {
        if self.kernel != Some(kernel) {
            let text = schedule.join("\n");
            (self.kernel, self.original, self.asked, self.writing) = (Some(kernel), text.clone(), None, false);
            (self.text, self.sweep, self.said) = (text, None, None);
        }
    }
    /// The result of the last attempt on a kernel, if it was legal and is there.
    pub(super) fn outcome(&mut self, kernel: usize) -> Option<Arc<Outcome>> {
        let asked = self.asked.clone().filter(|_| self.kernel == Some(kernel))?;
        self.trier.as_mut()?.get(&asked)?.ok()
    }
}
