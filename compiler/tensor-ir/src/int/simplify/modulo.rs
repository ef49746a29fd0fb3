//! Floor modulo by positive constants.

use super::Simplifier;
use super::div::split_multiples;
use super::linear::Linear;
use crate::int::{Int, IntNode};
use std::sync::Arc;

impl Simplifier<'_> {
    pub(super) fn modulo(&mut self, a: Linear, b: Linear) -> Option<Linear> {
        match b.as_const() {
            Some(c) if c >= 1 => self.mod_const(a, c),
            Some(_) => self.mod_atom(&a, &b),
            None => self.mod_symbolic(a, b),
        }
    }

    pub(super) fn mod_atom(&mut self, a: &Linear, b: &Linear) -> Option<Linear> {
        let (a, b) = (self.rebuild(a), self.rebuild(b));
        Some(self.irreducible(Int(Arc::new(IntNode::Mod(a, b)))))
    }

    pub(super) fn mod_const(&mut self, a: Linear, c: i64) -> Option<Linear> {
        if c == 1 {
            return Some(Linear::constant(0));
        }
        // (c*A + R) % c = R % c
        let r = split_multiples(&a, c).rest;
        if r.terms.is_empty() {
            return Some(r);
        }
        // R % c = R - q*c for q*c <= R < (q+1)*c
        if let Some((low, high)) = self.span(&r).finite()
            && low.div_euclid(c) == high.div_euclid(c)
        {
            let mut r = r;
            r.constant = r.constant.checked_sub(low.div_euclid(c).checked_mul(c)?)?;
            return Some(r);
        }
        // (g*A + R) % (g*m) = g*(A % m) + R for 0 <= R < g
        if let Some((g, split)) = self.split_by_factor(&r, c) {
            let mut out = split.rest;
            let high = self.mod_const(split.multiple, c / g)?;
            out.add_scaled(&high, g)?;
            return self.recombine(out);
        }
        // k*(x % m) = k*x modulo c, where c | k*m
        let nested = r.terms.iter().find_map(|(atom, k)| match atom.node() {
            IntNode::Mod(x, m) => {
                let m = m.as_const().filter(|m| *m > 0)?;
                (k.checked_mul(m)? % c == 0).then(|| (atom.clone(), *k, x.clone()))
            }
            _ => None,
        });
        if let Some((atom, k, x)) = nested {
            let mut open = r;
            open.add_term(&atom, k.checked_neg()?)?;
            let x = self.form(&x)?;
            open.add_scaled(&x, k)?;
            let open = self.recombine(open)?;
            return self.mod_const(open, c);
        }
        self.mod_atom(&r, &Linear::constant(c))
    }
}
