//! Attention with a state that is updated token by token, and its convolution; composed of other ops on import. The
//! recurrence is unrolled, so the number of tokens must be known.

use super::OpResult;
use super::activation::Swish;
use super::attention::split_heads;
use super::binary::{Add, Mul, Sub};
use super::concat::Concat;
use super::conv::Conv;
use super::generate::Full;
use super::matmul::MatMul;
use super::slice::Slice;
use super::transpose::Transpose;
use super::unary::{Exp, Identity};
use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::ValueId;
use crate::int::{Dim, Int};
use crate::ops::onnx::{ImportContext, OnnxImport};

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "LinearAttention", domain: "", since: 27, import: import_linear_attention },
    OnnxImport { op_type: "CausalConvWithState", domain: "", since: 27, import: import_causal_conv },
];

/// The most tokens that are unrolled.
const TOKEN_LIMIT: i64 = 256;

/// Elements `start..end` along `axis`.
pub(super) fn range(cx: &mut ImportContext<'_, '_>, x: ValueId, axis: i64, start: i64, end: i64) -> OpResult<ValueId> {
    let (starts, ends) = (vec![Int::new(start)], vec![Int::new(end)]);
    cx.add(Slice { starts, ends, axes: vec![axis], steps: vec![], dims: vec![] }, &[x])
}

fn zeros(cx: &mut ImportContext<'_, '_>, shape: Vec<Dim>, dtype: DType) -> OpResult<ValueId> {
    cx.add(Full { shape, value: 0.0, dtype, dims: vec![] }, &[])
}

/// Whether the state decays, and whether what it knows already is taken off what is written.
fn update_rule(cx: &ImportContext<'_, '_>) -> OpResult<(bool, bool)> {
    Ok(match cx.attrs.str("update_rule").unwrap_or("gated_delta") {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => return Err(format!("update_rule `{other}` is unknown").into()),
    })
}

/// The factor of the results: the attribute, else one over the root of a head's size.
fn head_scale(cx: &ImportContext<'_, '_>, size: &Dim) -> OpResult<f64> {
    match (cx.attrs.float("scale").unwrap_or(0.0), size.as_const()) {
        (0.0, Some(n)) => Ok(1.0 / (n as f64).sqrt()),
        (0.0, None) => Err(Fault::unsupported("the size of a head is not known at compile time")),
        (s, _) => Ok(s),
    }
}

