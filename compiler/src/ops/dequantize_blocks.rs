//! Weights of a few bits with a scale for each block of neighbours, as floats.
//!
//! The packed form is what stays in memory: where a product reads the result, its kernel decodes each element in
//! registers (`passes::fold_constants` leaves such weights alone).

use super::{InferContext, Op, OpResult};
use crate::attr_struct;
use crate::dtype::DType;
use crate::graph::TensorType;
use crate::int::{Bounds, Dim, Int, simplify};
use crate::ops::cast::onnx_code;
use crate::ops::onnx::{ExportContext, OnnxAttr, OnnxImport};
use crate::ops::unpack_bits;
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{BinaryOp, BufferId, Expr};
use half::f16;

attr_struct! {
    /// `(q - zero) * scale` for integers `q` of `bits` bits. They share bytes (u8) or words (u32) along the last axis,
    /// the first in the lowest bits: operand 0, whose rows are whole blocks of `block` integers, of which the first
    /// `size` count. Each block has a scale (operand 1, `[.., blocks]`) and a zero point (operand 2, numbers in the
    /// shape of the scales; half of the range without it). The result is `[.., size]`, of the scales' type.
    pub struct DequantizeBlocks("dequantize_blocks") {
        /// Bits of an integer: 1, 2, 4 or 8.
        pub bits: i64 = 4,
        /// Elements of a block.
        pub block: i64 = 32,
        /// Elements of the result along the last axis.
        pub size: i64 = 0,
        /// A product may round what it multiplies with the result to 8 bits, in the same blocks.
        pub rounds: bool = false,
    }
}

impl DequantizeBlocks {
    /// Integers in an element of operand 0.
    fn in_word(&self, dtype: DType) -> i64 {
        8 * dtype.size() as i64 / self.bits
    }

    /// The integer at `index`, as f32.
    fn integer(&self, packed: BufferId, dtype: DType, index: &[Int]) -> Expr {
        let mut at = index.to_vec();
        let Some(last) = at.pop() else { return Expr::constant(0.0, DType::F32) };
        let each = Int::new(self.in_word(dtype));
        at.push(last.div(each.clone()));
        unpack_bits::element(Expr::load(packed, at), dtype, self.bits, &last.rem(&each)).cast(DType::U32, DType::F32)
    }
}

