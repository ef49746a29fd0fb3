//! The scalar functions of tensor IR on the host: one definition for the interpreter and the vector executor.
//!
//! Integers wrap in their dtype; division and remainder by 0 give 0; a shift by the width or more gives the same result
//! as shifting bit by bit. Float minimum and maximum propagate NaN. f16 and bf16 compute in f32 and round when stored
//! or cast.

use crate::dtype::DType;
use crate::tir::{BinaryOp, Combiner, Scalar, UnaryOp};
use half::{bf16, f16};

/// A value: `F` for float dtypes, `I` for integers (u64 as its bits) and bool (0 or 1).
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Num {
    /// Of a float dtype.
    F(f64),
    /// Of an integer dtype, or a bool.
    I(i64),
}
impl Num {
    /// As a float.
    pub fn float(self) -> f64 {
        match self {
            Num::F(x) => x,
            Num::I(x) => x as f64,
        }
    }
    /// As an integer; floats are truncated.
    pub fn int(self) -> i64 {
        match self {
            Num::F(x) => x as i64,
            Num::I(x) => x,
        }
    }
    /// Not 0.
    pub fn truth(self) -> bool {
        match self {
            Num::F(x) => x != 0.0,
            Num::I(x) => x != 0,
        }
    }
    /// Equal bits: NaN is the same as NaN.
    pub fn same(self, other: Num) -> bool {
        match (self, other) {
            (Num::F(a), Num::F(b)) => a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()),
            (Num::I(a), Num::I(b)) => a == b,
            _ => false,
        }
    }
    /// A constant as a value of `dtype`.
    pub fn of(s: Scalar, dtype: DType) -> Num {
        match s {
            Scalar::Float(x) => cast(DType::F64, dtype, Num::F(x)),
            Scalar::Int(x) => cast(DType::I64, dtype, Num::I(x)),
        }
    }
}

/// f32 and f64.
pub trait Real: Copy + PartialOrd {
    /// A function of one value.
    fn unary(op: UnaryOp, x: Self) -> Self;
    /// A function of two values.
    fn binary(op: BinaryOp, a: Self, b: Self) -> Self;
}
macro_rules! real {
    ($t:ty) => {
        impl Real for $t {
            #[inline(always)]
            fn unary(op: UnaryOp, x: $t) -> $t {
                match op {
                    UnaryOp::Neg => -x,
                    UnaryOp::Abs => x.abs(),
                    UnaryOp::Exp => x.exp(),
                    UnaryOp::Log => x.ln(),
                    UnaryOp::Sqrt => x.sqrt(),
                    UnaryOp::Sin => x.sin(),
                    UnaryOp::Cos => x.cos(),
                    UnaryOp::Tan => x.tan(),
                    UnaryOp::Asin => x.asin(),
                    UnaryOp::Acos => x.acos(),
                    UnaryOp::Atan => x.atan(),
                    UnaryOp::Sinh => x.sinh(),
                    UnaryOp::Cosh => x.cosh(),
                    UnaryOp::Tanh => x.tanh(),
                    UnaryOp::Asinh if x.abs() > 1e10 => (x.abs().ln() + <$t>::ln(2.0)).copysign(x),
                    UnaryOp::Asinh => x.asinh(),
                    UnaryOp::Acosh if x > 1e10 => x.ln() + <$t>::ln(2.0),
                    UnaryOp::Acosh => x.acosh(),
                    UnaryOp::Atanh => x.atanh(),
                    UnaryOp::Floor => x.floor(),
                    UnaryOp::Ceil => x.ceil(),
                    UnaryOp::Round => x.round_ties_even(),
                    UnaryOp::Trunc => x.trunc(),
                    UnaryOp::Sign if x > 0.0 => 1.0,
                    UnaryOp::Sign if x < 0.0 => -1.0,
                    UnaryOp::Sign => x,
                    UnaryOp::QuantizeF16 => round(DType::F16, x as f64) as $t,
                    UnaryOp::QuantizeBf16 => round(DType::BF16, x as f64) as $t,
                    UnaryOp::Not | UnaryOp::BitNot => ((x == 0.0) as u8).into(),
                    UnaryOp::IsNan => (x.is_nan() as u8).into(),
                    UnaryOp::IsInf => (x.is_infinite() as u8).into(),
                }
            }
            #[inline(always)]
            fn binary(op: BinaryOp, a: $t, b: $t) -> $t {
                match op {
                    BinaryOp::Add => a + b,
                    BinaryOp::Sub => a - b,
                    BinaryOp::Mul => a * b,
                    BinaryOp::Div => a / b,
                    BinaryOp::FloorMod => {
                        let r = a % b;
                        if r != 0.0 && ((r < 0.0) != (b < 0.0)) { r + b } else { r }
                    }
                    BinaryOp::TruncMod => a % b,
                    BinaryOp::Pow => a.powf(b),
                    BinaryOp::Min if a.is_nan() || a < b => a,
                    BinaryOp::Min => b,
                    BinaryOp::Max if a.is_nan() || a > b => a,
                    BinaryOp::Max => b,
                    other => (compare(other, a, b) as u8).into(),
                }
            }
        }
    };
}
real!(f32);
real!(f64);

