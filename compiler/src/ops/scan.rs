//! Triangles and running sums.

use super::permute::{PermutedOp, normalize_axis, permuted_axis};
use super::unary::{Domain, infer_map, math_dtype};
use super::{InferContext, Op, OpResult, Precision};
use crate::attr_struct;
use crate::graph::{TensorType, ValueId};
use crate::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{Combiner, Cond, Expr};

attr_struct! {
    /// The upper or lower triangle of the last two dimensions; 0 elsewhere.
    pub struct Trilu("trilu") {
        /// Whether the upper triangle stays.
        pub upper: bool = true,
        /// The diagonal that bounds it, counted to the right.
        pub k: i64 = 0,
    }
}
impl Op for Trilu {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        match cx.require(0)?.rank() {
            0 | 1 => Err("takes matrices".into()),
            _ => infer_map(cx, Domain::Any),
        }
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let x = cx.require(0)?;
        let ty = cx.output_type(0).clone();
        let out = cx.compute("", &ty.shape, ty.dtype, |i| {
            let (row, column) = (i[i.len() - 2].clone(), &i[i.len() - 1]);
            // Beyond any dimension all diagonals are alike, and sums of indices stay small.
            let k = self.k.clamp(-(1 << 30), 1 << 30);
            let kept = if self.upper { Cond::ge(column, row + k) } else { Cond::lt(column, row + k + 1) };
            Expr::guarded(vec![kept], Expr::load(x, i.to_vec()), Expr::int(0, ty.dtype))
        });
        cx.output(0, out);
        Ok(())
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let k = cx.constant(Tensor::scalar(self.k));
        let (inputs, outputs) = (vec![cx.input(0), k], cx.outputs.clone());
        cx.node("Trilu", inputs, outputs, vec![("upper", OnnxAttr::Int(self.upper as i64))]);
        Ok(())
    }
}

attr_struct! {
    /// Running sums along an axis.
    pub struct CumSum("cumsum") {
        /// The axis; negative counts from the end.
        pub axis: i64 = 0,
        /// Whether an element's own value is left out.
        pub exclusive: bool = false,
        /// Whether to sum from the end.
        pub reverse: bool = false,
    }
}
impl Op for CumSum {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        normalize_axis(self.axis, cx.require(0)?.rank())?;
        infer_map(cx, Domain::Number)
    }
    /// As a masked reduction, since tensor expressions have no scans: quadratic in the axis. The host runs a true scan.
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let x = cx.require(0)?;
        let (ty, t) = (cx.output_type(0).clone(), math_dtype(cx.dtype(x)));
        let axis = normalize_axis(self.axis, ty.rank())?;
        let sum = cx.reduce("", &ty.shape, t, &[ty.shape[axis].clone()], Combiner::Sum, |i, r| {
            let mut at = i.to_vec();
            at[axis] = r[0].clone();
            let own = self.exclusive as i64;
            let counts = match self.reverse {
                false => Cond::lt(&r[0], i[axis].clone() + (1 - own)),
                true => Cond::ge(&r[0], i[axis].clone() + own),
            };
            Expr::guarded(vec![counts], Expr::load(x, at).cast(ty.dtype, t), Expr::int(0, t))
        });
        let out = match t == ty.dtype {
            true => sum,
            false => cx.compute("narrow", &ty.shape, ty.dtype, |i| Expr::load(sum, i.to_vec()).cast(t, ty.dtype)),
        };
        cx.output(0, out);
        Ok(())
    }
    fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        let x = inputs[0].as_ref()?;
        let axis = match normalize_axis(self.axis, x.shape().len()) {
            Ok(a) => a,
            Err(e) => return Some(Err(e)),
        };
        if x.dtype().is_int() {
            let sums = self.scan(&x.to_i64_vec(), x.shape(), axis, 0, i64::wrapping_add);
            // Wrap as the element type does, rather than saturate.
            return Some(Ok(vec![super::scatter::tensor_of_ints(x.dtype(), x.shape(), &sums)]));
        }
        let sums = self.scan(&x.to_f64_vec(), x.shape(), axis, 0.0, |a, b| a + b);
        Some(Ok(vec![Tensor::from_f64(x.dtype(), x.shape().to_vec(), sums)]))
    }
    fn precision(&self) -> Precision {
        Precision::Never
    }
    fn permuted(&self, perm: &[usize], _cx: &InferContext<'_>) -> Option<PermutedOp> {
        let axis = permuted_axis(normalize_axis(self.axis, perm.len()).ok()?, perm) as i64;
        Some(PermutedOp::uniform(CumSum { axis, ..self.clone() }, perm, 1, 1))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let axis = cx.constant(Tensor::scalar(self.axis));
        let (inputs, outputs) = (vec![cx.input(0), axis], cx.outputs.clone());
        let flags = [("exclusive", self.exclusive), ("reverse", self.reverse)];
        cx.node("CumSum", inputs, outputs, flags.map(|(k, v)| (k, OnnxAttr::Int(v as i64))).to_vec());
        Ok(())
    }
}
impl CumSum {
    fn scan<T: Copy>(&self, x: &[T], shape: &[usize], axis: usize, zero: T, add: fn(T, T) -> T) -> Vec<T> {
        let (n, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
        let mut out = x.to_vec();
        for start in (0..x.len()).filter(|i| n > 0 && (i / inner).is_multiple_of(n)) {
            let mut sum = zero;
            for k in 0..n {
                let at = start + inner * if self.reverse { n - 1 - k } else { k };
                let next = add(sum, x[at]);
                out[at] = if self.exclusive { sum } else { next };
                sum = next;
            }
        }
        out
    }
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "Trilu", domain: "", since: 14, import: import_trilu },
    OnnxImport { op_type: "CumSum", domain: "", since: 11, import: import_cumsum },
];

