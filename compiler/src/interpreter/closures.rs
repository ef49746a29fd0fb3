//! Function values of a run. Among tensors, a function value is represented by its number.

use crate::graph::{BlockId, ValueId};
use crate::name::Name;
use crate::tensor::Tensor;
use rustc_hash::FxHashMap;

/// Function values that one run may make, at most: none is forgotten before it ends.
const MOST: usize = 1 << 20;

/// A function with what it captured.
#[derive(Clone)]
pub(super) enum Closure {
    /// A graph function, and its first operands.
    Function(Name, Vec<Tensor>),
    /// A region of a graph function, and the values around it that it uses.
    Region(Name, BlockId, FxHashMap<ValueId, Tensor>),
}

/// The function values of a run.
#[derive(Default)]
pub(super) struct Closures {
    list: Vec<Closure>,
}

impl Closures {
    /// Forgets all of an earlier run.
    pub fn clear(&mut self) {
        self.list.clear();
    }
    /// A new one, as the one result of its node.
    pub fn add(&mut self, c: Closure) -> Result<Vec<Tensor>, String> {
        if self.list.len() >= MOST {
            return Err(format!("the run makes more than {MOST} function values"));
        }
        self.list.push(c);
        Ok(vec![Tensor::scalar(self.list.len() as i64 - 1)])
    }
    /// The one that a tensor stands for.
    pub fn get(&self, t: &Tensor) -> Option<Closure> {
        let number = t.to_i64_vec().first().copied()?;
        self.list.get(usize::try_from(number).ok()?).cloned()
    }
}
