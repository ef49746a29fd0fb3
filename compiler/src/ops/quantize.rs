//! Quantisation to narrow integers, composed of other ops on import, so that it fuses with its neighbours.
//!
//! Integer products are exact: operands become i32 without their zero points before they are multiplied.

mod constant_weights;

use super::OpResult;
use super::binary::{Add, Div, Equal, Max, Min, Mul, Sub};
use super::broadcast::Expand;
use super::cast::dtype_of_onnx;
use super::clip::Clip;
use super::conv::Conv;
use super::matmul::MatMul;
use super::narrow::{self, Narrow, PowerRounding};
use super::permute::normalize_axis;
use super::reduce::{Reduce, ReduceKind};
use super::select::Where;
use super::unary::Round;
use super::window::WindowSpec;
use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::ValueId;
use crate::int::{Dim, Int};
use crate::ops::onnx::{ImportContext, OnnxImport};

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "QuantizeLinear", domain: "", since: 10, import: import_quantize },
    OnnxImport { op_type: "DequantizeLinear", domain: "", since: 10, import: import_dequantize },
    OnnxImport { op_type: "DynamicQuantizeLinear", domain: "", since: 11, import: import_dynamic },
    OnnxImport { op_type: "MatMulInteger", domain: "", since: 10, import: import_matmul_integer },
    OnnxImport { op_type: "ConvInteger", domain: "", since: 10, import: import_conv_integer },
    OnnxImport { op_type: "QLinearMatMul", domain: "", since: 10, import: import_qlinear_matmul },
    OnnxImport { op_type: "QLinearConv", domain: "", since: 10, import: import_qlinear_conv },
];

/// The range of a quantised type.
fn limits(dtype: DType) -> OpResult<(f64, f64)> {
    Ok(match dtype {
        DType::U8 => (0.0, 255.0),
        DType::I8 => (-128.0, 127.0),
        DType::U16 => (0.0, 65535.0),
        DType::I16 => (-32768.0, 32767.0),
        other => return Err(Fault::unsupported(format!("quantisation to {other} is unsupported"))),
    })
}

/// `clip(round(x + zero))` as `to`. The zero point is added after rounding, halves to even.
pub(super) fn saturate(
    cx: &mut ImportContext<'_, '_>,
    x: ValueId,
    zero: Option<ValueId>,
    to: DType,
) -> OpResult<ValueId> {
    let limits = limits(to)?;
    saturate_within(cx, x, zero, limits, to)
}

/// As [`saturate`], between other limits than those of the type.
fn saturate_within(
    cx: &mut ImportContext<'_, '_>,
    x: ValueId,
    zero: Option<ValueId>,
    (low, high): (f64, f64),
    to: DType,
) -> OpResult<ValueId> {
    let mut x = cx.add(Round {}, &[x])?;
    let math = cx.type_of(x).dtype;
    if let Some(zero) = zero {
        let zero = cx.cast(zero, math)?;
        x = cx.add(Add {}, &[x, zero])?;
    }
    let x = cx.add(Clip { min: Some(low), max: Some(high) }, &[x])?;
    cx.cast(x, to)
}

/// A scale or zero point in a shape that broadcasts to `shape`: one number, one along `axis`, or one for each block of
/// elements along it.
pub(super) fn along(cx: &mut ImportContext<'_, '_>, v: ValueId, shape: &[Dim]) -> OpResult<ValueId> {
    let ty = cx.type_of(v);
    let block = cx.attrs.int("block_size").unwrap_or(0);
    if ty.rank() == 0 || (ty.rank() == 1 && ty.shape[0].is(1) && block == 0) {
        return cx.reshape(v, vec![]);
    }
    let axis = normalize_axis(cx.attrs.int("axis").unwrap_or(1), shape.len())?;
    if block == 0 {
        let fits = ty.rank() == 1 && (ty.shape[0] == shape[axis] || ty.shape[0].as_const().is_none());
        if !fits {
            return Err(format!("scales of shape {:?} along axis {axis} of {shape:?}", ty.shape).into());
        }
        let mut column = vec![Int::new(1); shape.len()];
        column[axis] = ty.shape[0].clone();
        return cx.reshape(v, column);
    }
    if block < 0 || ty.rank() != shape.len() {
        return Err(format!("scales of shape {:?} with blocks of {block} in {shape:?}", ty.shape).into());
    }
    let mut spread = ty.shape.clone();
    spread.insert(axis + 1, Int::new(1));
    let v = cx.reshape(v, spread.clone())?;
    spread[axis + 1] = Int::new(block);
    let v = cx.add(Expand { shape: spread, ..Expand::default() }, &[v])?;
    let mut whole = ty.shape.clone();
    whole[axis] = whole[axis].clone() * block;
    let v = cx.reshape(v, whole.clone())?;
    match (whole[axis].as_const(), shape[axis].as_const()) {
        (Some(have), Some(want)) if have > want => super::linear_attention::range(cx, v, axis as i64, 0, want),
        (Some(have), Some(want)) if have < want => Err(format!("{have} scales for {want} elements").into()),
        _ => Ok(v),
    }
}

