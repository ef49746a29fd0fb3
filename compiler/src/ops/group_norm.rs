//! Normalisation with the statistics of groups of channels.

use super::conv::check_vector;
use super::data_layout::data_layout_rule;
use super::norm::statistics;
use super::reshape::loop_bounds;
use super::window::{DataLayout, export_channels_first, export_layout_change};
use super::{InferContext, LayoutRule, Op, OpResult, Precision};
use crate::attr_struct;
use crate::graph::{TensorType, ValueId};
use crate::int::{Bounds, Int, const_dims, simplify};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::Expr;

attr_struct! {
    /// `(x - mean) / sqrt(variance + epsilon) * scale + bias` of data `[n, c, spatial...]`, or in another layout, with
    /// the statistics of each sample and channel. Operands: data, scale `[c]`, bias `[c]`.
    pub struct InstanceNorm("instance_norm") {
        /// Added to the variance.
        pub epsilon: f64 = 1e-5,
        /// Layout of data and result.
        pub layout: DataLayout = DataLayout::Nchw,
    }
}

attr_struct! {
    /// As `instance_norm`, with the statistics of each sample and group of neighbouring channels.
    pub struct GroupNorm("group_norm") {
        /// Number of groups.
        pub groups: i64 = 1,
        /// Added to the variance.
        pub epsilon: f64 = 1e-5,
        /// Scale and bias have an element for each group, not for each channel.
        pub per_group: bool = false,
        /// Layout of data and result.
        pub layout: DataLayout = DataLayout::Nchw,
    }
}

data_layout_rule!(InstanceNorm, GroupNorm);

fn check_data(x: &TensorType, least: usize, layout: DataLayout) -> OpResult<()> {
    if !x.dtype.is_float() {
        return Err(format!("data is {}, needs a float type", x.dtype).into());
    }
    if layout != DataLayout::Nchw {
        layout.check(x)?;
    }
    if x.rank() < least {
        return Err(
            format!("data of rank {} has no batch and channel axes with something to normalise", x.rank()).into()
        );
    }
    if x.shape[1..].iter().any(|d| d.is(0)) {
        return Err(format!("normalises over empty axes of {:?}", x.shape).into());
    }
    Ok(())
}

/// The elements of a group of `per` channels, in the order in which they lie in memory.
struct GroupElements<'a> {
    layout: DataLayout,
    data: &'a [Int],
    per: &'a Int,
}
impl GroupElements<'_> {
    /// Packed groups of channels that lie in one group of the normalisation; none where they do not divide it.
    fn blocks(&self) -> Option<(Int, i64)> {
        Some((self.layout.groups(self.per)?, self.layout.block()?))
    }
    fn extents(&self) -> Vec<Int> {
        let spatial = self.layout.spatial(self.data).to_vec();
        match (self.layout, self.blocks()) {
            (DataLayout::Nchw, _) => [vec![self.per.clone()], spatial].concat(),
            (_, Some((blocks, block))) => [vec![blocks], spatial, vec![Int::new(block)]].concat(),
            _ => [spatial, vec![self.per.clone()]].concat(),
        }
    }
    /// The element at place `r` of the extents, of group `g`: sample and group.
    fn at(&self, g: &[Int], r: &[Int]) -> Vec<Int> {
        let first = g[1].clone() * self.per;
        let (spatial, channel) = match (self.layout, self.blocks(), r) {
            (DataLayout::Nchw, _, [channel, spatial @ ..]) => (spatial, channel.clone()),
            (_, Some((_, size)), [block, spatial @ .., channel]) => (spatial, block.clone() * size + channel),
            (_, _, [spatial @ .., channel]) => (spatial, channel.clone()),
            _ => (r, Int::new(0)),
        };
        let shape = [&self.data[..1], &[self.layout.channels(self.data).div(self.per)], &self.extents()].concat();
        let bounds = loop_bounds(&[g, r].concat(), &shape);
        self.layout.index(&g[0], &(first + channel), spatial.to_vec(), &bounds)
    }
}

/// The stages for groups of channels; scale and bias are indexed by channel or by group.
fn normalise(
    cx: &mut ComputeContext<'_>,
    groups: &Int,
    epsilon: f64,
    by_group: bool,
    layout: DataLayout,
) -> OpResult<()> {
    let (x, scale, bias) = (cx.require(0)?, cx.require(1)?, cx.require(2)?);
    let out = cx.output_type(0).clone();
    let acc = out.dtype.accumulator();
    let per = simplify(&layout.channels(&out.shape).div(groups), &Bounds::new());
    let elements = GroupElements { layout, data: &out.shape, per: &per };
    let shape = [out.shape[0].clone(), groups.clone()];
    let s = statistics(cx, &shape, &elements.extents(), epsilon, |g, r| elements.at(g, r))?;
    let types = (cx.dtype(scale), cx.dtype(bias));
    let result = cx.compute("", &out.shape, out.dtype, |o| {
        let channel = layout.channel(o);
        let group = simplify(&channel.div(&per), &loop_bounds(o, &out.shape));
        let at = vec![o[0].clone(), group.clone()];
        let which = vec![if by_group { group } else { channel }];
        let off = Expr::load(x, o.to_vec()).cast(out.dtype, acc) - Expr::load(s.mean, at.clone());
        let scale = Expr::load(scale, which.clone()).cast(types.0, acc);
        let value = off * (Expr::load(s.inverse, at) * scale) + Expr::load(bias, which).cast(types.1, acc);
        value.cast(acc, out.dtype)
    });
    cx.output(0, result);
    Ok(())
}

