//! Facts about index expressions at a program point: ranges of variables, and the conditions that hold there.

use super::answers::Answers;
use super::divisor::gcd;
use super::simplify::never_zero;
use super::{Bounds, Int, IntNode, Interval, prove, simplify, terms};
use super::{Cond, CondOp};
use crate::name::Name;
use rustc_hash::FxHashMap;

/// A condition in force: `expr` lies in `range`.
#[derive(Clone, Debug)]
struct Fact {
    expr: Int,
    terms: Vec<(Int, i64)>,
    range: Interval,
}

/// Interval analysis under conditions, with tables of its results.
///
/// A condition also bounds expressions that contain its expression: if `i*8 + j < 14`, then `i*32 + j*4 + k` is below
/// `56+k`.
#[derive(Clone, Debug)]
pub struct Facts {
    bounds: Bounds,
    /// The range of loads and of variables without a declared range.
    unknown: Interval,
    facts: Vec<Fact>,
    simple: FxHashMap<Int, Int>,
    spans: FxHashMap<Int, Interval>,
    pub(super) positive: Answers,
}

impl Facts {
    /// Loads and unknown variables are any integer.
    pub fn new(bounds: Bounds) -> Facts {
        Facts {
            bounds,
            unknown: Interval::ALL,
            facts: vec![],
            simple: FxHashMap::default(),
            spans: FxHashMap::default(),
            positive: Answers::default(),
        }
    }
    /// As in a shader: loads and unknown variables are any i32.
    pub fn in_words(bounds: Bounds) -> Facts {
        Facts { unknown: Interval::I32, ..Facts::new(bounds) }
    }
    /// Declares `low <= var <= high`, before any condition is in force.
    pub fn declare(&mut self, var: Name, low: i64, high: i64) {
        debug_assert!(self.facts.is_empty(), "conditions in force were simplified under the ranges of before");
        if self.bounds.get(var) != Some((low, high)) {
            self.bounds.insert(var, low, high);
            self.simple.retain(|e, _| !e.uses(var));
            self.spans.retain(|e, _| !e.uses(var));
            self.positive = Answers::default();
        }
    }
    /// The declared range of `var`.
    pub fn declared(&self, var: Name) -> Option<(i64, i64)> {
        self.bounds.get(var)
    }
    /// [`simplify`] under the declared ranges, remembered.
    pub fn simplify(&mut self, e: &Int) -> Int {
        if e.as_const().is_some() {
            return e.clone();
        }
        if let Some(s) = self.simple.get(e) {
            return s.clone();
        }
        let s = simplify(e, &self.bounds);
        self.simple.insert(e.clone(), s.clone());
        s
    }
    /// Number of conditions in force, for [`Facts::forget`].
    pub fn mark(&self) -> usize {
        self.facts.len()
    }
    /// Drops the conditions taken since `mark`.
    pub fn forget(&mut self, mark: usize) {
        self.facts.truncate(mark);
        self.positive.forget(mark);
    }
    /// Takes `conds` as holding.
    pub fn assume(&mut self, conds: &[Cond]) {
        for c in conds {
            let expr = self.simplify(&(c.lhs.clone() - c.rhs.clone()));
            let range = match c.op {
                CondOp::Lt => Interval::new(i64::MIN, -1),
                CondOp::Ge => Interval::new(0, i64::MAX),
                CondOp::Eq => Interval::point(0),
            };
            let fact = self.primitive(&expr, range);
            let terms = terms(&expr).map(|t| t.0).unwrap_or_default();
            self.facts.push(fact.unwrap_or(Fact { expr, terms, range }));
        }
    }
    /// The condition that `expr` lies in `range` without a factor of all its terms: `28*m - 56 < 0` is `m < 2`.
    fn primitive(&mut self, expr: &Int, Interval { low, high }: Interval) -> Option<Fact> {
        let (mut terms, constant) = terms(expr)?;
        let by = terms.iter().fold(0, |g, t| gcd(g, t.1));
        if by <= 1 {
            return None;
        }
        // Upwards from below, downwards from above.
        let low = if low == i64::MIN { low } else { -constant.checked_sub(low)?.div_euclid(by) };
        let high = if high == i64::MAX { high } else { high.checked_sub(constant)?.div_euclid(by) };
        terms.iter_mut().for_each(|t| t.1 /= by);
        let sum = terms.iter().fold(Int::new(0), |sum, (of, c)| sum + of.clone() * *c);
        (low <= high).then(|| Fact { expr: self.simplify(&sum), terms, range: Interval::new(low, high) })
    }
    /// Range of `e` from the ranges of variables alone.
    pub fn span(&mut self, e: &Int) -> Interval {
        match e.node() {
            IntNode::Const(c) => return Interval::point(*c),
            IntNode::Var(v) => return self.bounds.interval(*v).unwrap_or(self.unknown),
            IntNode::Load(..) => return self.unknown,
            _ => {}
        }
        if let Some(&r) = self.spans.get(e) {
            return r;
        }
        let r = Interval::of_node(e, |operand| self.span(operand));
        self.spans.insert(e.clone(), r);
        r
    }
    /// Range of `e` under the conditions.
    pub fn span_here(&mut self, e: &Int) -> Interval {
        let r = self.span_of_sum(e);
        let Some((whole, _)) = terms(e).filter(|_| !self.facts.is_empty()) else { return r };
        let quotients = whole.iter().filter(|t| matches!(t.0.node(), IntNode::Div(..)));
        let mut r =
            quotients.clone().filter_map(|(a, times)| self.span_of_quotient(e, a, *times)).fold(r, Interval::intersect);
        for (atom, times) in quotients {
            for k in 0..self.facts.len() {
                let divided = self.span_of_divided(e, (atom, *times), k);
                r = divided.map_or(r, |d| r.intersect(d));
            }
        }
        r
    }
    /// Range of the sum `e` that contains `times * (y + x/n)`, if condition `k` bounds `n*y + x`: then `y + x/n` is
    /// bounded by the quotient of that bound and `n`. With `i*64 + j < 184`, `i*8 + j/8` is below 23.
    fn span_of_divided(&mut self, e: &Int, (atom, times): (&Int, i64), k: usize) -> Option<Interval> {
        let IntNode::Div(x, n) = atom.node() else { return None };
        let n = n.as_const().filter(|n| *n > 1)?;
        let (of_x, fact) = (terms(x)?.0, &self.facts[k]);
        if !of_x.iter().all(|t| fact.terms.contains(t)) {
            return None;
        }
        let (expr, range) = (fact.expr.clone(), fact.range);
        let others = self.simplify(&(expr - x));
        let (parts, constant) = terms(&others)?;
        if parts.iter().any(|(_, c)| c % n != 0) {
            return None;
        }
        let whole = parts.iter().fold(atom.clone(), |sum, (of, c)| sum + of.clone() * (c / n));
        let end = |v: i64| v.checked_sub(constant).map(|v| v.div_euclid(n));
        let low = if range.low == i64::MIN { range.low } else { end(range.low)? };
        let high = if range.high == i64::MAX { range.high } else { end(range.high)? };
        let rest = self.simplify(&(e.clone() - whole * times));
        Some(Interval::new(low, high).scale(times) + self.span(&rest))
    }
    /// The same from conditions on terms of `e`.
    fn span_of_sum(&mut self, e: &Int) -> Interval {
        let mut r = self.span(e);
        if self.facts.is_empty() || e.as_const().is_some() {
            return r;
        }
        if !matches!(e.node(), IntNode::Var(_) | IntNode::Load(..)) {
            r = r.intersect(Interval::of_node(e, |operand| self.span_of_sum(operand)));
        }
        let Some((whole, _)) = terms(e) else { return r };
        for k in 0..self.facts.len() {
            // e = times*fact + rest
            for times in factors(&whole, &self.facts[k].terms) {
                let fact = &self.facts[k];
                let (rest, part) = (e.clone() - fact.expr.clone() * times, fact.range.scale(times));
                let rest = self.simplify(&rest);
                r = r.intersect(part + self.span(&rest));
            }
        }
        r
    }
    /// Range of the sum `e` that contains `times * (x/n)`, from a condition on a sum with `x`: `n*e` is that sum, minus
    /// `times` the remainder of the division. With `i*16 + j < 168`, `i*2 + j/8` is below 21.
    fn span_of_quotient(&mut self, e: &Int, atom: &Int, times: i64) -> Option<Interval> {
        let IntNode::Div(x, n) = atom.node() else { return None };
        let n = n.as_const().filter(|n| *n > 1 && times.unsigned_abs() < 1 << 31)?;
        let (parts, _) = terms(x)?;
        let speaks = |f: &Fact| f.terms.iter().any(|(of, _)| parts.iter().any(|(p, _)| p == of));
        if !self.facts.iter().any(speaks) {
            return None;
        }
        let scaled = self.simplify(&((e.clone() - atom.clone() * times) * n + x.clone() * times));
        let left_over = Interval::new(0, n - 1).scale(-times);
        let Interval { low, high } = self.span_of_sum(&scaled) + left_over;
        // Only the open end stays as it is: a sum that is held at the other one has a value. Upwards from below, `n*e
        // >= low`.
        let low = if low == i64::MIN { low } else { -low.saturating_neg().div_euclid(n) };
        let high = if high == i64::MAX { high } else { high.div_euclid(n) };
        Some(Interval::new(low, high))
    }
    /// True if `low <= e <= high` is proved here; `i64::MIN` and `i64::MAX` mean no bound.
    pub fn prove(&mut self, e: &Int, low: i64, high: i64) -> bool {
        let e = self.simplify(e);
        self.span(&e).within(low, high)
            || prove(&e, low, high, &self.bounds)
            || !self.facts.is_empty() && self.span_here(&e).within(low, high)
    }
    /// Whether `c` always or never holds here.
    pub fn decide(&mut self, c: &Cond) -> Option<bool> {
        let difference = self.simplify(&(c.lhs.clone() - c.rhs.clone()));
        let decided = c.op.decide(self.span(&difference)).or_else(|| {
            let (terms, constant) = terms(&difference).filter(|_| c.op == CondOp::Eq)?;
            never_zero(terms.iter().map(|t| t.1), constant).then_some(false)
        });
        if decided.is_some() || self.facts.is_empty() {
            return decided;
        }
        c.op.decide(self.span_here(&difference))
    }
    /// True if the value of `e` is proved to fit i32 without using the conditions: a shader evaluates indices outside
    /// of the conditions around their uses. Operands must be checked separately: a sum may fit though its parts do not.
    pub fn fits_i32(&mut self, e: &Int) -> bool {
        self.span(e).within(i32::MIN.into(), i32::MAX.into())
    }
}

