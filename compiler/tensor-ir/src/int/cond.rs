//! Conditions on index expressions.

use super::Int;
use crate::name::Name;

/// Comparison of two index expressions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum CondOp {
    /// `<`
    Lt,
    /// `>=`
    Ge,
    /// `==`
    Eq,
}

/// A condition on indices: `lhs op rhs`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Cond {
    /// Left side.
    pub lhs: Int,
    /// Comparison.
    pub op: CondOp,
    /// Right side.
    pub rhs: Int,
}

impl Cond {
    /// `a < b`
    pub fn lt(a: impl Into<Int>, b: impl Into<Int>) -> Cond {
        Cond { lhs: a.into(), op: CondOp::Lt, rhs: b.into() }
    }
    /// `a >= b`
    pub fn ge(a: impl Into<Int>, b: impl Into<Int>) -> Cond {
        Cond { lhs: a.into(), op: CondOp::Ge, rhs: b.into() }
    }
    /// `a == b`
    pub fn eq(a: impl Into<Int>, b: impl Into<Int>) -> Cond {
        Cond { lhs: a.into(), op: CondOp::Eq, rhs: b.into() }
    }
    /// The condition that holds where this one does not; `None` for an equation.
    pub fn opposite(&self) -> Option<Cond> {
        let op = match self.op {
            CondOp::Lt => CondOp::Ge,
            CondOp::Ge => CondOp::Lt,
            CondOp::Eq => return None,
        };
        Some(Cond { op, ..self.clone() })
    }
    /// Whether it holds for these values of the variables; `None` if a variable has no value.
    pub fn holds(&self, value: &dyn Fn(Name) -> Option<i64>) -> Option<bool> {
        let (lhs, rhs) = (self.lhs.eval(value)?, self.rhs.eval(value)?);
        Some(match self.op {
            CondOp::Lt => lhs < rhs,
            CondOp::Ge => lhs >= rhs,
            CondOp::Eq => lhs == rhs,
        })
    }
    /// An expression that is 1 if it holds, else 0.
    pub fn truth(&self) -> Int {
        let difference = || self.lhs.clone() - &self.rhs;
        match self.op {
            CondOp::Lt => (self.rhs.clone() - &self.lhs).max(0).min(1),
            CondOp::Ge => (difference() + 1).max(0).min(1),
            CondOp::Eq => Int::new(1) - difference().max(self.rhs.clone() - &self.lhs).min(1),
        }
    }
    /// Rewrites both sides.
    pub fn map(&self, f: &mut dyn FnMut(&Int) -> Int) -> Cond {
        Cond { lhs: f(&self.lhs), op: self.op, rhs: f(&self.rhs) }
    }
}
