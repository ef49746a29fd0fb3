//! Functions of quantised data in the forms of ONNX Runtime's quantiser. On import each becomes a dequantisation, the
//! function in floats and a quantisation, so that it fuses with its neighbours. Sums of integer products stay integers.

use super::OpResult;
use super::activation::LeakyRelu;
use super::binary::{Add, Div, Mul, Sub};
use super::concat::Concat;
use super::global_pool::GlobalAveragePool;
use super::matmul::MatMul;
use super::permute::normalize_axis;
use super::pool::import_average_pool;
use super::quantize::{DynamicWeights, as_it_is, by_row, exact_value, import_dequantize, import_quantize, saturate};
use super::select::Where;
use super::softmax::Softmax;
use super::transpose::Transpose;
use super::unary::Sigmoid;
use crate::dtype::DType;
use crate::graph::ValueId;
use crate::ops::onnx::{ImportContext, OnnxAttr, OnnxImport};

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "QuantizeLinear", domain: MICROSOFT, since: 1, import: import_quantize },
    OnnxImport { op_type: "DequantizeLinear", domain: MICROSOFT, since: 1, import: import_dequantize },
    OnnxImport { op_type: "DynamicQuantizeMatMul", domain: MICROSOFT, since: 1, import: import_dynamic_matmul },
    OnnxImport { op_type: "MatMulIntegerToFloat", domain: MICROSOFT, since: 1, import: import_matmul_to_float },
    OnnxImport { op_type: "QGemm", domain: MICROSOFT, since: 1, import: import_gemm },
    OnnxImport { op_type: "QLinearAdd", domain: MICROSOFT, since: 1, import: import_add },
    OnnxImport { op_type: "QLinearMul", domain: MICROSOFT, since: 1, import: import_mul },
    OnnxImport { op_type: "QLinearSigmoid", domain: MICROSOFT, since: 1, import: import_sigmoid },
    OnnxImport { op_type: "QLinearLeakyRelu", domain: MICROSOFT, since: 1, import: import_leaky_relu },
    OnnxImport { op_type: "QLinearSoftmax", domain: MICROSOFT, since: 1, import: import_softmax },
    OnnxImport { op_type: "QLinearGlobalAveragePool", domain: MICROSOFT, since: 1, import: import_global_pool },
    OnnxImport { op_type: "QLinearAveragePool", domain: MICROSOFT, since: 1, import: import_pool },
    OnnxImport { op_type: "QLinearConcat", domain: MICROSOFT, since: 1, import: import_concat },
    OnnxImport { op_type: "QLinearWhere", domain: MICROSOFT, since: 1, import: import_where },
];

const MICROSOFT: &str = "com.microsoft";

type Context<'a, 'm> = ImportContext<'a, 'm>;

/// Operand `i`, one number, as an f32 scalar.
fn scalar(cx: &mut Context<'_, '_>, i: usize) -> OpResult<ValueId> {
    let v = cx.input(i)?;
    if !cx.type_of(v).numel().is(1) {
        return Err(format!("operand {i} is {:?}, not one number", cx.type_of(v)).into());
    }
    let v = cx.reshape(v, vec![])?;
    cx.cast(v, DType::F32)
}

/// Operand `i` in f32: scale and zero point are the two operands behind it.
fn dequantized(cx: &mut Context<'_, '_>, i: usize) -> OpResult<ValueId> {
    let x = cx.input(i)?;
    let mut x = cx.cast(x, DType::F32)?;
    if cx.opt(i + 2).is_some() {
        let zero = scalar(cx, i + 2)?;
        x = cx.add(Sub {}, &[x, zero])?;
    }
    let scale = scalar(cx, i + 1)?;
    cx.add(Mul {}, &[x, scale])
}

/// `x` quantised by the scale in operand `i` and the zero point behind it; without one, to the type of operand 0.
fn quantized(cx: &mut Context<'_, '_>, x: ValueId, i: usize) -> OpResult<Vec<ValueId>> {
    let to = match cx.opt(i + 1) {
        Some(zero) => cx.type_of(zero).dtype,
        None => cx.ty(0)?.dtype,
    };
    let zero = if cx.opt(i + 1).is_some() { Some(scalar(cx, i + 1)?) } else { None };
    let scale = scalar(cx, i)?;
    let ratio = cx.add(Div {}, &[x, scale])?;
    Ok(vec![saturate(cx, ratio, zero, to)?])
}

