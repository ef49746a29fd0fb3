//! Positions of extreme elements.

use super::permute::{PermutedOp, normalize_axis, permutation_without, permuted_axis};
use super::reduce::{operand_index, reduced_shape};
use super::softmax::{Split, check_axes, import_axes};
use super::{InferContext, Op, OpResult};
use crate::dtype::DType;
use crate::graph::{TensorType, ValueId};
use crate::int::{Dim, Int, flatten_index, product};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tir::{BinaryOp, BufferId, Combiner, Expr, UnaryOp};
use crate::{attr_enum, attr_struct};

attr_enum! {
    /// Which element is looked for.
    pub enum Extreme {
        /// The largest.
        Max = "max",
        /// The smallest.
        Min = "min",
    }
}
impl Extreme {
    fn combiner(self) -> Combiner {
        match self {
            Extreme::Max => Combiner::Max,
            Extreme::Min => Combiner::Min,
        }
    }
}

attr_struct! {
    /// Position along `axis` of the largest or smallest element, as i64. The first NaN counts as that element, as in
    /// NumPy; with `select_last` the last NaN.
    pub struct ArgReduce("arg_reduce") {
        /// Which element.
        pub kind: Extreme = Extreme::Max,
        /// The axis.
        pub axis: usize = 0,
        /// Keeps the axis as size 1.
        pub keepdims: bool = false,
        /// Of several equal elements the last counts, not the first.
        pub select_last: bool = false,
    }
}

attr_struct! {
    /// 1 at the first largest element (or the first NaN) over all of `axes` together, 0 elsewhere.
    pub struct Hardmax("hardmax") {
        /// The axes, ascending.
        pub axes: Vec<usize> = vec![],
    }
}

/// Where the extreme over the axes of a split is.
struct Place {
    /// For a float, positions of NaN are told apart from others by an offset of `count`.
    buffer: BufferId,
    count: Option<Int>,
}

impl Place {
    /// The position in the flattened axes of the result with index `o`, as i32.
    fn at(&self, o: Vec<Int>) -> Expr {
        let found = Expr::load(self.buffer, o);
        let Some(count) = &self.count else { return found };
        let count = Expr::Index(count.clone(), DType::I32);
        let beyond = Expr::binary(BinaryOp::Ge, found.clone(), count.clone());
        Expr::select(beyond, found.clone() - count, found)
    }
}

/// Stages `best` and `place`: the extreme over the split's axes and its position in the flattened axes.
///
/// Any NaN comes before all numbers, whether or not `best` is NaN. For the first position NaN at `p` is `p` and a
/// number there `p + count`, of which the least is taken; for the last position it is the other way round. A position
/// that is not found is none: it is below 0, or beyond all.
fn locate(
    cx: &mut ComputeContext<'_>,
    split: &Split,
    shape: &[Int],
    keepdims: bool,
    (kind, last): (Extreme, bool),
) -> OpResult<Place> {
    let x = cx.require(0)?;
    let dtype = cx.dtype(x);
    let extents = split.reduced(&cx.shape(x));
    let best = cx.reduce("best", shape, dtype, &extents, kind.combiner(), |o, r| {
        Expr::load(x, operand_index(split, keepdims, o, r))
    });
    let (combiner, none) = if last { (Combiner::Max, -1) } else { (Combiner::Min, i32::MAX as i64) };
    let count = dtype.is_float().then(|| product(&extents));
    let buffer = cx.reduce("place", shape, DType::I32, &extents, combiner, |o, r| {
        let value = Expr::load(x, operand_index(split, keepdims, o, r));
        let equal = Expr::binary(BinaryOp::Eq, value.clone(), Expr::load(best, o.to_vec()));
        let here = flatten_index(r, &extents);
        let index = |i: Int| Expr::Index(i, DType::I32);
        let Some(count) = &count else {
            return Expr::select(equal, index(here), Expr::int(none, DType::I32));
        };
        let beyond = here.clone() + count;
        let (number, nan) = if last { (here, beyond) } else { (beyond, here) };
        let number = Expr::select(equal, index(number), Expr::int(none, DType::I32));
        Expr::select(Expr::unary(UnaryOp::IsNan, value), index(nan), number)
    });
    Ok(Place { buffer, count })
}

fn check_not_empty(x: &TensorType, axes: &[usize]) -> OpResult<()> {
    check_axes(axes, x.rank())?;
    if x.dtype == DType::Bool {
        return Err("data is bool".into());
    }
    if axes.iter().any(|&a| x.shape[a].is(0)) {
        return Err(format!("looks for an element in an empty axis of {:?}", x.shape).into());
    }
    Ok(())
}

impl Op for ArgReduce {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.require(0)?;
        check_not_empty(x, &[self.axis])?;
        Ok(vec![TensorType::new(DType::I64, reduced_shape(&x.shape, &[self.axis], self.keepdims))])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let split = Split { rank: cx.shape(cx.require(0)?).len(), axes: vec![self.axis] };
        let shape = cx.output_type(0).shape.clone();
        let place = locate(cx, &split, &shape, self.keepdims, (self.kind, self.select_last))?;
        let out = cx.compute("", &shape, DType::I64, |o| place.at(o.to_vec()).cast(DType::I32, DType::I64));
        cx.output(0, out);
        Ok(())
    }
    fn positions(&self, _result: usize, operands: &[Option<&TensorType>]) -> Option<Dim> {
        operands.first()?.as_ref()?.shape.get(self.axis).cloned()
    }
    fn permuted(&self, perm: &[usize], _cx: &InferContext<'_>) -> Option<PermutedOp> {
        let op = ArgReduce { axis: permuted_axis(self.axis, perm), ..self.clone() };
        let mut out = PermutedOp::uniform(op, perm, 1, 1);
        if !self.keepdims {
            out.results = vec![Some(permutation_without(perm, &[self.axis]))];
        }
        Some(out)
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let name = if self.kind == Extreme::Max { "ArgMax" } else { "ArgMin" };
        cx.simple(
            name,
            vec![
                ("axis", OnnxAttr::Int(self.axis as i64)),
                ("keepdims", OnnxAttr::Int(self.keepdims as i64)),
                ("select_last_index", OnnxAttr::Int(self.select_last as i64)),
            ],
        );
        Ok(())
    }
}

