//! Integer expressions: graph dimensions and tensor-IR indices are the same type, with one simplifier.
//!
//! An [`Int`] is an immutable shared tree. Constructors fold constants and trivial identities only; [`simplify`] uses
//! the ranges of variables for everything else. Division and remainder are floor division and floor modulo (the result
//! of `a % b` has the sign of `b`), as in TVM's tensor IR; all divisors are positive in valid programs.
//!
//! There is one interval analysis for shape inference, passes, schedules, the verifier and shaders: [`Interval`] is its
//! arithmetic, [`range`] and [`prove`] answer for one expression, [`Facts`] for many expressions under the conditions
//! that hold at a program point.
//!
//! Always holds: evaluation is in i64. A shader evaluates in i32, and [`Facts::fits_i32`] proves that nothing
//! overflows. `int/tests.rs` compares the simplifier and the analysis with evaluation in i128, with the edges of i32
//! and i64.

mod answers;
mod below;
mod cond;
mod dims;
mod divisor;
mod facts;
mod interval;
pub(crate) mod print;
mod range;
mod simplify;
mod terms;
#[cfg(test)]
mod tests;
pub use cond::{Cond, CondOp};
pub use dims::{DimRange, DimRanges, typical_size};
pub use divisor::divisor;
pub use divisor::gcd;
pub use facts::Facts;
pub use interval::Interval;
pub use range::{interval, range};
pub use simplify::{prove, prove_cond, simplify};
pub use terms::{Sum, terms};

use crate::arena::BufferId;
use crate::name::Name;
use rustc_hash::FxHashMap;
use std::fmt;
use std::sync::Arc;

/// A dimension of a graph value: an [`Int`] without loop variables or loads.
pub type Dim = Int;

/// An integer expression.
#[derive(Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Int(Arc<IntNode>);

/// One node of an [`Int`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum IntNode {
    /// A constant.
    Const(i64),
    /// A named symbol (a dimension known at run time, or a kernel parameter) or a loop variable.
    Var(Name),
    /// Sum.
    Add(Int, Int),
    /// Difference.
    Sub(Int, Int),
    /// Product.
    Mul(Int, Int),
    /// Floor division.
    Div(Int, Int),
    /// Floor modulo.
    Mod(Int, Int),
    /// Smaller of two.
    Min(Int, Int),
    /// Larger of two.
    Max(Int, Int),
    /// An element of an integer buffer (tensor IR only): the index of a gather.
    Load(BufferId, Vec<Int>),
}

/// Inclusive ranges of variables.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    map: FxHashMap<Name, (i64, i64)>,
}
impl Bounds {
    /// No variable is known.
    pub fn new() -> Bounds {
        Bounds::default()
    }
    /// Declares `low <= var <= high`; `i64::MIN` and `i64::MAX` leave an end open.
    pub fn insert(&mut self, var: Name, low: i64, high: i64) {
        self.map.insert(var, (low, high));
    }
    /// Range of `var`.
    pub fn get(&self, var: Name) -> Option<(i64, i64)> {
        self.map.get(&var).copied()
    }
    pub(super) fn interval(&self, var: Name) -> Option<Interval> {
        self.get(var).map(|(low, high)| Interval::new(low, high))
    }
    /// All declared ranges.
    pub fn iter(&self) -> impl Iterator<Item = (Name, (i64, i64))> + '_ {
        self.map.iter().map(|(k, v)| (*k, *v))
    }
}

