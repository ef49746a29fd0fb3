//! Huang et al. 2016, "Densely Connected Convolutional Networks", 121 layers.

use super::net::{Act, Built, ConvSpec, Net};

const EPSILON: f64 = 1e-5;
const GROWTH: usize = 32;

pub(super) fn densenet121(net: &mut Net<'_>, x: &Act) -> Built {
    let size = net.size;
    let x = net.conv(x, "features.conv0", ConvSpec::same(size.width(64), 7).stride(2))?;
    let x = norm_relu(net, &x, "features.norm0", "features.relu0")?;
    let mut x = net.max_pool(&x, "features.pool0", 3, 2, 1, false)?;
    let blocks = [6, 12, 24, 16];
    for (i, layers) in blocks.into_iter().enumerate() {
        x = dense_block(net, x, &format!("features.denseblock{}", i + 1), size.depth(layers))?;
        if i + 1 < blocks.len() {
            let path = format!("features.transition{}", i + 1);
            let half = x.moments.channels() / 2;
            x = norm_relu(net, &x, &format!("{path}.norm"), &format!("{path}.relu"))?;
            x = net.conv(&x, &format!("{path}.conv"), ConvSpec::same(half, 1))?;
            x = net.average_pool(&x, &format!("{path}.pool"), 2)?;
        }
    }
    let x = norm_relu(net, &x, "features.norm5", "")?;
    net.head(&x, "", "classifier")
}

fn norm_relu(net: &mut Net<'_>, x: &Act, norm: &str, relu: &str) -> Built {
    let x = net.batch_norm(x, norm, 1.0, EPSILON)?;
    net.relu(&x, relu)
}

/// Each layer reads the concatenation of the block's input and all layers before it.
fn dense_block(net: &mut Net<'_>, x: Act, path: &str, layers: usize) -> Built {
    let growth = net.size.width(GROWTH);
    let mut features = vec![x];
    for j in 1..=layers {
        let layer = format!("{path}.denselayer{j}");
        let named = |what: &str| format!("{layer}.{what}");
        let mut y = match &features[..] {
            [one] => one.clone(),
            many => net.concat(&many.iter().collect::<Vec<_>>(), &layer)?,
        };
        y = norm_relu(net, &y, &named("norm1"), &named("relu1"))?;
        y = net.conv(&y, &named("conv1"), ConvSpec::same(4 * growth, 1))?;
        y = norm_relu(net, &y, &named("norm2"), &named("relu2"))?;
        features.push(net.conv(&y, &named("conv2"), ConvSpec::same(growth, 3))?);
    }
    net.concat(&features.iter().collect::<Vec<_>>(), path)
}