pub(super) fn import_quantize(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (x, ty) = (cx.input(0)?, cx.ty(0)?);
    let code = cx.attrs.int("output_dtype").unwrap_or(0);
    let stored = cx.take_narrow(2).or_else(|| Narrow::of_onnx(code).filter(|_| cx.opt(2).is_none()));
    let to = match (cx.opt(2), code) {
        _ if stored.is_some() => DType::U8,
        (Some(zero), _) => cx.type_of(zero).dtype,
        (None, 0) => DType::U8,
        (None, code) => dtype_of_onnx(code)?,
    };
    let scale_operand = cx.input(1)?;
    let math = match cx.attrs.int("precision").unwrap_or(0) {
        0 => DType::F32,
        code => dtype_of_onnx(code)?,
    };
    let (scale, x) = (cx.cast(scale_operand, math)?, cx.cast(x, math)?);
    let scale = along(cx, scale, &ty.shape)?;
    let zero = cx.opt(2).map(|z| along(cx, z, &ty.shape)).transpose()?;
    let ratio = cx.add(Div {}, &[x, scale])?;
    let ratio = cx.cast(ratio, DType::F32)?;
    let Some(stored) = stored else { return Ok(vec![saturate(cx, ratio, zero, to)?]) };
    cx.narrow_result = Some(stored);
    Ok(vec![match stored.limits() {
        Some(limits) => saturate_within(cx, ratio, zero, limits, stored.carrier())?,
        None => {
            let mut x = ratio;
            if let Some(zero) = zero {
                let zero = narrow::widen(cx, zero, stored)?;
                x = cx.add(Add {}, &[x, zero])?;
            }
            let saturate = cx.attrs.int("saturate").unwrap_or(1) != 0;
            narrow::narrow(cx, x, stored, saturate, PowerRounding::Up)?
        }
    }])
}

pub(super) fn import_dequantize(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (x, scale, ty) = (cx.input(0)?, cx.input(1)?, cx.ty(0)?);
    let to = match cx.attrs.int("output_dtype").unwrap_or(0) {
        0 => cx.type_of(scale).dtype,
        code => dtype_of_onnx(code)?,
    };
    let stored = cx.take_narrow(0);
    if let Some(packed) = constant_weights::decoded(cx, stored, to)? {
        return Ok(vec![packed]);
    }
    let widen = |cx: &mut ImportContext<'_, '_>, v: ValueId| stored.map_or(Ok(v), |from| narrow::widen(cx, v, from));
    let x = widen(cx, x)?;
    let mut x = cx.cast(x, DType::F32)?;
    if let Some(zero) = cx.opt(2) {
        let kind = cx.take_narrow(2);
        if kind != stored {
            return Err(format!("data are {stored:?}, the zero point is {kind:?}").into());
        }
        let zero = widen(cx, zero)?;
        let zero = along(cx, zero, &ty.shape)?;
        let zero = cx.cast(zero, DType::F32)?;
        x = cx.add(Sub {}, &[x, zero])?;
    }
    let scale = cx.cast(scale, DType::F32)?;
    let scale = along(cx, scale, &ty.shape)?;
    let out = cx.add(Mul {}, &[x, scale])?;
    Ok(vec![cx.cast(out, to)?])
}

/// Scale and zero point follow from the extremes of the data, with 0 among them; of zeros alone the scale is 1, as in
/// ONNX Runtime. Gives the bytes, the scale and the zero point.
pub(super) fn dynamic(cx: &mut ImportContext<'_, '_>, x: ValueId) -> OpResult<[ValueId; 3]> {
    let axes: Vec<usize> = (0..cx.type_of(x).rank()).collect();
    let all = |kind| Reduce { kind, axes: axes.clone(), keepdims: false };
    let (low, high) = (cx.add(all(ReduceKind::Min), &[x])?, cx.add(all(ReduceKind::Max), &[x])?);
    let (none, steps) = (cx.number(0.0, DType::F32), cx.number(255.0, DType::F32));
    let (low, high) = (cx.add(Min {}, &[low, none])?, cx.add(Max {}, &[high, none])?);
    let span = cx.add(Sub {}, &[high, low])?;
    // Data of nothing but 0 has scale 1, as in ONNX Runtime.
    let same = cx.add(Equal {}, &[span, none])?;
    let span = cx.add(Where {}, &[same, steps, span])?;
    let scale = cx.add(Div {}, &[span, steps])?;
    let (flat, one) = (cx.add(Equal {}, &[span, none])?, cx.number(1.0, DType::F32));
    let scale = cx.add(Where {}, &[flat, one, scale])?;
    let below = cx.add(Sub {}, &[none, low])?;
    let zero = cx.add(Div {}, &[below, scale])?;
    let zero = saturate(cx, zero, None, DType::U8)?;
    let ratio = cx.add(Div {}, &[x, scale])?;
    Ok([saturate(cx, ratio, Some(zero), DType::U8)?, scale, zero])
}