impl Int {
    /// True where it reads an element of a buffer.
    pub fn reads_buffer(&self) -> bool {
        let mut found = false;
        self.visit(&mut |n| found |= matches!(n.node(), IntNode::Load(..)));
        found
    }
    /// A constant.
    pub fn new(value: i64) -> Int {
        Int(Arc::new(IntNode::Const(value)))
    }
    /// A symbol or loop variable.
    pub fn var(name: impl Into<Name>) -> Int {
        Int(Arc::new(IntNode::Var(name.into())))
    }
    /// An element of an integer buffer.
    pub fn load(buffer: BufferId, indices: Vec<Int>) -> Int {
        Int(Arc::new(IntNode::Load(buffer, indices)))
    }
    /// The root node.
    pub fn node(&self) -> &IntNode {
        &self.0
    }
    /// The value, when this is a constant.
    pub fn as_const(&self) -> Option<i64> {
        match *self.0 {
            IntNode::Const(c) => Some(c),
            _ => None,
        }
    }
    /// The variable, when this is just one.
    pub fn as_var(&self) -> Option<Name> {
        match *self.0 {
            IntNode::Var(v) => Some(v),
            _ => None,
        }
    }
    /// True for the constant `value`.
    pub fn is(&self, value: i64) -> bool {
        self.as_const() == Some(value)
    }
    /// Floor division.
    pub fn div(&self, other: impl Into<Int>) -> Int {
        let other = other.into();
        match (self.as_const(), other.as_const()) {
            (Some(a), Some(b)) if b > 0 => Int::new(a.div_euclid(b)),
            (_, Some(1)) => self.clone(),
            (Some(0), _) => Int::new(0),
            _ => Int(Arc::new(IntNode::Div(self.clone(), other))),
        }
    }
    /// Floor modulo.
    pub fn rem(&self, other: impl Into<Int>) -> Int {
        let other = other.into();
        match (self.as_const(), other.as_const()) {
            (Some(a), Some(b)) if b > 0 => Int::new(a.rem_euclid(b)),
            (_, Some(1)) | (Some(0), _) => Int::new(0),
            _ => Int(Arc::new(IntNode::Mod(self.clone(), other))),
        }
    }
    /// `ceil(self / other)` for positive `other`.
    pub fn ceil_div(&self, other: impl Into<Int>) -> Int {
        let other = other.into();
        (self.clone() + other.clone() - 1).div(other)
    }
    /// Smaller of two.
    pub fn min(&self, other: impl Into<Int>) -> Int {
        let other = other.into();
        match (self.as_const(), other.as_const()) {
            (Some(a), Some(b)) => Int::new(a.min(b)),
            _ if *self == other => other,
            _ => Int(Arc::new(IntNode::Min(self.clone(), other))),
        }
    }
    /// Larger of two.
    pub fn max(&self, other: impl Into<Int>) -> Int {
        let other = other.into();
        match (self.as_const(), other.as_const()) {
            (Some(a), Some(b)) => Int::new(a.max(b)),
            _ if *self == other => other,
            _ => Int(Arc::new(IntNode::Max(self.clone(), other))),
        }
    }
    /// Replaces variables; `f` returns `None` to keep one. Rebuilt nodes go through the folding constructors; subtrees
    /// without a replacement stay shared.
    pub fn replace(&self, f: &mut dyn FnMut(Name) -> Option<Int>) -> Int {
        let mut both = |a: &Int, b: &Int, make: fn(Int, Int) -> Int| {
            let (x, y) = (a.replace(f), b.replace(f));
            if Arc::ptr_eq(&x.0, &a.0) && Arc::ptr_eq(&y.0, &b.0) { self.clone() } else { make(x, y) }
        };
        match &*self.0 {
            IntNode::Const(_) => self.clone(),
            IntNode::Var(v) => f(*v).unwrap_or_else(|| self.clone()),
            IntNode::Load(b, ix) => Int::load(*b, ix.iter().map(|i| i.replace(f)).collect()),
            IntNode::Add(a, b) => both(a, b, |a, b| a + b),
            IntNode::Sub(a, b) => both(a, b, |a, b| a - b),
            IntNode::Mul(a, b) => both(a, b, |a, b| a * b),
            IntNode::Div(a, b) => both(a, b, |a, b| a.div(b)),
            IntNode::Mod(a, b) => both(a, b, |a, b| a.rem(b)),
            IntNode::Min(a, b) => both(a, b, |a, b| a.min(b)),
            IntNode::Max(a, b) => both(a, b, |a, b| a.max(b)),
        }
    }
    /// Replaces one variable.
    pub fn substitute(&self, var: Name, by: &Int) -> Int {
        self.replace(&mut |v| (v == var).then(|| by.clone()))
    }
    /// Calls `f` on every node, parents first.
    pub fn visit(&self, f: &mut dyn FnMut(&Int)) {
        f(self);
        match &*self.0 {
            IntNode::Const(_) | IntNode::Var(_) => {}
            IntNode::Load(_, ix) => ix.iter().for_each(|i| i.visit(f)),
            IntNode::Add(a, b)
            | IntNode::Sub(a, b)
            | IntNode::Mul(a, b)
            | IntNode::Div(a, b)
            | IntNode::Mod(a, b)
            | IntNode::Min(a, b)
            | IntNode::Max(a, b) => {
                a.visit(f);
                b.visit(f);
            }
        }
    }
    /// Every variable, in order of first occurrence, without repeats.
    pub fn vars(&self) -> Vec<Name> {
        let mut out = Vec::new();
        self.visit(&mut |e| {
            if let Some(v) = e.as_var()
                && !out.contains(&v)
            {
                out.push(v)
            }
        });
        out
    }
    /// True when `var` occurs.
    pub fn uses(&self, var: Name) -> bool {
        let mut found = false;
        self.visit(&mut |e| found |= e.as_var() == Some(var));
        found
    }
    /// True when a quotient occurs.
    pub fn has_quotient(&self) -> bool {
        let mut found = false;
        self.visit(&mut |e| found |= matches!(e.node(), IntNode::Div(..)));
        found
    }
    /// Evaluates with `env`; `None` for an unknown variable, a load, or a division by zero.
    pub fn eval(&self, env: &dyn Fn(Name) -> Option<i64>) -> Option<i64> {
        Some(match &*self.0 {
            IntNode::Const(c) => *c,
            IntNode::Var(v) => env(*v)?,
            IntNode::Load(..) => return None,
            IntNode::Add(a, b) => a.eval(env)?.checked_add(b.eval(env)?)?,
            IntNode::Sub(a, b) => a.eval(env)?.checked_sub(b.eval(env)?)?,
            IntNode::Mul(a, b) => a.eval(env)?.checked_mul(b.eval(env)?)?,
            IntNode::Div(a, b) => floor_div(a.eval(env)?, b.eval(env)?)?,
            IntNode::Mod(a, b) => floor_mod(a.eval(env)?, b.eval(env)?)?,
            IntNode::Min(a, b) => a.eval(env)?.min(b.eval(env)?),
            IntNode::Max(a, b) => a.eval(env)?.max(b.eval(env)?),
        })
    }
}

