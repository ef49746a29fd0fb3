//! Scalar functions and conversions on values in registers.
//!
//! Floats compute in f32 whatever their storage; integers narrower than 32 bits are wrapped to their width after each
//! operation that can leave it. Tables are flat matches, so their functions are longer than usual here. If a driver's
//! log and exp are finite at the edges of their domain (the quirk `loose-log-exp`), selects give the right values.

mod hyperbolic;

use crate::builder::{Builder, Kind, Value};
use crate::error::EmitError;
use naga::{BinaryOperator as B, MathFunction as M, UnaryOperator as U};
use tensor_ir::dtype::DType;
use tensor_ir::tir::{BinaryOp, Combiner, UnaryOp};

/// The register kind of a dtype.
///
/// # Errors
/// f64 has none.
pub(crate) fn kind_of(t: DType) -> Result<Kind, EmitError> {
    Ok(match t {
        DType::F32 | DType::F16 | DType::BF16 => Kind::F32,
        DType::Bool => Kind::Bool,
        DType::U8 | DType::U16 | DType::U32 => Kind::U32,
        // 64-bit integers come here only when their values are proved to fit.
        DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U64 => Kind::I32,
        DType::F64 => return Err(EmitError::unsupported("f64 has no shader type")),
    })
}

impl Builder {
    pub(crate) fn c(&mut self, like: Value, v: f64) -> Value {
        self.constant(like.kind, like.lanes, v)
    }
    pub fn add(&mut self, a: Value, b: Value) -> Value {
        self.binary(B::Add, a, b)
    }
    pub fn sub(&mut self, a: Value, b: Value) -> Value {
        self.binary(B::Subtract, a, b)
    }
    pub fn mul(&mut self, a: Value, b: Value) -> Value {
        self.binary(B::Multiply, a, b)
    }
    pub(crate) fn less(&mut self, a: Value, b: Value) -> Value {
        self.binary(B::Less, a, b)
    }
    fn not(&mut self, a: Value) -> Value {
        self.unary(U::LogicalNot, a)
    }
    fn both(&mut self, a: Value, b: Value) -> Value {
        self.binary(B::And, a, b)
    }

    /// `!(a == b)`: naga's `!=` of floats is false when one is NaN.
    fn differ(&mut self, a: Value, b: Value) -> Value {
        let same = self.binary(B::Equal, a, b);
        self.not(same)
    }

    /// Wraps an integer of a narrow dtype to its width.
    fn wrap(&mut self, v: Value, t: DType) -> Value {
        match t {
            DType::U8 | DType::U16 => {
                let mask = self.c(v, if t == DType::U8 { 255.0 } else { 65535.0 });
                self.binary(B::And, v, mask)
            }
            DType::I8 | DType::I16 => {
                let bits = self.constant(Kind::U32, v.lanes, if t == DType::I8 { 24.0 } else { 16.0 });
                let up = self.binary(B::ShiftLeft, v, bits);
                self.binary(B::ShiftRight, up, bits)
            }
            _ => v,
        }
    }

