//! Convolution.

use super::data_layout::data_layout_rule;
use super::reshape::loop_bounds;
use super::weights::{Bias, Channels};
use super::window::{AutoPad, DataLayout, Window, WindowSpec, export_channels_first};
use super::{InferContext, LayoutRule, Op, OpResult, Precision, WeightChannels};
use crate::attr_struct;
use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::{TensorType, ValueId};
use crate::int::{Int, product};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tir::{Combiner, Expr};

attr_struct! {
    /// Convolution of data `[n, c, spatial...]` (or `[n, h, w, c]`, or packed) with weights `[out, c / group,
    /// kernel...]` in every layout, and an optional bias `[out]`.
    pub struct Conv("conv") {
        /// Steps along the spatial axes; empty for 1.
        pub strides: Vec<i64> = vec![],
        /// Distances of the kernel's taps; empty for 1.
        pub dilations: Vec<i64> = vec![],
        /// Padding: all beginnings, then all ends; empty for 0.
        pub pads: Vec<i64> = vec![],
        /// Number of groups: channels of a group only see each other.
        pub group: i64 = 1,
        /// Automatic padding where sizes are symbolic.
        pub auto_pad: AutoPad = AutoPad::NotSet,
        /// Layout of data and result.
        pub layout: DataLayout = DataLayout::Nchw,
        /// The value of the padding: the zero point of quantised data; 0 for floats.
        pub pad_value: i64 = 0,
    }
}
data_layout_rule!(Conv);

impl Conv {
    /// The window attributes.
    pub fn spec(&self) -> WindowSpec {
        WindowSpec {
            strides: self.strides.clone(),
            dilations: self.dilations.clone(),
            pads: self.pads.clone(),
            auto_pad: self.auto_pad,
            ceil_mode: false,
        }
    }
    /// The window over data of shape `data` with weights of shape `weights`.
    ///
    /// # Errors
    /// When the attributes do not fit the shapes.
    pub fn window(&self, data: &[Int], weights: &[Int]) -> OpResult<Window> {
        Window::new(&self.spec(), &weights[2..], self.layout.spatial(data))
    }
}

/// Refuses operands of other dtypes than the data, operand 0. Weights and biases may be in the type that the data's
/// sums are kept in: f32 beside data of f16. Bytes may have a sign or none. Behind a product of bytes, the bias is of
/// the product's type.
pub(super) fn check_operand_dtypes(cx: &InferContext<'_>) -> OpResult<()> {
    let first = cx.require(0)?.dtype;
    for i in 1..cx.len() {
        if let Some(t) = cx.input(i)
            && t.dtype != first
            && t.dtype != first.accumulator()
            && (i != 1 || [first, t.dtype].iter().any(|t| !matches!(t, DType::I8 | DType::U8)))
            && (i < 2 || t.dtype != first.product())
        {
            return Err(format!("operand {i} is {}, operand 0 is {first}", t.dtype).into());
        }
    }
    Ok(())
}

/// Refuses a rank-1 operand `i`, where present, that does not have `len` elements.
pub(super) fn check_vector(cx: &InferContext<'_>, i: usize, what: &str, len: &Int) -> OpResult<()> {
    let Some(t) = cx.input(i) else { return Ok(()) };
    let wrong = t.rank() != 1 || matches!((t.shape[0].as_const(), len.as_const()), (Some(a), Some(b)) if a != b);
    if wrong { Err(format!("{what} has shape {:?}, needs [{len}]", t.shape).into()) } else { Ok(()) }
}