impl Op for DequantizeBlocks {
    fn arity(&self) -> (usize, usize) {
        (2, 3)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let (packed, scales) = (cx.require(0)?, cx.require(1)?);
        if ![1, 2, 4, 8].contains(&self.bits) || self.block < 1 || self.size < 1 {
            let DequantizeBlocks { bits, block, size, .. } = self;
            return Err(format!("{size} integers of {bits} bits in blocks of {block}").into());
        }
        if !matches!(packed.dtype, DType::U8 | DType::U32) || packed.rank() == 0 || !scales.dtype.is_float() {
            return Err(format!("decodes {packed:?} with scales {scales:?}, needs u8 or u32, and floats").into());
        }
        let (lead, last) = packed.shape.split_at(packed.rank() - 1);
        let have = last[0].as_const().and_then(|n| n.checked_mul(self.in_word(packed.dtype)));
        let blocks = (self.size - 1) / self.block + 1;
        if have.is_none() || have != blocks.checked_mul(self.block) {
            let DequantizeBlocks { bits, block, size, .. } = self;
            return Err(format!("{packed:?} does not hold {size} integers of {bits} bits in blocks of {block}").into());
        }
        let by_block: Vec<Dim> = lead.iter().cloned().chain([Int::new(blocks)]).collect();
        for i in 1..3 {
            if let Some(ty) = cx.input(i)
                && ty.shape != by_block
            {
                return Err(format!("operand {i} is {ty:?}, the shape {by_block:?} is needed").into());
            }
        }
        Ok(vec![TensorType::new(scales.dtype, [lead, &[Int::new(self.size)]].concat())])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let (packed, scales, zero) = (cx.require(0)?, cx.require(1)?, cx.input(2));
        let (stored, to) = (cx.dtype(packed), cx.dtype(scales));
        let zero = zero.map(|z| (z, cx.dtype(z)));
        let shape = cx.output_type(0).shape.clone();
        let out = cx.compute("", &shape, to, |i| {
            let mut block = i.to_vec();
            if let Some(last) = block.pop() {
                block.push(last.div(Int::new(self.block)));
            }
            let zero = match zero {
                Some((zero, of)) => Expr::load(zero, block.clone()).cast(of, DType::F32),
                None => Expr::constant((1 << (self.bits - 1)) as f64, DType::F32),
            };
            let scale = Expr::load(scales, block).cast(to, DType::F32);
            let above = Expr::binary(BinaryOp::Sub, self.integer(packed, stored, i), zero);
            (above * scale).cast(DType::F32, to)
        });
        cx.output(0, out);
        Ok(())
    }
    /// The same as the tensor expression, a row at a time: files have millions of weights.
    fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        let [packed, scales] = [0, 1].map(|i| inputs.get(i).and_then(Option::as_ref));
        let (packed, scales) = (packed?, scales?);
        if ![1, 2, 4, 8].contains(&self.bits) || self.block < 1 || self.size < 1 {
            return None;
        }
        let (size, block) = (usize::try_from(self.size).ok()?, usize::try_from(self.block).ok()?);
        let (each, range) = (8 / self.bits as usize, (1u32 << self.bits) - 1);
        let blocks = size.div_ceil(block);
        let bytes = (blocks * block / each).max(1);
        let steps = scales.to_f32_vec();
        let zeros = match inputs.get(2).and_then(Option::as_ref) {
            Some(zeros) => zeros.to_f32_vec(),
            None => vec![(1 << (self.bits - 1)) as f32; steps.len()],
        };
        // Operands of other shapes are refused by inference.
        let rows = steps.len() / blocks;
        let fits = scales.shape().last() == Some(&blocks) && packed.bytes().len() == bytes * rows;
        if !fits || zeros.len() != steps.len() {
            return None;
        }
        let mut out: Vec<f32> = Vec::with_capacity(size * rows);
        for (row, data) in packed.bytes().chunks_exact(bytes).enumerate() {
            out.extend((0..size).map(|i| {
                let q = u32::from(data[i / each]) >> (i % each * self.bits as usize) & range;
                let at = row * blocks + i / block;
                (q as f32 - zeros[at]) * steps[at]
            }));
        }
        let mut shape = scales.shape().to_vec();
        *shape.last_mut()? = size;
        let all = match scales.dtype() {
            DType::F32 => Tensor::from_vec(shape, out),
            DType::F16 => Tensor::from_vec(shape, out.into_iter().map(f16::from_f32).collect()),
            _ => return None,
        };
        Some(Ok(vec![all]))
    }
    fn decodes(&self) -> Option<super::Decoding> {
        let DequantizeBlocks { bits, block, size, .. } = *self;
        Some(super::Decoding::Blocks { bits, block, size })
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let out = cx.output_types[0].clone();
        let (scales, packed) = (cx.input_types[1].cloned(), cx.input_types[0].cloned());
        let (scales, packed) = (scales.ok_or("the scales are missing")?, packed.ok_or("the integers are missing")?);
        let by_block = [&scales.shape[..], &[Int::new(1)]].concat();
        let in_blocks = [&scales.shape[..], &[Int::new(self.block)]].concat();
        let mut x = unpack_bits::export_elements(cx, (cx.input(0), packed.dtype), self.bits);
        x = reshaped(cx, x, &in_blocks)?;
        x = cast(cx, x, scales.dtype);
        let zero = match cx.inputs.get(2).cloned().flatten() {
            Some(zero) => {
                let zero = cast(cx, zero, scales.dtype);
                reshaped(cx, zero, &by_block)?
            }
            None => cx.constant(Tensor::from_f64(scales.dtype, vec![], [(1 << (self.bits - 1)) as f64])),
        };
        let scale = reshaped(cx, cx.input(1), &by_block)?;
        x = cx.emit("Sub", vec![x, zero]);
        x = cx.emit("Mul", vec![x, scale]);
        let mut whole = out.shape.clone();
        if let (Some(last), Some(blocks)) = (whole.last_mut(), scales.shape.last()) {
            *last = simplify(&(blocks.clone() * self.block), &Bounds::new());
        }
        let padded = whole != out.shape;
        let (shape, outputs) = (cx.ints(&whole)?, cx.outputs.clone());
        if !padded {
            cx.node("Reshape", vec![x, shape], outputs, vec![]);
            return Ok(());
        }
        x = cx.emit("Reshape", vec![x, shape]);
        let [from, to, axis] = [0, self.size, -1].map(|v| cx.constant(Tensor::ints(&[v])));
        cx.node("Slice", vec![x, from, to, axis], outputs, vec![]);
        Ok(())
    }
}