impl Op for InstanceNorm {
    fn arity(&self) -> (usize, usize) {
        (3, 3)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.require(0)?;
        check_data(x, 3, self.layout)?;
        let channels = &self.layout.channels(&x.shape);
        check_vector(cx, 1, "scale", channels)?;
        check_vector(cx, 2, "bias", channels)?;
        Ok(vec![x.clone()])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let channels = self.layout.channels(&cx.output_type(0).shape);
        normalise(cx, &channels, self.epsilon, false, self.layout)
    }
    fn precision(&self) -> Precision {
        Precision::Never
    }
    fn widens(&self) -> bool {
        true
    }
    fn layout(&self) -> Option<&dyn LayoutRule> {
        Some(self)
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let attrs = vec![("epsilon", OnnxAttr::Float(self.epsilon as f32))];
        export_channels_first(cx, self.layout, "InstanceNormalization", attrs)
    }
}

impl Op for GroupNorm {
    fn arity(&self) -> (usize, usize) {
        (3, 3)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.require(0)?;
        check_data(x, 2, self.layout)?;
        let channels = self.layout.channels(&x.shape);
        if self.groups < 1 || channels.as_const().is_some_and(|c| c % self.groups != 0) {
            return Err(format!("{channels} channels do not divide into {} groups", self.groups).into());
        }
        let groups = Int::new(self.groups);
        let len = if self.per_group { &groups } else { &channels };
        check_vector(cx, 1, "scale", len)?;
        check_vector(cx, 2, "bias", len)?;
        Ok(vec![x.clone()])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        normalise(cx, &Int::new(self.groups), self.epsilon, self.per_group, self.layout)
    }
    fn precision(&self) -> Precision {
        Precision::Never
    }
    fn widens(&self) -> bool {
        true
    }
    fn layout(&self) -> Option<&dyn LayoutRule> {
        Some(self)
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let physical = cx.output_types[0].shape.clone();
        let (data, out) = (cx.input(0), cx.outputs[0].clone());
        if self.layout == DataLayout::Nchw {
            return self.export_nodes(cx, &physical, data, out);
        }
        let names = ["nchw", "norm_nchw"].map(|w| format!("{}_{w}", cx.fresh()));
        export_layout_change(cx, (self.layout, DataLayout::Nchw), &physical, data, names[0].clone())?;
        let shape = [&physical[..1], &[self.layout.channels(&physical)], self.layout.spatial(&physical)].concat();
        self.export_nodes(cx, &shape, names[0].clone(), names[1].clone())?;
        export_layout_change(cx, (DataLayout::Nchw, self.layout), &physical, names[1].clone(), out)
    }
}

impl GroupNorm {
    /// The ONNX nodes from `data` to `out`, both of this shape in NCHW. The opset that is written has the statistics
    /// only as InstanceNormalization of [n, groups, rest].
    fn export_nodes(&self, cx: &mut ExportContext<'_>, shape: &[Int], data: String, out: String) -> OpResult<()> {
        let dtype = cx.output_types[0].dtype;
        let dims = const_dims(shape).ok_or("needs constant dimensions for its ONNX form")?;
        let groups = self.groups as usize;
        let grouped = cx.constant(Tensor::ints(&[dims[0] as i64, self.groups, -1]));
        let full = cx.constant(Tensor::ints(&dims.iter().map(|&d| d as i64).collect::<Vec<_>>()));
        let ones = cx.constant(Tensor::from_f64(dtype, vec![groups], vec![1.0; groups]));
        let zeros = cx.constant(Tensor::from_f64(dtype, vec![groups], vec![0.0; groups]));
        // Scale and bias become [groups, 1...] or [c, 1...] beside data of [n, groups, rest] or of the full shape.
        let tail = vec![1i64; if self.per_group { 1 } else { dims.len() - 2 }];
        let column = cx.constant(Tensor::ints(&[vec![-1], tail].concat()));
        let name = |cx: &ExportContext<'_>, what: &str| format!("{}_{what}", cx.fresh());
        let n: Vec<String> =
            ["in", "norm", "full", "scale", "bias", "mul", "add"].iter().map(|w| name(cx, w)).collect();
        let (scale, bias) = (cx.input(1), cx.input(2));
        let mut node = |op: &str, inputs: &[&String], to: &String, attrs: Vec<(&str, OnnxAttr)>| {
            cx.node(op, inputs.iter().map(|s| s.to_string()).collect(), vec![to.clone()], attrs);
        };
        let epsilon = vec![("epsilon", OnnxAttr::Float(self.epsilon as f32))];
        node("Reshape", &[&data, &grouped], &n[0], vec![]);
        node("InstanceNormalization", &[&n[0], &ones, &zeros], &n[1], epsilon);
        node("Reshape", &[&scale, &column], &n[3], vec![]);
        node("Reshape", &[&bias, &column], &n[4], vec![]);
        if self.per_group {
            node("Mul", &[&n[1], &n[3]], &n[5], vec![]);
            node("Add", &[&n[5], &n[4]], &n[6], vec![]);
            node("Reshape", &[&n[6], &full], &out, vec![]);
        } else {
            node("Reshape", &[&n[1], &full], &n[2], vec![]);
            node("Mul", &[&n[2], &n[3]], &n[5], vec![]);
            node("Add", &[&n[5], &n[4]], &out, vec![]);
        }
        Ok(())
    }
}

