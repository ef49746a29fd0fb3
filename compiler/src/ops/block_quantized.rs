//! Weights with a scale per block: `MatMulNBits` and `GatherBlockQuantized`, composed of other ops on import.

use super::OpResult;
use super::binary::{Add, Mul, Sub};
use super::gather::Gather;
use super::linear_attention::range;
use super::matmul::MatMul;
use super::permute::normalize_axis;
use super::transpose::Transpose;
use super::unpack_bits::UnpackBits;
use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::ValueId;
use crate::int::{Int, const_dims};
use crate::ops::onnx::{ImportContext, OnnxImport};

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "MatMulNBits", domain: MICROSOFT, since: 1, import: import_matmul },
    OnnxImport { op_type: "GatherBlockQuantized", domain: MICROSOFT, since: 1, import: import_gather },
];

const MICROSOFT: &str = "com.microsoft";

/// The attribute `bits`, which is 2, 4 or 8.
fn bits(cx: &ImportContext<'_, '_>) -> OpResult<i64> {
    match cx.attrs.int("bits").unwrap_or(4) {
        bits @ (2 | 4 | 8) => Ok(bits),
        bits => Err(Fault::unsupported(format!("unsupported attribute `bits` = {bits}: it is 2, 4 or 8"))),
    }
}

/// The integers that share bytes, `count` along the last axis.
fn unpacked(cx: &mut ImportContext<'_, '_>, x: ValueId, bits: i64, count: i64) -> OpResult<ValueId> {
    let x = if bits == 8 { x } else { cx.add(UnpackBits { bits, signed: false }, &[x])? };
    let last = cx.type_of(x).rank() as i64 - 1;
    match cx.type_of(x).shape[last as usize].as_const() {
        Some(n) if n == count => Ok(x),
        Some(n) if n > count => range(cx, x, last, 0, count),
        n => Err(format!("{n:?} integers of {bits} bits, {count} are needed").into()),
    }
}

/// Weights `[n, k]` of blocks along `k` (operand 1, `[n, blocks, bytes]`), times their scales (operand 2), less their
/// zero points (operand 3): half of the range where there are none.
fn weights(cx: &mut ImportContext<'_, '_>, dtype: DType) -> OpResult<ValueId> {
    let (k, n) = (cx.positive_attr("K")?, cx.positive_attr("N")?);
    let (bits, block) = (bits(cx)?, cx.positive_attr("block_size")?);
    let blocks = (k + block - 1) / block;
    if cx.ty(1)?.dtype != DType::U8 {
        return Err(format!("the weights are {}, not packed in u8", cx.ty(1)?.dtype).into());
    }
    let packed = cx.input(1)?;
    let packed = cx.reshape(packed, vec![Int::new(n), Int::new(blocks), Int::new(block * bits / 8)])?;
    let w = unpacked(cx, packed, bits, block)?;
    let mut w = cx.cast(w, dtype)?;
    let by_block = |cx: &mut ImportContext<'_, '_>, v: ValueId| {
        let v = cx.cast(v, dtype)?;
        cx.reshape(v, vec![Int::new(n), Int::new(blocks), Int::new(1)])
    };
    let zero = match cx.opt(3) {
        None => cx.number((1 << (bits - 1)) as f64, dtype),
        Some(zero) if cx.type_of(zero).dtype == DType::U8 => {
            let bytes = (blocks * bits + 7) / 8;
            let zero = cx.reshape(zero, vec![Int::new(n), Int::new(bytes)])?;
            let zero = unpacked(cx, zero, bits, blocks)?;
            by_block(cx, zero)?
        }
        Some(zero) => by_block(cx, zero)?,
    };
    w = cx.add(Sub {}, &[w, zero])?;
    let scales = cx.input(2)?;
    let scales = by_block(cx, scales)?;
    w = cx.add(Mul {}, &[w, scales])?;
    let w = cx.reshape(w, vec![Int::new(n), Int::new(blocks * block)])?;
    if blocks * block == k { Ok(w) } else { range(cx, w, 1, 0, k) }
}

/// `a w^T + bias`. `accuracy_level` allows less than full precision, and asks for nothing.
fn import_matmul(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&["K", "N", "accuracy_level", "bits", "block_size", "weight_prepacked"])?;
    cx.unset_attr("weight_prepacked")?;
    cx.absent_input(4, "g_idx")?;
    let (a, dtype) = (cx.input(0)?, cx.ty(0)?.dtype);
    let w = weights(cx, dtype)?;
    let w = cx.add(Transpose { perm: vec![1, 0] }, &[w])?;
    let mut out = cx.add(MatMul {}, &[a, w])?;
    if let Some(bias) = cx.opt(5) {
        out = cx.add(Add {}, &[out, bias])?;
    }
    Ok(vec![out])
}

