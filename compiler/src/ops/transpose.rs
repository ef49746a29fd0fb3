//! Permuting dimensions.

use super::permute::{PermutedOp, invert, permute};
use super::{InferContext, Op, OpResult};
use crate::attr_struct;
use crate::graph::{TensorType, ValueId};
use crate::int::Int;
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tir::Expr;

attr_struct! {
    /// Result dimension `i` is operand dimension `perm[i]`.
    pub struct Transpose("transpose") {
        /// The permutation; empty for all dimensions in reverse.
        pub perm: Vec<usize> = vec![],
    }
}
impl Transpose {
    /// The permutation for an operand of rank `rank`.
    ///
    /// # Errors
    /// When `perm` is no permutation of that rank.
    pub fn perm(&self, rank: usize) -> OpResult<Vec<usize>> {
        if self.perm.is_empty() {
            return Ok((0..rank).rev().collect());
        }
        let mut sorted = self.perm.clone();
        sorted.sort_unstable();
        if sorted != (0..rank).collect::<Vec<_>>() {
            return Err(format!("{:?} is no permutation of {rank} dimensions", self.perm).into());
        }
        Ok(self.perm.clone())
    }
}
impl Op for Transpose {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn moves_axes(&self, shape: &[Int]) -> Option<bool> {
        let moved = self.perm(shape.len()).ok()?.into_iter().filter(|&d| !shape[d].is(1));
        Some(!moved.is_sorted())
    }
    fn keeps_elements(&self) -> bool {
        true
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.require(0)?;
        Ok(vec![TensorType::new(x.dtype, permute(&x.shape, &self.perm(x.rank())?))])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let x = cx.require(0)?;
        let ty = cx.output_type(0).clone();
        let back = invert(&self.perm(ty.rank())?);
        let out = cx.compute("", &ty.shape, ty.dtype, |i: &[Int]| Expr::load(x, permute(i, &back)));
        cx.output(0, out);
        Ok(())
    }
    fn permuted(&self, perm: &[usize], _cx: &InferContext<'_>) -> Option<PermutedOp> {
        // The result stays as it is: the new permutation undoes `perm` first.
        let perm_of_result = permute(&invert(perm), &self.perm(perm.len()).ok()?);
        let mut out = PermutedOp::uniform(Transpose { perm: perm_of_result }, perm, 1, 1);
        out.results[0] = None;
        Some(out)
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let perm = self.perm(cx.output_types[0].rank())?.into_iter().map(|p| p as i64).collect();
        cx.simple("Transpose", vec![("perm", OnnxAttr::Ints(perm))]);
        Ok(())
    }
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[OnnxImport { op_type: "Transpose", domain: "", since: 1, import: import_transpose }];

fn import_transpose(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    let perm = match cx.attrs.ints("perm") {
        Some(p) => super::host_copy::check_sizes(p)?,
        None => vec![],
    };
    Ok(vec![cx.add(Transpose { perm }, &[x])?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{assert_close, random, run, transposed, try_run};

    #[test]
    fn every_permutation_of_three() {
        let x = random(&[2, 3, 4], 1);
        for perm in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            assert_close(&run(Transpose { perm: perm.to_vec() }, &[&x]), &transposed(&x, &perm), 0.0);
        }
        assert_eq!(run(Transpose::default(), &[&x]).shape(), [4, 3, 2]);
        assert!(try_run(Transpose { perm: vec![0, 0, 1] }, &[&x]).is_err());
        assert!(try_run(Transpose { perm: vec![1, 0] }, &[&x]).is_err());
    }
}
