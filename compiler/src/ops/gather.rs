//! Gathers: elements at indices from an operand.
//!
//! ONNX forbids an index outside of `-d..d`. Weft then takes the nearest element ([`super::out_of_range`]), which also
//! proves that every access is in bounds.

use super::out_of_range::{load_nearest, nearest};
use super::permute::{PermutedOp, normalize_axis, permuted_axis};
use super::{Checked, InferContext, Op, OpResult};
use crate::attr_struct;
use crate::graph::{TensorType, ValueId};
use crate::int::{Dim, Int};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;

attr_struct! {
    /// Slices of operand 0 along `axis` at the integer indices of operand 1: the result has the shape of the operand
    /// with `axis` replaced by the shape of the indices.
    pub struct Gather("gather") {
        /// The axis; negative counts from the end.
        pub axis: i64 = 0,
    }
}
impl Op for Gather {
    fn arity(&self) -> (usize, usize) {
        (2, 2)
    }
    fn keeps_elements(&self) -> bool {
        true
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let (x, indices) = (cx.require(0)?, require_indices(cx, 1)?);
        let axis = normalize_axis(self.axis, x.rank())?;
        let shape = [&x.shape[..axis], &indices.shape, &x.shape[axis + 1..]].concat();
        Ok(vec![TensorType::new(x.dtype, shape)])
    }
    fn infer_value(&self, cx: &InferContext<'_>) -> Option<Vec<Dim>> {
        let (x, indices) = (cx.int_input(0)?, cx.int_input(1)?);
        if cx.input(0)?.rank() != 1 {
            return None;
        }
        let pick = |i: &Dim| x.get(normalize_axis(i.as_const()?, x.len()).ok()?).cloned();
        indices.iter().map(pick).collect()
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let (indices, shape) = (cx.require(1)?, cx.shape(cx.require(0)?));
        let axis = normalize_axis(self.axis, shape.len())?;
        let rank = cx.shape(indices).len();
        let one = cx.constant(1).filter(|t| t.len() == 1).map(|t| Int::new(t.to_i64_vec()[0]));
        gathered(cx, &shape[axis..=axis], |i| {
            let at = one.clone().unwrap_or_else(|| Int::load(indices, i[axis..axis + rank].to_vec()));
            [&i[..axis], &[nearest(&at, &shape[axis])], &i[axis + rank..]].concat()
        })
    }
    fn permuted(&self, perm: &[usize], cx: &InferContext<'_>) -> Option<PermutedOp> {
        // With one index (rank 0) the axis is removed; with a list of indices (rank 1) it stays in its place.
        let axis = normalize_axis(self.axis, perm.len()).ok()?;
        let rank = cx.input(1)?.rank();
        let mut out = PermutedOp::uniform(Gather { axis: permuted_axis(axis, perm) as i64 }, perm, 1, 1);
        out.operands.push((1, None));
        match rank {
            0 => out.results[0] = Some(super::permute::permutation_without(perm, &[axis])),
            1 => {}
            _ => return None,
        }
        Some(out)
    }
    fn checked(&self, types: &[Option<&TensorType>]) -> Option<Checked> {
        Checked::along(types, 1, self.axis)
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        cx.simple("Gather", vec![("axis", OnnxAttr::Int(self.axis))]);
        Ok(())
    }
}

/// The result whose element `i` is the element `at(i)` of operand 0. `sizes` are the dimensions that indices lead into.
fn gathered(cx: &mut ComputeContext<'_>, sizes: &[Int], at: impl Fn(&[Int]) -> Vec<Int>) -> OpResult<()> {
    let (x, ty) = (cx.require(0)?, cx.output_type(0).clone());
    let out = cx.compute("", &ty.shape, ty.dtype, |i| load_nearest(x, at(i), sizes, ty.dtype));
    cx.output(0, out);
    Ok(())
}

fn require_indices<'a>(cx: &InferContext<'a>, i: usize) -> OpResult<&'a TensorType> {
    let t = cx.require(i)?;
    if t.dtype.is_int() { Ok(t) } else { Err(format!("indices are {}", t.dtype).into()) }
}

attr_struct! {
    /// `result[i] = operand[i with i[axis] replaced by indices[i]]`; the result has the shape of the indices.
    pub struct GatherElements("gather_elements") {
        /// The axis; negative counts from the end.
        pub axis: i64 = 0,
    }
}
impl Op for GatherElements {
    fn arity(&self) -> (usize, usize) {
        (2, 2)
    }
    fn keeps_elements(&self) -> bool {
        true
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let (x, indices) = (cx.require(0)?, require_indices(cx, 1)?);
        let axis = normalize_axis(self.axis, x.rank())?;
        if indices.rank() != x.rank() {
            return Err(format!("indices of rank {} for rank {}", indices.rank(), x.rank()).into());
        }
        let inside = |(i, d): (&Dim, &Dim)| i.as_const().zip(d.as_const()).is_none_or(|(i, d)| i <= d);
        let mut pairs = indices.shape.iter().zip(&x.shape).enumerate();
        if !pairs.all(|(a, pair)| a == axis || inside(pair)) {
            return Err(format!("indices {:?} reach beyond data {:?}", indices.shape, x.shape).into());
        }
        Ok(vec![TensorType::new(x.dtype, indices.shape.clone())])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let (indices, shape) = (cx.require(1)?, cx.shape(cx.require(0)?));
        let axis = normalize_axis(self.axis, shape.len())?;
        gathered(cx, &shape[axis..=axis], |i| {
            let mut at = i.to_vec();
            at[axis] = nearest(&Int::load(indices, i.to_vec()), &shape[axis]);
            at
        })
    }
    fn permuted(&self, perm: &[usize], _cx: &InferContext<'_>) -> Option<PermutedOp> {
        let axis = permuted_axis(normalize_axis(self.axis, perm.len()).ok()?, perm) as i64;
        Some(PermutedOp::uniform(GatherElements { axis }, perm, 2, 1))
    }
    fn checked(&self, types: &[Option<&TensorType>]) -> Option<Checked> {
        Checked::along(types, 1, self.axis)
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        cx.simple("GatherElements", vec![("axis", OnnxAttr::Int(self.axis))]);
        Ok(())
    }
}

