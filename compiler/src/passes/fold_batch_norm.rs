//! fold-batch-norm: batch normalisation with constant statistics is a factor and an offset per channel, and those move
//! into the weights and bias of the convolution or matrix product before.
//!
//! ```text
//! %0 = conv %x, %w, %b                                     %0 = conv %x, %w2, %b2
//! %1 = batch_norm %0, %scale, %bias, %mean, %var    =>     w2 = w * s    b2 = (b - mean) * s + bias
//!
//! %1 = batch_norm %x, ...                           =>     %0 = mul %x, s
//!                                                          %1 = add %0, bias - mean * s
//! ```
//!
//! with `s = scale / sqrt(var + epsilon)`. New weights are computed from the old ones on demand, so host memory never
//! holds both.

use super::rewriter::Rewriter;
use super::scaled_weights::{constant_of, scale_weights};
use super::{FunctionPass, GraphFunctions, PassContext, PassError};
use crate::attr_struct;
use crate::dtype::DType;
use crate::graph::{Constant, NodeId};
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::batch_norm::BatchNorm;
use crate::ops::binary::{Add, Mul};
use crate::ops::weights::{Bias, Channels};
use crate::tensor::Tensor;

attr_struct! {
    /// Folds batch normalisation.
    pub struct FoldBatchNorm("fold-batch-norm") {}
}

impl FunctionPass for FoldBatchNorm {
    type Of = GraphFunctions;
    fn opt_level(&self) -> u8 {
        2
    }
    fn run_on(&self, r: &mut Rewriter<'_>, cx: &mut PassContext) -> Result<(), PassError> {
        for n in r.f.walk() {
            r.normalize(n);
            if r.f.nodes[n].op.is::<BatchNorm>() {
                self.visit(r, n, cx);
            }
        }
        Ok(())
    }
}

/// The factor and offset of each channel.
struct Affine {
    factor: Vec<f64>,
    offset: Vec<f64>,
}

impl FoldBatchNorm {
    fn visit(&self, r: &mut Rewriter<'_>, n: NodeId, cx: &mut PassContext) {
        let name = r.f.nodes[n].name;
        let Some(affine) = channel_affine(r, n) else {
            cx.missed(self, &[name], format!("{name} is not folded: its statistics are not constant"));
            return;
        };
        let before = r.f.nodes[n].inputs[0].and_then(|x| r.f.def_node(x));
        let message = match self.fold_into(r, n, &affine) {
            Ok(()) => {
                let anchor = before.map(|b| r.f.nodes[b].name).unwrap_or(name);
                cx.applied(self, &[anchor, name], format!("{name} moved into the weights of {anchor}"));
                return;
            }
            Err(why) => why,
        };
        match split_into_mul_add(r, n, &affine) {
            Some(()) => cx.applied(self, &[name], format!("{name} became a factor and an offset: {message}")),
            None => cx.missed(self, &[name], format!("{name} stays: {message}")),
        }
    }

