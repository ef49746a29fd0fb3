//! Changes the data layout of a tensor: TVM's `layout_transform`.

use super::data_layout::DataLayout;
use super::reshape::loop_bounds;
use super::window::export_layout_change;
use super::{InferContext, Op, OpResult};
use crate::attr_struct;
use crate::graph::TensorType;
use crate::int::Int;
use crate::ops::onnx::{ExportContext, OnnxImport};
use crate::te::ComputeContext;
use crate::tir::Expr;

/// ONNX importers: none makes these ops as they are.
pub const ONNX: &[OnnxImport] = &[];

attr_struct! {
    /// The same batch, channels and spatial axes in another data layout; splits and joins channels for packed ones.
    pub struct LayoutTransform("layout_transform") {
        /// Layout of the operand.
        pub from: DataLayout = DataLayout::Nchw,
        /// Layout of the result.
        pub to: DataLayout = DataLayout::Nchw,
    }
}
impl LayoutTransform {
    /// Shape of the result for an operand of this shape.
    ///
    /// # Errors
    /// When the channels do not divide into groups.
    pub fn result_shape(&self, shape: &[Int]) -> OpResult<Vec<Int>> {
        self.to.shape(&shape[0], &self.from.channels(shape), self.from.spatial(shape).to_vec())
    }
    /// True when the elements keep their order for an operand of this shape.
    pub fn keeps_order(&self, shape: &[Int]) -> bool {
        let single = |d: Int| d.is(1);
        let one_place = self.from.spatial(shape).iter().all(|d| d.is(1));
        let one_channel = |l: DataLayout| match l.block() {
            Some(block) => single(crate::ops::window::tidy(&self.from.channels(shape).div(block))),
            None => true,
        };
        // Without spatial extent only channels are left, in order. A single group of channels is channels-last.
        let last = |l: DataLayout| l == DataLayout::Nhwc || (l.block().is_some() && one_channel(l));
        self.from == self.to
            || one_place
            || (last(self.from) && last(self.to))
            || (single(self.from.channels(shape)) && self.from.block().is_none() && self.to.block().is_none())
    }
}

impl Op for LayoutTransform {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.require(0)?;
        self.from.check(x)?;
        let ty = TensorType::new(x.dtype, self.result_shape(&x.shape)?);
        self.to.check(&ty)?;
        Ok(vec![ty])
    }
    fn moves_axes(&self, shape: &[Int]) -> Option<bool> {
        Some(!self.keeps_order(shape))
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let x = cx.require(0)?;
        let ty = cx.output_type(0).clone();
        let out = cx.compute("", &ty.shape, ty.dtype, |o| {
            let bounds = loop_bounds(o, &ty.shape);
            Expr::load(x, self.from.index(&o[0], &self.to.channel(o), self.to.spatial(o).to_vec(), &bounds))
        });
        cx.output(0, out);
        Ok(())
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let (input, output) = (cx.input(0), cx.outputs[0].clone());
        let from = cx.input_types.first().copied().flatten().ok_or("operand 0 is missing")?.shape.clone();
        let to = cx.output_types[0].shape.clone();
        match (self.from, self.to) {
            (a, b) if a == b => {
                cx.simple("Identity", vec![]);
                Ok(())
            }
            (a, DataLayout::Nchw) => export_layout_change(cx, (a, DataLayout::Nchw), &from, input, output),
            (DataLayout::Nchw, b) => export_layout_change(cx, (DataLayout::Nchw, b), &to, input, output),
            (a, b) => {
                let between = format!("{output}_nchw");
                export_layout_change(cx, (a, DataLayout::Nchw), &from, input, between.clone())?;
                export_layout_change(cx, (DataLayout::Nchw, b), &to, between, output)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::ops::testing::{assert_close, random, run, transposed, try_run};
    use crate::tensor::Tensor;

    fn split(x: &Tensor, block: usize) -> Tensor {
        let s = x.shape();
        let parts = x.reshaped(vec![s[0], s[1] / block, block, s[2], s[3]]);
        transposed(&parts, &[0, 1, 3, 4, 2])
    }

    #[test]
    fn every_pair_of_layouts() {
        let x = random(&[2, 16, 3, 5], 1);
        let in_layout = |l: DataLayout| match l.block() {
            Some(block) => split(&x, block as usize),
            None if l == DataLayout::Nhwc => transposed(&x, &[0, 2, 3, 1]),
            None => x.clone(),
        };
        for &from in DataLayout::ALL {
            for &to in DataLayout::ALL {
                assert_close(&run(LayoutTransform { from, to }, &[&in_layout(from)]), &in_layout(to), 0.0);
            }
        }
    }

    #[test]
    fn channels_that_do_not_divide_are_refused() {
        let op = LayoutTransform { from: DataLayout::Nchw, to: DataLayout::Nchw8c };
        assert!(try_run(op.clone(), &[&random(&[1, 12, 2, 2], 1)]).unwrap_err().contains("12 channels"));
        assert!(try_run(op, &[&random(&[1, 16, 2], 1)]).is_err());
    }

    #[test]
    fn order_is_kept_exactly_where_it_is() {
        for shape in [[1, 16, 1, 1], [2, 16, 3, 1], [1, 32, 1, 1], [2, 32, 2, 3], [2, 16, 2, 2]] {
            for &from in DataLayout::ALL {
                for &to in DataLayout::ALL {
                    let count: usize = shape.iter().product();
                    let numbers = Tensor::from_f64(DType::F32, shape.to_vec(), (0..count).map(|i| i as f64));
                    let x = run(LayoutTransform { from: DataLayout::Nchw, to: from }, &[&numbers]);
                    let op = LayoutTransform { from, to };
                    let dims: Vec<Int> = x.shape().iter().map(|&d| Int::new(d as i64)).collect();
                    let kept = run(op.clone(), &[&x]).to_f64_vec() == x.to_f64_vec();
                    assert!(!op.keeps_order(&dims) || kept, "{op:?} {shape:?}");
                    if from == DataLayout::Nchw || to == DataLayout::Nchw {
                        let trivial = shape[2] * shape[3] == 1 || from == to;
                        assert_eq!(kept, trivial, "{op:?} {shape:?}");
                        assert_eq!(op.keeps_order(&dims), kept, "{op:?} {shape:?}");
                    }
                }
            }
        }
    }
}
