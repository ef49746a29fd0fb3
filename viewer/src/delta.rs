//! The difference of times between two compilations, box by box.

use crate::document::Document;
use compiler::trace::Comparison;
use graphview::picture::Node;

/// The rows of a comparison, by the groups of one of its sides.
pub struct Delta {
    rows: Vec<Pair>,
    row_of: Vec<Option<usize>>,
}

/// The time of something on both sides.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Pair {
    /// Milliseconds of each side, 0 where it does not run.
    pub ms: [f64; 2],
    /// Whether something in it changed by more than noise.
    pub changed: bool,
}
impl Pair {
    /// Milliseconds of the second side less those of the first.
    pub fn difference(self) -> f64 {
        self.ms[1] - self.ms[0]
    }
}

impl Delta {
    /// For one side of a comparison, which has so many groups.
    pub fn new(c: &Comparison, side: usize, groups: usize) -> Delta {
        let mut row_of = vec![None; groups];
        for (i, r) in c.rows.iter().enumerate().filter(|(_, r)| r.times.iter().any(Option::is_some)) {
            r.groups[side].iter().for_each(|&g| row_of[g] = Some(i));
        }
        let rows = c.rows.iter().map(|r| Pair { ms: r.median_us().map(|us| us / 1e3), changed: r.changed });
        Delta { rows: rows.collect(), row_of }
    }
    /// The times of the rows that a box is in; `None` for one without groups that were timed.
    pub fn of(&self, document: &Document, node: &Node) -> Option<Pair> {
        let mut rows: Vec<usize> = document.groups_of(node).iter().filter_map(|&g| self.row_of[g]).collect();
        rows.sort_unstable();
        rows.dedup();
        let sum =
            |s: Pair, r: Pair| Pair { ms: [s.ms[0] + r.ms[0], s.ms[1] + r.ms[1]], changed: s.changed || r.changed };
        rows.into_iter().map(|i| self.rows[i]).reduce(sum)
    }
}