impl Op for Hardmax {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.require(0)?;
        check_not_empty(x, &self.axes)?;
        Ok(vec![x.clone()])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let out = cx.output_type(0).clone();
        let split = Split { rank: out.rank(), axes: self.axes.clone() };
        let (kept, extents) = (split.kept(&out.shape), split.reduced(&out.shape));
        let place = locate(cx, &split, &kept, false, (Extreme::Max, false))?;
        let result = cx.compute("", &out.shape, out.dtype, |o| {
            let here = Expr::Index(flatten_index(&split.reduced(o), &extents), DType::I32);
            let first = Expr::binary(BinaryOp::Eq, here, place.at(split.kept(o)));
            Expr::select(first, Expr::int(1, out.dtype), Expr::int(0, out.dtype))
        });
        cx.output(0, result);
        Ok(())
    }
    fn permuted(&self, perm: &[usize], _cx: &InferContext<'_>) -> Option<PermutedOp> {
        // The first of equal elements depends on the order of several axes.
        let [axis] = self.axes[..] else { return None };
        Some(PermutedOp::uniform(Hardmax { axes: vec![permuted_axis(axis, perm)] }, perm, 1, 1))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        super::softmax::export_over_axes(cx, "Hardmax", &self.axes)
    }
}

fn import_arg(cx: &mut ImportContext<'_, '_>, kind: Extreme) -> OpResult<Vec<ValueId>> {
    let (x, rank) = (cx.input(0)?, cx.ty(0)?.rank());
    let op = ArgReduce {
        kind,
        axis: normalize_axis(cx.attrs.int("axis").unwrap_or(0), rank)?,
        keepdims: cx.attrs.int("keepdims").unwrap_or(1) != 0,
        select_last: cx.attrs.int("select_last_index").unwrap_or(0) != 0,
    };
    Ok(vec![cx.add(op, &[x])?])
}

fn import_hardmax(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (axes, x) = (import_axes(cx)?, cx.input(0)?);
    Ok(vec![cx.add(Hardmax { axes }, &[x])?])
}

/// ONNX importers of this family.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "ArgMax", domain: "", since: 1, import: |cx| import_arg(cx, Extreme::Max) },
    OnnxImport { op_type: "ArgMin", domain: "", since: 1, import: |cx| import_arg(cx, Extreme::Min) },
    OnnxImport { op_type: "Hardmax", domain: "", since: 1, import: import_hardmax },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{run, try_run};
    use crate::tensor::Tensor;

    #[test]
    fn first_or_last_of_equal_elements() {
        let x = Tensor::from_vec(vec![2, 3], vec![2.0f32, 5.0, 5.0, 1.0, 1.0, 0.0]);
        let places =
            |kind, axis, select_last| run(ArgReduce { kind, axis, keepdims: false, select_last }, &[&x]).to_i64_vec();
        assert_eq!(places(Extreme::Max, 1, false), [1, 0]);
        assert_eq!(places(Extreme::Max, 1, true), [2, 1]);
        assert_eq!(places(Extreme::Min, 1, false), [0, 2]);
        assert_eq!(places(Extreme::Min, 0, true), [1, 1, 1]);
        let kept = run(ArgReduce { axis: 1, keepdims: true, ..ArgReduce::default() }, &[&x]);
        assert_eq!(kept.shape(), [2, 1]);
        let nan = f32::NAN;
        for dtype in [DType::F32, DType::F16] {
            let rows = [[1.0, nan, 3.0, nan], [nan; 4], [5.0, -f32::INFINITY, f32::INFINITY, 5.0]];
            let x = Tensor::from_f64(dtype, vec![3, 4], rows.concat().into_iter().map(f64::from));
            let places =
                |kind, select_last| run(ArgReduce { kind, axis: 1, keepdims: false, select_last }, &[&x]).to_i64_vec();
            assert_eq!(places(Extreme::Max, false), [1, 0, 2]);
            assert_eq!(places(Extreme::Max, true), [3, 3, 2]);
            assert_eq!(places(Extreme::Min, false), [1, 0, 1]);
            assert_eq!(places(Extreme::Min, true), [3, 3, 1]);
        }
        let empty = Tensor::zeros(DType::F32, vec![0, 2]);
        assert!(try_run(ArgReduce::default(), &[&empty]).unwrap_err().contains("empty"));
    }

    #[test]
    fn hardmax_marks_one_element() {
        let x = Tensor::from_vec(vec![2, 2, 2], vec![1.0f32, 3.0, 3.0, 0.0, 4.0, 4.0, 5.0, 5.0]);
        assert_eq!(run(Hardmax { axes: vec![2] }, &[&x]).to_i64_vec(), [0, 1, 1, 0, 1, 0, 1, 0]);
        assert_eq!(run(Hardmax { axes: vec![1, 2] }, &[&x]).to_i64_vec(), [0, 1, 0, 0, 0, 0, 1, 0]);
    }
}
