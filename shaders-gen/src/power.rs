//! Powers: by multiplication if the exponent is a small constant or an integer, else by the device's function, with the
//! right values at the edges of its domain.

use crate::builder::{Builder, Kind, Value};
use naga::{BinaryOperator as B, MathFunction as M, UnaryOperator as U};
use tensor_ir::dtype::DType;

impl Builder {
    /// `a` to the power `b`: small constant powers by multiplication; else `|a|^b` with the sign of an odd integer
    /// exponent, NaN for a negative base with a fraction, and 1 for exponent 0.
    pub(crate) fn pow(&mut self, a: Value, b: Value, exponent: Option<f64>) -> Value {
        match exponent {
            Some(0.0) => return self.c(a, 1.0),
            Some(1.0) => return a,
            Some(2.0) => return self.mul(a, a),
            Some(3.0) => {
                let square = self.mul(a, a);
                return self.mul(square, a);
            }
            Some(4.0) => {
                let square = self.mul(a, a);
                return self.mul(square, square);
            }
            Some(0.5) => {
                let base = self.positive_ends(a);
                return self.math(M::Sqrt, &[base]);
            }
            Some(-0.5) => {
                let base = self.positive_ends(a);
                return self.math(M::InverseSqrt, &[base]);
            }
            Some(-1.0) => {
                let one = self.c(a, 1.0);
                return self.binary(B::Divide, one, a);
            }
            _ => {}
        }
        let abs = self.math(M::Abs, &[a]);
        let p = self.math(M::Pow, &[abs, b]);
        let (zero, one, half) = (self.c(a, 0.0), self.c(a, 1.0), self.c(a, 0.5));
        // Drivers compute `exp2(b * log2(a))`, in which 0 times infinity is NaN. Some give 0 for NaN, and
        // for 0 to a negative power; some have a finite logarithm of 0.
        let infinity = self.c(a, f64::INFINITY);
        let (is_zero, is_inverse) = (self.binary(B::Equal, abs, zero), self.less(b, zero));
        let at_zero = self.select(is_inverse, infinity, zero);
        let p = self.select(is_zero, at_zero, p);
        let mut is_nan = self.magnitude_bits(a, B::Greater);
        if exponent.is_none_or(f64::is_nan) {
            let other = self.magnitude_bits(b, B::Greater);
            is_nan = self.binary(B::InclusiveOr, is_nan, other);
        }
        let nan = self.c(a, f64::NAN);
        let p = self.select(is_nan, nan, p);
        let is_unit = self.binary(B::Equal, abs, one);
        let p = self.select(is_unit, one, p);
        let whole = self.math(M::Floor, &[b]);
        let is_whole = self.binary(B::Equal, whole, b);
        let halved = self.mul(b, half);
        let even = self.math(M::Floor, &[halved]);
        let is_odd = self.binary(B::NotEqual, even, halved);
        let minus = self.unary(U::Negate, p);
        let signed = self.select(is_odd, minus, p);
        // 0 and infinity have a power whatever their sign.
        let is_infinite = self.binary(B::Equal, abs, infinity);
        let is_end = self.binary(B::InclusiveOr, is_zero, is_infinite);
        let fraction = self.select(is_end, p, nan);
        let below = self.select(is_whole, signed, fraction);
        // -0 is no less than 0, but its odd powers have its sign.
        let size = self.bitcast(a, Kind::I32);
        let none = self.c(size, 0.0);
        let negative = self.less(size, none);
        let v = self.select(negative, below, p);
        let no_power = self.binary(B::Equal, b, zero);
        self.select(no_power, one, v)
    }

    /// The base with 0 and infinity made positive: their fractional powers do not depend on the sign.
    fn positive_ends(&mut self, a: Value) -> Value {
        let abs = self.math(M::Abs, &[a]);
        let (zero, infinity) = (self.c(a, 0.0), self.c(a, f64::INFINITY));
        let (is_zero, is_infinite) = (self.binary(B::Equal, abs, zero), self.binary(B::Equal, abs, infinity));
        let is_end = self.binary(B::InclusiveOr, is_zero, is_infinite);
        self.select(is_end, abs, a)
    }

    /// Power of integers of type `t` by squaring; a negative exponent gives 0 unless the base is 1 or -1.
    pub(crate) fn int_pow(&mut self, a: Value, b: Value, exponent: Option<f64>, t: DType) -> Value {
        let one = self.c(a, 1.0);
        if let Some(e) = exponent.filter(|e| (0.0..=8.0).contains(e)) {
            return (0..e as u32).fold(one, |v, i| if i == 0 { a } else { self.mul(v, a) });
        }
        let zero = self.c(a, 0.0);
        let (mut rest, mut power, mut v) = (b, a, one);
        let bits = 8 * t.size().min(4) - usize::from(b.kind == Kind::I32);
        for step in 0..bits {
            let bit = self.binary(B::And, rest, one);
            let take = self.binary(B::NotEqual, bit, zero);
            let product = self.mul(v, power);
            v = self.select(take, product, v);
            if step + 1 < bits {
                power = self.mul(power, power);
                let by = self.constant(Kind::U32, b.lanes, 1.0);
                rest = self.binary(B::ShiftRight, rest, by);
            }
        }
        if b.kind == Kind::U32 {
            return v;
        }
        let abs = self.math(M::Abs, &[a]);
        let unit = self.binary(B::Equal, abs, one);
        let below_one = self.select(unit, v, zero);
        let negative = self.less(b, zero);
        self.select(negative, below_one, v)
    }
}
