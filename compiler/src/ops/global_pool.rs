//! Pooling over all spatial axes.

use super::binary::Pow;
use super::data_layout::data_layout_rule;
use super::pool::check_norm;
use super::reduce::{Reduce, ReduceKind};
use super::unary::Abs;
use super::window::{DataLayout, export_channels_first};
use super::{Homogeneity, InferContext, LayoutRule, Op, OpResult, Precision};
use crate::attr_struct;
use crate::dtype::DType;
use crate::graph::{TensorType, ValueId};
use crate::int::{Int, product};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxImport};
use crate::te::ComputeContext;
use crate::tir::{BufferId, Combiner, Expr};

attr_struct! {
    /// Mean over all spatial axes, which stay as size 1.
    pub struct GlobalAveragePool("global_average_pool") {
        /// Layout of data and result.
        pub layout: DataLayout = DataLayout::Nchw,
    }
}
attr_struct! {
    /// Largest element over all spatial axes, which stay as size 1.
    pub struct GlobalMaxPool("global_max_pool") {
        /// Layout of data and result.
        pub layout: DataLayout = DataLayout::Nchw,
    }
}
data_layout_rule!(GlobalAveragePool, GlobalMaxPool);

fn infer_pooled(cx: &InferContext<'_>, layout: DataLayout) -> OpResult<TensorType> {
    let x = cx.require(0)?;
    layout.check(x)?;
    let spatial = layout.spatial(&x.shape);
    if spatial.iter().any(|d| d.is(0)) {
        return Err(format!("pools over empty spatial axes {spatial:?}").into());
    }
    let ones = vec![Int::new(1); spatial.len()];
    Ok(TensorType::new(x.dtype, layout.with_spatial(&x.shape, ones)))
}

/// Combines all spatial elements of operand 0 in `acc`.
fn pool_all(
    cx: &mut ComputeContext<'_>,
    label: &str,
    layout: DataLayout,
    combiner: Combiner,
    acc: DType,
) -> OpResult<BufferId> {
    let x = cx.require(0)?;
    let (out, extents) = (cx.output_type(0).clone(), layout.spatial(&cx.shape(x)).to_vec());
    Ok(cx.reduce(label, &out.shape, acc, &extents, combiner, |o, r| {
        Expr::load(x, layout.with_spatial(o, r.to_vec())).cast(out.dtype, acc)
    }))
}

impl Op for GlobalAveragePool {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        cx.float_data()?;
        Ok(vec![infer_pooled(cx, self.layout)?])
    }
    fn fusion_kind(&self) -> Option<crate::tir::FusionKind> {
        Some(crate::tir::FusionKind::OutElementwiseFusable)
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let out = cx.output_type(0).clone();
        let acc = out.dtype.accumulator();
        let count = product(self.layout.spatial(&cx.shape(cx.require(0)?)));
        let sum = pool_all(cx, "sum", self.layout, Combiner::Sum, acc)?;
        let mean = cx.compute("", &out.shape, out.dtype, |o| {
            (Expr::load(sum, o.to_vec()) / Expr::Index(count, acc)).cast(acc, out.dtype)
        });
        cx.output(0, mean);
        Ok(())
    }
    fn precision(&self) -> Precision {
        Precision::Follow
    }
    fn homogeneity(&self) -> Homogeneity {
        Homogeneity::Full
    }
    fn layout(&self) -> Option<&dyn LayoutRule> {
        Some(self)
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        export_channels_first(cx, self.layout, "GlobalAveragePool", vec![])
    }
}

impl Op for GlobalMaxPool {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        Ok(vec![infer_pooled(cx, self.layout)?])
    }
    fn fusion_kind(&self) -> Option<crate::tir::FusionKind> {
        Some(crate::tir::FusionKind::OutElementwiseFusable)
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let dtype = cx.output_type(0).dtype;
        let best = pool_all(cx, "", self.layout, Combiner::Max, dtype)?;
        cx.output(0, best);
        Ok(())
    }
    fn homogeneity(&self) -> Homogeneity {
        Homogeneity::Positive
    }
    fn layout(&self) -> Option<&dyn LayoutRule> {
        Some(self)
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        export_channels_first(cx, self.layout, "GlobalMaxPool", vec![])
    }
}

