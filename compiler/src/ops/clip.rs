//! Clamping to a range.

use super::unary::{Domain, infer_map};
use super::{InferContext, Op, OpResult};
use crate::attr_struct;
use crate::graph::{TensorType, ValueId};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxImport};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::Expr;

attr_struct! {
    /// `min(max(x, low), high)`. The bounds are attributes, or else the optional scalar operands 1 (low) and 2 (high).
    pub struct Clip("clip") {
        /// Lower bound.
        pub min: Option<f64> = None,
        /// Upper bound.
        pub max: Option<f64> = None,
    }
}
impl Op for Clip {
    fn arity(&self) -> (usize, usize) {
        (1, 3)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let types = infer_map(cx, Domain::Number)?;
        for i in 1..3 {
            if let Some(bound) = cx.input(i)
                && (bound.dtype != types[0].dtype || !bound.numel().is(1))
            {
                return Err(format!("bound {bound:?} is not one {}", types[0].dtype).into());
            }
        }
        Ok(types)
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let x = cx.require(0)?;
        let (dtype, shape) = (cx.dtype(x), cx.shape(x));
        let bound = |i: usize, attr: Option<f64>| {
            let operand = cx.input(i).map(|b| Expr::load(b, vec![0.into(); cx.shape(b).len()]));
            attr.map(|v| Expr::constant(v, dtype)).or(operand)
        };
        let (low, high) = (bound(1, self.min), bound(2, self.max));
        let out = cx.compute("", &shape, dtype, |i| {
            let x = Expr::load(x, i.to_vec());
            let x = low.into_iter().fold(x, Expr::max);
            high.into_iter().fold(x, Expr::min)
        });
        cx.output(0, out);
        Ok(())
    }
    fn is_idempotent(&self) -> bool {
        self.clamp_bounds().is_some()
    }
    fn is_nonnegative(&self) -> bool {
        self.min.is_some_and(|low| low >= 0.0) && self.clamp_bounds().is_some()
    }
    fn clamp_bounds(&self) -> Option<(f64, f64)> {
        let bounds = (self.min.unwrap_or(f64::NEG_INFINITY), self.max.unwrap_or(f64::INFINITY));
        (bounds.0 <= bounds.1).then_some(bounds)
    }
    fn data_constants(&self) -> Vec<f64> {
        self.min.into_iter().chain(self.max).collect()
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let dtype = cx.output_types[0].dtype;
        let mut inputs = vec![cx.input(0)];
        for (i, attr) in [(1, self.min), (2, self.max)] {
            let name = match attr {
                Some(v) => cx.constant(Tensor::from_f64(dtype, vec![], [v])),
                None => cx.input(i),
            };
            inputs.push(name);
        }
        while inputs.last().is_some_and(String::is_empty) {
            inputs.pop();
        }
        let outputs = cx.outputs.clone();
        cx.node("Clip", inputs, outputs, vec![]);
        Ok(())
    }
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "Clip", domain: "", since: 6, import: import_attributes },
    OnnxImport { op_type: "Clip", domain: "", since: 11, import: import_operands },
];

fn import_attributes(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let op = Clip { min: cx.attrs.float("min"), max: cx.attrs.float("max") };
    let x = cx.input(0)?;
    Ok(vec![cx.add(op, &[x])?])
}

/// Constant bounds become attributes, so that the op stays a function of one operand.
fn import_operands(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let mut inputs = vec![Some(cx.input(0)?)];
    let mut attrs = [None, None];
    for (i, attr) in attrs.iter_mut().enumerate() {
        *attr = cx.const_number(i + 1);
        inputs.push(if attr.is_some() { None } else { cx.opt(i + 1) });
    }
    while inputs.last() == Some(&None) {
        inputs.pop();
    }
    cx.add_multi(Clip { min: attrs[0], max: attrs[1] }, inputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::onnx::OnnxAttr;
    use crate::ops::testing::{run, run_onnx, try_run};

    #[test]
    fn bounds_are_attributes_or_operands() {
        let x = Tensor::from_vec(vec![3], vec![-2.0f32, 0.5, 9.0]);
        assert_eq!(run(Clip { min: Some(0.0), max: Some(6.0) }, &[&x]).to_f64_vec(), [0.0, 0.5, 6.0]);
        let (low, high) = (Tensor::scalar(-1.0f32), Tensor::scalar(0.0f32));
        assert_eq!(run(Clip::default(), &[&x, &low, &high]).to_f64_vec(), [-1.0, 0.0, 0.0]);
        // A lower bound above the upper one: the upper one wins.
        assert_eq!(run(Clip { min: Some(3.0), max: Some(1.0) }, &[&x]).to_f64_vec(), [1.0, 1.0, 1.0]);
        assert!(try_run(Clip::default(), &[&x, &Tensor::scalar(1i32)]).is_err());
    }

    #[test]
    fn bounds_of_a_model_are_attributes_constants_or_operands() {
        let x = Tensor::from_vec(vec![1, 3], vec![-2i32, 1, 9]);
        let (low, high) = (Tensor::scalar(0i32), Tensor::scalar(6i32));
        let clip = |inputs: &[Option<&Tensor>]| run_onnx(("Clip", 12), &[], inputs, 1).expect("runs")[0].to_f64_vec();
        assert_eq!(clip(&[Some(&x), Some(&low), Some(&high)]), [0.0, 1.0, 6.0]);
        assert_eq!(clip(&[Some(&x), Some(&low)]), [0.0, 1.0, 9.0]);
        assert_eq!(clip(&[Some(&x), None, Some(&high)]), [-2.0, 1.0, 6.0]);
        // Floats are operands here.
        let x = Tensor::from_vec(vec![3], vec![-2.0f32, 0.5, 9.0]);
        let (low, high) = (Tensor::scalar(-1.0f32), Tensor::scalar(3.0f32));
        assert_eq!(clip(&[Some(&x), Some(&low), Some(&high)]), [-1.0, 0.5, 3.0]);
        let attributes = [("min", OnnxAttr::Float(0.0)), ("max", OnnxAttr::Float(6.0))];
        assert_eq!(run_onnx(("Clip", 6), &attributes, &[Some(&x)], 1).expect("runs")[0].to_f64_vec(), [0.0, 0.5, 6.0]);
    }
}
