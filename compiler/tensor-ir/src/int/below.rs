//! Proves that an index is below a bound if both are open. The terms are compared one by one, since intervals lose the
//! parts that two expressions share.

use super::{Facts, Int, IntNode, terms};

/// How many terms of a difference are replaced one after the other.
const DEPTH: usize = 3;

impl Facts {
    /// True when `0 <= index < bound` is proved here.
    pub fn prove_below(&mut self, index: &Int, bound: &Int) -> bool {
        self.prove(index, 0, i64::MAX) && self.prove_less(index, bound)
    }

    /// True when `a < b` is proved here: as [`Facts::prove`] does it of the difference, or of a smaller difference with
    /// a part of a minimum, maximum, quotient or remainder in its place.
    pub fn prove_less(&mut self, a: &Int, b: &Int) -> bool {
        self.is_positive(&(b.clone() - a.clone()), DEPTH)
    }

    /// `e` with those minima and maxima replaced by one of their operands that is proved to be their value here.
    pub fn without_clamps(&mut self, e: &Int) -> Int {
        if !has_extremum(e) {
            return e.clone();
        }
        let mut of = |a: &Int| self.without_clamps(a);
        match e.node() {
            IntNode::Const(_) | IntNode::Var(_) => e.clone(),
            IntNode::Load(b, indices) => Int::load(*b, indices.iter().map(of).collect()),
            IntNode::Add(a, b) => of(a) + of(b),
            IntNode::Sub(a, b) => of(a) - of(b),
            IntNode::Mul(a, b) => of(a) * of(b),
            IntNode::Div(a, b) => of(a).div(of(b)),
            IntNode::Mod(a, b) => of(a).rem(of(b)),
            IntNode::Min(a, b) | IntNode::Max(a, b) => {
                let (a, b, is_min) = (of(a), of(b), matches!(e.node(), IntNode::Min(..)));
                let first_is_less = self.prove_less(&a, &(b.clone() + 1));
                match (first_is_less, first_is_less || self.prove_less(&b, &(a.clone() + 1))) {
                    (_, false) if is_min => a.min(b),
                    (_, false) => a.max(b),
                    (first, true) => {
                        if first == is_min {
                            a
                        } else {
                            b
                        }
                    }
                }
            }
        }
    }

    /// True when `d > 0` is proved.
    fn is_positive(&mut self, d: &Int, depth: usize) -> bool {
        let key = (self.simplify(d), depth);
        let conditions = self.mark();
        if let Some(known) = self.positive.get(&key, conditions) {
            return known;
        }
        let d = &key.0;
        let answer = self.prove(d, 1, i64::MAX)
            || depth > 0
                && terms(d).is_some_and(|(terms, _)| {
                    terms.iter().any(|(atom, times)| self.is_positive_by(d, atom, *times, depth - 1))
                });
        self.positive.insert(key, conditions, answer);
        answer
    }

    /// True when `d > 0` is proved of a sum that has `times * atom` as one of its terms.
    fn is_positive_by(&mut self, d: &Int, atom: &Int, times: i64, depth: usize) -> bool {
        let rest = d.clone() - atom.clone() * times;
        let mut with = |part: &Int| self.is_positive(&(rest.clone() + part.clone() * times), depth);
        match atom.node() {
            // min(a, b) <= a and max(a, b) >= a; else it is one of both.
            IntNode::Min(a, b) if times < 0 => with(a) || with(b),
            IntNode::Max(a, b) if times > 0 => with(a) || with(b),
            IntNode::Min(a, b) | IntNode::Max(a, b) => with(a) && with(b),
            // x % n <= n - 1
            IntNode::Mod(_, n) if times < 0 => with(&(n.clone() - 1)) && self.prove(n, 1, i64::MAX),
            // rest - x / n > 0 where rest * n - x > 0
            IntNode::Div(x, n) if times == -1 && n.as_const().is_none() => {
                self.prove(n, 1, i64::MAX) && self.is_positive(&(rest * n.clone() - x.clone()), depth)
            }
            _ => false,
        }
    }
}

fn has_extremum(e: &Int) -> bool {
    let mut found = false;
    e.visit(&mut |n| found |= matches!(n.node(), IntNode::Min(..) | IntNode::Max(..)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::int::{Bounds, Cond};

    fn facts(list: &[(&str, i64, i64)]) -> Facts {
        let mut b = Bounds::new();
        list.iter().for_each(|(n, low, high)| b.insert((*n).into(), *low, *high));
        Facts::in_words(b)
    }

    #[test]
    fn a_clamped_index_is_below_an_open_bound() {
        let (i, n) = (Int::var("i"), Int::var("n"));
        let mut f = facts(&[("i", 0, 99), ("n", 1, 50)]);
        let clamped = i.min(n.clone() - 1);
        assert!(f.prove_below(&clamped, &n));
        assert!(!f.prove_below(&clamped, &(n.clone() - 1)));
        assert!(!f.prove_below(&i, &n));
        assert!(f.prove_less(&i.min(3).max(n.clone() - 2), &(n.clone() + 3)));
        assert!(!f.prove_less(&i.max(3).max(n.clone() - 2), &(n + 3)));
    }

    #[test]
    fn digits_of_a_guarded_index_are_below_their_sizes() {
        let (m, n, h, w) = (Int::var("m"), Int::var("n"), Int::var("h"), Int::var("w"));
        let mut f = facts(&[("m", 0, 1 << 24), ("n", 1, 4), ("h", 1, 2048), ("w", 1, 2048)]);
        let area = h.clone() * w.clone();
        assert!(f.prove_below(&m.rem(&w), &w));
        assert!(f.prove_below(&m.div(&w).rem(&h), &h));
        assert!(f.prove_below(&m.rem(&area).div(&w), &h));
        assert!(!f.prove_below(&m.div(&area), &n), "no condition says how large it is");
        f.assume(&[Cond::lt(m.clone(), n.clone() * area.clone())]);
        assert!(f.prove_below(&m.div(&area), &n));
        assert!(!f.prove_below(&(m.div(&area) + 1), &n));
        assert!(!f.prove_below(&m.div(&w), &n));
    }

    #[test]
    fn clamps_go_where_conditions_hold() {
        let (i, n) = (Int::var("i"), Int::var("n"));
        let mut f = facts(&[("i", 0, 99), ("n", 1, 50)]);
        let e = i.div(6).min(n.clone() - 1) * 6 + i.rem(6).max(0);
        assert_eq!(f.without_clamps(&e), i.div(6).min(n.clone() - 1) * 6 + i.rem(6));
        f.assume(&[Cond::lt(i.clone(), n * 6)]);
        assert_eq!(f.without_clamps(&e), i.div(6) * 6 + i.rem(6));
    }
}
