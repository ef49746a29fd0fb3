//! The first layers of deep networks with depthwise convolutions stay in f32.
//!
//! Rounding in the first layers passes through all others. Where every layer magnifies it a little, as those of MobileNets do
//! (a depthwise filter sums few terms, and they do not average rounding out), most of a result's error comes from there:
//! measured layer by layer on MobileNetV2 with seeded weights, the error that rounding the results of layer `n` makes
//! falls from 4e-3 for the first to 2e-4 for the thirtieth. With everything in f16 that network's result is off by 1.3e-2;
//! with biases, slight weights and inputs in f32 by 0.9e-2, and with three layers in f32, the results of the first two
//! included, by 0.6e-2. More layers would gain little (seven: 0.4e-2) and hold a third of the network's activations in f32.
//! Networks of full convolutions are within the tolerance without this.
//!
//! It is a guess that one network with seeded weights needs, and trained ones pay for: the first layers have the largest results.
//! `--amp auto` does without it and measures; what it costs a network is the difference of the `bytes` that `weft compile
//! --json` prints for the two, what it mends that of the `tolerance_used` that `weft compare --json` does.

use crate::graph::{Function, NodeId, ValueId};
use crate::ops::Precision;
use rustc_hash::{FxHashMap, FxHashSet};

/// Layers that stay in f32, counted along the longest way from the inputs.
pub const STEM_LAYERS: usize = 3;
/// A network of fewer layers than this many times those of the stem does not magnify rounding much.
const DEPTH: usize = 8;

/// One layer in so many at least is a depthwise convolution.
const DEPTHWISE_SHARE: usize = 8;

/// Convolutions and products within [`STEM_LAYERS`] of the inputs, in networks of many layers that magnify rounding.
pub fn stem_nodes(f: &Function) -> FxHashSet<NodeId> {
    let mut depth: FxHashMap<ValueId, usize> = FxHashMap::default();
    let (mut stem, mut layers, mut depthwise) = (FxHashSet::default(), 0, 0);
    for n in f.walk() {
        let node = &f.nodes[n];
        let below = node.inputs.iter().flatten().filter_map(|v| depth.get(v).copied()).max().unwrap_or(0);
        let layer = node.op.precision() == Precision::Always;
        let here = below + usize::from(layer);
        depth.extend(node.outputs.iter().map(|&v| (v, here)));
        if layer {
            layers += 1;
            depthwise += usize::from(is_depthwise(f, n));
            if here <= STEM_LAYERS {
                stem.insert(n);
            }
        }
    }
    let magnifies = depthwise > 0 && depthwise * DEPTHWISE_SHARE >= layers;
    if magnifies && layers > DEPTH * stem.len() { stem } else { FxHashSet::default() }
}

/// A convolution each of whose results sums over one channel.
fn is_depthwise(f: &Function, n: NodeId) -> bool {
    let node = &f.nodes[n];
    let single = |v: &ValueId| f.ty(*v).shape.get(1).is_some_and(|c| c.is(1));
    let Some(weights) = node.inputs.get(1).and_then(|v| *v) else { return false };
    let channels = node.op.weight_channels(f.ty(weights).rank());
    channels.is_some_and(|c| c.is_grouped()) && single(&weights)
}
