use super::*;
use crate::ops::conv::Conv;
use crate::ops::testing::{assert_close, random, run, transposed};
use crate::tensor::Tensor;

fn dot(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.shape(), b.shape());
    a.to_f64_vec().iter().zip(b.to_f64_vec()).map(|(a, b)| a * b).sum()
}

#[test]
fn is_the_adjoint_of_the_convolution() {
    // <conv(x, w), y> = <x, conv_transpose(y, w)>: strides, dilations, pads, group, data, weights, output padding.
    type Case = (&'static [i64], &'static [i64], &'static [i64], i64, [usize; 4], [usize; 4], &'static [i64]);
    let cases: &[Case] = &[
        (&[], &[], &[], 1, [1, 3, 5, 6], [4, 3, 3, 3], &[]),
        (&[2, 2], &[], &[1, 1, 1, 1], 1, [2, 3, 7, 7], [4, 3, 3, 3], &[]),
        (&[2, 3], &[], &[0, 1, 1, 0], 1, [1, 2, 8, 9], [3, 2, 2, 3], &[1, 1]),
        (&[2, 1], &[2, 3], &[1, 2, 0, 3], 2, [1, 4, 9, 8], [6, 2, 3, 2], &[1, 0]),
        (&[2, 2], &[], &[1, 1, 1, 1], 4, [1, 4, 7, 7], [4, 1, 3, 3], &[]),
    ];
    for (i, &(strides, dilations, pads, group, xs, ws, extra)) in cases.iter().enumerate() {
        let conv = Conv {
            strides: strides.to_vec(),
            dilations: dilations.to_vec(),
            pads: pads.to_vec(),
            group,
            ..Conv::default()
        };
        let op = ConvTranspose {
            strides: strides.to_vec(),
            dilations: dilations.to_vec(),
            pads: pads.to_vec(),
            group,
            output_padding: extra.to_vec(),
            ..ConvTranspose::default()
        };
        let (x, w) = (random(&xs, 1), random(&ws, 2));
        let y = run(conv, &[&x, &w]);
        let z = random(y.shape(), 3);
        let back = run(op.clone(), &[&z, &w]);
        assert_eq!(back.shape(), xs, "case {i}");
        let (a, b) = (dot(&y, &z), dot(&x, &back));
        assert!((a - b).abs() < 1e-4 * (1.0 + a.abs()), "case {i}: {a} {b}");

        let nhwc = ConvTranspose { layout: DataLayout::Nhwc, ..op };
        let got = run(nhwc, &[&transposed(&z, &[0, 2, 3, 1]), &w]);
        assert_close(&got, &transposed(&back, &[0, 2, 3, 1]), 1e-6);
    }
}

#[test]
fn sizes_follow_from_the_wanted_shape_and_from_automatic_padding() {
    let (x, w) = (random(&[1, 1, 3, 3], 1), random(&[1, 2, 3, 3], 2));
    let strides = vec![3, 2];
    let wide = ConvTranspose { strides: strides.clone(), output_shape: vec![10, 8], ..ConvTranspose::default() };
    assert_eq!(run(wide, &[&x, &w]).shape(), [1, 2, 10, 8]);
    let same = ConvTranspose { strides, auto_pad: AutoPad::SameUpper, ..ConvTranspose::default() };
    assert_eq!(run(same, &[&x, &w]).shape(), [1, 2, 9, 6]);
}

#[test]
fn bias_is_added_along_the_result_channels() {
    let (x, w, b) = (random(&[1, 2, 3], 1), random(&[2, 3, 2], 2), random(&[3], 3));
    let without = run(ConvTranspose::default(), &[&x, &w]).to_f64_vec();
    let with = run(ConvTranspose::default(), &[&x, &w, &b]);
    let b = b.to_f64_vec();
    let want: Vec<f64> = without.iter().enumerate().map(|(i, v)| v + b[i / 4]).collect();
    assert_close(&with, &Tensor::from_f64(with.dtype(), vec![1, 3, 4], want), 1e-6);
}