fn reshaped(cx: &mut ExportContext<'_>, x: String, shape: &[Dim]) -> OpResult<String> {
    let shape = cx.ints(shape)?;
    Ok(cx.emit("Reshape", vec![x, shape]))
}

fn cast(cx: &mut ExportContext<'_>, x: String, to: DType) -> String {
    let name = cx.fresh();
    cx.node("Cast", vec![x], vec![name.clone()], vec![("to", OnnxAttr::Int(onnx_code(to)))]);
    name
}

/// ONNX importers: none, since it is what others are made of.
pub const ONNX: &[OnnxImport] = &[];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{random, run, try_run};

    /// The definition in plain Rust, for words and for bytes, with zero points and without.
    #[test]
    fn words_and_bytes_are_decoded_alike() {
        for (bits, block, blocks, size) in [(4, 16, 2, 27), (2, 32, 1, 32), (8, 8, 3, 24), (1, 32, 2, 64)] {
            let (rows, each) = (3, 8 / bits as usize);
            let row = (blocks * block) as usize / each;
            let bytes: Vec<u8> = (0..rows * row).map(|i| (i * 37 + 11) as u8).collect();
            let words = bytes.chunks(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
            let scales = random(&[rows, blocks as usize], 1);
            let zeros =
                Tensor::from_vec(vec![rows, blocks as usize], (0..rows * blocks as usize).map(|z| z as u8).collect());
            let element = |r: usize, i: usize| i64::from(bytes[r * row + i / each]) >> (i % each * bits as usize);
            let of = |zero: &dyn Fn(usize) -> i64| {
                let value = |n: usize| {
                    let (r, i) = (n / size as usize, n % size as usize);
                    let at = r * blocks as usize + i / block as usize;
                    ((element(r, i) & ((1 << bits) - 1)) - zero(at)) as f64 * scales.to_f64_vec()[at]
                };
                Tensor::from_f64(DType::F32, vec![rows, size as usize], (0..rows * size as usize).map(value))
            };
            let op = DequantizeBlocks { bits, block, size, rounds: false };
            let packed =
                [Tensor::from_vec(vec![rows, row / 4], words), Tensor::from_vec(vec![rows, row], bytes.clone())];
            for x in &packed {
                assert_eq!(run(op.clone(), &[x, &scales]), of(&|_| 1 << (bits - 1)), "{bits} bits of {:?}", x.dtype());
                assert_eq!(
                    run(op.clone(), &[x, &scales, &zeros]),
                    of(&|at| at as i64),
                    "{bits} bits of {:?}",
                    x.dtype()
                );
            }
        }
    }

    #[test]
    fn rows_are_whole_blocks_with_a_scale_each() {
        let (words, scales) = (Tensor::from_vec(vec![1, 4], vec![0u32; 4]), random(&[1, 2], 1));
        let of = |size, scales: &Tensor| {
            try_run(DequantizeBlocks { block: 16, size, ..Default::default() }, &[&words, scales])
        };
        assert!(of(32, &scales).is_ok() && of(20, &scales).is_ok());
        assert!(of(33, &scales).is_err(), "three blocks");
        assert!(of(32, &random(&[1, 1], 1)).is_err());
        assert!(try_run(DequantizeBlocks { bits: 3, block: 16, size: 32, rounds: false }, &[&words, &scales]).is_err());
    }
}
