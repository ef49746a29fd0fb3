//! Reductions over axes.

use super::cast::onnx_code;
use super::packed::{PackedForm, PackedOp, packed_axes};
use super::permute::{PermutedOp, normalize_axes, permutation_without};
use super::softmax::{Split, check_axes, permuted_axes};
use super::{DataLayout, InferContext, Op, OpResult, Precision};
use crate::dtype::DType;
use crate::graph::{TensorType, ValueId};
use crate::int::{Dim, Int, product};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{BufferId, Combiner, Expr, UnaryOp};
use crate::{attr_enum, attr_struct};

attr_enum! {
    /// The function that a reduction computes from the elements `x`.
    pub enum ReduceKind {
        /// `sum x`
        Sum = "sum",
        /// `sum x / count`
        Mean = "mean",
        /// Largest.
        Max = "max",
        /// Smallest.
        Min = "min",
        /// `prod x`
        Prod = "prod",
        /// `sum |x|`
        L1 = "l1",
        /// `sqrt(sum x^2)`
        L2 = "l2",
        /// `log(sum x)`
        LogSum = "log_sum",
        /// `log(sum exp x)`
        LogSumExp = "log_sum_exp",
        /// `sum x^2`
        SumSquare = "sum_square",
    }
}

attr_struct! {
    /// Reduces `axes` of its operand. Over no axes each element is its own reduction.
    pub struct Reduce("reduce") {
        /// The kind of reduction.
        pub kind: ReduceKind = ReduceKind::Sum,
        /// Reduced axes, ascending.
        pub axes: Vec<usize> = vec![],
        /// Keeps reduced axes as size 1.
        pub keepdims: bool = false,
    }
}

impl ReduceKind {
    fn combiner(self) -> Combiner {
        match self {
            ReduceKind::Max => Combiner::Max,
            ReduceKind::Min => Combiner::Min,
            ReduceKind::Prod => Combiner::Prod,
            _ => Combiner::Sum,
        }
    }
    /// The result of reducing no elements.
    fn of_nothing(self, dtype: DType) -> f64 {
        let infinity = if dtype == DType::Bool { 1.0 } else { f64::INFINITY };
        match self {
            ReduceKind::Sum | ReduceKind::L1 | ReduceKind::L2 | ReduceKind::SumSquare => 0.0,
            ReduceKind::Prod => 1.0,
            ReduceKind::Mean => f64::NAN,
            ReduceKind::Max if !dtype.is_float() => dtype.lowest(),
            ReduceKind::Max | ReduceKind::LogSum | ReduceKind::LogSumExp => f64::NEG_INFINITY,
            ReduceKind::Min => infinity,
        }
    }
    /// The type that elements of `dtype` are combined in.
    fn working_type(self, dtype: DType) -> DType {
        match self {
            ReduceKind::L2 | ReduceKind::LogSum | ReduceKind::LogSumExp if !dtype.is_float() => DType::F32,
            ReduceKind::Max | ReduceKind::Min if dtype == DType::Bool => DType::I32,
            ReduceKind::Max | ReduceKind::Min => dtype,
            _ => dtype.accumulator(),
        }
    }
    /// Name of the ONNX operator.
    pub(super) fn onnx(self) -> &'static str {
        match self {
            ReduceKind::Sum => "ReduceSum",
            ReduceKind::Mean => "ReduceMean",
            ReduceKind::Max => "ReduceMax",
            ReduceKind::Min => "ReduceMin",
            ReduceKind::Prod => "ReduceProd",
            ReduceKind::L1 => "ReduceL1",
            ReduceKind::L2 => "ReduceL2",
            ReduceKind::LogSum => "ReduceLogSum",
            ReduceKind::LogSumExp => "ReduceLogSumExp",
            ReduceKind::SumSquare => "ReduceSumSquare",
        }
    }
}

