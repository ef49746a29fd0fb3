//! Convolution with taps that are moved by an operand of offsets (J. Dai et al., Deformable Convolutional Networks).
//!
//! Two stages give the moved coordinates, one the bilinear samples of all taps (zeros outside), and the last contracts
//! them with the weights.

use super::unary::math_dtype;
use super::window::{Window, WindowSpec};
use super::{InferContext, Op, OpResult, Precision};
use crate::attr_struct;
use crate::dtype::DType;
use crate::graph::{TensorType, ValueId};
use crate::int::Int;
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tir::{BufferId, Combiner, Cond, Expr, UnaryOp};

attr_struct! {
    /// Convolution of data `[n, c, h, w]` with weights `[out, c / group, kh, kw]`, whose tap `k` is moved by rows and
    /// columns `2k` and `2k + 1` of operand 2 `[n, offset_group * 2 * taps, oh, ow]`. Operands 3 and 4, where present:
    /// bias, and a factor of each sample `[n, offset_group * taps, oh, ow]`.
    pub struct DeformConv("deform_conv") {
        /// Steps; empty for 1.
        pub strides: Vec<i64> = vec![],
        /// Distances of the kernel's taps; empty for 1.
        pub dilations: Vec<i64> = vec![],
        /// Padding: beginnings, then ends; empty for 0.
        pub pads: Vec<i64> = vec![],
        /// Number of groups of channels that only see each other.
        pub group: i64 = 1,
        /// Number of groups of channels that are moved alike.
        pub offset_group: i64 = 1,
    }
}
impl DeformConv {
    fn spec(&self) -> WindowSpec {
        WindowSpec {
            strides: self.strides.clone(),
            dilations: self.dilations.clone(),
            pads: self.pads.clone(),
            auto_pad: super::window::AutoPad::NotSet,
            ceil_mode: false,
        }
    }
    /// The source coordinate of each tap along spatial axis `axis`, `[n, offset_group, taps, oh, ow]`.
    fn coordinates(
        &self,
        cx: &mut ComputeContext<'_>,
        axis: usize,
        window: &Window,
        shape: &[Int],
        t: DType,
    ) -> OpResult<BufferId> {
        let offset = cx.require(2)?;
        let (from, columns, taps) = (cx.dtype(offset), window.kernel[1].clone(), shape[2].clone());
        Ok(cx.compute("at", shape, t, |i| {
            let tap = if axis == 0 { i[2].div(&columns) } else { i[2].rem(&columns) };
            let regular =
                i[axis + 3].clone() * window.strides[axis] - &window.begin[axis] + tap * window.dilations[axis];
            let channel = (i[1].clone() * &taps + &i[2]) * 2 + axis as i64;
            let moved = Expr::load(offset, vec![i[0].clone(), channel, i[3].clone(), i[4].clone()]).cast(from, t);
            Expr::Index(regular, t) + moved
        }))
    }
}

/// The element before a coordinate; far outside nothing changes any more.
fn floor_stage(cx: &mut ComputeContext<'_>, at: BufferId, size: &Int, t: DType) -> BufferId {
    let shape = cx.shape(at);
    cx.compute("first", &shape, DType::I32, |i| {
        let inside = Expr::load(at, i.to_vec()).max(Expr::constant(-4.0, t)).min(Expr::Index(size.clone() + 4, t));
        Expr::unary(UnaryOp::Floor, inside).cast(t, DType::I32)
    })
}