    /// `op` of a value of dtype `t`.
    pub fn unary_op(&mut self, op: UnaryOp, a: Value, t: DType) -> Value {
        let float = t.is_float();
        match op {
            UnaryOp::Neg if a.kind == Kind::U32 => {
                let zero = self.c(a, 0.0);
                let v = self.sub(zero, a);
                self.wrap(v, t)
            }
            UnaryOp::Neg => {
                let v = self.unary(U::Negate, a);
                self.wrap(v, t)
            }
            UnaryOp::Abs if a.kind == Kind::U32 => a,
            UnaryOp::Abs => {
                let v = self.math(M::Abs, &[a]);
                self.wrap(v, t)
            }
            UnaryOp::Sign if a.kind == Kind::U32 => {
                let one = self.c(a, 1.0);
                self.math(M::Min, &[a, one])
            }
            UnaryOp::Sign => {
                let v = self.math(M::Sign, &[a]);
                if float { self.keep_nan(a, v) } else { v }
            }
            UnaryOp::Not => self.not(a),
            UnaryOp::BitNot => {
                let v = self.unary(U::BitwiseNot, a);
                self.wrap(v, t)
            }
            UnaryOp::IsNan => self.is_nan(a),
            UnaryOp::IsInf => self.magnitude_bits(a, B::Equal),
            UnaryOp::Tanh => self.tanh(a),
            UnaryOp::Atan => {
                // Mesa computes it by clamping; llvmpipe of Mesa 26.2 computes `select(atan(x), x, ..)` wrongly.
                let (v, nan) = (self.math(M::Atan, &[a]), self.c(a, f64::NAN));
                let is_nan = self.is_nan(a);
                self.select(is_nan, nan, v)
            }
            UnaryOp::Sinh => self.sinh(a),
            UnaryOp::Cosh => self.cosh(a),
            UnaryOp::QuantizeF16 => self.quantize_half(a),
            UnaryOp::QuantizeBf16 => self.quantize_brain_half(a),
            UnaryOp::Exp => self.exp(a),
            UnaryOp::Log => self.log(a),
            UnaryOp::Asinh => self.asinh(a),
            UnaryOp::Acosh => self.acosh(a),
            UnaryOp::Atanh => self.atanh(a),
            UnaryOp::Sqrt => self.math(M::Sqrt, &[a]),
            UnaryOp::Sin => self.math(M::Sin, &[a]),
            UnaryOp::Cos => self.math(M::Cos, &[a]),
            UnaryOp::Tan => self.math(M::Tan, &[a]),
            UnaryOp::Asin => self.math(M::Asin, &[a]),
            UnaryOp::Acos => self.math(M::Acos, &[a]),
            UnaryOp::Floor => self.math(M::Floor, &[a]),
            UnaryOp::Ceil => self.math(M::Ceil, &[a]),
            UnaryOp::Round => self.math(M::Round, &[a]),
            UnaryOp::Trunc => self.math(M::Trunc, &[a]),
        }
    }

    /// True where the float is NaN.
    pub(crate) fn is_nan(&mut self, a: Value) -> Value {
        self.magnitude_bits(a, B::Greater)
    }

    /// Compares the exponent and mantissa bits with those of infinity: `==` tests for infinity, `>` for NaN.
    pub(crate) fn magnitude_bits(&mut self, a: Value, op: B) -> Value {
        let bits = self.bitcast(a, Kind::U32);
        let mask = self.c(bits, f64::from(0x7fff_ffffu32));
        let magnitude = self.binary(B::And, bits, mask);
        let inf = self.c(bits, f64::from(0x7f80_0000u32));
        self.binary(op, magnitude, inf)
    }

    /// The logarithm: on every device minus infinity for 0, infinity for infinity, NaN for NaN and negative values.
    fn log(&mut self, a: Value) -> Value {
        let inside = self.math(M::Log, &[a]);
        if !self.loose_log_exp {
            return inside;
        }
        let [zero, infinity, lowest, nan] = [0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN].map(|v| self.c(a, v));
        let is_infinite = self.binary(B::Equal, a, infinity);
        let v = self.select(is_infinite, infinity, inside);
        let is_positive = self.less(zero, a);
        let v = self.select(is_positive, v, nan);
        let is_zero = self.binary(B::Equal, a, zero);
        self.select(is_zero, lowest, v)
    }

    /// The exponential, NaN for NaN on every device.
    fn exp(&mut self, a: Value) -> Value {
        let v = self.math(M::Exp, &[a]);
        if !self.loose_log_exp {
            return v;
        }
        let is_nan = self.is_nan(a);
        self.select(is_nan, a, v)
    }

