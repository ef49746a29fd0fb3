//! Reads of expressions, and the lanes that run them.

use super::tally::OPEN;
use crate::int::Int;
use crate::name::Name;
use crate::tir::BufferId;

/// A loop with its iterations.
pub(super) type Loop = (Name, i64);

/// An element that an expression reads.
pub(super) struct Read {
    pub buffer: BufferId,
    pub index: Vec<Int>,
    /// The dimension that packing puts innermost.
    pub innermost: Option<usize>,
}

impl Read {
    /// The same at another index.
    pub fn with_index(mut self, f: &mut dyn FnMut(&Int) -> Int) -> Read {
        self.index = self.index.iter().map(f).collect();
        self
    }
    /// The element.
    pub fn element(&self) -> (BufferId, &[Int]) {
        (self.buffer, &self.index)
    }
    /// The variables of its index.
    pub fn variables(&self) -> Vec<Name> {
        self.index.iter().flat_map(|i| i.vars()).collect()
    }
    /// The same for threads of several neighbouring windows along the loop `along`, which then runs over threads.
    pub fn spread(&mut self, along: Name, windows: i64) {
        let to = Int::var(along) * windows + Int::var(neighbour());
        self.index.iter_mut().for_each(|i| *i = i.replace(&mut |v| (v == along).then(|| to.clone())));
    }
    /// True if packing makes neighbours along the loop adjacent.
    pub fn is_packed_along(&self, v: Name) -> bool {
        self.innermost.is_some_and(|d| self.variable(d) == Some(v))
    }
    /// Its dimensions as they lie in memory, outermost first.
    pub fn dimensions(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.index.len()).filter(|d| Some(*d) != self.innermost).chain(self.innermost)
    }
    /// The variable that is its index in dimension `d`.
    pub fn variable(&self, d: usize) -> Option<Name> {
        self.index.get(d).and_then(|i| i.as_var())
    }
}

/// The work for one element of an expression.
#[derive(Default)]
pub(super) struct Demand {
    pub operations: f64,
    /// Whether it is more than elements, chosen and converted.
    pub computes: bool,
    pub reads: Vec<Read>,
}

impl Demand {
    /// The same without reads of `b`.
    pub fn without(mut self, b: Option<BufferId>) -> Demand {
        self.reads.retain(|r| Some(r.buffer) != b);
        self
    }
}

/// Which iterations the lanes of a subgroup run, and those of one lane's vector.
pub(super) struct Lanes<'a> {
    /// Loops that tell lanes apart, outermost first.
    pub order: &'a [Loop],
    /// Iterations of a lane's vector: of the last of these loops, or of `along`.
    pub width: i64,
    pub along: Option<Name>,
}

/// The windows of a thread, by the loops that the rules run for their elements.
pub(super) struct Window<'a> {
    /// Loops that are unrolled, with that of [`neighbour`] windows.
    pub unrolled: &'a [Loop],
    /// The others.
    pub rolled: &'a [Loop],
    /// The last thread has fewer windows, so that each place is held within the buffer and loaded alone.
    pub limited: bool,
}

/// The loop over the neighbouring windows of a thread.
pub(super) fn neighbour() -> Name {
    Name::new("neighbour window")
}

/// The cost of one access of a vector by a subgroup.
#[derive(Clone, Copy)]
pub(super) struct Touch {
    pub accesses: f64,
    pub sectors: f64,
}

pub(super) fn extent(n: &Int) -> i64 {
    n.eval(&|_| Some(OPEN)).unwrap_or(OPEN).max(1)
}

pub(super) fn iterations(loops: &[Loop]) -> f64 {
    loops.iter().map(|l| l.1 as f64).product()
}
