//! Spectra: the discrete Fourier transform as a sum of products, windows, and the mel scale.
//!
//! The transform is quadratic in its length. Angles are exact: `k * n` is reduced modulo the length as an integer.

use super::binary::Mul;
use super::cast::dtype_of_onnx;
use super::permute::{PermutedOp, normalize_axis, permuted_axis};
use super::unary::math_dtype;
use super::{InferContext, Op, OpResult, Precision};
use crate::attr_struct;
use crate::fault::Fault;
use crate::graph::{TensorType, ValueId};
use crate::int::Int;
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tensor::{Tensor, filled};
use crate::tir::{Combiner, Cond, Expr, UnaryOp};
use std::f64::consts::PI;

attr_struct! {
    /// `X[k] = sum x[n] e^(-2 pi i k n / length)` along `axis`. The last dimension of the data holds a real number, or
    /// its real and imaginary part; the data is cut off or followed by zeros where `length` says so.
    pub struct Dft("dft") {
        /// The axis; negative counts from the end.
        pub axis: i64 = -2,
        /// Length of the transform; the axis's own when 0.
        pub length: i64 = 0,
        /// `sum x[n] e^(2 pi i k n / length) / length` instead.
        pub inverse: bool = false,
        /// Only the first half of the spectrum (of a real signal) is given, or when inverse, read.
        pub onesided: bool = false,
    }
}
impl Dft {
    fn axis(&self, rank: usize) -> OpResult<usize> {
        let axis = normalize_axis(self.axis, rank)?;
        if axis + 1 == rank {
            return Err("the last axis holds the parts of a number".into());
        }
        Ok(axis)
    }
    fn length(&self, size: &Int) -> OpResult<i64> {
        let own = || match (size.as_const(), self.inverse && self.onesided) {
            (Some(n), true) => Ok(2 * (n - 1)),
            (Some(n), false) => Ok(n),
            (None, _) => Err(Fault::unsupported("the length of the transform is not known at compile time")),
        };
        let n = if self.length == 0 { own()? } else { self.length };
        if (1..=1 << 15).contains(&n) {
            Ok(n)
        } else {
            Err(Fault::unsupported(format!("length {n} of a transform is unsupported")))
        }
    }
}
impl Op for Dft {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.require(0)?;
        let axis = self.axis(x.rank())?;
        let parts = x.shape[x.rank() - 1].as_const();
        if !x.dtype.is_float() || !matches!(parts, Some(1 | 2)) {
            return Err(format!("data {x:?} holds neither real nor complex numbers").into());
        }
        let n = self.length(&x.shape[axis])?;
        let mut shape = x.shape.clone();
        shape[axis] = Int::new(if self.onesided && !self.inverse { n / 2 + 1 } else { n });
        shape[x.rank() - 1] = Int::new(if self.onesided && self.inverse { 1 } else { 2 });
        Ok(vec![TensorType::new(x.dtype, shape)])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let x = cx.require(0)?;
        let (ty, shape) = (cx.output_type(0).clone(), cx.shape(x));
        let (axis, last) = (self.axis(shape.len())?, shape.len() - 1);
        let (n, t) = (self.length(&shape[axis])?, math_dtype(ty.dtype));
        let mirrored = self.onesided && self.inverse;
        let terms = match shape[axis].as_const() {
            Some(size) if mirrored => Int::new(size.min(n / 2 + 1)),
            Some(size) => Int::new(size.min(n)),
            None => shape[axis].clone(),
        };
        let complex = shape[last].is(2);
        let sum = cx.reduce("", &ty.shape, t, &[terms], Combiner::Sum, |i, r| {
            let part = |p: i64| {
                let mut at = i.to_vec();
                (at[axis], at[last]) = (r[0].clone(), Int::new(p));
                Expr::load(x, at).cast(ty.dtype, t)
            };
            let turn = Expr::Index((i[axis].clone() * &r[0]).rem(n), t) * Expr::constant(2.0 * PI / n as f64, t);
            let (cos, sin) = (Expr::unary(UnaryOp::Cos, turn.clone()), Expr::unary(UnaryOp::Sin, turn));
            // Real and imaginary part of (a + bi) (cos + i sin), with the sine negative for the forward transform.
            let sin = if self.inverse { sin } else { Expr::unary(UnaryOp::Neg, sin) };
            let real = match complex {
                true => part(0) * cos.clone() - part(1) * sin.clone(),
                false => part(0) * cos.clone(),
            };
            let imaginary = match complex {
                true => part(0) * sin + part(1) * cos,
                false => part(0) * sin,
            };
            let value = match mirrored {
                // The other half holds the conjugates; the first and the middle term are their own.
                true => {
                    let own = |at: i64| Cond::eq(&r[0], at);
                    let once = if n % 2 == 0 { vec![own(0), own(n / 2)] } else { vec![own(0)] };
                    once.into_iter()
                        .fold(real.clone() * Expr::constant(2.0, t), |v, c| Expr::guarded(vec![c], real.clone(), v))
                }
                false => Expr::guarded(vec![Cond::eq(&i[last], 0)], real, imaginary),
            };
            if self.inverse { value * Expr::constant(1.0 / n as f64, t) } else { value }
        });
        let out = super::matmul::narrow(cx, sum, &ty);
        cx.output(0, out);
        Ok(())
    }
    fn precision(&self) -> Precision {
        Precision::Never
    }
    fn permuted(&self, perm: &[usize], _cx: &InferContext<'_>) -> Option<PermutedOp> {
        let axis = self.axis(perm.len()).ok()?;
        let keeps = perm.last() == Some(&(perm.len() - 1));
        let axis = permuted_axis(axis, perm) as i64;
        keeps.then(|| PermutedOp::uniform(Dft { axis, ..self.clone() }, perm, 1, 1))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let length = if self.length == 0 { String::new() } else { cx.constant(Tensor::scalar(self.length)) };
        let axis = cx.constant(Tensor::scalar(self.axis));
        let (inputs, outputs) = (vec![cx.input(0), length, axis], cx.outputs.clone());
        let flags = [("inverse", self.inverse), ("onesided", self.onesided)];
        cx.node("DFT", inputs, outputs, flags.map(|(k, v)| (k, OnnxAttr::Int(v as i64))).to_vec());
        Ok(())
    }
}