fn import_add(cx: &mut Context<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&[])?;
    let operands = [dequantized(cx, 0)?, dequantized(cx, 3)?];
    let sum = cx.add(Add {}, &operands)?;
    quantized(cx, sum, 6)
}

fn import_mul(cx: &mut Context<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&[])?;
    let operands = [dequantized(cx, 0)?, dequantized(cx, 3)?];
    let product = cx.add(Mul {}, &operands)?;
    quantized(cx, product, 6)
}

fn import_sigmoid(cx: &mut Context<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&[])?;
    let x = dequantized(cx, 0)?;
    let x = cx.add(Sigmoid {}, &[x])?;
    quantized(cx, x, 3)
}

fn import_leaky_relu(cx: &mut Context<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&["alpha"])?;
    let x = dequantized(cx, 0)?;
    let x = cx.add(LeakyRelu { alpha: cx.attrs.float("alpha").unwrap_or(0.01) }, &[x])?;
    quantized(cx, x, 3)
}

/// Along one axis from opset 13 of ai.onnx on, which the attribute `opset` is, else along all from it on.
fn import_softmax(cx: &mut Context<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&["axis", "opset"])?;
    let x = dequantized(cx, 0)?;
    let rank = cx.type_of(x).rank();
    let along = cx.attrs.int("opset").is_none_or(|v| v >= 13);
    let axis = normalize_axis(cx.attrs.int("axis").unwrap_or(if along { -1 } else { 1 }), rank)?;
    let axes = (axis..if along { axis + 1 } else { rank }).collect();
    let x = cx.add(Softmax { axes }, &[x])?;
    quantized(cx, x, 3)
}

/// Data whose channels stand last, with the channels behind the batch for `pool`, and its result in the first order
/// again.
fn channels_last(
    cx: &mut Context<'_, '_>,
    x: ValueId,
    pool: impl FnOnce(&mut Context<'_, '_>, ValueId) -> OpResult<ValueId>,
) -> OpResult<ValueId> {
    if cx.attrs.int("channels_last").unwrap_or(0) == 0 {
        return pool(cx, x);
    }
    let rank = cx.type_of(x).rank();
    if rank < 2 {
        return Err(format!("data of rank {rank} has no channels").into());
    }
    let first = [vec![0, rank - 1], (1..rank - 1).collect()].concat();
    let last = [vec![0], (2..rank).collect(), vec![1]].concat();
    let x = cx.add(Transpose { perm: first }, &[x])?;
    let x = pool(cx, x)?;
    cx.add(Transpose { perm: last }, &[x])
}

fn import_global_pool(cx: &mut Context<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&["channels_last"])?;
    let x = dequantized(cx, 0)?;
    let x = channels_last(cx, x, |cx, x| cx.add(GlobalAveragePool::default(), &[x]))?;
    quantized(cx, x, 3)
}

fn import_pool(cx: &mut Context<'_, '_>) -> OpResult<Vec<ValueId>> {
    let known =
        ["auto_pad", "ceil_mode", "channels_last", "count_include_pad", "dilations", "kernel_shape", "pads", "strides"];
    cx.only_attrs(&known)?;
    let x = dequantized(cx, 0)?;
    let x = channels_last(cx, x, |cx, x| {
        let given = std::mem::replace(&mut cx.inputs, vec![Some(x)]);
        let pooled = import_average_pool(cx);
        cx.inputs = given;
        Ok(pooled?[0])
    })?;
    quantized(cx, x, 3)
}

