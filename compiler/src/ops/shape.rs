//! Shapes as values.

use super::{InferContext, Op, OpResult};
use crate::attr_struct;
use crate::dtype::DType;
use crate::graph::{TensorType, ValueId};
use crate::int::Dim;
use crate::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{Cond, Expr};

attr_struct! {
    /// The dimensions `start..end` of the operand, as i64.
    pub struct Shape("shape") {
        /// First axis; negative counts from the end.
        pub start: i64 = 0,
        /// Axis after the last; negative counts from the end, none is the rank.
        pub end: Option<i64> = None,
    }
}
impl Shape {
    fn range(&self, rank: usize) -> std::ops::Range<usize> {
        let rank = rank as i64;
        let clamp = |a: i64| (if a < 0 { a.saturating_add(rank) } else { a }).clamp(0, rank) as usize;
        let (start, end) = (clamp(self.start), self.end.map_or(rank as usize, clamp));
        start..end.max(start)
    }
}
impl Op for Shape {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        Ok(vec![TensorType::fixed(DType::I64, &[self.range(cx.require(0)?.rank()).len()])])
    }
    fn infer_value(&self, cx: &InferContext<'_>) -> Option<Vec<Dim>> {
        let shape = &cx.input(0)?.shape;
        Some(shape[self.range(shape.len())].to_vec())
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let x = cx.require(0)?;
        let shape = cx.shape(x);
        let dims = shape[self.range(shape.len())].to_vec();
        let out = cx.compute("", &[Dim::from(dims.len())], DType::I64, |i| {
            let mut list = dims.iter().enumerate().rev().map(|(n, d)| (n, Expr::Index(d.clone(), DType::I64)));
            let last = list.next().map_or(Expr::int(0, DType::I64), |l| l.1);
            list.fold(last, |rest, (n, d)| Expr::guarded(vec![Cond::lt(&i[0], n + 1)], d, rest))
        });
        cx.output(0, out);
        Ok(())
    }
    fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        let shape = inputs[0].as_ref()?.shape();
        let dims: Vec<i64> = shape[self.range(shape.len())].iter().map(|&d| d as i64).collect();
        Some(Ok(vec![Tensor::ints(&dims)]))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let mut attrs = vec![];
        if self.start != 0 {
            attrs.push(("start", OnnxAttr::Int(self.start)));
        }
        attrs.extend(self.end.map(|e| ("end", OnnxAttr::Int(e))));
        cx.simple("Shape", attrs);
        Ok(())
    }
}

attr_struct! {
    /// The number of elements, as an i64 scalar.
    pub struct Size("size") {}
}
impl Op for Size {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        cx.require(0)?;
        Ok(vec![TensorType::fixed(DType::I64, &[])])
    }
    fn infer_value(&self, cx: &InferContext<'_>) -> Option<Vec<Dim>> {
        Some(vec![cx.input(0)?.numel()])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let n = crate::int::product(&cx.shape(cx.require(0)?));
        let out = cx.compute("", &[], DType::I64, |_| Expr::Index(n, DType::I64));
        cx.output(0, out);
        Ok(())
    }
    fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        Some(Ok(vec![Tensor::scalar(inputs[0].as_ref()?.len() as i64)]))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        cx.simple("Size", vec![]);
        Ok(())
    }
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "Shape", domain: "", since: 1, import: import_shape },
    OnnxImport { op_type: "Size", domain: "", since: 1, import: import_size },
];

fn import_shape(cx: &mut ImportContext<'_, '_>) -> Result<Vec<ValueId>, String> {
    let op = Shape { start: cx.attrs.int("start").unwrap_or(0), end: cx.attrs.int("end") };
    let x = cx.input(0)?;
    Ok(vec![cx.add(op, &[x])?])
}

fn import_size(cx: &mut ImportContext<'_, '_>) -> Result<Vec<ValueId>, String> {
    let x = cx.input(0)?;
    Ok(vec![cx.add(Size {}, &[x])?])
}
