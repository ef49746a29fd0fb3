//! Reductions over axes that are known only at run time.

use super::reduce::{Reduce, ReduceKind, resolve_axes};
use super::{InferContext, Op, OpRef, OpResult, Precision};
use crate::attr_struct;
use crate::graph::{Module, TensorType, ValueId};
use crate::int::Int;
use crate::interpreter::eval_node;
use crate::name::Name;
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::tensor::Tensor;

/// ONNX importers: none makes these ops as they are.
pub const ONNX: &[OnnxImport] = &[];

attr_struct! {
    /// Reduces operand 0 over the axes in the integer operand 1, of which there is at least one.
    pub struct ReduceAt("reduce_at") {
        /// The kind of reduction.
        pub kind: ReduceKind = ReduceKind::Sum,
        /// Keeps reduced axes as size 1.
        pub keepdims: bool = false,
        /// Dimensions of the result: symbols that the run defines.
        pub dims: Vec<Int> = vec![],
    }
}

impl Op for ReduceAt {
    fn arity(&self) -> (usize, usize) {
        (2, 2)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let (x, axes) = (cx.require(0)?, cx.require(1)?);
        if !axes.dtype.is_int() || axes.rank() != 1 {
            return Err(format!("axes are {}{:?}, need a list of integers", axes.dtype, axes.shape).into());
        }
        Ok(vec![TensorType::new(x.dtype, self.dims.clone())])
    }
    fn has_compute(&self) -> bool {
        false
    }
    fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        let (x, axes) = (inputs.first()?.as_ref()?, inputs.get(1)?.as_ref()?);
        let known = self.over(axes, x.shape().len());
        Some(known.and_then(|op| eval_node(&op, &[Some(x.clone())], &Module::new("main"))))
    }
    fn defined_symbols(&self) -> Vec<Name> {
        self.dims.iter().filter_map(Int::as_var).collect()
    }
    fn size_operands(&self) -> &'static [usize] {
        &[1]
    }
    fn with_sizes(&self, operands: &[Option<Tensor>]) -> OpResult<(OpRef, Vec<Option<usize>>)> {
        let axes = operands.get(1).and_then(Option::as_ref).ok_or("the axes are missing")?;
        let rank = if self.keepdims { self.dims.len() } else { self.dims.len() + axes.len() };
        Ok((self.over(axes, rank)?, vec![Some(0)]))
    }
    fn precision(&self) -> Precision {
        Precision::Never
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        cx.simple(self.kind.onnx(), vec![("keepdims", OnnxAttr::Int(self.keepdims as i64))]);
        Ok(())
    }
}

impl ReduceAt {
    /// The reduction of data of this rank over these axes.
    fn over(&self, axes: &Tensor, rank: usize) -> OpResult<OpRef> {
        let axes = resolve_axes(&axes.to_i64_vec(), rank, false)?;
        Ok(Reduce { kind: self.kind, axes, keepdims: self.keepdims }.into())
    }
}

/// Imports a reduction over `count` axes in operand 1.
pub(super) fn import_run_time_axes(
    cx: &mut ImportContext<'_, '_>,
    kind: ReduceKind,
    keepdims: bool,
    count: usize,
) -> OpResult<Vec<ValueId>> {
    let rank = cx.ty(0)?.rank();
    if count > rank {
        return Err(format!("{count} axes of a tensor of rank {rank}").into());
    }
    let left = if keepdims { rank } else { rank - count };
    let dims = (0..left).map(|d| cx.fresh_dim("reduce", d)).collect();
    let inputs = cx.inputs.clone();
    cx.add_multi(ReduceAt { kind, keepdims, dims }, inputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{assert_close, random, run};

    #[test]
    fn agrees_with_known_axes() {
        let x = random(&[2, 3, 4], 1);
        let dims = |n: usize| (0..n).map(|d| Int::var(format!("d{d}").as_str())).collect();
        let want = run(Reduce::new(ReduceKind::Mean, &[0, 2], true), &[&x]);
        let op = ReduceAt { kind: ReduceKind::Mean, keepdims: true, dims: dims(3) };
        assert_close(&run(op, &[&x, &Tensor::ints(&[-1, 0])]), &want, 0.0);
        let want = run(Reduce::new(ReduceKind::Max, &[1], false), &[&x]);
        let op = ReduceAt { kind: ReduceKind::Max, keepdims: false, dims: dims(2) };
        assert_close(&run(op, &[&x, &Tensor::ints(&[1])]), &want, 0.0);
    }
}
