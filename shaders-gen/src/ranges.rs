//! What is known about the values of index expressions: ranges of variables, and conditions that hold at a place.

use compiler::int::{self, Bounds, Int, IntNode};
use compiler::tir::{Cond, CondOp};
use rustc_hash::FxHashMap;

/// An inclusive range.
pub(crate) type Range = (i64, i64);

const I32: Range = (i32::MIN as i64, i32::MAX as i64);

/// A condition in force, as `low <= expr <= high`.
#[derive(Clone, Debug)]
struct Fact {
    expr: Int,
    low: i64,
    high: i64,
}

/// Interval analysis under conditions. Loads are any i32.
pub(crate) struct Ranges {
    pub bounds: Bounds,
    facts: Vec<Fact>,
    simple: FxHashMap<Int, Int>,
    spans: FxHashMap<Int, Range>,
}

impl Ranges {
    pub fn new(bounds: Bounds) -> Ranges {
        Ranges { bounds, facts: vec![], simple: FxHashMap::default(), spans: FxHashMap::default() }
    }
    /// [`int::simplify`] under the declared bounds, remembered.
    pub fn simplify(&mut self, e: &Int) -> Int {
        if e.as_const().is_some() {
            return e.clone();
        }
        if let Some(s) = self.simple.get(e) {
            return s.clone();
        }
        let s = int::simplify(e, &self.bounds);
        self.simple.insert(e.clone(), s.clone());
        s
    }
    /// Number of facts in force, for [`Ranges::forget`].
    pub fn mark(&self) -> usize {
        self.facts.len()
    }
    /// Drops the facts added since `mark`.
    pub fn forget(&mut self, mark: usize) {
        self.facts.truncate(mark);
    }
    /// Takes `conds` as holding.
    pub fn assume(&mut self, conds: &[Cond]) {
        for c in conds {
            let expr = self.simplify(&(c.lhs.clone() - c.rhs.clone()));
            let (low, high) = match c.op {
                CondOp::Lt => (i64::MIN, -1),
                CondOp::Ge => (0, i64::MAX),
                CondOp::Eq => (0, 0),
            };
            self.facts.push(Fact { expr, low, high });
        }
    }
    /// Range of `e` from the variables' ranges alone, saturating; an unknown variable or a load is any i32.
    pub fn span(&mut self, e: &Int) -> Range {
        if let Some(c) = e.as_const() {
            return (c, c);
        }
        if let Some(&r) = self.spans.get(e) {
            return r;
        }
        let r = match e.node() {
            IntNode::Const(c) => (*c, *c),
            IntNode::Var(v) => self.bounds.get(*v).unwrap_or(I32),
            IntNode::Load(..) => I32,
            IntNode::Add(a, b) => {
                let (a, b) = (self.span(a), self.span(b));
                (a.0.saturating_add(b.0), a.1.saturating_add(b.1))
            }
            IntNode::Sub(a, b) => {
                let (a, b) = (self.span(a), self.span(b));
                (a.0.saturating_sub(b.1), a.1.saturating_sub(b.0))
            }
            IntNode::Mul(a, b) => {
                let (a, b) = (self.span(a), self.span(b));
                let p = [
                    a.0.saturating_mul(b.0),
                    a.0.saturating_mul(b.1),
                    a.1.saturating_mul(b.0),
                    a.1.saturating_mul(b.1),
                ];
                (p.into_iter().min().unwrap_or(i64::MIN), p.into_iter().max().unwrap_or(i64::MAX))
            }
            IntNode::Div(a, b) => divide(self.span(a), self.span(b)),
            IntNode::Mod(a, b) => modulo(self.span(a), self.span(b)),
            IntNode::Min(a, b) => {
                let (a, b) = (self.span(a), self.span(b));
                (a.0.min(b.0), a.1.min(b.1))
            }
            IntNode::Max(a, b) => {
                let (a, b) = (self.span(a), self.span(b));
                (a.0.max(b.0), a.1.max(b.1))
            }
        };
        let r = int::range(e, &self.bounds).map_or(r, |better| intersect(r, better));
        self.spans.insert(e.clone(), r);
        r
    }
    /// Range of `e` where the facts hold. A fact bounds `e` through the range of `e - fact`.
    fn span_here(&mut self, e: &Int) -> Range {
        let mut r = self.span(e);
        if self.facts.is_empty() || e.as_const().is_some() {
            return r;
        }
        match e.node() {
            IntNode::Div(a, b) if b.as_const().is_some_and(|b| b > 0) => {
                let inner = self.span_here(a);
                let by = self.span(b);
                r = intersect(r, divide(inner, by));
            }
            IntNode::Min(a, b) => {
                let (a, b) = (self.span_here(a), self.span_here(b));
                r = intersect(r, (a.0.min(b.0), a.1.min(b.1)));
            }
            IntNode::Max(a, b) => {
                let (a, b) = (self.span_here(a), self.span_here(b));
                r = intersect(r, (a.0.max(b.0), a.1.max(b.1)));
            }
            IntNode::Add(a, b) => {
                let (a, b) = (self.span_here(a), self.span_here(b));
                r = intersect(r, (a.0.saturating_add(b.0), a.1.saturating_add(b.1)));
            }
            IntNode::Mul(a, b) if b.as_const().is_some_and(|b| b > 0) => {
                let (a, c) = (self.span_here(a), b.as_const().unwrap_or(1));
                r = intersect(r, (a.0.saturating_mul(c), a.1.saturating_mul(c)));
            }
            _ => {}
        }
        for k in 0..self.facts.len() {
            let Fact { expr, low, high } = self.facts[k].clone();
            let rest = self.simplify(&(e.clone() - expr));
            let rest = self.span(&rest);
            let below = if low == i64::MIN { i64::MIN } else { low.saturating_add(rest.0) };
            let above = if high == i64::MAX { i64::MAX } else { high.saturating_add(rest.1) };
            r = intersect(r, (below, above));
        }
        r
    }
    /// True when `low <= e <= high` is proved here.
    pub fn prove(&mut self, e: &Int, low: i64, high: i64) -> bool {
        let e = self.simplify(e);
        let inside = |r: Range| r.0 >= low && r.1 <= high;
        inside(self.span(&e)) || int::prove(&e, low, high, &self.bounds) || inside(self.span_here(&e))
    }
    /// Whether `c` always or never holds here.
    pub fn decide(&mut self, c: &Cond) -> Option<bool> {
        let d = self.simplify(&(c.lhs.clone() - c.rhs.clone()));
        let (low, high) = self.span(&d);
        match c.op {
            CondOp::Lt if high < 0 => Some(true),
            CondOp::Lt if low >= 0 => Some(false),
            CondOp::Ge if low >= 0 => Some(true),
            CondOp::Ge if high < 0 => Some(false),
            CondOp::Eq if (low, high) == (0, 0) => Some(true),
            CondOp::Eq if low > 0 || high < 0 => Some(false),
            _ => None,
        }
    }
    /// True when `e` and, as emitted, its arithmetic stay within i32.
    pub fn fits_i32(&mut self, e: &Int) -> bool {
        let (low, high) = self.span(e);
        low >= I32.0 && high <= I32.1
    }
}

