//! He et al. 2015, "Deep Residual Learning for Image Recognition"; bottlenecks with the stride in the 3x3 convolution
//! (v1.5).

use super::net::{Act, Built, ConvSpec, Net, branch_gain};

const EPSILON: f64 = 1e-5;

pub(super) fn resnet18(net: &mut Net<'_>, x: &Act) -> Built {
    resnet(net, x, [2, 2, 2, 2], false)
}
pub(super) fn resnet50(net: &mut Net<'_>, x: &Act) -> Built {
    resnet(net, x, [3, 4, 6, 3], true)
}
pub(super) fn resnet101(net: &mut Net<'_>, x: &Act) -> Built {
    resnet(net, x, [3, 4, 23, 3], true)
}

fn resnet(net: &mut Net<'_>, x: &Act, layers: [usize; 4], bottleneck: bool) -> Built {
    let size = net.size;
    let layers = layers.map(|n| size.depth(n));
    let x = net.conv(x, "conv1", ConvSpec { pad: 3, ..ConvSpec::same(size.width(64), 7).stride(2) })?;
    let x = net.batch_norm(&x, "bn1", 1.0, EPSILON)?;
    let x = net.relu(&x, "relu")?;
    let mut x = net.max_pool(&x, "maxpool", 3, 2, 1, false)?;
    let gain = branch_gain(layers.iter().sum());
    for (i, blocks) in layers.into_iter().enumerate() {
        let width = size.width(64 << i);
        for j in 0..blocks {
            let path = format!("layer{}.{j}", i + 1);
            let stride = if i > 0 && j == 0 { 2 } else { 1 };
            // The first block changes the number of channels or the size.
            let project = j == 0 && (i > 0 || bottleneck);
            x = block(net, &x, &path, Shape { width, stride, bottleneck, project, gain })?;
        }
    }
    net.head(&x, "avgpool", "fc")
}

/// Form of a block.
struct Shape {
    width: usize,
    stride: usize,
    bottleneck: bool,
    /// With a convolution in the shortcut.
    project: bool,
    /// Spread of the block's branch.
    gain: f64,
}

/// `relu(branch(x) + shortcut(x))`.
fn block(net: &mut Net<'_>, x: &Act, path: &str, shape: Shape) -> Built {
    let Shape { width, stride, bottleneck, project, gain } = shape;
    let relu = format!("{path}.relu");
    let convs: &[(usize, usize, usize)] = match bottleneck {
        true => &[(width, 1, 1), (width, 3, stride), (4 * width, 1, 1)],
        false => &[(width, 3, stride), (width, 3, 1)],
    };
    let mut y = x.clone();
    for (n, &(out, kernel, stride)) in convs.iter().enumerate() {
        let last = n + 1 == convs.len();
        y = net.conv(&y, &format!("{path}.conv{}", n + 1), ConvSpec::same(out, kernel).stride(stride))?;
        y = net.batch_norm(&y, &format!("{path}.bn{}", n + 1), if last { gain } else { 1.0 }, EPSILON)?;
        if !last {
            y = net.relu(&y, &relu)?;
        }
    }
    let shortcut = if project {
        let out = convs[convs.len() - 1].0;
        let s = net.conv(x, &format!("{path}.downsample.0"), ConvSpec::same(out, 1).stride(stride))?;
        net.batch_norm(&s, &format!("{path}.downsample.1"), 1.0, EPSILON)?
    } else {
        x.clone()
    };
    let sum = net.add(&y, &shortcut, path)?;
    net.relu(&sum, &relu)
}
