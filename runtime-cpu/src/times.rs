//! What a run did when.

use rustc_hash::FxHashMap;
use std::time::Instant;
use tensor_ir::plan::{Dispatch, Plan};

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
    /// A dispatch, by its number in [`Plan::dispatches`].
    Kernel(usize),
    /// A dispatch is prepared.
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
    /// The sums for `count` dispatches.
    pub(crate) fn of(spans: &[Span], count: usize) -> Vec<DispatchTime> {
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

/// Notes of a run.
pub(crate) struct Log {
    start: Instant,
    /// Numbers of dispatches, by where they stand in the plan.
    numbers: FxHashMap<*const Dispatch, usize>,
    spans: Vec<Span>,
}

impl Log {
    pub(crate) fn new(plan: &Plan) -> Log {
        let numbers = plan.dispatches().enumerate().map(|(i, d)| (std::ptr::from_ref(d), i)).collect();
        Log { start: Instant::now(), numbers, spans: vec![] }
    }
    /// Microseconds since the run began.
    pub(crate) fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64() * 1e6
    }
    /// Notes what went on from `start` to now.
    pub(crate) fn note(&mut self, start: f64, work: Work) {
        self.spans.push(Span { work, start, end: self.now() });
    }
    /// The number of a dispatch.
    pub(crate) fn position(&self, d: &Dispatch) -> Option<usize> {
        self.numbers.get(&std::ptr::from_ref(d)).copied()
    }
    pub(crate) fn done(self) -> Vec<Span> {
        self.spans
    }
}
