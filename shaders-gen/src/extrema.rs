//! Maximum and minimum of two floats, with NaN preserved.
//!
//! Shading languages do not define `min` and `max` if an operand is NaN; devices return the other operand. So the
//! operand is tested by its bits: drivers assume that `x != x` is false. Values that cannot be NaN (constants, indices,
//! converted integers) are not tested, and all constant bounds of a value share one test. `relu` is one comparison and
//! one selection: as integers, negative floats that are not NaN are the range up to minus infinity.
//!
//! With [`Nan::Fast`] the device's own functions are used, which may lose NaN.

use crate::builder::{Builder, Kind, Value};
use crate::error::EmitError;
use crate::kernel::KernelEmitter;
use naga::{BinaryOperator as B, MathFunction as M};
use tensor_ir::profile::Nan;
use tensor_ir::tir::{BinaryOp, Expr, Scalar, TensorFunction, UnaryOp};

/// Minus infinity's bits as a signed integer. Floats from minus infinity to -0 are the integers from the lowest one to
/// this.
const MINUS_INFINITY: i32 = 0xff80_0000_u32 as i32;
/// Infinity's bits. Larger ones of floats without a sign are NaN.
const INFINITY: u32 = 0x7f80_0000;

impl Builder {
    /// The maximum or minimum of two floats; NaN if one of them is NaN.
    ///
    /// `select(a > b || is_nan(a), a, b)`: where `b` alone is NaN, `a > b` is false.
    pub(crate) fn extremum(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
        if self.nan == Nan::Fast {
            return self.math(function(op), &[a, b]);
        }
        let first = self.binary(if op == BinaryOp::Max { B::Greater } else { B::Less }, a, b);
        let is_nan = self.is_nan(a);
        let either = self.binary(B::InclusiveOr, first, is_nan);
        self.select(either, a, b)
    }

    /// `a` if that is NaN, else `v`: for functions of `a` that lose NaN.
    pub(crate) fn keep_nan(&mut self, a: Value, v: Value) -> Value {
        if self.nan == Nan::Fast {
            return v;
        }
        let is_nan = self.is_nan(a);
        self.select(is_nan, a, v)
    }

    /// `max(a, 0)`, NaN where `a` is.
    fn relu(&mut self, a: Value) -> Value {
        let bits = self.bitcast(a, Kind::I32);
        let (last, zero) = (self.c(bits, f64::from(MINUS_INFINITY)), self.c(a, 0.0));
        let below = self.binary(B::LessEqual, bits, last);
        self.select(below, zero, a)
    }
}

fn function(op: BinaryOp) -> M {
    if op == BinaryOp::Max { M::Max } else { M::Min }
}

/// False if the float is never NaN, whatever the inputs are.
fn may_be_nan(f: &TensorFunction, e: &Expr) -> bool {
    match e {
        Expr::Const(Scalar::Float(v), _) => v.is_nan(),
        Expr::Const(Scalar::Int(_), _) | Expr::Index(..) | Expr::All(_) => false,
        Expr::Cast(_, a) => a.dtype(f).is_float() && may_be_nan(f, a),
        Expr::Unary(UnaryOp::Neg | UnaryOp::Abs, a) => may_be_nan(f, a),
        Expr::Binary(BinaryOp::Min | BinaryOp::Max, a, b) | Expr::Select(_, a, b) => {
            may_be_nan(f, a) || may_be_nan(f, b)
        }
        Expr::Load(..) | Expr::Unary(..) | Expr::Binary(..) => true,
    }
}

/// The value inside of extrema with operands that are no NaN, and those, innermost first.
fn bounded<'e>(f: &TensorFunction, e: &'e Expr) -> (&'e Expr, Vec<(BinaryOp, &'e Expr)>) {
    if let Expr::Binary(op @ (BinaryOp::Min | BinaryOp::Max), a, b) = e {
        let inner = match [a, b].map(|e| may_be_nan(f, e)) {
            [_, false] => Some((a, b)),
            [false, true] => Some((b, a)),
            [true, true] => None,
        };
        if let Some((value, bound)) = inner {
            let (value, mut bounds) = bounded(f, value);
            bounds.push((*op, bound));
            return (value, bounds);
        }
    }
    (e, vec![])
}

impl KernelEmitter<'_> {
    /// Evaluates an extremum of floats.
    pub fn extremum(&mut self, op: BinaryOp, (a, b): (&Expr, &Expr), e: &Expr) -> Result<Value, EmitError> {
        let (inner, bounds) = bounded(self.f, e);
        if bounds.is_empty() {
            let (a, b) = (self.value(a)?, self.value(b)?);
            let (a, b) = self.b.widen(a, b);
            return Ok(self.b.extremum(op, a, b));
        }
        let value = self.value(inner)?;
        let tested = self.b.nan == Nan::Keep && may_be_nan(self.f, inner);
        if let [(BinaryOp::Max, Expr::Const(Scalar::Float(0.0), _))] = bounds[..]
            && tested
        {
            return Ok(self.b.relu(value));
        }
        let mut inside = value;
        for (op, bound) in bounds {
            let bound = self.value(bound)?;
            inside = self.b.math(function(op), &[inside, bound]);
        }
        if !tested {
            return Ok(inside);
        }
        let is_nan = match inner {
            Expr::Unary(UnaryOp::Abs, _) => {
                let bits = self.b.bitcast(value, Kind::U32);
                let infinity = self.b.c(bits, f64::from(INFINITY));
                self.b.binary(B::Greater, bits, infinity)
            }
            _ => self.b.is_nan(value),
        };
        Ok(self.b.select(is_nan, value, inside))
    }
}
