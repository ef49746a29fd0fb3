//! The one simplifier of [`Int`].
//!
//! An expression becomes a linear form (`linear.rs`): a sum of constant multiples of *atoms* plus a constant, sorted.
//! Atoms are variables, loads, products of atoms, and all divisions, remainders, minima and maxima that no rule
//! removes. The rules of an operator are in its file; rules on pairs of terms of one sum are in `recombine.rs`.
//!
//! Always holds: every rule is an identity on the integers for all values of the variables, if divisors are positive
//! (for a divisor that is a product: if each factor is positive). An expression whose coefficients leave i64, or whose
//! products have too many terms, is returned unchanged, and so is a division by a constant below 1.

mod div;
mod linear;
mod minmax;
mod modulo;
mod recombine;
mod symbolic;
#[cfg(test)]
mod tests;

use super::{Bounds, Int, IntNode, Interval, gcd};
use super::{Cond, CondOp};
use linear::Linear;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Rewrites `e` to an equal, simpler expression, given the ranges of its variables.
pub fn simplify(e: &Int, bounds: &Bounds) -> Int {
    match e.node() {
        IntNode::Const(_) => e.clone(),
        IntNode::Var(v) => match bounds.get(*v) {
            Some((low, high)) if low == high => Int::new(low),
            _ => e.clone(),
        },
        _ => {
            let mut s = Simplifier::new(bounds);
            match s.form(e) {
                Some(l) => s.rebuild(&l),
                None => e.clone(),
            }
        }
    }
}

/// True if `low <= e <= high` is proved; `i64::MIN` and `i64::MAX` mean no bound.
pub fn prove(e: &Int, low: i64, high: i64, bounds: &Bounds) -> bool {
    if super::interval(e, bounds).within(low, high) {
        return true;
    }
    let mut s = Simplifier::new(bounds);
    s.form(e).is_some_and(|l| s.span(&l).within(low, high))
}

/// Whether `c` always holds (`Some(true)`), never holds (`Some(false)`), or is not decided.
pub fn prove_cond(c: &Cond, bounds: &Bounds) -> Option<bool> {
    let mut s = Simplifier::new(bounds);
    let Some(difference) = s.difference(c) else {
        return c.op.decide(super::interval(&(c.lhs.clone() - &c.rhs), bounds));
    };
    c.op.decide(s.span(&difference)).or_else(|| {
        let never = c.op == CondOp::Eq && never_zero(difference.terms.iter().map(|t| t.1), difference.constant);
        never.then_some(false)
    })
}

/// g*A + r == 0 has no solution unless g divides r.
pub(super) fn never_zero(coefficients: impl Iterator<Item = i64>, constant: i64) -> bool {
    let g = coefficients.fold(0, gcd);
    g > 1 && constant % g != 0
}

/// One call's state: forms and ranges of compound nodes by address (the node is kept alive beside them).
struct Simplifier<'b> {
    bounds: &'b Bounds,
    forms: FxHashMap<*const IntNode, (Int, Linear)>,
    ranges: FxHashMap<*const IntNode, (Int, Interval)>,
}

impl<'b> Simplifier<'b> {
    fn new(bounds: &'b Bounds) -> Self {
        Simplifier { bounds, forms: FxHashMap::default(), ranges: FxHashMap::default() }
    }

    /// The simplified linear form of `e`; `None` when a coefficient leaves i64 or a product is too large.
    fn form(&mut self, e: &Int) -> Option<Linear> {
        match e.node() {
            IntNode::Const(c) => return Some(Linear::constant(*c)),
            IntNode::Var(v) => {
                return Some(match self.bounds.get(*v) {
                    Some((low, high)) if low == high => Linear::constant(low),
                    _ => Linear::atom(e.clone()),
                });
            }
            _ => {}
        }
        if let Some((_, known)) = self.forms.get(&Arc::as_ptr(&e.0)) {
            return Some(known.clone());
        }
        let l = match e.node() {
            IntNode::Load(b, ix) => {
                let mut simple = Vec::with_capacity(ix.len());
                for i in ix {
                    let l = self.form(i)?;
                    simple.push(self.rebuild(&l));
                }
                Linear::atom(Int::load(*b, simple))
            }
            IntNode::Div(a, b) => {
                let (a, b) = (self.form(a)?, self.form(b)?);
                self.div(a, b)?
            }
            IntNode::Mod(a, b) => {
                let (a, b) = (self.form(a)?, self.form(b)?);
                self.modulo(a, b)?
            }
            IntNode::Min(a, b) => {
                let (a, b) = (self.form(a)?, self.form(b)?);
                self.extremum(a, b, true)?
            }
            IntNode::Max(a, b) => {
                let (a, b) = (self.form(a)?, self.form(b)?);
                self.extremum(a, b, false)?
            }
            _ => {
                let mut sum = Linear::constant(0);
                self.collect(e, 1, &mut sum)?;
                self.recombine(sum)?
            }
        };
        self.forms.insert(Arc::as_ptr(&e.0), (e.clone(), l.clone()));
        Some(l)
    }

