//! The interface of a graph to patterns.

use crate::graph::{Function, Module, ValueId};

/// A graph function as seen by patterns: unchanged, or while it is rewritten.
pub trait Subject {
    /// The module (constants).
    fn module(&self) -> &Module;
    /// The function.
    fn function(&self) -> &Function;
    /// The current value for `v`.
    fn resolve(&self, v: ValueId) -> ValueId;
    /// Uses of a value as operand or block result.
    fn num_uses(&self, v: ValueId) -> u32;
}

/// A function that is not being rewritten.
pub struct Plain<'a> {
    module: &'a Module,
    function: &'a Function,
    uses: Vec<u32>,
}
impl<'a> Plain<'a> {
    /// Counts the uses once.
    pub fn new(module: &'a Module, function: &'a Function) -> Plain<'a> {
        Plain { module, function, uses: function.count_uses() }
    }
}
impl Subject for Plain<'_> {
    fn module(&self) -> &Module {
        self.module
    }
    fn function(&self) -> &Function {
        self.function
    }
    fn resolve(&self, v: ValueId) -> ValueId {
        v
    }
    fn num_uses(&self, v: ValueId) -> u32 {
        self.uses.get(crate::arena::Id::index(v)).copied().unwrap_or(0)
    }
}