attr_struct! {
    /// The last dimension of the indices holds coordinates into the leading dimensions of the operand (after
    /// `batch_dims` shared ones); the result holds the sub-tensors there.
    pub struct GatherNd("gather_nd") {
        /// Leading dimensions that operand and indices share.
        pub batch_dims: usize = 0,
    }
}
impl GatherNd {
    /// Number of coordinates of an index tuple.
    fn depth(&self, x: &[Dim], indices: &[Dim]) -> OpResult<usize> {
        let depth = indices.last().and_then(Int::as_const).ok_or("the number of coordinates is not known")?;
        let depth = usize::try_from(depth).map_err(|_| "negative number of coordinates")?;
        if self.batch_dims >= indices.len() || self.batch_dims + depth > x.len() {
            return Err(format!("indices {indices:?} with {} batch dims do not fit {x:?}", self.batch_dims).into());
        }
        Ok(depth)
    }
}
impl Op for GatherNd {
    fn arity(&self) -> (usize, usize) {
        (2, 2)
    }
    fn keeps_elements(&self) -> bool {
        true
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let (x, indices) = (cx.require(0)?, require_indices(cx, 1)?);
        let depth = self.depth(&x.shape, &indices.shape)?;
        let outer = &indices.shape[..indices.rank() - 1];
        Ok(vec![TensorType::new(x.dtype, [outer, &x.shape[self.batch_dims + depth..]].concat())])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let indices = cx.require(1)?;
        let (shape, list) = (cx.shape(cx.require(0)?), cx.shape(indices));
        let depth = self.depth(&shape, &list)?;
        let (batch, outer) = (self.batch_dims, list.len() - 1);
        gathered(cx, &shape[batch..batch + depth], |i| {
            let coordinate = |c: usize| {
                let at = [&i[..outer], &[Int::from(c)]].concat();
                nearest(&Int::load(indices, at), &shape[batch + c])
            };
            let middle: Vec<Int> = (0..depth).map(coordinate).collect();
            [&i[..batch], &middle, &i[outer..]].concat()
        })
    }
    fn checked(&self, types: &[Option<&TensorType>]) -> Option<Checked> {
        Checked::coordinates(types, self.batch_dims)
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        cx.simple("GatherND", vec![("batch_dims", OnnxAttr::Int(self.batch_dims as i64))]);
        Ok(())
    }
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "Gather", domain: "", since: 1, import: import_gather },
    OnnxImport { op_type: "GatherElements", domain: "", since: 11, import: import_gather_elements },
    OnnxImport { op_type: "GatherND", domain: "", since: 11, import: import_gather_nd },
];

fn import_gather(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (x, indices) = (cx.input(0)?, cx.input(1)?);
    let axis = normalize_axis(cx.attrs.int("axis").unwrap_or(0), cx.ty(0)?.rank())? as i64;
    Ok(vec![cx.add(Gather { axis }, &[x, indices])?])
}

fn import_gather_elements(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (x, indices) = (cx.input(0)?, cx.input(1)?);
    let axis = normalize_axis(cx.attrs.int("axis").unwrap_or(0), cx.ty(0)?.rank())? as i64;
    Ok(vec![cx.add(GatherElements { axis }, &[x, indices])?])
}

fn import_gather_nd(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (x, indices) = (cx.input(0)?, cx.input(1)?);
    let batch_dims = usize::try_from(cx.attrs.int("batch_dims").unwrap_or(0)).map_err(|_| "negative batch_dims")?;
    Ok(vec![cx.add(GatherNd { batch_dims }, &[x, indices])?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{run, try_run};
    use crate::tensor::Tensor;

    #[test]
    fn slices_at_indices() {
        let x = Tensor::from_vec(vec![3, 2], vec![0i64, 1, 10, 11, 20, 21]);
        let list = Tensor::from_vec(vec![2, 1], vec![2i32, -3]);
        let out = run(Gather { axis: 0 }, &[&x, &list]);
        assert_eq!((out.shape(), out.to_i64_vec()), (&[2, 1, 2][..], vec![20, 21, 0, 1]));
        let out = run(Gather { axis: -1 }, &[&x, &Tensor::scalar(-1i64)]);
        assert_eq!((out.shape(), out.to_i64_vec()), (&[3][..], vec![1, 11, 21]));
        assert!(try_run(Gather { axis: 0 }, &[&x, &Tensor::scalar(0.5f32)]).is_err());
        let out = run(GatherElements { axis: 0 }, &[&x, &Tensor::from_vec(vec![1, 2], vec![2i64, -2])]);
        assert_eq!(out.to_i64_vec(), [20, 11]);
        let out = run(GatherNd { batch_dims: 0 }, &[&x, &Tensor::from_vec(vec![2, 2], vec![0i64, 1, -1, 0])]);
        assert_eq!(out.to_i64_vec(), [1, 20]);
        let out = run(GatherNd { batch_dims: 1 }, &[&x, &Tensor::from_vec(vec![3, 1], vec![0i64, 1, 0])]);
        assert_eq!(out.to_i64_vec(), [0, 11, 20]);
    }
}
