//! Division and remainder by divisors that are not constant. They are positive in every valid program.

use super::Simplifier;
use super::linear::{Linear, divide_factors, factors, monomial};
use crate::int::{Int, IntNode, gcd};
use smallvec::SmallVec;

/// A divisor that is one product: `coefficient * factors`.
struct Monomial {
    coefficient: i64,
    factors: SmallVec<[Int; 2]>,
}

/// A dividend `unit*high + low` of a divisor `unit*divisor`.
struct Digits {
    unit: Linear,
    high: Linear,
    low: Linear,
    divisor: Linear,
}

fn as_monomial(l: &Linear) -> Option<Monomial> {
    match l.terms.as_slice() {
        [(atom, k)] if *k > 0 && l.constant == 0 => Some(Monomial { coefficient: *k, factors: factors(atom) }),
        _ => None,
    }
}

/// `l = by*A + R`: the terms that are multiples of the product `by`, divided, and the others.
fn split(l: &Linear, by: &Monomial) -> Option<(Linear, Linear)> {
    let (mut multiple, mut rest) = (Linear::constant(0), Linear::constant(l.constant));
    for (atom, k) in &l.terms {
        match divide_factors(atom, &by.factors) {
            Some(left) if k % by.coefficient == 0 => match monomial(left) {
                Some(m) => multiple.add_term(&m, k / by.coefficient)?,
                None => multiple.constant = multiple.constant.checked_add(k / by.coefficient)?,
            },
            _ => rest.terms.push((atom.clone(), *k)),
        }
    }
    Some((multiple, rest))
}

/// Divides every coefficient and the constant by `g`, and every term by the factor `f`.
fn reduce(l: &Linear, g: i64, f: Option<&Int>) -> Option<Linear> {
    let mut out = Linear::constant(l.constant / g);
    for (atom, k) in &l.terms {
        match f {
            None => out.add_term(atom, k / g)?,
            Some(f) => match monomial(divide_factors(atom, std::slice::from_ref(f))?) {
                Some(m) => out.add_term(&m, k / g)?,
                None => out.constant = out.constant.checked_add(k / g)?,
            },
        }
    }
    Some(out)
}

