//! Scaled dot-product attention and rotary embeddings, composed of other ops on import.

use super::OpResult;
use super::binary::{Add, And, Div, Greater, Less, LessOrEqual, Mul, Sub};
use super::broadcast::Expand;
use super::concat::Concat;
use super::gather::Gather;
use super::generate::{Full, Range};
use super::matmul::MatMul;
use super::pad::Pad;
use super::reduce::{Reduce, ReduceKind};
use super::reshape::Unsqueeze;
use super::scan::Trilu;
use super::select::Where;
use super::slice::Slice;
use super::softmax::Softmax;
use super::transpose::Transpose;
use super::unary::{Identity, Tanh};
use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::ValueId;
use crate::int::{Dim, Int, product};
use crate::ops::onnx::{ImportContext, OnnxImport};

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "Attention", domain: "", since: 23, import: import_attention },
    OnnxImport { op_type: "RotaryEmbedding", domain: "", since: 23, import: import_rotary },
];

/// `[batch, length, heads * size]` as `[batch, heads, length, size]`; data of rank 4 has that form already.
pub(super) fn split_heads(cx: &mut ImportContext<'_, '_>, x: ValueId, heads: Option<i64>) -> OpResult<ValueId> {
    let shape = cx.type_of(x).shape;
    match (&shape[..], heads) {
        ([_, _, _, _], _) => Ok(x),
        ([batch, length, width], Some(heads)) if heads > 0 => {
            let size = width.div(heads);
            if width.as_const().is_some_and(|w| w % heads != 0) {
                return Err(format!("{heads} heads do not divide {width} features").into());
            }
            let parts = vec![batch.clone(), length.clone(), Dim::new(heads), size];
            let parts = cx.reshape(x, parts)?;
            cx.add(Transpose { perm: vec![0, 2, 1, 3] }, &[parts])
        }
        ([_, _, _], _) => Err("data of rank 3 needs the number of heads".into()),
        _ => Err(format!("data of shape {shape:?} is neither of rank 3 nor of rank 4").into()),
    }
}

/// `[batch, heads, length, size]` as `[batch, length, heads * size]`.
pub(super) fn merge_heads(cx: &mut ImportContext<'_, '_>, x: ValueId) -> OpResult<ValueId> {
    let x = cx.add(Transpose { perm: vec![0, 2, 1, 3] }, &[x])?;
    let shape = cx.type_of(x).shape;
    let width = product(&shape[2..]);
    cx.reshape(x, vec![shape[0].clone(), shape[1].clone(), width])
}

/// Queries, keys and values as `[batch, heads, length, size]`, with the past keys and values in front.
struct Heads {
    query: ValueId,
    key: ValueId,
    value: ValueId,
    /// Length of the past.
    past: Dim,
}

fn heads(cx: &mut ImportContext<'_, '_>) -> OpResult<Heads> {
    let (queries, keys) = (cx.attrs.int("q_num_heads"), cx.attrs.int("kv_num_heads"));
    let (q, k, v) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let query = split_heads(cx, q, queries)?;
    let (mut key, mut value) = (split_heads(cx, k, keys)?, split_heads(cx, v, keys)?);
    let mut past = Dim::new(0);
    if let Some(before) = cx.opt(4) {
        past = cx.type_of(before).shape.get(2).cloned().ok_or("the past keys are not of rank 4")?;
        key = cx.add(Concat { axis: 2 }, &[before, key])?;
    }
    if let Some(before) = cx.opt(5) {
        value = cx.add(Concat { axis: 2 }, &[before, value])?;
    }
    Ok(Heads { query, key, value, past })
}

/// `softmax(softcap(q k^T scale) + mask) v` (A. Vaswani et al., Attention Is All You Need); several query heads may
/// share one head of keys and values (J. Ainslie et al., GQA). All have the form `[batch, heads, length, size]`.
pub(super) struct Scores {
    /// Queries.
    pub query: ValueId,
    /// Keys.
    pub key: ValueId,
    /// Values.
    pub value: ValueId,
    /// The factor; one over the root of a head's size where there is none.
    pub scale: Option<f64>,
    /// Bound of the scores (`cap * tanh(x / cap)`); none for 0.
    pub softcap: f64,
    /// Type that the softmax is computed in, where it is not that of the queries.
    pub precision: Option<DType>,
    /// One score for each head, `[heads]`, that takes a share of each softmax and has no value.
    pub sink: Option<ValueId>,
}