fn import_dynamic(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    Ok(dynamic(cx, x)?.into())
}

/// Weights of bytes, `[k, n]` or in batches of that, for products with floats that are quantised as [`dynamic`] does
/// it.
pub(super) struct DynamicWeights {
    /// The bytes.
    pub bytes: ValueId,
    /// One scale, or one a column.
    pub scale: ValueId,
    /// One zero point, or one a column; 0 where there is none.
    pub zero: Option<ValueId>,
}
impl DynamicWeights {
    /// `x` times the weights, of floats `[.., m, k]`.
    ///
    /// # Errors
    /// An error of inference.
    pub(super) fn times(&self, cx: &mut ImportContext<'_, '_>, x: ValueId) -> OpResult<ValueId> {
        let [bytes, scale, zero] = dynamic(cx, x)?;
        let x = exact_value(cx, bytes, Some(zero), as_it_is)?;
        let w = exact_value(cx, self.bytes, self.zero, as_it_is)?;
        let product = cx.add(MatMul {}, &[x, w])?;
        let product = cx.cast(product, DType::F32)?;
        let scale = cx.add(Mul {}, &[scale, self.scale])?;
        cx.add(Mul {}, &[product, scale])
    }
}

/// Operand `i` as i32 without its zero point; `place` puts a list of zero points along the right axis.
fn exact(
    cx: &mut ImportContext<'_, '_>,
    i: usize,
    zero: Option<ValueId>,
    place: impl Fn(&mut ImportContext<'_, '_>, ValueId) -> OpResult<ValueId>,
) -> OpResult<ValueId> {
    let x = cx.input(i)?;
    exact_value(cx, x, zero, place)
}

/// As [`exact`], of any value.
pub(super) fn exact_value(
    cx: &mut ImportContext<'_, '_>,
    x: ValueId,
    zero: Option<ValueId>,
    place: impl Fn(&mut ImportContext<'_, '_>, ValueId) -> OpResult<ValueId>,
) -> OpResult<ValueId> {
    let x = cx.cast(x, DType::I32)?;
    let Some(zero) = zero else { return Ok(x) };
    let zero = cx.cast(zero, DType::I32)?;
    let zero = place(cx, zero)?;
    cx.add(Sub {}, &[x, zero])
}

/// A list of one value a row as a column; anything else as it is.
pub(super) fn by_row(cx: &mut ImportContext<'_, '_>, v: ValueId) -> OpResult<ValueId> {
    let shape = cx.type_of(v).shape;
    match &shape[..] {
        [n] if !n.is(1) => cx.reshape(v, vec![n.clone(), Int::new(1)]),
        _ => Ok(v),
    }
}

pub(super) fn as_it_is(_: &mut ImportContext<'_, '_>, v: ValueId) -> OpResult<ValueId> {
    Ok(v)
}

fn import_matmul_integer(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let a = exact(cx, 0, cx.opt(2), by_row)?;
    let b = exact(cx, 1, cx.opt(3), as_it_is)?;
    Ok(vec![cx.add(MatMul {}, &[a, b])?])
}

fn import_qlinear_matmul(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let a = exact(cx, 0, cx.opt(2), by_row)?;
    let b = exact(cx, 3, cx.opt(5), as_it_is)?;
    let product = cx.add(MatMul {}, &[a, b])?;
    let (a_scale, b_scale) = (cx.input(1)?, cx.input(4)?);
    let a_scale = by_row(cx, a_scale)?;
    Ok(vec![rescale(cx, product, a_scale, b_scale, 0)?])
}

/// The i32 `x` times `a * b / c`, with the zero point added and saturated: `c` is operand 6, the zero point operand 7;
/// without one the result has the type of operand `like`.
fn rescale(cx: &mut ImportContext<'_, '_>, x: ValueId, a: ValueId, b: ValueId, like: usize) -> OpResult<ValueId> {
    let c = cx.input(6)?;
    let [a, b, c] = [cx.cast(a, DType::F32)?, cx.cast(b, DType::F32)?, cx.cast(c, DType::F32)?];
    let factor = cx.add(Mul {}, &[a, b])?;
    let factor = cx.add(Div {}, &[factor, c])?;
    let x = cx.cast(x, DType::F32)?;
    let x = cx.add(Mul {}, &[x, factor])?;
    let to = match cx.opt(7) {
        Some(zero) => cx.type_of(zero).dtype,
        None => cx.ty(like)?.dtype,
    };
    saturate(cx, x, cx.opt(7), to)
}

