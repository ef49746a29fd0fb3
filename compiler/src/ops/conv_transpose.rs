//! Transposed convolution.

use super::conv::{add_channel_bias, check_operand_dtypes, check_vector, macs_of};
use super::data_layout::data_layout_rule;
use super::reshape::loop_bounds;
use super::weights::{Bias, Channels};
use super::window::{AutoPad, DataLayout, WindowSpec, export_channels_first, tidy};
use super::{InferContext, LayoutRule, Op, OpResult, Precision, WeightChannels};
use crate::attr_struct;
use crate::graph::{TensorType, ValueId};
use crate::int::{Int, product};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tir::{Combiner, Cond, CondOp, Expr};

attr_struct! {
    /// Transposed convolution of data `[n, c, spatial...]` (or `[n, h, w, c]`) with weights `[c, out / group,
    /// kernel...]` in both layouts, and an optional bias `[out]`: the gradient of a convolution by its data.
    pub struct ConvTranspose("conv_transpose") {
        /// Distances of neighbouring data elements in the result; empty for 1.
        pub strides: Vec<i64> = vec![],
        /// Distances of the kernel's taps; empty for 1.
        pub dilations: Vec<i64> = vec![],
        /// Elements cut off: all beginnings, then all ends; a negative end adds zeros. Empty for 0.
        pub pads: Vec<i64> = vec![],
        /// Elements added at the ends; empty for 0.
        pub output_padding: Vec<i64> = vec![],
        /// Spatial sizes of the result, from which the padding follows; empty where the padding decides.
        pub output_shape: Vec<i64> = vec![],
        /// Number of groups.
        pub group: i64 = 1,
        /// How padding is chosen: `same_upper` and `same_lower` give `input * stride` elements.
        pub auto_pad: AutoPad = AutoPad::NotSet,
        /// Layout of data and result.
        pub layout: DataLayout = DataLayout::Nchw,
    }
}
data_layout_rule!(ConvTranspose);

/// One spatial axis of a transposed convolution.
struct Axis {
    stride: i64,
    dilation: i64,
    kernel: Int,
    input: Int,
    begin: Int,
    end: Int,
    output: Int,
}

impl ConvTranspose {
    /// The spatial axes with padding and result sizes decided.
    fn axes(&self, data: &[Int], weights: &[Int]) -> OpResult<Vec<Axis>> {
        let (input, kernel) = (self.layout.spatial(data), &weights[2..]);
        let rank = input.len();
        let fill = |name: &str, v: &[i64], default: i64, least: i64| {
            if v.is_empty() {
                return Ok(vec![default; rank]);
            }
            let fits = v.len() == rank && v.iter().all(|&x| x >= least);
            fits.then(|| v.to_vec()).ok_or_else(|| format!("{name} {v:?} must be {rank} numbers of {least} or more"))
        };
        let strides = fill("strides", &self.strides, 1, 1)?;
        let dilations = fill("dilations", &self.dilations, 1, 1)?;
        let extra = fill("output_padding", &self.output_padding, 0, 0)?;
        let sizes = fill("output_shape", &self.output_shape, 0, 1)?;
        if !self.pads.is_empty() && self.pads.len() != 2 * rank {
            return Err(format!("pads {:?} must be {} numbers", self.pads, 2 * rank).into());
        }
        (0..rank)
            .map(|d| {
                let reach = (kernel[d].clone() - 1) * dilations[d] + 1;
                let full = (input[d].clone() - 1) * strides[d] + extra[d] + reach;
                let wanted = if !self.output_shape.is_empty() {
                    Some(Int::new(sizes[d]))
                } else {
                    matches!(self.auto_pad, AutoPad::SameUpper | AutoPad::SameLower)
                        .then(|| input[d].clone() * strides[d])
                };
                let (begin, end) = match wanted {
                    Some(out) => {
                        let total = full.clone() - out;
                        let half = total.div(2);
                        let rest = tidy(&(total - &half));
                        if self.auto_pad == AutoPad::SameUpper { (tidy(&half), rest) } else { (rest, tidy(&half)) }
                    }
                    None if self.pads.is_empty() || self.auto_pad == AutoPad::Valid => (Int::new(0), Int::new(0)),
                    None => (Int::new(self.pads[d]), Int::new(self.pads[d + rank])),
                };
                let output = tidy(&(full - &begin - &end));
                if output.as_const().is_some_and(|o| o < 1) {
                    return Err(format!("spatial axis {d} of {} elements gives {output}", input[d]).into());
                }
                let (stride, dilation) = (strides[d], dilations[d]);
                Ok(Axis { stride, dilation, kernel: kernel[d].clone(), input: input[d].clone(), begin, end, output })
            })
            .collect()
    }
}

