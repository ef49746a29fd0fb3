//! Sandler et al. 2018, "MobileNetV2: Inverted Residuals and Linear Bottlenecks".

use super::net::{Act, Built, ConvSpec, Net, branch_gain};
use compiler::graph::BuildError;

const EPSILON: f64 = 1e-5;
/// Blocks whose input is added to their result.
const RESIDUAL_BLOCKS: usize = 10;

pub(super) fn mobilenet_v2(net: &mut Net<'_>, x: &Act) -> Built {
    let (_, x) = features(net, x)?;
    net.head(&x, "", "classifier.1")
}

/// What the last layers of 96 and of 1280 channels give: at a 16th and a 32nd of the image's extents.
pub(super) fn features(net: &mut Net<'_>, x: &Act) -> Result<(Act, Act), BuildError> {
    // Expansion, channels, blocks, stride of the first one.
    let stages =
        [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)];
    let size = net.size;
    let mut channels = size.width(32);
    let mut x = conv_norm(net, x, "features.0", ConvSpec::same(channels, 3).stride(2))?;
    let mut index = 1;
    let mut middle = x.clone();
    for (expand, out, blocks, first_stride) in stages {
        let out = size.width(out);
        for j in 0..size.depth(blocks) {
            let stride = if j == 0 { first_stride } else { 1 };
            x = block(net, &x, &format!("features.{index}"), (channels, expand, out, stride))?;
            channels = out;
            index += 1;
        }
        if out == size.width(96) {
            middle = x.clone();
        }
    }
    Ok((middle, conv_norm(net, &x, "features.18", ConvSpec::same(size.width(1280), 1))?))
}

/// Convolution, batch norm, ReLU6.
pub(super) fn conv_norm(net: &mut Net<'_>, x: &Act, path: &str, spec: ConvSpec) -> Built {
    let x = net.conv(x, &format!("{path}.0"), spec)?;
    let x = net.batch_norm(&x, &format!("{path}.1"), 1.0, EPSILON)?;
    net.relu6(&x, &format!("{path}.2"))
}

fn block(
    net: &mut Net<'_>,
    x: &Act,
    path: &str,
    (channels, expand, out, stride): (usize, usize, usize, usize),
) -> Built {
    let hidden = channels * expand;
    let mut y = x.clone();
    let mut layer = 0;
    if expand != 1 {
        y = conv_norm(net, &y, &format!("{path}.conv.{layer}"), ConvSpec::same(hidden, 1))?;
        layer += 1;
    }
    let depthwise = ConvSpec { depthwise: true, ..ConvSpec::same(hidden, 3).stride(stride) };
    y = conv_norm(net, &y, &format!("{path}.conv.{layer}"), depthwise)?;
    y = net.conv(&y, &format!("{path}.conv.{}", layer + 1), ConvSpec::same(out, 1))?;
    let residual = stride == 1 && channels == out;
    let gain = if residual { branch_gain(RESIDUAL_BLOCKS) } else { 1.0 };
    y = net.batch_norm(&y, &format!("{path}.conv.{}", layer + 2), gain, EPSILON)?;
    if residual { net.add(x, &y, path) } else { Ok(y) }
}
