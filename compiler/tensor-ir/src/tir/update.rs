//! Results that a function stores in part, in the memory of an operand.

use super::{BufferId, TensorFunction, Update};
use crate::int::{Int, range};

impl TensorFunction {
    /// The update of this result, if it is stored in part.
    pub fn update(&self, result: BufferId) -> Option<&Update> {
        self.updates.iter().find(|u| u.result == result)
    }
    /// True if it is proved that no update's operand is read where the result is stored, and none is read for an index.
    pub fn updates_are_apart(&self) -> bool {
        let (blocks, bounds) = (self.body.blocks(), self.bounds());
        let disjoint = |a: &[Int], b: &[Int]| {
            let mut pairs = a.iter().zip(b).filter_map(|(a, b)| Some((range(a, &bounds)?, range(b, &bounds)?)));
            a.len() == b.len() && pairs.any(|(a, b)| a.1 < b.0 || b.1 < a.0)
        };
        let in_indices = |of: BufferId| blocks.iter().any(|b| b.is_indexed_by(of));
        self.updates.iter().all(|u| {
            let stores = || blocks.iter().filter(|b| b.buffer == u.result);
            let loads = blocks.iter().flat_map(|b| b.value.loads());
            !u.of.is_some_and(in_indices)
                && loads.filter(|l| Some(l.0) == u.of).all(|l| stores().all(|s| disjoint(l.1, &s.indices)))
        })
    }
    /// The buffer in whose memory `b` is: the result, for an operand that is updated.
    pub fn memory_of(&self, b: BufferId) -> BufferId {
        self.updates.iter().find(|u| u.of == Some(b)).map_or(b, |u| u.result)
    }
}