impl Op for Conv {
    fn arity(&self) -> (usize, usize) {
        (2, 3)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let (x, w) = (cx.require(0)?, cx.require(1)?);
        self.layout.check(x)?;
        check_operand_dtypes(cx)?;
        if !x.dtype.is_float() && !matches!(x.dtype, DType::I32 | DType::I8 | DType::U8) {
            return Err(format!("data is {}, needs a float type, i32, i8 or u8", x.dtype).into());
        }
        if self.pad_value != 0 && x.dtype.is_float() {
            return Err(format!("padding is {} in data of {}, needs integers", self.pad_value, x.dtype).into());
        }
        if self.layout.physical_rank(w.rank()) != x.rank() {
            return Err(
                format!("data {:?} in {} does not fit weights {:?}", x.shape, self.layout.title(), w.shape).into()
            );
        }
        if self.group < 1 {
            return Err(format!("group is {}", self.group).into());
        }
        if let (Some(c), Some(per), Some(out)) =
            (self.layout.channels(&x.shape).as_const(), w.shape[1].as_const(), w.shape[0].as_const())
        {
            let needed = i128::from(per) * i128::from(self.group);
            if i128::from(c) != needed {
                let (shape, group) = (&w.shape, self.group);
                return Err(format!("data has {c} channels, weights {shape:?} with group {group} need {needed}").into());
            }
            if out % self.group != 0 || out < 1 || per < 1 {
                return Err(format!("weights {:?} do not divide into {} groups", w.shape, self.group).into());
            }
        }
        check_vector(cx, 2, "bias", &w.shape[0])?;
        let spatial = self.window(&x.shape, &w.shape)?.output(self.layout.spatial(&x.shape))?;
        Ok(vec![TensorType::new(x.dtype.product(), self.layout.shape(&x.shape[0], &w.shape[0], spatial)?)])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let (x, w) = (cx.require(0)?, cx.require(1)?);
        let (xs, ws) = (cx.shape(x), cx.shape(w));
        let out = cx.output_type(0).clone();
        let (acc, data_type, weights) = (out.dtype.accumulator(), cx.dtype(x), cx.dtype(w));
        let window = self.window(&xs, &ws)?;
        let layout = self.layout;
        let (input, steps) = (layout.spatial(&xs).to_vec(), layout.spatial(&out.shape).to_vec());
        // Reduction order (kernel, channels): the order in which weights are packed.
        let extents: Vec<Int> = ws[2..].iter().chain(&ws[1..2]).cloned().collect();
        let sum = cx.reduce("", &out.shape, acc, &extents, Combiner::Sum, |o, r| {
            let (taps, ic) = (&r[..input.len()], &r[input.len()]);
            let oc = &layout.channel(o);
            let channel = self.data_channel(oc, ic, &ws);
            let bounds = loop_bounds(&[o, r].concat(), &[&out.shape[..], &extents].concat());
            let mut conds = vec![];
            let at = (0..input.len())
                .map(|d| window.position(d, &layout.spatial(o)[d], &taps[d], &input[d], &steps[d], &mut conds))
                .collect();
            let data = Expr::load(x, layout.index(&o[0], &channel, at, &bounds)).cast(data_type, acc);
            let weight = Expr::load(w, [oc, ic].into_iter().chain(taps).cloned().collect()).cast(weights, acc);
            Expr::guarded(conds, data, Expr::constant(self.pad_value as f64, acc)) * weight
        });
        let result = add_channel_bias(cx, sum, 2, layout);
        cx.output(0, result);
        Ok(())
    }
    fn precision(&self) -> Precision {
        Precision::Always
    }
    fn single_operands(&self) -> &'static [usize] {
        &[2]
    }
    fn weight_channels(&self, _rank: usize) -> Option<WeightChannels> {
        (self.pad_value == 0).then_some(())?;
        self.layout.block().is_none().then_some(())?;
        let (results, data) = (Channels::Axis(0), Channels::grouped(self.group)?);
        let bias = Some(Bias::plain(self.clone()));
        Some(WeightChannels { results, data, layout: Some(self.layout), data_transposed: false, bias })
    }
    fn layout(&self) -> Option<&dyn LayoutRule> {
        Some(self)
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        if self.pad_value != 0 {
            return Err(Fault::unsupported(format!("ONNX has no convolution with {} in its padding", self.pad_value)));
        }
        let rank = cx.output_types[0].rank() - 2;
        let mut attrs = self.spec().export(rank);
        attrs.push(("group", OnnxAttr::Int(self.group)));
        export_channels_first(cx, self.layout, "Conv", attrs)
    }
    fn macs(&self, inputs: &[Option<&TensorType>], outputs: &[&TensorType]) -> u64 {
        let Some(Some(w)) = inputs.get(1) else { return 0 };
        macs_of(&(outputs[0].numel() * product(&w.shape[1..])))
    }
    fn channels_of_group(&self, inputs: &[Option<&TensorType>]) -> Option<i64> {
        Some((*inputs.get(1)?)?.shape[0].as_const()? / self.group.max(1))
    }
}

impl Conv {
    /// The data channel of the group-local channel `ic` for result channel `oc`; without divisions for one group.
    fn data_channel(&self, oc: &Int, ic: &Int, weights: &[Int]) -> Int {
        if self.group == 1 {
            return ic.clone();
        }
        let group = oc.div(weights[0].div(self.group));
        group * &weights[1] + ic
    }
}

/// A symbolic count as a number; 0 where it is not constant.
pub(super) fn macs_of(count: &Int) -> u64 {
    count.as_const().map_or(0, |c| c.max(0) as u64)
}

/// Adds the bias operand `i` along the channels, or converts the accumulator to the result type, as a second stage.
pub(super) fn add_channel_bias(
    cx: &mut ComputeContext<'_>,
    sum: crate::tir::BufferId,
    i: usize,
    layout: DataLayout,
) -> crate::tir::BufferId {
    let out = cx.output_type(0).clone();
    let (acc, bias) = (cx.dtype(sum), cx.input(i).map(|b| (b, cx.dtype(b))));
    if bias.is_none() && acc == out.dtype {
        return sum;
    }
    let label = if bias.is_some() { "bias" } else { "cast" };
    cx.compute(label, &out.shape, out.dtype, |o| {
        let value = Expr::load(sum, o.to_vec());
        let value = match bias {
            Some((b, from)) => value + Expr::load(b, vec![layout.channel(o)]).cast(from, acc),
            None => value,
        };
        value.cast(acc, out.dtype)
    })
}

pub(super) fn import_conv(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (x, w) = (cx.ty(0)?, cx.ty(1)?);
    DataLayout::Nchw.check(&x)?;
    if w.rank() != x.rank() {
        return Err(format!("data of rank {} needs weights of that rank, got {:?}", x.rank(), w.shape).into());
    }
    if let Some(k) = cx.attrs.ints("kernel_shape")
        && crate::int::const_dims(&w.shape[2..]).is_some_and(|w| !w.iter().map(|&d| d as i64).eq(k.iter().copied()))
    {
        return Err(format!("kernel_shape {k:?} does not match weights {:?}", w.shape).into());
    }
    let mut spec = WindowSpec::import(cx)?;
    spec.resolve(&w.shape[2..], &x.shape[2..])?;
    let op = Conv {
        strides: spec.strides,
        dilations: spec.dilations,
        pads: spec.pads,
        auto_pad: spec.auto_pad,
        group: cx.attrs.int("group").unwrap_or(1),
        layout: DataLayout::Nchw,
        pad_value: 0,
    };
    let inputs = cx.inputs.clone();
    cx.add_multi(op, inputs)
}

/// ONNX importers of this family.
pub const ONNX: &[OnnxImport] = &[OnnxImport { op_type: "Conv", domain: "", since: 1, import: import_conv }];

#[cfg(test)]
mod tests;
