//! Narrow element types, which Weft stores and converts but does not compute in: integers of 2 and 4 bits, floats of 4
//! and 8 bits.
//!
//! During import, a value of such a type is a tensor of bytes: integers as i8 or u8, floats as the u8 of their bits.
//! The importer keeps the type ([`Narrow`]). `Cast`, `QuantizeLinear` and `DequantizeLinear` convert with the nodes
//! that are made here; ops that only move elements take the bytes unchanged.
//!
//! Formats: IEEE P3109's predecessors in ONNX. e4m3fn and e5m2: P. Micikevicius et al., FP8 Formats for Deep Learning
//! (2022); the `uz` forms: B. Noune et al., 8-bit Numerical Formats for Deep Neural Networks (2022); e2m1 and e8m0: OCP
//! Microscaling Formats (2023).

use super::OpResult;
use super::binary::{Add, And, BitAnd, Div, Equal, GreaterOrEqual, Less, Or, Sub};
use super::bucketize::Bucketize;
use super::gather::Gather;
use super::select::Where;
use super::unary::{Abs, IsNan};
use crate::dtype::DType;
use crate::graph::ValueId;
use crate::ops::onnx::ImportContext;
use crate::tensor::Tensor;

/// A stored element type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Narrow {
    U4,
    I4,
    U2,
    I2,
    F4E2M1,
    F8E4M3Fn,
    F8E4M3FnUz,
    F8E5M2,
    F8E5M2FnUz,
    F8E8M0,
}

/// The encoding of a float format.
struct Format {
    exponent: i32,
    mantissa: i32,
    bias: i32,
    /// Codes of finite numbers that are not negative: those below this one.
    finite: usize,
    /// The code of NaN.
    nan: i64,
    /// What a magnitude beyond the largest number becomes where it does not saturate; with the sign where there is one.
    beyond: i64,
    /// Whether there is a sign, and whether 0 has one.
    signs: (bool, bool),
}

/// How numbers between two codes of e8m0 are rounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PowerRounding {
    /// To the larger power of two.
    Up,
    /// To the smaller one.
    Down,
    /// To the nearer one.
    Nearest,
}

