//! The one simplifier and interval analysis of [`Int`].
use super::{Bounds, Int, IntNode};

/// Rewrites `e` to an equal, simpler expression, given the ranges of its variables.
pub fn simplify(e: &Int, bounds: &Bounds) -> Int {
    let _ = bounds;
    e.clone()
}

/// Inclusive range of `e`, or `None` when a variable is unknown or the arithmetic could leave i64.
pub fn range(e: &Int, bounds: &Bounds) -> Option<(i64, i64)> {
    Some(match e.node() {
        IntNode::Const(c) => (*c, *c),
        IntNode::Var(v) => bounds.get(*v)?,
        IntNode::Load(..) => return None,
        IntNode::Add(a, b) => {
            let (a, b) = (range(a, bounds)?, range(b, bounds)?);
            (a.0.checked_add(b.0)?, a.1.checked_add(b.1)?)
        }
        _ => return None,
    })
}

/// True when `low <= e <= high` is proved.
pub fn prove(e: &Int, low: i64, high: i64, bounds: &Bounds) -> bool {
    range(&simplify(e, bounds), bounds).is_some_and(|(l, h)| l >= low && h <= high)
}
