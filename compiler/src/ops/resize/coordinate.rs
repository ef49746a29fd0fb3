//! Source coordinates as exact fractions.

use crate::int::{Bounds, Int, simplify};

/// A source coordinate `(a * i + b) / c` with positive `c`.
pub(super) struct Coordinate {
    pub(super) a: Int,
    pub(super) b: Int,
    pub(super) c: Int,
}

/// The simplest fraction that rounds to the f32 nearest to `value`, by continued fractions.
pub(super) fn simple_fraction(value: f64) -> (i64, i64) {
    let (mut p0, mut q0, mut p1, mut q1) = (0i64, 1i64, 1i64, 0i64);
    let mut x = value;
    for _ in 0..40 {
        let whole = x.floor();
        let next = |a: i64, b: i64| a.checked_mul(whole as i64).and_then(|m| m.checked_add(b));
        let (Some(p), Some(q)) = (next(p1, p0), next(q1, q0)) else { break };
        (p0, q0, p1, q1) = (p1, q1, p, q);
        if (p1 as f64 / q1 as f64) as f32 == value as f32 || q1 > 1 << 24 {
            break;
        }
        x = 1.0 / (x - whole);
    }
    (p1, q1.max(1))
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}

impl Coordinate {
    /// With common factors removed where all parts are constants.
    pub(super) fn new(a: Int, b: Int, c: Int) -> Coordinate {
        let tidy = |e: Int| simplify(&e, &Bounds::new());
        let (a, b, c) = (tidy(a), tidy(b), tidy(c));
        if let (Some(x), Some(y), Some(z)) = (a.as_const(), b.as_const(), c.as_const()) {
            return Coordinate::constant(x as i128, y as i128, z as i128).unwrap_or(Coordinate { a, b, c });
        }
        Coordinate { a, b, c }
    }
    pub(super) fn constant(a: i128, b: i128, c: i128) -> Option<Coordinate> {
        let g = gcd(gcd(a, b), c).max(1);
        let part = |v: i128| i64::try_from(v / g).ok().map(Int::new);
        Some(Coordinate { a: part(a)?, b: part(b)?, c: part(c)? })
    }
    pub(super) fn at(&self, i: &Int) -> Int {
        self.a.clone() * i + &self.b
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_the_simplest_that_round_to_the_scale() {
        for (p, q) in [(3, 5), (2, 1), (1, 3), (8, 3), (12, 7), (1, 1), (641, 320)] {
            assert_eq!(simple_fraction((p as f32 / q as f32) as f64), (p, q));
        }
        assert_eq!(simple_fraction(0.0), (0, 1));
        assert_eq!(simple_fraction(-0.25), (-1, 4));
    }
}
