//! Softmax and its logarithm.

use super::packed::{PackedOp, packed_axes};
use super::permute::{PermutedOp, normalize_axis, permuted_axis};
use super::{DataLayout, InferContext, Op, OpResult, Precision};
use crate::attr_struct;
use crate::dtype::DType;
use crate::graph::TensorType;
use crate::int::{Int, const_dims};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{BufferId, Combiner, Expr, UnaryOp};

attr_struct! {
    /// `exp(x - max) / sum(exp(x - max))` jointly over `axes`.
    pub struct Softmax("softmax") {
        /// Axes that sum to one, ascending.
        pub axes: Vec<usize> = vec![],
    }
}
attr_struct! {
    /// `x - max - log(sum(exp(x - max)))` jointly over `axes`.
    pub struct LogSoftmax("log_softmax") {
        /// Axes whose exponentials sum to one, ascending.
        pub axes: Vec<usize> = vec![],
    }
}

/// Refuses axes that are not ascending, or not below `rank`.
pub(super) fn check_axes(axes: &[usize], rank: usize) -> OpResult<()> {
    if axes.windows(2).any(|w| w[0] >= w[1]) || axes.iter().any(|&a| a >= rank) {
        return Err(format!("axes {axes:?} must ascend below rank {rank}").into());
    }
    Ok(())
}

/// Where `axes` are after a transposition by `perm`, ascending.
pub(super) fn permuted_axes(axes: &[usize], perm: &[usize]) -> Vec<usize> {
    let mut out: Vec<usize> = axes.iter().map(|&a| permuted_axis(a, perm)).collect();
    out.sort_unstable();
    out
}

/// Splits the axes of a tensor into kept and reduced ones, in order.
pub(super) struct Split {
    /// Rank of the tensor.
    pub rank: usize,
    /// Reduced axes.
    pub axes: Vec<usize>,
}
impl Split {
    /// Sizes (or indices) of the kept axes.
    pub fn kept(&self, full: &[Int]) -> Vec<Int> {
        (0..self.rank).filter(|a| !self.axes.contains(a)).map(|a| full[a].clone()).collect()
    }
    /// Sizes (or indices) of the reduced axes.
    pub fn reduced(&self, full: &[Int]) -> Vec<Int> {
        self.axes.iter().map(|&a| full[a].clone()).collect()
    }
    /// The full index with these kept and reduced parts.
    pub fn merge(&self, kept: &[Int], reduced: &[Int]) -> Vec<Int> {
        let (mut kept, mut reduced) = (kept.iter(), reduced.iter());
        (0..self.rank)
            .map(|a| {
                if self.axes.contains(&a) { &mut reduced } else { &mut kept }.next().expect("an index for every axis")
            })
            .cloned()
            .collect()
    }
}

/// Rows of data, and their maxima.
struct Rows {
    split: Split,
    x: BufferId,
    dtype: DType,
    max: BufferId,
}
impl Rows {
    fn new(cx: &mut ComputeContext<'_>, axes: &[usize]) -> OpResult<Rows> {
        let (x, out) = (cx.require(0)?, cx.output_type(0).clone());
        let split = Split { rank: out.rank(), axes: axes.to_vec() };
        let mut rows = Rows { split, x, dtype: out.dtype, max: x };
        rows.max = rows.reduce(cx, "max", Combiner::Max, |o| rows.element(o));
        Ok(rows)
    }
    /// Combines the values of each row.
    fn reduce(
        &self,
        cx: &mut ComputeContext<'_>,
        label: &str,
        by: Combiner,
        value: impl Fn(Vec<Int>) -> Expr,
    ) -> BufferId {
        let shape = cx.output_type(0).shape.clone();
        let (kept, reduced) = (self.split.kept(&shape), self.split.reduced(&shape));
        cx.reduce(label, &kept, self.dtype.accumulator(), &reduced, by, |k, r| value(self.split.merge(k, r)))
    }
    fn element(&self, o: Vec<Int>) -> Expr {
        Expr::load(self.x, o).cast(self.dtype, self.dtype.accumulator())
    }
    /// The element less the maximum of its row.
    fn shifted(&self, o: &[Int]) -> Expr {
        self.element(o.to_vec()) - Expr::load(self.max, self.split.kept(o))
    }
}