impl Simplifier<'_> {
    pub(super) fn div_symbolic(&mut self, a: Linear, b: Linear) -> Option<Linear> {
        if a == b {
            return Some(Linear::constant(1));
        }
        let Some(by) = as_monomial(&b) else {
            return if self.below(&a, &b) { Some(Linear::constant(0)) } else { self.div_atom(&a, &b) };
        };
        // (b*A + R) / b = A + R/b
        let (mut out, rest) = split(&a, &by)?;
        let quotient = self.div_rest_symbolic(rest, b, &by)?;
        out.add_scaled(&quotient, 1)?;
        Some(out)
    }

    fn div_rest_symbolic(&mut self, r: Linear, b: Linear, by: &Monomial) -> Option<Linear> {
        // 0 / b = 0, R / b = 0 for 0 <= R < b
        if r.as_const() == Some(0) || self.below(&r, &b) {
            return Some(Linear::constant(0));
        }
        // (g*R) / (g*b) = R / b
        if let Some((_, _, r, b)) = cancel(&r, &b, by)? {
            return self.div(r, b);
        }
        // (g*A + R) / (g*b) = A / b for 0 <= R < g
        if let Some(digits) = self.low_digit(&r, &b, by)? {
            return self.div(digits.high, digits.divisor);
        }
        match r.as_atom().map(|a| a.node().clone()) {
            // (x/a) / b = x / (a*b)
            Some(IntNode::Div(x, a)) if a.as_const().is_none_or(|a| a > 0) => {
                let (x, a) = (self.form(&x)?, self.form(&a)?);
                let whole = a.times(&b)?;
                return self.div(x, whole);
            }
            // (x % (b*m)) / b = (x/b) % m
            Some(IntNode::Mod(x, m)) => {
                let m = self.form(&m)?;
                let (digits, left) = split(&m, by)?;
                if left.as_const() == Some(0) && as_monomial(&m).is_some() {
                    let x = self.form(&x)?;
                    let quotient = self.div(x, b)?;
                    return self.modulo(quotient, digits);
                }
            }
            _ => {}
        }
        self.div_atom(&r, &b)
    }

    pub(super) fn mod_symbolic(&mut self, a: Linear, b: Linear) -> Option<Linear> {
        if a == b {
            return Some(Linear::constant(0));
        }
        let Some(by) = as_monomial(&b) else {
            return if self.below(&a, &b) { Some(a) } else { self.mod_atom(&a, &b) };
        };
        // (b*A + R) % b = R % b
        let (_, r) = split(&a, &by)?;
        // 0 % b = 0, R % b = R for 0 <= R < b
        if r.as_const() == Some(0) || self.below(&r, &b) {
            return Some(r);
        }
        // (g*R) % (g*b) = g*(R % b)
        if let Some((g, f, r, b)) = cancel(&r, &b, &by)? {
            let inner = self.modulo(r, b)?.scaled(g)?;
            return match f {
                None => Some(inner),
                Some(f) => {
                    let scaled = inner.times(&Linear::atom(f))?;
                    self.recombine(scaled)
                }
            };
        }
        // (g*A + R) % (g*b) = g*(A % b) + R for 0 <= R < g
        if let Some(digits) = self.low_digit(&r, &b, &by)? {
            let high = self.modulo(digits.high, digits.divisor)?;
            let mut out = high.times(&digits.unit)?;
            out.add_scaled(&digits.low, 1)?;
            return self.recombine(out);
        }
        // (x % (b*m)) % b = x % b
        if let Some(IntNode::Mod(x, m)) = r.as_atom().map(|a| a.node().clone()) {
            let m = self.form(&m)?;
            let (_, left) = split(&m, &by)?;
            if left.as_const() == Some(0) && as_monomial(&m).is_some() {
                let x = self.form(&x)?;
                return self.mod_symbolic(x, b);
            }
        }
        self.mod_atom(&r, &b)
    }

    /// `r = g*A + R` and `b = g*b'` with `0 <= R < g` proved, for a constant `g` or one symbolic factor.
    fn low_digit(&mut self, r: &Linear, b: &Linear, by: &Monomial) -> Option<Option<Digits>> {
        if let Some((g, split)) = self.split_by_factor(r, by.coefficient) {
            let divisor = reduce(b, g, None)?;
            let (high, low) = (split.multiple, split.rest);
            return Some(Some(Digits { unit: Linear::constant(g), high, low, divisor }));
        }
        for f in &by.factors {
            let unit = Linear::atom(f.clone());
            let factor = Monomial { coefficient: 1, factors: factors(f) };
            let (high, low) = split(r, &factor)?;
            if !high.terms.is_empty() && self.below(&low, &unit) {
                return Some(Some(Digits { unit, high, low, divisor: reduce(b, 1, Some(f))? }));
            }
        }
        Some(None)
    }

    /// `0 <= a < b` is proved.
    fn below(&mut self, a: &Linear, b: &Linear) -> bool {
        if self.span(a).low < 0 {
            return false;
        }
        let mut difference = b.clone();
        if difference.add_scaled(a, -1).is_none() {
            return false;
        }
        self.span(&difference).low > 0
    }
}

/// Cancels a common factor of dividend and divisor: a constant `g` or one symbolic factor.
#[allow(clippy::type_complexity)]
fn cancel(r: &Linear, b: &Linear, by: &Monomial) -> Option<Option<(i64, Option<Int>, Linear, Linear)>> {
    if r.terms.is_empty() {
        return Some(None);
    }
    let g = r.terms.iter().fold(gcd(by.coefficient, r.constant), |g, t| gcd(g, t.1));
    if g > 1 {
        return Some(Some((g, None, reduce(r, g, None)?, reduce(b, g, None)?)));
    }
    if r.constant == 0 {
        for f in &by.factors {
            if r.terms.iter().all(|t| factors(&t.0).contains(f)) {
                return Some(Some((1, Some(f.clone()), reduce(r, 1, Some(f))?, reduce(b, 1, Some(f))?)));
            }
        }
    }
    Some(None)
}
