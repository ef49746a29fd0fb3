//! Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words", the base model with patches of 16.
//!
//! Layer norms keep every branch at unit scale whatever the weights, so no moments are carried here.

use super::moments::Moments;
use super::net::{Act, Built, ConvSpec, LOGIT_SPREAD, Net};
use super::weights::Fill;
use compiler::graph::{BuildError, ValueId};
use compiler::int::Int;
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
const HEADS: usize = 12;
const WIDTH: usize = 768;
const HIDDEN: usize = 3072;
const PATCHES: usize = 14 * 14;
const EPSILON: f64 = 1e-6;

type Value = Result<ValueId, BuildError>;

pub(super) fn vit_b_16(net: &mut Net<'_>, x: &Act) -> Built {
    let mut x = embed(net, x)?;
    for i in 0..LAYERS {
        x = encoder_layer(net, x, &format!("encoder.layers.encoder_layer_{i}"))?;
    }
    let x = layer_norm(net, x, "encoder.ln")?;
    let first = Slice { starts: vec![Int::new(0)], ends: vec![Int::new(1)], axes: vec![1], ..Slice::default() };
    let token = net.node("", "Slice", first, &[x])?;
    let token = net.node("", "Squeeze", Squeeze { axes: vec![1] }, &[token])?;
    let token = net.act(token, Moments::uniform(WIDTH, 0.0, 1.0));
    net.linear(&token, "heads.head", WIDTH, 1000, LOGIT_SPREAD)
}

/// Patches and the class token, with positions: `[batch, 197, 768]`.
fn embed(net: &mut Net<'_>, x: &Act) -> Value {
    let batch = net.b.ty(x.value).shape[0].clone();
    let patches = ConvSpec { stride: 16, pad: 0, ..ConvSpec::same(WIDTH, 16).biased() };
    let x = net.conv(x, "conv_proj", patches)?;
    let x = reshape(net, x.value, "", &[0, WIDTH as i64, PATCHES as i64])?;
    let x = net.node("", "Transpose", Transpose { perm: vec![0, 2, 1] }, &[x])?;
    let token = net.param("class_token", &[1, 1, WIDTH], Fill::Normal { std: 0.5 }).0;
    let shape = vec![batch, Int::new(1), Int::from(WIDTH)];
    let token = net.node("", "Expand", Expand { shape, ..Expand::default() }, &[token])?;
    let x = net.node("", "Concat", Concat { axis: 1 }, &[token, x])?;
    let positions = net.param("encoder.pos_embedding", &[1, PATCHES + 1, WIDTH], Fill::Normal { std: 0.2 }).0;
    net.node("encoder", "Add", Add {}, &[x, positions])
}

/// `y = x + attention(norm(x))`, then `y + mlp(norm(y))`.
fn encoder_layer(net: &mut Net<'_>, x: ValueId, path: &str) -> Value {
    let normed = layer_norm(net, x, &format!("{path}.ln_1"))?;
    let attended = attention(net, normed, &format!("{path}.self_attention"))?;
    let y = net.node(path, "Add", Add {}, &[attended, x])?;
    let normed = layer_norm(net, y, &format!("{path}.ln_2"))?;
    let mlp = format!("{path}.mlp");
    let hidden = dense(net, normed, &format!("{mlp}.0"), ["weight", "bias"], (WIDTH, HIDDEN), 1.0)?;
    let hidden = net.node(&format!("{mlp}.1"), "Gelu", Gelu::default(), &[hidden])?;
    let out = dense(net, hidden, &format!("{mlp}.3"), ["weight", "bias"], (HIDDEN, WIDTH), 1.0)?;
    net.node(path, "Add", Add {}, &[y, out])
}

fn layer_norm(net: &mut Net<'_>, x: ValueId, path: &str) -> Value {
    let runs = |base: f64, std: f64| Fill::Runs { runs: vec![(WIDTH, base, std)], spread: 0.0 };
    let scale = net.param(&format!("{path}.weight"), &[WIDTH], runs(1.0, 0.1)).0;
    let bias = net.param(&format!("{path}.bias"), &[WIDTH], runs(0.0, 0.05)).0;
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

/// Multi-head self-attention: `softmax(q k^T / 8) v` for each head.
fn attention(net: &mut Net<'_>, x: ValueId, path: &str) -> Value {
    let (tokens, head) = ((PATCHES + 1) as i64, (WIDTH / HEADS) as i64);
    // A little sharper than unit scale, so that heads differ from a plain mean.
    let qkv = dense(net, x, path, ["in_proj_weight", "in_proj_bias"], (WIDTH, 3 * WIDTH), 1.2)?;
    let parts = net.split(qkv, path, Split { axis: 2, sizes: vec![Int::from(WIDTH); 3] })?;
    let mut heads = Vec::with_capacity(3);
    for (part, perm) in parts.into_iter().zip([[0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]]) {
        let split = reshape(net, part, path, &[0, tokens, HEADS as i64, head])?;
        heads.push(net.node(path, "Transpose", Transpose { perm: perm.to_vec() }, &[split])?);
    }
    let scale = net.scalar(&format!("{path}.scale"), 1.0 / (head as f32).sqrt());
    let q = net.node(path, "Mul", Mul {}, &[heads[0], scale])?;
    let scores = net.node(path, "MatMul", MatMul {}, &[q, heads[1]])?;
    let weights = net.node(path, "Softmax", Softmax { axes: vec![3] }, &[scores])?;
    let mixed = net.node(path, "MatMul", MatMul {}, &[weights, heads[2]])?;
    let mixed = net.node(path, "Transpose", Transpose { perm: vec![0, 2, 1, 3] }, &[mixed])?;
    let mixed = reshape(net, mixed, path, &[0, tokens, WIDTH as i64])?;
    dense(net, mixed, &format!("{path}.out_proj"), ["weight", "bias"], (WIDTH, WIDTH), 1.5)
}
