//! Iterations of serial loops in which an access happens, and in which it goes to a new place.

use crate::int::{Int, IntNode};
use crate::name::Name;
use crate::tir::{Block, Cond, CondOp, For};

/// Iterations that are looked at, one by one.
const MOST: i64 = 1024;

/// Iterations of a serial loop, without those that a guard on the loop alone leaves out.
pub(super) fn iterations(block: &Block, l: &For) -> u64 {
    let all = l.extent.as_const().unwrap_or(0).max(0);
    let own = |c: &&Cond| {
        let mut vars = c.lhs.vars().into_iter().chain(c.rhs.vars()).peekable();
        vars.peek().is_some() && vars.all(|v| v == l.var)
    };
    let guards: Vec<&Cond> = block.guards.iter().filter(own).collect();
    if guards.is_empty() || all > MOST {
        return all as u64;
    }
    (0..all).filter(|n| guards.iter().all(|c| holds(c, &|_| Some(*n)))).count() as u64
}

/// The part of a loop's iterations that go on to another place, where the place has a limit: the last load of a
/// pipelined loop is that of the iteration before.
pub(super) fn fresh(flat: &Int, l: &For) -> f64 {
    let mut limited = false;
    flat.visit(&mut |i| limited |= matches!(i.node(), IntNode::Min(a, b) if a.uses(l.var) || b.uses(l.var)));
    let all = l.extent.as_const().unwrap_or(0);
    if !limited || !(2..=MOST).contains(&all) {
        return 1.0;
    }
    let at = |n: i64| flat.eval(&|v| Some(if v == l.var { n } else { 0 }));
    (1 + (1..all).filter(|n| at(*n) != at(n - 1)).count()) as f64 / all as f64
}

/// Whether a condition holds for these values; true where one is not known.
pub(super) fn holds(c: &Cond, value: &dyn Fn(Name) -> Option<i64>) -> bool {
    match (c.lhs.eval(value), c.rhs.eval(value), c.op) {
        (Some(a), Some(b), CondOp::Lt) => a < b,
        (Some(a), Some(b), CondOp::Ge) => a >= b,
        (Some(a), Some(b), CondOp::Eq) => a == b,
        _ => true,
    }
}