/// Comparisons; false for any other function.
#[inline(always)]
pub fn compare<T: PartialOrd>(op: BinaryOp, a: T, b: T) -> bool {
    match op {
        BinaryOp::Lt => a < b,
        BinaryOp::Le => a <= b,
        BinaryOp::Gt => a > b,
        BinaryOp::Ge => a >= b,
        BinaryOp::Eq => a == b,
        BinaryOp::Ne => a != b,
        _ => false,
    }
}

/// A number as the integer type of a dtype (bool: whether it is not 0), as i64: integers wrap, floats saturate.
macro_rules! as_integer {
    ($x:expr, $dtype:expr) => {
        match $dtype {
            DType::Bool => ($x != Default::default()) as i64,
            DType::U8 => $x as u8 as i64,
            DType::I8 => $x as i8 as i64,
            DType::U16 => $x as u16 as i64,
            DType::I16 => $x as i16 as i64,
            DType::U32 => $x as u32 as i64,
            DType::I32 => $x as i32 as i64,
            DType::U64 => $x as u64 as i64,
            _ => $x as i64,
        }
    };
}

/// `x` reduced to the width of the integer dtype (or 0, 1 for bool).
#[inline(always)]
pub fn wrap(dtype: DType, x: i64) -> i64 {
    as_integer!(x, dtype)
}

/// `x` rounded to the float dtype.
#[inline(always)]
pub fn round(dtype: DType, x: f64) -> f64 {
    match dtype {
        DType::F16 => f16::from_f32(x as f32).to_f64(),
        DType::BF16 => bf16::from_f32(x as f32).to_f64(),
        DType::F32 => x as f32 as f64,
        _ => x,
    }
}

/// Conversion between any two dtypes.
pub fn cast(from: DType, to: DType, x: Num) -> Num {
    match (x, to) {
        (x, DType::Bool) => Num::I(x.truth() as i64),
        (Num::F(x), to) if to.is_float() => Num::F(round(to, x)),
        (Num::F(x), to) => Num::I(float_to_int(to, x)),
        (Num::I(x), to) if to.is_float() => {
            Num::F(round(to, if from == DType::U64 { x as u64 as f64 } else { x as f64 }))
        }
        (Num::I(x), to) => Num::I(wrap(to, x)),
    }
}

/// Truncates and saturates.
#[inline(always)]
pub fn float_to_int(to: DType, x: f64) -> i64 {
    as_integer!(x, to)
}

