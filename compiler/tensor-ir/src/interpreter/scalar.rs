//! Numbers of any type on the host, and the scalar functions on them. f16 and bf16 compute in f32 and round when stored
//! or cast.

use crate::dtype::DType;
use crate::tir::{BinaryOp, Combiner, Real, Scalar, UnaryOp};

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

/// Conversion between any two dtypes.
pub fn cast(from: DType, to: DType, x: Num) -> Num {
    match (x, to) {
        (x, DType::Bool) => Num::I(x.truth() as i64),
        (Num::F(x), to) if to.is_float() => Num::F(to.round(x)),
        (Num::F(x), to) => Num::I(to.saturate(x)),
        (Num::I(x), to) if to.is_float() => {
            Num::F(to.round(if from == DType::U64 { x as u64 as f64 } else { x as f64 }))
        }
        (Num::I(x), to) => Num::I(to.wrap(x)),
    }
}

/// A function of one value of `dtype`.
pub fn unary(op: UnaryOp, dtype: DType, x: Num) -> Num {
    match (op, x) {
        (op, Num::F(x)) if op.is_test() => Num::I((f64::unary(op, x) != 0.0) as i64),
        (_, Num::F(x)) if dtype == DType::F64 => Num::F(f64::unary(op, x)),
        (_, Num::F(x)) => Num::F(f32::unary(op, x as f32) as f64),
        (_, Num::I(x)) => Num::I(op.of_int(dtype, x)),
    }
}

/// A function of two values of `dtype`.
pub fn binary(op: BinaryOp, dtype: DType, a: Num, b: Num) -> Num {
    match (a, b) {
        (Num::I(a), Num::I(b)) => Num::I(op.of_ints(dtype, a, b)),
        (a, b) => {
            let (a, b) = (a.float(), b.float());
            if op.is_comparison() {
                Num::I(op.compare(a, b) as i64)
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
        Combiner::Max => Num::I(if dtype == DType::Bool { 0 } else { dtype.saturate(f64::NEG_INFINITY) }),
        Combiner::Min => Num::I(dtype.saturate(f64::INFINITY)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_wrap_in_their_dtype() {
        let go = |op: BinaryOp, t, a, b| op.of_ints(t, a, b);
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
        assert_eq!(UnaryOp::BitNot.of_int(DType::U8, 1), 254);
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
