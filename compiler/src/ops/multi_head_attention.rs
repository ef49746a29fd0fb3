//! Attention and rotary embeddings in ONNX Runtime's forms (`MultiHeadAttention`, `Attention` with its own weights,
//! `RotaryEmbedding`), composed of other ops on import.

use super::OpResult;
use super::attention::{Scores, causal, merge_heads, own_result, places, rotate, split_heads};
use super::binary::{Add, And, Greater, GreaterOrEqual, Less};
use super::concat::Concat;
use super::gather::Gather;
use super::linear_attention::range;
use super::matmul::MatMul;
use super::reshape::{Squeeze, Unsqueeze};
use super::select::Where;
use super::slice::Slice;
use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::ValueId;
use crate::int::{Dim, Int};
use crate::ops::onnx::{ImportContext, OnnxImport};

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "MultiHeadAttention", domain: MICROSOFT, since: 1, import: import_multi_head },
    OnnxImport { op_type: "Attention", domain: MICROSOFT, since: 1, import: import_attention },
    OnnxImport { op_type: "RotaryEmbedding", domain: MICROSOFT, since: 1, import: import_rotary },
];

const MICROSOFT: &str = "com.microsoft";

type Context<'a, 'm> = ImportContext<'a, 'm>;

/// Elements `start..end` along `axis`, of which the bounds may be open.
pub(super) fn part(cx: &mut Context<'_, '_>, x: ValueId, axis: usize, start: Dim, end: Dim) -> OpResult<ValueId> {
    let (starts, ends) = (vec![start], vec![end]);
    cx.add(Slice { starts, ends, axes: vec![axis as i64], steps: vec![], dims: vec![] }, &[x])
}

/// The masks of attention, and the bias of its scores.
struct Masking {
    /// Which keys count: `[batch]` (how many), `[2 * batch]` (end and start), `[batch, keys]` or `[batch, queries,
    /// keys]`.
    keys: Option<ValueId>,
    /// Added to the scores of keys that do not count.
    filter: f64,
    /// Added to the scores, `[batch or 1, heads or 1, queries, keys]`.
    bias: Option<ValueId>,
    /// Queries see the keys up to their own place.
    causal: bool,
    /// Keys before the first query's own.
    past: Dim,
}

impl Masking {
    fn apply(&self, cx: &mut Context<'_, '_>, scores: ValueId) -> OpResult<ValueId> {
        let ty = cx.type_of(scores);
        let mut x = scores;
        if let Some(keys) = self.keys {
            let counts = self.counting(cx, keys, &ty.shape[0], &ty.shape[3])?;
            let (none, filter) = (cx.number(0.0, ty.dtype), cx.number(self.filter, ty.dtype));
            let added = cx.add(Where {}, &[counts, none, filter])?;
            x = cx.add(Add {}, &[x, added])?;
        }
        if self.causal {
            let seen = causal(cx, ty.shape[2].clone(), &ty.shape[3], &self.past)?;
            let lowest = cx.number(f64::NEG_INFINITY, ty.dtype);
            x = cx.add(Where {}, &[seen, x, lowest])?;
        }
        match self.bias {
            Some(bias) => cx.add(Add {}, &[x, bias]),
            None => Ok(x),
        }
    }