/// Shape of a reduction's result.
pub(super) fn reduced_shape(shape: &[Int], axes: &[usize], keepdims: bool) -> Vec<Int> {
    let one = Int::new(1);
    let dims = shape.iter().enumerate();
    if keepdims {
        return dims.map(|(a, d)| if axes.contains(&a) { one.clone() } else { d.clone() }).collect();
    }
    dims.filter(|(a, _)| !axes.contains(a)).map(|(_, d)| d.clone()).collect()
}

/// Index of the operand for result index `o` and indices `r` along the reduced axes.
pub(super) fn operand_index(split: &Split, keepdims: bool, o: &[Int], r: &[Int]) -> Vec<Int> {
    if keepdims { split.merge(&split.kept(o), r) } else { split.merge(o, r) }
}

impl Reduce {
    /// A reduction that keeps the reduced axes as size 1, or drops them.
    pub fn new(kind: ReduceKind, axes: &[usize], keepdims: bool) -> Reduce {
        Reduce { kind, axes: axes.to_vec(), keepdims }
    }
    /// The stage that combines `value(x)` of all elements in `dtype`.
    fn combine(
        &self,
        cx: &mut ComputeContext<'_>,
        label: &str,
        combiner: Combiner,
        dtype: DType,
        value: impl Fn(Expr, &[Int]) -> Expr,
    ) -> OpResult<BufferId> {
        let x = cx.require(0)?;
        let (xs, from, out) = (cx.shape(x), cx.dtype(x), cx.output_type(0).shape.clone());
        let split = Split { rank: xs.len(), axes: self.axes.clone() };
        Ok(cx.reduce(label, &out, dtype, &split.reduced(&xs), combiner, |o, r| {
            value(Expr::load(x, operand_index(&split, self.keepdims, o, r)).cast(from, dtype), o)
        }))
    }
}

impl Reduce {
    /// The reduction of packed data.
    fn on_groups(&self, layout: DataLayout, cx: &InferContext<'_>) -> OpResult<PackedOp> {
        let shape = &cx.require(0)?.shape;
        let mut out = PackedOp::uniform(Reduce { axes: packed_axes(&self.axes), ..self.clone() }, 1, 1);
        let over_channels = self.axes.contains(&1);
        if over_channels {
            // Without the channels the rest stands in order; with kept dims there is one more of size 1.
            let kept = reduced_shape(shape, &self.axes, self.keepdims);
            let one = if self.keepdims { vec![Int::new(1)] } else { vec![] };
            out.results = vec![PackedForm::Shaped([kept, one].concat())];
        } else if !self.keepdims {
            let spatial = [2, 3].into_iter().filter(|a| !self.axes.contains(a) && !shape[*a].is(1)).count();
            if spatial > 0 {
                return Err("the dims that it leaves are in another order when the channels are split".into());
            }
            let split = layout.shape(&shape[0], &shape[1], shape[2..].to_vec())?;
            out.results = vec![PackedForm::Shaped(reduced_shape(&split, &self.axes, false))];
        }
        Ok(out)
    }
}