/// The results of [`Scores::attend`]; all except `out` have the shape `[batch, heads, queries, keys]`.
pub(super) struct Attended {
    /// `[batch, heads, queries, size]`.
    pub out: ValueId,
    /// Scaled products.
    pub scores: ValueId,
    /// With the bound.
    pub capped: ValueId,
    /// With the mask.
    pub masked: ValueId,
    /// Behind the softmax; 0 for a query that sees no key.
    pub weights: ValueId,
}

impl Scores {
    /// The nodes. `mask` gives the masked scores and, where it may leave out all keys of a query, whether the query
    /// sees any: of size 1 along the keys. The result of a query that sees none is 0.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub(super) fn attend(
        &self,
        cx: &mut ImportContext<'_, '_>,
        mask: impl FnOnce(&mut ImportContext<'_, '_>, ValueId) -> OpResult<(ValueId, Option<ValueId>)>,
    ) -> OpResult<Attended> {
        let (q, k, v) = (cx.type_of(self.query).shape, cx.type_of(self.key).shape, cx.type_of(self.value).shape);
        let dtype = cx.type_of(self.query).dtype;
        let shared = shared_heads(&q[1], &k[1])?;
        let scale = match (self.scale, q[3].as_const()) {
            (Some(s), _) => s,
            (None, Some(size)) => 1.0 / (size as f64).sqrt(),
            (None, None) => return Err(Fault::unsupported("the size of a head is not known at compile time")),
        };
        // Before the product, so that products of f16 do not overflow; of queries alone, so that a cache of keys is
        // read where it lies.
        let scale = cx.number(scale, dtype);
        let rows = cx.add(Mul {}, &[self.query, scale])?;
        let (rows, columns) = (group(cx, rows, &shared)?, ungroup(cx, self.key, &shared)?);
        let last = cx.type_of(columns).rank() - 1;
        let perm = (0..last - 1).chain([last, last - 1]).collect();
        let columns = cx.add(Transpose { perm }, &[columns])?;
        let product = cx.add(MatMul {}, &[rows, columns])?;
        let scores = cx.reshape(product, vec![q[0].clone(), q[1].clone(), q[2].clone(), k[2].clone()])?;
        let capped = softcap(cx, scores, self.softcap, dtype)?;
        let (masked, visible) = mask(cx, capped)?;
        let exact = cx.cast(masked, self.precision.unwrap_or(dtype))?;
        let weights = self.softmax(cx, exact)?;
        let weights = cx.cast(weights, dtype)?;
        let (by_group, values) = (group(cx, weights, &shared)?, ungroup(cx, self.value, &shared)?);
        let values = cx.cast(values, dtype)?;
        let out = cx.add(MatMul {}, &[by_group, values])?;
        let out = cx.reshape(out, vec![q[0].clone(), q[1].clone(), q[2].clone(), v[3].clone()])?;
        let zero = cx.number(0.0, dtype);
        let seeing = |cx: &mut ImportContext<'_, '_>, x| match visible {
            Some(visible) => cx.add(Where {}, &[visible, x, zero]),
            None => Ok(x),
        };
        let (out, weights) = (seeing(cx, out)?, seeing(cx, weights)?);
        Ok(Attended { out, scores, capped, masked, weights })
    }

    fn softmax(&self, cx: &mut ImportContext<'_, '_>, x: ValueId) -> OpResult<ValueId> {
        let softmax = Softmax { axes: vec![3] };
        let Some(sink) = self.sink else { return cx.add(softmax, &[x]) };
        let ty = cx.type_of(x);
        let (heads, keys) = (ty.shape[1].clone(), ty.shape[3].clone());
        let sink = cx.cast(sink, ty.dtype)?;
        let sink = cx.reshape(sink, vec![Int::new(1), heads, Int::new(1), Int::new(1)])?;
        let mut column = ty.shape;
        column[3] = Int::new(1);
        let sink = cx.add(Expand { shape: column, ..Expand::default() }, &[sink])?;
        let all = cx.add(Concat { axis: 3 }, &[x, sink])?;
        let all = cx.add(softmax, &[all])?;
        cx.add(
            Slice { starts: vec![Int::new(0)], ends: vec![keys], axes: vec![3], steps: vec![], dims: vec![] },
            &[all],
        )
    }
}