    /// Which keys count, in a shape that broadcasts to that of the scores.
    fn counting(&self, cx: &mut Context<'_, '_>, keys: ValueId, batch: &Dim, total: &Dim) -> OpResult<ValueId> {
        let ty = cx.type_of(keys);
        let none = cx.number(0.0, ty.dtype);
        match &ty.shape[..] {
            [n] if n == batch || *n == batch.clone() * 2 => {
                let at = places(cx, total)?;
                let bound = |cx: &mut Context<'_, '_>, from: Dim| {
                    let v = part(cx, keys, 0, from.clone(), from + batch)?;
                    let v = cx.cast(v, DType::I64)?;
                    cx.reshape(v, vec![batch.clone(), Int::new(1), Int::new(1), Int::new(1)])
                };
                let end = bound(cx, Int::new(0))?;
                let inside = cx.add(Less {}, &[at, end])?;
                if n == batch {
                    return Ok(inside);
                }
                let start = bound(cx, batch.clone())?;
                let begun = cx.add(GreaterOrEqual {}, &[at, start])?;
                cx.add(And {}, &[inside, begun])
            }
            [_, _] => {
                let counts = cx.add(Greater {}, &[keys, none])?;
                cx.add(Unsqueeze { axes: vec![1, 2] }, &[counts])
            }
            [_, _, _] => {
                let counts = cx.add(Greater {}, &[keys, none])?;
                cx.add(Unsqueeze { axes: vec![1] }, &[counts])
            }
            _ => Err(Fault::unsupported(format!("unsupported mask {ty:?} for a batch of {batch}"))),
        }
    }
}

/// A past in front of keys or values.
fn behind(cx: &mut Context<'_, '_>, past: Option<ValueId>, x: ValueId) -> OpResult<ValueId> {
    match past {
        Some(past) => cx.add(Concat { axis: 2 }, &[past, x]),
        None => Ok(x),
    }
}

/// Length of a past `[batch, heads, length, size]`; 0 where there is none.
pub(super) fn past_length(cx: &Context<'_, '_>, past: Option<ValueId>) -> OpResult<Dim> {
    let Some(past) = past else { return Ok(Int::new(0)) };
    cx.type_of(past).shape.get(2).cloned().ok_or_else(|| "the past keys are not of rank 4".into())
}

/// Queries, keys and values `[batch, length, heads * size]` (keys and values of another attention, `[batch, heads,
/// length, size]`, as they are), from three operands, or packed: `[.., heads, 3, size]` of all, `[.., heads, 2, size]`
/// of keys and values.
fn unpack(cx: &mut Context<'_, '_>) -> OpResult<[ValueId; 3]> {
    let piece = |cx: &mut Context<'_, '_>, x: ValueId, i: i64| {
        let shape = cx.type_of(x).shape;
        let x = range(cx, x, 3, i, i + 1)?;
        cx.reshape(x, vec![shape[0].clone(), shape[1].clone(), shape[2].clone() * &shape[4]])
    };
    let query = cx.input(0)?;
    match (cx.opt(1), cx.opt(2)) {
        (None, None) if cx.type_of(query).rank() == 5 => {
            Ok([piece(cx, query, 0)?, piece(cx, query, 1)?, piece(cx, query, 2)?])
        }
        (Some(key), None) if cx.type_of(key).rank() == 5 => Ok([query, piece(cx, key, 0)?, piece(cx, key, 1)?]),
        (Some(key), Some(value)) => Ok([query, key, value]),
        _ => Err("keys and values are missing, and the queries or keys are not packed (rank 5)".into()),
    }
}

/// The bias of all three, one after the other in operand 3. Keys and values in heads have theirs already.
fn add_bias(cx: &mut Context<'_, '_>, all: [ValueId; 3]) -> OpResult<[ValueId; 3]> {
    let Some(bias) = cx.opt(3) else { return Ok(all) };
    let query = cx.type_of(all[0]).shape;
    let mut from = Int::new(0);
    let mut out = all;
    for v in &mut out {
        let shape = cx.type_of(*v).shape;
        // The bias of keys that come in heads is as wide as that of the queries.
        let width = if shape.len() == 3 { shape[2].clone() } else { query[2].clone() };
        let end = from.clone() + &width;
        if shape.len() == 3 {
            let own = part(cx, bias, 0, from, end.clone())?;
            *v = cx.add(Add {}, &[*v, own])?;
        }
        from = end;
    }
    Ok(out)
}

