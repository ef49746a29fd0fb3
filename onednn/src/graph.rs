//! The JSON graph of a region: what the runtime reads, and what a person can.

use serde::{Deserialize, Serialize};

/// A region as a graph of the library's primitives. Nodes are in the order in which they run; every name is one tensor of
/// f32, dense and row-major where it crosses the border.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Graph {
    /// `weft-dnnl-graph/1`.
    pub format: String,
    /// Operands of the region, in order.
    pub inputs: Vec<Port>,
    /// Constants, whose data are given beside the graph in this order.
    pub constants: Vec<Constant>,
    /// Primitives.
    pub nodes: Vec<Node>,
    /// Names of the results, in order.
    pub outputs: Vec<String>,
}

/// The value of [`Graph::format`].
pub const FORMAT: &str = "weft-dnnl-graph/1";

/// A named tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Its name in the graph.
    pub name: String,
    /// Dimensions.
    pub shape: Vec<i64>,
}

/// A constant.
pub type Constant = Port;

/// A primitive with what is applied to its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Name of the source node.
    pub name: String,
    /// What it computes.
    #[serde(flatten)]
    pub attributes: Attributes,
    /// Data, weights, and the bias if there is one.
    pub inputs: Vec<String>,
    /// Name of the result.
    pub output: String,
    /// Dimensions of the result.
    pub shape: Vec<i64>,
    /// Applied in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub post_ops: Vec<PostOp>,
}

/// An op with its attributes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Attributes {
    /// Data `[n, c, spatial...]`, weights `[out, c / groups, kernel...]`.
    Convolution {
        /// Steps along the spatial axes.
        strides: Vec<i64>,
        /// Elements between taps: 0 for dense kernels.
        dilates: Vec<i64>,
        /// Padding at the beginnings.
        pads_begin: Vec<i64>,
        /// Padding at the ends.
        pads_end: Vec<i64>,
        /// Groups of channels.
        groups: i64,
    },
    /// Data `[..., m, k]`, weights `[..., k, n]`, with broadcasting of leading axes of size 1.
    Matmul {
        /// Weights are stored as `[..., n, k]`.
        transposed_weights: bool,
    },
    /// Data `[n, c, spatial...]`.
    Pool {
        /// What is kept.
        kind: PoolKind,
        /// Size of the window.
        kernel: Vec<i64>,
        /// Steps along the spatial axes.
        strides: Vec<i64>,
        /// Elements between those of a window: 0 for dense windows.
        dilates: Vec<i64>,
        /// Padding at the beginnings.
        pads_begin: Vec<i64>,
        /// Padding at the ends.
        pads_end: Vec<i64>,
    },
    /// Two tensors of one shape.
    Sum,
    /// The larger of each element and 0.
    Relu,
    /// Each element within bounds.
    Clip {
        /// Lower bound.
        min: f32,
        /// Upper bound.
        max: f32,
    },
}

/// What a pool keeps of a window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolKind {
    /// The largest element.
    Max,
    /// The mean of the elements that are there.
    Average,
    /// The mean, padding included.
    AverageWithPadding,
}

/// What is applied to a result before it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum PostOp {
    /// Adds a tensor of the result's shape.
    Sum {
        /// Its name.
        input: String,
    },
    /// The larger of the value and 0.
    Relu,
    /// The value within bounds.
    Clip {
        /// Lower bound.
        min: f32,
        /// Upper bound.
        max: f32,
    },
}
