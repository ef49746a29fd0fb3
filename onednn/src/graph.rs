//! The JSON graph of a region: what the runtime reads, and what a person can.

use serde::{Deserialize, Serialize};

/// A region as a graph of the library's primitives. Nodes are in the order in which they run; every name is one tensor
/// of f32, dense and row-major where it crosses the border.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Node {
    /// Name of the source node.
    pub name: String,
    /// What it computes.
    #[serde(flatten)]
    pub attributes: Attributes,
    /// Data, weights, and the bias if there is one; else as the op says.
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    /// A tensor of the result's shape, and another one of the same rank, whose axes have the same size or 1.
    Binary {
        /// What is computed of two elements.
        function: BinaryFunction,
    },
    /// A function of each element.
    Eltwise(Eltwise),
    /// The inputs one after another along an axis.
    Concat {
        /// The axis.
        axis: usize,
    },
    /// `exp(x) / sum(exp(x))` along an axis.
    Softmax {
        /// The axis.
        axis: usize,
    },
    /// `(x - mean) / sqrt(variance + epsilon) * scale + shift`: inputs are data `[n, c, ...]`, scale, shift, mean and
    /// variance `[c]`.
    BatchNorm {
        /// Added to the variance.
        epsilon: f32,
    },
}

/// A function of one element.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Eltwise {
    /// Which.
    pub function: Function,
    /// Its first parameter.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub alpha: f32,
    /// Its second parameter.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub beta: f32,
}

fn is_zero(x: &f32) -> bool {
    x.to_bits() == 0
}

/// Functions of one element, by oneDNN's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Function {
    /// `x` where positive, else `alpha * x`.
    Relu,
    /// `x` from `alpha` to `beta`.
    Clip,
    /// Hyperbolic tangent.
    Tanh,
    /// `x` where positive, else `alpha * (e^x - 1)`.
    Elu,
    /// `|x|`.
    Abs,
    /// Square root.
    Sqrt,
    /// `alpha * x + beta`.
    Linear,
    /// `log(1 + e^(alpha * x)) / alpha`.
    SoftRelu,
    /// `1 / (1 + e^-x)`.
    Logistic,
    /// `e^x`.
    Exp,
    /// Natural logarithm.
    Log,
    /// `x * Phi(x)`, approximated by a tanh.
    GeluTanh,
    /// `x * Phi(x)`, by the error function.
    GeluErf,
    /// `x * logistic(alpha * x)`.
    Swish,
    /// The nearest integer, halves to even.
    Round,
    /// `x * tanh(log(1 + e^x))`.
    Mish,
    /// `x * clip(alpha * x + beta, 0, 1)`, where `alpha` is 1/6 and `beta` 1/2.
    Hardswish,
}

/// Functions of two elements, by oneDNN's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BinaryFunction {
    /// `a + b`.
    Add,
    /// `a * b`.
    Mul,
    /// The larger.
    Max,
    /// The smaller.
    Min,
    /// `a / b`.
    Div,
    /// `a - b`.
    Sub,
}

/// What a pool keeps of a window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum PostOp {
    /// Adds a tensor of the result's shape.
    Sum {
        /// Its name.
        input: String,
    },
    /// A function of the value.
    Eltwise(Eltwise),
    /// A function of the value and of an element of another tensor: one for all, or one for each channel of a
    /// convolution (axis 1), for each column of a product (the last axis).
    Binary {
        /// Which.
        function: BinaryFunction,
        /// Name of the other tensor.
        input: String,
    },
}

#[cfg(test)]
mod tests {
    use super::Graph;

    /// `docs/onednn-graph.schema.json` is the schema of [`Graph`]; `WEFT_BLESS=1` writes it anew.
    #[test]
    fn the_schema_in_the_documents_is_that_of_the_types() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/onednn-graph.schema.json");
        let schema = serde_json::to_string_pretty(&schemars::schema_for!(Graph)).expect("JSON") + "\n";
        if std::env::var_os("WEFT_BLESS").is_some_and(|v| v == "1") {
            std::fs::write(path, &schema).expect("the schema is written");
        }
        assert_eq!(std::fs::read_to_string(path).expect("the schema"), schema, "WEFT_BLESS=1 writes it anew");
    }
}
