//! Ranges of expressions, computed from the ranges of their variables only.

use super::{Bounds, Int, IntNode, Interval};

/// Inclusive range of `e`, or `None` if an end is not known or beyond i64. The tree is not simplified: simplify it
/// first if variables repeat.
pub fn range(e: &Int, bounds: &Bounds) -> Option<(i64, i64)> {
    interval(e, bounds).finite()
}

/// Range of `e`, open where it is not known. A variable that is not declared and a load can be anything.
pub fn interval(e: &Int, bounds: &Bounds) -> Interval {
    match e.node() {
        IntNode::Var(v) => bounds.interval(*v).unwrap_or(Interval::ALL),
        _ => Interval::of_node(e, |operand| interval(operand, bounds)),
    }
}

impl Interval {
    /// Range of `e` from the ranges of its operands, which `operand` gives. A variable and a load can be anything.
    pub(super) fn of_node(e: &Int, mut operand: impl FnMut(&Int) -> Interval) -> Interval {
        match e.node() {
            IntNode::Const(c) => Interval::point(*c),
            IntNode::Var(_) | IntNode::Load(..) => Interval::ALL,
            IntNode::Add(a, b) => operand(a) + operand(b),
            IntNode::Sub(a, b) => operand(a) - operand(b),
            IntNode::Mul(a, b) => operand(a) * operand(b),
            IntNode::Div(a, b) => operand(a).floor_div(operand(b)),
            IntNode::Mod(a, b) => operand(a).floor_mod(operand(b)),
            IntNode::Min(a, b) => operand(a).min(operand(b)),
            IntNode::Max(a, b) => operand(a).max(operand(b)),
        }
    }
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
        check(Int::var("unknown").min(9).max(0), 0, 9);
        assert_eq!(range(&Int::var("unknown"), &b), None);
        assert_eq!(range(&(y.clone() * i64::MAX), &b), None);
    }

    #[test]
    fn open_ends_bound_the_other_side() {
        let mut b = Bounds::new();
        b.insert("n".into(), 1, i64::MAX);
        let (n, any) = (Int::var("n"), Int::var("unknown"));
        let check = |e: Int, low, high| assert_eq!(interval(&e, &b), Interval::new(low, high), "{e}");
        check(n.clone() * 4 + 2, 6, i64::MAX);
        check(Int::new(0) - n.clone(), i64::MIN, -1);
        check(n.clone() * n.clone() - 1, 0, i64::MAX);
        check(Int::new(100).div(&n), 0, 100);
        check(Int::new(-100).div(&n), -100, -1);
        check(n.rem(any.max(8)), 0, i64::MAX);
        check(any.min(5) * 2, i64::MIN, 10);
        // What leaves i64 comes back nowhere.
        let k = 1i64 << 40;
        let huge = (n.clone() * k + k) * k;
        check(huge.clone() - (i64::MAX - 1), 1, i64::MAX);
        check((Int::new(0) - huge).div(k), i64::MIN, -8388608);
    }
}
