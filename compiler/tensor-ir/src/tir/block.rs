//! The reads of a block, and its index expressions.

use super::{Block, BufferId};
use crate::int::{Int, IntNode};

impl Block {
    /// Calls `f` on every index expression: guards, store indices, value.
    pub fn visit_ints<'a>(&'a self, f: &mut dyn FnMut(&'a Int)) {
        for c in &self.guards {
            f(&c.lhs);
            f(&c.rhs);
        }
        self.indices.iter().for_each(&mut *f);
        self.value.visit_ints(f);
    }
    /// True when the value, an index or a guard loads from `buffer`.
    pub fn reads(&self, buffer: BufferId) -> bool {
        self.value.loads().iter().any(|l| l.0 == buffer) || self.is_indexed_by(buffer)
    }
    /// True when an index or a guard loads from `buffer`.
    pub fn is_indexed_by(&self, buffer: BufferId) -> bool {
        let mut found = false;
        self.visit_ints(&mut |i| {
            i.visit(&mut |n| found |= matches!(n.node(), IntNode::Load(b, _) if *b == buffer));
        });
        found
    }
    /// True when the block stores to `buffer` or loads from it.
    pub fn accesses(&self, buffer: BufferId) -> bool {
        self.buffer == buffer || self.reads(buffer)
    }
    /// Rewrites every index expression: guards, store indices, value.
    pub fn map_ints(&mut self, f: &mut dyn FnMut(&Int) -> Int) {
        self.guards = self.guards.iter().map(|c| c.map(f)).collect();
        self.indices = self.indices.iter().map(&mut *f).collect();
        self.value = self.value.map_ints(f);
    }
}
