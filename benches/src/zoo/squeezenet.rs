//! Iandola et al. 2016, "SqueezeNet", version 1.1.

use super::net::{Act, Built, ConvSpec, LOGIT_SPREAD, Net};
use super::weights::Fill;
use compiler::ops::conv::Conv;

pub(super) fn squeezenet1_1(net: &mut Net<'_>, x: &Act) -> Built {
    let size = net.size;
    let x = net.conv(x, "features.0", ConvSpec { pad: 0, ..ConvSpec::same(size.width(64), 3).stride(2).biased() })?;
    let mut x = net.relu(&x, "features.1")?;
    // Squeezed and expanded channels; none for a pool.
    let layers = [
        None,
        Some((16, 64)),
        Some((16, 64)),
        None,
        Some((32, 128)),
        Some((32, 128)),
        None,
        Some((48, 192)),
        Some((48, 192)),
        Some((64, 256)),
        Some((64, 256)),
    ];
    for (i, layer) in layers.into_iter().enumerate() {
        let path = format!("features.{}", i + 2);
        x = match layer {
            None => net.max_pool(&x, &path, 3, 2, 0, true)?,
            Some((squeeze, expand)) => fire(net, &x, &path, size.width(squeeze), size.width(expand))?,
        };
    }
    let x = classify(net, &x)?;
    let x = net.relu(&x, "classifier.2")?;
    let x = net.global_average_pool(&x, "classifier.3")?;
    net.flatten(&x, "")
}

fn fire(net: &mut Net<'_>, x: &Act, path: &str, squeeze: usize, expand: usize) -> Built {
    let s = net.conv(x, &format!("{path}.squeeze"), ConvSpec::same(squeeze, 1).biased())?;
    let s = net.relu(&s, &format!("{path}.squeeze_activation"))?;
    let mut expanded = |kernel: usize| {
        let layer = format!("{path}.expand{kernel}x{kernel}");
        let e = net.conv(&s, &layer, ConvSpec::same(expand, kernel).biased())?;
        net.relu(&e, &format!("{layer}_activation"))
    };
    let (e1, e3) = (expanded(1)?, expanded(3)?);
    net.concat(&[&e1, &e3], path)
}

/// The last convolution gives the logits before the mean over positions. Its filters are not centered: what all
/// positions share must differ between the classes.
fn classify(net: &mut Net<'_>, x: &Act) -> Built {
    let channels = x.moments.channels();
    let std = LOGIT_SPREAD / (channels as f64 * x.moments.square()).sqrt();
    let weight = net.param("classifier.1.weight", &[1000, channels, 1, 1], Fill::Normal { std }).0;
    let bias = net.bias("classifier.1", 1000);
    let value = net.node("classifier.1", "Conv", Conv::default(), &[x.value, weight, bias])?;
    Ok(net.act(value, super::moments::Moments::uniform(1000, 0.0, LOGIT_SPREAD * LOGIT_SPREAD)))
}
