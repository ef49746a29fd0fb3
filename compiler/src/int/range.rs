//! Interval arithmetic on [`Int`]: checked, and tight per operator.

use super::{Bounds, Int, IntNode, floor_div};

/// Inclusive range of values; `None` where unknown or beyond i64.
pub(super) type Range = Option<(i64, i64)>;

/// Inclusive range of `e`, or `None` when a variable is unknown or the arithmetic could leave i64. The tree is taken
/// as it stands: simplify first where variables repeat.
pub fn range(e: &Int, bounds: &Bounds) -> Range {
    match e.node() {
        IntNode::Const(c) => Some((*c, *c)),
        IntNode::Var(v) => bounds.get(*v),
        // The remainder by a known divisor is bounded whatever the dividend.
        IntNode::Mod(a, b) => range_mod(range(a, bounds), range(b, bounds)),
        IntNode::Min(a, b) => range_min(range(a, bounds), range(b, bounds)),
        IntNode::Max(a, b) => range_max(range(a, bounds), range(b, bounds)),
        IntNode::Load(..) => None,
        IntNode::Add(a, b) => range_add(range(a, bounds), range(b, bounds)),
        IntNode::Sub(a, b) => range_add(range(a, bounds), range_scale(range(b, bounds), -1)),
        IntNode::Mul(a, b) => range_mul(range(a, bounds), range(b, bounds)),
        IntNode::Div(a, b) => range_div(range(a, bounds), range(b, bounds)),
    }
}

pub(super) fn range_add(a: Range, b: Range) -> Range {
    let (a, b) = (a?, b?);
    Some((a.0.checked_add(b.0)?, a.1.checked_add(b.1)?))
}

pub(super) fn range_scale(a: Range, k: i64) -> Range {
    let a = a?;
    let (x, y) = (a.0.checked_mul(k)?, a.1.checked_mul(k)?);
    Some((x.min(y), x.max(y)))
}

pub(super) fn range_mul(a: Range, b: Range) -> Range {
    let (a, b) = (a?, b?);
    corners(a, b, i64::checked_mul)
}

/// Floor division is monotone in the dividend and, per sign, in a positive divisor.
pub(super) fn range_div(a: Range, b: Range) -> Range {
    let (a, b) = (a?, b?);
    if b.0 <= 0 {
        return None;
    }
    corners(a, b, floor_div)
}

pub(super) fn range_mod(a: Range, b: Range) -> Range {
    let b = b?;
    if b.0 <= 0 {
        return None;
    }
    let Some(a) = a else { return Some((0, b.1 - 1)) };
    if b.0 == b.1 {
        let (low, high) = (a.0.div_euclid(b.0), a.1.div_euclid(b.0));
        if low == high {
            return Some((a.0.rem_euclid(b.0), a.1.rem_euclid(b.0)));
        }
    }
    if a.0 >= 0 {
        return Some(if a.1 < b.0 { a } else { (0, a.1.min(b.1 - 1)) });
    }
    Some((0, b.1 - 1))
}

pub(super) fn range_min(a: Range, b: Range) -> Range {
    let (a, b) = (a?, b?);
    Some((a.0.min(b.0), a.1.min(b.1)))
}

pub(super) fn range_max(a: Range, b: Range) -> Range {
    let (a, b) = (a?, b?);
    Some((a.0.max(b.0), a.1.max(b.1)))
}

fn corners(a: (i64, i64), b: (i64, i64), f: fn(i64, i64) -> Option<i64>) -> Range {
    let all = [f(a.0, b.0)?, f(a.0, b.1)?, f(a.1, b.0)?, f(a.1, b.1)?];
    Some((*all.iter().min()?, *all.iter().max()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_tight() {
        let mut b = Bounds::new();
        b.insert("x".into(), -3, 10);
        b.insert("y".into(), 4, 6);
        b.insert("n".into(), 2, 5);
        let (x, y, n) = (Int::var("x"), Int::var("y"), Int::var("n"));
        let check = |e: Int, low, high| assert_eq!(range(&e, &b), Some((low, high)), "{e}");
        check(x.div(4), -1, 2);
        check(x.rem(4), 0, 3);
        check(y.rem(8), 4, 6);
        check((y.clone() + 8).rem(8), 4, 6);
        check(x.clone() * y.clone(), -18, 60);
        check(y.div(&n), 0, 3);
        check(y.rem(&n), 0, 4);
        check(x.min(3), -3, 3);
        check(x.max(3), 3, 10);
        check(Int::var("unknown").rem(7), 0, 6);
        assert_eq!(range(&Int::var("unknown"), &b), None);
        assert_eq!(range(&(y.clone() * i64::MAX), &b), None);
    }
}