impl Narrow {
    /// Every type.
    pub const ALL: [Narrow; 10] = [
        Narrow::U4,
        Narrow::I4,
        Narrow::U2,
        Narrow::I2,
        Narrow::F4E2M1,
        Narrow::F8E4M3Fn,
        Narrow::F8E4M3FnUz,
        Narrow::F8E5M2,
        Narrow::F8E5M2FnUz,
        Narrow::F8E8M0,
    ];
    /// ONNX's code (`TensorProto.DataType`).
    pub fn onnx_code(self) -> i64 {
        match self {
            Narrow::F8E4M3Fn => 17,
            Narrow::F8E4M3FnUz => 18,
            Narrow::F8E5M2 => 19,
            Narrow::F8E5M2FnUz => 20,
            Narrow::U4 => 21,
            Narrow::I4 => 22,
            Narrow::F4E2M1 => 23,
            Narrow::F8E8M0 => 24,
            Narrow::U2 => 25,
            Narrow::I2 => 26,
        }
    }
    /// The type of an ONNX code.
    pub fn of_onnx(code: i64) -> Option<Narrow> {
        Narrow::ALL.into_iter().find(|n| n.onnx_code() == code)
    }
    /// ONNX's name.
    pub fn name(self) -> &'static str {
        match self {
            Narrow::U4 => "uint4",
            Narrow::I4 => "int4",
            Narrow::U2 => "uint2",
            Narrow::I2 => "int2",
            Narrow::F4E2M1 => "float4e2m1",
            Narrow::F8E4M3Fn => "float8e4m3fn",
            Narrow::F8E4M3FnUz => "float8e4m3fnuz",
            Narrow::F8E5M2 => "float8e5m2",
            Narrow::F8E5M2FnUz => "float8e5m2fnuz",
            Narrow::F8E8M0 => "float8e8m0",
        }
    }
    /// Bits of an element in a file.
    pub fn bits(self) -> usize {
        match self {
            Narrow::U2 | Narrow::I2 => 2,
            Narrow::U4 | Narrow::I4 | Narrow::F4E2M1 => 4,
            _ => 8,
        }
    }
    /// The type of the bytes that stand for it.
    pub fn carrier(self) -> DType {
        if matches!(self, Narrow::I2 | Narrow::I4) { DType::I8 } else { DType::U8 }
    }
    /// Least and largest value of the integers.
    pub fn limits(self) -> Option<(f64, f64)> {
        match self {
            Narrow::U2 => Some((0.0, 3.0)),
            Narrow::I2 => Some((-2.0, 1.0)),
            Narrow::U4 => Some((0.0, 15.0)),
            Narrow::I4 => Some((-8.0, 7.0)),
            _ => None,
        }
    }
    /// The bytes that stand for `len` elements which share those of a file, the first with the lowest bits.
    pub fn unpack(self, packed: &[u8], len: usize) -> Vec<u8> {
        let (bits, each) = (self.bits(), 8 / self.bits());
        if each == 1 {
            return packed.iter().copied().take(len).collect();
        }
        let part = |i: usize| {
            let value = packed.get(i / each).map_or(0, |b| b >> (i % each * bits)) & ((1 << bits) - 1);
            let negative = self.carrier() == DType::I8 && value >> (bits - 1) != 0;
            if negative { value | !((1 << bits) - 1) } else { value }
        };
        (0..len).map(part).collect()
    }

    fn format(self) -> Option<Format> {
        let (exponent, mantissa, bias, finite, nan, beyond, signs) = match self {
            Narrow::F4E2M1 => (2, 1, 1, 0x8, 0x8, 0x7, (true, true)),
            Narrow::F8E4M3Fn => (4, 3, 7, 0x7f, 0x7f, 0x7f, (true, true)),
            Narrow::F8E4M3FnUz => (4, 3, 8, 0x80, 0x80, 0x80, (true, false)),
            Narrow::F8E5M2 => (5, 2, 15, 0x7c, 0x7e, 0x7c, (true, true)),
            Narrow::F8E5M2FnUz => (5, 2, 16, 0x80, 0x80, 0x80, (true, false)),
            Narrow::F8E8M0 => (8, 0, 127, 0xff, 0xff, 0xff, (false, false)),
            _ => return None,
        };
        Some(Format { exponent, mantissa, bias, finite, nan, beyond, signs })
    }
}

impl Format {
    /// The number of a code without sign, as if the exponent had no end.
    fn magnitude(&self, code: usize) -> f64 {
        let (exponent, mantissa) = ((code >> self.mantissa) as i32, (code & ((1 << self.mantissa) - 1)) as f64);
        let unit = f64::from(1 << self.mantissa);
        match exponent {
            0 if self.mantissa > 0 => mantissa / unit * 2f64.powi(1 - self.bias),
            e => (1.0 + mantissa / unit) * 2f64.powi(e - self.bias),
        }
    }
    /// The number of every code.
    fn values(&self) -> Vec<f32> {
        let sign = self.exponent + self.mantissa;
        let count = 1usize << (sign + i32::from(self.signs.0));
        let value = |code: usize| {
            let negative = self.signs.0 && code >> sign != 0;
            let low = code & ((1 << sign) - 1);
            let finite = low < self.finite && (code != 1 << sign || self.signs.1);
            let magnitude = match finite {
                true => self.magnitude(low),
                // e5m2 has infinities; whatever else is no number is NaN.
                false if low as i64 == self.beyond && self.beyond != self.nan => f64::INFINITY,
                false => f64::NAN,
            };
            (if negative { -magnitude } else { magnitude }) as f32
        };
        (0..count).map(value).collect()
    }
    /// The least magnitude that is rounded to at least each code from 1 on; the last one is beyond the numbers. Halves
    /// go to the even code.
    fn bounds(&self) -> Vec<f32> {
        let bound = |code: usize| {
            let half = ((self.magnitude(code - 1) + self.magnitude(code)) / 2.0) as f32;
            if code.is_multiple_of(2) { half } else { half.next_up() }
        };
        (1..=self.finite).map(bound).collect()
    }
    /// As [`Format::bounds`], of powers of two.
    fn power_bounds(&self, rounding: PowerRounding) -> Vec<f32> {
        let bound = |code: usize| {
            let below = self.magnitude(code - 1) as f32;
            match rounding {
                PowerRounding::Up => below.next_up(),
                PowerRounding::Down => self.magnitude(code) as f32,
                PowerRounding::Nearest => 1.5 * below,
            }
        };
        (1..=self.finite).map(bound).collect()
    }
}