/// The stages of a softmax: rows with their maxima, the exponentials and their sums.
struct SoftmaxStages {
    rows: Rows,
    exp: BufferId,
    sum: BufferId,
}
impl SoftmaxStages {
    fn new(cx: &mut ComputeContext<'_>, axes: &[usize]) -> OpResult<SoftmaxStages> {
        let (rows, shape) = (Rows::new(cx, axes)?, cx.output_type(0).shape.clone());
        let exp = cx.compute("exp", &shape, rows.dtype.accumulator(), |o| Expr::unary(UnaryOp::Exp, rows.shifted(o)));
        let sum = rows.reduce(cx, "sum", Combiner::Sum, |o| Expr::load(exp, o));
        Ok(SoftmaxStages { rows, exp, sum })
    }
    fn shifted(&self, o: &[Int]) -> Expr {
        self.rows.shifted(o)
    }
    fn exp(&self, o: &[Int]) -> Expr {
        Expr::load(self.exp, o.to_vec())
    }
    fn sum(&self, o: &[Int]) -> Expr {
        Expr::load(self.sum, self.rows.split.kept(o))
    }
}

/// Implements a function of these stages, and its importer.
macro_rules! softmax_ops {
    ($($name:ident $onnx:literal, |$stages:ident, $o:ident| $value:expr;)*) => {
        $(impl Op for $name {
            fn arity(&self) -> (usize, usize) {
                (1, 1)
            }
            fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
                let x = cx.float_data()?;
                check_axes(&self.axes, x.rank())?;
                Ok(vec![x.clone()])
            }
            fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
                let $stages = SoftmaxStages::new(cx, &self.axes)?;
                let (out, acc) = (cx.output_type(0).clone(), $stages.rows.dtype.accumulator());
                let result = cx.compute("", &out.shape, out.dtype, |$o| ($value).cast(acc, out.dtype));
                cx.output(0, result);
                Ok(())
            }
            fn precision(&self) -> Precision {
                Precision::Never
            }
            fn widens(&self) -> bool {
                true
            }
            fn permuted(&self, perm: &[usize], _cx: &InferContext<'_>) -> Option<PermutedOp> {
                Some(PermutedOp::uniform($name { axes: permuted_axes(&self.axes, perm) }, perm, 1, 1))
            }
            fn packed(&self, _layout: DataLayout, _cx: &InferContext<'_>) -> Option<OpResult<PackedOp>> {
                Some(Ok(PackedOp::uniform($name { axes: packed_axes(&self.axes) }, 1, 1)))
            }
            fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
                export_over_axes(cx, $onnx, &self.axes)
            }
        })*
        /// ONNX importers of this family.
        pub const ONNX: &[OnnxImport] = &[$(OnnxImport {
            op_type: $onnx,
            domain: "",
            since: 1,
            import: |cx| {
                let (axes, x) = (import_axes(cx)?, cx.input(0)?);
                Ok(vec![cx.add($name { axes }, &[x])?])
            },
        }),*];
    };
}

softmax_ops! {
    Softmax "Softmax", |s, o| s.exp(o) / s.sum(o);
    LogSoftmax "LogSoftmax", |s, o| s.shifted(o) - Expr::unary(UnaryOp::Log, s.sum(o));
}

