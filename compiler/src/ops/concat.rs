//! Joining tensors along an axis.

use super::broadcast::unify_dims;
use super::permute::{PermutedOp, normalize_axis, permuted_axis};
use super::reshape::loop_bounds;
use super::{DataLayout, InferContext, Op, OpResult, PackedOp};
use crate::attr_struct;
use crate::graph::{TensorType, ValueId};
use crate::int::{Bounds, Dim, Int, simplify};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tir::{Cond, Expr};

attr_struct! {
    /// The operands one after another along `axis`.
    pub struct Concat("concat") {
        /// The axis; negative counts from the end.
        pub axis: i64 = 0,
    }
}
impl Op for Concat {
    fn arity(&self) -> (usize, usize) {
        (1, usize::MAX)
    }
    fn keeps_elements(&self) -> bool {
        true
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let mut out = cx.require(0)?.clone();
        let axis = normalize_axis(self.axis, out.rank())?;
        for i in 1..cx.len() {
            let x = cx.require(i)?;
            if x.dtype != out.dtype || x.rank() != out.rank() {
                return Err(format!("operand {i} is {x:?}, operand 0 is {:?}", cx.require(0)?).into());
            }
            for d in 0..out.rank() {
                out.shape[d] = match d == axis {
                    true => out.shape[d].clone() + &x.shape[d],
                    false => {
                        unify_dims(&out.shape[d], &x.shape[d]).map_err(|e| format!("operand {i}, axis {d}: {e}"))?
                    }
                };
            }
        }
        out.shape[axis] = simplify(&out.shape[axis], &Bounds::new());
        Ok(vec![out])
    }
    fn infer_value(&self, cx: &InferContext<'_>) -> Option<Vec<Dim>> {
        let parts: Option<Vec<Vec<Dim>>> = (0..cx.len()).map(|i| cx.int_input(i)).collect();
        Some(parts?.concat())
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let ty = cx.output_type(0).clone();
        let axis = normalize_axis(self.axis, ty.rank())?;
        let mut parts = Vec::new();
        let mut offset = Int::new(0);
        for n in 0..cx.num_inputs() {
            let b = cx.require(n)?;
            let d = cx.shape(b)[axis].clone();
            if !d.is(0) {
                parts.push((b, offset.clone()));
            }
            offset = offset + d;
        }
        let out = cx.compute("", &ty.shape, ty.dtype, |i| {
            let bounds = loop_bounds(i, &ty.shape);
            let load = |(b, offset): &(_, Int)| {
                let mut at = i.to_vec();
                at[axis] = simplify(&(at[axis].clone() - offset), &bounds);
                Expr::load(*b, at)
            };
            // Operands of size 0 never occur; a result of size 0 still needs an expression.
            let Some(last) = parts.last() else { return Expr::int(0, ty.dtype) };
            let pairs = parts.iter().zip(&parts[1..]).rev();
            pairs.fold(load(last), |rest, (p, next)| {
                let inside = Cond::lt(&i[axis], simplify(&next.1, &bounds));
                Expr::guarded(vec![inside], load(p), rest)
            })
        });
        cx.output(0, out);
        Ok(())
    }
    fn permuted(&self, perm: &[usize], cx: &InferContext<'_>) -> Option<PermutedOp> {
        let axis = normalize_axis(self.axis, perm.len()).ok()?;
        Some(PermutedOp::uniform(Concat { axis: permuted_axis(axis, perm) as i64 }, perm, cx.len(), 1))
    }
    fn packed(&self, _layout: DataLayout, cx: &InferContext<'_>) -> Option<OpResult<PackedOp>> {
        let axis = normalize_axis(self.axis, 4).ok()? as i64;
        Some(Ok(PackedOp::uniform(Concat { axis }, cx.len(), 1)))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        cx.simple("Concat", vec![("axis", OnnxAttr::Int(self.axis))]);
        Ok(())
    }
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[OnnxImport { op_type: "Concat", domain: "", since: 4, import: import_concat }];

fn import_concat(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let axis = cx.attrs.int("axis").ok_or("attribute `axis` is missing")?;
    let operands: Vec<ValueId> = (0..cx.inputs.len()).map(|i| cx.input(i)).collect::<Result<_, _>>()?;
    let axis = normalize_axis(axis, cx.ty(0)?.rank())? as i64;
    Ok(vec![cx.add(Concat { axis }, &operands)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{random, run, try_run};
    use crate::tensor::Tensor;

    #[test]
    fn joins_along_each_axis() {
        let (a, b) = (Tensor::from_vec(vec![2, 1], vec![1i64, 2]), Tensor::from_vec(vec![2, 2], vec![3i64, 4, 5, 6]));
        assert_eq!(run(Concat { axis: -1 }, &[&a, &b, &a]).to_i64_vec(), [1, 3, 4, 1, 2, 5, 6, 2]);
        assert_eq!(run(Concat { axis: 0 }, &[&b, &b]).shape(), [4, 2]);
        let empty = Tensor::zeros(crate::dtype::DType::I64, vec![2, 0]);
        assert_eq!(run(Concat { axis: 1 }, &[&empty, &b, &empty]).to_i64_vec(), [3, 4, 5, 6]);
        assert!(try_run(Concat { axis: 0 }, &[&a, &b]).is_err());
        assert!(try_run(Concat { axis: 2 }, &[&a, &a]).is_err());
        assert!(try_run(Concat { axis: 0 }, &[&a, &random(&[2, 1], 1)]).is_err());
    }
}
