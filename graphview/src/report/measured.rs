//! A compilation with what several runs measured of it.

use super::difference::Beside;
use crate::reasons::accumulated;
use compiler::trace::{CompileTrace, Errors};

/// A trace, with the times and the errors of its nodes alone from whichever trace has them, and the accumulated errors
/// beside them.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// The compilation. Its errors are those of each node alone.
    pub trace: CompileTrace,
    /// Errors that include those of the nodes before.
    pub accumulated: Option<Errors>,
    /// Another compilation of the model, which the report compares with this one.
    pub beside: Option<Beside>,
}

/// Two traces are of different compilations: what differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotTheSame(pub String);

impl Measured {
    /// A trace alone. It may have both kinds of errors.
    pub fn new(mut trace: CompileTrace) -> Measured {
        let accumulated = trace.errors.take_if(|e| e.cumulative).or(trace.errors.as_ref().and_then(accumulated));
        Measured { trace, accumulated, beside: None }
    }
    /// Takes what is not there yet from another trace of the same compilation.
    ///
    /// # Errors
    /// The other trace is of another compilation: its groups or kernels are others.
    pub fn take(&mut self, other: CompileTrace) -> Result<(), NotTheSame> {
        self.compare(&other)?;
        // Such a trace says more of them than one that has both kinds.
        let whole = other.errors.as_ref().is_some_and(|e| e.cumulative);
        let other = Measured::new(other);
        self.trace.times = self.trace.times.take().or(other.trace.times);
        self.trace.errors = self.trace.errors.take().or(other.trace.errors);
        self.trace.ranges = self.trace.ranges.take().or(other.trace.ranges);
        self.trace.driver_stats = self.trace.driver_stats.take().or(other.trace.driver_stats);
        self.accumulated = match whole {
            true => other.accumulated,
            false => self.accumulated.take().or(other.accumulated),
        };
        Ok(())
    }
    fn compare(&self, other: &CompileTrace) -> Result<(), NotTheSame> {
        let t = &self.trace;
        let differ = |what: &str, a: &str, b: &str| Err(NotTheSame(format!("{what} {a} and {b}")));
        if t.profile_name != other.profile_name {
            return differ("they are for the devices", &t.profile_name, &other.profile_name);
        }
        let counts = |t: &CompileTrace| {
            let calls = t.calls().count();
            format!(
                "{} nodes, {} groups, {} kernels, {calls} dispatches",
                t.sources.len(),
                t.groups.len(),
                t.kernels.len()
            )
        };
        if counts(t) != counts(other) {
            return differ("they have", &counts(t), &counts(other));
        }
        let kernels = t.kernels.iter().zip(&other.kernels).find(|(a, b)| a.name != b.name || a.wgsl != b.wgsl);
        match kernels {
            Some((a, b)) => differ("these kernels differ:", &a.name, &b.name),
            None => Ok(()),
        }
    }
}