fn import_attention(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let merged = cx.ty(0)?.rank() == 3;
    let Heads { query, key, value, past } = heads(cx)?;
    let precision = match cx.attrs.int("softmax_precision") {
        Some(code) if code != 0 => Some(super::cast::dtype_of_onnx(code)?),
        _ => None,
    };
    let (scale, softcap) = (cx.attrs.float("scale"), cx.attrs.float("softcap").unwrap_or(0.0));
    let scores = Scores { query, key, value, scale, softcap, precision, sink: None };
    let done = scores.attend(cx, |cx, x| mask(cx, x, &past))?;
    let out = if merged { merge_heads(cx, done.out)? } else { done.out };
    let shown = match cx.attrs.int("qk_matmul_output_mode").unwrap_or(0) {
        0 => done.scores,
        1 => done.capped,
        2 => done.masked,
        3 => done.weights,
        other => return Err(format!("qk_matmul_output_mode {other} is unknown").into()),
    };
    Ok(match cx.num_outputs {
        0 | 1 => vec![out],
        _ => vec![out, own_result(cx, key)?, own_result(cx, value)?, shown],
    })
}

/// `v` as a value that is no operand of the node: present keys and values are results even where they are the operands
/// themselves.
pub(super) fn own_result(cx: &mut ImportContext<'_, '_>, v: ValueId) -> OpResult<ValueId> {
    match cx.inputs.contains(&Some(v)) {
        true => cx.add(Identity {}, &[v]),
        false => Ok(v),
    }
}

/// Heads of keys, and queries for each of them.
fn shared_heads(queries: &Dim, keys: &Dim) -> OpResult<Option<(Dim, Dim)>> {
    match (queries.as_const(), keys.as_const()) {
        _ if queries == keys => Ok(None),
        (Some(q), Some(k)) if k > 0 && q % k == 0 => Ok(Some((Dim::new(k), Dim::new(q / k)))),
        _ => Err(format!("{queries} query heads cannot share {keys} key heads").into()),
    }
}

/// `[b, keys * shared, m, n]` as `[b, keys, shared, m, n]`.
fn group(cx: &mut ImportContext<'_, '_>, x: ValueId, shared: &Option<(Dim, Dim)>) -> OpResult<ValueId> {
    let Some((keys, each)) = shared else { return Ok(x) };
    let s = cx.type_of(x).shape;
    cx.reshape(x, vec![s[0].clone(), keys.clone(), each.clone(), s[2].clone(), s[3].clone()])
}

/// `[b, keys, m, n]` as `[b, keys, 1, m, n]`.
fn ungroup(cx: &mut ImportContext<'_, '_>, x: ValueId, shared: &Option<(Dim, Dim)>) -> OpResult<ValueId> {
    if shared.is_some() { cx.add(Unsqueeze { axes: vec![2] }, &[x]) } else { Ok(x) }
}

/// `cap * tanh(x / cap)`.
fn softcap(cx: &mut ImportContext<'_, '_>, x: ValueId, cap: f64, dtype: DType) -> OpResult<ValueId> {
    if cap <= 0.0 {
        return Ok(x);
    }
    let cap = cx.number(cap, dtype);
    let small = cx.add(Div {}, &[x, cap])?;
    let small = cx.add(Tanh {}, &[small])?;
    cx.add(Mul {}, &[small, cap])
}

