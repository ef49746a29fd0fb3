//! Shapes as values.

use super::{InferContext, Op, OpResult};
use crate::attr_struct;
use crate::dtype::DType;
use crate::graph::{TensorType, ValueId};
use crate::int::Dim;
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
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
    fn takes_types_alone(&self) -> bool {
        true
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
    fn takes_types_alone(&self) -> bool {
        true
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

fn import_shape(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let op = Shape { start: cx.attrs.int("start").unwrap_or(0), end: cx.attrs.int("end") };
    let x = cx.input(0)?;
    Ok(vec![cx.add(op, &[x])?])
}

fn import_size(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    Ok(vec![cx.add(Size {}, &[x])?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{FunctionBuilder, Module};
    use crate::ops::binary::{Div, Mul};
    use crate::ops::concat::Concat;
    use crate::ops::gather::Gather;
    use crate::ops::reshape::{Reshape, Unsqueeze};
    use crate::ops::slice::Slice;
    use crate::ops::testing::run_both;

    #[test]
    fn parts_of_a_shape() {
        let x = Tensor::zeros(DType::F32, vec![2, 3, 4, 5]);
        let of = |start, end| run_both(Shape { start, end }, &[&x]).remove(0).to_i64_vec();
        assert_eq!(of(0, None), [2, 3, 4, 5]);
        assert_eq!(of(-2, None), [4, 5]);
        assert_eq!(of(1, Some(-1)), [3, 4]);
        assert_eq!(of(3, Some(1)), [0i64; 0]);
        assert_eq!(run_both(Size {}, &[&x])[0].to_i64_vec(), [120]);
    }

    /// What exporters write for "flatten to heads": shape, gather, arithmetic, concat, reshape.
    #[test]
    fn shape_arithmetic_stays_symbolic() {
        let mut module = Module::new("main");
        let mut b = FunctionBuilder::new(&mut module, "main");
        let (n, t) = (Dim::var("n"), Dim::var("t"));
        let x = b.param("x", TensorType::new(DType::F32, vec![n.clone(), t.clone(), Dim::new(768)]));
        let number = |b: &mut FunctionBuilder<'_>, v: i64| b.constant("c", &Tensor::scalar(v));
        let shape = b.add(Shape::default(), &[x]).unwrap();
        let axis = number(&mut b, 0);
        let batch = b.add(Gather { axis: 0 }, &[shape, axis]).unwrap();
        let batch = b.add(Unsqueeze { axes: vec![0] }, &[batch]).unwrap();
        let middle = Slice { starts: vec![Dim::new(1)], ends: vec![Dim::new(2)], ..Slice::default() };
        let middle = b.add(middle, &[shape]).unwrap();
        let last = Slice { starts: vec![Dim::new(-1)], ends: vec![Dim::new(i64::MAX)], ..Slice::default() };
        let last = b.add(last, &[shape]).unwrap();
        let (twelve, two) = (number(&mut b, 12), number(&mut b, 2));
        let heads = b.add(Div {}, &[last, twelve]).unwrap();
        let double = b.add(Mul {}, &[middle, two]).unwrap();
        let target = b.add(Concat { axis: 0 }, &[batch, double, heads]).unwrap();
        let target = crate::ops::int_value(b.module, &b.function, target, 0).unwrap();
        assert_eq!(target, [n.clone(), t.clone() * 2, Dim::new(64)]);
        let rest = b.add(Reshape::to(vec![target[0].clone(), target[2].clone(), Dim::new(-1)]), &[x]).unwrap();
        assert_eq!(b.ty(rest).shape, [n, Dim::new(64), t * 12]);
    }

    #[test]
    fn long_chains_and_diamonds_of_shape_arithmetic_end() {
        let mut module = Module::new("main");
        let mut b = FunctionBuilder::new(&mut module, "main");
        let x = b.param("x", TensorType::new(DType::F32, vec![Dim::var("n")]));
        let mut v = b.add(Size {}, &[x]).unwrap();
        for _ in 0..60 {
            v = b.add(crate::ops::binary::Min {}, &[v, v]).unwrap();
        }
        assert_eq!(crate::ops::int_value(b.module, &b.function, v, 0), Some(vec![Dim::var("n")]));
        for _ in 0..60 {
            v = b.add(crate::ops::binary::Min {}, &[v, v]).unwrap();
        }
        assert_eq!(crate::ops::int_value(b.module, &b.function, v, 0), None);
    }
}