pub(crate) fn floor_div(a: i64, b: i64) -> Option<i64> {
    if b == 0 {
        return None;
    }
    let q = a.checked_div(b)?;
    Some(if a % b != 0 && ((a < 0) != (b < 0)) { q - 1 } else { q })
}

/// The remainder of [`floor_div`], with the sign of `b`; defined where the quotient leaves i64 too.
pub(crate) fn floor_mod(a: i64, b: i64) -> Option<i64> {
    if b == 0 {
        return None;
    }
    let r = a.wrapping_rem(b);
    Some(if r != 0 && ((r < 0) != (b < 0)) { r + b } else { r })
}

impl From<i64> for Int {
    fn from(value: i64) -> Int {
        Int::new(value)
    }
}
impl From<usize> for Int {
    fn from(value: usize) -> Int {
        Int::new(value as i64)
    }
}
impl From<i32> for Int {
    fn from(value: i32) -> Int {
        Int::new(value as i64)
    }
}
impl From<&Int> for Int {
    fn from(value: &Int) -> Int {
        value.clone()
    }
}

impl<T: Into<Int>> std::ops::Add<T> for Int {
    type Output = Int;
    fn add(self, other: T) -> Int {
        let other = other.into();
        match (self.as_const(), other.as_const()) {
            (Some(a), Some(b)) if a.checked_add(b).is_some() => Int::new(a + b),
            (Some(0), _) => other,
            (_, Some(0)) => self,
            _ => Int(Arc::new(IntNode::Add(self, other))),
        }
    }
}
impl<T: Into<Int>> std::ops::Sub<T> for Int {
    type Output = Int;
    fn sub(self, other: T) -> Int {
        let other = other.into();
        match (self.as_const(), other.as_const()) {
            (Some(a), Some(b)) if a.checked_sub(b).is_some() => Int::new(a - b),
            (_, Some(0)) => self,
            _ if self == other => Int::new(0),
            _ => Int(Arc::new(IntNode::Sub(self, other))),
        }
    }
}
impl<T: Into<Int>> std::ops::Mul<T> for Int {
    type Output = Int;
    fn mul(self, other: T) -> Int {
        let other = other.into();
        match (self.as_const(), other.as_const()) {
            (Some(a), Some(b)) if a.checked_mul(b).is_some() => Int::new(a * b),
            (Some(0), _) | (_, Some(0)) => Int::new(0),
            (Some(1), _) => other,
            (_, Some(1)) => self,
            _ => Int(Arc::new(IntNode::Mul(self, other))),
        }
    }
}

