//! Hyperbolic functions and their inverses, right near 0 and at the ends of f32, where built-in ones are not.

use crate::builder::{Builder, Value};
use naga::{BinaryOperator as B, MathFunction as M, UnaryOperator as U};

impl Builder {
    /// Some drivers' own overflows to NaN far out, and is inexact near 0.
    pub(super) fn tanh(&mut self, a: Value) -> Value {
        // tanh of more than 10 is 1 in f32; some drivers overflow to NaN far out. A clamp alone would lose NaN.
        let (low, high) = (self.c(a, -10.0), self.c(a, 10.0));
        let (inside, size) = (self.math(M::Clamp, &[a, low, high]), self.math(M::Abs, &[a]));
        let far = self.binary(B::Greater, size, high);
        let near = self.select(far, inside, a);
        let v = self.math(M::Tanh, &[near]);
        self.near_zero(a, v, 0.1, &[2.0 / 15.0, -1.0 / 3.0])
    }

    /// `(e^x - e^-x) / 2`, up to the end of f32.
    pub(super) fn sinh(&mut self, a: Value) -> Value {
        let [half, inverse] = self.half_exponentials(a);
        let size = self.sub(half, inverse);
        let v = self.with_sign(a, size);
        self.near_zero(a, v, 0.5, &[1.0 / 5040.0, 1.0 / 120.0, 1.0 / 6.0])
    }

    /// `(e^x + e^-x) / 2`, up to the end of f32.
    pub(super) fn cosh(&mut self, a: Value) -> Value {
        let [half, inverse] = self.half_exponentials(a);
        self.add(half, inverse)
    }

    /// `log((1 + x) / (1 - x)) / 2`.
    pub(super) fn atanh(&mut self, a: Value) -> Value {
        let one = self.c(a, 1.0);
        let (up, down) = (self.add(one, a), self.sub(one, a));
        let ratio = self.binary(B::Divide, up, down);
        let log = self.log(ratio);
        let half = self.c(a, 0.5);
        let v = self.mul(half, log);
        self.near_zero(a, v, 0.25, &[1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0])
    }

    /// `e^|x| / 2` and `e^-|x| / 2`, up to the end of f32: `e^|x|` itself is infinite before its half is.
    fn half_exponentials(&mut self, a: Value) -> [Value; 2] {
        let (abs, half, quarter) = (self.math(M::Abs, &[a]), self.c(a, 0.5), self.c(a, 0.25));
        let halved = self.mul(abs, half);
        let root = self.exp(halved);
        let up = self.mul(root, half);
        let up = self.mul(up, root);
        // A quotient by infinity is NaN on some drivers.
        let most = self.c(a, 1e30);
        let divisor = self.math(M::Min, &[up, most]);
        [up, self.binary(B::Divide, quarter, divisor)]
    }

    /// `size`, or minus that where `a` is negative.
    fn with_sign(&mut self, a: Value, size: Value) -> Value {
        let zero = self.c(a, 0.0);
        let negative = self.less(a, zero);
        let minus = self.unary(U::Negate, size);
        self.select(negative, minus, size)
    }

    /// `v`, but within `limit` of zero the series `x (1 + x^2 P(x^2))` of an odd function, `series` being the
    /// coefficients of `P` from the highest down. Built-in functions and logarithms have an absolute error there (WGSL
    /// allows it), which is large beside small results.
    fn near_zero(&mut self, a: Value, v: Value, limit: f64, series: &[f64]) -> Value {
        let square = self.mul(a, a);
        let mut sum = self.c(a, series[0]);
        for &next in &series[1..] {
            let next = self.c(a, next);
            sum = self.math(M::Fma, &[sum, square, next]);
        }
        // A product with `x` keeps the sign of a zero.
        let one = self.c(a, 1.0);
        let factor = self.math(M::Fma, &[square, sum, one]);
        let near = self.mul(a, factor);
        let (size, limit) = (self.math(M::Abs, &[a]), self.c(a, limit));
        let is_near = self.less(size, limit);
        self.select(is_near, near, v)
    }

    /// `sign(x) * log(|x| + sqrt(x*x + 1))`, beyond 1e10 `log(|x|) + log 2`.
    pub(super) fn asinh(&mut self, a: Value) -> Value {
        let abs = self.math(M::Abs, &[a]);
        let one = self.c(a, 1.0);
        let square = self.math(M::Fma, &[abs, abs, one]);
        let root = self.math(M::Sqrt, &[square]);
        let sum = self.add(abs, root);
        let near = self.log(sum);
        let far = self.log_twice(abs);
        let limit = self.c(a, 1e10);
        let is_far = self.less(limit, abs);
        let v = self.select(is_far, far, near);
        let v = self.with_sign(a, v);
        self.near_zero(a, v, 0.2, &[-15.0 / 336.0, 3.0 / 40.0, -1.0 / 6.0])
    }

    /// `log(x + sqrt((x-1)*(x+1)))`, beyond 1e10 `log(x) + log 2`.
    pub(super) fn acosh(&mut self, a: Value) -> Value {
        let one = self.c(a, 1.0);
        let (down, up) = (self.sub(a, one), self.add(a, one));
        let product = self.mul(down, up);
        let root = self.math(M::Sqrt, &[product]);
        let sum = self.add(a, root);
        let near = self.log(sum);
        let far = self.log_twice(a);
        let limit = self.c(a, 1e10);
        let is_far = self.less(limit, a);
        let v = self.select(is_far, far, near);
        let (outside, nan) = (self.less(a, one), self.c(a, f64::NAN));
        self.select(outside, nan, v)
    }

    fn log_twice(&mut self, a: Value) -> Value {
        let log = self.log(a);
        let two = self.c(a, std::f64::consts::LN_2);
        self.add(log, two)
    }
}
