//! Rounds f32 to narrower floats in registers, by integer operations on the bits.
//!
//! The conversions of shading languages leave open how values beyond the range are converted (WGSL's `pack2x16float`
//! and `quantizeToF16`; drivers give NaN for infinity), and may flush subnormals. Integer operations give the same
//! result on every device.

use crate::builder::{Builder, Kind, Value};
use naga::{BinaryOperator as B, MathFunction as M};

/// f32's infinity.
const INFINITY: u32 = 0x7f80_0000;
/// The smallest normal f16, 2^-14, as f32.
const HALF_NORMAL: u32 = 0x3880_0000;
/// The first f32 beyond f16, 65536: values that round to it become infinite.
const HALF_BEYOND: u32 = 0x4780_0000;

impl Builder {
    fn bits(&mut self, like: Value, v: u32) -> Value {
        self.constant(Kind::U32, like.lanes, f64::from(v))
    }
    fn and(&mut self, a: Value, mask: u32) -> Value {
        let mask = self.bits(a, mask);
        self.binary(B::And, a, mask)
    }
    fn shift_right(&mut self, a: Value, by: u32) -> Value {
        let by = self.bits(a, by);
        self.binary(B::ShiftRight, a, by)
    }
    fn test(&mut self, op: B, a: Value, b: u32) -> Value {
        let b = self.bits(a, b);
        self.binary(op, a, b)
    }

    /// Adds half a unit of the remaining bits (ties to even) to bits whose lowest `drop` will be removed.
    fn with_half_added(&mut self, bits: Value, drop: u32) -> Value {
        let odd = self.shift_right(bits, drop);
        let odd = self.and(odd, 1);
        let below_half = self.bits(bits, (1 << (drop - 1)) - 1);
        let sum = self.add(bits, below_half);
        self.add(sum, odd)
    }

    /// Magnitudes below 2^-14 in units of 2^-24, the smallest subnormal of f16, to the nearest; 1024 for larger ones.
    fn subnormal_units(&mut self, magnitude: Value) -> Value {
        let v = self.bitcast(magnitude, Kind::F32);
        let largest = self.constant(Kind::F32, v.lanes, f64::from(f32::from_bits(HALF_NORMAL)));
        let inside = self.math(M::Min, &[v, largest]);
        let unit = self.constant(Kind::F32, v.lanes, 2f64.powi(24));
        let units = self.mul(inside, unit);
        self.math(M::Round, &[units])
    }

    /// The bits of each f32 as an f16, in the lower half of a word.
    pub fn half_bits(&mut self, v: Value) -> Value {
        let bits = self.bitcast(v, Kind::U32);
        let magnitude = self.and(bits, 0x7fff_ffff);
        let rounded = self.with_half_added(magnitude, 13);
        let rounded = self.shift_right(rounded, 13);
        // Exponents of f32 are biased by 127, those of f16 by 15.
        let bias = self.bits(bits, (127 - 15) << 10);
        let normal = self.sub(rounded, bias);
        let infinity = self.bits(bits, 0x7c00);
        let normal = self.math(M::Min, &[normal, infinity]);
        let units = self.subnormal_units(magnitude);
        let small = self.convert(units, Kind::U32);
        let is_small = self.test(B::Less, magnitude, HALF_NORMAL);
        let half = self.select(is_small, small, normal);
        let is_nan = self.test(B::Greater, magnitude, INFINITY);
        let nan = self.bits(bits, 0x7e00);
        let half = self.select(is_nan, nan, half);
        let sign = self.shift_right(bits, 16);
        let sign = self.and(sign, 0x8000);
        self.binary(B::InclusiveOr, sign, half)
    }

    /// Each f32 rounded to f16.
    pub fn quantize_half(&mut self, v: Value) -> Value {
        let bits = self.bitcast(v, Kind::U32);
        let magnitude = self.and(bits, 0x7fff_ffff);
        let normal = self.with_half_added(magnitude, 13);
        let normal = self.and(normal, !0x1fff);
        let beyond = self.test(B::GreaterEqual, normal, HALF_BEYOND);
        let infinity = self.bits(bits, INFINITY);
        let normal = self.select(beyond, infinity, normal);
        let units = self.subnormal_units(magnitude);
        let unit = self.constant(Kind::F32, v.lanes, 2f64.powi(-24));
        let small = self.mul(units, unit);
        let small = self.bitcast(small, Kind::U32);
        let is_small = self.test(B::Less, magnitude, HALF_NORMAL);
        let rounded = self.select(is_small, small, normal);
        let is_nan = self.test(B::Greater, magnitude, INFINITY);
        let rounded = self.select(is_nan, magnitude, rounded);
        let sign = self.and(bits, 0x8000_0000);
        let rounded = self.binary(B::InclusiveOr, sign, rounded);
        self.bitcast(rounded, Kind::F32)
    }

    /// The bits of each f32 as a bf16, in the upper half of a word whose lower half is 0. A NaN stays one.
    fn brain_half(&mut self, v: Value) -> Value {
        let bits = self.bitcast(v, Kind::U32);
        let magnitude = self.and(bits, 0x7fff_ffff);
        let rounded = self.with_half_added(bits, 16);
        let is_nan = self.test(B::Greater, magnitude, INFINITY);
        let quiet = self.bits(bits, 0x40_0000);
        let nan = self.binary(B::InclusiveOr, bits, quiet);
        let rounded = self.select(is_nan, nan, rounded);
        self.and(rounded, 0xffff_0000)
    }

    /// Each f32 rounded to bf16.
    pub fn quantize_brain_half(&mut self, v: Value) -> Value {
        let rounded = self.brain_half(v);
        self.bitcast(rounded, Kind::F32)
    }

    /// Two halves in a word.
    pub fn pack_halves(&mut self, v: Value, brain: bool) -> Value {
        let sixteen = self.constant(Kind::U32, 1, 16.0);
        let (low, high) = if brain {
            let halves = self.brain_half(v);
            let low = self.component(halves, 0);
            (self.binary(B::ShiftRight, low, sixteen), self.component(halves, 1))
        } else {
            let halves = self.half_bits(v);
            let high = self.component(halves, 1);
            (self.component(halves, 0), self.binary(B::ShiftLeft, high, sixteen))
        };
        self.binary(B::InclusiveOr, low, high)
    }
}