impl CondOp {
    /// Whether `lhs op rhs` always or never holds, from the range of `lhs - rhs`.
    pub(super) fn decide(self, difference: Interval) -> Option<bool> {
        let Interval { low, high } = difference;
        match self {
            CondOp::Lt | CondOp::Ge if high < 0 => Some(self == CondOp::Lt),
            CondOp::Lt | CondOp::Ge if low >= 0 => Some(self == CondOp::Ge),
            CondOp::Eq if (low, high) == (0, 0) => Some(true),
            CondOp::Eq if low > 0 || high < 0 => Some(false),
            _ => None,
        }
    }
}

/// How many times the sum `part` may be contained in the sum `whole`: the ratios of their coefficients.
fn factors(whole: &[(Int, i64)], part: &[(Int, i64)]) -> Vec<i64> {
    let mut out = Vec::new();
    for (atom, c) in part {
        let found = whole.iter().find(|t| t.0 == *atom).map(|t| t.1);
        if let Some(times) = found.filter(|f| f.checked_rem(*c) == Some(0)).map(|f| f / c)
            && !out.contains(&times)
        {
            out.push(times);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(list: &[(&str, i64, i64)]) -> Bounds {
        let mut b = Bounds::new();
        list.iter().for_each(|(n, low, high)| b.insert(Name::new(n), *low, *high));
        b
    }

    #[test]
    fn a_condition_bounds_what_contains_its_expression() {
        let mut f = Facts::in_words(bounds(&[("h", 0, 111), ("k", 0, 2)]));
        let e = Int::var("h") * 2 + Int::var("k") - 1;
        assert!(!f.prove(&e, 0, 222));
        f.assume(&[Cond::ge(e.clone(), 0), Cond::lt(e.clone(), 223)]);
        assert!(f.prove(&e, 0, 222));
        assert!(!f.prove(&e, 0, 221));
        assert_eq!(f.decide(&Cond::ge(e.clone(), 0)), Some(true));
        f.forget(0);
        assert!(!f.prove(&e, 0, 222));
        assert_eq!(f.decide(&Cond::ge(e, 0)), None);
    }

    #[test]
    fn a_condition_bounds_multiples_of_its_expression() {
        let mut f = Facts::in_words(bounds(&[("o", 0, 1), ("t", 0, 7), ("r", 0, 3)]));
        f.assume(&[Cond::lt(Int::var("o") * 8 + Int::var("t"), 14)]);
        let row = Int::var("o") * 32 + Int::var("t") * 4 + Int::var("r");
        assert!(f.prove(&row, 0, 55));
        assert!(!f.prove(&row, 0, 54));
        assert!(f.prove(&(row * -2), -110, 0));
    }

    #[test]
    fn a_condition_counts_for_quotients_of_its_terms() {
        let (i, j) = (Int::var("i"), Int::var("j"));
        let mut f = Facts::new(bounds(&[("i", 0, 10), ("j", 0, 15)]));
        let e = i.clone() * 2 + j.clone().div(8);
        assert!(!f.prove(&e, 0, 20), "21 without a condition");
        f.assume(&[Cond::lt(i.clone() * 16 + j.clone(), 168)]);
        assert!(f.prove(&e, 0, 20));
        assert!(!f.prove(&e, 0, 19), "i = 10, j = 7");
        assert!(f.prove(&(Int::new(20) - e.clone()), 0, 20));
        f.assume(&[Cond::ge(i * 16 + j, 24)]);
        assert!(f.prove(&e, 3, 20));
        assert!(!f.prove(&e, 4, 20), "i = 1, j = 8");
    }

    #[test]
    fn a_factor_of_all_terms_leaves_a_condition() {
        let (m, c) = (Int::var("m"), Int::var("c"));
        let mut f = Facts::new(bounds(&[("m", 0, 2), ("c", 0, 23)]));
        f.assume(&[Cond::lt(m.clone() * 28 + 8, 64)]);
        assert!(f.prove(&(m.clone() * 476 + c.clone()), 0, 476 + 23));
        assert!(!f.prove(&(m.clone() * 476 + c), 0, 476 + 22));
        assert!(f.prove(&(m.clone() * 7).div(2), 0, 3));
        f.assume(&[Cond::ge(m.clone() * 28, 5)]);
        assert!(f.prove(&m, 1, 1));
    }

    #[test]
    fn a_condition_is_divided_with_its_terms() {
        let (i, j) = (Int::var("i"), Int::var("j"));
        let mut f = Facts::new(bounds(&[("i", 0, 10), ("j", 0, 63)]));
        let e = i.clone() * 512 + j.clone().div(8) * 64 + j.clone().rem(8) * 4;
        f.assume(&[Cond::lt(i.clone() * 64 + j.clone(), 184), Cond::ge(i.clone() * 64 + j.clone(), 9)]);
        assert!(f.prove(&e, 64, 22 * 64 + 28));
        assert!(!f.prove(&e, 65, 22 * 64 + 28), "i = 0, j = 8");
        assert!(!f.prove(&e, 64, 22 * 64 + 27), "i = 2, j = 55");
        assert!(f.prove(&(e * -1), -(22 * 64 + 28), -64));
        let lacks = i * 510 + j.div(8) * 64;
        assert!(!f.prove(&lacks, 64, 22 * 64), "no multiple of the condition");
    }

    #[test]
    fn quotients_at_the_ends_of_the_word_have_a_range() {
        let v = Int::var("v");
        let e = v.clone() * 2 + v.clone().div(i64::MAX - 1);
        let mut f = Facts::new(Bounds::new());
        f.assume(&[Cond::eq(v, i64::from(i32::MIN) - 1)]);
        let r = f.span_here(&e);
        assert!(r.low <= r.high, "{r:?}");
        assert!(f.prove(&e, i64::MIN, 2 * i64::from(i32::MIN) - 3));
    }

    #[test]
    fn loads_are_any_word_until_clamped() {
        let load = Int::load(crate::arena::Id::from_index(0), vec![]);
        let clamped = load.min(9).max(0);
        let mut f = Facts::in_words(Bounds::new());
        assert!(f.fits_i32(&load));
        assert!(!f.fits_i32(&(load.clone() * 8)));
        assert!(f.prove(&clamped, 0, 9));
        assert!(f.fits_i32(&(clamped.clone() * 8)));
        let mut f = Facts::new(Bounds::new());
        assert!(!f.fits_i32(&load));
        assert!(f.prove(&clamped, 0, 9));
    }

    #[test]
    fn another_range_of_a_variable_replaces_what_was_found() {
        let mut f = Facts::new(bounds(&[("v", 0, 1)]));
        let e = Int::var("v") * 4;
        assert!(f.prove(&e, 0, 4));
        f.declare("v".into(), 0, 3);
        assert!(!f.prove(&e, 0, 4));
        assert!(f.prove(&e, 0, 12));
    }
}
