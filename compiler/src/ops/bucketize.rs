//! Counts the sorted bounds that are at or below each element (NumPy's `searchsorted`, PyTorch's `bucketize`).

use super::{InferContext, Op, OpResult};
use crate::attr_struct;
use crate::dtype::DType;
use crate::graph::TensorType;
use crate::ops::onnx::{ExportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{BinaryOp, Combiner, Expr};

attr_struct! {
    /// For each element of operand 0 the number of bounds (operand 1, of rank 1) that are at or below it; i32. 0 for
    /// NaN.
    pub struct Bucketize("bucketize") {}
}
impl Op for Bucketize {
    fn arity(&self) -> (usize, usize) {
        (2, 2)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let (x, bounds) = (cx.require(0)?, cx.require(1)?);
        if bounds.rank() != 1 || bounds.dtype != x.dtype || x.dtype == DType::Bool {
            return Err(format!("{bounds:?} are no bounds of {x:?}").into());
        }
        Ok(vec![TensorType::new(DType::I32, x.shape.clone())])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let (x, bounds) = (cx.require(0)?, cx.require(1)?);
        let (shape, count) = (cx.shape(x), cx.shape(bounds));
        let reached = cx.reduce("", &shape, DType::I32, &count, Combiner::Sum, |i, r| {
            let reached = Expr::binary(BinaryOp::Ge, Expr::load(x, i.to_vec()), Expr::load(bounds, r.to_vec()));
            Expr::select(reached, Expr::int(1, DType::I32), Expr::int(0, DType::I32))
        });
        cx.output(0, reached);
        Ok(())
    }
    fn precision(&self) -> super::Precision {
        super::Precision::Never
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let axis = cx.constant(Tensor::ints(&[-1]));
        let column = cx.emit("Unsqueeze", vec![cx.input(0), axis.clone()]);
        let reached = cx.emit("GreaterOrEqual", vec![column, cx.input(1)]);
        let counted = cx.fresh();
        let to = OnnxAttr::Int(super::cast::onnx_code(DType::I32));
        cx.node("Cast", vec![reached], vec![counted.clone()], vec![("to", to)]);
        let outputs = cx.outputs.clone();
        cx.node("ReduceSum", vec![counted, axis], outputs, vec![("keepdims", OnnxAttr::Int(0))]);
        Ok(())
    }
}

/// ONNX importers: none, since it is a part of casts to narrow floats.
pub const ONNX: &[OnnxImport] = &[];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{run, try_run};

    #[test]
    fn bounds_that_are_reached_count() {
        let x = Tensor::from_vec(vec![5], vec![-1.0f32, 0.0, 0.5, 9.0, f32::NAN]);
        let bounds = Tensor::from_vec(vec![3], vec![0.0f32, 0.25, 1.0]);
        assert_eq!(run(Bucketize {}, &[&x, &bounds]).to_i64_vec(), [0, 1, 2, 3, 0]);
        assert!(try_run(Bucketize {}, &[&x, &Tensor::scalar(1.0f32)]).is_err());
    }
}
