//! The detector of Sandler et al. 2018 ("MobileNetV2", SSDLite), after Liu et al. 2016, "SSD: Single Shot MultiBox
//! Detector": heads of separable convolutions on feature maps of falling size, boxes relative to anchors, and
//! NonMaxSuppression, which decides how many boxes there are.
//!
//! The anchors are torchvision's for `ssdlite320`: six a cell, of scales evenly from 0.2 to 0.95 of the image.

use super::mobilenet_v2::{conv_norm, features};
use super::moments::Moments;
use super::net::{Act, Built, ConvSpec, Net};
use compiler::graph::{BuildError, ValueId};
use compiler::int::{Dim, Int};
use compiler::ops::binary::{Add, Mul, Sub};
use compiler::ops::concat::Concat;
use compiler::ops::detection::NonMaxSuppression;
use compiler::ops::gather::GatherNd;
use compiler::ops::reshape::{Reshape, Squeeze};
use compiler::ops::slice::Slice;
use compiler::ops::softmax::Softmax;
use compiler::ops::transpose::Transpose;
use compiler::ops::unary::Exp;
use compiler::tensor::Tensor;

/// Pascal VOC's classes, and the background, which is class 0.
const CLASSES: usize = 21;
/// Anchors of a cell.
const ANCHORS: usize = 6;
/// Channels of the layers that make the map of each further level, half of them in the layer between.
const EXTRAS: [usize; 4] = [512, 256, 256, 128];
/// Most boxes of a class and image.
const MOST: i64 = 25;
/// The overlap beyond which the worse of two boxes goes.
const OVERLAP: f32 = 0.55;
/// The score that a box must exceed.
const LEAST: f32 = 0.5;
/// What boxes are told in: shares of the anchor for centres, and of a logarithm for extents.
const CENTRE: f32 = 0.1;
const EXTENT: f32 = 0.2;
const EPSILON: f64 = 1e-3;

type Value = Result<ValueId, BuildError>;

/// Results: `boxes f32[found, 4]` (y, x, y, x of two corners, in shares of the image), `scores f32[found]`, and
/// `classes` and `images`, both `i64[found]`.
pub(super) fn ssdlite(net: &mut Net<'_>, x: &Act) -> Built {
    let levels = levels(net, x)?;
    let (mut classes, mut deltas, mut anchors) = (vec![], vec![], vec![]);
    for (i, level) in levels.iter().enumerate() {
        classes.push(head(net, level, "classification_head", i, (CLASSES, 2.0))?);
        deltas.push(head(net, level, "regression_head", i, (4, 1.0))?);
        anchors.extend(anchors_of(net, level, i, levels.len()));
    }
    let logits = net.node("head.classification_head", "Concat", Concat { axis: 1 }, &classes)?;
    let deltas = net.node("head.regression_head", "Concat", Concat { axis: 1 }, &deltas)?;
    let scores = net.node("", "Softmax", Softmax { axes: vec![2] }, &[logits])?;
    let scores = net.node("", "Transpose", Transpose { perm: vec![0, 2, 1] }, &[scores])?;
    let scores = net.node("", "Slice", part(1, 1, CLASSES, 1), &[scores])?;
    let boxes = decode(net, deltas, &anchors)?;
    select(net, boxes, scores)
}

/// The feature maps: a 16th and a 32nd of the image, and each further one half the one before.
fn levels(net: &mut Net<'_>, x: &Act) -> Result<Vec<Act>, BuildError> {
    let (middle, last) = features(net, x)?;
    let mut levels = vec![middle, last];
    for (i, channels) in EXTRAS.into_iter().enumerate() {
        let (path, out) = (format!("backbone.extra.{i}"), net.size.width(channels));
        let between = net.size.width(channels / 2);
        let y = conv_norm(net, &levels[i + 1], &format!("{path}.0"), ConvSpec::same(between, 1))?;
        let depthwise = ConvSpec { depthwise: true, ..ConvSpec::same(between, 3).stride(2) };
        let y = conv_norm(net, &y, &format!("{path}.1"), depthwise)?;
        levels.push(conv_norm(net, &y, &format!("{path}.2"), ConvSpec::same(out, 1))?);
    }
    Ok(levels)
}

/// A separable convolution with `columns` numbers for each anchor, of this spread: `[batch, anchors, columns]`.
fn head(net: &mut Net<'_>, x: &Act, name: &str, level: usize, (columns, gain): (usize, f64)) -> Value {
    let path = format!("head.{name}.module_list.{level}");
    let depthwise = ConvSpec { depthwise: true, ..ConvSpec::same(x.channels(), 3) };
    let y = net.conv(x, &format!("{path}.0.0"), depthwise)?;
    let y = net.batch_norm(&y, &format!("{path}.0.1"), 1.0, EPSILON)?;
    let y = net.relu6(&y, &format!("{path}.0.2"))?;
    let spec = ConvSpec { gain, ..ConvSpec::same(ANCHORS * columns, 1).biased() };
    let y = net.conv(&y, &format!("{path}.1"), spec)?;
    let y = net.node(&path, "Transpose", Transpose { perm: vec![0, 2, 3, 1] }, &[y.value])?;
    let shape = vec![Int::new(0), Int::new(-1), Int::from(columns)];
    net.node(&path, "Reshape", Reshape { shape, ..Reshape::default() }, &[y])
}

