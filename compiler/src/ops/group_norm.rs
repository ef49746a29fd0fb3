//! Normalisation by the statistics of groups of channels.

use super::conv::check_vector;
use super::norm::statistics;
use super::{InferContext, Op, OpResult, Precision};
use crate::attr_struct;
use crate::graph::{TensorType, ValueId};
use crate::int::{Int, const_dims, simplify};
use crate::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::Expr;

attr_struct! {
    /// `(x - mean) / sqrt(variance + epsilon) * scale + bias` of data `[n, c, spatial...]` with the statistics of each
    /// sample and channel. Operands: data, scale `[c]`, bias `[c]`.
    pub struct InstanceNorm("instance_norm") {
        /// Added to the variance.
        pub epsilon: f64 = 1e-5,
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
    }
}

fn check_data(x: &TensorType, least: usize) -> OpResult<()> {
    if !x.dtype.is_float() {
        return Err(format!("data is {}, needs a float type", x.dtype).into());
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

/// The stages for groups of `per` channels; scale and bias are indexed by channel or by group.
fn normalise(cx: &mut ComputeContext<'_>, groups: &Int, epsilon: f64, by_group: bool) -> OpResult<()> {
    let (x, scale, bias) = (cx.require(0)?, cx.require(1)?, cx.require(2)?);
    let out = cx.output_type(0).clone();
    let acc = out.dtype.accumulator();
    let per = simplify(&out.shape[1].div(groups), &Default::default());
    let extents: Vec<Int> = [&per].into_iter().chain(&out.shape[2..]).cloned().collect();
    let shape = [out.shape[0].clone(), groups.clone()];
    let s = statistics(cx, &shape, &extents, epsilon, |g, r| {
        let channel = g[1].clone() * &per + &r[0];
        [&g[0], &channel].into_iter().chain(&r[1..]).cloned().collect()
    })?;
    let types = (cx.dtype(scale), cx.dtype(bias));
    let result = cx.compute("", &out.shape, out.dtype, |o| {
        let group = o[1].div(&per);
        let at = vec![o[0].clone(), group.clone()];
        let which = vec![if by_group { group } else { o[1].clone() }];
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
        check_data(x, 3)?;
        check_vector(cx, 1, "scale", &x.shape[1])?;
        check_vector(cx, 2, "bias", &x.shape[1])?;
        Ok(vec![x.clone()])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let channels = cx.output_type(0).shape[1].clone();
        normalise(cx, &channels, self.epsilon, false)
    }
    fn precision(&self) -> Precision {
        Precision::Never
    }
    fn widens(&self) -> bool {
        true
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        cx.simple("InstanceNormalization", vec![("epsilon", OnnxAttr::Float(self.epsilon as f32))]);
        Ok(())
    }
}

impl Op for GroupNorm {
    fn arity(&self) -> (usize, usize) {
        (3, 3)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.require(0)?;
        check_data(x, 2)?;
        if self.groups < 1 || x.shape[1].as_const().is_some_and(|c| c % self.groups != 0) {
            return Err(format!("{} channels do not divide into {} groups", x.shape[1], self.groups).into());
        }
        let groups = Int::new(self.groups);
        let len = if self.per_group { &groups } else { &x.shape[1] };
        check_vector(cx, 1, "scale", len)?;
        check_vector(cx, 2, "bias", len)?;
        Ok(vec![x.clone()])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        normalise(cx, &Int::new(self.groups), self.epsilon, self.per_group)
    }
    fn precision(&self) -> Precision {
        Precision::Never
    }
    fn widens(&self) -> bool {
        true
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        // The opset that is written has the statistics only as InstanceNormalization of [n, groups, rest].
        let x = cx.output_types[0].clone();
        let dims = const_dims(&x.shape).ok_or("needs constant dimensions for its ONNX form")?;
        let groups = self.groups as usize;
        let grouped = cx.constant(Tensor::ints(&[dims[0] as i64, self.groups, -1]));
        let full = cx.constant(Tensor::ints(&dims.iter().map(|&d| d as i64).collect::<Vec<_>>()));
        let ones = cx.constant(Tensor::from_f64(x.dtype, vec![groups], vec![1.0; groups]));
        let zeros = cx.constant(Tensor::from_f64(x.dtype, vec![groups], vec![0.0; groups]));
        // Scale and bias become [groups, 1...] or [c, 1...] beside data of [n, groups, rest] or of the full shape.
        let tail = vec![1i64; if self.per_group { 1 } else { x.rank() - 2 }];
        let column = cx.constant(Tensor::ints(&[vec![-1], tail].concat()));
        let name = |cx: &ExportContext<'_>, what: &str| format!("{}_{what}", cx.fresh());
        let n: Vec<String> =
            ["in", "norm", "full", "scale", "bias", "mul", "add"].iter().map(|w| name(cx, w)).collect();
        let (data, scale, bias, out) = (cx.input(0), cx.input(1), cx.input(2), cx.outputs.clone());
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
            node("Reshape", &[&n[6], &full], &out[0], vec![]);
        } else {
            node("Reshape", &[&n[1], &full], &n[2], vec![]);
            node("Mul", &[&n[2], &n[3]], &n[5], vec![]);
            node("Add", &[&n[5], &n[4]], &out[0], vec![]);
        }
        Ok(())
    }
}

fn import_instance_norm(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let op = InstanceNorm { epsilon: cx.attrs.float("epsilon").unwrap_or(1e-5) };
    let inputs = cx.inputs.clone();
    cx.add_multi(op, inputs)
}

fn import_group_norm(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let op = GroupNorm {
        groups: cx.attrs.int("num_groups").ok_or("attribute num_groups is missing")?,
        epsilon: cx.attrs.float("epsilon").unwrap_or(1e-5),
        per_group: cx.opset < 21,
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
