//! `CenterCropPad`, `MaxUnpool` and `MeanVarianceNormalization`, composed of other ops on import.

use super::OpResult;
use super::binary::{Add, Div, Mul, Sub};
use super::generate::Full;
use super::pad::Pad;
use super::permute::normalize_axes;
use super::reduce::{Reduce, ReduceKind};
use super::scatter::{Reduction, ScatterElements};
use super::slice::Slice;
use super::unary::{Identity, Sqrt};
use crate::fault::Fault;
use crate::graph::ValueId;
use crate::int::{Int, const_dims};
use crate::ops::onnx::{ImportContext, OnnxImport};

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "CenterCropPad", domain: "", since: 18, import: import_center },
    OnnxImport { op_type: "MaxUnpool", domain: "", since: 9, import: import_unpool },
    OnnxImport { op_type: "MeanVarianceNormalization", domain: "", since: 9, import: import_mean_variance },
];

/// The middle of each axis, or zeros around it.
fn import_center(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (mut x, shape) = (cx.input(0)?, cx.ty(0)?.shape);
    let sizes =
        const_dims(&shape).ok_or_else(|| Fault::unsupported("the data's shape is not known at compile time"))?;
    let wanted = cx.const_ints(1).ok_or_else(|| Fault::unsupported("the shape is not known at compile time"))?;
    let axes = match cx.attrs.ints("axes") {
        Some(axes) => normalize_axes(axes, shape.len())?,
        None => (0..shape.len()).collect(),
    };
    if axes.len() != wanted.len() || wanted.iter().any(|&w| w < 0) {
        return Err(format!("shape {wanted:?} for the axes {axes:?}").into());
    }
    let mut pads = vec![Int::new(0); 2 * shape.len()];
    let mut crop = Slice::default();
    for (&a, &want) in axes.iter().zip(&wanted) {
        let have = sizes[a] as i64;
        if want < have {
            let start = (have - want) / 2;
            crop.axes.push(a as i64);
            crop.starts.push(Int::new(start));
            crop.ends.push(Int::new(start + want));
        } else {
            let start = (want - have) / 2;
            pads[a] = Int::new(start);
            pads[a + shape.len()] = Int::new(want - have - start);
        }
    }
    if !crop.axes.is_empty() {
        x = cx.add(crop, &[x])?;
    }
    let out = match pads.iter().any(|p| !p.is(0)) {
        true => cx.add(Pad { pads, ..Pad::default() }, &[x])?,
        false => cx.add(Identity {}, &[x])?,
    };
    Ok(vec![out])
}