fn import_trilu(cx: &mut ImportContext<'_, '_>) -> Result<Vec<ValueId>, String> {
    let x = cx.input(0)?;
    let k = match cx.opt(1) {
        None => 0,
        Some(_) => cx.const_ints(1).and_then(|v| v.first().copied()).ok_or("k is not known at compile time")?,
    };
    Ok(vec![cx.add(Trilu { upper: cx.attrs.int("upper").unwrap_or(1) != 0, k }, &[x])?])
}

fn import_cumsum(cx: &mut ImportContext<'_, '_>) -> Result<Vec<ValueId>, String> {
    let x = cx.input(0)?;
    let axis = cx.const_ints(1).and_then(|v| v.first().copied()).ok_or("the axis is not known at compile time")?;
    let flag = |name| cx.attrs.int(name).unwrap_or(0) != 0;
    let op = CumSum { axis, exclusive: flag("exclusive"), reverse: flag("reverse") };
    Ok(vec![cx.add(op, &[x])?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{random, run, run_both, try_run};

    #[test]
    fn triangles() {
        let x = Tensor::from_vec(vec![2, 3], vec![1i64, 2, 3, 4, 5, 6]);
        assert_eq!(run(Trilu { upper: true, k: 0 }, &[&x]).to_i64_vec(), [1, 2, 3, 0, 5, 6]);
        assert_eq!(run(Trilu { upper: true, k: 1 }, &[&x]).to_i64_vec(), [0, 2, 3, 0, 0, 6]);
        assert_eq!(run(Trilu { upper: false, k: 0 }, &[&x]).to_i64_vec(), [1, 0, 0, 4, 5, 0]);
        assert_eq!(run(Trilu { upper: false, k: i64::MAX }, &[&x]), x);
        assert!(try_run(Trilu::default(), &[&Tensor::ints(&[1])]).is_err());
    }

    #[test]
    fn running_sums_in_all_directions() {
        let x = random(&[2, 5, 3], 1);
        for axis in -1..2 {
            for (exclusive, reverse) in [(false, false), (false, true), (true, false), (true, true)] {
                run_both(CumSum { axis, exclusive, reverse }, &[&x]);
            }
        }
        let x = Tensor::ints(&[1, 2, 3]);
        let of = |exclusive, reverse| run(CumSum { axis: 0, exclusive, reverse }, &[&x]).to_i64_vec();
        assert_eq!(of(false, false), [1, 3, 6]);
        assert_eq!(of(true, true), [5, 3, 0]);
    }
}
