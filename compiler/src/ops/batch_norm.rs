//! Batch normalisation with given statistics.

use super::binary::{Add, Mul, Sub};
use super::conv::check_vector;
use super::data_layout::data_layout_rule;
use super::reduce::{Reduce, ReduceKind};
use super::window::{DataLayout, export_channels_first};
use super::{InferContext, LayoutRule, Op, OpResult, Precision};
use crate::attr_struct;
use crate::graph::{TensorType, ValueId};
use crate::ops::onnx::{ExportContext, FloatTypes, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{Expr, UnaryOp};

attr_struct! {
    /// `(x - mean) / sqrt(variance + epsilon) * scale + bias` along the channel axis. Operands: data, scale, bias,
    /// mean, variance.
    pub struct BatchNorm("batch_norm") {
        /// Added to the variance.
        pub epsilon: f64 = 1e-5,
        /// Layout of data and result.
        pub layout: DataLayout = DataLayout::Nchw,
    }
}
data_layout_rule!(BatchNorm);

impl Op for BatchNorm {
    fn arity(&self) -> (usize, usize) {
        (5, 5)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.float_data()?;
        if x.rank() != 2 || self.layout != DataLayout::Nchw {
            self.layout.check(x)?;
        }
        let channels = &self.layout.channels(&x.shape);
        for (i, what) in ["scale", "bias", "mean", "variance"].iter().enumerate() {
            cx.require(i + 1)?;
            check_vector(cx, i + 1, what, channels)?;
        }
        Ok(vec![x.clone()])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let mut buffers = vec![];
        for i in 0..5 {
            buffers.push(cx.require(i)?);
        }
        let types: Vec<_> = buffers.iter().map(|&b| cx.dtype(b)).collect();
        let out = cx.output_type(0).clone();
        let acc = out.dtype.accumulator();
        let result = cx.compute("", &out.shape, out.dtype, |o| {
            let channel = vec![self.layout.channel(o)];
            let per_channel = |i: usize| Expr::load(buffers[i], channel.clone()).cast(types[i], acc);
            let x = Expr::load(buffers[0], o.to_vec()).cast(types[0], acc);
            let deviation = Expr::unary(UnaryOp::Sqrt, per_channel(4) + Expr::constant(self.epsilon, acc));
            let y = (x - per_channel(3)) * (per_channel(1) / deviation) + per_channel(2);
            y.cast(acc, out.dtype)
        });
        cx.output(0, result);
        Ok(())
    }
    fn precision(&self) -> Precision {
        Precision::Never
    }
    fn widens(&self) -> bool {
        true
    }
    fn layout(&self) -> Option<&dyn LayoutRule> {
        Some(self)
    }
    fn onnx_floats(&self) -> FloatTypes {
        FloatTypes::Own
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let attrs = vec![("epsilon", OnnxAttr::Float(self.epsilon as f32))];
        export_channels_first(cx, self.layout, "BatchNormalization", attrs)
    }
}

fn import_batch_norm(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    if cx.attrs.int("spatial").unwrap_or(1) == 0 {
        return Err("BatchNormalization with spatial=0 is not supported".into());
    }
    let op = BatchNorm { epsilon: cx.attrs.float("epsilon").unwrap_or(1e-5), layout: DataLayout::Nchw };
    if cx.attrs.int("training_mode").unwrap_or(0) != 0 {
        return import_training(cx, op);
    }
    if cx.num_outputs > 1 {
        // Before opset 14 the extra outputs asked for training.
        return Err("training mode of BatchNormalization before opset 14 is not supported".into());
    }
    let inputs = cx.inputs.clone();
    cx.add_multi(op, inputs)
}

/// Training mode: the statistics are the data's own, and the running ones move towards them.
fn import_training(cx: &mut ImportContext<'_, '_>, op: BatchNorm) -> OpResult<Vec<ValueId>> {
    let (x, rank) = (cx.input(0)?, cx.ty(0)?.rank());
    let axes: Vec<usize> = (0..rank).filter(|&a| a != 1).collect();
    let mean = cx.add(Reduce::new(ReduceKind::Mean, &axes, false), &[x])?;
    let column = cx.add(Reduce::new(ReduceKind::Mean, &axes, true), &[x])?;
    let off = cx.add(Sub {}, &[x, column])?;
    let square = cx.add(Mul {}, &[off, off])?;
    let variance = cx.add(Reduce::new(ReduceKind::Mean, &axes, false), &[square])?;
    let y = cx.add(op, &[x, cx.input(1)?, cx.input(2)?, mean, variance])?;
    let momentum = cx.attrs.float("momentum").unwrap_or(0.9);
    let mut out = vec![y];
    for (running, current) in [(cx.input(3)?, mean), (cx.input(4)?, variance)] {
        let dtype = cx.b.ty(running).dtype;
        let old = cx.constant(&Tensor::from_f64(dtype, vec![], [momentum]));
        let new = cx.constant(&Tensor::from_f64(dtype, vec![], [1.0 - momentum]));
        let (old, new) = (cx.add(Mul {}, &[running, old])?, cx.add(Mul {}, &[current, new])?);
        out.push(cx.add(Add {}, &[old, new])?);
    }
    Ok(out)
}

/// ONNX importers of this family.
pub const ONNX: &[OnnxImport] =
    &[OnnxImport { op_type: "BatchNormalization", domain: "", since: 7, import: import_batch_norm }];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{assert_close, random, run, transposed};

    #[test]
    fn applies_the_given_statistics_in_both_layouts() {
        let x = random(&[2, 3, 2, 2], 1);
        let vector = |v: [f32; 3]| Tensor::from_vec(vec![3], v.to_vec());
        let (scale, bias) = (vector([1.0, 2.0, -1.0]), vector([0.5, 0.0, 1.0]));
        let (mean, variance) = (vector([0.1, -0.2, 0.0]), vector([1.0, 0.25, 4.0]));
        let got = run(BatchNorm { epsilon: 0.0, ..BatchNorm::default() }, &[&x, &scale, &bias, &mean, &variance]);
        let want = x.to_f64_vec().into_iter().enumerate().map(|(i, v)| {
            let at = |t: &Tensor| t.to_f64_vec()[i / 4 % 3];
            (v - at(&mean)) / at(&variance).sqrt() * at(&scale) + at(&bias)
        });
        let want = Tensor::from_f64(x.dtype(), vec![2, 3, 2, 2], want.collect::<Vec<_>>());
        assert_close(&got, &want, 1e-6);
        let op = BatchNorm { epsilon: 0.0, layout: DataLayout::Nhwc };
        let got = run(op, &[&transposed(&x, &[0, 2, 3, 1]), &scale, &bias, &mean, &variance]);
        assert_close(&got, &transposed(&want, &[0, 2, 3, 1]), 1e-6);
    }
}