    /// Moves the normalisation into the anchor that makes its operand.
    fn fold_into(&self, r: &mut Rewriter<'_>, n: NodeId, affine: &Affine) -> Result<(), String> {
        let x = r.f.nodes[n].inputs[0].ok_or("it has no operand")?;
        let anchor = r.f.def_node(x).ok_or("its operand is a parameter")?;
        let node = &r.f.nodes[anchor];
        let anchor_name = node.name;
        let rank = node.inputs.get(1).copied().flatten().map_or(0, |w| r.f.ty(w).rank());
        let (channels, Bias { factor: beta, plain }) = anchor_channels(&node.op, &r.f.nodes[n].op, rank)
            .ok_or_else(|| format!("its operand comes from {anchor_name}, which has no weights to scale"))?;
        if r.num_uses(x) != 1 {
            return Err(format!("{} others use the result of {anchor_name}", r.num_uses(x) - 1));
        }
        let inputs = node.inputs.clone();
        let get = |i: usize| constant_of(r, inputs.get(i).copied().flatten());
        let (weights_name, weights) = get(1).ok_or_else(|| format!("the weights of {anchor_name} are not constant"))?;
        let bias = match inputs.get(2).copied().flatten() {
            None => None,
            Some(_) => Some(get(2).ok_or_else(|| format!("the bias of {anchor_name} is not constant"))?.1),
        };
        let new_bias = fold_bias(bias.as_ref(), beta, affine, weights.dtype)
            .ok_or_else(|| format!("the bias of {anchor_name} does not have one element a channel"))?;
        let scaled = scale_weights(weights, &affine.factor, channels)
            .ok_or_else(|| format!("the weights of {anchor_name} do not have {} channels", affine.factor.len()))?;
        let origins = node.origins.union(&r.f.nodes[n].origins);
        let w = r.constant_before(n, &format!("{weights_name}.bn"), scaled, origins.clone());
        let b = r.constant_before(n, &format!("{weights_name}.bn_bias"), new_bias, origins.clone());
        let made = r.add_before(n, plain, vec![inputs[0], Some(w), Some(b)], anchor_name, origins)?;
        r.replace(r.f.nodes[n].outputs[0], made[0]);
        r.erase(n);
        r.erase(anchor);
        Ok(())
    }
}

/// Where the anchor's weights keep the result's channels, and how it takes a bias.
fn anchor_channels(op: &OpRef, norm: &OpRef, weights_rank: usize) -> Option<(Channels, Bias)> {
    let norm = norm.downcast::<BatchNorm>()?;
    let w = op.weight_channels(weights_rank)?;
    if w.layout.is_some_and(|l| l != norm.layout) {
        return None;
    }
    Some((w.results, w.bias?))
}

/// `s = scale / sqrt(var + epsilon)` and `bias - mean * s`, where all of them are constant.
fn channel_affine(r: &Rewriter<'_>, n: NodeId) -> Option<Affine> {
    let node = &r.f.nodes[n];
    let epsilon = node.op.downcast::<BatchNorm>()?.epsilon;
    let get = |i: usize| Some(constant_of(r, *node.inputs.get(i)?)?.1.load().ok()?.to_f64_vec());
    let (scale, bias, mean, variance) = (get(1)?, get(2)?, get(3)?, get(4)?);
    let factor: Vec<f64> = scale.iter().zip(&variance).map(|(s, v)| s / (v + epsilon).sqrt()).collect();
    let offset = bias.iter().zip(&mean).zip(&factor).map(|((b, m), s)| b - m * s).collect();
    Some(Affine { factor, offset })
}

/// `b2 = beta * b * s + offset`; `None` when `b` has neither one element nor one a channel.
fn fold_bias(bias: Option<&Constant>, beta: f64, affine: &Affine, dtype: DType) -> Option<Constant> {
    let channels = affine.factor.len();
    let old = match bias {
        None => vec![0.0; channels],
        Some(b) => b.load().ok()?.to_f64_vec(),
    };
    let one_each = bias.is_none_or(|b| b.shape.last().is_none_or(|&d| d == old.len()));
    if !one_each || (old.len() != channels && old.len() != 1) {
        return None;
    }
    let at = |i: usize| if beta == 0.0 { 0.0 } else { beta * if old.len() == 1 { old[0] } else { old[i] } };
    let new = (0..channels).map(|i| at(i) * affine.factor[i] + affine.offset[i]);
    Some(Constant::from_tensor(&Tensor::from_f64(dtype, vec![channels], new)))
}