impl Op for DeformConv {
    fn arity(&self) -> (usize, usize) {
        (3, 5)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let (x, w, offset) = (cx.require(0)?, cx.require(1)?, cx.require(2)?);
        if x.rank() != 4 || w.rank() != 4 || offset.rank() != 4 || !x.dtype.is_float() {
            return Err(format!("data {x:?}, weights {w:?} and offsets {offset:?} must be of rank 4").into());
        }
        super::conv::check_operand_dtypes(cx)?;
        let window = Window::new(&self.spec(), &w.shape[2..], &x.shape[2..])?;
        let out = window.output(&x.shape[2..])?;
        let channels = [x.shape[1].as_const(), w.shape[0].as_const(), w.shape[1].as_const()];
        if let [Some(c), Some(o), Some(each)] = channels
            && (self.group < 1
                || self.offset_group < 1
                || each.checked_mul(self.group) != Some(c)
                || o % self.group != 0
                || c % self.offset_group != 0)
        {
            return Err(format!(
                "{c} channels in {} and {} groups for weights {:?}",
                self.group, self.offset_group, w.shape
            )
            .into());
        }
        let taps = w.shape[2].clone() * &w.shape[3];
        let rows = |factor: i64| {
            [x.shape[0].clone(), taps.clone() * self.offset_group * factor, out[0].clone(), out[1].clone()]
        };
        let differ = |have: &[Int], want: &[Int]| {
            have.iter().zip(want).any(|(h, w)| h.as_const().zip(w.as_const()).is_some_and(|(h, w)| h != w))
        };
        if differ(&offset.shape, &rows(2)) || cx.input(4).is_some_and(|m| m.rank() != 4 || differ(&m.shape, &rows(1))) {
            return Err(format!("offsets {:?} for a result of {out:?}", offset.shape).into());
        }
        Ok(vec![TensorType::new(x.dtype, [&x.shape[..1], &w.shape[..1], &out].concat())])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let (x, w, bias, mask) = (cx.require(0)?, cx.require(1)?, cx.input(3), cx.input(4));
        let (ty, xs, ws) = (cx.output_type(0).clone(), cx.shape(x), cx.shape(w));
        let t = math_dtype(ty.dtype);
        let window = Window::new(&self.spec(), &ws[2..], &xs[2..])?;
        let taps = ws[2].clone() * &ws[3];
        let shape =
            [xs[0].clone(), Int::new(self.offset_group), taps.clone(), ty.shape[2].clone(), ty.shape[3].clone()];
        let mut at = Vec::with_capacity(2);
        for axis in 0..2 {
            let place = self.coordinates(cx, axis, &window, &shape, t)?;
            at.push((place, floor_stage(cx, place, &xs[axis + 2], t)));
        }
        let each = xs[1].div(self.offset_group);
        let samples = [xs[0].clone(), xs[1].clone(), taps.clone(), ty.shape[2].clone(), ty.shape[3].clone()];
        let sampled = cx.compute("samples", &samples, t, |i| {
            let group = i[1].div(&each);
            let place = vec![i[0].clone(), group.clone(), i[2].clone(), i[3].clone(), i[4].clone()];
            let first = |axis: usize| Int::load(at[axis].1, place.clone());
            let fraction = |axis: usize| Expr::load(at[axis].0, place.clone()) - Expr::Index(first(axis), t);
            let weight = |axis: usize, next: bool| match next {
                true => fraction(axis),
                false => Expr::constant(1.0, t) - fraction(axis),
            };
            let tap = |down: bool, right: bool| {
                let (row, column) = (first(0) + down as i64, first(1) + right as i64);
                let inside = |v: &Int, d: &Int| [Cond::ge(v, 0), Cond::lt(v, d)];
                let conds = [inside(&row, &xs[2]), inside(&column, &xs[3])].concat();
                let within = |v: Int, d: &Int| v.max(0).min(d.clone() - 1);
                let from = vec![i[0].clone(), i[1].clone(), within(row, &xs[2]), within(column, &xs[3])];
                let value = Expr::load(x, from).cast(ty.dtype, t) * weight(0, down) * weight(1, right);
                Expr::guarded(conds, value, Expr::constant(0.0, t))
            };
            let value = tap(false, false) + tap(false, true) + tap(true, false) + tap(true, true);
            match mask {
                None => value,
                Some(m) => {
                    let channel = group * &taps + &i[2];
                    value * Expr::load(m, vec![i[0].clone(), channel, i[3].clone(), i[4].clone()]).cast(ty.dtype, t)
                }
            }
        });
        let per_group = ws[0].div(self.group);
        let sum = cx.reduce("sum", &ty.shape, t, &ws[1..], Combiner::Sum, |o, r| {
            let channel = o[1].div(&per_group) * &ws[1] + &r[0];
            let tap = r[1].clone() * &ws[3] + &r[2];
            let sample = Expr::load(sampled, vec![o[0].clone(), channel, tap, o[2].clone(), o[3].clone()]);
            let weight = Expr::load(w, vec![o[1].clone(), r[0].clone(), r[1].clone(), r[2].clone()]);
            sample * weight.cast(ty.dtype, t)
        });
        let out = cx.compute("", &ty.shape, ty.dtype, |o| {
            let value = Expr::load(sum, o.to_vec());
            let value = match bias {
                Some(b) => value + Expr::load(b, vec![o[1].clone()]).cast(ty.dtype, t),
                None => value,
            };
            value.cast(t, ty.dtype)
        });
        cx.output(0, out);
        Ok(())
    }
    fn precision(&self) -> Precision {
        Precision::Never
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let mut attrs = self.spec().export(2);
        attrs.push(("group", OnnxAttr::Int(self.group)));
        attrs.push(("offset_group", OnnxAttr::Int(self.offset_group)));
        cx.simple("DeformConv", attrs);
        Ok(())
    }
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] =
    &[OnnxImport { op_type: "DeformConv", domain: "", since: 19, import: import_deform_conv }];

fn import_deform_conv(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let spec = WindowSpec::import(cx)?;
    let op = DeformConv {
        strides: spec.strides,
        dilations: spec.dilations,
        pads: spec.pads,
        group: cx.attrs.int("group").unwrap_or(1),
        offset_group: cx.attrs.int("offset_group").unwrap_or(1),
    };
    let mut inputs = cx.inputs.clone();
    while inputs.last() == Some(&None) {
        inputs.pop();
    }
    cx.add_multi(op, inputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::conv::Conv;
    use crate::ops::testing::{assert_close, random, run, try_run};
    use crate::tensor::Tensor;

    #[test]
    fn taps_that_do_not_move_make_a_convolution() {
        let (x, w) = (random(&[2, 4, 5, 6], 1), random(&[6, 2, 3, 2], 2));
        let still = Tensor::from_vec(vec![2, 24, 3, 6], vec![0.0f32; 2 * 24 * 18]);
        let lists = (vec![2, 1], vec![1, 1], vec![1, 0, 1, 1]);
        let op = DeformConv {
            strides: lists.0.clone(),
            dilations: lists.1.clone(),
            pads: lists.2.clone(),
            group: 2,
            offset_group: 2,
        };
        let conv = Conv { strides: lists.0, dilations: lists.1, pads: lists.2, group: 2, ..Conv::default() };
        assert_close(&run(op, &[&x, &w, &still]), &run(conv, &[&x, &w]), 1e-5);
    }

    #[test]
    fn a_tap_moved_by_one_reads_the_neighbour() {
        let x = Tensor::from_vec(vec![1, 1, 1, 3], vec![1.0f32, 2.0, 3.0]);
        let w = Tensor::from_vec(vec![1, 1, 1, 1], vec![1.0f32]);
        let offsets = Tensor::from_vec(vec![1, 2, 1, 3], vec![0.0f32, 0.0, 0.0, 1.0, 0.5, 1.0]);
        assert_eq!(run(DeformConv::default(), &[&x, &w, &offsets]).to_f64_vec(), [2.0, 2.5, 0.0]);
        assert!(try_run(DeformConv::default(), &[&x, &w, &x]).is_err());
    }
}