attr_struct! {
    /// Parts of `length` elements of the operand's axis 1, `step` apart, as a new axis before it: `[batch, frames,
    /// length, ...]`.
    pub struct Frames("frames") {
        /// Elements of a part.
        pub length: i64 = 1,
        /// Distance of the parts.
        pub step: i64 = 1,
    }
}
impl Op for Frames {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.require(0)?;
        let n = x.shape.get(1).ok_or("the signal has no axis 1")?;
        if self.length < 1 || self.step < 1 || n.as_const().is_some_and(|n| n < self.length) {
            return Err(format!("frames of {} every {} in a signal of {n}", self.length, self.step).into());
        }
        let mut shape = x.shape.clone();
        shape[1] = (n.clone() - self.length).div(self.step) + 1;
        shape.insert(2, Int::new(self.length));
        Ok(vec![TensorType::new(x.dtype, shape)])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let x = cx.require(0)?;
        let ty = cx.output_type(0).clone();
        let out = cx.compute("", &ty.shape, ty.dtype, |i| {
            let at = i[1].clone() * self.step + &i[2];
            Expr::load(x, [&i[..1], &[at], &i[3..]].concat())
        });
        cx.output(0, out);
        Ok(())
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let frames = cx.output_types[0].shape[1].as_const().ok_or("a symbolic number of frames has no ONNX form")?;
        let places = (0..frames).flat_map(|f| (0..self.length).map(move |i| (f, i)));
        let places: Vec<i64> = places.map(|(f, i)| f * self.step + i).collect();
        let places = cx.constant(Tensor::from_vec(vec![frames as usize, self.length as usize], places));
        let (inputs, outputs) = (vec![cx.input(0), places], cx.outputs.clone());
        cx.node("Gather", inputs, outputs, vec![("axis", OnnxAttr::Int(1))]);
        Ok(())
    }
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "DFT", domain: "", since: 17, import: import_dft },
    OnnxImport { op_type: "STFT", domain: "", since: 17, import: import_stft },
    OnnxImport { op_type: "HannWindow", domain: "", since: 17, import: |cx| import_window(cx, &[0.5, 0.5]) },
    OnnxImport {
        op_type: "HammingWindow",
        domain: "",
        since: 17,
        import: |cx| import_window(cx, &[25.0 / 46.0, 21.0 / 46.0]),
    },
    OnnxImport { op_type: "BlackmanWindow", domain: "", since: 17, import: |cx| import_window(cx, &[0.42, 0.5, 0.08]) },
    OnnxImport { op_type: "MelWeightMatrix", domain: "", since: 17, import: import_mel },
];

