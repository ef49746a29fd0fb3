//! Reinterprets the bits of elements as another type of the same width. Runs on the host.

use super::cast::{dtype_of_onnx, onnx_code};
use super::{InferContext, Op, OpResult};
use crate::attr_struct;
use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::{TensorType, ValueId};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::tensor::Tensor;

attr_struct! {
    /// The operand's bits as elements of another type of the same width.
    pub struct BitCast("bit_cast") {
        /// The new element type.
        pub to: DType = DType::F32,
    }
}
impl Op for BitCast {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.require(0)?;
        if x.dtype.size() != self.to.size() || self.to == DType::Bool {
            return Err(format!("the bits of {} are no {}", x.dtype, self.to).into());
        }
        Ok(vec![TensorType::new(self.to, x.shape.clone())])
    }
    fn has_compute(&self) -> bool {
        false
    }
    fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        let x = inputs[0].as_ref()?;
        let cast = Tensor::from_bytes(self.to, x.shape().to_vec(), x.bytes().clone());
        Some(cast.map(|t| vec![t]).map_err(Fault::from))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        cx.simple("BitCast", vec![("to", OnnxAttr::Int(onnx_code(self.to)))]);
        Ok(())
    }
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[OnnxImport { op_type: "BitCast", domain: "", since: 26, import: import_bit_cast }];

fn import_bit_cast(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    let to = dtype_of_onnx(cx.attrs.int("to").ok_or("attribute `to` is missing")?)?;
    Ok(vec![cx.add(BitCast { to }, &[x])?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{run, try_run};

    #[test]
    fn bits_stay() {
        let x = Tensor::from_vec(vec![2], vec![1.0f32, -0.0]);
        let bits = run(BitCast { to: DType::I32 }, &[&x]);
        assert_eq!(bits.to_i64_vec(), [0x3f80_0000, i64::from(i32::MIN)]);
        assert_eq!(run(BitCast::default(), &[&bits]), x);
        assert!(try_run(BitCast { to: DType::I64 }, &[&x]).is_err());
    }
}
