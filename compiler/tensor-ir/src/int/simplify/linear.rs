//! Linear forms over atoms, and products of atoms.

use crate::int::{Int, IntNode};
use smallvec::{SmallVec, smallvec};
use std::cmp::Ordering;
use std::sync::Arc;

/// `sum of coefficient * atom + constant`; atoms sorted and distinct, coefficients not 0.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Linear {
    pub(super) terms: SmallVec<[(Int, i64); 4]>,
    pub(super) constant: i64,
}

/// Above this many terms a product is not multiplied out, and its expression not simplified.
const MAX_PRODUCT_TERMS: usize = 64;

impl Linear {
    pub(super) fn constant(c: i64) -> Linear {
        Linear { terms: SmallVec::new(), constant: c }
    }
    pub(super) fn atom(atom: Int) -> Linear {
        Linear { terms: smallvec![(atom, 1)], constant: 0 }
    }
    pub(super) fn as_const(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }
    /// The atom, when the form is just one.
    pub(super) fn as_atom(&self) -> Option<&Int> {
        match self.terms.as_slice() {
            [(atom, 1)] if self.constant == 0 => Some(atom),
            _ => None,
        }
    }
    /// Coefficient of `atom`.
    pub(super) fn coefficient(&self, atom: &Int) -> i64 {
        self.terms.binary_search_by(|t| compare(&t.0, atom)).map_or(0, |i| self.terms[i].1)
    }
    pub(super) fn add_term(&mut self, atom: &Int, k: i64) -> Option<()> {
        if k == 0 {
            return Some(());
        }
        match self.terms.binary_search_by(|t| compare(&t.0, atom)) {
            Ok(i) => {
                let sum = self.terms[i].1.checked_add(k)?;
                if sum == 0 {
                    self.terms.remove(i);
                } else {
                    self.terms[i].1 = sum;
                }
            }
            Err(i) => self.terms.insert(i, (atom.clone(), k)),
        }
        Some(())
    }
    pub(super) fn add_scaled(&mut self, other: &Linear, k: i64) -> Option<()> {
        self.constant = self.constant.checked_add(other.constant.checked_mul(k)?)?;
        for (atom, c) in &other.terms {
            self.add_term(atom, c.checked_mul(k)?)?;
        }
        Some(())
    }
    pub(super) fn scaled(&self, k: i64) -> Option<Linear> {
        let mut out = Linear::constant(0);
        out.add_scaled(self, k)?;
        Some(out)
    }
    /// Positive terms first, larger coefficients first, the constant last: `i*28 + j - k + 3`.
    pub(super) fn to_int(&self) -> Int {
        let mut terms: SmallVec<[&(Int, i64); 4]> = self.terms.iter().collect();
        terms.sort_by_key(|t| (t.1 < 0, std::cmp::Reverse(t.1.unsigned_abs())));
        let mut rest = terms.into_iter();
        let (mut out, mut constant) = match rest.next() {
            None => return Int::new(self.constant),
            Some((atom, k)) if *k > 0 || self.constant == 0 => (atom.clone() * *k, self.constant),
            Some((atom, k)) => (subtract(Int::new(self.constant), atom, *k), 0),
        };
        for (atom, k) in rest {
            out = if *k > 0 { out + atom.clone() * *k } else { subtract(out, atom, *k) };
        }
        if constant < 0 && constant != i64::MIN {
            constant = -constant;
            return out - constant;
        }
        out + constant
    }
}

/// `from + k*atom` for negative `k`, written as a difference.
fn subtract(from: Int, atom: &Int, k: i64) -> Int {
    match k.checked_neg() {
        Some(k) => from - atom.clone() * k,
        None => from + atom.clone() * k,
    }
}

