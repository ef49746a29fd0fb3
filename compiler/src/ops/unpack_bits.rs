//! Unpacks integers of a few bits from bytes: weights of 2, 4 or 8 bits.

use super::{InferContext, Op, OpResult};
use crate::attr_struct;
use crate::dtype::DType;
use crate::graph::TensorType;
use crate::int::{Bounds, Dim, Int, simplify};
use crate::ops::onnx::{ExportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{BinaryOp, Expr};

attr_struct! {
    /// Bytes `[.., n]` as the integers that share them, `[.., n * 8 / bits]`: u8, or i8 in two's complement. The first
    /// of a byte has its lowest bits.
    pub struct UnpackBits("unpack_bits") {
        /// Bits of an integer: 1, 2, 4 or 8.
        pub bits: i64 = 4,
        /// Whether the highest bit is a sign.
        pub signed: bool = false,
    }
}
impl UnpackBits {
    /// Integers in a byte.
    fn in_byte(&self) -> i64 {
        8 / self.bits
    }
}
impl Op for UnpackBits {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.require(0)?;
        if ![1, 2, 4, 8].contains(&self.bits) {
            return Err(format!("integers of {} bits do not fill bytes", self.bits).into());
        }
        if x.dtype != DType::U8 || x.rank() == 0 {
            return Err(format!("unpacks {x:?}, needs a list of u8").into());
        }
        let mut shape = x.shape.clone();
        let last = shape.len() - 1;
        let wide: Dim = shape[last].clone() * self.in_byte();
        shape[last] = simplify(&wide, &Bounds::new());
        Ok(vec![TensorType::new(if self.signed { DType::I8 } else { DType::U8 }, shape)])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let x = cx.require(0)?;
        let out = cx.output_type(0).clone();
        let (each, range) = (Int::new(self.in_byte()), 1 << self.bits);
        let unpacked = cx.compute("", &out.shape, out.dtype, |i| {
            let mut at = i.to_vec();
            let Some(last) = at.pop() else { return Expr::int(0, out.dtype) };
            at.push(last.div(each.clone()));
            let value = element(Expr::load(x, at), DType::U8, self.bits, &last.rem(&each)).cast(DType::U32, DType::I32);
            let value = match self.signed {
                true => {
                    let negative = Expr::binary(BinaryOp::Ge, value.clone(), Expr::int(range / 2, DType::I32));
                    Expr::select(negative, value.clone() - Expr::int(range, DType::I32), value)
                }
                false => value,
            };
            value.cast(DType::I32, out.dtype)
        });
        cx.output(0, unpacked);
        Ok(())
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let range = 1 << self.bits;
        let out = cx.output_types[0].clone();
        let mut value = export_elements(cx, (cx.input(0), DType::U8), self.bits);
        if self.signed {
            // The sign: values of at least half of the range are that much below 0.
            let wide = |cx: &mut ExportContext<'_>, x: String, to: DType| {
                let name = cx.fresh();
                let code = OnnxAttr::Int(super::cast::onnx_code(to));
                cx.node("Cast", vec![x], vec![name.clone()], vec![("to", code)]);
                name
            };
            value = wide(cx, value, DType::I32);
            let half = cx.constant(Tensor::scalar(range / 2));
            let raised = cx.emit("Add", vec![value, half.clone()]);
            let range = cx.constant(Tensor::scalar(range));
            let wrapped = cx.emit("Mod", vec![raised, range]);
            value = cx.emit("Sub", vec![wrapped, half]);
            value = wide(cx, value, DType::I8);
        }
        let shape = cx.ints(&out.shape)?;
        let outputs = cx.outputs.clone();
        cx.node("Reshape", vec![value, shape], outputs, vec![]);
        Ok(())
    }
}

/// The unsigned integer number `i` of those that share `word`, of type `dtype` (u8 or u32), as u32.
///
/// In a word of several bytes, the integers at one place of all bytes are masked together, then each byte is taken
/// alone: processors convert a byte of a word at once.
pub(super) fn element(word: Expr, dtype: DType, bits: i64, i: &Int) -> Expr {
    let (in_byte, word) = (Int::new(8 / bits), word.cast(dtype, DType::U32));
    let shifted = |e: Expr, by: Int| Expr::binary(BinaryOp::Shr, e, Expr::Index(by, DType::U32));
    let masked = |e: Expr, mask: i64| Expr::binary(BinaryOp::BitAnd, e, Expr::int(mask, DType::U32));
    let range = (1 << bits) - 1;
    let byte = match dtype.size() {
        1 => return masked(shifted(word, i.clone() * bits), range),
        _ if bits == 8 => word,
        _ => masked(shifted(word, i.rem(&in_byte) * bits), range * 0x0101_0101),
    };
    masked(shifted(byte, i.clone().div(in_byte) * 8), 0xff)
}

/// Emits the unsigned integers of `bits` that share the elements of a value of type u8 or u32, with one dimension more
/// than that: u8.
pub(super) fn export_elements(cx: &mut ExportContext<'_>, (x, dtype): (String, DType), bits: i64) -> String {
    let each = 8 * dtype.size() as i64 / bits;
    let shifts: Vec<f64> = (0..each).map(|i| (i * bits) as f64).collect();
    let shifts = cx.constant(Tensor::from_f64(dtype, vec![each as usize], shifts));
    let most = cx.constant(Tensor::from_f64(dtype, vec![], [((1 << bits) - 1) as f64]));
    let axis = cx.constant(Tensor::ints(&[-1]));
    let words = cx.emit("Unsqueeze", vec![x, axis]);
    let shifted = cx.fresh();
    let right = vec![("direction", OnnxAttr::Str("RIGHT".into()))];
    cx.node("BitShift", vec![words, shifts], vec![shifted.clone()], right);
    let elements = cx.emit("BitwiseAnd", vec![shifted, most]);
    if dtype == DType::U8 {
        return elements;
    }
    let bytes = cx.fresh();
    let code = OnnxAttr::Int(super::cast::onnx_code(DType::U8));
    cx.node("Cast", vec![elements], vec![bytes.clone()], vec![("to", code)]);
    bytes
}

/// ONNX importers: none, since it is a part of operators and of stored types.
pub const ONNX: &[OnnxImport] = &[];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{run, try_run};

    #[test]
    fn the_lowest_bits_come_first() {
        let x = Tensor::from_vec(vec![1, 2], vec![0x8fu8, 0x27]);
        let of = |bits, signed| run(UnpackBits { bits, signed }, &[&x]);
        assert_eq!((of(4, false).dtype(), of(4, false).to_i64_vec()), (DType::U8, vec![15, 8, 7, 2]));
        assert_eq!((of(4, true).shape().to_vec(), of(4, true).to_i64_vec()), (vec![1, 4], vec![-1, -8, 7, 2]));
        assert_eq!(of(2, true).to_i64_vec(), [-1, -1, 0, -2, -1, 1, -2, 0]);
        assert_eq!(of(8, true).to_i64_vec(), [0x8f - 256, 0x27]);
        assert!(try_run(UnpackBits { bits: 3, signed: false }, &[&x]).is_err());
        assert!(try_run(UnpackBits::default(), &[&Tensor::scalar(1u8)]).is_err());
    }
}
