//! Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words", the base model with patches of 16.
//!
//! Layer norms keep every branch at unit scale whatever the weights, so no moments are carried here.

use super::moments::Moments;
use super::net::{Act, Built, ConvSpec, LOGIT_SPREAD, Net};
use super::weights::Fill;
use compiler::graph::{BuildError, ValueId};
use compiler::int::{Int, const_dims};
use compiler::ops::activation::Gelu;
use compiler::ops::binary::{Add, Mul};
use compiler::ops::broadcast::Expand;
use compiler::ops::concat::Concat;
use compiler::ops::matmul::MatMul;
use compiler::ops::norm::LayerNorm;
use compiler::ops::reshape::{Reshape, Squeeze};
use compiler::ops::slice::Slice;
use compiler::ops::softmax::Softmax;
use compiler::ops::split::Split;
use compiler::ops::transpose::Transpose;

const LAYERS: usize = 12;
const WIDTH: usize = 768;
const HIDDEN: usize = 3072;
/// Features of a head: there are 12 at full width.
const HEAD: usize = 64;
/// Pixels of a patch along each side.
const PATCH: usize = 16;
const EPSILON: f64 = 1e-6;

/// Extents of the form that is built.
#[derive(Clone, Copy)]
pub(super) struct Form {
    pub(super) width: usize,
    pub(super) hidden: usize,
    pub(super) heads: usize,
    /// Patches and the class token, as a reshape has them.
    pub(super) tokens: i64,
}

type Value = Result<ValueId, BuildError>;

pub(super) fn vit_b_16(net: &mut Net<'_>, x: &Act) -> Built {
    let size = net.size;
    let pixels = const_dims(&net.b.ty(x.value).shape[2..]);
    let patches: usize = pixels.map_or(0, |s| s.iter().map(|d| d / PATCH).product());
    let width = size.width(WIDTH);
    let heads = (1..=(width / HEAD).max(1)).rev().find(|h| width.is_multiple_of(*h)).unwrap_or(1);
    let form = Form { width, hidden: size.width(HIDDEN), heads, tokens: patches as i64 + 1 };
    let mut x = embed(net, x, width, patches)?;
    for i in 0..size.depth(LAYERS) {
        x = encoder_layer(net, x, &format!("encoder.layers.encoder_layer_{i}"), form)?;
    }
    let x = layer_norm(net, x, "encoder.ln", width)?;
    let first = Slice { starts: vec![Int::new(0)], ends: vec![Int::new(1)], axes: vec![1], ..Slice::default() };
    let token = net.node("", "Slice", first, &[x])?;
    let token = net.node("", "Squeeze", Squeeze { axes: vec![1] }, &[token])?;
    let token = net.act(token, Moments::uniform(width, 0.0, 1.0));
    net.linear(&token, "heads.head", width, 1000, LOGIT_SPREAD)
}

/// Patches and the class token, with positions: `[batch, 197, 768]` at full size.
fn embed(net: &mut Net<'_>, x: &Act, width: usize, patches: usize) -> Value {
    let batch = net.b.ty(x.value).shape[0].clone();
    let projection = ConvSpec { stride: PATCH, pad: 0, ..ConvSpec::same(width, PATCH).biased() };
    let x = net.conv(x, "conv_proj", projection)?;
    let x = reshape(net, x.value, "", &[0, width as i64, patches as i64])?;
    let x = net.node("", "Transpose", Transpose { perm: vec![0, 2, 1] }, &[x])?;
    let token = net.param("class_token", &[1, 1, width], Fill::Normal { std: 0.5 }).0;
    let shape = vec![batch, Int::new(1), Int::from(width)];
    let token = net.node("", "Expand", Expand { shape, ..Expand::default() }, &[token])?;
    let x = net.node("", "Concat", Concat { axis: 1 }, &[token, x])?;
    let positions = net.param("encoder.pos_embedding", &[1, patches + 1, width], Fill::Normal { std: 0.2 }).0;
    net.node("encoder", "Add", Add {}, &[x, positions])
}

