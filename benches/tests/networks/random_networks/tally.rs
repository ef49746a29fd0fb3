//! Counts networks that were drawn and discarded, and steps that did not fit. They are printed, and bounded: a
//! generator that discards most of its networks tests little.

use super::recipe::Drawn;
use std::cell::Cell;
use std::io::Write;

/// Counts of one test.
#[derive(Default)]
pub struct Tally {
    networks: Cell<usize>,
    rejected: Cell<usize>,
    steps: Cell<usize>,
    left_out: Cell<usize>,
}

/// Rejected networks for each hundred drawn, at most.
pub const MOST_REJECTED: usize = 40;
/// Steps that did not fit for each hundred drawn, at most.
const MOST_LEFT_OUT: usize = 40;

fn add(counter: &Cell<usize>, n: usize) {
    counter.set(counter.get() + n);
}

impl Tally {
    /// A network was drawn.
    pub fn drawn(&self, drawn: &Drawn) {
        add(&self.networks, 1);
        add(&self.steps, drawn.steps);
        add(&self.left_out, drawn.left_out);
    }
    /// It says nothing, and another is drawn for it.
    pub fn rejected(&self) {
        add(&self.rejected, 1);
    }
    /// Prints the counts, past the capture of what tests print.
    ///
    /// # Panics
    /// When too much was thrown away.
    pub fn report(&self, test: &str) {
        self.report_with(test, MOST_REJECTED);
    }
    /// As [`Tally::report`], where so many of a hundred may be rejected.
    ///
    /// # Panics
    /// As there.
    pub fn report_with(&self, test: &str, most: usize) {
        let share = |part: &Cell<usize>, of: &Cell<usize>| 100 * part.get() / of.get().max(1);
        let (rejected, left_out) = (share(&self.rejected, &self.networks), share(&self.left_out, &self.steps));
        let text = format!(
            "{test}: {} networks drawn, {} rejected ({rejected} %, at most {most}); {} steps, {} left out ({left_out} %, at most {MOST_LEFT_OUT})\n",
            self.networks.get(),
            self.rejected.get(),
            self.steps.get(),
            self.left_out.get(),
        );
        let _ = std::io::stderr().write_all(text.as_bytes());
        assert!(rejected <= most && left_out <= MOST_LEFT_OUT, "{text}");
    }
}