/// The integer in operand `i`, which must be known; `None` when it is absent.
fn known(cx: &ImportContext<'_, '_>, i: usize, what: &str) -> OpResult<Option<i64>> {
    match cx.opt(i) {
        None => Ok(None),
        Some(_) => {
            let value = cx.const_ints(i).and_then(|v| v.first().copied());
            value.map(Some).ok_or_else(|| Fault::unsupported(format!("{what} is not known at compile time")))
        }
    }
}

/// The axis is an attribute (1 by default) before opset 20, then operand 2 (-2 by default).
fn import_dft(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    let axis = match cx.opset < 20 {
        true => cx.attrs.int("axis").unwrap_or(1),
        false => known(cx, 2, "the axis")?.unwrap_or(-2),
    };
    let flag = |name| cx.attrs.int(name).unwrap_or(0) != 0;
    let length = known(cx, 1, "the length of the transform")?.unwrap_or(0);
    let op = Dft { axis, length, inverse: flag("inverse"), onesided: flag("onesided") };
    Ok(vec![cx.add(op, &[x])?])
}

fn import_stft(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (x, ty) = (cx.input(0)?, cx.ty(0)?);
    let step = known(cx, 1, "the distance of frames")?.ok_or("the distance of frames is missing")?;
    let window = cx.opt(2);
    let length = match (known(cx, 3, "the length of frames")?, window) {
        (Some(n), _) => n,
        (None, Some(w)) => cx
            .type_of(w)
            .numel()
            .as_const()
            .ok_or_else(|| Fault::unsupported("the window's length is not known at compile time"))?,
        (None, None) => return Err("neither a window nor the length of frames is given".into()),
    };
    // A real signal may come without its last axis.
    let x = if ty.rank() == 2 { cx.add(super::reshape::Unsqueeze { axes: vec![2] }, &[x])? } else { x };
    let mut frames = cx.add(Frames { length, step }, &[x])?;
    if let Some(window) = window {
        let column = cx.reshape(window, vec![Int::new(length), Int::new(1)])?;
        frames = cx.add(Mul {}, &[frames, column])?;
    }
    let onesided = cx.attrs.int("onesided").unwrap_or(1) != 0;
    Ok(vec![cx.add(Dft { axis: 2, onesided, ..Dft::default() }, &[frames])?])
}

/// `a0 - a1 cos(2 pi n / N) + a2 cos(4 pi n / N)`.
fn import_window(cx: &mut ImportContext<'_, '_>, terms: &[f64]) -> OpResult<Vec<ValueId>> {
    let size = known(cx, 0, "the window's size")?.ok_or("the window's size is missing")?;
    let size = usize::try_from(size).ok().filter(|&n| n <= 1 << 24).ok_or(format!("a window of {size} elements"))?;
    let dtype = dtype_of_onnx(cx.attrs.int("output_datatype").unwrap_or(1))?;
    let periodic = cx.attrs.int("periodic").unwrap_or(1) != 0;
    let whole = if periodic { size } else { size.saturating_sub(1) } as f64;
    let value = |n: usize| {
        let term =
            |(k, a): (usize, &f64)| a * (2.0 * PI * (k * n) as f64 / whole).cos() * if k % 2 == 1 { -1.0 } else { 1.0 };
        terms.iter().enumerate().map(term).sum::<f64>()
    };
    Ok(vec![cx.constant(&Tensor::from_f64(dtype, vec![size], (0..size).map(value)))])
}