/// `x * s + offset`, with constants that broadcast along the channel axis.
fn split_into_mul_add(r: &mut Rewriter<'_>, n: NodeId, affine: &Affine) -> Option<()> {
    let node = r.f.nodes[n].clone();
    let x = node.inputs[0]?;
    let ty = r.f.ty(x).clone();
    let channel = node.op.downcast::<BatchNorm>()?.layout.channel_axis(ty.rank())?;
    let mut shape = vec![1; ty.rank() - channel];
    shape[0] = affine.factor.len();
    let mut constant = |label: &str, values: &[f64]| {
        let t = Tensor::from_f64(ty.dtype, shape.clone(), values.iter().copied());
        r.constant_before(n, &format!("{}.{label}", node.name), Constant::from_tensor(&t), node.origins.clone())
    };
    let (factor, offset) = (constant("factor", &affine.factor), constant("offset", &affine.offset));
    let scale_name = Name::new(&format!("{}.scale", node.name));
    let scaled = r.add_before(n, Mul {}, vec![Some(x), Some(factor)], scale_name, node.origins.clone()).ok()?;
    let y = r.add_before(n, Add {}, vec![Some(scaled[0]), Some(offset)], node.name, node.origins.clone()).ok()?;
    r.replace(node.outputs[0], y[0]);
    r.erase(n);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpreter::run_function;
    use crate::passes::run_pass;
    use crate::text::{parse_module, random_tensor};

    fn check(anchor: &str, data: &str, weights: &str, result: &str, left: &[&str]) {
        let text = format!(
            "const @w : f32[{weights}] = random(1)\nconst @b : f32[4] = random(2)\nconst @s : f32[4] = random(3)\n\
             const @o : f32[4] = random(4)\nconst @m : f32[4] = random(5)\nconst @v : f32[4] = [0.5, 1.0, 2.0, 0.25]\n\
             graph @main(%x: f32[{data}]) -> (y: f32[{result}]) {{\n  %w = const @w : f32[{weights}]\n  \
             %b = const @b : f32[4]\n  %s = const @s : f32[4]\n  %o = const @o : f32[4]\n  %m = const @m : f32[4]\n  \
             %v = const @v : f32[4]\n  %0 = {anchor} : f32[{result}]\n  %1 = batch_norm %0, %s, %o, %m, %v : f32[{result}]\n  \
             return %1\n}}\n"
        );
        let mut m = parse_module(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let shape: Vec<usize> = data.split(',').map(|d| d.parse().unwrap()).collect();
        let x = random_tensor(DType::F32, &shape, 9);
        let want = run_function(&m, m.entry, std::slice::from_ref(&x)).unwrap()[0].to_f32_vec();
        let mut cx = PassContext::default();
        run_pass(&FoldBatchNorm {}, &mut m, &mut cx).unwrap();
        let f = m.main();
        let ops: Vec<_> = f.walk().iter().map(|&n| f.nodes[n].op.name()).filter(|&o| o != "const").collect();
        assert_eq!(ops, left, "{:?}", cx.remarks);
        let got = run_function(&m, m.entry, &[x]).unwrap()[0].to_f32_vec();
        for (a, b) in got.iter().zip(&want) {
            assert!((a - b).abs() <= 1e-5 * (1.0 + b.abs()), "{got:?} {want:?}");
        }
    }

    #[test]
    fn folds_into_every_anchor_and_stands_alone() {
        check("conv %x, %w, %b {pads=[1,1,1,1]}", "1,2,5,5", "4,2,3,3", "1,4,5,5", &["conv"]);
        check("conv %x, %w {group=2}", "1,4,5,5", "4,2,3,3", "1,4,3,3", &["conv"]);
        check("conv_transpose %x, %w, %b {group=2}", "1,4,3,3", "4,2,3,3", "1,4,5,5", &["conv_transpose"]);
        check("gemm %x, %w, %b {beta=0.5}", "3,2", "2,4", "3,4", &["gemm"]);
        check("gemm %x, %w {alpha=2.0, trans_b=true}", "3,2", "4,2", "3,4", &["gemm"]);
        check("relu %x", "1,4,3,3", "4,2", "1,4,3,3", &["relu", "mul", "add"]);
    }
}