impl Op for Reduce {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.require(0)?;
        check_axes(&self.axes, x.rank())?;
        if x.dtype == DType::Bool && !matches!(self.kind, ReduceKind::Max | ReduceKind::Min) {
            return Err(format!("kind {} does not apply to bool", self.kind).into());
        }
        Ok(vec![TensorType::new(x.dtype, reduced_shape(&x.shape, &self.axes, self.keepdims))])
    }
    fn infer_value(&self, cx: &InferContext<'_>) -> Option<Vec<Dim>> {
        let all = cx.int_input(0)?;
        if self.axes.is_empty() || cx.input(0)?.dtype == DType::Bool {
            return None;
        }
        let combine: fn(Dim, &Dim) -> Dim = match self.kind {
            ReduceKind::Sum => |a, b| a + b,
            ReduceKind::Prod => |a, b| a * b,
            ReduceKind::Min => |a, b| a.min(b),
            ReduceKind::Max => |a, b| a.max(b),
            _ => return None,
        };
        let (first, rest) = all.split_first()?;
        Some(vec![rest.iter().fold(first.clone(), combine)])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let xs = cx.shape(cx.require(0)?);
        let out = cx.output_type(0).clone();
        let dtype = self.kind.working_type(out.dtype);
        if self.axes.iter().any(|&a| xs[a].is(0)) {
            let value = self.kind.of_nothing(out.dtype);
            let constant = cx.compute("", &out.shape, out.dtype, |_| Expr::constant(value, out.dtype));
            cx.output(0, constant);
            return Ok(());
        }
        let shift = match self.kind {
            ReduceKind::LogSumExp => Some(self.combine(cx, "max", Combiner::Max, dtype, |x, _| x)?),
            _ => None,
        };
        let last = !matches!(self.kind, ReduceKind::Mean | ReduceKind::L2 | ReduceKind::LogSum | ReduceKind::LogSumExp)
            && dtype == out.dtype;
        let label = if last { "" } else { "sum" };
        // Infinity minus itself is NaN: a row whose largest element is infinite is not shifted.
        let shift_of = |max: BufferId, o: &[Int]| {
            let max = Expr::load(max, o.to_vec());
            Expr::select(Expr::unary(UnaryOp::IsInf, max.clone()), Expr::constant(0.0, dtype), max)
        };
        let sum = self.combine(cx, label, self.kind.combiner(), dtype, |x, o| match (self.kind, shift) {
            (ReduceKind::L1, _) => Expr::unary(UnaryOp::Abs, x),
            (ReduceKind::L2 | ReduceKind::SumSquare, _) => x.clone() * x,
            (_, Some(max)) => Expr::unary(UnaryOp::Exp, x - shift_of(max, o)),
            _ => x,
        })?;
        if last {
            cx.output(0, sum);
            return Ok(());
        }
        let count = product(&self.axes.iter().map(|&a| xs[a].clone()).collect::<Vec<_>>());
        let result = cx.compute("", &out.shape, out.dtype, |o| {
            let sum = Expr::load(sum, o.to_vec());
            let value = match (self.kind, shift) {
                (ReduceKind::Mean, _) => sum / Expr::Index(count, dtype),
                (ReduceKind::L2, _) => Expr::unary(UnaryOp::Sqrt, sum),
                (ReduceKind::LogSum, _) => Expr::unary(UnaryOp::Log, sum),
                (_, Some(max)) => Expr::unary(UnaryOp::Log, sum) + shift_of(max, o),
                _ => sum,
            };
            value.cast(dtype, out.dtype)
        });
        cx.output(0, result);
        Ok(())
    }
    fn precision(&self) -> Precision {
        match self.kind {
            ReduceKind::Max | ReduceKind::Min => Precision::Follow,
            _ => Precision::Never,
        }
    }
    fn widens(&self) -> bool {
        self.kind == ReduceKind::Mean
    }
    fn permuted(&self, perm: &[usize], _cx: &InferContext<'_>) -> Option<PermutedOp> {
        let op = Reduce { axes: permuted_axes(&self.axes, perm), ..self.clone() };
        let mut out = PermutedOp::uniform(op, perm, 1, 1);
        if !self.keepdims {
            out.results = vec![Some(permutation_without(perm, &self.axes))];
        }
        Some(out)
    }
    fn packed(&self, layout: DataLayout, cx: &InferContext<'_>) -> Option<OpResult<PackedOp>> {
        Some(self.on_groups(layout, cx))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        if self.axes.is_empty() {
            // An empty list means all axes to most opsets; these say what is left of a reduction over none.
            match self.kind {
                ReduceKind::L1 | ReduceKind::L2 => cx.simple("Abs", vec![]),
                ReduceKind::LogSum => cx.simple("Log", vec![]),
                ReduceKind::SumSquare => {
                    let (x, out) = (cx.input(0), cx.outputs.clone());
                    cx.node("Mul", vec![x.clone(), x], out, vec![]);
                }
                _ => cx.simple("Identity", vec![]),
            }
            return Ok(());
        }
        let axes: Vec<i64> = self.axes.iter().map(|&a| a as i64).collect();
        let keepdims = ("keepdims", OnnxAttr::Int(self.keepdims as i64));
        let (x, axes, out) = (cx.input(0), cx.constant(Tensor::ints(&axes)), cx.outputs.clone());
        if cx.output_types[0].dtype != DType::Bool {
            cx.node(self.kind.onnx(), vec![x, axes], out, vec![keepdims]);
            return Ok(());
        }
        // The opset that is written reduces no booleans.
        let to = |dtype| vec![("to", OnnxAttr::Int(onnx_code(dtype)))];
        let number = cx.fresh();
        cx.node("Cast", vec![x], vec![number.clone()], to(DType::I32));
        let reduced = cx.fresh();
        cx.node(self.kind.onnx(), vec![number, axes], vec![reduced.clone()], vec![keepdims]);
        cx.node("Cast", vec![reduced], out, to(DType::Bool));
        Ok(())
    }
}

