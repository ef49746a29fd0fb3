//! `GroupQueryAttention`: several query heads share one head of keys and values. The operator includes the cache of
//! keys and values and their rotation. Composed of other ops on import.

use super::OpResult;
use super::attention::{Scores, merge_heads, own_result, places, rotate, split_heads};
use super::binary::{Add, And, Greater, LessOrEqual, Max, Sub};
use super::generate::Full;
use super::multi_head_attention::{angles, part, past_length, turned_features};
use super::norm::RmsNorm;
use super::reshape::Unsqueeze;
use super::select::Where;
use super::sequence::TensorScatter;
use super::shape::Shape;
use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::ValueId;
use crate::int::{Dim, Int};
use crate::ops::onnx::{ImportContext, OnnxAttr, OnnxImport};

/// ONNX importers.
pub const ONNX: &[OnnxImport] =
    &[OnnxImport { op_type: "GroupQueryAttention", domain: "com.microsoft", since: 1, import: import_group_query }];

type Context<'a, 'm> = ImportContext<'a, 'm>;

/// Refuses what belongs to caches of bytes and to other devices, by name.
fn check(cx: &Context<'_, '_>) -> OpResult<()> {
    cx.only_attrs(&[
        "causal",
        "do_rotary",
        "k_norm_epsilon",
        "k_quant_type",
        "kv_cache_bit_width",
        "kv_num_heads",
        "local_window_size",
        "num_heads",
        "q_norm_epsilon",
        "qk_norm_epsilon",
        "qk_output",
        "rotary_interleaved",
        "scale",
        "sliding_window_cache",
        "smooth_softmax",
        "softcap",
        "v_quant_type",
    ])?;
    for name in ["k_quant_type", "v_quant_type"] {
        match cx.attrs.0.get(name) {
            None => {}
            Some(OnnxAttr::Str(kind)) if kind == "NONE" => {}
            Some(other) => return Err(Fault::unsupported(format!("unsupported attribute `{name}` = {other:?}"))),
        }
    }
    if cx.attrs.int("causal").is_some_and(|causal| causal != 1) {
        return Err(Fault::unsupported("unsupported attribute `causal` = 0"));
    }
    cx.unset_attr("kv_cache_bit_width")?;
    cx.unset_attr("sliding_window_cache")?;
    cx.absent_input(12, "k_scale")?;
    cx.absent_input(13, "v_scale")?;
    cx.absent_input(16, "query_seqlens")
}

/// Queries, keys and values in heads, from three operands or side by side in the first.
fn heads(cx: &mut Context<'_, '_>) -> OpResult<[ValueId; 3]> {
    let (queries, keys) = (cx.positive_attr("num_heads")?, cx.positive_attr("kv_num_heads")?);
    let packed = cx.input(0)?;
    let all = match (cx.opt(1), cx.opt(2)) {
        (Some(key), Some(value)) => [packed, key, value],
        (None, None) => {
            let width = cx.ty(0)?.shape.last().and_then(|d| d.as_const());
            let size = width.filter(|w| w % (queries + 2 * keys) == 0).map(|w| w / (queries + 2 * keys));
            let size = size.ok_or_else(|| {
                Fault::from(format!("{queries} query heads and twice {keys} others do not share {:?}", cx.ty(0)))
            })?;
            let bounds = [0, queries, queries + keys, queries + 2 * keys].map(|n| Int::new(n * size));
            let mut piece = |i: usize| part(cx, packed, 2, bounds[i].clone(), bounds[i + 1].clone());
            [piece(0)?, piece(1)?, piece(2)?]
        }
        _ => return Err("of keys and values, one is missing".into()),
    };
    let query = split_heads(cx, all[0], Some(queries))?;
    Ok([query, split_heads(cx, all[1], Some(keys))?, split_heads(cx, all[2], Some(keys))?])
}

/// Where the tokens of a run stand.
struct Places {
    /// How many keys each entry of the batch has before them, `[batch]`; none where all have 0.
    before: Option<ValueId>,
    /// Their own places, `[batch, length]` or `[length]`.
    own: ValueId,
    /// Keys that the cache has room for behind the run.
    total: Dim,
    /// Zeros for the room that the cache has beyond the past, `[room]`, where only operand 6 says how many.
    free: Option<ValueId>,
}