/// A function of an integer or bool, in the operand's dtype.
#[inline(always)]
pub fn int_unary(op: UnaryOp, dtype: DType, x: i64) -> i64 {
    let y = match op {
        UnaryOp::Neg => x.wrapping_neg(),
        UnaryOp::Abs if dtype.is_signed() => x.wrapping_abs(),
        UnaryOp::Sign if dtype.is_signed() => x.signum(),
        UnaryOp::Sign => (x != 0) as i64,
        UnaryOp::Not => return (x == 0) as i64,
        UnaryOp::BitNot => !x,
        UnaryOp::IsNan | UnaryOp::IsInf => return 0,
        UnaryOp::Abs | UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc => x,
        _ => float_to_int(dtype, f64::unary(op, x as f64)),
    };
    wrap(dtype, y)
}

/// A function of two integers or bools, in the operands' dtype; comparisons give 0 or 1.
#[inline(always)]
pub fn int_binary(op: BinaryOp, dtype: DType, a: i64, b: i64) -> i64 {
    let unsigned = dtype == DType::U64;
    let y = match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div | BinaryOp::FloorMod | BinaryOp::TruncMod if b == 0 => 0,
        BinaryOp::Div if unsigned => ((a as u64) / (b as u64)) as i64,
        BinaryOp::Div => a.wrapping_div(b),
        BinaryOp::FloorMod | BinaryOp::TruncMod if unsigned => ((a as u64) % (b as u64)) as i64,
        BinaryOp::FloorMod => {
            let r = a.wrapping_rem(b);
            if r != 0 && ((r < 0) != (b < 0)) { r + b } else { r }
        }
        BinaryOp::TruncMod => a.wrapping_rem(b),
        BinaryOp::Pow => int_pow(a, b, unsigned),
        BinaryOp::Min if unsigned => (a as u64).min(b as u64) as i64,
        BinaryOp::Max if unsigned => (a as u64).max(b as u64) as i64,
        BinaryOp::Min => a.min(b),
        BinaryOp::Max => a.max(b),
        BinaryOp::And => (a != 0 && b != 0) as i64,
        BinaryOp::Or => (a != 0 || b != 0) as i64,
        BinaryOp::Xor => ((a != 0) != (b != 0)) as i64,
        BinaryOp::BitAnd => a & b,
        BinaryOp::BitOr => a | b,
        BinaryOp::BitXor => a ^ b,
        BinaryOp::Shl if (0..64).contains(&b) => a << b,
        BinaryOp::Shr if unsigned && (0..64).contains(&b) => ((a as u64) >> b) as i64,
        BinaryOp::Shl => 0,
        BinaryOp::Shr if unsigned => 0,
        BinaryOp::Shr => a >> b.clamp(0, 63),
        _ if unsigned => return compare(op, a as u64, b as u64) as i64,
        _ => return compare(op, a, b) as i64,
    };
    wrap(dtype, y)
}