fn import_reduce(cx: &mut ImportContext<'_, '_>, kind: ReduceKind) -> OpResult<Vec<ValueId>> {
    let (x, rank) = (cx.input(0)?, cx.ty(0)?.rank());
    let keepdims = cx.attrs.int("keepdims").unwrap_or(1) != 0;
    let none_means_none = cx.attrs.int("noop_with_empty_axes").unwrap_or(0) != 0;
    let given = match (cx.attrs.ints("axes"), cx.opt(1)) {
        (Some(axes), _) => axes.to_vec(),
        (None, None) => vec![],
        (None, Some(_)) => match (cx.const_ints(1), cx.ty(1)?.numel().as_const()) {
            (Some(axes), _) => axes,
            (None, Some(0)) => vec![],
            (None, Some(n)) if n == rank as i64 => (0..n).collect(),
            (None, Some(n)) => return super::reduce_at::import_run_time_axes(cx, kind, keepdims, n as usize),
            (None, None) => return Err("a number of axes that is known only at run time is not supported".into()),
        },
    };
    let axes = resolve_axes(&given, rank, none_means_none)?;
    Ok(vec![cx.add(Reduce { kind, axes, keepdims }, &[x])?])
}

/// The reduced axes, ascending; an empty list means all unless `none_means_none`.
pub(super) fn resolve_axes(given: &[i64], rank: usize, none_means_none: bool) -> OpResult<Vec<usize>> {
    let mut axes = normalize_axes(given, rank)?;
    axes.sort_unstable();
    Ok(if axes.is_empty() && !none_means_none { (0..rank).collect() } else { axes })
}

macro_rules! reduce_import {
    ($($name:literal $kind:ident),*) => {
        &[$(OnnxImport { op_type: $name, domain: "", since: 1, import: |cx| import_reduce(cx, ReduceKind::$kind) }),*]
    };
}

