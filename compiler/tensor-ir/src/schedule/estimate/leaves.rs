//! Parts of the expressions of leaves that have prices of their own.

use super::tally::{FUNCTION, operations};
use crate::int::{Cond, IntNode};
use crate::name::Name;
use crate::tir::{Domain, Expr};

/// Shifts in an expression: what only integers have.
pub(super) fn shifts(e: &Expr) -> f64 {
    let mut sum = 0.0;
    e.visit(&mut |e| {
        if let Expr::Binary(op, ..) = e {
            sum += f64::from(u8::from(op.domain() == Domain::Integer));
        }
    });
    sum
}

/// True if a place or a condition in an expression has a quotient or remainder of loop `v`.
pub(super) fn divides(e: &Expr, v: Name) -> bool {
    let mut found = false;
    e.visit_ints(&mut |i| {
        i.visit(&mut |i| found |= matches!(i.node(), IntNode::Div(of, _) | IntNode::Mod(of, _) if of.uses(v)));
    });
    found
}

/// Conditions of a leaf that runs as strips, at most.
pub(super) const MOST_CONDITIONS: usize = 3;

/// Choices by conditions in an expression that hold for all lanes or none; others cut the lanes.
pub(super) fn conditions(e: &Expr, lane: Option<Name>) -> usize {
    let cuts = |v: Name, list: &[Cond]| list.iter().any(|c| c.lhs.uses(v) || c.rhs.uses(v));
    let mut count = 0;
    e.visit(&mut |e| {
        if let Expr::All(list) = e {
            count += usize::from(!lane.is_some_and(|v| cuts(v, list)));
        }
    });
    count
}

/// Exponentials and the like in an expression.
pub(super) fn functions(e: &Expr) -> f64 {
    let mut sum = 0.0;
    e.visit(&mut |e| sum += f64::from(u8::from(operations(e) >= FUNCTION)));
    sum
}