/// Product of dimensions; 1 for none.
pub fn product(dims: &[Int]) -> Int {
    dims.iter().fold(Int::new(1), |a, d| a * d)
}

/// All dimensions as constants, or `None`.
pub fn const_dims(dims: &[Int]) -> Option<Vec<usize>> {
    dims.iter().map(|d| d.as_const().and_then(|c| usize::try_from(c).ok())).collect()
}

/// Row-major linear index of `indices` in a tensor of shape `dims`.
pub fn flatten_index(indices: &[Int], dims: &[Int]) -> Int {
    indices.iter().zip(dims).fold(Int::new(0), |flat, (i, d)| flat * d + i)
}

/// Row-major coordinates of the linear index `flat` in a tensor of shape `dims`.
pub fn unflatten_index(flat: &Int, dims: &[Int]) -> Vec<Int> {
    let mut stride = Int::new(1);
    let mut out = Vec::with_capacity(dims.len());
    // Leading dimensions of 1 take no part, so that the first other one needs no remainder.
    let first = dims.iter().position(|d| !d.is(1)).unwrap_or(0);
    for (axis, d) in dims.iter().enumerate().rev() {
        let quotient = if axis < first { Int::new(0) } else { flat.div(&stride) };
        out.push(if axis <= first { quotient } else { quotient.rem(d) });
        stride = stride * d;
    }
    out.reverse();
    out
}

impl fmt::Display for Int {
    /// Infix with explicit parentheses: `(i*4 + j) % 8`, `min(a, b)`; loads print as `buf#3[i]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn go(e: &Int, parent: u8, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let (a, b, op, prec) = match e.node() {
                IntNode::Const(c) if *c < 0 && parent > 1 => return write!(f, "({c})"),
                IntNode::Const(c) => return write!(f, "{c}"),
                IntNode::Var(v) => return write!(f, "{v}"),
                IntNode::Load(b, ix) => {
                    write!(f, "buf#{}[", crate::arena::Id::index(*b))?;
                    for (n, i) in ix.iter().enumerate() {
                        if n > 0 {
                            f.write_str(", ")?;
                        }
                        go(i, 0, f)?;
                    }
                    return f.write_str("]");
                }
                IntNode::Min(a, b) | IntNode::Max(a, b) => {
                    f.write_str(if matches!(e.node(), IntNode::Min(..)) { "min(" } else { "max(" })?;
                    go(a, 0, f)?;
                    f.write_str(", ")?;
                    go(b, 0, f)?;
                    return f.write_str(")");
                }
                IntNode::Add(a, b) => (a, b, " + ", 1),
                IntNode::Sub(a, b) => (a, b, " - ", 1),
                IntNode::Mul(a, b) => (a, b, "*", 2),
                IntNode::Div(a, b) => (a, b, "/", 2),
                IntNode::Mod(a, b) => (a, b, "%", 2),
            };
            let paren = parent > prec;
            if paren {
                f.write_str("(")?;
            }
            go(a, prec, f)?;
            f.write_str(op)?;
            go(b, prec + 1, f)?;
            if paren {
                f.write_str(")")?;
            }
            Ok(())
        }
        go(self, 0, f)
    }
}
impl fmt::Debug for Int {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
