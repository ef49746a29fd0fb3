//! Emits value expressions.
//!
//! Drivers fold `x / 0` to arbitrary values. So if a driver might find a divisor to be 0 for all inputs, a 0 that is
//! known only at run time is mixed into both operands. A divisor does not need that if it is a non-zero constant, an
//! index whose range excludes 0, or an element of an input. A product needs it too if drivers may first multiply its
//! constants, and their product leaves the range of f32. Products and differences of infinities are left to the driver.

use crate::builder::{Kind, Value};
use crate::error::EmitError;
use crate::kernel::{KernelEmitter, StorageLocation};
use crate::layout::Word;
use crate::ops::kind_of;
use crate::tree::Leaf;
use naga::{BinaryOperator, Expression, ScalarKind};
use tensor_ir::dtype::DType;
use tensor_ir::profile::Nan;
use tensor_ir::tir::{BinaryOp, BufferId, Expr, Scalar, Scope, UnaryOp};

impl KernelEmitter<'_> {
    /// Evaluates `e`: a scalar when all lanes agree, else a vector.
    ///
    /// A select evaluates both sides, so its condition proves nothing about them: a load that may be out of bounds is
    /// clamped, and its value is not selected.
    pub fn value(&mut self, e: &Expr) -> Result<Value, EmitError> {
        match e {
            Expr::Const(s, t) => self.scalar(*s, *t),
            Expr::Index(i, t) => {
                let v = self.index_value(i)?;
                self.b.cast(v, DType::I32, *t)
            }
            Expr::Load(b, ix) => self.load(*b, ix),
            Expr::Unary(op, a) => {
                let t = a.dtype(self.f);
                let mut v = self.value(a)?;
                if *op == UnaryOp::Log
                    && self.b.nan == Nan::Keep
                    && !matches!(**a, Expr::Load(b, _) if self.is_given(b))
                {
                    // Drivers simplify log(exp(x)) to x, and then x - x to 0.
                    v = self.out_of_reach(v);
                }
                Ok(self.b.unary_op(*op, v, t))
            }
            Expr::Binary(op, a, b) => {
                if let Some(known) = beyond_words(*op, a, b) {
                    return Ok(self.b.constant(Kind::Bool, 1, if known { 1.0 } else { 0.0 }));
                }
                let t = a.dtype(self.f);
                if matches!(op, BinaryOp::Min | BinaryOp::Max) && t.is_float() {
                    return self.extremum(*op, (a, b), e);
                }
                let exponent = match &**b {
                    Expr::Const(Scalar::Float(x), _) => Some(*x),
                    Expr::Const(Scalar::Int(x), _) => Some(*x as f64),
                    _ => None,
                };
                let divides = *op == BinaryOp::Div || *op == BinaryOp::Pow && exponent.is_some_and(|e| e < 0.0);
                let pins = divides && t.is_float() && (*op == BinaryOp::Pow || self.may_fold_to_zero(b));
                let (mut left, mut right) = match t.is_float() {
                    true => self.pinned_operands(*op, a, b)?,
                    false => (self.value(a)?, self.value(b)?),
                };
                if pins && self.may_fold_to_zero(a) {
                    left = self.out_of_reach(left);
                }
                if pins && *op == BinaryOp::Div {
                    right = self.out_of_reach(right);
                }
                if matches!(op, BinaryOp::Shl | BinaryOp::Shr) && self.is_within_words(b) {
                    return Ok(self.b.shift_within(*op, left, right, t));
                }
                Ok(self.b.binary_op(*op, left, right, t, exponent))
            }
            Expr::All(conds) => self.all(conds),
            Expr::Select(c, a, b) => {
                let (cond, yes, no) = (self.value(c)?, self.value(a)?, self.value(b)?);
                Ok(self.b.select(cond, yes, no))
            }
            Expr::Cast(t, a) => {
                let from = a.dtype(self.f);
                let v = self.value(a)?;
                self.b.cast(v, from, *t)
            }
        }
    }

    /// True for an index that is 0 to 31.
    fn is_within_words(&mut self, e: &Expr) -> bool {
        let Expr::Index(i, _) = e else { return false };
        let range = self.ranges.span(i);
        range.low >= 0 && range.high < 32
    }

    /// The leaf's value without the rounding that its store does anyway.
    pub fn before_rounding_store<'a>(&self, leaf: &'a Leaf) -> &'a Expr {
        let done_by_store = match (self.f.buffers[leaf.buffer].dtype, self.layouts[&leaf.buffer].word) {
            (DType::F16, Word::F16 | Word::Halves | Word::RoundedHalf) => UnaryOp::QuantizeF16,
            (DType::BF16, Word::BrainHalves) => UnaryOp::QuantizeBf16,
            _ => return &leaf.value,
        };
        match &leaf.value {
            Expr::Cast(_, inner) => match &**inner {
                Expr::Unary(op, x) if *op == done_by_store => x,
                _ => &leaf.value,
            },
            _ => &leaf.value,
        }
    }

    /// True if a driver might find that the value is 0 for all inputs.
    fn may_fold_to_zero(&mut self, e: &Expr) -> bool {
        match e {
            Expr::Const(s, _) => register_value(*s) == 0.0,
            Expr::Load(b, _) => !self.is_given(*b),
            Expr::Unary(_, a) | Expr::Cast(_, a) => self.may_fold_to_zero(a),
            Expr::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) => self.may_fold_to_zero(a) && self.may_fold_to_zero(b),
            Expr::Binary(BinaryOp::Max, a, b) if [a, b].into_iter().any(|e| is_positive(e)) => false,
            Expr::Binary(_, a, b) | Expr::Select(_, a, b) => self.may_fold_to_zero(a) || self.may_fold_to_zero(b),
            Expr::Index(i, _) => {
                let range = self.ranges.span(i);
                range.low <= 0 && range.high >= 0
            }
            Expr::All(_) => true,
        }
    }

    /// True for memory that the kernel only reads: drivers do not know its content.
    fn is_given(&self, b: BufferId) -> bool {
        self.f.buffers[b].scope == Scope::Global && !self.layouts[&b].written
    }

    /// True for expressions that drivers simplify as for finite numbers, although x may be NaN or infinite: `x - x`, `x
    /// / x`, `x * 0`.
    fn may_lose_nan(&self, op: BinaryOp, (a, left): (&Expr, Value), (b, right): (&Expr, Value)) -> bool {
        let is_zero = |e: &Expr| matches!(e, Expr::Const(s, _) if register_value(*s) == 0.0);
        let known = match op {
            BinaryOp::Sub | BinaryOp::Div => left == right || a == b,
            BinaryOp::Mul => is_zero(a) || is_zero(b),
            _ => false,
        };
        known && self.b.nan == Nan::Keep
    }

    /// The operands of an operation on floats, those hidden from the driver's compiler with which it would lose a NaN
    /// or an overflow.
    pub fn pinned_operands(&mut self, op: BinaryOp, a: &Expr, b: &Expr) -> Result<(Value, Value), EmitError> {
        let (mut left, mut right) = (self.value(a)?, self.value(b)?);
        if op == BinaryOp::Mul && leaves_range(a, b) {
            (left, right) = (self.out_of_reach(left), self.out_of_reach(right));
        }
        if self.may_lose_nan(op, (a, left), (b, right)) {
            // Applied to one side only: two equal sides would remain equal.
            right = self.out_of_reach(right);
            left = if op == BinaryOp::Mul { self.out_of_reach(left) } else { left };
        }
        Ok((left, right))
    }

    /// The same float, hidden from the driver's compiler.
    ///
    /// lavapipe treats a division by a constant 0 as undefined, and a division of 0 as 0, although IEEE 754 gives
    /// infinity and NaN. A division by an accumulator without any summand is such a division. lavapipe also multiplies
    /// the constants of a product first, which may overflow although the product does not. So a 0 that is known only at
    /// run time is mixed into the bits of both sides: it is 1 only for a buffer without elements, which cannot be
    /// bound.
    fn out_of_reach(&mut self, v: Value) -> Value {
        let Some(zero) = self.unknown_zero() else { return v };
        let bits = self.b.bitcast(v, Kind::U32);
        let same = self.b.binary(BinaryOperator::InclusiveOr, bits, zero);
        self.b.bitcast(same, Kind::F32)
    }

    /// 1 where the first buffer has no elements, else 0, computed once at the top.
    fn unknown_zero(&mut self) -> Option<Value> {
        if self.unknown_zero.is_none() {
            let slices = |b: &BufferId| matches!(self.locations[b], StorageLocation::Slices(_));
            let first = self.locations.keys().copied().filter(slices).min()?;
            let StorageLocation::Slices(list) = &self.locations[&first] else { return None };
            let slice = *list.first()?;
            let buffer = self.b.global(slice);
            let length = self.b.emit_at(0, Expression::ArrayLength(buffer));
            let zero = self.b.u32(0);
            let equal = Expression::Binary { op: BinaryOperator::Equal, left: length, right: zero };
            let empty = self.b.emit_at(0, equal);
            let handle = self.b.emit_at(0, Expression::As { expr: empty, kind: ScalarKind::Uint, convert: Some(4) });
            self.unknown_zero = Some(Value { handle, kind: Kind::U32, lanes: 1 });
        }
        self.unknown_zero
    }

    fn scalar(&mut self, s: Scalar, t: DType) -> Result<Value, EmitError> {
        let kind = kind_of(t)?;
        let handle = match (kind, s) {
            (Kind::F32, Scalar::Float(v)) => self.b.f32(v as f32),
            (Kind::F32, Scalar::Int(v)) => self.b.f32(v as f32),
            (Kind::Bool, Scalar::Int(v)) => self.b.bool(v != 0),
            (Kind::Bool, Scalar::Float(v)) => self.b.bool(v != 0.0),
            (Kind::U32, Scalar::Int(v)) => self.b.u32(v.clamp(0, i64::from(u32::MAX)) as u32),
            // A 64-bit constant beyond i32 means "beyond all values", since values are proved to fit.
            (_, Scalar::Int(v)) => self.b.i32(v.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32),
            (Kind::U32, Scalar::Float(v)) => self.b.u32(v as u32),
            (_, Scalar::Float(v)) => self.b.i32(v as i32),
        };
        Ok(Value { handle, kind, lanes: 1 })
    }
}

