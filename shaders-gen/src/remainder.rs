//! The remainder of floats, exact like C's `fmod`. Devices compute `a - b * trunc(a / b)`, which is wrong if the
//! quotient has more than 24 bits.
//!
//! A float is a mantissa below 2^24 times a power of two. The dividend's mantissa is reduced by the divisor's, then
//! doubled and reduced again for each power of two between them, eight at a time (a mantissa times 2^8 fits a word).

use crate::builder::{Builder, Kind, Value};
use naga::{BinaryOperator as B, Expression, MathFunction as M, Statement};

/// Bits of infinity, the sign bit left out.
const INFINITY: u32 = 0x7f80_0000;
/// The bit that a normal number's mantissa leaves out.
const HIDDEN: u32 = 1 << 23;

impl Builder {
    /// The remainder of `a / b` with the sign of `a`. NaN for an infinite dividend, a divisor of 0, and where either is
    /// NaN.
    pub(crate) fn float_remainder(&mut self, a: Value, b: Value) -> Value {
        let (a, b) = self.widen(a, b);
        let [whole, divisor] = [a, b].map(|v| self.bitcast(v, Kind::U32));
        let word = |this: &mut Self, v: u32| this.c(whole, f64::from(v));
        let [zero, one, infinity, size] = [0, 1, INFINITY, !(1 << 31)].map(|v| word(self, v));
        let [x, y] = [whole, divisor].map(|v| self.binary(B::And, v, size));
        let ([x_power, x_mantissa], [y_power, y_mantissa]) = (self.parts(x), self.parts(y));
        let y_mantissa = self.math(M::Max, &[y_mantissa, one]);
        let smaller = self.less(x, y);
        let powers = self.sub(x_power, y_power);
        let powers = self.select(smaller, zero, powers);
        let rest = self.binary(B::Modulo, x_mantissa, y_mantissa);
        let rest = self.double_and_reduce(rest, y_mantissa, powers);
        let rest = self.compose_float(rest, y_power);
        let rest = self.select(smaller, x, rest);
        let sign = self.sub(whole, x);
        let signed = self.binary(B::InclusiveOr, rest, sign);
        let finite = self.less(x, infinity);
        let number = self.binary(B::LessEqual, y, infinity);
        let nonzero = self.less(zero, y);
        let defined = self.binary(B::And, finite, number);
        let defined = self.binary(B::And, defined, nonzero);
        let nan = word(self, INFINITY | HIDDEN >> 1);
        let bits = self.select(defined, signed, nan);
        self.bitcast(bits, Kind::F32)
    }

    /// Exponent (1 for 0 and subnormals) and mantissa of the float without a sign whose bits these are.
    fn parts(&mut self, bits: Value) -> [Value; 2] {
        let [zero, one, width, low, hidden] = [0, 1, 23, HIDDEN - 1, HIDDEN].map(|v| self.c(bits, f64::from(v)));
        let power = self.binary(B::ShiftRight, bits, width);
        let low = self.binary(B::And, bits, low);
        let normal = self.less(zero, power);
        let full = self.binary(B::InclusiveOr, low, hidden);
        [self.math(M::Max, &[power, one]), self.select(normal, full, low)]
    }

    /// `rest * 2^powers` modulo `divisor`, for `rest < divisor`.
    fn double_and_reduce(&mut self, rest: Value, divisor: Value, powers: Value) -> Value {
        let ty = self.lanes_ty(Kind::U32, rest.lanes);
        let [rest_var, powers_var] = ["remainder", "powers"].map(|name| self.local_var(name, ty));
        let [rest_at, powers_at] = [rest_var, powers_var].map(|v| self.local(v));
        self.store(rest_at, rest.handle);
        self.store(powers_at, powers.handle);
        self.open();
        let left = self.load(powers_at, Kind::U32, rest.lanes, None);
        let lanes: Vec<Value> = (0..u32::from(rest.lanes)).map(|i| self.component(left, i)).collect();
        let most = lanes[1..].iter().fold(lanes[0], |most, &lane| self.math(M::Max, &[most, lane]));
        let none = self.c(most, 0.0);
        let done = self.binary(B::Equal, most, none);
        let mut accept = naga::Block::new();
        accept.push(Statement::Break, naga::Span::UNDEFINED);
        self.statement(Statement::If { condition: done.handle, accept, reject: naga::Block::new() });
        let eight = self.c(left, 8.0);
        let step = self.math(M::Min, &[left, eight]);
        let now = self.load(rest_at, Kind::U32, rest.lanes, None);
        let doubled = self.binary(B::ShiftLeft, now, step);
        let next = self.binary(B::Modulo, doubled, divisor);
        self.store(rest_at, next.handle);
        let left = self.sub(left, step);
        self.store(powers_at, left.handle);
        let body = self.close();
        self.statement(Statement::Loop { body, continuing: naga::Block::new(), break_if: None });
        let handle = self.emit(Expression::Load { pointer: rest_at });
        Value { handle, ..rest }
    }

    /// Bits of the float with this mantissa, below 2^24, and exponent.
    fn compose_float(&mut self, mantissa: Value, power: Value) -> Value {
        let [zero, one, width, spare, hidden] = [0, 1, 23, 8, HIDDEN].map(|v| self.c(mantissa, f64::from(v)));
        let leading = self.math(M::CountLeadingZeros, &[mantissa]);
        let (wanted, most) = (self.sub(leading, spare), self.sub(power, one));
        let shift = self.math(M::Min, &[wanted, most]);
        let normal = self.binary(B::ShiftLeft, mantissa, shift);
        let power = self.sub(power, shift);
        let power = self.binary(B::ShiftLeft, power, width);
        // Without the hidden bit the exponent is 1, which this takes off again.
        let bits = self.add(power, normal);
        let bits = self.sub(bits, hidden);
        let nothing = self.binary(B::Equal, mantissa, zero);
        self.select(nothing, zero, bits)
    }
}
