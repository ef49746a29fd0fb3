//! Cutting a tensor along an axis.

use super::binary::Sub;
use super::packed::{PackedOp, whole_groups};
use super::permute::{PermutedOp, normalize_axis, permuted_axis};
use super::scan::CumSum;
use super::slice::Slice;
use super::{DataLayout, InferContext, Op, OpResult};
use crate::attr_struct;
use crate::graph::{TensorType, ValueId};
use crate::int::{Dim, Int};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tir::Expr;

attr_struct! {
    /// One result for each entry of `sizes`: consecutive parts of the operand along `axis`.
    pub struct Split("split") {
        /// The axis; negative counts from the end.
        pub axis: i64 = 0,
        /// Size of each part.
        pub sizes: Vec<Int> = vec![],
    }
}
impl Op for Split {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn keeps_elements(&self) -> bool {
        true
    }
    fn num_results(&self) -> usize {
        self.sizes.len()
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.require(0)?;
        let axis = normalize_axis(self.axis, x.rank())?;
        let total = self.sizes.iter().fold(Int::new(0), |a, s| a + s);
        if let (Some(a), Some(b)) = (total.as_const(), x.shape[axis].as_const())
            && a != b
        {
            return Err(format!("the parts {:?} do not sum up to {b}", self.sizes).into());
        }
        let part = |s: &Int| {
            let mut ty = x.clone();
            ty.shape[axis] = s.clone();
            ty
        };
        Ok(self.sizes.iter().map(part).collect())
    }
    fn infer_value(&self, cx: &InferContext<'_>) -> Option<Vec<Dim>> {
        cx.int_input(0)
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let x = cx.require(0)?;
        let axis = normalize_axis(self.axis, cx.shape(x).len())?;
        let mut offset = Int::new(0);
        for (n, size) in self.sizes.iter().enumerate() {
            let ty = cx.output_type(n).clone();
            let label = if n == 0 { String::new() } else { format!("part{n}") };
            let out = cx.compute(&label, &ty.shape, ty.dtype, |i| {
                let mut at = i.to_vec();
                at[axis] = at[axis].clone() + &offset;
                Expr::load(x, at)
            });
            cx.output(n, out);
            offset = offset + size;
        }
        Ok(())
    }
    fn permuted(&self, perm: &[usize], _cx: &InferContext<'_>) -> Option<PermutedOp> {
        let axis = permuted_axis(normalize_axis(self.axis, perm.len()).ok()?, perm) as i64;
        Some(PermutedOp::uniform(Split { axis, sizes: self.sizes.clone() }, perm, 1, self.sizes.len()))
    }
    fn packed(&self, layout: DataLayout, _cx: &InferContext<'_>) -> Option<OpResult<PackedOp>> {
        let axis = normalize_axis(self.axis, 4).ok()?;
        let sizes = match axis {
            1 => whole_groups(&self.sizes, layout, "it splits off parts of the channels, one of size"),
            _ => Ok(self.sizes.clone()),
        };
        Some(sizes.map(|sizes| PackedOp::uniform(Split { axis: axis as i64, sizes }, 1, self.sizes.len())))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let sizes = cx.ints(&self.sizes)?;
        let (inputs, outputs) = (vec![cx.input(0), sizes], cx.outputs.clone());
        cx.node("Split", inputs, outputs, vec![("axis", OnnxAttr::Int(self.axis))]);
        Ok(())
    }
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[OnnxImport { op_type: "Split", domain: "", since: 2, import: import_split }];

/// Sizes come from operand 1 (opset 13), the attribute `split` (before), or equal parts with a smaller last one.
fn import_split(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    let ty = cx.ty(0)?;
    let axis = normalize_axis(cx.attrs.int("axis").unwrap_or(0), ty.rank())?;
    let sizes: Vec<Int> = if let Some(sizes) = cx.opt(1) {
        match cx.int_values(1) {
            Some(sizes) => sizes,
            None => return split_at_run_time(cx, x, sizes, axis),
        }
    } else if let Some(sizes) = cx.attrs.ints("split") {
        sizes.iter().map(|&s| Int::new(s)).collect()
    } else {
        let n = cx.attrs.int("num_outputs").unwrap_or(cx.num_outputs as i64).max(1);
        if n > cx.num_outputs.max(1) as i64 {
            return Err(format!("num_outputs is {n}, the node has {} outputs", cx.num_outputs).into());
        }
        let size = ty.shape[axis].ceil_div(n);
        let last = ty.shape[axis].clone() - size.clone() * (n - 1);
        let even = ty.shape[axis].as_const().is_none();
        (0..n).map(|i| if i < n - 1 || even { size.clone() } else { last.clone() }).collect()
    };
    if sizes.iter().any(|s| s.as_const().is_some_and(|c| c < 0)) {
        return Err(format!("{:?} does not split into these parts: {sizes:?}", ty.shape[axis]).into());
    }
    cx.add_multi(Split { axis: axis as i64, sizes }, vec![Some(x)])
}

/// Sizes that are known only at run time: part `i` is the slice before the sum of the sizes up to it.
fn split_at_run_time(
    cx: &mut ImportContext<'_, '_>,
    x: ValueId,
    sizes: ValueId,
    axis: usize,
) -> OpResult<Vec<ValueId>> {
    let ends = cx.add(CumSum::default(), &[sizes])?;
    let starts = cx.add(Sub {}, &[ends, sizes])?;
    let mut parts = Vec::with_capacity(cx.num_outputs);
    for i in 0..cx.num_outputs as i64 {
        let one = |cx: &mut ImportContext<'_, '_>, v| {
            let (starts, ends) = (vec![Int::new(i)], vec![Int::new(i + 1)]);
            cx.add(Slice { starts, ends, axes: vec![0], ..Slice::default() }, &[v])
        };
        let (start, end) = (one(cx, starts)?, one(cx, ends)?);
        let mut dims = cx.type_of(x).shape;
        dims[axis] = cx.fresh_dim("split", i as usize);
        parts.push(cx.add(Slice { axes: vec![axis as i64], dims, ..Slice::default() }, &[x, start, end])?);
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{random, try_run};

    #[test]
    fn parts_in_order() {
        let x = random(&[2, 5], 1);
        let parts = try_run(Split { axis: -1, sizes: vec![2.into(), 0.into(), 3.into()] }, &[&x]).unwrap();
        assert_eq!(parts.iter().map(|t| t.shape()[1]).collect::<Vec<_>>(), [2, 0, 3]);
        assert_eq!(parts[2].to_f32_vec()[..3], x.to_f32_vec()[2..5]);
        assert!(try_run(Split { axis: 1, sizes: vec![2.into(), 2.into()] }, &[&x]).is_err());
    }
}