    /// Adds `k * e` to `sum` without pairing terms.
    fn collect(&mut self, e: &Int, k: i64, sum: &mut Linear) -> Option<()> {
        match e.node() {
            IntNode::Add(a, b) => {
                self.collect_shared(a, k, sum)?;
                self.collect_shared(b, k, sum)
            }
            IntNode::Sub(a, b) => {
                self.collect_shared(a, k, sum)?;
                self.collect_shared(b, k.checked_neg()?, sum)
            }
            IntNode::Mul(a, b) => match (a.as_const(), b.as_const()) {
                (Some(c), _) => self.collect_shared(b, k.checked_mul(c)?, sum),
                (_, Some(c)) => self.collect_shared(a, k.checked_mul(c)?, sum),
                _ => {
                    let (a, b) = (self.form(a)?, self.form(b)?);
                    let product = a.times(&b)?;
                    sum.add_scaled(&product, k)
                }
            },
            _ => {
                let l = self.form(e)?;
                sum.add_scaled(&l, k)
            }
        }
    }

    /// A sum that is shared goes through the table of forms: a chain `x + x` of shared sums stays linear in time.
    fn collect_shared(&mut self, e: &Int, k: i64, sum: &mut Linear) -> Option<()> {
        if matches!(e.node(), IntNode::Add(..) | IntNode::Sub(..)) && Arc::strong_count(&e.0) > 1 {
            let l = self.form(e)?;
            sum.add_scaled(&l, k)
        } else {
            self.collect(e, k, sum)
        }
    }

    /// An expression that is its own simplest form.
    fn irreducible(&mut self, atom: Int) -> Linear {
        let l = Linear::atom(atom);
        let atom = &l.terms[0].0;
        self.forms.insert(Arc::as_ptr(&atom.0), (atom.clone(), l.clone()));
        l
    }

    /// The expression of a linear form; it is remembered as simplified.
    fn rebuild(&mut self, l: &Linear) -> Int {
        let e = l.to_int();
        if !matches!(e.node(), IntNode::Const(_) | IntNode::Var(_)) {
            self.forms.entry(Arc::as_ptr(&e.0)).or_insert_with(|| (e.clone(), l.clone()));
        }
        e
    }

    /// The form of `lhs - rhs`.
    fn difference(&mut self, c: &Cond) -> Option<Linear> {
        let mut difference = self.form(&c.lhs)?;
        difference.add_scaled(&self.form(&c.rhs)?, -1)?;
        self.recombine(difference)
    }

    /// Range of a linear form.
    fn span(&mut self, l: &Linear) -> Interval {
        let mut sum = Interval::point(l.constant);
        for (atom, k) in &l.terms {
            sum = sum + self.range_of(atom).scale(*k);
            if sum == Interval::ALL {
                break;
            }
        }
        sum
    }

    /// [`super::interval`] with a table.
    fn range_of(&mut self, e: &Int) -> Interval {
        match e.node() {
            IntNode::Const(c) => return Interval::point(*c),
            IntNode::Var(v) => return self.bounds.interval(*v).unwrap_or(Interval::ALL),
            IntNode::Load(..) => return Interval::ALL,
            _ => {}
        }
        if let Some((_, known)) = self.ranges.get(&Arc::as_ptr(&e.0)) {
            return *known;
        }
        let r = Interval::of_node(e, |operand| self.range_of(operand));
        self.ranges.insert(Arc::as_ptr(&e.0), (e.clone(), r));
        r
    }
}