    /// `a op b`, both of dtype `t`; `exponent` is `b` where it is a constant.
    pub fn binary_op(&mut self, op: BinaryOp, a: Value, b: Value, t: DType, exponent: Option<f64>) -> Value {
        let (a, b) = self.widen(a, b);
        let float = t.is_float();
        let plain = |this: &mut Self, op| {
            let v = this.binary(op, a, b);
            this.wrap(v, t)
        };
        match op {
            BinaryOp::Add if t != DType::Bool => plain(self, B::Add),
            BinaryOp::Sub if t != DType::Bool => plain(self, B::Subtract),
            BinaryOp::Mul if t != DType::Bool => plain(self, B::Multiply),
            BinaryOp::Div if float => plain(self, B::Divide),
            BinaryOp::Div if t != DType::Bool => {
                let (zero, divisor) = (self.c(b, 0.0), self.safe_divisor(a, b));
                let v = self.binary(B::Divide, a, divisor);
                let v = self.wrap(v, t);
                let by_zero = self.binary(B::Equal, b, zero);
                self.select(by_zero, zero, v)
            }
            BinaryOp::TruncMod if float => self.float_remainder(a, b),
            BinaryOp::TruncMod if t != DType::Bool => {
                let b = self.safe_divisor(a, b);
                self.binary(B::Modulo, a, b)
            }
            BinaryOp::FloorMod if t != DType::Bool => self.floor_mod(a, b, float),
            BinaryOp::Pow if float => self.pow(a, b, exponent),
            BinaryOp::Pow if t != DType::Bool => {
                let v = self.int_pow(a, b, exponent, t);
                self.wrap(v, t)
            }
            BinaryOp::Min | BinaryOp::Max if float => self.extremum(op, a, b),
            BinaryOp::Min if t != DType::Bool => self.math(M::Min, &[a, b]),
            BinaryOp::Max if t != DType::Bool => self.math(M::Max, &[a, b]),
            // On bools: minimum and product are "and", maximum and sum are "or".
            BinaryOp::And | BinaryOp::BitAnd | BinaryOp::Min | BinaryOp::Mul => self.binary(B::And, a, b),
            BinaryOp::Or | BinaryOp::BitOr | BinaryOp::Max | BinaryOp::Add => self.binary(B::InclusiveOr, a, b),
            BinaryOp::Xor | BinaryOp::BitXor if a.kind == Kind::Bool => self.binary(B::NotEqual, a, b),
            BinaryOp::Xor | BinaryOp::BitXor => self.binary(B::ExclusiveOr, a, b),
            BinaryOp::Shl => self.shift(B::ShiftLeft, a, b, t),
            BinaryOp::Shr => self.shift(B::ShiftRight, a, b, t),
            BinaryOp::Lt => self.ordered(B::Less, a, b),
            BinaryOp::Le => self.ordered(B::LessEqual, a, b),
            BinaryOp::Gt => self.ordered(B::Greater, a, b),
            BinaryOp::Ge => self.ordered(B::GreaterEqual, a, b),
            BinaryOp::Eq => self.binary(B::Equal, a, b),
            BinaryOp::Ne => self.differ(a, b),
            // Division and powers of bools do not occur; the left side is as good an answer as any.
            BinaryOp::Sub => self.binary(B::NotEqual, a, b),
            BinaryOp::Div | BinaryOp::TruncMod | BinaryOp::FloorMod | BinaryOp::Pow => a,
        }
    }

    /// A comparison by order; false is less than true.
    fn ordered(&mut self, op: B, a: Value, b: Value) -> Value {
        match a.kind {
            Kind::Bool => {
                let (a, b) = (self.convert(a, Kind::U32), self.convert(b, Kind::U32));
                self.binary(op, a, b)
            }
            _ => self.binary(op, a, b),
        }
    }

    /// `b`, or 1 if the quotient is undefined: division by 0, and of the lowest integer by -1 (which then gives
    /// itself).
    fn safe_divisor(&mut self, a: Value, b: Value) -> Value {
        let (zero, one) = (self.c(b, 0.0), self.c(b, 1.0));
        let mut bad = self.binary(B::Equal, b, zero);
        if b.kind == Kind::I32 {
            let lowest = self.c(a, f64::from(i32::MIN));
            let minus = self.c(b, -1.0);
            let (l, m) = (self.binary(B::Equal, a, lowest), self.binary(B::Equal, b, minus));
            let overflow = self.both(l, m);
            bad = self.binary(B::InclusiveOr, bad, overflow);
        }
        self.select(bad, one, b)
    }

    /// The remainder with the divisor's sign.
    fn floor_mod(&mut self, a: Value, b: Value, float: bool) -> Value {
        let b = if float { b } else { self.safe_divisor(a, b) };
        let r = if float { self.float_remainder(a, b) } else { self.binary(B::Modulo, a, b) };
        if a.kind == Kind::U32 {
            return r;
        }
        let zero = self.c(r, 0.0);
        let nonzero = self.binary(B::NotEqual, r, zero);
        let (rn, bn) = (self.less(r, zero), self.less(b, zero));
        let differ = self.binary(B::NotEqual, rn, bn);
        let fix = self.both(nonzero, differ);
        let sum = self.add(r, b);
        self.select(fix, sum, r)
    }