/// The scores with what operand 3, causality and the lengths in operand 6 leave out at minus infinity; and, where they
/// may leave out all keys, whether a query sees any (of size 1 along the keys).
fn mask(cx: &mut ImportContext<'_, '_>, scores: ValueId, past: &Dim) -> OpResult<(ValueId, Option<ValueId>)> {
    let ty = cx.type_of(scores);
    let (length, total) = (ty.shape[2].clone(), ty.shape[3].clone());
    let lowest = cx.number(f64::NEG_INFINITY, ty.dtype);
    let keep = |cx: &mut ImportContext<'_, '_>, mask, x| cx.add(Where {}, &[mask, x, lowest]);
    let mut x = scores;
    let mut masks = vec![];
    if let Some(given) = cx.opt(3) {
        let given = lengthen(cx, given, &total)?;
        x = match cx.type_of(given).dtype {
            DType::Bool => {
                masks.push(given);
                keep(cx, given, x)?
            }
            _ => {
                let given = cx.cast(given, ty.dtype)?;
                masks.push(cx.add(Greater {}, &[given, lowest])?);
                cx.add(Add {}, &[x, given])?
            }
        };
    }
    if cx.attrs.int("is_causal").unwrap_or(0) != 0 {
        let seen = causal(cx, length, &total, past)?;
        x = keep(cx, seen, x)?;
        masks.push(seen);
    }
    if let Some(lengths) = cx.opt(6) {
        let batch = ty.shape[0].clone();
        let (start, step) = (cx.number(0.0, DType::I64), cx.number(1.0, DType::I64));
        let end =
            total.as_const().ok_or_else(|| Fault::unsupported("the number of keys is not known at compile time"))?;
        let end = cx.number(end as f64, DType::I64);
        let places = cx.add(Range { size: total, dynamic: false }, &[start, end, step])?;
        let lengths = cx.cast(lengths, DType::I64)?;
        let lengths = cx.reshape(lengths, vec![batch, Int::new(1), Int::new(1), Int::new(1)])?;
        let inside = cx.add(Less {}, &[places, lengths])?;
        x = keep(cx, inside, x)?;
        masks.push(inside);
    }
    // Causality alone leaves each query a key.
    if cx.opt(3).is_none() && cx.opt(6).is_none() {
        return Ok((x, None));
    }
    let mut all = None;
    for mask in masks {
        all = Some(all.map_or(Ok(mask), |other| cx.add(And {}, &[other, mask]))?);
    }
    let last = |cx: &ImportContext<'_, '_>, v| cx.type_of(v).rank() - 1;
    let any = all.map(|v| {
        let axes = vec![last(cx, v)];
        cx.add(Reduce { kind: ReduceKind::Max, axes, keepdims: true }, &[v])
    });
    Ok((x, any.transpose()?))
}

/// The places `0..count`, in i64.
pub(super) fn places(cx: &mut ImportContext<'_, '_>, count: &Dim) -> OpResult<ValueId> {
    let (start, step) = (cx.number(0.0, DType::I64), cx.number(1.0, DType::I64));
    // The end says nothing that the size does not.
    let range = Range { size: count.clone(), dynamic: false };
    Ok(cx.add_multi(range, vec![Some(start), None, Some(step)])?[0])
}

/// Which of `total` keys each of `length` queries sees that stand behind `past` keys: those up to its own place.
/// `[length, total]`.
pub(super) fn causal(cx: &mut ImportContext<'_, '_>, length: Dim, total: &Dim, past: &Dim) -> OpResult<ValueId> {
    if let Some(k) = past.as_const() {
        let shape = vec![length, total.clone()];
        let all = cx.add(Full { shape, value: 1.0, dtype: DType::Bool, dims: vec![] }, &[])?;
        return cx.add(Trilu { upper: false, k }, &[all]);
    }
    let keys = places(cx, total)?;
    let (starts, ends) = (vec![past.clone()], vec![past.clone() + &length]);
    let own = cx.add(Slice { starts, ends, axes: vec![0], steps: vec![], dims: vec![] }, &[keys])?;
    let own = cx.add(Unsqueeze { axes: vec![1] }, &[own])?;
    cx.add(LessOrEqual {}, &[keys, own])
}

/// A mask whose last dimension is shorter than the keys leaves the rest out.
fn lengthen(cx: &mut ImportContext<'_, '_>, mask: ValueId, total: &Dim) -> OpResult<ValueId> {
    let ty = cx.type_of(mask);
    let last = ty.shape.last().ok_or("the mask is a scalar")?;
    let (Some(have), Some(want)) = (last.as_const(), total.as_const()) else { return Ok(mask) };
    if have >= want || have == 1 {
        return Ok(mask);
    }
    let mut pads = vec![Int::new(0); 2 * ty.rank()];
    pads[2 * ty.rank() - 1] = Int::new(want - have);
    let value = if ty.dtype == DType::Bool { 0.0 } else { f64::NEG_INFINITY };
    cx.add(Pad { pads, value, ..Pad::default() }, &[mask])
}

