//! Howard et al. 2019, "Searching for MobileNetV3", the small variant.

use super::make_divisible;
use super::net::{Act, Built, ConvSpec, GATE_GAIN, LOGIT_SPREAD, Net, SMOOTH_GAIN};

const EPSILON: f64 = 1e-3;

struct Block {
    kernel: usize,
    hidden: usize,
    out: usize,
    squeeze: bool,
    hard_swish: bool,
    stride: usize,
}

pub(super) fn mobilenet_v3_small(net: &mut Net<'_>, x: &Act) -> Built {
    let size = net.size;
    let block = |kernel, hidden, out, squeeze, hard_swish, stride| {
        let (hidden, out) = (size.width(hidden), size.width(out));
        Block { kernel, hidden, out, squeeze, hard_swish, stride }
    };
    let blocks = [
        block(3, 16, 16, true, false, 2),
        block(3, 72, 24, false, false, 2),
        block(3, 88, 24, false, false, 1),
        block(5, 96, 40, true, true, 2),
        block(5, 240, 40, true, true, 1),
        block(5, 240, 40, true, true, 1),
        block(5, 120, 48, true, true, 1),
        block(5, 144, 48, true, true, 1),
        block(5, 288, 96, true, true, 2),
        block(5, 576, 96, true, true, 1),
        block(5, 576, 96, true, true, 1),
    ];
    let mut x = conv_norm(net, x, "features.0", ConvSpec::same(size.width(16), 3).stride(2), true)?;
    for (i, b) in blocks.iter().enumerate() {
        x = inverted_residual(net, &x, &format!("features.{}", i + 1), b)?;
    }
    let x = conv_norm(net, &x, "features.12", ConvSpec::same(size.width(576), 1), true)?;
    let x = net.global_average_pool(&x, "avgpool")?;
    let x = net.flatten(&x, "")?;
    let x = net.linear(&x, "classifier.0", size.width(576), size.width(1024), SMOOTH_GAIN)?;
    let x = net.hard_swish(&x, "classifier.1")?;
    net.linear(&x, "classifier.3", size.width(1024), 1000, LOGIT_SPREAD)
}

fn activate(net: &mut Net<'_>, x: &Act, path: &str, hard_swish: bool) -> Built {
    if hard_swish { net.hard_swish(x, path) } else { net.relu(x, path) }
}

fn conv_norm(net: &mut Net<'_>, x: &Act, path: &str, spec: ConvSpec, hard_swish: bool) -> Built {
    let x = net.conv(x, &format!("{path}.0"), spec)?;
    let x = net.batch_norm(&x, &format!("{path}.1"), if hard_swish { SMOOTH_GAIN } else { 1.0 }, EPSILON)?;
    activate(net, &x, &format!("{path}.2"), hard_swish)
}

fn inverted_residual(net: &mut Net<'_>, x: &Act, path: &str, b: &Block) -> Built {
    let channels = x.moments.channels();
    let mut layers = (0..).map(|i| format!("{path}.block.{i}"));
    let mut next = || layers.next().unwrap_or_default();
    let mut y = x.clone();
    if b.hidden != channels {
        y = conv_norm(net, &y, &next(), ConvSpec::same(b.hidden, 1), b.hard_swish)?;
    }
    let depthwise = ConvSpec { depthwise: true, ..ConvSpec::same(b.hidden, b.kernel).stride(b.stride) };
    y = conv_norm(net, &y, &next(), depthwise, b.hard_swish)?;
    if b.squeeze {
        y = squeeze_excite(net, &y, &next())?;
    }
    let project = next();
    y = net.conv(&y, &format!("{project}.0"), ConvSpec::same(b.out, 1))?;
    y = net.batch_norm(&y, &format!("{project}.1"), 1.0, EPSILON)?;
    if b.stride == 1 && channels == b.out { net.add(&y, x, path) } else { Ok(y) }
}

/// Channels weighted by a hard sigmoid of what they hold on average.
fn squeeze_excite(net: &mut Net<'_>, x: &Act, path: &str) -> Built {
    let channels = x.moments.channels();
    let pooled = net.global_average_pool(x, &format!("{path}.avgpool"))?;
    let squeezed = make_divisible((channels / 4) as f64);
    let s = net.conv(&pooled, &format!("{path}.fc1"), ConvSpec::same(squeezed, 1).biased())?;
    let s = net.relu(&s, &format!("{path}.activation"))?;
    let s =
        net.conv(&s, &format!("{path}.fc2"), ConvSpec { gain: GATE_GAIN, ..ConvSpec::same(channels, 1).biased() })?;
    let s = net.hard_sigmoid(&s, &format!("{path}.scale_activation"))?;
    net.mul(&s, x, path)
}