/// Centre and extent (y, x, height, width) of each anchor of a level, in shares of the image.
fn anchors_of(net: &Net<'_>, level: &Act, i: usize, levels: usize) -> Vec<[f32; 4]> {
    let shape = &net.b.ty(level.value).shape;
    let extent = |d: &Dim| d.as_const().unwrap_or(1);
    let (rows, columns) = (extent(&shape[2]), extent(&shape[3]));
    let scale = |i: usize| (0.2 + 0.75 * i as f32 / (levels - 1) as f32).min(1.0);
    let square = |s: f32| [s, s];
    let mut forms = vec![square(scale(i)), square((scale(i) * scale(i + 1)).sqrt())];
    for ratio in [2f32, 3.0] {
        let (long, short) = (scale(i) * ratio.sqrt(), scale(i) / ratio.sqrt());
        forms.extend([[short, long], [long, short]]);
    }
    let centre = |k: i64, n: i64| (k as f32 + 0.5) / n as f32;
    let cells = (0..rows).flat_map(|y| (0..columns).map(move |x| [centre(y, rows), centre(x, columns)]));
    cells.flat_map(|[y, x]| forms.iter().map(move |&[h, w]| [y, x, h, w])).collect()
}

/// Two corners of each box.
fn decode(net: &mut Net<'_>, deltas: ValueId, anchors: &[[f32; 4]]) -> Value {
    let columns = |from: usize| anchors.iter().flat_map(|a| a[from..from + 2].to_vec()).collect::<Vec<f32>>();
    let [centres, extents] = [("anchors.centres", 0), ("anchors.extents", 2)]
        .map(|(name, from)| net.tensor(name, &Tensor::from_vec(vec![anchors.len(), 2], columns(from))));
    let [centre, extent, half] = [("anchors.centre", CENTRE), ("anchors.extent", EXTENT), ("anchors.half", 0.5)]
        .map(|(name, value)| net.scalar(name, value));
    let at = net.node("decode", "Slice", part(2, 0, 2, 1), &[deltas])?;
    let at = net.node("decode", "Mul", Mul {}, &[at, centre])?;
    let at = net.node("decode", "Mul", Mul {}, &[at, extents])?;
    let at = net.node("decode", "Add", Add {}, &[at, centres])?;
    let size = net.node("decode", "Slice", part(2, 2, 4, 1), &[deltas])?;
    let size = net.node("decode", "Mul", Mul {}, &[size, extent])?;
    let size = net.node("decode", "Exp", Exp {}, &[size])?;
    let size = net.node("decode", "Mul", Mul {}, &[size, extents])?;
    let size = net.node("decode", "Mul", Mul {}, &[size, half])?;
    let low = net.node("decode", "Sub", Sub {}, &[at, size])?;
    let high = net.node("decode", "Add", Add {}, &[at, size])?;
    net.node("decode", "Concat", Concat { axis: 2 }, &[low, high])
}

/// The boxes that NonMaxSuppression leaves.
fn select(net: &mut Net<'_>, boxes: ValueId, scores: ValueId) -> Built {
    let most = net.tensor("nms.most", &Tensor::ints(&[MOST]));
    let numbers = [net.scalar("nms.overlap", OVERLAP), net.scalar("nms.least", LEAST)];
    let operands = [boxes, scores, most, numbers[0], numbers[1]];
    let kept = net.node("", "NonMaxSuppression", NonMaxSuppression::default(), &operands)?;
    let in_image = net.node("", "Slice", part(1, 0, 3, 2), &[kept])?;
    let found = net.node("", "GatherND", GatherNd::default(), &[boxes, in_image])?;
    let score = net.node("", "GatherND", GatherNd::default(), &[scores, kept])?;
    net.result("scores", score);
    let one = net.tensor("classes.first", &Tensor::ints(&[1]));
    let class = net.node("classes", "Slice", part(1, 1, 2, 1), &[kept])?;
    let class = net.node("classes", "Squeeze", Squeeze { axes: vec![1] }, &[class])?;
    let class = net.node("classes", "Add", Add {}, &[class, one])?;
    net.result("classes", class);
    let image = net.node("images", "Slice", part(1, 0, 1, 1), &[kept])?;
    let image = net.node("images", "Squeeze", Squeeze { axes: vec![1] }, &[image])?;
    net.result("images", image);
    Ok(net.act(found, Moments::uniform(4, 0.5, 0.1)))
}

/// Every `step`-th of the elements from `start` to `end` along an axis.
fn part(axis: i64, start: usize, end: usize, step: i64) -> Slice {
    let (starts, ends) = (vec![Int::from(start)], vec![Int::from(end)]);
    Slice { starts, ends, axes: vec![axis], steps: vec![step], dims: vec![] }
}
