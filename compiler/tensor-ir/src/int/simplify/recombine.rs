//! Rules on pairs of terms of one sum: a division and a remainder of the same dividend.
//!
//! `k` stands for a coefficient times any factors (symbolic sizes included), `y/c` for its simplified quotient, so that
//! nested mixed radix digits fold from the inside out.

use super::Simplifier;
use super::linear::{Linear, compare, factors, monomial};
use crate::int::{Int, IntNode};
use smallvec::{SmallVec, smallvec};

/// Each rule removes a term or a level of nesting; the limit guards against a bug, not against an input.
const MAX_ROUNDS: usize = 32;

/// `rest * (y mod c)` or `rest * (y div c)`, one term of a sum.
struct Digit {
    term: Int,
    coefficient: i64,
    /// The other factors of the term.
    rest: SmallVec<[Int; 2]>,
    y: Int,
    c: Int,
    is_mod: bool,
}

fn digits(l: &Linear) -> SmallVec<[Digit; 4]> {
    let mut out = SmallVec::new();
    for (term, k) in &l.terms {
        if matches!(term.node(), IntNode::Var(_) | IntNode::Load(..)) {
            continue;
        }
        let all = factors(term);
        for (i, f) in all.iter().enumerate() {
            let (y, c, is_mod) = match f.node() {
                IntNode::Mod(y, c) => (y, c, true),
                IntNode::Div(y, c) => (y, c, false),
                _ => continue,
            };
            if c.as_const().is_some_and(|c| c < 1) {
                continue;
            }
            let mut rest = all.clone();
            rest.remove(i);
            out.push(Digit { term: term.clone(), coefficient: *k, rest, y: y.clone(), c: c.clone(), is_mod });
        }
    }
    out
}

impl Simplifier<'_> {
    /// Applies the rules of this file to a sum until none applies.
    pub(super) fn recombine(&mut self, mut l: Linear) -> Option<Linear> {
        for _ in 0..MAX_ROUNDS {
            if l.terms.len() < 2 {
                break;
            }
            let list = digits(&l);
            if list.is_empty() {
                break;
            }
            match self.recombine_once(&l, &list)? {
                Some(next) => l = next,
                None => break,
            }
        }
        Some(l)
    }

    fn recombine_once(&mut self, l: &Linear, list: &[Digit]) -> Option<Option<Linear>> {
        for d in list {
            let y = self.form(&d.y)?;
            let scaled_y = self.times(&y, d.coefficient, &d.rest)?;
            if d.is_mod {
                if list.len() > 1 {
                    let c = self.form(&d.c)?;
                    let quotient = self.div(y.clone(), c)?;
                    if let Some(next) = self.join_quotient(l, d, &scaled_y, &quotient)? {
                        return Some(Some(next));
                    }
                    if let Some(next) = self.join_digit(l, d, list, &y, &quotient)? {
                        return Some(Some(next));
                    }
                }
                // k*(y%c) - k*y = -k*c*(y/c)
                if let Some(mut next) = take(l, &scaled_y, -1)? {
                    next.add_term(&d.term, d.coefficient.checked_neg()?)?;
                    let c = self.form(&d.c)?;
                    let quotient = self.div(y, c.clone())?;
                    let whole = quotient.times(&c)?;
                    let whole = self.times(&whole, d.coefficient, &d.rest)?;
                    next.add_scaled(&whole, -1)?;
                    return Some(Some(next));
                }
            } else if let Some(c) = d.c.as_const()
                && d.coefficient % c == 0
            {
                // k*y - k*c*(y/c) = k*(y%c)
                let k = (d.coefficient / c).checked_neg()?;
                let dividend = self.times(&y, k, &d.rest)?;
                if let Some(mut next) = take(l, &dividend, 1)? {
                    next.add_term(&d.term, d.coefficient.checked_neg()?)?;
                    let remainder = self.mod_const(y, c)?;
                    let remainder = self.times(&remainder, k, &d.rest)?;
                    next.add_scaled(&remainder, 1)?;
                    return Some(Some(next));
                }
            }
        }
        Some(None)
    }

    /// k*c*(y/c) + k*(y%c) = k*y
    fn join_quotient(&mut self, l: &Linear, d: &Digit, scaled_y: &Linear, quotient: &Linear) -> Option<Option<Linear>> {
        let c = self.form(&d.c)?;
        let partner = quotient.times(&c)?;
        let partner = self.times(&partner, d.coefficient, &d.rest)?;
        let Some(mut next) = take(l, &partner, 1)? else { return Some(None) };
        next.add_term(&d.term, d.coefficient.checked_neg()?)?;
        next.add_scaled(scaled_y, 1)?;
        Some(Some(next))
    }

    /// k*c*((y/c) % m) + k*(y%c) = k*(y % (c*m))
    fn join_digit(
        &mut self,
        l: &Linear,
        d: &Digit,
        list: &[Digit],
        y: &Linear,
        quotient: &Linear,
    ) -> Option<Option<Linear>> {
        let quotient = self.rebuild(quotient);
        for upper in list {
            if !upper.is_mod || upper.y != quotient || upper.term == d.term {
                continue;
            }
            let c = self.form(&d.c)?;
            let want = self.times(&c, d.coefficient, &d.rest)?;
            let have = self.times(&Linear::constant(1), upper.coefficient, &upper.rest)?;
            if want != have {
                continue;
            }
            let mut next = l.clone();
            next.add_term(&d.term, d.coefficient.checked_neg()?)?;
            next.add_term(&upper.term, upper.coefficient.checked_neg()?)?;
            let m = self.form(&upper.c)?;
            let modulus = c.times(&m)?;
            let joined = self.modulo(y.clone(), modulus)?;
            let joined = self.times(&joined, d.coefficient, &d.rest)?;
            next.add_scaled(&joined, 1)?;
            return Some(Some(next));
        }
        Some(None)
    }

    /// `l * k * rest`
    fn times(&mut self, l: &Linear, k: i64, rest: &[Int]) -> Option<Linear> {
        let scaled = l.scaled(k)?;
        match monomial(SmallVec::from(rest)) {
            None => Some(scaled),
            Some(m) => scaled.times(&Linear { terms: smallvec![(m, 1)], constant: 0 }),
        }
    }
}

/// `l - sign*part`, where every term of `part` stands in `l` with exactly that coefficient; constants are free.
fn take(l: &Linear, part: &Linear, sign: i64) -> Option<Option<Linear>> {
    if part.terms.is_empty() || part.terms.len() > l.terms.len() {
        return Some(None);
    }
    for (atom, k) in &part.terms {
        if l.coefficient(atom) != k.checked_mul(sign)? {
            return Some(None);
        }
    }
    debug_assert!(l.terms.windows(2).all(|w| compare(&w[0].0, &w[1].0).is_lt()), "terms are sorted");
    let mut next = l.clone();
    next.add_scaled(part, sign.checked_neg()?)?;
    Some(Some(next))
}