fn intersect(a: Range, b: Range) -> Range {
    (a.0.max(b.0), a.1.min(b.1))
}

fn divide(a: Range, b: Range) -> Range {
    if b.0 < 1 {
        return (i64::MIN, i64::MAX);
    }
    let q = [a.0.div_euclid(b.0), a.0.div_euclid(b.1), a.1.div_euclid(b.0), a.1.div_euclid(b.1)];
    (q.into_iter().min().unwrap_or(i64::MIN), q.into_iter().max().unwrap_or(i64::MAX))
}

fn modulo(a: Range, b: Range) -> Range {
    if b.0 < 1 {
        return (i64::MIN, i64::MAX);
    }
    if a.0 >= 0 && a.1 < b.0 { a } else { (0, if a.0 >= 0 { a.1.min(b.1 - 1) } else { b.1 - 1 }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_bounds_what_contains_its_expression() {
        let mut bounds = Bounds::new();
        bounds.insert("h".into(), 0, 111);
        bounds.insert("k".into(), 0, 2);
        let mut r = Ranges::new(bounds);
        let e = Int::var("h") * 2 + Int::var("k") - 1;
        assert!(!r.prove(&e, 0, 222));
        r.assume(&[Cond::ge(e.clone(), 0), Cond::lt(e.clone(), 223)]);
        assert!(r.prove(&e, 0, 222));
        assert!(!r.prove(&e, 0, 221));
        r.forget(0);
        assert!(!r.prove(&e, 0, 222));
    }

    #[test]
    fn loads_are_any_i32_until_clamped() {
        let mut r = Ranges::new(Bounds::new());
        let load = Int::load(compiler::arena::Id::from_index(0), vec![]);
        assert!(!r.fits_i32(&(load.clone() * 8)));
        let clamped = load.min(9).max(0);
        assert!(r.prove(&clamped, 0, 9));
        assert!(r.fits_i32(&(clamped * 8)));
    }
}