/// A spatial axis of a transposed convolution as the phases of a dense one: result `a * stride + phase` is the dense
/// one's result `a` in this phase, behind `cut` results that are left out.
pub struct PhasedAxis {
    /// Phases.
    pub stride: i64,
    /// Taps of each phase.
    pub taps: i64,
    /// Zeros before and behind the data.
    pub before: i64,
    /// As above.
    pub after: i64,
    /// Results of each phase.
    pub results: Int,
    /// Results that are left out at the beginning, fewer than `stride`.
    pub cut: i64,
    /// Results that are kept.
    pub output: Int,
}

impl ConvTranspose {
    /// The spatial axes as phases of a dense convolution over data of shape `data` with weights of shape `weights`.
    ///
    /// # Errors
    /// When the attributes do not fit the shapes; when there are groups or dilations; when no stride is above 1; when
    /// windows or padding are open.
    pub fn phases(&self, data: &[Int], weights: &[Int]) -> OpResult<Vec<PhasedAxis>> {
        let axes = self.axes(data, weights)?;
        if self.group != 1 || self.dilations.iter().any(|d| *d != 1) || self.layout.block().is_some() {
            return Err("it has groups, dilations or packed channels".into());
        }
        if axes.iter().all(|a| a.stride == 1) {
            return Err("its stride is 1".into());
        }
        axes.into_iter().map(|a| a.phases()).collect()
    }
}

/// A spatial axis of a transposed convolution as phases, each with a window of its own: result `a * stride + phase` is
/// result `a` of the phase's convolution, whose taps lie `step` apart.
pub struct SplitAxis {
    /// The phases; as many as the stride.
    pub phases: Vec<Phase>,
    /// Distance of taps in the data.
    pub step: i64,
    /// Results of each phase.
    pub results: Int,
    /// Results of the axis, of which the last ones may be left out.
    pub output: Int,
}

/// The window of a phase.
pub struct Phase {
    /// The taps that it has, in the order of the data.
    pub taps: Vec<usize>,
    /// Zeros before and behind the data.
    pub before: i64,
    /// As above.
    pub after: i64,
}

impl ConvTranspose {
    /// The spatial axes as phases with windows of their own.
    ///
    /// # Errors
    /// When the attributes do not fit the shapes; when no stride is above 1; when windows or padding are open; when a
    /// phase has no tap, or its window leaves data out.
    pub fn split_axes(&self, data: &[Int], weights: &[Int]) -> OpResult<Vec<SplitAxis>> {
        let axes = self.axes(data, weights)?;
        if axes.iter().all(|a| a.stride == 1) {
            return Err("its stride is 1".into());
        }
        axes.into_iter().map(Axis::split).collect()
    }
}