fn import_multi_head(cx: &mut Context<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&["mask_filter_value", "num_heads", "scale", "unidirectional"])?;
    for (i, name) in [(8, "past_sequence_length"), (9, "cache_indirection")] {
        cx.absent_input(i, name)?;
    }
    let heads = cx.positive_attr("num_heads")?;
    let all = unpack(cx)?;
    let [query, key, value] = add_bias(cx, all)?;
    let (pasts, past) = ([cx.opt(6), cx.opt(7)], past_length(cx, cx.opt(6))?);
    let query = split_heads(cx, query, Some(heads))?;
    let (key, value) = (split_heads(cx, key, Some(heads))?, split_heads(cx, value, Some(heads))?);
    let (key, value) = (behind(cx, pasts[0], key)?, behind(cx, pasts[1], value)?);
    let masking = Masking {
        keys: cx.opt(4),
        filter: cx.attrs.float("mask_filter_value").unwrap_or(-10000.0),
        bias: cx.opt(5),
        causal: cx.attrs.int("unidirectional").unwrap_or(0) != 0,
        past,
    };
    let scale = cx.attrs.float("scale").filter(|&s| s != 0.0);
    let scores = Scores { query, key, value, scale, softcap: 0.0, precision: None, sink: None };
    let done = scores.attend(cx, |cx, x| Ok((masking.apply(cx, x)?, None)))?;
    let out = merge_heads(cx, done.out)?;
    Ok(match cx.num_outputs {
        0 | 1 => vec![out],
        _ => vec![out, own_result(cx, key)?, own_result(cx, value)?, done.masked],
    })
}

/// Attention that makes queries, keys and values itself, by weights (operand 1) and a bias (operand 2) of all three
/// side by side.
fn import_attention(cx: &mut Context<'_, '_>) -> OpResult<Vec<ValueId>> {
    let known = [
        "do_rotary",
        "mask_filter_value",
        "num_heads",
        "past_present_share_buffer",
        "qkv_hidden_sizes",
        "scale",
        "unidirectional",
    ];
    cx.only_attrs(&known)?;
    cx.unset_attr("do_rotary")?;
    cx.unset_attr("past_present_share_buffer")?;
    cx.absent_input(6, "past_sequence_length")?;
    let heads = cx.positive_attr("num_heads")?;
    let operands = [cx.input(0)?, cx.input(1)?];
    let mut all = cx.add(MatMul {}, &operands)?;
    if let Some(bias) = cx.opt(2) {
        all = cx.add(Add {}, &[all, bias])?;
    }
    let width = cx.type_of(all).shape.last().and_then(|d| d.as_const());
    let width = width.ok_or_else(|| Fault::unsupported("the width of the weights is not known at compile time"))?;
    let sizes = match cx.attrs.ints("qkv_hidden_sizes") {
        Some(&[q, k, v]) if q == k && q + k + v == width => [q, k, v],
        None if width % 3 == 0 => [width / 3; 3],
        other => return Err(format!("qkv_hidden_sizes {other:?} do not share {width} columns").into()),
    };
    let mut parts = vec![];
    let mut from = 0;
    for size in sizes {
        let x = range(cx, all, 2, from, from + size)?;
        parts.push(split_heads(cx, x, Some(heads))?);
        from += size;
    }
    let past = cx.opt(4);
    let entry = |cx: &mut Context<'_, '_>, i: i64| {
        let Some(past) = past else { return Ok(None) };
        let x = range(cx, past, 0, i, i + 1)?;
        cx.add(Squeeze { axes: vec![0] }, &[x]).map(Some)
    };
    let pasts = [entry(cx, 0)?, entry(cx, 1)?];
    let length = past_length(cx, pasts[0])?;
    let (key, value) = (behind(cx, pasts[0], parts[1])?, behind(cx, pasts[1], parts[2])?);
    let masking = Masking {
        keys: cx.opt(3),
        filter: cx.attrs.float("mask_filter_value").unwrap_or(-10000.0),
        bias: cx.opt(5),
        causal: cx.attrs.int("unidirectional").unwrap_or(0) != 0,
        past: length,
    };
    let scale = cx.attrs.float("scale").filter(|&s| s != 0.0);
    let scores = Scores { query: parts[0], key, value, scale, softcap: 0.0, precision: None, sink: None };
    let done = scores.attend(cx, |cx, x| Ok((masking.apply(cx, x)?, None)))?;
    let mut out = vec![merge_heads(cx, done.out)?];
    if cx.wants(1) {
        let both = [cx.add(Unsqueeze { axes: vec![0] }, &[key])?, cx.add(Unsqueeze { axes: vec![0] }, &[value])?];
        out.push(cx.add(Concat { axis: 0 }, &both)?);
    }
    Ok(out)
}