/// Operands: scale and zero point of the result, then data, scale and zero point of each part.
fn import_concat(cx: &mut Context<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&["axis"])?;
    let axis = cx.attrs.int("axis").ok_or("attribute `axis` is missing")?;
    if cx.inputs.len() < 5 || cx.inputs.len() % 3 != 2 {
        return Err(format!("{} operands are no scale, zero point and parts of three", cx.inputs.len()).into());
    }
    let parts = (2..cx.inputs.len()).step_by(3).map(|i| dequantized(cx, i)).collect::<OpResult<Vec<_>>>()?;
    let whole = cx.add(Concat { axis }, &parts)?;
    let (zero, scale) = (cx.input(1)?, scalar(cx, 0)?);
    let to = cx.type_of(zero).dtype;
    let zero = scalar(cx, 1)?;
    let ratio = cx.add(Div {}, &[whole, scale])?;
    Ok(vec![saturate(cx, ratio, Some(zero), to)?])
}

fn import_where(cx: &mut Context<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&[])?;
    let condition = cx.input(0)?;
    let sides = [dequantized(cx, 1)?, dequantized(cx, 4)?];
    let x = cx.add(Where {}, &[condition, sides[0], sides[1]])?;
    let to = cx.ty(1)?.dtype;
    let (scale, zero) = (scalar(cx, 7)?, scalar(cx, 8)?);
    let ratio = cx.add(Div {}, &[x, scale])?;
    Ok(vec![saturate(cx, ratio, Some(zero), to)?])
}

/// `x` plus the optional operand `i`.
fn biased(cx: &mut Context<'_, '_>, x: ValueId, i: usize) -> OpResult<Vec<ValueId>> {
    Ok(vec![match cx.opt(i) {
        Some(bias) => cx.add(Add {}, &[x, bias])?,
        None => x,
    }])
}

/// Floats, quantised for this product, times bytes.
fn import_dynamic_matmul(cx: &mut Context<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&[])?;
    let (x, bytes, scale) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let product = DynamicWeights { bytes, scale, zero: cx.opt(3) }.times(cx, x)?;
    biased(cx, product, 4)
}

/// Bytes times bytes, as floats. Operands: data and weights, their scales, their zero points, a bias.
fn import_matmul_to_float(cx: &mut Context<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&[])?;
    let (a, b, zeros) = (cx.input(0)?, cx.input(1)?, [cx.opt(4), cx.opt(5)]);
    let (a, b) = (exact_value(cx, a, zeros[0], by_row)?, exact_value(cx, b, zeros[1], as_it_is)?);
    let product = cx.add(MatMul {}, &[a, b])?;
    let product = cx.cast(product, DType::F32)?;
    let (a_scale, b_scale) = (cx.input(2)?, cx.input(3)?);
    let a_scale = by_row(cx, a_scale)?;
    let scale = cx.add(Mul {}, &[a_scale, b_scale])?;
    let product = cx.add(Mul {}, &[product, scale])?;
    biased(cx, product, 6)
}

/// `alpha * a b + c` with `c` in the product's integers; quantised where operand 7 has a scale, else floats.
fn import_gemm(cx: &mut Context<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&["alpha", "transA", "transB"])?;
    let turned = |cx: &mut Context<'_, '_>, v: ValueId, name: &str| match cx.attrs.0.get(name) {
        Some(OnnxAttr::Int(1)) => cx.add(Transpose { perm: vec![1, 0] }, &[v]),
        _ => Ok(v),
    };
    let (a, b, zeros) = (cx.input(0)?, cx.input(3)?, [cx.opt(2), cx.opt(5)]);
    let (a, b) = (turned(cx, a, "transA")?, turned(cx, b, "transB")?);
    let (a, b) = (exact_value(cx, a, zeros[0], as_it_is)?, exact_value(cx, b, zeros[1], as_it_is)?);
    let mut product = cx.add(MatMul {}, &[a, b])?;
    if let Some(c) = cx.opt(6) {
        product = cx.add(Add {}, &[product, c])?;
    }
    let product = cx.cast(product, DType::F32)?;
    let (a_scale, b_scale) = (cx.input(1)?, cx.input(4)?);
    let mut scale = cx.add(Mul {}, &[a_scale, b_scale])?;
    if let Some(alpha) = cx.attrs.float("alpha").filter(|&a| a != 1.0) {
        let alpha = cx.number(alpha, DType::F32);
        scale = cx.add(Mul {}, &[scale, alpha])?;
    }
    let product = cx.add(Mul {}, &[product, scale])?;
    if cx.opt(7).is_some() { quantized(cx, product, 7) } else { Ok(vec![product]) }
}