/// Rotates pairs of features by angles that grow with the position (J. Su et al., RoFormer).
fn import_rotary(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    let merged = cx.ty(0)?.rank() == 3;
    let x = split_heads(cx, x, cx.attrs.int("num_heads"))?;
    let ty = cx.type_of(x);
    let size =
        ty.shape[3].as_const().ok_or_else(|| Fault::unsupported("the size of a head is not known at compile time"))?;
    let turned = match cx.attrs.int("rotary_embedding_dim").unwrap_or(0) {
        0 => size,
        n if n > 0 && n <= size => n,
        n => return Err(format!("{n} of {size} features cannot be rotated").into()),
    };
    if turned % 2 != 0 {
        return Err(format!("{turned} features make no pairs").into());
    }
    let (cos, sin) = (angles(cx, 1)?, angles(cx, 2)?);
    let interleaved = cx.attrs.int("interleaved").unwrap_or(0) != 0;
    let out = rotate(cx, x, turned, [cos, sin], interleaved)?;
    Ok(vec![if merged { merge_heads(cx, out)? } else { out }])
}

/// The first `turned` of the features of `x`, `[batch, heads, length, size]`, rotated in pairs by the angles with these
/// cosines and sines,
/// `[batch or 1, 1, length, pairs]`. Pairs are neighbours where they are interleaved, else of the two halves.
pub(super) fn rotate(
    cx: &mut ImportContext<'_, '_>,
    x: ValueId,
    turned: i64,
    [cos, sin]: [ValueId; 2],
    interleaved: bool,
) -> OpResult<ValueId> {
    let ty = cx.type_of(x);
    let part = |cx: &mut ImportContext<'_, '_>, start: i64, end: Int, step: i64| {
        let (starts, ends) = (vec![Int::new(start)], vec![end]);
        cx.add(Slice { starts, ends, axes: vec![3], steps: vec![step], dims: vec![] }, &[x])
    };
    let end = Int::new(turned);
    let (a, b) = match interleaved {
        true => (part(cx, 0, end.clone(), 2)?, part(cx, 1, end, 2)?),
        false => (part(cx, 0, Int::new(turned / 2), 1)?, part(cx, turned / 2, end, 1)?),
    };
    let (ca, sb) = (cx.add(Mul {}, &[cos, a])?, cx.add(Mul {}, &[sin, b])?);
    let (sa, cb) = (cx.add(Mul {}, &[sin, a])?, cx.add(Mul {}, &[cos, b])?);
    let (real, imaginary) = (cx.add(Sub {}, &[ca, sb])?, cx.add(Add {}, &[sa, cb])?);
    let out = match interleaved {
        true => {
            let pair =
                [cx.add(Unsqueeze { axes: vec![4] }, &[real])?, cx.add(Unsqueeze { axes: vec![4] }, &[imaginary])?];
            let pairs = cx.add(Concat { axis: 4 }, &pair)?;
            let mut shape = ty.shape.clone();
            shape[3] = Int::new(turned);
            cx.reshape(pairs, shape)?
        }
        false => cx.add(Concat { axis: 3 }, &[real, imaginary])?,
    };
    if ty.shape[3].is(turned) {
        return Ok(out);
    }
    let rest = part(cx, turned, ty.shape[3].clone(), 1)?;
    cx.add(Concat { axis: 3 }, &[out, rest])
}