/// A narrow value as numbers: floats in f32, integers as their bytes.
///
/// # Errors
/// An error of inference.
pub fn widen(cx: &mut ImportContext<'_, '_>, x: ValueId, from: Narrow) -> OpResult<ValueId> {
    let Some(format) = from.format() else { return Ok(x) };
    let values = format.values();
    let values = cx.constant(&Tensor::from_vec(vec![values.len()], values));
    let at = cx.cast(x, DType::I32)?;
    cx.add(Gather { axis: 0 }, &[values, at])
}

/// `x` as a narrow type, in its bytes. Integers keep their lowest bits; floats round to the nearest, ties to even, and
/// beyond the largest number become that (`saturate`) or what the format has for it. `rounding` is that of powers of
/// two.
///
/// # Errors
/// An error of inference.
pub fn narrow(
    cx: &mut ImportContext<'_, '_>,
    x: ValueId,
    to: Narrow,
    saturate: bool,
    rounding: PowerRounding,
) -> OpResult<ValueId> {
    match to.format() {
        Some(format) => narrow_float(cx, x, (to, &format), saturate, rounding),
        None => narrow_integer(cx, x, to),
    }
}

fn narrow_integer(cx: &mut ImportContext<'_, '_>, x: ValueId, to: Narrow) -> OpResult<ValueId> {
    let x = cx.cast(x, DType::I32)?;
    let range = 1 << to.bits();
    let number = |cx: &mut ImportContext<'_, '_>, v: i32| cx.number(v.into(), DType::I32);
    let most = number(cx, range - 1);
    let mut x = cx.add(BitAnd {}, &[x, most])?;
    if to.carrier() == DType::I8 {
        let (half, range) = (number(cx, range / 2), number(cx, range));
        let negative = cx.add(GreaterOrEqual {}, &[x, half])?;
        let below = cx.add(Sub {}, &[x, range])?;
        x = cx.add(Where {}, &[negative, below, x])?;
    }
    cx.cast(x, to.carrier())
}

/// The count of bounds that the magnitude reaches is the code.
fn narrow_float(
    cx: &mut ImportContext<'_, '_>,
    x: ValueId,
    (to, format): (Narrow, &Format),
    saturate: bool,
    rounding: PowerRounding,
) -> OpResult<ValueId> {
    let x = cx.cast(x, DType::F32)?;
    let mut bounds = if to == Narrow::F8E8M0 { format.power_bounds(rounding) } else { format.bounds() };
    if saturate || to == Narrow::F4E2M1 {
        bounds.pop();
    }
    let finite = format.finite as i64;
    let number = |cx: &mut ImportContext<'_, '_>, v: i64| cx.number(v as f64, DType::I32);
    let reached_beyond = bounds.len() as i64 == finite && format.beyond != finite;
    let bounds = cx.constant(&Tensor::from_vec(vec![bounds.len()], bounds));
    let magnitude = cx.add(Abs {}, &[x])?;
    let mut code = cx.add(Bucketize {}, &[magnitude, bounds])?;
    if reached_beyond {
        let (last, beyond) = (number(cx, finite), number(cx, format.beyond));
        let reached = cx.add(Equal {}, &[code, last])?;
        code = cx.add(Where {}, &[reached, beyond, code])?;
    }
    if format.signs.0 {
        let negative = match format.signs.1 {
            true => is_negative(cx, x)?,
            // 0 has no sign, and neither has NaN, whose code is the sign's bit.
            false => {
                let (none, nan) = (cx.number(0.0, DType::F32), number(cx, format.nan));
                let (zero, below) = (number(cx, 0), cx.add(Less {}, &[x, none])?);
                let positive = cx.add(Less {}, &[zero, code])?;
                let number = cx.add(Less {}, &[code, nan])?;
                let signed = cx.add(And {}, &[positive, number])?;
                cx.add(And {}, &[below, signed])?
            }
        };
        let sign = number(cx, 1 << (format.exponent + format.mantissa));
        let signed = cx.add(Add {}, &[code, sign])?;
        code = cx.add(Where {}, &[negative, signed, code])?;
    }
    let (nan, unknown) = (number(cx, format.nan), cx.add(IsNan {}, &[x])?);
    code = cx.add(Where {}, &[unknown, nan, code])?;
    cx.cast(code, DType::U8)
}