/// Triangles on the mel scale, `2595 log10(1 + f / 700)`, as a matrix from spectrum to bands.
fn import_mel(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let number = |i: usize| {
        let t = cx.const_tensor(i).and_then(|t| t.to_f64_vec().first().copied());
        t.ok_or_else(|| Fault::unsupported(format!("operand {i} is not known at compile time")))
    };
    let [bands, length, rate, low, high] = [number(0)?, number(1)?, number(2)?, number(3)?, number(4)?];
    let dtype = dtype_of_onnx(cx.attrs.int("output_datatype").unwrap_or(1))?;
    let (count, bins) = (bands as usize, length as usize / 2 + 1);
    if !(0.0..=65536.0).contains(&bands) || !(0.0..=16777216.0).contains(&length) || rate < 1.0 {
        return Err(format!("{bands} bands of {length} samples at {rate} Hz").into());
    }
    let mel = |f: f64| 2595.0 * (1.0 + f / 700.0).log10();
    let step = (mel(high) - mel(low)) / (count + 2) as f64;
    let edge = |i: usize| {
        let f = 700.0 * (10f64.powf((i as f64 * step + mel(low)) / 2595.0) - 1.0);
        (((length + 1.0) * f / rate).floor().max(0.0) as usize).min(bins.saturating_sub(1))
    };
    let mut matrix = filled(bins.checked_mul(count).ok_or_else(|| Fault::too_large("too many bands"))?, 0.0)?;
    for band in 0..count {
        let (left, centre, right) = (edge(band), edge(band + 1), edge(band + 2));
        if left == centre {
            matrix[centre * count + band] = 1.0;
        }
        for j in left..=centre.max(left) {
            if centre > left {
                matrix[j * count + band] = (j - left) as f64 / (centre - left) as f64;
            }
        }
        for j in centre..right {
            matrix[j * count + band] = (right - j) as f64 / (right - centre) as f64;
        }
    }
    Ok(vec![cx.constant(&Tensor::from_f64(dtype, vec![bins, count], matrix))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{assert_close, random, run, try_run};

    /// The definition, in f64.
    fn spectrum(x: &[(f64, f64)], n: usize, sign: f64) -> Vec<(f64, f64)> {
        let term = |k: usize, i: usize, (a, b): (f64, f64)| {
            let (s, c) = (sign * 2.0 * PI * ((k * i) % n) as f64 / n as f64).sin_cos();
            (a * c - b * s, a * s + b * c)
        };
        let add = |u: (f64, f64), v: (f64, f64)| (u.0 + v.0, u.1 + v.1);
        (0..n).map(|k| x.iter().take(n).enumerate().map(|(i, &v)| term(k, i, v)).fold((0.0, 0.0), add)).collect()
    }

    #[test]
    fn forward_transforms_of_every_length() {
        for n in [1usize, 2, 5, 8] {
            for length in [0, 3, 8] {
                let x = random(&[2, n, 2], n as u64);
                let got = run(Dft { axis: 1, length, ..Dft::default() }, &[&x]).to_f64_vec();
                let size = if length == 0 { n } else { length as usize };
                for b in 0..2 {
                    let row: Vec<(f64, f64)> =
                        x.to_f64_vec()[b * n * 2..(b + 1) * n * 2].chunks(2).map(|c| (c[0], c[1])).collect();
                    for (k, want) in spectrum(&row, size, -1.0).into_iter().enumerate() {
                        let at = (b * size + k) * 2;
                        assert!((got[at] - want.0).abs() < 1e-5 && (got[at + 1] - want.1).abs() < 1e-5, "{n} {length}");
                    }
                }
            }
        }
    }

    #[test]
    fn transforms_invert_each_other() {
        for n in [1, 4, 7] {
            let x = random(&[3, n, 2], 5);
            let there = run(Dft { axis: 1, ..Dft::default() }, &[&x]);
            assert_close(&run(Dft { axis: 1, inverse: true, ..Dft::default() }, &[&there]), &x, 1e-5);
        }
        for n in [6i64, 7] {
            let x = random(&[n as usize, 1], 6);
            let half = run(Dft { axis: 0, onesided: true, ..Dft::default() }, &[&x]);
            assert_eq!(half.shape(), [n as usize / 2 + 1, 2]);
            let back = run(Dft { axis: 0, length: n, inverse: true, onesided: true }, &[&half]);
            assert_close(&back, &x, 1e-5);
        }
        assert!(try_run(Dft::default(), &[&random(&[4, 3], 1)]).is_err());
        assert!(try_run(Dft { axis: -1, ..Dft::default() }, &[&random(&[4, 2], 1)]).is_err());
    }

    #[test]
    fn frames_overlap() {
        let x = Tensor::from_vec(vec![1, 6, 1], vec![0i64, 1, 2, 3, 4, 5]);
        let got = run(Frames { length: 3, step: 2 }, &[&x]);
        assert_eq!((got.shape(), got.to_i64_vec()), (&[1, 2, 3, 1][..], vec![0, 1, 2, 2, 3, 4]));
        assert!(try_run(Frames { length: 7, step: 1 }, &[&x]).is_err());
    }
}
