//! Weights with a scale per block: `MatMulNBits` and `GatherBlockQuantized`, composed of other ops on import.

use super::OpResult;
use super::binary::{Add, Mul, Sub};
use super::control::Const;
use super::dequantize_blocks::DequantizeBlocks;
use super::gather::Gather;
use super::linear_attention::range;
use super::matmul::MatMul;
use super::permute::normalize_axis;
use super::reshape::Reshape;
use super::transpose::Transpose;
use super::unpack_bits::UnpackBits;
use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::{Constant, ValueId};
use crate::int::{Int, const_dims};
use crate::name::Name;
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

/// Packed integers as rows of so many bytes, behind the dimensions `lead`. A constant whose rows are whole words becomes
/// one of u32, with the same data; other values stay u8.
fn rows_of_words(cx: &mut ImportContext<'_, '_>, packed: ValueId, lead: &[Int], bytes: i64) -> OpResult<ValueId> {
    let f = &cx.b.function;
    // A table that is embedding and classifier comes to the one as it stands and to the other through a reshape.
    let reshaped = f.def_op::<Reshape>(packed).and_then(|(n, _)| f.nodes[n].inputs[0]);
    let held = f.def_op::<Const>(reshaped.unwrap_or(packed)).map(|c| c.1.name);
    let held = held.and_then(|name| cx.b.module.constants.get(&name).map(|c| (name, c.clone())));
    let whole = const_dims(lead).filter(|_| bytes % 4 == 0);
    let (Some((name, bytes_of)), Some(mut shape)) = (held, whole) else {
        return cx.reshape(packed, [lead, &[Int::new(bytes)]].concat());
    };
    shape.push(bytes as usize / 4);
    let needed = shape.iter().try_fold(4usize, |all, n| all.checked_mul(*n));
    if needed != Some(bytes_of.byte_len()) {
        return Err(format!("{} bytes, {shape:?} words are needed", bytes_of.byte_len()).into());
    }
    let words = format!("{name}_words");
    let same = |c: &Constant| c.dtype == DType::U32 && c.shape == shape && c.data.is_same(&bytes_of.data);
    let known = Name::new(&words);
    if cx.b.module.constants.get(&known).is_some_and(same) {
        return Ok(cx.b.const_ref(known));
    }
    let words = cx.b.module.fresh_name(&words);
    cx.b.module.constants.insert(words, Constant { dtype: DType::U32, shape, data: bytes_of.data });
    Ok(cx.b.const_ref(words))
}

/// Weights `[n, k]` of blocks along `k` (operand 1, `[n, blocks, bytes]`), times their scales (operand 2), less their
/// zero points (operand 3): half of the range where there are none.
fn weights(cx: &mut ImportContext<'_, '_>, dtype: DType) -> OpResult<ValueId> {
    let (k, n) = (cx.positive_attr("K")?, cx.positive_attr("N")?);
    let (bits, block) = (bits(cx)?, cx.positive_attr("block_size")?);
    let blocks = (k - 1) / block + 1;
    let Some(padded) = blocks.checked_mul(block).filter(|all| all.checked_mul(bits).is_some()) else {
        return Err(format!("`K` = {k} in blocks of `block_size` = {block} is more than memory holds").into());
    };
    if cx.ty(1)?.dtype != DType::U8 {
        return Err(format!("the weights are {}, not packed in u8", cx.ty(1)?.dtype).into());
    }
    let packed = cx.input(1)?;
    let packed = rows_of_words(cx, packed, &[Int::new(n)], padded * bits / 8)?;
    let by_block = vec![Int::new(n), Int::new(blocks)];
    let scales = cx.input(2)?;
    let scales = cx.cast(scales, dtype)?;
    let scales = cx.reshape(scales, by_block.clone())?;
    let mut operands = vec![packed, scales];
    if let Some(mut zero) = cx.opt(3) {
        if cx.type_of(zero).dtype == DType::U8 {
            let bytes = (blocks * bits - 1) / 8 + 1;
            zero = cx.reshape(zero, vec![Int::new(n), Int::new(bytes)])?;
            zero = unpacked(cx, zero, bits, blocks)?;
        }
        operands.push(cx.reshape(zero, by_block)?);
    }
    let rounds = cx.attrs.int("accuracy_level") == Some(4);
    cx.add(DequantizeBlocks { bits, block, size: k, rounds }, &operands)
}

/// `a w^T + bias`. With `accuracy_level` 4 a product may round its data to 8 bits in blocks.
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
    let (data, ty) = (cx.input(0)?, cx.ty(0)?);
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
    let (at, scales) = (cx.input(1)?, cx.input(2)?);
    if cx.type_of(scales).rank() != rank {
        return Err(format!("the scales are {:?}, the table is {ty:?}: the ranks differ", cx.type_of(scales)).into());
    }
    let rows = |cx: &mut ImportContext<'_, '_>, table: ValueId| cx.add(Gather { axis: 0 }, &[table, at]);
    let (Some(&[width]), Some(&[count])) =
        (const_dims(&ty.shape[rank - 1..]).as_deref(), const_dims(&cx.ty(2)?.shape[rank - 1..]).as_deref())
    else {
        return Err(Fault::unsupported("the width of the table is not known at compile time"));
    };
    let signed = ty.dtype == DType::I8;
    let (width, count) = (width as i64 * if signed { 1 } else { 8 / bits }, count as i64);
    if count.checked_mul(block) != Some(width) {
        return Err(Fault::unsupported(format!("unsupported: {count} blocks of {block} for {width} columns")));
    }
    match ty.dtype {
        DType::U8 => {
            let table = rows_of_words(cx, data, &ty.shape[..rank - 1], width * bits / 8)?;
            let mut operands = vec![rows(cx, table)?, rows(cx, scales)?];
            if let Some(zero) = cx.opt(3) {
                let zero = if bits < 8 { unpacked(cx, zero, bits, count)? } else { zero };
                operands.push(rows(cx, zero)?);
            }
            Ok(vec![cx.add(DequantizeBlocks { bits, block, size: width, rounds: false }, &operands)?])
        }
        DType::I8 => signed_rows(cx, [data, scales], &rows, (block, count)),
        other => Err(format!("the table is {other}, not of bytes").into()),
    }
}

/// Rows of signed integers, around 0 where there is no zero point.
fn signed_rows(
    cx: &mut ImportContext<'_, '_>,
    [data, scales]: [ValueId; 2],
    rows: &dyn Fn(&mut ImportContext<'_, '_>, ValueId) -> OpResult<ValueId>,
    (block, count): (i64, i64),
) -> OpResult<Vec<ValueId>> {
    let (data, scales) = (rows(cx, data)?, rows(cx, scales)?);
    let dtype = cx.type_of(scales).dtype;
    let shape = cx.type_of(data).shape;
    let lead = &shape[..shape.len() - 1];
    let [blocked, column] = [block, 1].map(|last| [lead, &[Int::new(count), Int::new(last)]].concat());
    let x = cx.reshape(data, blocked)?;
    let mut x = cx.cast(x, dtype)?;
    if let Some(zero) = cx.opt(3) {
        let zero = rows(cx, zero)?;
        let zero = cx.cast(zero, dtype)?;
        let zero = cx.reshape(zero, column.clone())?;
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
