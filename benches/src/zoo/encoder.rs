//! Devlin et al. 2018, "BERT", its encoder in a small form: embedded tokens with learned positions, four layers of
//! width 256. The number of tokens may stay open.

use super::moments::Moments;
use super::net::{Act, Built, Net};
use super::vit::{Form, encoder_layer, layer_norm};
use super::weights::Fill;
use compiler::int::Int;
use compiler::ops::binary::Add;
use compiler::ops::gather::Gather;
use compiler::ops::slice::Slice;

/// Different tokens.
pub(super) const VOCABULARY: usize = 8192;
/// Tokens of a text, at most.
const POSITIONS: usize = 1024;
const WIDTH: usize = 256;
const HIDDEN: usize = 1024;
const HEADS: usize = 4;
const LAYERS: usize = 4;

/// `tokens` is `i64[batch, sequence]`; the result `f32[batch, sequence, 256]`.
pub(super) fn encoder(net: &mut Net<'_>, tokens: &Act) -> Built {
    let size = net.size;
    let width = size.width(WIDTH);
    let sequence = net.b.ty(tokens.value).shape[1].clone();
    let words = net.param("embeddings.word.weight", &[VOCABULARY, width], Fill::Normal { std: 1.0 }).0;
    let x = net.node("embeddings.word", "Gather", Gather { axis: 0 }, &[words, tokens.value])?;
    let positions = net.param("embeddings.position.weight", &[POSITIONS, width], Fill::Normal { std: 0.2 }).0;
    let first = Slice { starts: vec![Int::new(0)], ends: vec![sequence], axes: vec![0], ..Slice::default() };
    let positions = net.node("embeddings.position", "Slice", first, &[positions])?;
    let x = net.node("embeddings", "Add", Add {}, &[x, positions])?;
    let mut x = layer_norm(net, x, "embeddings.norm", width)?;
    // A reshape keeps a dimension that it gives as 0: that of the tokens.
    let form = Form { width, hidden: size.width(HIDDEN), heads: HEADS, tokens: 0 };
    for i in 0..size.depth(LAYERS) {
        x = encoder_layer(net, x, &format!("encoder.layer.{i}"), form)?;
    }
    let x = layer_norm(net, x, "encoder.norm", width)?;
    Ok(net.act(x, Moments::uniform(width, 0.0, 1.0)))
}