/// Operand 5 has for each entry of the batch the place of its last token. Where there is no past, tokens stand at the
/// beginning, those that fill an entry up behind it; a past may have more room than it uses.
fn find_places(cx: &mut Context<'_, '_>, length: &Dim) -> OpResult<Places> {
    let past = past_length(cx, cx.opt(3))?;
    let own = places(cx, length)?;
    if past.is(0) {
        return Ok(Places { before: None, own, total: length.clone(), free: None });
    }
    let known = cx.int_values(6).and_then(|v| v.first()?.as_const());
    let (total, free) = match (past.as_const(), length.as_const(), known) {
        (Some(past), _, Some(total)) => (Int::new(past.max(total)), None),
        (Some(past), Some(_), None) => {
            let free = room_beyond(cx, past)?;
            (cx.type_of(free).shape[0].clone() + past, Some(free))
        }
        _ => (past + length, None),
    };
    let last = cx.input(5)?;
    let last = cx.cast(last, DType::I64)?;
    let last = cx.reshape(last, vec![Int::new(-1)])?;
    let query = cx.input(0)?;
    let count = cx.add(Shape { start: 1, end: Some(2) }, &[query])?;
    let (one, none) = (cx.number(1.0, DType::I64), cx.number(0.0, DType::I64));
    let keys = cx.add(Add {}, &[last, one])?;
    let before = cx.add(Sub {}, &[keys, count])?;
    let before = cx.add(Max {}, &[before, none])?;
    let column = cx.add(Unsqueeze { axes: vec![1] }, &[before])?;
    let own = cx.add(Add {}, &[own, column])?;
    Ok(Places { before: Some(before), own, total, free })
}

/// Zeros of the past's type, as many as operand 6 (`total_sequence_length`) is more than the past has: the past may be
/// all of the cache, or a buffer for more tokens than have been.
fn room_beyond(cx: &mut Context<'_, '_>, past: i64) -> OpResult<ValueId> {
    let total = cx.input(6)?;
    let total = cx.cast(total, DType::I64)?;
    let total = cx.reshape(total, vec![Int::new(1)])?;
    let (past, none) = (cx.number(past as f64, DType::I64), cx.number(0.0, DType::I64));
    let room = cx.add(Sub {}, &[total, past])?;
    let room = cx.add(Max {}, &[room, none])?;
    let (dtype, dims) = (cx.ty(3)?.dtype, vec![cx.fresh_dim("room", 0)]);
    cx.add(Full { shape: vec![], value: 0.0, dtype, dims }, &[room])
}

impl Places {
    /// The cache (operand `past`) with the keys or values of the run.
    fn cached(&self, cx: &mut Context<'_, '_>, past: usize, x: ValueId) -> OpResult<ValueId> {
        let (Some(before), Some(past)) = (self.before, cx.opt(past)) else { return Ok(x) };
        let operands = [past, x, before].into_iter().chain(self.free).collect::<Vec<_>>();
        // The elements of a past after its last token are not used.
        cx.add(TensorScatter { axis: 2, circular: false, size: Some(self.total.clone()) }, &operands)
    }

    /// Which keys each token sees, as far as the window reaches: `[batch or 1, 1, length, total]`.
    fn seen(&self, cx: &mut Context<'_, '_>) -> OpResult<ValueId> {
        let keys = places(cx, &self.total)?;
        let axes = if cx.type_of(self.own).rank() == 1 { vec![0, 1, 3] } else { vec![1, 3] };
        let own = cx.add(Unsqueeze { axes }, &[self.own])?;
        let up_to = cx.add(LessOrEqual {}, &[keys, own])?;
        match cx.attrs.int("local_window_size").unwrap_or(-1) {
            window if window >= 0 => {
                let window = cx.number(window as f64, DType::I64);
                let from = cx.add(Sub {}, &[own, window])?;
                let inside = cx.add(Greater {}, &[keys, from])?;
                cx.add(And {}, &[up_to, inside])
            }
            _ => Ok(up_to),
        }
    }
}

/// Queries and keys, normalised in each head with the weights of operands 14 and 15 where those are given.
fn normalized(cx: &mut Context<'_, '_>, [query, key]: [ValueId; 2]) -> OpResult<[ValueId; 2]> {
    let (of_queries, of_keys) = match (cx.opt(14), cx.opt(15)) {
        (Some(of_queries), Some(of_keys)) => (of_queries, of_keys),
        (None, None) => return Ok([query, key]),
        _ => return Err("of the weights that normalise queries and keys, one is missing".into()),
    };
    let both = cx.attrs.float("qk_norm_epsilon").unwrap_or(1e-6);
    let mut norm = |x, weights, own| {
        let epsilon = cx.attrs.float(own).unwrap_or(both);
        cx.add(RmsNorm { axis: 3, epsilon }, &[x, weights])
    };
    Ok([norm(query, of_queries, "q_norm_epsilon")?, norm(key, of_keys, "k_norm_epsilon")?])
}

/// Queries and keys rotated at the places of operand 9, else at their own.
fn rotated(cx: &mut Context<'_, '_>, places: &Places, query: ValueId, key: ValueId) -> OpResult<[ValueId; 2]> {
    if cx.attrs.int("do_rotary").unwrap_or(0) == 0 {
        return Ok([query, key]);
    }
    let tables = [cx.input(7)?, cx.input(8)?];
    let turned = turned_features(cx, tables[0])?;
    let angles = angles(cx, tables, cx.opt(9).unwrap_or(places.own))?;
    let interleaved = cx.attrs.int("rotary_interleaved").unwrap_or(0) != 0;
    Ok([rotate(cx, query, turned, angles, interleaved)?, rotate(cx, key, turned, angles, interleaved)?])
}