/// ONNX importers of this family.
pub const ONNX: &[OnnxImport] = reduce_import!(
    "ReduceSum" Sum, "ReduceMean" Mean, "ReduceMax" Max, "ReduceMin" Min, "ReduceProd" Prod, "ReduceL1" L1,
    "ReduceL2" L2, "ReduceLogSum" LogSum, "ReduceLogSumExp" LogSumExp, "ReduceSumSquare" SumSquare
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{assert_close, random, run};

    fn of(kind: ReduceKind, v: &[f64]) -> f64 {
        let sum = |f: fn(f64) -> f64| v.iter().copied().map(f).sum::<f64>();
        match kind {
            ReduceKind::Sum => sum(|x| x),
            ReduceKind::Mean => sum(|x| x) / v.len() as f64,
            ReduceKind::Max => v.iter().copied().fold(f64::MIN, f64::max),
            ReduceKind::Min => v.iter().copied().fold(f64::MAX, f64::min),
            ReduceKind::Prod => v.iter().product(),
            ReduceKind::L1 => sum(f64::abs),
            ReduceKind::L2 => sum(|x| x * x).sqrt(),
            ReduceKind::LogSum => sum(|x| x).ln(),
            ReduceKind::LogSumExp => sum(f64::exp).ln(),
            ReduceKind::SumSquare => sum(|x| x * x),
        }
    }

    #[test]
    fn every_kind_over_every_choice_of_axes() {
        let positive = random(&[2, 3, 4], 1).to_f64_vec().into_iter().map(|v| v + 1.5).collect::<Vec<_>>();
        let x = Tensor::from_f64(DType::F32, vec![2, 3, 4], positive);
        let values = x.to_f64_vec();
        for &kind in ReduceKind::ALL {
            for mask in 0..8 {
                let axes: Vec<usize> = (0..3).filter(|a| mask >> a & 1 == 1).collect();
                let key = |flat: usize| {
                    let at = [flat / 12, flat / 4 % 3, flat % 4];
                    (0..3).filter(|a| !axes.contains(a)).map(|a| at[a]).collect::<Vec<_>>()
                };
                let mut groups = std::collections::BTreeMap::<Vec<usize>, Vec<f64>>::new();
                for (i, v) in values.iter().enumerate() {
                    groups.entry(key(i)).or_default().push(*v);
                }
                let want: Vec<f64> = groups.values().map(|g| of(kind, g)).collect();
                for keepdims in [false, true] {
                    let got = run(Reduce::new(kind, &axes, keepdims), &[&x]);
                    let dims = [2, 3, 4].into_iter().enumerate();
                    let shape: Vec<usize> = if keepdims {
                        dims.map(|(a, d)| if axes.contains(&a) { 1 } else { d }).collect()
                    } else {
                        dims.filter(|(a, _)| !axes.contains(a)).map(|(_, d)| d).collect()
                    };
                    assert_close(&got, &Tensor::from_f64(DType::F32, shape, want.clone()), 1e-5);
                }
            }
        }
    }

    #[test]
    fn exponentials_of_infinities() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let rows = vec![-inf, -inf, -inf, 1.0, inf, -inf, 0.0, -inf, 0.0, nan, 1.0, inf, -inf, nan, 0.0];
        let x = Tensor::from_vec(vec![5, 3], rows);
        let got = run(Reduce::new(ReduceKind::LogSumExp, &[1], false), &[&x]).to_f64_vec();
        assert_eq!(got[..2], [f64::NEG_INFINITY, f64::INFINITY]);
        assert!((got[2] - 2f64.ln()).abs() < 1e-6 && got[3].is_nan() && got[4].is_nan(), "{got:?}");
    }

    #[test]
    fn integers_bools_halves_and_nothing() {
        let reduce = |kind, t: &Tensor| run(Reduce::new(kind, &[0], false), &[t]).to_f64_vec()[0];
        let ints = Tensor::ints(&[-5, 2, 7]);
        assert_eq!(reduce(ReduceKind::Sum, &ints), 4.0);
        assert_eq!(reduce(ReduceKind::Max, &ints), 7.0);
        assert_eq!(reduce(ReduceKind::L1, &ints), 14.0);
        let bools = Tensor::from_f64(DType::Bool, vec![2], [1.0, 0.0]);
        assert_eq!((reduce(ReduceKind::Max, &bools), reduce(ReduceKind::Min, &bools)), (1.0, 0.0));
        let halves = Tensor::from_f64(DType::F16, vec![4096], vec![1.0; 4096]);
        assert_eq!(reduce(ReduceKind::Sum, &halves), 4096.0);
        let nothing = Tensor::zeros(DType::F32, vec![0]);
        assert_eq!(reduce(ReduceKind::Sum, &nothing), 0.0);
        assert_eq!(reduce(ReduceKind::Prod, &nothing), 1.0);
        assert_eq!(reduce(ReduceKind::Max, &nothing), f64::NEG_INFINITY);
        assert!(reduce(ReduceKind::Mean, &nothing).is_nan());
    }
}
