//! Ronneberger et al. 2015, "U-Net: Convolutional Networks for Biomedical Image Segmentation", with padded
//! convolutions, so that the output is as large as the input.

use super::moments::Moments;
use super::net::{Act, Built, ConvSpec, Net};
use super::weights::Fill;
use compiler::ops::conv_transpose::ConvTranspose;

const WIDTHS: [usize; 5] = [64, 128, 256, 512, 1024];
const CLASSES: usize = 2;

pub(super) fn unet(net: &mut Net<'_>, x: &Act) -> Built {
    let widths = WIDTHS.map(|w| net.size.width(w));
    let mut skips = Vec::new();
    let mut x = x.clone();
    for (i, width) in widths.into_iter().enumerate() {
        if i > 0 {
            x = net.max_pool(&x, &format!("down{i}.pool"), 2, 2, 0, false)?;
        }
        x = double_conv(net, &x, &format!("encoder{}", i + 1), width)?;
        skips.push(x.clone());
    }
    skips.pop();
    for (i, skip) in skips.iter().enumerate().rev() {
        let up = up_conv(net, &x, &format!("up{}", i + 1), widths[i])?;
        x = net.concat(&[skip, &up], &format!("decoder{}", i + 1))?;
        x = double_conv(net, &x, &format!("decoder{}", i + 1), widths[i])?;
    }
    net.conv(&x, "head", ConvSpec::same(CLASSES, 1).biased())
}

fn double_conv(net: &mut Net<'_>, x: &Act, path: &str, width: usize) -> Built {
    let mut x = x.clone();
    for n in 1..=2 {
        x = net.conv(&x, &format!("{path}.conv{n}"), ConvSpec::same(width, 3).biased())?;
        x = net.relu(&x, &format!("{path}.relu{n}"))?;
    }
    Ok(x)
}

/// Twice the size, half the channels.
fn up_conv(net: &mut Net<'_>, x: &Act, path: &str, out: usize) -> Built {
    let channels = x.moments.channels();
    let std = 1.0 / (channels as f64 * x.moments.square()).sqrt();
    let weight = net.param(&format!("{path}.weight"), &[channels, out, 2, 2], Fill::Normal { std }).0;
    let bias = net.bias(path, out);
    let op = ConvTranspose { strides: vec![2, 2], ..ConvTranspose::default() };
    let value = net.node(path, "ConvTranspose", op, &[x.value, weight, bias])?;
    Ok(net.act(value, Moments::uniform(out, 0.0, 1.0)))
}
