//! Functions of open sizes: which symbols they have, and what they are for given ones.

use super::{BufferId, Stmt, TensorFunction};
use crate::int::{DimRanges, Int, typical_size};
use crate::name::Name;
use rustc_hash::{FxHashMap, FxHashSet};

impl TensorFunction {
    /// The variables of shapes and of the body that no loop defines, in the order in which they occur.
    pub fn free_variables(&self) -> Vec<Name> {
        let mut loops: FxHashSet<Name> = FxHashSet::default();
        self.body.visit(&mut |s| {
            if let Stmt::For(l) = s {
                loops.insert(l.var);
            }
        });
        let mut free = vec![];
        let mut note = |i: &Int| {
            for v in i.vars() {
                if !loops.contains(&v) && !free.contains(&v) {
                    free.push(v);
                }
            }
        };
        self.buffers.iter().flat_map(|(_, b)| &b.shape).for_each(&mut note);
        self.body.visit(&mut |s| match s {
            Stmt::For(l) => note(&l.extent),
            Stmt::Block(b) => b.visit_ints(&mut note),
            Stmt::Seq(_) | Stmt::Barrier | Stmt::Kernel(..) => {}
        });
        free
    }

    /// Declares the free variables as symbols, with these ranges.
    pub fn declare_symbols(&mut self, ranges: &DimRanges) {
        let free = self.free_variables().into_iter();
        self.symbols = free.map(|v| (v, ranges.range(v).0, ranges.range(v).1)).collect();
    }

    /// What the declared symbols are for a caller whose values have these shapes: dimensions of parameters that are a symbol alone,
    /// the first of several. Symbols are a function's own, whatever a caller calls its sizes.
    pub fn unify<'s>(&self, shapes: impl IntoIterator<Item = (BufferId, &'s [Int])>) -> FxHashMap<Name, Int> {
        let mut known = FxHashMap::default();
        for (b, shape) in shapes {
            for (d, is) in self.caller_shape(b).iter().zip(shape) {
                if let Some(symbol) = d.as_var().filter(|v| self.symbols.iter().any(|s| s.0 == *v)) {
                    known.entry(symbol).or_insert_with(|| is.clone());
                }
            }
        }
        known
    }

    /// The shape that a caller gives a parameter: what its packer reads, where it has one.
    pub fn caller_shape(&self, b: BufferId) -> &[Int] {
        let packer = self.prepacks.iter().find(|p| p.buffer == b).map(|p| &p.packer);
        match packer.and_then(|p| Some((p, p.inputs().next()?))) {
            Some((packer, source)) => packer.caller_shape(source),
            None => self.declared_shape(b),
        }
    }

    /// The function with values for symbols, whose declarations go.
    pub fn with_sizes(&self, values: &FxHashMap<Name, i64>) -> TensorFunction {
        let mut replace = |e: &Int| e.replace(&mut |v| values.get(&v).map(|&n| Int::new(n)));
        let mut out = self.clone();
        out.symbols.retain(|s| !values.contains_key(&s.0));
        out.map_declared_shapes(&mut replace);
        for (_, b) in out.buffers.iter_mut() {
            b.shape = b.shape.iter().map(&mut replace).collect();
        }
        out.body.visit_mut(&mut |s| match s {
            Stmt::For(l) => l.extent = replace(&l.extent),
            Stmt::Block(b) => b.map_ints(&mut replace),
            Stmt::Seq(_) | Stmt::Barrier | Stmt::Kernel(..) => {}
        });
        out
    }

    /// The function for sizes that stand for all others, each `more` larger: for choices that have to be made for all of them.
    pub fn at_typical_sizes(&self, more: i64) -> TensorFunction {
        let within = |&(name, low, high): &(Name, i64, i64)| (name, (typical_size((low, high)) + more).min(high));
        self.with_sizes(&self.symbols.iter().map(within).collect())
    }
}