/// The result of a comparison with a 64-bit constant beyond 32 bits; the other side is proved to fit 32 bits.
fn beyond_words(op: BinaryOp, a: &Expr, b: &Expr) -> Option<bool> {
    let far = |e: &Expr| match e {
        Expr::Const(Scalar::Int(v), DType::I64) => i32::try_from(*v).err().map(|_| *v > 0),
        _ => None,
    };
    let above = match (far(a), far(b)) {
        (None, Some(high)) => high,
        (Some(high), None) => !high,
        _ => return None,
    };
    match op {
        BinaryOp::Lt | BinaryOp::Le => Some(above),
        BinaryOp::Gt | BinaryOp::Ge => Some(!above),
        BinaryOp::Eq => Some(false),
        BinaryOp::Ne => Some(true),
        _ => None,
    }
}

/// The constants that `e` is a product with; 1 for none.
fn literal_factor(e: &Expr) -> f64 {
    match e {
        Expr::Const(Scalar::Float(v), _) => *v,
        Expr::Const(Scalar::Int(v), _) => *v as f64,
        Expr::Binary(BinaryOp::Mul, a, b) => literal_factor(a) * literal_factor(b),
        Expr::Binary(BinaryOp::Div, a, b) => match &**b {
            Expr::Const(..) => literal_factor(a) / literal_factor(b),
            _ => literal_factor(a),
        },
        Expr::Unary(UnaryOp::Neg, a) | Expr::Cast(_, a) => literal_factor(a),
        _ => 1.0,
    }
}

/// True when two operands have factors, and a driver that multiplies these first loses something: their product is no
/// normal number although both are, or it hides that the inner product overflows.
fn leaves_range(a: &Expr, b: &Expr) -> bool {
    let (first, last) = if matches!(a, Expr::Const(..)) { (b, a) } else { (a, b) };
    let (first, last) = (literal_factor(first).abs(), literal_factor(last).abs());
    let normal = |v: f64| (v as f32).is_normal();
    let lost = normal(last) && !normal(first * last);
    let hidden = first > 1.0 && last < 1.0 && last > 0.0;
    first != 1.0 && last != 1.0 && normal(first) && (lost || hidden)
}

/// A constant in a float register: values that are too small become 0.
fn register_value(s: Scalar) -> f32 {
    match s {
        Scalar::Float(v) => v as f32,
        Scalar::Int(v) => v as f32,
    }
}

fn is_positive(e: &Expr) -> bool {
    matches!(e, Expr::Const(s, _) if register_value(*s) > 0.0)
}
