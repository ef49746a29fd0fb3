//! Divisors of every value of an expression, for the alignment of vectors and packed words.

use super::{Int, IntNode};

/// Greatest common divisor, not negative; 0 only for two zeros.
pub fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i64::try_from(a).unwrap_or(1)
}

/// A number that divides every value of `e`, whatever its variables; 0 when `e` is always 0.
pub fn divisor(e: &Int) -> i64 {
    match e.node() {
        IntNode::Const(c) => c.checked_abs().unwrap_or(1),
        IntNode::Var(_) | IntNode::Load(..) => 1,
        IntNode::Add(a, b) | IntNode::Sub(a, b) | IntNode::Min(a, b) | IntNode::Max(a, b) | IntNode::Mod(a, b) => {
            gcd(divisor(a), divisor(b))
        }
        IntNode::Mul(a, b) => divisor(a).checked_mul(divisor(b)).unwrap_or(1),
        IntNode::Div(a, b) => match b.as_const() {
            Some(c) if c > 0 && divisor(a) % c == 0 => divisor(a) / c,
            _ => 1,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_products_and_quotients() {
        let (i, j) = (Int::var("i"), Int::var("j"));
        assert_eq!(divisor(&(i.clone() * 8 + j.clone() * 12)), 4);
        assert_eq!(divisor(&(i.clone() * 8).div(2)), 4);
        assert_eq!(divisor(&(i.clone() * 8).rem(12)), 4);
        assert_eq!(divisor(&(i * 8 + j)), 1);
        assert_eq!(divisor(&Int::new(0)), 0);
    }
}