/// A total order of expressions by structure and variable names; independent of addresses.
pub(super) fn compare(a: &Int, b: &Int) -> Ordering {
    fn kind(e: &Int) -> u8 {
        match e.node() {
            IntNode::Var(_) => 0,
            IntNode::Load(..) => 1,
            IntNode::Mul(..) => 2,
            IntNode::Div(..) => 3,
            IntNode::Mod(..) => 4,
            IntNode::Min(..) => 5,
            IntNode::Max(..) => 6,
            IntNode::Add(..) => 7,
            IntNode::Sub(..) => 8,
            IntNode::Const(_) => 9,
        }
    }
    if Arc::ptr_eq(&a.0, &b.0) {
        return Ordering::Equal;
    }
    match (a.node(), b.node()) {
        (IntNode::Var(x), IntNode::Var(y)) => x.cmp(y),
        (IntNode::Const(x), IntNode::Const(y)) => x.cmp(y),
        (IntNode::Load(b1, x), IntNode::Load(b2, y)) => b1.cmp(b2).then(x.len().cmp(&y.len())).then_with(|| {
            x.iter().zip(y).map(|(x, y)| compare(x, y)).find(|o| *o != Ordering::Equal).unwrap_or(Ordering::Equal)
        }),
        (IntNode::Add(a1, b1), IntNode::Add(a2, b2))
        | (IntNode::Sub(a1, b1), IntNode::Sub(a2, b2))
        | (IntNode::Mul(a1, b1), IntNode::Mul(a2, b2))
        | (IntNode::Div(a1, b1), IntNode::Div(a2, b2))
        | (IntNode::Mod(a1, b1), IntNode::Mod(a2, b2))
        | (IntNode::Min(a1, b1), IntNode::Min(a2, b2))
        | (IntNode::Max(a1, b1), IntNode::Max(a2, b2)) => compare(a1, a2).then_with(|| compare(b1, b2)),
        _ => kind(a).cmp(&kind(b)),
    }
}

/// The factors of a product atom, sorted; the atom itself where it is no product.
pub(super) fn factors(atom: &Int) -> SmallVec<[Int; 2]> {
    let mut out = SmallVec::new();
    let mut at = atom;
    while let IntNode::Mul(a, b) = at.node() {
        out.push(b.clone());
        at = a;
    }
    out.push(at.clone());
    out.reverse();
    out
}

/// The product of factors as an atom; `None` for no factors.
pub(super) fn monomial(mut list: SmallVec<[Int; 2]>) -> Option<Int> {
    list.sort_by(compare);
    list.into_iter().reduce(|a, b| Int(Arc::new(IntNode::Mul(a, b))))
}

/// `atom / by` where every factor of `by` is one of `atom`: the factors that are left.
pub(super) fn divide_factors(atom: &Int, by: &[Int]) -> Option<SmallVec<[Int; 2]>> {
    let mut left = factors(atom);
    for f in by {
        let i = left.iter().position(|g| g == f)?;
        left.remove(i);
    }
    Some(left)
}

impl Linear {
    /// `self * b`, multiplied out; `None` where that is too large.
    pub(super) fn times(&self, b: &Linear) -> Option<Linear> {
        if let Some(c) = self.as_const() {
            return b.scaled(c);
        }
        if let Some(c) = b.as_const() {
            return self.scaled(c);
        }
        if (self.terms.len() + 1) * (b.terms.len() + 1) > MAX_PRODUCT_TERMS {
            return None;
        }
        let mut out = Linear::constant(self.constant.checked_mul(b.constant)?);
        for (atom, k) in &self.terms {
            out.add_term(atom, k.checked_mul(b.constant)?)?;
        }
        for (atom, k) in &b.terms {
            out.add_term(atom, k.checked_mul(self.constant)?)?;
        }
        for (x, k) in &self.terms {
            for (y, l) in &b.terms {
                let mut all = factors(x);
                all.extend(factors(y));
                out.add_term(&monomial(all)?, k.checked_mul(*l)?)?;
            }
        }
        Some(out)
    }
}