fn import_group_query(cx: &mut Context<'_, '_>) -> OpResult<Vec<ValueId>> {
    check(cx)?;
    let [query, key, value] = heads(cx)?;
    let length = cx.type_of(query).shape[2].clone();
    let places = find_places(cx, &length)?;
    let [query, key] = normalized(cx, [query, key])?;
    let [query, key] = rotated(cx, &places, query, key)?;
    let (key, value) = (places.cached(cx, 3, key)?, places.cached(cx, 4, value)?);
    let dtype = cx.type_of(query).dtype;
    let sink = match (cx.opt(11), cx.attrs.int("smooth_softmax").unwrap_or(0)) {
        (Some(sink), _) => Some(sink),
        (None, 1) => {
            let heads = cx.type_of(query).shape[1].clone();
            Some(cx.add(Full { shape: vec![heads], value: 0.0, dtype, dims: vec![] }, &[])?)
        }
        _ => None,
    };
    let scale = cx.attrs.float("scale").filter(|&s| s != 0.0);
    let softcap = cx.attrs.float("softcap").unwrap_or(0.0);
    let (seen, bias) = (places.seen(cx)?, cx.opt(10));
    let done = Scores { query, key, value, scale, softcap, precision: None, sink }.attend(cx, |cx, x| {
        let x = match bias {
            Some(bias) => cx.add(Add {}, &[x, bias])?,
            None => x,
        };
        let lowest = cx.number(f64::NEG_INFINITY, dtype);
        Ok((cx.add(Where {}, &[seen, x, lowest])?, None))
    })?;
    let mut out = vec![merge_heads(cx, done.out)?, own_result(cx, key)?, own_result(cx, value)?];
    if cx.wants(3) {
        out.push(match cx.attrs.int("qk_output").unwrap_or(0) {
            1 => done.masked,
            2 => done.weights,
            other => {
                return Err(Fault::unsupported(format!("unsupported attribute `qk_output` = {other} with output 3")));
            }
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use crate::ops::norm::RmsNorm;
    use crate::ops::onnx::OnnxAttr;
    use crate::ops::testing::{assert_close, random, run, run_onnx};
    use crate::tensor::Tensor;

    const OPERATOR: (&str, i64) = ("com.microsoft::GroupQueryAttention", 1);

    /// Three tokens, two heads of queries and one of keys, four features a head.
    fn attend(q: &Tensor, k: &Tensor, v: &Tensor, norms: [Option<&Tensor>; 2], attrs: &[(&str, OnnxAttr)]) -> Tensor {
        let (last, total) = (Tensor::from_vec(vec![1], vec![2i32]), Tensor::scalar(3i32));
        let heads = [("num_heads", OnnxAttr::Int(2)), ("kv_num_heads", OnnxAttr::Int(1))];
        let mut inputs = vec![None; 16];
        for (i, t) in [(0, q), (1, k), (2, v), (5, &last), (6, &total)] {
            inputs[i] = Some(t);
        }
        (inputs[14], inputs[15]) = (norms[0], norms[1]);
        let out = run_onnx(OPERATOR, &[&heads[..], attrs].concat(), &inputs, 3);
        out.unwrap_or_else(|e| panic!("{e}")).remove(0)
    }

    #[test]
    fn queries_and_keys_are_normalised_in_their_heads() {
        let (q, k, v) = (random(&[1, 3, 8], 1), random(&[1, 3, 4], 2), random(&[1, 3, 4], 3));
        let weights = [random(&[4], 4), random(&[4], 5)];
        let normal = |x: &Tensor, w: &Tensor, epsilon| {
            let rows = x.reshaped(vec![x.len() / 4, 4]);
            run(RmsNorm { axis: 1, epsilon }, &[&rows, w]).reshaped(x.shape().to_vec())
        };
        let (own, other) = ([Some(&weights[0]), Some(&weights[1])], [("k_norm_epsilon", OnnxAttr::Float(0.5))]);
        for (attrs, of_keys) in [(&[][..], 1e-6), (&other[..], 0.5)] {
            let got = attend(&q, &k, &v, own, attrs);
            let (q, k) = (normal(&q, &weights[0], 1e-6), normal(&k, &weights[1], of_keys));
            assert_close(&got, &attend(&q, &k, &v, [None; 2], &[]), 1e-5);
        }
    }

    #[test]
    fn what_changes_the_result_and_is_not_known_is_refused() {
        let x = random(&[1, 3, 8], 1);
        let heads = [("num_heads", OnnxAttr::Int(2)), ("kv_num_heads", OnnxAttr::Int(2))];
        let mut inputs = vec![Some(&x); 3];
        inputs.resize(17, None);
        inputs[16] = Some(&x);
        let why = run_onnx(OPERATOR, &heads, &inputs, 3).unwrap_err();
        assert!(why.contains("`query_seqlens`"), "{why}");
        let attrs = [&heads[..], &[("causal", OnnxAttr::Int(0))]].concat();
        let why = run_onnx(OPERATOR, &attrs, &inputs[..16], 3).unwrap_err();
        assert!(why.contains("`causal` = 0"), "{why}");
    }
}
