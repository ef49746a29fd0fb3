//! Simonyan and Zisserman 2014, "Very Deep Convolutional Networks for Large-Scale Image Recognition", configuration D.

use super::net::{Act, Built, ConvSpec, LOGIT_SPREAD, Net};

/// Sixteen layers without a shortcut or a norm: filters centered in full magnify rounding dozens of times.
const CENTERED: f64 = 0.5;

pub(super) fn vgg16(net: &mut Net<'_>, x: &Act) -> Built {
    let size = net.size;
    let mut x = x.clone();
    let mut index = 0;
    for (convs, width) in [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)] {
        let width = size.width(width);
        for _ in 0..size.depth(convs) {
            x = net.conv(
                &x,
                &format!("features.{index}"),
                ConvSpec { centered: CENTERED, ..ConvSpec::same(width, 3).biased() },
            )?;
            x = net.relu(&x, &format!("features.{}", index + 1))?;
            index += 2;
        }
        x = net.max_pool(&x, &format!("features.{index}"), 2, 2, 0, false)?;
        index += 1;
    }
    // The adaptive pool to 7x7 changes nothing at the size that the network is made for; at others the dense layers
    // have what is there.
    let x = net.flatten(&x, "")?;
    let features = net.b.ty(x.value).shape[1].as_const().map_or(0, |n| n as usize);
    let dense = size.width(4096);
    let x = net.linear(&x, "classifier.0", features, dense, 1.0)?;
    let x = net.relu(&x, "classifier.1")?;
    let x = net.linear(&x, "classifier.3", dense, dense, 1.0)?;
    let x = net.relu(&x, "classifier.4")?;
    net.linear(&x, "classifier.6", dense, 1000, LOGIT_SPREAD)
}