/// The rows of tables of cosines and sines (operands `tables`) at `positions`, `[batch, length]` or `[length]`, as
/// `[batch or 1, 1, length, pairs]`.
pub(super) fn angles(cx: &mut Context<'_, '_>, tables: [ValueId; 2], positions: ValueId) -> OpResult<[ValueId; 2]> {
    let axes = if cx.type_of(positions).rank() == 1 { vec![0, 1] } else { vec![1] };
    let row = |cx: &mut Context<'_, '_>, table: ValueId| {
        let rows = cx.add(Gather { axis: 0 }, &[table, positions])?;
        cx.add(Unsqueeze { axes: axes.clone() }, &[rows])
    };
    Ok([row(cx, tables[0])?, row(cx, tables[1])?])
}

/// Features that tables of `[positions, pairs]` turn.
pub(super) fn turned_features(cx: &Context<'_, '_>, table: ValueId) -> OpResult<i64> {
    let pairs = cx.type_of(table).shape.last().and_then(|d| d.as_const());
    pairs.map(|n| 2 * n).ok_or_else(|| Fault::unsupported("the number of angles is not known at compile time"))
}

/// Operand 1 has the position of each token, or of the first one alone.
fn import_rotary(cx: &mut Context<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&["interleaved", "is_packed_batching", "num_heads", "rotary_embedding_dim", "scale"])?;
    cx.unset_attr("is_packed_batching")?;
    if let Some(scale) = cx.attrs.float("scale").filter(|&s| s != 1.0) {
        return Err(Fault::unsupported(format!("unsupported attribute `scale` = {scale}")));
    }
    let (x, positions, tables) = (cx.input(0)?, cx.input(1)?, [cx.input(2)?, cx.input(3)?]);
    let turned = turned_features(cx, tables[0])?;
    let shape = cx.type_of(x).shape;
    let whole = cx.attrs.int("rotary_embedding_dim").unwrap_or(0) == 0;
    let heads = match (cx.attrs.int("num_heads").unwrap_or(0), shape.last().and_then(|d| d.as_const())) {
        (n, _) if n > 0 => Some(n),
        // All features of a head are turned.
        (_, Some(width)) if whole && shape.len() == 3 && width % turned == 0 => Some(width / turned),
        _ if shape.len() == 4 => None,
        _ => return Err("attribute `num_heads` is missing".into()),
    };
    let by_head = split_heads(cx, x, heads)?;
    let ty = cx.type_of(by_head);
    if ty.shape[3].as_const().is_some_and(|size| turned > size) {
        return Err(format!("{turned} of {} features cannot be rotated", ty.shape[3]).into());
    }
    let positions = match cx.type_of(positions).rank() {
        1 => {
            let at = places(cx, &ty.shape[2])?;
            let first = cx.cast(positions, DType::I64)?;
            cx.add(Add {}, &[at, first])?
        }
        _ => positions,
    };
    let angles = angles(cx, tables, positions)?;
    let interleaved = cx.attrs.int("interleaved").unwrap_or(0) != 0;
    let out = rotate(cx, by_head, turned, angles, interleaved)?;
    Ok(vec![if shape.len() == 3 { merge_heads(cx, out)? } else { out }])
}