/// Rows of a table that is quantised in blocks along one axis; only what is gathered is scaled.
fn import_gather(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    cx.only_attrs(&["bits", "block_size", "gather_axis", "quantize_axis"])?;
    let (bits, block) = (bits(cx)?, cx.attrs.int("block_size").unwrap_or(128));
    let (data, scales, ty) = (cx.input(0)?, cx.input(2)?, cx.ty(0)?);
    let rank = ty.rank();
    let gather = normalize_axis(cx.attrs.int("gather_axis").unwrap_or(0), rank)?;
    let quantized = normalize_axis(cx.attrs.int("quantize_axis").unwrap_or(1), rank)?;
    if block < 1 || gather != 0 || quantized + 1 != rank || gather == quantized {
        let why = format!(
            "unsupported attributes: `gather_axis` = {gather} and `quantize_axis` = {quantized} of rank {rank}, \
                           the first and the last are needed"
        );
        return Err(Fault::unsupported(why));
    }
    let data = match ty.dtype {
        DType::U8 if bits < 8 => cx.add(UnpackBits { bits, signed: false }, &[data])?,
        DType::U8 | DType::I8 => data,
        other => return Err(format!("the table is {other}, not of bytes").into()),
    };
    let signed = ty.dtype == DType::I8;
    let at = cx.input(1)?;
    let rows = |cx: &mut ImportContext<'_, '_>, table: ValueId| cx.add(Gather { axis: 0 }, &[table, at]);
    let (data, scales) = (rows(cx, data)?, rows(cx, scales)?);
    let dtype = cx.type_of(scales).dtype;
    let (shape, blocks) = (cx.type_of(data).shape, cx.type_of(scales).shape);
    let (Some(&[width]), Some(&[count])) =
        (const_dims(&shape[shape.len() - 1..]).as_deref(), const_dims(&blocks[blocks.len() - 1..]).as_deref())
    else {
        return Err(Fault::unsupported("the width of the table is not known at compile time"));
    };
    if width as i64 != count as i64 * block {
        return Err(Fault::unsupported(format!("unsupported: {count} blocks of {block} for {width} columns")));
    }
    let blocked = [&shape[..shape.len() - 1], &[Int::new(count as i64), Int::new(block)]].concat();
    let column = [&blocks[..], &[Int::new(1)]].concat();
    let x = cx.reshape(data, blocked)?;
    let mut x = cx.cast(x, dtype)?;
    let zero = match cx.opt(3) {
        Some(zero) => {
            let zero = if bits < 8 && !signed { unpacked(cx, zero, bits, count as i64)? } else { zero };
            let zero = rows(cx, zero)?;
            let zero = cx.cast(zero, dtype)?;
            Some(cx.reshape(zero, column.clone())?)
        }
        // Signed integers are around 0.
        None if signed => None,
        None => Some(cx.number((1 << (bits - 1)) as f64, dtype)),
    };
    if let Some(zero) = zero {
        x = cx.add(Sub {}, &[x, zero])?;
    }
    let scales = cx.reshape(scales, column)?;
    let x = cx.add(Mul {}, &[x, scales])?;
    Ok(vec![cx.reshape(x, shape)?])
}

#[cfg(test)]
mod tests {
    use crate::ops::onnx::OnnxAttr;
    use crate::ops::testing::{assert_close, random, run_onnx};
    use crate::tensor::Tensor;

    /// The definition in plain Rust, with packed weights and zero points.
    #[test]
    fn blocks_have_their_scales_and_zero_points() {
        for (bits, block, k, n, zeros) in
            [(4, 16, 40, 3, true), (4, 32, 32, 2, false), (8, 16, 48, 2, true), (2, 16, 32, 5, true)]
        {
            let (blocks, each) = (usize::div_ceil(k, block), 8 / bits);
            let byte = |i: usize| (i * 37 + 11) as u8;
            let w = Tensor::from_vec(vec![n, blocks, block / each], (0..n * blocks * block / each).map(byte).collect());
            let (x, scales) = (random(&[2, k], 1), random(&[n, blocks], 2));
            let row = usize::div_ceil(blocks, each);
            let z = Tensor::from_vec(vec![n, row], (0..n * row).map(byte).collect());
            let attrs =
                [("K", k), ("N", n), ("bits", bits), ("block_size", block)].map(|(a, v)| (a, OnnxAttr::Int(v as i64)));
            let inputs = [Some(&x), Some(&w), Some(&scales), zeros.then_some(&z)];
            let got = run_onnx(("com.microsoft::MatMulNBits", 1), &attrs, &inputs, 1).unwrap();
            let part = |bytes: &Tensor, at: usize| {
                (bytes.to_i64_vec()[at / each] >> (at % each * bits) & ((1 << bits) - 1)) as f64
            };
            let weight = |c: usize, i: usize| {
                let zero = if zeros { part(&z, c * row * each + i / block) } else { (1 << (bits - 1)) as f64 };
                (part(&w, c * blocks * block + i) - zero) * scales.to_f64_vec()[c * blocks + i / block]
            };
            let xs = x.to_f64_vec();
            let want = (0..2 * n).map(|o| (0..k).map(|i| xs[o / n * k + i] * weight(o % n, i)).sum::<f64>());
            assert_close(&got[0], &Tensor::from_f64(x.dtype(), vec![2, n], want.collect::<Vec<_>>()), 1e-4);
        }
    }

    #[test]
    fn unknown_orders_are_refused_by_name() {
        let (x, w, s) = (random(&[1, 16], 1), Tensor::from_vec(vec![1, 1, 8], vec![0u8; 8]), random(&[1, 1], 2));
        let attrs =
            [("K", 16), ("N", 1), ("block_size", 16), ("weight_prepacked", 1)].map(|(a, v)| (a, OnnxAttr::Int(v)));
        let inputs = [Some(&x), Some(&w), Some(&s)];
        let why = run_onnx(("com.microsoft::MatMulNBits", 1), &attrs, &inputs, 1).unwrap_err();
        assert!(why.contains("`weight_prepacked`"), "{why}");
    }
}