fn import_instance_norm(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let op = InstanceNorm { epsilon: cx.attrs.float("epsilon").unwrap_or(1e-5), ..InstanceNorm::default() };
    let inputs = cx.inputs.clone();
    cx.add_multi(op, inputs)
}

fn import_group_norm(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let op = GroupNorm {
        groups: cx.attrs.int("num_groups").ok_or("attribute num_groups is missing")?,
        epsilon: cx.attrs.float("epsilon").unwrap_or(1e-5),
        per_group: cx.opset < 21,
        layout: DataLayout::Nchw,
    };
    let inputs = cx.inputs.clone();
    cx.add_multi(op, inputs)
}

/// ONNX importers of this family.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "InstanceNormalization", domain: "", since: 1, import: import_instance_norm },
    OnnxImport { op_type: "GroupNormalization", domain: "", since: 18, import: import_group_norm },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::norm::LayerNorm;
    use crate::ops::testing::{assert_close, random, run, try_run};

    #[test]
    fn group_sizes_meet_instance_and_layer_normalisation() {
        let (x, scale, bias) = (random(&[2, 6, 3, 2], 1), random(&[6], 2), random(&[6], 3));
        let instance = run(InstanceNorm::default(), &[&x, &scale, &bias]);
        let each = run(GroupNorm { groups: 6, ..GroupNorm::default() }, &[&x, &scale, &bias]);
        assert_close(&each, &instance, 1e-6);
        let all = run(GroupNorm { groups: 1, ..GroupNorm::default() }, &[&x, &scale, &bias]);
        let column = |t: &Tensor| t.reshaped(vec![6, 1, 1]);
        let layer = run(LayerNorm { axis: 1, ..LayerNorm::default() }, &[&x, &column(&scale), &column(&bias)]);
        assert_close(&all, &layer, 1e-5);
    }

    #[test]
    fn every_layout_gives_the_same() {
        use crate::ops::layout_transform::LayoutTransform;
        let (x, scale, bias) = (random(&[2, 24, 3, 5], 1), random(&[24], 2), random(&[24], 3));
        for &layout in DataLayout::ALL {
            let moved = |t: &Tensor| run(LayoutTransform { from: DataLayout::Nchw, to: layout }, &[t]);
            if layout.block().is_some_and(|b| 24 % b != 0) {
                continue;
            }
            // Groups smaller than, as large as, larger than those of the packed layouts, and across their borders.
            for groups in [1, 2, 3, 4, 6, 8, 12, 24] {
                let op = GroupNorm { groups, ..GroupNorm::default() };
                let want = run(op.clone(), &[&x, &scale, &bias]);
                let got = run(GroupNorm { layout, ..op }, &[&moved(&x), &scale, &bias]);
                assert_close(&got, &moved(&want), 1e-5);
            }
            let want = run(InstanceNorm::default(), &[&x, &scale, &bias]);
            let got = run(InstanceNorm { layout, ..InstanceNorm::default() }, &[&moved(&x), &scale, &bias]);
            assert_close(&got, &moved(&want), 1e-5);
        }
    }

    #[test]
    fn factors_by_group_repeat_over_channels() {
        let x = random(&[1, 4, 5], 1);
        let (s, b) = (random(&[2], 2), random(&[2], 3));
        let spread = |t: &Tensor| {
            let v = t.to_f64_vec();
            Tensor::from_f64(t.dtype(), vec![4], vec![v[0], v[0], v[1], v[1]])
        };
        let op = GroupNorm { groups: 2, ..GroupNorm::default() };
        let want = run(op.clone(), &[&x, &spread(&s), &spread(&b)]);
        assert_close(&run(GroupNorm { per_group: true, ..op }, &[&x, &s, &b]), &want, 1e-6);
        let uneven = GroupNorm { groups: 3, ..GroupNorm::default() };
        assert!(try_run(uneven, &[&x, &spread(&s), &spread(&b)]).unwrap_err().contains("divide"));
    }
}