/// A list of one value an output channel, as a factor of weights (`rest` axes behind it).
fn by_channel(cx: &mut ImportContext<'_, '_>, v: ValueId, rest: usize) -> OpResult<ValueId> {
    let shape = cx.type_of(v).shape;
    match &shape[..] {
        [n] if !n.is(1) => cx.reshape(v, [vec![n.clone()], vec![Int::new(1); rest]].concat()),
        _ => Ok(v),
    }
}

/// The convolution of operands `x` and `w` in i32.
fn convolve(
    cx: &mut ImportContext<'_, '_>,
    (x, x_zero): (usize, Option<ValueId>),
    (w, w_zero): (usize, Option<ValueId>),
    bias: Option<ValueId>,
) -> OpResult<ValueId> {
    let rank = cx.ty(x)?.rank();
    let kernel = cx.ty(w)?.shape;
    let mut spec = WindowSpec::import(cx)?;
    let data = cx.ty(x)?.shape;
    if kernel.len() != rank || rank < 3 {
        return Err(format!("weights of rank {} for data of rank {rank}", kernel.len()).into());
    }
    spec.resolve(&kernel[2..], &data[2..])?;
    let data = exact(cx, x, x_zero, as_it_is)?;
    let weights = exact(cx, w, w_zero, |cx, v| by_channel(cx, v, rank - 1))?;
    let conv = Conv {
        strides: spec.strides,
        dilations: spec.dilations,
        pads: spec.pads,
        group: cx.attrs.int("group").unwrap_or(1),
        auto_pad: spec.auto_pad,
        ..Conv::default()
    };
    let mut operands = vec![Some(data), Some(weights)];
    operands.extend(bias.map(Some));
    Ok(cx.add_multi(conv, operands)?[0])
}

fn import_conv_integer(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (x_zero, w_zero) = (cx.opt(2), cx.opt(3));
    Ok(vec![convolve(cx, (0, x_zero), (1, w_zero), None)?])
}

fn import_qlinear_conv(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (x_zero, w_zero, bias) = (cx.opt(2), cx.opt(5), cx.opt(8));
    let rank = cx.ty(0)?.rank();
    let sum = convolve(cx, (0, x_zero), (3, w_zero), bias)?;
    let (x_scale, w_scale) = (cx.input(1)?, cx.input(4)?);
    let w_scale = by_channel(cx, w_scale, rank.saturating_sub(2))?;
    Ok(vec![rescale(cx, sum, x_scale, w_scale, 0)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{assert_close, random, run_onnx};
    use crate::tensor::Tensor;

    #[test]
    fn values_round_to_even_and_saturate() {
        let x = Tensor::from_vec(vec![5], vec![0.5f32, 1.5, -1e9, 1e9, -3.0]);
        let (scale, zero) = (Tensor::scalar(1.0f32), Tensor::from_vec(vec![], vec![2i8]));
        let got = run_onnx(("QuantizeLinear", 13), &[], &[Some(&x), Some(&scale), Some(&zero)], 1).unwrap();
        assert_eq!((got[0].dtype(), got[0].to_i64_vec()), (DType::I8, vec![2, 4, -128, 127, -1]));
        let back = run_onnx(("DequantizeLinear", 13), &[], &[Some(&got[0]), Some(&scale), Some(&zero)], 1).unwrap();
        assert_eq!(back[0].to_f64_vec(), [0.0, 2.0, -130.0, 125.0, -3.0]);
    }

    #[test]
    fn dynamic_scales_cover_the_data() {
        let x = random(&[7], 4);
        let got = run_onnx(("DynamicQuantizeLinear", 11), &[], &[Some(&x)], 3).unwrap();
        let back = run_onnx(("DequantizeLinear", 13), &[], &[Some(&got[0]), Some(&got[1]), Some(&got[2])], 1).unwrap();
        assert_close(&back[0], &x, got[1].to_f64_vec()[0]);
    }

    #[test]
    fn integer_products_leave_the_zero_points_out() {
        let a = Tensor::from_vec(vec![1, 2], vec![11u8, 7]);
        let b = Tensor::from_vec(vec![2, 1], vec![-3i8, 200u8 as i8]);
        let zeros = (Tensor::from_vec(vec![], vec![10u8]), Tensor::from_vec(vec![], vec![-1i8]));
        let inputs = [Some(&a), Some(&b), Some(&zeros.0), Some(&zeros.1)];
        let got = run_onnx(("MatMulInteger", 10), &[], &inputs, 1).unwrap();
        assert_eq!((got[0].dtype(), got[0].to_i64_vec()), (DType::I32, vec![-2 + 3 * 55]));
    }
}
