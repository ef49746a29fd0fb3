//! Convolutions, products and attentions of networks in use, batch 1, f32: what schedules and searches are measured on.

/// One function.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A convolution in NCHW with a ReLU behind it.
    Conv {
        /// Channels in and out.
        channels: [usize; 2],
        /// Height and width of the input.
        side: usize,
        /// Height and width of the window, padded by half of it.
        window: usize,
        /// Stride.
        stride: usize,
        /// Groups; as many as channels for a depthwise convolution.
        groups: usize,
    },
    /// `[rows, depth] x [depth, columns]`, the second operand a constant.
    Product {
        /// Rows of the result.
        rows: usize,
        /// Columns of the result.
        columns: usize,
        /// Length of the sums.
        depth: usize,
    },
    /// `softmax(scale * q k') v` of `[heads, tokens, depth]`.
    Attention {
        /// Heads.
        heads: usize,
        /// Tokens.
        tokens: usize,
        /// Elements of a head's token.
        depth: usize,
    },
}

const fn conv(channels: [usize; 2], side: usize, window: usize, stride: usize) -> Shape {
    Shape::Conv { channels, side, window, stride, groups: 1 }
}

const fn depthwise(channels: usize, side: usize, window: usize, stride: usize) -> Shape {
    Shape::Conv { channels: [channels, channels], side, window, stride, groups: channels }
}

const fn product(rows: usize, columns: usize, depth: usize) -> Shape {
    Shape::Product { rows, columns, depth }
}

const fn attention(heads: usize, tokens: usize, depth: usize) -> Shape {
    Shape::Attention { heads, tokens, depth }
}

/// The shapes by which a strategy of search may be chosen: of ResNet, MobileNetV2, SqueezeNet, ViT and MiniLM.
pub const KNOWN: &[(&str, Shape)] = &[
    ("stem-7x7", conv([3, 64], 224, 7, 2)),
    ("stem-3x3", conv([3, 32], 224, 3, 2)),
    ("64-64-56-1x1", conv([64, 64], 56, 1, 1)),
    ("64-256-56-1x1", conv([64, 256], 56, 1, 1)),
    ("64-64-56-3x3", conv([64, 64], 56, 3, 1)),
    ("256-128-56-1x1", conv([256, 128], 56, 1, 1)),
    ("128-128-56-3x3-s2", conv([128, 128], 56, 3, 2)),
    ("128-128-28-3x3", conv([128, 128], 28, 3, 1)),
    ("256-512-56-1x1-s2", conv([256, 512], 56, 1, 2)),
    ("1024-256-14-1x1", conv([1024, 256], 14, 1, 1)),
    ("256-256-14-3x3", conv([256, 256], 14, 3, 1)),
    ("512-2048-7-1x1", conv([512, 2048], 7, 1, 1)),
    ("512-512-7-3x3", conv([512, 512], 7, 3, 1)),
    ("16-96-112-1x1", conv([16, 96], 112, 1, 1)),
    ("144-24-56-1x1", conv([144, 24], 56, 1, 1)),
    ("16-64-55-3x3", conv([16, 64], 55, 3, 1)),
    ("product-197-2304-768", product(197, 2304, 768)),
    ("product-197-768-3072", product(197, 768, 3072)),
    ("product-128-384-384", product(128, 384, 384)),
    ("product-128-1536-384", product(128, 1536, 384)),
    ("product-1-1000-2048", product(1, 1000, 2048)),
    ("product-512-512-512", product(512, 512, 512)),
    ("depthwise-32-112-3x3", depthwise(32, 112, 3, 1)),
    ("depthwise-144-56-3x3-s2", depthwise(144, 56, 3, 2)),
    ("depthwise-384-14-3x3", depthwise(384, 14, 3, 1)),
    ("depthwise-240-28-5x5", depthwise(240, 28, 5, 1)),
    ("attention-12-197-64", attention(12, 197, 64)),
    ("attention-12-128-32", attention(12, 128, 32)),
    ("attention-8-64-64", attention(8, 64, 64)),
];

/// Other shapes, for a strategy that has been chosen: of EfficientNet, DenseNet, YOLO, U-Net and Whisper.
pub const OTHERS: &[(&str, Shape)] = &[
    ("3-16-320-3x3-s2", conv([3, 16], 320, 3, 2)),
    ("32-64-80-3x3-s2", conv([32, 64], 80, 3, 2)),
    ("96-64-40-1x1", conv([96, 64], 40, 1, 1)),
    ("128-32-28-3x3", conv([128, 32], 28, 3, 1)),
    ("672-112-14-1x1", conv([672, 112], 14, 1, 1)),
    ("24-144-75-1x1", conv([24, 144], 75, 1, 1)),
    ("192-192-20-3x3", conv([192, 192], 20, 3, 1)),
    ("depthwise-96-112-3x3-s2", depthwise(96, 112, 3, 2)),
    ("depthwise-672-14-5x5", depthwise(672, 14, 5, 1)),
    ("product-300-384-1536", product(300, 384, 1536)),
    ("product-64-1024-256", product(64, 1024, 256)),
    ("attention-6-300-64", attention(6, 300, 64)),
];

impl Shape {
    /// The text of a model with this function alone.
    pub fn model(&self) -> String {
        match *self {
            Shape::Conv { channels: [from, to], side, window, stride, groups } => {
                let (pad, own) = (window / 2, from / groups);
                let out = (side + 2 * pad - window) / stride + 1;
                format!(
                    "const @w : f32[{to},{own},{window},{window}] = random(1)
graph @main(%x: f32[1,{from},{side},{side}]) -> (y: f32[1,{to},{out},{out}]) {{
  %w = const @w
  %0 = conv %x, %w {{pads=[{pad},{pad},{pad},{pad}], strides=[{stride},{stride}], group={groups}}} : f32[1,{to},{out},{out}]
  %y = relu %0 : f32[1,{to},{out},{out}]
  return %y
}}
"
                )
            }
            Shape::Product { rows, columns, depth } => format!(
                "const @w : f32[{depth},{columns}] = random(1)
graph @main(%x: f32[{rows},{depth}]) -> (y: f32[{rows},{columns}]) {{
  %w = const @w
  %y = matmul %x, %w : f32[{rows},{columns}]
  return %y
}}
"
            ),
            Shape::Attention { heads, tokens, depth } => {
                let scores = format!("f32[{heads},{tokens},{tokens}]");
                let values = format!("f32[{heads},{tokens},{depth}]");
                format!(
                    "const @scale : f32[] = [{}]
graph @main(%q: {values}, %k: {values}, %v: {values}) -> (y: {values}) {{
  %scale = const @scale
  %0 = transpose %k {{perm=[0,2,1]}} : f32[{heads},{depth},{tokens}]
  %1 = matmul %q, %0 : {scores}
  %2 = mul %1, %scale : {scores}
  %3 = softmax %2 {{axes=[2]}} : {scores}
  %y = matmul %3, %v : {values}
  return %y
}}
",
                    1.0 / (depth as f64).sqrt()
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_a_model_of_its_own() {
        let mut names = std::collections::BTreeSet::new();
        for (name, shape) in KNOWN.iter().chain(OTHERS) {
            compiler::text::parse_module(&shape.model()).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(names.insert(name), "{name} twice");
        }
    }
}
