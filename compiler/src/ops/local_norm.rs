//! Normalisation by neighbouring channels and by norms along an axis.

use super::permute::{PermutedOp, normalize_axis, permuted_axis};
use super::pool::{power, root};
use super::softmax::Split;
use super::{DataLayout, InferContext, Op, OpResult, PackedOp, Precision};
use crate::attr_struct;
use crate::graph::{TensorType, ValueId};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tir::{BinaryOp, Combiner, Cond, Expr};

attr_struct! {
    /// Local response normalisation of data `[n, c, ...]`: `x / (bias + alpha / size * sum x^2)^beta` with the sum over
    /// `size` neighbouring channels.
    pub struct Lrn("lrn") {
        /// Number of channels summed.
        pub size: i64 = 1,
        /// Factor of the mean square.
        pub alpha: f64 = 1e-4,
        /// Exponent.
        pub beta: f64 = 0.75,
        /// Added to the scaled mean square.
        pub bias: f64 = 1.0,
        /// The axis of channels.
        pub axis: usize = 1,
    }
}

attr_struct! {
    /// `x / (sum |x|^p)^(1/p)` along `axis`.
    pub struct LpNorm("lp_norm") {
        /// The axis.
        pub axis: usize = 0,
        /// Order of the norm: 1 or 2.
        pub p: i64 = 2,
    }
}

impl Op for Lrn {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn packed(&self, layout: DataLayout, _cx: &InferContext<'_>) -> Option<OpResult<PackedOp>> {
        Some(Err(format!("it sums over neighbouring channels, which {} splits", layout.title()).into()))
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.float_data()?.clone();
        if self.axis >= x.rank() || self.size < 1 {
            let (rank, size, axis) = (x.rank(), self.size, self.axis);
            return Err(format!("data of rank {rank} over {size} channels along axis {axis}").into());
        }
        Ok(vec![x])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let (x, out) = (cx.require(0)?, cx.output_type(0).clone());
        let (acc, axis) = (out.dtype.accumulator(), self.axis);
        // Neighbours beyond the first and last channel count for nothing, however many the window has.
        let reach = out.shape[axis].as_const().map_or(i64::MAX, |c| (c - 1).max(0));
        let before = ((self.size - 1) / 2).min(reach);
        let after = (self.size / 2).min(reach);
        let squares = cx.reduce("squares", &out.shape, acc, &[(before + after + 1).into()], Combiner::Sum, |o, r| {
            let mut at = o.to_vec();
            at[axis] = o[axis].clone() + &r[0] - before;
            let mut conds = vec![];
            if before > 0 {
                conds.push(Cond::ge(at[axis].clone(), 0));
            }
            if after > 0 {
                conds.push(Cond::lt(at[axis].clone(), &out.shape[axis]));
            }
            let x = Expr::load(x, at).cast(out.dtype, acc);
            Expr::guarded(conds, x.clone() * x, Expr::constant(0.0, acc))
        });
        let result = cx.compute("", &out.shape, out.dtype, |o| {
            let mean = Expr::load(squares, o.to_vec()) * Expr::constant(self.alpha / self.size as f64, acc);
            let base = mean + Expr::constant(self.bias, acc);
            let scale = Expr::binary(BinaryOp::Pow, base, Expr::constant(self.beta, acc));
            (Expr::load(x, o.to_vec()).cast(out.dtype, acc) / scale).cast(acc, out.dtype)
        });
        cx.output(0, result);
        Ok(())
    }
    fn precision(&self) -> Precision {
        Precision::Never
    }
    fn permuted(&self, perm: &[usize], _cx: &InferContext<'_>) -> Option<PermutedOp> {
        let op = Lrn { axis: permuted_axis(self.axis, perm), ..self.clone() };
        Some(PermutedOp::uniform(op, perm, 1, 1))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let attrs = vec![
            ("size", OnnxAttr::Int(self.size)),
            ("alpha", OnnxAttr::Float(self.alpha as f32)),
            ("beta", OnnxAttr::Float(self.beta as f32)),
            ("bias", OnnxAttr::Float(self.bias as f32)),
        ];
        if self.axis == 1 {
            cx.simple("LRN", attrs);
            return Ok(());
        }
        // The exchange of two axes undoes itself.
        let mut perm: Vec<i64> = (0..cx.output_types[0].rank() as i64).collect();
        perm.swap(1, self.axis);
        let exchange = || vec![("perm", OnnxAttr::Ints(perm.clone()))];
        let (input, moved, outputs) = (cx.input(0), cx.fresh(), cx.outputs.clone());
        cx.node("Transpose", vec![input], vec![moved.clone()], exchange());
        let normalised = cx.fresh();
        cx.node("LRN", vec![moved], vec![normalised.clone()], attrs);
        cx.node("Transpose", vec![normalised], outputs, exchange());
        Ok(())
    }
}

