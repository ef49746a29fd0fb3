//! The first layers of deep networks with depthwise convolutions stay in f32.
//!
//! Rounding errors of the first layers pass through all other layers. If every layer amplifies them a little, as in
//! MobileNets (a depthwise filter sums few terms, so roundings do not average out), most of the error of a result comes
//! from the first layers. Measured layer by layer on MobileNetV2 with seeded weights: the error from rounding the
//! results of layer `n` falls from 4e-3 for the first layer to 2e-4 for the thirtieth. With everything in f16, the
//! error of the network's result is 1.3e-2; with biases, small weights and inputs in f32 it is 0.9e-2; with three
//! layers in f32, including the results of the first two, 0.6e-2. More layers gain little (seven: 0.4e-2) and keep a
//! third of the network's activations in f32. Networks of full convolutions are within the tolerance without this.
//!
//! This is a heuristic for one network with seeded weights. Trained networks pay for it, since the first layers have
//! the largest results. `--amp auto` does not use it and measures instead. To see its cost, compare the `bytes` of
//! `weft compile --json` for the two modes; to see its gain, the `tolerance_used` of `weft compare --json`.

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
