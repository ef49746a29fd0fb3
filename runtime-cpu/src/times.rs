//! What a run did when.

use std::time::Instant;

/// Something that a run did, in microseconds from its beginning.
#[derive(Clone, PartialEq, Debug)]
pub struct Span {
    /// What.
    pub work: Work,
    /// When it began.
    pub start: f64,
    /// When it was done.
    pub end: f64,
}

/// A part of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Work {
    /// Inputs are brought into the form that kernels read.
    Inputs,
    /// A dispatch, by its number in [`Plan::dispatches`](tensor_ir::plan::Plan::dispatches).
    Kernel(usize),
    /// A dispatch is prepared, or a loop goes on.
    Prepare,
    /// A step on tensors, by its name and group.
    Host(String, usize),
    /// Tensors of a step are brought into the form of kernels, or from it.
    Operands,
    /// A buffer is copied.
    Copy,
    /// Results are read.
    Outputs,
}

/// A dispatch's times over a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct DispatchTime {
    /// How often it ran.
    pub calls: u64,
    /// Nanoseconds of all of them.
    pub ns: f64,
}

impl DispatchTime {
    /// The sums for `count` dispatches, in the order of [`Plan::dispatches`](tensor_ir::plan::Plan::dispatches).
    pub fn of(spans: &[Span], count: usize) -> Vec<DispatchTime> {
        let mut all = vec![DispatchTime::default(); count];
        for s in spans {
            if let Work::Kernel(i) = s.work {
                all[i].calls += 1;
                all[i].ns += (s.end - s.start) * 1e3;
            }
        }
        all
    }
}

/// Spans that are kept at most: loops may have any number of turns. The time of further ones is left out.
const MOST: usize = 1 << 21;

/// Notes of a run, which leave no time out.
pub(crate) struct Log {
    start: Instant,
    spans: Vec<Span>,
}

impl Log {
    pub(crate) fn new() -> Log {
        Log { start: Instant::now(), spans: vec![] }
    }
    /// Notes what went on since the last note.
    pub(crate) fn note(&mut self, work: Work) {
        if self.spans.len() == MOST {
            return;
        }
        let start = self.spans.last().map_or(0.0, |s| s.end);
        self.spans.push(Span { work, start, end: self.start.elapsed().as_secs_f64() * 1e6 });
    }
    pub(crate) fn done(self) -> Vec<Span> {
        self.spans
    }
}
