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
    /// Range of `e` where the facts hold. A fact bounds `e` through the range of `e - k * fact`.
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
            let fact = self.facts[k].clone();
            for times in factors(e, &fact.expr) {
                let (low, high) = if times > 0 { (fact.low, fact.high) } else { (fact.high, fact.low) };
                let rest = self.simplify(&(e.clone() - fact.expr.clone() * times));
                let rest = self.span(&rest);
                let scale = |bound: i64| bound.checked_mul(times).filter(|_| bound != i64::MIN && bound != i64::MAX);
                let below = scale(low).map_or(i64::MIN, |l| l.saturating_add(rest.0));
                let above = scale(high).map_or(i64::MAX, |h| h.saturating_add(rest.1));
                r = intersect(r, (below, above));
            }
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

/// How many times `part` may be contained in `e`: the ratios of their coefficients.
fn factors(e: &Int, part: &Int) -> Vec<i64> {
    let terms = |e: &Int| {
        let mut out = (Vec::new(), 0);
        collect_terms(e, 1, &mut out.0, &mut out.1);
        out.0
    };
    let (whole, mut out) = (terms(e), Vec::new());
    for (atom, c) in terms(part) {
        let found = whole.iter().find(|t| t.0 == atom).map(|t| t.1);
        if let Some(times) = found.filter(|f| f % c == 0).map(|f| f / c)
            && !out.contains(&times)
        {
            out.push(times);
        }
    }
    out
}

/// The terms of a sum: atoms with their constant factors, and the constant.
pub(crate) fn collect_terms(e: &Int, factor: i64, out: &mut Vec<(Int, i64)>, constant: &mut i64) {
    add_terms(e, factor, out, constant);
    out.retain(|t| t.1 != 0);
}

fn add_terms(e: &Int, factor: i64, out: &mut Vec<(Int, i64)>, constant: &mut i64) {
    match e.node() {
        IntNode::Const(c) => *constant = constant.saturating_add(c.saturating_mul(factor)),
        IntNode::Add(a, b) => {
            add_terms(a, factor, out, constant);
            add_terms(b, factor, out, constant);
        }
        IntNode::Sub(a, b) => {
            add_terms(a, factor, out, constant);
            add_terms(b, factor.saturating_neg(), out, constant);
        }
        IntNode::Mul(a, b) if b.as_const().is_some() => {
            add_terms(a, factor.saturating_mul(b.as_const().unwrap_or(1)), out, constant);
        }
        IntNode::Mul(a, b) if a.as_const().is_some() => {
            add_terms(b, factor.saturating_mul(a.as_const().unwrap_or(1)), out, constant);
        }
        _ => match out.iter_mut().find(|t| t.0 == *e) {
            Some(t) => t.1 = t.1.saturating_add(factor),
            None => out.push((e.clone(), factor)),
        },
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
    fn a_condition_bounds_multiples_of_its_expression() {
        let mut bounds = Bounds::new();
        bounds.insert("o".into(), 0, 1);
        bounds.insert("t".into(), 0, 7);
        bounds.insert("r".into(), 0, 3);
        let mut r = Ranges::new(bounds);
        r.assume(&[Cond::lt(Int::var("o") * 8 + Int::var("t"), 14)]);
        let row = Int::var("o") * 32 + Int::var("t") * 4 + Int::var("r");
        assert!(r.prove(&row, 0, 55));
        assert!(!r.prove(&row, 0, 54));
        assert!(r.prove(&(row * -2), -110, 0));
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
