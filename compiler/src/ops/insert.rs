//! Storing tensors into their parts of a larger one.

use super::permute::normalize_axis;
use super::{InferContext, Op, OpResult};
use crate::attr_struct;
use crate::graph::TensorType;
use crate::int::{Bounds, Int, simplify};
use crate::ops::onnx::OnnxImport;
use crate::te::ComputeContext;
use crate::tir::FusionKind;

/// ONNX importers: none makes these ops.
pub const ONNX: &[OnnxImport] = &[];

attr_struct! {
    /// The last operand with the others in it, each from its place of `starts` along `axis`. Without that operand (one
    /// for each place), the result has `size` elements along the axis, and the others are not specified.
    /// Kernels store the operands alone, in the memory of the last one.
    pub struct Insert("insert") {
        /// The axis.
        pub axis: i64 = 0,
        /// The first index of each operand along the axis.
        pub starts: Vec<Int> = vec![],
        /// Elements along the axis.
        pub size: Int = Int::new(0),
    }
}

impl Op for Insert {
    fn arity(&self) -> (usize, usize) {
        (self.starts.len(), self.starts.len() + 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.require(0)?;
        let axis = normalize_axis(self.axis, x.rank())?;
        let mut out = x.clone();
        out.shape[axis] = self.size.clone();
        for (i, start) in self.starts.iter().enumerate() {
            let part = cx.require(i)?;
            let fits = part.rank() == out.rank() && part.dtype == out.dtype;
            let same = |d: &usize| *d == axis || part.shape[*d] == out.shape[*d];
            if !fits || !(0..out.rank()).all(|d| same(&d)) {
                return Err(format!("operand {i} is {part:?}, the result {out:?}").into());
            }
            let rest = simplify(&(self.size.clone() - start - &part.shape[axis]), &Bounds::new());
            if start.as_const().is_some_and(|n| n < 0) || rest.as_const().is_some_and(|n| n < 0) {
                return Err(format!("operand {i} from {start} on is not inside of {} elements", self.size).into());
            }
        }
        match cx.input(self.starts.len()) {
            Some(of) if *of != out => Err(format!("the last operand is {of:?}, the result {out:?}").into()),
            _ => Ok(vec![out]),
        }
    }
    /// No op joins its kernel but those that `concat-parts` puts in front of it.
    fn fusion_kind(&self) -> Option<FusionKind> {
        Some(FusionKind::Opaque)
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let axis = normalize_axis(self.axis, cx.output_type(0).rank())?;
        let parts = self.starts.iter().enumerate().map(|(i, start)| Ok((cx.require(i)?, start.clone())));
        let parts = parts.collect::<OpResult<Vec<_>>>()?;
        let out = cx.update(axis, &parts, cx.input(self.starts.len()));
        cx.output(0, out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{run, try_run};
    use crate::tensor::Tensor;

    #[test]
    fn keeps_what_is_not_stored() {
        let of = Tensor::from_vec(vec![2, 4], (0..8i64).collect());
        let (a, b) = (Tensor::from_vec(vec![2, 1], vec![10i64, 20]), Tensor::from_vec(vec![2, 2], vec![1i64, 2, 3, 4]));
        let insert =
            |starts: &[i64]| Insert { axis: 1, starts: starts.iter().map(|n| Int::new(*n)).collect(), size: 4.into() };
        assert_eq!(run(insert(&[3]), &[&a, &of]).to_i64_vec(), [0, 1, 2, 10, 4, 5, 6, 20]);
        assert_eq!(run(insert(&[0, 1]), &[&a, &b, &of]).to_i64_vec(), [10, 1, 2, 3, 20, 3, 4, 7]);
        assert_eq!(run(insert(&[0, 1, 3]), &[&a, &b, &a]).to_i64_vec(), [10, 1, 2, 10, 20, 3, 4, 20]);
        assert!(try_run(insert(&[3]), &[&b, &of]).is_err());
        assert!(try_run(insert(&[3]), &[&a, &b]).is_err());
    }
}
