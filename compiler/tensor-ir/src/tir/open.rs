//! Functions of open sizes: their symbols, and the function for given sizes. [`TensorFunction::at_typical_sizes`] is
//! the one place where costs guess a size.

use super::{BufferId, Stmt, TensorFunction};
use crate::int::{Bounds, DimRanges, Int, simplify, terms, typical_size};
use crate::name::Name;
use rustc_hash::{FxHashMap, FxHashSet};
use std::borrow::Cow;

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

    /// Declares the free variables as symbols, with these ranges. A range from 0 is declared from 1 if no result has
    /// elements at size 0: no kernel runs then, and proofs for the other sizes become possible (a remainder by a size
    /// that may be 0 has no bounds).
    pub fn declare_symbols(&mut self, ranges: &DimRanges) {
        let none = |symbol: Name| {
            let nothing = |b: BufferId| self.buffers[b].numel().substitute(symbol, &Int::new(0)).is(0);
            self.outputs().all(nothing)
        };
        let range = |v: Name| match ranges.range(v) {
            (0, high @ 1..) if none(v) => (v, 1, high),
            (low, high) => (v, low, high),
        };
        self.symbols = self.free_variables().into_iter().map(range).collect();
    }

    /// The values of the declared symbols for a caller with these shapes. A symbol is taken from the first parameter
    /// dimension that is just the symbol, else from one of the form symbol * number + number. Symbols are local to the
    /// function, so one function serves calls of different shapes with one kernel.
    pub fn unify<'s>(&self, shapes: impl IntoIterator<Item = (BufferId, &'s [Int])>) -> FxHashMap<Name, Int> {
        let mut known = FxHashMap::default();
        let mut sums: FxHashMap<Name, Int> = FxHashMap::default();
        let own = |v: &Name| self.symbols.iter().any(|s| s.0 == *v);
        for (b, shape) in shapes {
            for (d, is) in self.caller_shape(b).iter().zip(shape) {
                if let Some(symbol) = d.as_var().filter(own) {
                    known.entry(symbol).or_insert_with(|| is.clone());
                } else if let Some((symbol, times, plus)) = of_one_symbol(d).filter(|s| own(&s.0)) {
                    let of = || simplify(&(is.clone() - plus).div(times), &Bounds::new());
                    sums.entry(symbol).or_insert_with(of);
                }
            }
        }
        for (symbol, is) in sums {
            known.entry(symbol).or_insert(is);
        }
        known
    }

    /// Checks a caller's sizes: each symbol needs a value, and a value that is a number must be within its range.
    ///
    /// # Errors
    /// The first symbol without a size, or with one beyond its range.
    pub fn check_sizes(&self, sizes: &FxHashMap<Name, Int>) -> Result<(), String> {
        self.symbols.iter().try_for_each(|(symbol, low, high)| match sizes.get(symbol).map(Int::as_const) {
            None => Err(format!("no operand's shape says what `{symbol}` of @{} is", self.name)),
            Some(Some(size)) if !(*low..=*high).contains(&size) => {
                Err(format!("`{symbol}` of @{} is {size}, declared {low} to {high}", self.name))
            }
            Some(_) => Ok(()),
        })
    }

    /// The shape that a caller passes for a parameter: the shape that its packer reads, if it has one.
    pub fn caller_shape(&self, b: BufferId) -> &[Int] {
        let packer = self.prepacks.iter().find(|p| p.buffer == b).map(|p| &p.packer);
        match packer.and_then(|p| Some((p, p.inputs().next()?))) {
            Some((packer, source)) => packer.caller_shape(source),
            None => self.declared_shape(b),
        }
    }

    /// Replaces symbols by expressions, here and in packers, except the symbols that `self` declares.
    pub fn substitute_symbols(&mut self, values: &FxHashMap<Name, Int>) {
        let own: Vec<Name> = self.symbols.iter().map(|s| s.0).collect();
        self.replace_variables(&|v| values.get(&v).filter(|_| !own.contains(&v)).cloned());
        self.prepacks.iter_mut().for_each(|p| p.packer.substitute_symbols(values));
    }

    /// The function with symbols replaced by values; their declarations are removed.
    pub fn with_sizes(&self, values: &FxHashMap<Name, i64>) -> TensorFunction {
        let mut out = self.clone();
        out.symbols.retain(|s| !values.contains_key(&s.0));
        out.replace_variables(&|v| values.get(&v).map(|&n| Int::new(n)));
        out
    }

    fn replace_variables(&mut self, of: &dyn Fn(Name) -> Option<Int>) {
        let mut replace = |e: &Int| e.replace(&mut |v| of(v));
        self.map_declared_shapes(&mut replace);
        for (_, b) in self.buffers.iter_mut() {
            b.shape.iter_mut().for_each(|d| *d = replace(d));
        }
        self.body.visit_mut(&mut |s| match s {
            Stmt::For(l) => l.extent = replace(&l.extent),
            Stmt::Block(b) => b.map_ints(&mut replace),
            Stmt::Seq(_) | Stmt::Barrier | Stmt::Kernel(..) => {}
        });
    }

    /// Typical sizes of the symbols, for choices that hold for all sizes; with `prime`, the next sizes without
    /// divisors.
    pub fn typical_sizes(&self, prime: bool) -> Vec<(Name, i64)> {
        let within = |&(name, low, high): &(Name, i64, i64)| {
            let size = typical_size((low, high));
            (name, if prime { next_prime(size).min(high) } else { size })
        };
        self.symbols.iter().map(within).collect()
    }

    /// A function without open sizes, for estimates: symbols get typical sizes of their declared ranges, other
    /// variables of `ranges`.
    pub fn at_typical_sizes(&self, ranges: &DimRanges) -> Cow<'_, TensorFunction> {
        let free = self.free_variables();
        if free.is_empty() {
            return Cow::Borrowed(self);
        }
        let mut sizes: FxHashMap<Name, i64> = free.into_iter().map(|v| (v, typical_size(ranges.range(v)))).collect();
        sizes.extend(self.typical_sizes(false));
        Cow::Owned(self.with_sizes(&sizes))
    }
}

/// The symbol, factor and constant of `n*factor + constant`, with a factor of at least 1.
fn of_one_symbol(d: &Int) -> Option<(Name, i64, i64)> {
    let (terms, constant) = terms(d)?;
    match terms.as_slice() {
        [(atom, times @ 1..)] => Some((atom.as_var()?, *times, constant)),
        _ => None,
    }
}

/// The least prime number above `n`.
fn next_prime(n: i64) -> i64 {
    let is_prime = |n: &i64| (2..).take_while(|d| d * d <= *n).all(|d| n % d != 0);
    (n.max(1) + 1..).find(is_prime).unwrap_or(n)
}