impl Axis {
    fn split(self) -> OpResult<SplitAxis> {
        let (stride, known) = (self.stride, self.kernel.as_const().zip(self.begin.as_const()));
        let (kernel, begin) = known.ok_or("its window or padding is open")?;
        let results = tidy(&self.output.ceil_div(stride));
        // A dilation with a factor of the stride leaves some phase without a tap.
        let step = self.dilation;
        let more = tidy(&(results.clone() - &self.input)).as_const().ok_or("its padding depends on an open size")?;
        let phase = |phase: i64| {
            let at = |tap: &i64| phase + begin - tap * self.dilation;
            let taps: Vec<i64> = (0..kernel).rev().filter(|t| at(t).rem_euclid(stride) == 0).collect();
            let first = taps.first().ok_or("some of its results have no tap")?;
            let before = -at(first) / stride;
            let after = more - before + (taps.len() as i64 - 1) * step;
            match before < 0 || after < 0 {
                true => Err("its padding leaves data out".into()),
                false => Ok(Phase { taps: taps.iter().map(|t| *t as usize).collect(), before, after }),
            }
        };
        let phases = (0..stride).map(phase).collect::<OpResult<_>>()?;
        Ok(SplitAxis { phases, step, results, output: self.output })
    }
    fn phases(self) -> OpResult<PhasedAxis> {
        let stride = self.stride;
        let (kernel, begin) =
            self.kernel.as_const().zip(self.begin.as_const()).ok_or("its window or padding is open")?;
        let taps = (kernel + stride - 1) / stride;
        let (skipped, cut) = (begin.div_euclid(stride), begin.rem_euclid(stride));
        let results = tidy(&(self.output.clone() + (cut + stride - 1)).div(stride));
        let before = taps - 1 - skipped;
        let after = tidy(&(results.clone() - &self.input + (taps - 1 - before))).as_const();
        let after = after.ok_or("its padding depends on an open size")?;
        if before < 0 || after < 0 {
            return Err("its padding leaves data out".into());
        }
        Ok(PhasedAxis { stride, taps, before, after, results, cut, output: self.output })
    }
    /// Data position that tap `tap` adds to result `out`, and the conditions under which there is one.
    fn position(&self, out: &Int, tap: &Int, conds: &mut Vec<Cond>) -> Int {
        let at = out.clone() + &self.begin - tap.clone() * self.dilation;
        let lowest = self.begin.clone() - (self.kernel.clone() - 1) * self.dilation;
        if lowest.as_const().is_none_or(|l| l < 0) {
            conds.push(Cond::ge(at.clone(), 0));
        }
        if self.stride > 1 {
            conds.push(Cond { lhs: at.rem(self.stride), op: CondOp::Eq, rhs: Int::new(0) });
        }
        let highest = (self.output.clone() - 1 + &self.begin).div(self.stride);
        let at = at.div(self.stride);
        if !matches!((highest.as_const(), self.input.as_const()), (Some(h), Some(n)) if h < n) {
            conds.push(Cond::lt(at.clone(), &self.input));
        }
        at
    }
}