fn import_average(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    Ok(vec![cx.add(GlobalAveragePool::default(), &[x])?])
}
fn import_max(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    Ok(vec![cx.add(GlobalMaxPool::default(), &[x])?])
}

/// `(sum |x|^p)^(1/p)` over all spatial axes.
fn import_lp(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (x, ty, p) = (cx.input(0)?, cx.ty(0)?, cx.attrs.int("p").unwrap_or(2));
    DataLayout::Nchw.check(&ty)?;
    check_norm(ty.dtype, p)?;
    let over = |kind| Reduce { kind, axes: (2..ty.rank()).collect(), keepdims: true };
    let kind = match p {
        1 => ReduceKind::L1,
        2 => ReduceKind::L2,
        _ => {
            let (power, root) = (cx.number(p as f64, ty.dtype), cx.number(1.0 / p as f64, ty.dtype));
            let x = cx.add(Abs {}, &[x])?;
            let x = cx.add(Pow {}, &[x, power])?;
            let sum = cx.add(over(ReduceKind::Sum), &[x])?;
            return Ok(vec![cx.add(Pow {}, &[sum, root])?]);
        }
    };
    Ok(vec![cx.add(over(kind), &[x])?])
}

/// ONNX importers of this family.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "GlobalLpPool", domain: "", since: 2, import: import_lp },
    OnnxImport { op_type: "GlobalAveragePool", domain: "", since: 1, import: import_average },
    OnnxImport { op_type: "GlobalMaxPool", domain: "", since: 1, import: import_max },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::onnx::OnnxAttr;
    use crate::ops::testing::{assert_close, random, run, run_onnx, transposed, try_run};

    #[test]
    fn norms_of_any_order() {
        let x = random(&[2, 3, 4, 5], 1);
        for p in [1, 2, 3] {
            let got = run_onnx(("GlobalLpPool", 2), &[("p", OnnxAttr::Int(p))], &[Some(&x)], 1).unwrap().remove(0);
            let values = x.to_f64_vec();
            let norm = |plane: &[f64]| plane.iter().map(|v| v.abs().powf(p as f64)).sum::<f64>().powf(1.0 / p as f64);
            let want = values.chunks(20).map(norm).collect::<Vec<_>>();
            assert_close(&got, &crate::tensor::Tensor::from_f64(DType::F32, vec![2, 3, 1, 1], want), 1e-5);
        }
        assert!(run_onnx(("GlobalLpPool", 2), &[("p", OnnxAttr::Int(0))], &[Some(&x)], 1).is_err());
    }

    #[test]
    fn pools_each_channel_in_both_layouts() {
        let x = random(&[2, 3, 4, 5], 1);
        let values = x.to_f64_vec();
        let mean = run(GlobalAveragePool::default(), &[&x]);
        let max = run(GlobalMaxPool::default(), &[&x]);
        assert_eq!(mean.shape(), [2, 3, 1, 1]);
        for (i, plane) in values.chunks(20).enumerate() {
            assert!((mean.to_f64_vec()[i] - plane.iter().sum::<f64>() / 20.0).abs() < 1e-6);
            assert_eq!(max.to_f64_vec()[i], plane.iter().copied().fold(f64::MIN, f64::max));
        }
        let moved = transposed(&x, &[0, 2, 3, 1]);
        let nhwc = run(GlobalAveragePool { layout: DataLayout::Nhwc }, &[&moved]);
        assert_close(&nhwc, &transposed(&mean, &[0, 2, 3, 1]), 1e-6);
        let nhwc = run(GlobalMaxPool { layout: DataLayout::Nhwc }, &[&moved]);
        assert_close(&nhwc, &transposed(&max, &[0, 2, 3, 1]), 0.0);
        assert!(try_run(GlobalMaxPool::default(), &[&random(&[1, 2, 0, 3], 1)]).unwrap_err().contains("empty"));
    }
}