/// True for numbers below 0, and for -0.
fn is_negative(cx: &mut ImportContext<'_, '_>, x: ValueId) -> OpResult<ValueId> {
    let (none, one) = (cx.number(0.0, DType::F32), cx.number(1.0, DType::F32));
    let below = cx.add(Less {}, &[x, none])?;
    let zero = cx.add(Equal {}, &[x, none])?;
    let inverse = cx.add(Div {}, &[one, x])?;
    let minus = cx.add(Less {}, &[inverse, none])?;
    let zero = cx.add(And {}, &[zero, minus])?;
    cx.add(Or {}, &[below, zero])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(n: Narrow) -> Vec<f32> {
        n.format().map(|f| f.values()).unwrap_or_default()
    }

    #[test]
    fn codes_have_the_numbers_of_their_formats() {
        let most = |n: Narrow| values(n).into_iter().filter(|v| v.is_finite()).fold(0.0, f32::max);
        assert_eq!(most(Narrow::F8E4M3Fn), 448.0);
        assert_eq!(most(Narrow::F8E4M3FnUz), 240.0);
        assert_eq!((most(Narrow::F8E5M2), most(Narrow::F8E5M2FnUz)), (57344.0, 57344.0));
        assert_eq!(values(Narrow::F4E2M1)[..8], [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
        assert_eq!(values(Narrow::F8E8M0)[127], 1.0);
        assert_eq!(values(Narrow::F8E5M2)[0xfc], f32::NEG_INFINITY);
        let nans = |n: Narrow| values(n).iter().filter(|v| v.is_nan()).count();
        assert_eq!([Narrow::F8E4M3Fn, Narrow::F8E4M3FnUz, Narrow::F8E5M2, Narrow::F4E2M1].map(nans), [2, 1, 6, 0]);
    }

    #[test]
    fn halves_go_to_the_even_code() {
        let Some(format) = Narrow::F4E2M1.format() else { panic!("a float") };
        // 0.25 is between codes 0 and 1, 0.75 between 1 and 2, 5 between 6 and 7.
        let code = |v: f32| format.bounds().iter().filter(|&&b| v >= b).count();
        assert_eq!([0.25, 0.26, 0.75, 1.25, 5.0, 5.1].map(code), [0, 1, 2, 2, 6, 7]);
    }

    #[test]
    fn shared_bytes_come_apart() {
        assert_eq!(Narrow::U4.unpack(&[0x87, 0x0f], 3), [7, 8, 15]);
        assert_eq!(Narrow::I4.unpack(&[0x87, 0x0f], 3), [7, 0xf8, 0xff]);
        assert_eq!(Narrow::I2.unpack(&[0b11_10_01_00], 4), [0, 1, 0xfe, 0xff]);
        assert_eq!(Narrow::F8E5M2.unpack(&[0x87, 0x0f], 2), [0x87, 0x0f]);
    }
}