/// Writes an op that ONNX has over one axis only; several trailing axes are flattened around it.
pub(super) fn export_over_axes(cx: &mut ExportContext<'_>, op_type: &str, axes: &[usize]) -> OpResult<()> {
    let shape = cx.output_types[0].shape.clone();
    if let [axis] = axes {
        cx.simple(op_type, vec![("axis", OnnxAttr::Int(*axis as i64))]);
        return Ok(());
    }
    let trailing = axes.iter().rev().zip((0..shape.len()).rev()).all(|(&a, t)| a == t);
    let dims = const_dims(&shape).filter(|_| trailing && !axes.is_empty());
    let dims = dims.ok_or_else(|| format!("over axes {axes:?} of {shape:?} has no ONNX form"))?;
    let inner: usize = dims[axes[0]..].iter().product();
    let flat = cx.constant(Tensor::ints(&[-1, inner as i64]));
    let full = cx.constant(Tensor::ints(&dims.iter().map(|&d| d as i64).collect::<Vec<_>>()));
    let (x, before, after) = (cx.input(0), format!("{}_flat", cx.fresh()), format!("{}_done", cx.fresh()));
    let out = cx.outputs.clone();
    cx.node("Reshape", vec![x, flat], vec![before.clone()], vec![]);
    cx.node(op_type, vec![before], vec![after.clone()], vec![("axis", OnnxAttr::Int(1))]);
    cx.node("Reshape", vec![after, full], out, vec![]);
    Ok(())
}

/// Axes of an ONNX op whose `axis` attribute names one axis since opset 13, and the first of all joined axes before.
pub(super) fn import_axes(cx: &ImportContext<'_, '_>) -> OpResult<Vec<usize>> {
    let x = cx.ty(0)?;
    let given = cx.attrs.int("axis");
    if cx.opset >= 13 {
        return Ok(vec![normalize_axis(given.unwrap_or(-1), x.rank())?]);
    }
    let first = given.unwrap_or(1);
    let first = if first == x.rank() as i64 { x.rank() } else { normalize_axis(first, x.rank())? };
    // Axes of size 1 do not matter; without them most models have one axis left.
    let axes: Vec<usize> = (first..x.rank()).filter(|&a| !x.shape[a].is(1)).collect();
    Ok(if axes.is_empty() && first < x.rank() { vec![first] } else { axes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{assert_close, random, run, try_run};

    #[test]
    fn sums_to_one_over_any_axes() {
        let x = random(&[2, 3, 4], 1);
        for axes in [vec![0], vec![1], vec![2], vec![1, 2], vec![0, 2], vec![]] {
            let y = run(Softmax { axes: axes.clone() }, &[&x]);
            let total: f64 = y.to_f64_vec().iter().sum();
            let groups: usize = (0..3).filter(|a| !axes.contains(a)).map(|a| x.shape()[a]).product();
            assert!((total - groups as f64).abs() < 1e-5, "{axes:?}");
            let log = run(LogSoftmax { axes }, &[&x]);
            let want = y.to_f64_vec().into_iter().map(f64::ln).collect::<Vec<_>>();
            assert_close(&log, &Tensor::from_f64(DType::F32, vec![2, 3, 4], want), 1e-5);
        }
    }

    #[test]
    fn nothing_stays_nothing() {
        let empty = Tensor::zeros(DType::F32, vec![2, 0]);
        assert_eq!(run(Softmax { axes: vec![1] }, &[&empty]), empty);
        assert_eq!(run(LogSoftmax { axes: vec![0] }, &[&empty]), empty);
    }

    #[test]
    fn large_values_do_not_overflow() {
        let x = Tensor::from_vec(vec![1, 2], vec![10000.0f32, 10000.0 - 2f32.ln()]);
        let y = run(Softmax { axes: vec![1] }, &[&x]).to_f64_vec();
        assert!((y[0] - 2.0 / 3.0).abs() < 1e-3, "{y:?}");
        let half = Tensor::from_f64(DType::F16, vec![3000], vec![1.0; 3000]);
        let y = run(Softmax { axes: vec![0] }, &[&half]).to_f64_vec();
        assert!((y[0] * 3000.0 - 1.0).abs() < 1e-3, "{}", y[0]);
    }

    #[test]
    fn axes_must_exist() {
        assert!(try_run(Softmax { axes: vec![2] }, &[&random(&[2, 2], 1)]).is_err());
        assert!(try_run(Softmax { axes: vec![1, 0] }, &[&random(&[2, 2], 1)]).is_err());
    }
}
