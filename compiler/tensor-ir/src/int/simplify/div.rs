//! Floor division by positive constants.

use super::Simplifier;
use super::linear::Linear;
use crate::int::{Int, IntNode, gcd};
use smallvec::SmallVec;
use std::sync::Arc;

/// `c*multiple + rest`, with the rest's constant in `[0, c)`.
pub(super) struct Split {
    pub(super) multiple: Linear,
    pub(super) rest: Linear,
}

/// Separates the terms whose coefficient is a multiple of `c > 0`.
pub(super) fn split_multiples(l: &Linear, c: i64) -> Split {
    let mut multiple = Linear::constant(l.constant.div_euclid(c));
    let mut rest = Linear::constant(l.constant.rem_euclid(c));
    for (atom, k) in &l.terms {
        if k % c == 0 {
            multiple.terms.push((atom.clone(), k / c));
        } else {
            rest.terms.push((atom.clone(), *k));
        }
    }
    Split { multiple, rest }
}

impl Simplifier<'_> {
    pub(super) fn div(&mut self, a: Linear, b: Linear) -> Option<Linear> {
        match b.as_const() {
            Some(1) => Some(a),
            Some(c) if c > 1 => self.div_const(a, c),
            Some(_) => self.div_atom(&a, &b),
            None => self.div_symbolic(a, b),
        }
    }

    pub(super) fn div_atom(&mut self, a: &Linear, b: &Linear) -> Option<Linear> {
        let (a, b) = (self.rebuild(a), self.rebuild(b));
        Some(self.irreducible(Int(Arc::new(IntNode::Div(a, b)))))
    }

    pub(super) fn div_const(&mut self, a: Linear, c: i64) -> Option<Linear> {
        if c == 1 {
            return Some(a);
        }
        // (c*A + R) / c = A + R/c
        let Split { mut multiple, rest } = split_multiples(&a, c);
        let quotient = self.div_rest(rest, c)?;
        multiple.add_scaled(&quotient, 1)?;
        Some(multiple)
    }

    /// `r / c` where no coefficient of `r` is a multiple of `c` and its constant is in `[0, c)`.
    fn div_rest(&mut self, r: Linear, c: i64) -> Option<Linear> {
        if r.terms.is_empty() {
            return Some(Linear::constant(0));
        }
        // R / c = q for q*c <= R < (q+1)*c
        if let Some((low, high)) = self.span(&r).finite()
            && low.div_euclid(c) == high.div_euclid(c)
        {
            return Some(Linear::constant(low.div_euclid(c)));
        }
        // (g*A + R) / (g*m) = A / m for 0 <= R < g
        if let Some((g, split)) = self.split_by_factor(&r, c) {
            return self.div_const(split.multiple, c / g);
        }
        if let [(atom, 1)] = r.terms.as_slice() {
            match atom.node() {
                // (x/a + k) / c = (x + a*k) / (a*c)
                IntNode::Div(x, d) => {
                    let (mut x, d) = (self.form(x)?, self.form(d)?);
                    x.add_scaled(&d, r.constant)?;
                    let d = d.scaled(c)?;
                    return self.div(x, d);
                }
                // (x % (c*m)) / c = (x/c) % m
                IntNode::Mod(x, m) if r.constant == 0 => {
                    if let Some(m) = m.as_const().filter(|m| *m > 0 && m % c == 0) {
                        let x = self.form(x)?;
                        let quotient = self.div_const(x, c)?;
                        return self.mod_const(quotient, m / c);
                    }
                }
                _ => {}
            }
        }
        self.div_atom(&r, &Linear::constant(c))
    }

    /// The largest `g > 1` with `g | c`, and `l = g*A + R` with `0 <= R < g` proved.
    pub(super) fn split_by_factor(&mut self, l: &Linear, c: i64) -> Option<(i64, Split)> {
        let mut candidates: SmallVec<[i64; 8]> = l.terms.iter().map(|t| gcd(t.1, c)).collect();
        if candidates.len() <= 6 {
            for i in 0..candidates.len() {
                for j in 0..i {
                    candidates.push(gcd(candidates[i], candidates[j]));
                }
            }
        }
        candidates.sort_unstable_by(|a, b| b.cmp(a));
        candidates.dedup();
        for g in candidates {
            if g <= 1 {
                continue;
            }
            let split = split_multiples(l, g);
            if self.span(&split.rest).within(0, g - 1) {
                return Some((g, split));
            }
        }
        None
    }
}
