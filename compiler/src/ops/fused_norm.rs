//! Normalisations that ONNX Runtime's optimiser fused with the sum before them, and with the embeddings before the sum.
//! Import turns them back into their parts.

use super::OpResult;
use super::binary::{Add, Mul};
use super::cast::Cast;
use super::gather::Gather;
use super::generate::Full;
use super::norm::{LayerNorm, RmsNorm};
use super::permute::normalize_axis;
use super::reduce::{Reduce, ReduceKind};
use super::slice::Slice;
use super::unary::{Identity, Reciprocal, Sqrt};
use crate::dtype::DType;
use crate::graph::ValueId;
use crate::int::Int;
use crate::ops::onnx::{ImportContext, OnnxImport};

/// ONNX importers. `SimplifiedLayerNormalization` stands in the domain ai.onnx, which does not define it.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "SimplifiedLayerNormalization", domain: "", since: 1, import: import_simplified },
    OnnxImport { op_type: "SimplifiedLayerNormalization", domain: MICROSOFT, since: 1, import: import_simplified },
    OnnxImport { op_type: "SkipLayerNormalization", domain: MICROSOFT, since: 1, import: import_skip },
    OnnxImport {
        op_type: "SkipSimplifiedLayerNormalization",
        domain: MICROSOFT,
        since: 1,
        import: import_skip_simplified,
    },
    OnnxImport { op_type: "EmbedLayerNormalization", domain: MICROSOFT, since: 1, import: import_embed },
];

const MICROSOFT: &str = "com.microsoft";

/// `1 / sqrt(mean(x^2) + epsilon)` of the axes from `axis` on.
fn inverse_rms(cx: &mut ImportContext<'_, '_>, x: ValueId, axis: usize, epsilon: f64) -> OpResult<ValueId> {
    let rank = cx.type_of(x).rank();
    let x = cx.cast(x, DType::F32)?;
    let square = cx.add(Mul {}, &[x, x])?;
    let mean = Reduce { kind: ReduceKind::Mean, axes: (axis..rank).collect(), keepdims: true };
    let mean = cx.add(mean, &[square])?;
    let epsilon = cx.number(epsilon, DType::F32);
    let sum = cx.add(Add {}, &[mean, epsilon])?;
    let root = cx.add(Sqrt {}, &[sum])?;
    cx.add(Reciprocal {}, &[root])
}

/// RMS normalisation; its second result is the inverse of the root of the mean square.
fn import_simplified(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&["axis", "epsilon", "stash_type"])?;
    let axis = normalize_axis(cx.attrs.int("axis").unwrap_or(-1), cx.ty(0)?.rank())?;
    let epsilon = cx.attrs.float("epsilon").unwrap_or(1e-5);
    let (x, scale) = (cx.input(0)?, cx.input(1)?);
    let mut out = vec![cx.add(RmsNorm { axis, epsilon }, &[x, scale])?];
    if cx.wants(1) {
        out.push(inverse_rms(cx, x, axis, epsilon)?);
    }
    Ok(out)
}

/// `input + skip + bias`, where `bias` is operand `i` and optional.
fn skip_sum(cx: &mut ImportContext<'_, '_>, i: usize) -> OpResult<ValueId> {
    let (x, skip) = (cx.input(0)?, cx.input(1)?);
    let sum = cx.add(Add {}, &[x, skip])?;
    match cx.opt(i) {
        Some(bias) => cx.add(Add {}, &[sum, bias]),
        None => Ok(sum),
    }
}

/// The results of a skip normalisation: normalised data, mean, inverse deviation, sum. A statistic that nobody asked
/// for is the data in its place.
fn skip_results(out: ValueId, statistics: [Option<ValueId>; 2], sum: ValueId) -> Vec<ValueId> {
    let [mean, inverse] = statistics.map(|v| v.unwrap_or(out));
    vec![out, mean, inverse, sum]
}

fn import_skip(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&["epsilon"])?;
    let sum = skip_sum(cx, 4)?;
    let statistics = cx.wants(1) || cx.wants(2);
    let axis = normalize_axis(-1, cx.type_of(sum).rank())?;
    let op = LayerNorm { axis, epsilon: cx.attrs.float("epsilon").unwrap_or(1e-12), statistics };
    let mut operands = vec![Some(sum), Some(cx.input(2)?)];
    operands.extend(cx.opt(3).map(Some));
    let norm = cx.add_multi(op, operands)?;
    Ok(skip_results(norm[0], [1, 2].map(|i| norm.get(i).copied()), sum))
}

fn import_skip_simplified(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&["epsilon"])?;
    let (sum, scale) = (skip_sum(cx, 3)?, cx.input(2)?);
    let axis = normalize_axis(-1, cx.type_of(sum).rank())?;
    let epsilon = cx.attrs.float("epsilon").unwrap_or(1e-12);
    let out = cx.add(RmsNorm { axis, epsilon }, &[sum, scale])?;
    if cx.wants(1) {
        return Err(crate::fault::Fault::unsupported("unsupported output 1 (`mean`): the mean is not computed"));
    }
    let inverse = if cx.wants(2) { Some(inverse_rms(cx, sum, axis, epsilon)?) } else { None };
    Ok(skip_results(out, [None, inverse], sum))
}

/// `LayerNorm(word[ids] + position[positions] + segment[segments])`; also how many tokens the mask keeps, and the sum.
fn import_embed(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&["epsilon", "mask_index_type"])?;
    let ids = cx.ty(0)?;
    let [batch, length] = &ids.shape[..] else {
        return Err(format!("the ids are {ids:?}, not of rank 2").into());
    };
    let rows = |cx: &mut ImportContext<'_, '_>, table: usize, at: ValueId| {
        let table = cx.input(table)?;
        cx.add(Gather { axis: 0 }, &[table, at])
    };
    let words = cx.input(0)?;
    let mut sum = rows(cx, 2, words)?;
    let positions = match cx.opt(8) {
        Some(at) => rows(cx, 3, at)?,
        None => {
            let table = cx.input(3)?;
            let (starts, ends) = (vec![Int::new(0)], vec![length.clone()]);
            cx.add(Slice { starts, ends, axes: vec![0], steps: vec![], dims: vec![] }, &[table])?
        }
    };
    sum = cx.add(Add {}, &[sum, positions])?;
    if let (Some(segments), Some(_)) = (cx.opt(1), cx.opt(4)) {
        let segments = rows(cx, 4, segments)?;
        sum = cx.add(Add {}, &[sum, segments])?;
    }
    let (gamma, beta) = (cx.input(5)?, cx.input(6)?);
    let op = LayerNorm { axis: 2, epsilon: cx.attrs.float("epsilon").unwrap_or(1e-12), statistics: false };
    let out = cx.add(op, &[sum, gamma, beta])?;
    let kept = match cx.opt(7) {
        _ if !cx.wants(1) => out,
        Some(mask) => {
            let mask = cx.add(Cast::new(DType::I32), &[mask])?;
            cx.add(Reduce { kind: ReduceKind::Sum, axes: vec![1], keepdims: false }, &[mask])?
        }
        None => cx.add(Full { shape: vec![batch.clone()], value: 0.0, dtype: DType::I32, dims: vec![] }, &[])?,
    };
    // A sum that is a result is a value of its own.
    let sum = if cx.wants(2) { cx.add(Identity {}, &[sum])? } else { sum };
    Ok(vec![out, kept, sum])
}