/// `y = x + attention(norm(x))`, then `y + mlp(norm(y))`.
pub(super) fn encoder_layer(net: &mut Net<'_>, x: ValueId, path: &str, form: Form) -> Value {
    let Form { width, hidden: inner, .. } = form;
    let normed = layer_norm(net, x, &format!("{path}.ln_1"), width)?;
    let attended = attention(net, normed, &format!("{path}.self_attention"), form)?;
    let y = net.node(path, "Add", Add {}, &[attended, x])?;
    let normed = layer_norm(net, y, &format!("{path}.ln_2"), width)?;
    let mlp = format!("{path}.mlp");
    let hidden = dense(net, normed, &format!("{mlp}.0"), ["weight", "bias"], (width, inner), 1.0)?;
    let hidden = net.node(&format!("{mlp}.1"), "Gelu", Gelu::default(), &[hidden])?;
    let out = dense(net, hidden, &format!("{mlp}.3"), ["weight", "bias"], (inner, width), 1.0)?;
    net.node(path, "Add", Add {}, &[y, out])
}

pub(super) fn layer_norm(net: &mut Net<'_>, x: ValueId, path: &str, width: usize) -> Value {
    let runs = |base: f64, std: f64| Fill::Runs { runs: vec![(width, base, std)], spread: 0.0 };
    let scale = net.param(&format!("{path}.weight"), &[width], runs(1.0, 0.1)).0;
    let bias = net.param(&format!("{path}.bias"), &[width], runs(0.0, 0.05)).0;
    let op = LayerNorm { axis: 2, epsilon: EPSILON, ..LayerNorm::default() };
    net.node(path, "LayerNormalization", op, &[x, scale, bias])
}

/// `x @ weight + bias`; the weight is stored as `[inputs, outputs]`, as the exporter folds its transpose.
fn dense(
    net: &mut Net<'_>,
    x: ValueId,
    path: &str,
    [weight, bias]: [&str; 2],
    (inputs, out): (usize, usize),
    gain: f64,
) -> Value {
    let std = gain / (inputs as f64).sqrt();
    let weight = net.param(&format!("{path}.{weight}"), &[inputs, out], Fill::Normal { std }).0;
    let runs = Fill::Runs { runs: vec![(out, 0.0, 0.05)], spread: 0.0 };
    let bias = net.param(&format!("{path}.{bias}"), &[out], runs).0;
    let y = net.node(path, "MatMul", MatMul {}, &[x, weight])?;
    net.node(path, "Add", Add {}, &[y, bias])
}

fn reshape(net: &mut Net<'_>, x: ValueId, path: &str, shape: &[i64]) -> Value {
    let shape = shape.iter().map(|&d| Int::new(d)).collect();
    net.node(path, "Reshape", Reshape { shape, ..Reshape::default() }, &[x])
}

/// Multi-head self-attention: `softmax(q k^T / sqrt(d)) v` for each head of `d` features.
fn attention(net: &mut Net<'_>, x: ValueId, path: &str, Form { width, heads: count, tokens, .. }: Form) -> Value {
    let head = (width / count) as i64;
    // A little sharper than unit scale, so that heads differ from a plain mean.
    let qkv = dense(net, x, path, ["in_proj_weight", "in_proj_bias"], (width, 3 * width), 1.2)?;
    let parts = net.split(qkv, path, Split { axis: 2, sizes: vec![Int::from(width); 3] })?;
    let mut heads = Vec::with_capacity(3);
    for (part, perm) in parts.into_iter().zip([[0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]]) {
        let split = reshape(net, part, path, &[0, tokens, count as i64, head])?;
        heads.push(net.node(path, "Transpose", Transpose { perm: perm.to_vec() }, &[split])?);
    }
    let scale = net.scalar(&format!("{path}.scale"), 1.0 / (head as f32).sqrt());
    let q = net.node(path, "Mul", Mul {}, &[heads[0], scale])?;
    let scores = net.node(path, "MatMul", MatMul {}, &[q, heads[1]])?;
    let weights = net.node(path, "Softmax", Softmax { axes: vec![3] }, &[scores])?;
    let mixed = net.node(path, "MatMul", MatMul {}, &[weights, heads[2]])?;
    let mixed = net.node(path, "Transpose", Transpose { perm: vec![0, 2, 1, 3] }, &[mixed])?;
    let mixed = reshape(net, mixed, path, &[0, tokens, width as i64])?;
    dense(net, mixed, &format!("{path}.out_proj"), ["weight", "bias"], (width, width), 1.5)
}