impl Op for ConvTranspose {
    fn arity(&self) -> (usize, usize) {
        (2, 3)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let (x, w) = (cx.float_data()?, cx.require(1)?);
        self.layout.check(x)?;
        check_operand_dtypes(cx)?;
        if self.layout.physical_rank(w.rank()) != x.rank() || self.group < 1 {
            return Err(
                format!("data {:?} and weights {:?} in {} groups do not fit", x.shape, w.shape, self.group).into()
            );
        }
        if let (Some(c), Some(wc)) = (self.layout.channels(&x.shape).as_const(), w.shape[0].as_const())
            && (c != wc || c % self.group != 0 || c < 1)
        {
            return Err(
                format!("data has {c} channels, weights {:?} in {} groups need {wc}", w.shape, self.group).into()
            );
        }
        let channels = tidy(&(w.shape[1].clone() * self.group));
        check_vector(cx, 2, "bias", &channels)?;
        let spatial = self.axes(&x.shape, &w.shape)?.into_iter().map(|a| a.output).collect();
        Ok(vec![TensorType::new(x.dtype, self.layout.shape(&x.shape[0], &channels, spatial)?)])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let (x, w) = (cx.require(0)?, cx.require(1)?);
        let (xs, ws) = (cx.shape(x), cx.shape(w));
        let out = cx.output_type(0).clone();
        let (acc, weights) = (out.dtype.accumulator(), cx.dtype(w));
        let (axes, layout) = (self.axes(&xs, &ws)?, self.layout);
        let per_group = ws[0].div(self.group);
        let extents: Vec<Int> = ws[2..].iter().chain([&per_group]).cloned().collect();
        let sum = cx.reduce("", &out.shape, acc, &extents, Combiner::Sum, |o, r| {
            let (taps, ic) = (&r[..axes.len()], &r[axes.len()]);
            let oc = &layout.channel(o);
            let bounds = loop_bounds(&[o, r].concat(), &[&out.shape[..], &extents].concat());
            let (channel, local) = if self.group == 1 {
                (ic.clone(), oc.clone())
            } else {
                (oc.div(&ws[1]) * &per_group + ic, oc.rem(&ws[1]))
            };
            let mut conds = vec![];
            let at = (0..axes.len()).map(|d| axes[d].position(&layout.spatial(o)[d], &taps[d], &mut conds)).collect();
            let data = Expr::load(x, layout.index(&o[0], &channel, at, &bounds)).cast(out.dtype, acc);
            let weight = Expr::load(w, [&channel, &local].into_iter().chain(taps).cloned().collect());
            Expr::guarded(conds, data, Expr::constant(0.0, acc)) * weight.cast(weights, acc)
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
        self.layout.block().is_none().then_some(())?;
        let (results, data) = (Channels::grouped(self.group)?, Channels::Axis(0));
        let bias = Some(Bias::plain(self.clone()));
        Some(WeightChannels { results, data, layout: Some(self.layout), data_transposed: false, bias })
    }
    fn layout(&self) -> Option<&dyn LayoutRule> {
        Some(self)
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let rank = cx.output_types[0].rank() - 2;
        let spec = WindowSpec {
            strides: self.strides.clone(),
            dilations: self.dilations.clone(),
            pads: self.pads.clone(),
            auto_pad: self.auto_pad,
            ceil_mode: false,
        };
        let mut attrs = spec.export(rank);
        attrs.push(("group", OnnxAttr::Int(self.group)));
        if !self.output_padding.is_empty() {
            attrs.push(("output_padding", OnnxAttr::Ints(self.output_padding.clone())));
        }
        if self.pads.iter().any(|&p| p < 0) {
            // ONNX has no negative padding; the wanted size says the same.
            let sizes = crate::int::const_dims(self.layout.spatial(&cx.output_types[0].shape));
            let sizes = sizes.ok_or("negative padding of symbolic sizes has no ONNX form")?;
            attrs.retain(|a| a.0 != "pads");
            attrs.push(("output_shape", OnnxAttr::Ints(sizes.iter().map(|&d| d as i64).collect())));
        } else if !self.output_shape.is_empty() {
            attrs.push(("output_shape", OnnxAttr::Ints(self.output_shape.clone())));
        }
        export_channels_first(cx, self.layout, "ConvTranspose", attrs)
    }
    fn macs(&self, inputs: &[Option<&TensorType>], _outputs: &[&TensorType]) -> u64 {
        let (Some(Some(x)), Some(Some(w))) = (inputs.first(), inputs.get(1)) else { return 0 };
        macs_of(&(x.numel() * product(&w.shape[1..])))
    }
    fn channels_of_group(&self, inputs: &[Option<&TensorType>]) -> Option<i64> {
        (*inputs.get(1)?)?.shape.get(1)?.as_const()
    }
}

fn import_conv_transpose(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (x, w) = (cx.ty(0)?, cx.ty(1)?);
    DataLayout::Nchw.check(&x)?;
    if w.rank() != x.rank() {
        return Err(format!("data of rank {} needs weights of that rank, got {:?}", x.rank(), w.shape).into());
    }
    let rank = x.rank() - 2;
    let spec = WindowSpec::import(cx)?;
    let extra = cx.attrs.ints("output_padding").unwrap_or(&[]).to_vec();
    // Some models write the whole shape; its last entries are the spatial ones.
    let sizes = cx.attrs.ints("output_shape").unwrap_or(&[]);
    let sizes = sizes[sizes.len().saturating_sub(rank)..].to_vec();
    let mut op = ConvTranspose {
        strides: spec.strides,
        dilations: spec.dilations,
        pads: spec.pads,
        output_padding: if extra.iter().all(|&p| p == 0) { vec![] } else { extra },
        output_shape: sizes,
        group: cx.attrs.int("group").unwrap_or(1),
        auto_pad: spec.auto_pad,
        layout: DataLayout::Nchw,
    };
    let axes = op.axes(&x.shape, &w.shape)?;
    let pads: Option<Vec<i64>> =
        axes.iter().map(|a| &a.begin).chain(axes.iter().map(|a| &a.end)).map(Int::as_const).collect();
    if let Some(pads) = pads {
        op.pads = if pads.iter().all(|&p| p == 0) { vec![] } else { pads };
        op.auto_pad = AutoPad::NotSet;
        op.output_shape = vec![];
    }
    let inputs = cx.inputs.clone();
    cx.add_multi(op, inputs)
}

/// ONNX importers of this family.
pub const ONNX: &[OnnxImport] =
    &[OnnxImport { op_type: "ConvTranspose", domain: "", since: 1, import: import_conv_transpose }];

#[cfg(test)]
mod tests;
