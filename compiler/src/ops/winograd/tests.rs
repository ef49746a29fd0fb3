use super::*;
use crate::ops::conv::Conv;
use crate::ops::matmul::MatMul;
use crate::ops::testing::{random, run, transposed};

/// The convolution by its transforms.
fn by_tiles(x: &Tensor, w: &Tensor, tile: i64, pads: &[i64], layout: DataLayout, bias: Option<&Tensor>) -> Tensor {
    let v = run(WinogradInput { tile, pads: pads.to_vec(), layout }, &[x]);
    let u = run(WinogradWeights { tile, layout }, &[w]);
    let m = if layout == DataLayout::Nhwc { run(MatMul {}, &[&v, &u]) } else { run(MatMul {}, &[&u, &v]) };
    let spatial = layout.spatial(&x.shape().iter().map(|&d| Int::from(d)).collect::<Vec<_>>()).to_vec();
    let size = |d: usize| spatial[d].as_const().expect("constant") + pads[d] + pads[d + 2] - 2;
    let op = WinogradOutput { tile, height: size(0).into(), width: size(1).into(), layout };
    run(op, &[&m].into_iter().chain(bias).collect::<Vec<_>>())
}

/// Largest difference, and the root mean square of `want`.
fn error(got: &Tensor, want: &Tensor) -> f64 {
    assert_eq!(got.shape(), want.shape());
    let (got, want) = (got.to_f64_vec(), want.to_f64_vec());
    let square = want.iter().map(|v| v * v).sum::<f64>() / want.len() as f64;
    got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / square.sqrt()
}

#[test]
fn transforms_are_the_convolution() {
    let cases: [([usize; 4], [i64; 4]); 7] = [
        ([1, 3, 8, 8], [1, 1, 1, 1]),
        ([2, 5, 7, 9], [1, 1, 1, 1]),
        ([1, 4, 6, 5], [0, 0, 0, 0]),
        ([3, 2, 3, 4], [2, 0, 1, 1]),
        ([1, 1, 1, 1], [1, 1, 1, 1]),
        ([2, 3, 14, 11], [0, 1, 2, 0]),
        // Rows of 49 tiles get three zeros.
        ([1, 2, 14, 14], [1, 1, 1, 1]),
    ];
    for (n, (shape, pads)) in cases.into_iter().enumerate() {
        let (x, w, b) = (random(&shape, 1), random(&[6, shape[1], 3, 3], 2), random(&[6], 3));
        let conv = Conv { pads: pads.to_vec(), ..Conv::default() };
        let want = run(conv, &[&x, &w, &b]);
        for tile in [2, 4] {
            let got = by_tiles(&x, &w, tile, &pads, DataLayout::Nchw, Some(&b));
            assert!(error(&got, &want) < 1e-5, "case {n}, tile {tile}: {}", error(&got, &want));
            let last = transposed(&x, &[0, 2, 3, 1]);
            let got = by_tiles(&last, &w, tile, &pads, DataLayout::Nhwc, Some(&b));
            let got = transposed(&got, &[0, 3, 1, 2]);
            assert!(error(&got, &want) < 1e-5, "case {n}, tile {tile}: {}", error(&got, &want));
        }
    }
}

#[test]
fn errors_are_as_stated() {
    // Sums of twelve uniform numbers are near enough to normal ones.
    let normal = |shape: &[usize], seed: u64| {
        let parts: Vec<Vec<f64>> = (0..12).map(|i| random(shape, seed * 100 + i).to_f64_vec()).collect();
        let sum = |i: usize| parts.iter().map(|p| p[i]).sum::<f64>() / 2.0;
        Tensor::from_f64(DType::F32, shape.to_vec(), (0..parts[0].len()).map(sum))
    };
    let (x, w) = (normal(&[1, 256, 8, 8], 1), normal(&[4, 256, 3, 3], 2));
    let wide = |t: &Tensor| Tensor::from_f64(DType::F64, t.shape().to_vec(), t.to_f64_vec());
    let conv = || Conv { pads: vec![1; 4], ..Conv::default() };
    let exact = run(conv(), &[&wide(&x), &wide(&w)]);
    let single = error(&run(conv(), &[&x, &w]), &exact);
    let of = |tile| error(&by_tiles(&x, &w, tile, &[1; 4], DataLayout::Nchw, None), &exact);
    let (two, four) = (of(2), of(4));
    assert!(single < 2e-6 && two < 4e-6 && four < 2e-5, "{single:e} {two:e} {four:e}");
    assert!(four > two, "{single:e} {two:e} {four:e}");
}

#[test]
fn other_shapes_are_refused() {
    let refused = |op: crate::ops::OpRef, shape: &[usize]| {
        crate::ops::testing::try_run(op, &[&random(shape, 1)]).unwrap_err().to_string()
    };
    assert!(refused(WinogradInput { tile: 3, ..Default::default() }.into(), &[1, 2, 4, 4]).contains("2 or 4"));
    assert!(
        refused(WinogradInput { pads: vec![0; 4], ..Default::default() }.into(), &[1, 2, 2, 4]).contains("not fit")
    );
    assert!(refused(WinogradWeights::default().into(), &[1, 2, 5, 5]).contains("[out, c, 3, 3]"));
    let op = WinogradOutput { height: 8.into(), width: 8.into(), ..Default::default() };
    assert!(refused(op.into(), &[6, 6, 2, 5]).contains("no images"));
}