    /// A shift by less than the width of a word.
    pub fn shift_within(&mut self, op: BinaryOp, a: Value, b: Value, t: DType) -> Value {
        let by = self.bitcast(b, Kind::U32);
        let op = if op == BinaryOp::Shl { B::ShiftLeft } else { B::ShiftRight };
        let v = self.binary(op, a, by);
        if op == B::ShiftLeft { self.wrap(v, t) } else { v }
    }
    /// Shifts; by 32 or more, and by less than 0, gives the same as shifting bit by bit.
    fn shift(&mut self, op: B, a: Value, b: Value, t: DType) -> Value {
        let by = self.bitcast(b, Kind::U32);
        let last = self.c(by, 31.0);
        let inside = self.math(M::Min, &[by, last]);
        let v = self.binary(op, a, inside);
        if op == B::ShiftRight && t.is_signed() {
            return v;
        }
        let zero = self.c(a, 0.0);
        let beyond = self.less(last, by);
        let v = self.select(beyond, zero, v);
        self.wrap(v, t)
    }

    /// Converts from dtype `from` to `to`. Floats truncate and saturate, NaN gives 0; integers wrap.
    pub fn cast(&mut self, v: Value, from: DType, to: DType) -> Result<Value, EmitError> {
        let kind = kind_of(to)?;
        if kind == Kind::Bool {
            if v.kind == Kind::Bool {
                return Ok(v);
            }
            let zero = self.c(v, 0.0);
            return Ok(self.differ(v, zero));
        }
        if v.kind == Kind::Bool {
            let (one, zero) = (self.constant(kind, v.lanes, 1.0), self.constant(kind, v.lanes, 0.0));
            return Ok(self.select(v, one, zero));
        }
        if kind == Kind::F32 {
            // Values between f16 and f32 are rounded where they are stored.
            return Ok(self.convert(v, Kind::F32));
        }
        if !from.is_float() {
            let v = self.bitcast(v, kind);
            return Ok(if wraps(from, to) { self.wrap(v, to) } else { v });
        }
        Ok(self.saturate(v, kind, to))
    }

    fn saturate(&mut self, v: Value, kind: Kind, to: DType) -> Value {
        let (low, high) = match to {
            DType::U8 => (0.0, 255.0),
            DType::I8 => (-128.0, 127.0),
            DType::U16 => (0.0, 65535.0),
            DType::I16 => (-32768.0, 32767.0),
            DType::U32 => (0.0, f64::from(u32::MAX)),
            DType::U64 => (0.0, f64::from(i32::MAX)),
            _ => (f64::from(i32::MIN), f64::from(i32::MAX)),
        };
        // The largest f32 below 2^31 and 2^32; a select handles larger values.
        let top = if high > 4e9 {
            4_294_967_040.0
        } else if high > 2e9 {
            2_147_483_520.0
        } else {
            high
        };
        let (l, h) = (self.c(v, low), self.c(v, top));
        let inside = self.math(M::Clamp, &[v, l, h]);
        let mut out = self.convert(inside, kind);
        if top != high {
            let over = self.less(h, v);
            let highest = self.constant(kind, v.lanes, high);
            out = self.select(over, highest, out);
        }
        let nan = self.is_nan(v);
        let zero = self.constant(kind, v.lanes, 0.0);
        self.select(nan, zero, out)
    }

    /// `old` combined with `value`.
    pub fn combine(&mut self, c: Combiner, old: Value, value: Value, t: DType) -> Value {
        self.binary_op(c.operator(), old, value, t, None)
    }

    /// The combiner's identity in dtype `t`.
    pub fn identity(&mut self, c: Combiner, kind: Kind, lanes: u8, t: DType) -> Value {
        let (low, high) = match t {
            t if t.is_float() => (f64::NEG_INFINITY, f64::INFINITY),
            DType::Bool => (0.0, 1.0),
            DType::U8 => (0.0, 255.0),
            DType::I8 => (-128.0, 127.0),
            DType::U16 => (0.0, 65535.0),
            DType::I16 => (-32768.0, 32767.0),
            DType::U32 => (0.0, f64::from(u32::MAX)),
            DType::U64 => (0.0, f64::from(i32::MAX)),
            _ => (f64::from(i32::MIN), f64::from(i32::MAX)),
        };
        let v = match c {
            Combiner::Sum => 0.0,
            Combiner::Prod => 1.0,
            Combiner::Max => low,
            Combiner::Min => high,
        };
        self.constant(kind, lanes, v)
    }
}

/// True when an integer conversion can change the value's bits.
fn wraps(from: DType, to: DType) -> bool {
    !(to.size() >= 4
        || from.size() < to.size() && (from.is_signed() == to.is_signed() || !from.is_signed())
        || from == to)
}