fn int_pow(base: i64, exponent: i64, unsigned: bool) -> i64 {
    if exponent < 0 && !unsigned {
        return match base {
            1 => 1,
            -1 => 1 - 2 * (exponent & 1),
            _ => 0,
        };
    }
    let (mut result, mut base, mut e) = (1i64, base, exponent as u64);
    while e > 0 {
        if e & 1 == 1 {
            result = result.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        e >>= 1;
    }
    result
}

/// A function of one value of `dtype`.
pub fn unary(op: UnaryOp, dtype: DType, x: Num) -> Num {
    match (op, x) {
        (UnaryOp::IsNan | UnaryOp::IsInf | UnaryOp::Not, Num::F(x)) => Num::I((f64::unary(op, x) != 0.0) as i64),
        (_, Num::F(x)) if dtype == DType::F64 => Num::F(f64::unary(op, x)),
        (_, Num::F(x)) => Num::F(f32::unary(op, x as f32) as f64),
        (_, Num::I(x)) => Num::I(int_unary(op, dtype, x)),
    }
}

/// A function of two values of `dtype`.
pub fn binary(op: BinaryOp, dtype: DType, a: Num, b: Num) -> Num {
    match (a, b) {
        (Num::I(a), Num::I(b)) => Num::I(int_binary(op, dtype, a, b)),
        (a, b) => {
            let (a, b) = (a.float(), b.float());
            if op.is_comparison() {
                Num::I(compare(op, a, b) as i64)
            } else if dtype == DType::F64 {
                Num::F(f64::binary(op, a, b))
            } else {
                Num::F(f32::binary(op, a as f32, b as f32) as f64)
            }
        }
    }
}

/// The identity of a combiner in `dtype`.
pub fn identity(c: Combiner, dtype: DType) -> Num {
    let float = dtype.is_float();
    match c {
        Combiner::Sum if float => Num::F(0.0),
        Combiner::Sum => Num::I(0),
        Combiner::Prod if float => Num::F(1.0),
        Combiner::Prod => Num::I(1),
        Combiner::Max if float => Num::F(f64::NEG_INFINITY),
        Combiner::Min if float => Num::F(f64::INFINITY),
        // Saturation gives the extreme values of every integer dtype.
        Combiner::Max => Num::I(if dtype == DType::Bool { 0 } else { float_to_int(dtype, f64::NEG_INFINITY) }),
        Combiner::Min => Num::I(float_to_int(dtype, f64::INFINITY)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_wrap_in_their_dtype() {
        let go = |op, t, a, b| int_binary(op, t, a, b);
        assert_eq!(go(BinaryOp::Add, DType::U8, 250, 10), 4);
        assert_eq!(go(BinaryOp::Mul, DType::I8, 100, 2), -56);
        assert_eq!(go(BinaryOp::Div, DType::I32, -7, 2), -3);
        assert_eq!(go(BinaryOp::FloorMod, DType::I32, -7, 2), 1);
        assert_eq!(go(BinaryOp::TruncMod, DType::I32, -7, 2), -1);
        assert_eq!(go(BinaryOp::Div, DType::I32, 7, 0), 0);
        assert_eq!(go(BinaryOp::Lt, DType::U64, -1, 1), 0);
        assert_eq!(go(BinaryOp::Max, DType::U64, -1, 1), -1);
        assert_eq!(go(BinaryOp::Pow, DType::I64, 3, 4), 81);
        assert_eq!(go(BinaryOp::Pow, DType::I64, 2, -1), 0);
        assert_eq!(go(BinaryOp::Shr, DType::I32, -8, 1), -4);
        assert_eq!(go(BinaryOp::Shl, DType::U8, 255, 1), 254);
        assert_eq!(int_unary(UnaryOp::BitNot, DType::U8, 1), 254);
    }

    #[test]
    fn casts_saturate_and_round() {
        assert_eq!(cast(DType::F32, DType::U8, Num::F(300.0)), Num::I(255));
        assert_eq!(cast(DType::F32, DType::I32, Num::F(-2.9)), Num::I(-2));
        assert_eq!(cast(DType::F32, DType::I64, Num::F(f64::NAN)), Num::I(0));
        assert_eq!(cast(DType::I32, DType::I8, Num::I(200)), Num::I(-56));
        assert_eq!(cast(DType::F32, DType::F16, Num::F(2049.0)), Num::F(2048.0));
        assert_eq!(cast(DType::U64, DType::F64, Num::I(-1)), Num::F(u64::MAX as f64));
        assert_eq!(cast(DType::F32, DType::Bool, Num::F(0.5)), Num::I(1));
    }

    #[test]
    fn extremes_hand_nan_on() {
        assert!(f32::binary(BinaryOp::Max, f32::NAN, 1.0).is_nan());
        assert!(f32::binary(BinaryOp::Min, 1.0, f32::NAN).is_nan());
        assert_eq!(f32::unary(UnaryOp::Round, 2.5), 2.0);
        assert_eq!(identity(Combiner::Max, DType::I8), Num::I(-128));
        assert_eq!(identity(Combiner::Min, DType::U8), Num::I(255));
    }
}