impl Op for LpNorm {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.float_data()?.clone();
        if self.axis >= x.rank() || !(1..=2).contains(&self.p) {
            return Err(format!("norm of order {} along axis {} of rank {}", self.p, self.axis, x.rank()).into());
        }
        Ok(vec![x])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let (x, out) = (cx.require(0)?, cx.output_type(0).clone());
        let acc = out.dtype.accumulator();
        let split = Split { rank: out.rank(), axes: vec![self.axis] };
        let (kept, extents) = (split.kept(&out.shape), split.reduced(&out.shape));
        let sum = cx.reduce("sum", &kept, acc, &extents, Combiner::Sum, |k, r| {
            power(Expr::load(x, split.merge(k, r)).cast(out.dtype, acc), self.p, acc)
        });
        let result = cx.compute("", &out.shape, out.dtype, |o| {
            let norm = root(Expr::load(sum, split.kept(o)), self.p, acc);
            // A vector of zeros stays zero.
            let zero = Expr::constant(0.0, acc);
            let is_zero = Expr::binary(BinaryOp::Eq, norm.clone(), zero.clone());
            let scaled = Expr::load(x, o.to_vec()).cast(out.dtype, acc) / norm;
            Expr::select(is_zero, zero, scaled).cast(acc, out.dtype)
        });
        cx.output(0, result);
        Ok(())
    }
    fn precision(&self) -> Precision {
        Precision::Never
    }
    fn permuted(&self, perm: &[usize], _cx: &InferContext<'_>) -> Option<PermutedOp> {
        let op = LpNorm { axis: permuted_axis(self.axis, perm), p: self.p };
        Some(PermutedOp::uniform(op, perm, 1, 1))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        cx.simple("LpNormalization", vec![("axis", OnnxAttr::Int(self.axis as i64)), ("p", OnnxAttr::Int(self.p))]);
        Ok(())
    }
}

fn import_lrn(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    let op = Lrn {
        size: cx.attrs.int("size").ok_or("attribute size is missing")?,
        alpha: cx.attrs.float("alpha").unwrap_or(1e-4),
        beta: cx.attrs.float("beta").unwrap_or(0.75),
        bias: cx.attrs.float("bias").unwrap_or(1.0),
        axis: 1,
    };
    Ok(vec![cx.add(op, &[x])?])
}

fn import_lp_norm(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (x, rank) = (cx.input(0)?, cx.ty(0)?.rank());
    let op =
        LpNorm { axis: normalize_axis(cx.attrs.int("axis").unwrap_or(-1), rank)?, p: cx.attrs.int("p").unwrap_or(2) };
    Ok(vec![cx.add(op, &[x])?])
}

/// ONNX importers of this family.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "LRN", domain: "", since: 1, import: import_lrn },
    OnnxImport { op_type: "LpNormalization", domain: "", since: 1, import: import_lp_norm },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::run;
    use crate::tensor::Tensor;

    #[test]
    fn neighbours_end_at_the_edges() {
        let x = Tensor::from_vec(vec![1, 4, 1], vec![1.0f32, 2.0, 3.0, 4.0]);
        for (size, sums) in [(3, [5.0, 14.0, 29.0, 25.0]), (2, [5.0, 13.0, 25.0, 16.0]), (1, [1.0, 4.0, 9.0, 16.0])] {
            let op = Lrn { size, alpha: size as f64, beta: 1.0, bias: 1.0, axis: 1 };
            for (i, v) in run(op, &[&x]).to_f64_vec().into_iter().enumerate() {
                assert!((v - (i + 1) as f64 / (1.0 + sums[i])).abs() < 1e-6, "{size} {i}: {v}");
            }
        }
    }

    #[test]
    fn vectors_get_norm_one_and_zeros_stay() {
        let x = Tensor::from_vec(vec![2, 2], vec![3.0f32, 0.0, -4.0, 0.0]);
        let y = run(LpNorm { axis: 0, p: 2 }, &[&x]).to_f64_vec();
        assert!((y[0] - 0.6).abs() < 1e-6 && (y[2] + 0.8).abs() < 1e-6 && y[1] == 0.0);
        let y = run(LpNorm { axis: 0, p: 1 }, &[&x]).to_f64_vec();
        assert!((y[0] - 3.0 / 7.0).abs() < 1e-6);
    }
}