/// Cosines or sines (operand `i`) of each position, as `[batch, 1, length, pairs]`.
fn angles(cx: &mut ImportContext<'_, '_>, i: usize) -> OpResult<ValueId> {
    let mut table = cx.input(i)?;
    if let Some(positions) = cx.opt(3) {
        table = cx.add(Gather { axis: 0 }, &[table, positions])?;
    }
    cx.add(Unsqueeze { axes: vec![1] }, &[table])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::onnx::OnnxAttr;
    use crate::ops::testing::{assert_close, random, run_onnx};
    use crate::tensor::Tensor;

    /// Softmax over the keys that `seen` admits, for one head.
    fn one_head(q: &[f64], k: &[f64], v: &[f64], size: usize, seen: impl Fn(usize, usize) -> bool) -> Vec<f64> {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
        let mut out = Vec::new();
        for (i, row) in q.chunks(size).enumerate() {
            let score =
                |(j, key): (usize, &[f64])| if seen(i, j) { (dot(row, key) / (size as f64).sqrt()).exp() } else { 0.0 };
            let scores: Vec<f64> = k.chunks(size).enumerate().map(score).collect();
            let total: f64 = scores.iter().sum();
            out.extend(
                (0..size).map(|d| scores.iter().enumerate().map(|(j, s)| s * v[j * size + d]).sum::<f64>() / total),
            );
        }
        out
    }

    #[test]
    fn a_query_that_sees_no_key_gives_zeros() {
        let (q, k, v) = (random(&[1, 1, 3, 2], 1), random(&[1, 1, 2, 2], 2), random(&[1, 1, 2, 2], 3));
        let inf = f32::INFINITY;
        let seen = Tensor::from_f64(DType::Bool, vec![3, 2], [1.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
        let added = Tensor::from_vec(vec![3, 2], vec![0.0, -inf, -inf, -inf, 0.0, 0.0]);
        let want = one_head(&q.to_f64_vec(), &k.to_f64_vec(), &v.to_f64_vec(), 2, |i, j| i == 2 || (i, j) == (0, 0));
        for mask in [seen, added] {
            let got = run_onnx(("Attention", 23), &[], &[Some(&q), Some(&k), Some(&v), Some(&mask)], 1).unwrap();
            let got = got[0].to_f64_vec();
            assert_eq!(got[2..4], [0.0, 0.0]);
            for i in [0, 1, 4, 5] {
                assert!((got[i] - want[i]).abs() < 1e-5, "{got:?}, not {want:?}");
            }
        }
    }

    #[test]
    fn shared_heads_of_the_past_and_present() {
        // Four query heads share two heads of keys and values; one past token, three new ones, seen causally.
        let (q, k, v) = (random(&[1, 4, 3, 2], 1), random(&[1, 2, 3, 2], 2), random(&[1, 2, 3, 2], 3));
        let (pk, pv) = (random(&[1, 2, 1, 2], 4), random(&[1, 2, 1, 2], 5));
        let inputs = [Some(&q), Some(&k), Some(&v), None, Some(&pk), Some(&pv)];
        let got = run_onnx(("Attention", 23), &[("is_causal", OnnxAttr::Int(1))], &inputs, 3).unwrap();
        assert_eq!(got[1].shape(), [1, 2, 4, 2]);
        let (q, k, v) = (q.to_f64_vec(), got[1].to_f64_vec(), got[2].to_f64_vec());
        let head = |h: usize| {
            let kv = h / 2 * 8;
            one_head(&q[h * 6..][..6], &k[kv..][..8], &v[kv..][..8], 2, |i, j| j <= i + 1)
        };
        let want = Tensor::from_f64(DType::F32, vec![1, 4, 3, 2], (0..4).flat_map(head).collect::<Vec<_>>());
        assert_close(&got[0], &want, 1e-5);
    }

    #[test]
    fn rotations_keep_lengths_and_undo_themselves() {
        let x = random(&[1, 2, 3, 4], 6);
        let angle = random(&[1, 3, 2], 7).to_f64_vec();
        let table = |f: fn(f64) -> f64, sign: f64| {
            Tensor::from_f64(DType::F32, vec![1, 3, 2], angle.iter().map(|&a| f(a * sign)).collect::<Vec<_>>())
        };
        for interleaved in [0, 1] {
            let turn = |x: &Tensor, sign: f64| {
                let (cos, sin) = (table(f64::cos, sign), table(f64::sin, sign));
                let attrs = [("interleaved", OnnxAttr::Int(interleaved))];
                run_onnx(("RotaryEmbedding", 23), &attrs, &[Some(x), Some(&cos), Some(&sin)], 1).unwrap().remove(0)
            };
            let there = turn(&x, 1.0);
            assert!(there.to_f64_vec()[0] != x.to_f64_vec()[0]);
            assert_close(&turn(&there, -1.0), &x, 1e-5);
        }
    }
}
