//! Tan and Le 2019, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", the base model.

use super::net::{Act, Built, ConvSpec, GATE_GAIN, Net, SMOOTH_GAIN};

const EPSILON: f64 = 1e-5;
/// Spread of a block's branch, which is added to its input.
const BRANCH_GAIN: f64 = 0.7;

pub(super) fn efficientnet_b0(net: &mut Net<'_>, x: &Act) -> Built {
    // Expansion, kernel, stride of the first block, channels, blocks.
    let stages = [
        (1, 3, 1, 16, 1),
        (6, 3, 2, 24, 2),
        (6, 5, 2, 40, 2),
        (6, 3, 2, 80, 3),
        (6, 5, 1, 112, 3),
        (6, 5, 2, 192, 4),
        (6, 3, 1, 320, 1),
    ];
    let size = net.size;
    let mut x = conv_norm(net, x, "features.0", ConvSpec::same(size.width(32), 3).stride(2))?;
    for (i, (expand, kernel, first_stride, out, blocks)) in stages.into_iter().enumerate() {
        for j in 0..size.depth(blocks) {
            let stride = if j == 0 { first_stride } else { 1 };
            x = mb_conv(net, &x, &format!("features.{}.{j}", i + 1), (expand, kernel, stride, size.width(out)))?;
        }
    }
    let x = conv_norm(net, &x, "features.8", ConvSpec::same(size.width(1280), 1))?;
    net.head(&x, "avgpool", "classifier.1")
}

fn conv_norm(net: &mut Net<'_>, x: &Act, path: &str, spec: ConvSpec) -> Built {
    let x = net.conv(x, &format!("{path}.0"), spec)?;
    let x = net.batch_norm(&x, &format!("{path}.1"), SMOOTH_GAIN, EPSILON)?;
    net.silu(&x, &format!("{path}.2"))
}

fn mb_conv(
    net: &mut Net<'_>,
    x: &Act,
    path: &str,
    (expand, kernel, stride, out): (usize, usize, usize, usize),
) -> Built {
    let channels = x.moments.channels();
    let hidden = channels * expand;
    let mut layers = (0..).map(|i| format!("{path}.block.{i}"));
    let mut next = || layers.next().unwrap_or_default();
    let mut y = x.clone();
    if expand != 1 {
        y = conv_norm(net, &y, &next(), ConvSpec::same(hidden, 1))?;
    }
    let depthwise = ConvSpec { depthwise: true, ..ConvSpec::same(hidden, kernel).stride(stride) };
    y = conv_norm(net, &y, &next(), depthwise)?;
    y = squeeze_excite(net, &y, &next(), (channels / 4).max(1))?;
    let (project, adds) = (next(), stride == 1 && channels == out);
    y = net.conv(&y, &format!("{project}.0"), ConvSpec::same(out, 1))?;
    y = net.batch_norm(&y, &format!("{project}.1"), if adds { BRANCH_GAIN } else { 1.0 }, EPSILON)?;
    if adds { net.add(&y, x, path) } else { Ok(y) }
}

/// Channels weighted by a sigmoid of what they hold on average.
fn squeeze_excite(net: &mut Net<'_>, x: &Act, path: &str, squeezed: usize) -> Built {
    let channels = x.moments.channels();
    let pooled = net.global_average_pool(x, &format!("{path}.avgpool"))?;
    let s = net.conv(&pooled, &format!("{path}.fc1"), ConvSpec::same(squeezed, 1).biased())?;
    let s = net.silu(&s, &format!("{path}.activation"))?;
    let s =
        net.conv(&s, &format!("{path}.fc2"), ConvSpec { gain: GATE_GAIN, ..ConvSpec::same(channels, 1).biased() })?;
    let s = net.sigmoid(&s, &format!("{path}.scale_activation"))?;
    net.mul(&s, x, path)
}
