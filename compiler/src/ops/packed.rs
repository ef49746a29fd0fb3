//! Ops on packed data: the answers of axis-carrying ops to the layout pass, for layouts that split the channels.

use super::{DataLayout, OpRef, OpResult};
use crate::int::Int;

/// An op rewritten for packed data: the answer of [`Op::packed`](super::Op::packed).
#[derive(Clone, Debug)]
pub struct PackedOp {
    /// The new op.
    pub op: OpRef,
    /// Operands of the new op: which old operand, and how it is needed.
    pub operands: Vec<(usize, PackedForm)>,
    /// How each result comes out.
    pub results: Vec<PackedForm>,
}

/// How an operand of a packed op is needed, or how a result comes out.
#[derive(Clone, PartialEq, Debug)]
pub enum PackedForm {
    /// As it stands.
    AsIs,
    /// In the packed layout.
    Packed,
    /// The same elements in order, under another shape.
    Shaped(Vec<Int>),
}

impl PackedOp {
    /// The usual case: the first `operands` operands and `results` results are packed.
    pub fn uniform(op: impl Into<OpRef>, operands: usize, results: usize) -> PackedOp {
        PackedOp {
            op: op.into(),
            operands: (0..operands).map(|i| (i, PackedForm::Packed)).collect(),
            results: vec![PackedForm::Packed; results],
        }
    }
}

/// Axes of NCHW data as axes of packed data: the channels are two axes there.
pub fn packed_axes(axes: &[usize]) -> Vec<usize> {
    if axes.contains(&1) { [axes, &[4]].concat() } else { axes.to_vec() }
}

/// Sizes or positions along the channels in groups.
///
/// # Errors
/// When one lies inside a group; `what` says what it is.
pub fn whole_groups(sizes: &[Int], layout: DataLayout, what: &str) -> OpResult<Vec<Int>> {
    let group = |s: &Int| {
        layout.groups(s).ok_or_else(|| {
            let block = layout.block().unwrap_or(1);
            format!("{what} {s}, inside a group of {block} channels of {}", layout.title()).into()
        })
    };
    sizes.iter().map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{FunctionBuilder, Module, ValueId};
    use crate::ops::data_layout::DataLayout::{Nchw4c, Nchw8c, Nchw16c};
    use crate::ops::layout_transform::LayoutTransform;
    use crate::ops::testing::{assert_close, random, run, try_run};
    use crate::ops::{InferContext, binary, concat, local_norm, pad, reduce, slice, softmax, split};
    use crate::tensor::Tensor;

    fn ints(v: &[i64]) -> Vec<Int> {
        v.iter().map(|&i| Int::new(i)).collect()
    }

    fn answer(op: &OpRef, inputs: &[&Tensor], layout: DataLayout) -> Option<OpResult<PackedOp>> {
        let mut module = Module::new("main");
        let mut b = FunctionBuilder::new(&mut module, "main");
        let values: Vec<Option<ValueId>> = inputs.iter().map(|t| Some(b.constant("c", t))).collect();
        op.packed(layout, &InferContext::new(b.module, &b.function, &values, &[]))
    }

    /// Runs the packed form on packed operands, and holds the results against those of `op`.
    #[track_caller]
    fn assert_packed(op: impl Into<OpRef>, inputs: &[&Tensor], layout: DataLayout) {
        let op = op.into();
        let new = answer(&op, inputs, layout).unwrap_or_else(|| panic!("{op:?} has no answer"));
        let new = new.unwrap_or_else(|e| panic!("{op:?}: {e}"));
        let apply = |t: &Tensor, form: &PackedForm| match form {
            PackedForm::AsIs => t.clone(),
            PackedForm::Packed => run(LayoutTransform { from: DataLayout::Nchw, to: layout }, &[t]),
            PackedForm::Shaped(s) => t.reshaped(crate::int::const_dims(s).expect("constant")),
        };
        let operands: Vec<Tensor> = new.operands.iter().map(|(i, form)| apply(inputs[*i], form)).collect();
        let got = try_run(new.op.clone(), &operands.iter().collect::<Vec<_>>());
        let got = got.unwrap_or_else(|e| panic!("{:?}: {e}", new.op));
        let want = try_run(op, inputs).expect("the op runs");
        assert_eq!((got.len(), new.results.len()), (want.len(), want.len()));
        for ((g, w), form) in got.iter().zip(&want).zip(&new.results) {
            assert_close(g, &apply(w, form), 1e-6);
        }
    }

    #[test]
    fn every_axis() {
        let (x, y) = (random(&[2, 16, 3, 4], 1), random(&[2, 16, 3, 4], 2));
        for layout in [Nchw4c, Nchw8c] {
            for axis in 0..4usize {
                let a = axis as i64;
                assert_packed(concat::Concat { axis: a - 4 }, &[&x, &y], layout);
                assert_packed(softmax::Softmax { axes: vec![axis] }, &[&x], layout);
                assert_packed(softmax::LogSoftmax { axes: vec![axis] }, &[&x], layout);
                assert_packed(reduce::Reduce { axes: vec![axis], keepdims: true, ..Default::default() }, &[&x], layout);
                let part = if axis == 1 { 8 } else { 1 };
                let sizes = ints(&[part, x.shape()[axis] as i64 - part]);
                assert_packed(split::Split { axis: a, sizes }, &[&x], layout);
                let slice =
                    slice::Slice { starts: ints(&[-part]), ends: ints(&[99]), axes: vec![a], ..Default::default() };
                assert_packed(slice, &[&x], layout);
            }
            for axes in [vec![2, 3], vec![1], vec![0, 1], vec![1, 2, 3], vec![0, 2, 3]] {
                let kind = reduce::ReduceKind::Mean;
                assert_packed(reduce::Reduce { kind, axes, keepdims: false }, &[&x], layout);
            }
            assert_packed(pad::Pad { pads: ints(&[0, 0, 1, 2, 1, 0, 0, 3]), ..Default::default() }, &[&x], layout);
        }
    }

    #[test]
    fn what_touches_the_inside_of_a_group_is_refused() {
        let x = random(&[1, 32, 3, 4], 1);
        let refusal = |op: OpRef| match answer(&op, &[&x, &x], Nchw16c) {
            Some(Err(why)) => why.message,
            other => panic!("{op:?}: {other:?}"),
        };
        let pads = ints(&[0, 1, 0, 0, 0, 0, 0, 0]);
        assert!(refusal(pad::Pad { pads, ..Default::default() }.into()).contains("pads the channels"));
        let slice = |start, end, step| -> OpRef {
            slice::Slice { starts: ints(&[start]), ends: ints(&[end]), axes: vec![1], steps: vec![step], dims: vec![] }
                .into()
        };
        assert!(refusal(slice(8, 32, 1)).contains("8"));
        assert!(refusal(slice(0, 20, 1)).contains("20"));
        assert!(refusal(slice(0, 32, 2)).contains("step"));
        assert!(refusal(split::Split { axis: 1, sizes: ints(&[20, 12]) }.into()).contains("20"));
        assert!(refusal(local_norm::Lrn { size: 3, ..Default::default() }.into()).contains("channels"));
        assert!(refusal(binary::PRelu {}.into()).contains("slope"));
        assert!(refusal(reduce::Reduce { axes: vec![2], ..Default::default() }.into()).contains("order"));
        // The channels of one group cannot be split further, but whole groups can.
        assert_packed(slice(16, 32, 1), &[&x], Nchw16c);
    }
}