/// Elements back at their places (operand 1: positions in the whole flattened result of the pooled tensor's own size),
/// zeros elsewhere; operand 2 may ask for a larger result.
fn import_unpool(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (x, indices, ty) = (cx.input(0)?, cx.input(1)?, cx.ty(0)?);
    let sizes =
        const_dims(&ty.shape).ok_or_else(|| Fault::unsupported("the data's shape is not known at compile time"))?;
    let kernel = cx.attrs.ints("kernel_shape").ok_or("attribute kernel_shape is missing")?.to_vec();
    let axes = kernel.len();
    if sizes.len() != axes + 2 {
        return Err(format!("windows of {kernel:?} for data of shape {sizes:?}").into());
    }
    let list = |name: &str, n: usize, default: i64| match cx.attrs.ints(name) {
        None => Ok(vec![default; n]),
        Some(v) if v.len() == n => Ok(v.to_vec()),
        Some(v) => Err(Fault::from(format!("{name} {v:?} needs {n} numbers"))),
    };
    let (strides, pads) = (list("strides", axes, 1)?, list("pads", 2 * axes, 0)?);
    let spatial = (0..axes).map(|a| (sizes[a + 2] as i64 - 1) * strides[a] - pads[a] - pads[a + axes] + kernel[a]);
    let whole: Vec<i64> = [sizes[0] as i64, sizes[1] as i64].into_iter().chain(spatial).collect();
    let count = whole.iter().try_fold(1i64, |n, &d| if d > 0 { n.checked_mul(d) } else { None });
    let count = count.ok_or_else(|| format!("the result has the shape {whole:?}"))?;
    let zeros = Full { shape: vec![Int::new(count)], value: 0.0, dtype: ty.dtype, dims: vec![] };
    let zeros = cx.add(zeros, &[])?;
    let (flat, places) = (cx.reshape(x, vec![Int::new(-1)])?, cx.reshape(indices, vec![Int::new(-1)])?);
    let put = ScatterElements { axis: 0, reduction: Reduction::None };
    let out = cx.add(put, &[zeros, places, flat])?;
    let out = cx.reshape(out, whole.iter().map(|&d| Int::new(d)).collect())?;
    if cx.opt(2).is_none() {
        return Ok(vec![out]);
    }
    let wanted =
        cx.const_ints(2).ok_or_else(|| Fault::unsupported("the result's shape is not known at compile time"))?;
    if wanted.len() != whole.len() || wanted.iter().zip(&whole).any(|(w, h)| w < h) {
        return Err(format!("a result of shape {wanted:?} for {whole:?}").into());
    }
    let mut pads = vec![Int::new(0); 2 * whole.len()];
    for (a, (w, h)) in wanted.iter().zip(&whole).enumerate() {
        pads[a + whole.len()] = Int::new(w - h);
    }
    Ok(vec![cx.add(Pad { pads, ..Pad::default() }, &[out])?])
}

/// `(x - mean) / (deviation + 1e-9)` over `axes`.
fn import_mean_variance(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (x, ty) = (cx.input(0)?, cx.ty(0)?);
    let mut axes = normalize_axes(cx.attrs.ints("axes").unwrap_or(&[0, 2, 3]), ty.rank())?;
    axes.sort_unstable();
    let mean = Reduce { kind: ReduceKind::Mean, axes, keepdims: true };
    let middle = cx.add(mean.clone(), &[x])?;
    let off = cx.add(Sub {}, &[x, middle])?;
    let square = cx.add(Mul {}, &[off, off])?;
    let variance = cx.add(mean, &[square])?;
    let deviation = cx.add(Sqrt {}, &[variance])?;
    let tiny = cx.number(1e-9, ty.dtype);
    let deviation = cx.add(Add {}, &[deviation, tiny])?;
    Ok(vec![cx.add(Div {}, &[off, deviation])?])
}

#[cfg(test)]
mod tests {
    use crate::ops::onnx::OnnxAttr;
    use crate::ops::testing::{random, run_onnx};
    use crate::tensor::Tensor;

    #[test]
    fn the_middle_stays_and_zeros_surround_it() {
        let x = Tensor::from_vec(vec![1, 5], vec![1i32, 2, 3, 4, 5]);
        let got = run_onnx(("CenterCropPad", 18), &[], &[Some(&x), Some(&Tensor::ints(&[2, 2]))], 1).unwrap();
        assert_eq!((got[0].shape(), got[0].to_i64_vec()), (&[2, 2][..], vec![2, 3, 0, 0]));
    }

    #[test]
    fn unpooling_puts_the_maxima_back() {
        let x = random(&[1, 1, 4, 4], 1);
        let window = [("kernel_shape", OnnxAttr::Ints(vec![2, 2])), ("strides", OnnxAttr::Ints(vec![2, 2]))];
        let pooled = run_onnx(("MaxPool", 12), &window, &[Some(&x)], 2).unwrap();
        let back = run_onnx(("MaxUnpool", 11), &window, &[Some(&pooled[0]), Some(&pooled[1])], 1).unwrap();
        assert_eq!(back[0].shape(), x.shape());
        let kept = back[0].to_f64_vec().iter().zip(x.to_f64_vec()).filter(|(b, x)| **b == *x).count();
        assert_eq!(kept, 4);
    }
}