/// `s = exp(g) s + k (beta (v - s^T k))^T`, `o = scale * s^T q` for each token, with the parts that `update_rule`
/// names.
fn import_linear_attention(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let dtype = cx.ty(0)?.dtype;
    let number = |cx: &ImportContext<'_, '_>, name: &str| {
        cx.attrs.int(name).filter(|&n| n > 0).ok_or(format!("attribute {name} is missing"))
    };
    let (q_heads, kv_heads) = (number(cx, "q_num_heads")?, number(cx, "kv_num_heads")?);
    if q_heads % kv_heads != 0 {
        return Err(format!("{q_heads} query heads cannot share {kv_heads} key heads").into());
    }
    let (gated, delta) = update_rule(cx)?;
    let operand = |cx: &mut ImportContext<'_, '_>, i: usize| {
        let v = cx.input(i)?;
        cx.cast(v, DType::F32)
    };
    let [query, key, value] = [operand(cx, 0)?, operand(cx, 1)?, operand(cx, 2)?];
    for i in [0, 1, 2, 4, 5].into_iter().filter(|&i| cx.opt(i).is_some()).collect::<Vec<_>>() {
        let ty = cx.ty(i)?;
        if ty.rank() != 3 {
            return Err(format!("operand {i} is {ty:?}, not of rank 3").into());
        }
    }
    let (batch, tokens) = (cx.ty(0)?.shape[0].clone(), cx.ty(0)?.shape[1].as_const());
    let tokens = tokens
        .filter(|&t| t <= TOKEN_LIMIT)
        .ok_or_else(|| Fault::unsupported("unsupported: the tokens are too many to unroll"))?;
    let query = split_heads(cx, query, Some(q_heads))?;
    let (key, value) = (split_heads(cx, key, Some(kv_heads))?, split_heads(cx, value, Some(kv_heads))?);
    let (size, width) = (cx.type_of(key).shape[3].clone(), cx.type_of(value).shape[3].clone());
    let scale = head_scale(cx, &size)?;
    let scale = cx.number(scale, DType::F32);
    // Decay per head [b, h, t, 1] or per feature [b, h, t, d]; rates [b, h or 1, t, 1].
    let by_head = |cx: &mut ImportContext<'_, '_>, v: ValueId| {
        let heads = cx.type_of(v).shape[2].as_const().unwrap_or(0);
        split_heads(cx, v, Some(if heads == 1 { 1 } else { kv_heads }))
    };
    let decay = if gated { Some(operand(cx, 4)?) } else { None };
    let decay = decay.map(|v| by_head(cx, v)).transpose()?;
    let rate = if delta { Some(operand(cx, 5)?) } else { None };
    let rate = rate.map(|v| by_head(cx, v)).transpose()?;
    let (mut state, state_dtype) = match cx.opt(3) {
        Some(past) => (cx.cast(past, DType::F32)?, cx.type_of(past).dtype),
        None => (zeros(cx, vec![batch.clone(), Dim::new(kv_heads), size.clone(), width.clone()], DType::F32)?, dtype),
    };
    let shared = q_heads / kv_heads;
    let mut outputs = Vec::new();
    for t in 0..tokens {
        let token = |cx: &mut ImportContext<'_, '_>, v| range(cx, v, 2, t, t + 1);
        let (q, k, mut v) = (token(cx, query)?, token(cx, key)?, token(cx, value)?);
        let column = cx.add(Transpose { perm: vec![0, 1, 3, 2] }, &[k])?;
        if let Some(g) = decay {
            let g = token(cx, g)?;
            let g = cx.add(Exp {}, &[g])?;
            let g = cx.add(Transpose { perm: vec![0, 1, 3, 2] }, &[g])?;
            state = cx.add(Mul {}, &[state, g])?;
        }
        if let Some(rate) = rate {
            let known = cx.add(MatMul {}, &[k, state])?;
            let rest = cx.add(Sub {}, &[v, known])?;
            let rate = token(cx, rate)?;
            v = cx.add(Mul {}, &[rest, rate])?;
        }
        let written = cx.add(Mul {}, &[column, v])?;
        state = cx.add(Add {}, &[state, written])?;
        // Query heads that share a state are rows of one product.
        let rows = vec![batch.clone(), Dim::new(kv_heads), Dim::new(shared), size.clone()];
        let rows = cx.reshape(q, rows)?;
        let read = cx.add(MatMul {}, &[rows, state])?;
        let read = cx.add(Mul {}, &[read, scale])?;
        outputs.push(cx.reshape(read, vec![batch.clone(), Dim::new(1), width.clone() * q_heads])?);
    }
    let out = match &outputs[..] {
        [] => zeros(cx, vec![batch, Dim::new(0), width * q_heads], DType::F32)?,
        _ => cx.add(Concat { axis: 1 }, &outputs)?,
    };
    Ok(vec![cx.cast(out, dtype)?, cx.cast(state, state_dtype)?])
}

/// A depthwise convolution over the past and the new positions, which then are the new past.
fn import_causal_conv(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (x, weight, ty) = (cx.input(0)?, cx.input(1)?, cx.ty(0)?);
    let taps = cx.ty(1)?.shape.get(2).and_then(Dim::as_const).ok_or("the weights are not of rank 3")?;
    let ([batch, channels, _], true) = (&ty.shape[..], taps > 0) else {
        return Err(format!("data {ty:?} with {taps} taps is no sequence").into());
    };
    let group =
        channels.as_const().ok_or_else(|| Fault::unsupported("the number of channels is not known at compile time"))?;
    let past = match cx.opt(3) {
        Some(past) => past,
        None => zeros(cx, vec![batch.clone(), channels.clone(), Dim::new(taps - 1)], ty.dtype)?,
    };
    let all = if taps == 1 { cx.add(Identity {}, &[x])? } else { cx.add(Concat { axis: 2 }, &[past, x])? };
    let operands = [Some(all), Some(weight), cx.opt(2)];
    let count = if operands[2].is_some() { 3 } else { 2 };
    let mut out = cx.add_multi(Conv { group, ..Conv::default() }, operands[..count].to_vec())?[0];
    match cx.attrs.str("activation").unwrap_or("none") {
        "none" => {}
        "silu" | "swish" => out = cx.add(Swish::default(), &[out])?,
        other => return Err(format!("activation `{other}` is unknown").into()),
    }
    let total = cx.type_of(all).shape[2].clone();
    let last = Slice { starts: vec![total.clone() - (taps - 1)], ends: vec![total], axes: vec![2], ..Slice::default() };
    Ok(vec![out, cx.add(last, &[all])?])
}
