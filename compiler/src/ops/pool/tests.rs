use super::*;
use crate::ops::testing::{assert_close, random, run, transposed, try_run};
use crate::tensor::Tensor;

fn plane(rows: &[&[f32]]) -> Tensor {
    Tensor::from_vec(vec![1, 1, rows.len(), rows[0].len()], rows.concat())
}

#[test]
fn maxima_with_their_places() {
    let x = plane(&[&[1.0, 5.0, 2.0], &[4.0, 5.0, 0.0], &[7.0, 1.0, 7.0]]);
    let op = MaxPool { kernel: vec![2, 2], indices: true, ..MaxPool::default() };
    let out = try_run(op.clone(), &[&x]).expect("runs");
    assert_eq!(out[0].to_f64_vec(), [5.0, 5.0, 7.0, 7.0]);
    assert_eq!(out[1].to_i64_vec(), [1, 1, 6, 8]);
    let out = try_run(MaxPool { column_major: true, ..op }, &[&x]).expect("runs");
    assert_eq!(out[1].to_i64_vec(), [3, 3, 2, 8]);
}

#[test]
fn padding_never_wins_a_maximum() {
    let x = plane(&[&[-3.0, -1.0], &[-2.0, -4.0]]);
    let op = MaxPool { kernel: vec![3, 3], pads: vec![1, 1, 1, 1], ..MaxPool::default() };
    assert_eq!(run(op, &[&x]).to_f64_vec(), [-1.0; 4]);
    let bytes = Tensor::from_vec(vec![1, 1, 2, 2], vec![3u8, 0, 7, 2]);
    let op = MaxPool { kernel: vec![2, 2], pads: vec![1, 1, 0, 0], ..MaxPool::default() };
    assert_eq!(run(op, &[&bytes]).to_i64_vec(), [3, 3, 7, 7]);
}

#[test]
fn means_count_what_they_should() {
    let x = plane(&[&[1.0, 2.0], &[3.0, 4.0]]);
    let op = AveragePool { kernel: vec![2, 2], pads: vec![1, 1, 1, 1], ..AveragePool::default() };
    assert_eq!(run(op.clone(), &[&x]).to_f64_vec(), [1.0, 1.5, 2.0, 2.0, 2.5, 3.0, 3.0, 3.5, 4.0]);
    let op = AveragePool { count_include_pad: true, ..op };
    assert_eq!(run(op, &[&x]).to_f64_vec(), [0.25, 0.75, 0.5, 1.0, 2.5, 1.5, 0.75, 1.75, 1.0]);
    // Rounded up, the last window has one column of data and none of padding.
    let x = Tensor::from_vec(vec![1, 1, 3], vec![1.0f32, 2.0, 4.0]);
    for count_include_pad in [false, true] {
        let op = AveragePool {
            kernel: vec![2],
            strides: vec![2],
            ceil_mode: true,
            count_include_pad,
            ..AveragePool::default()
        };
        assert_eq!(run(op, &[&x]).to_f64_vec(), [1.5, 4.0]);
    }
    let op = AveragePool { kernel: vec![2], dilations: vec![2], pads: vec![1, 1], ..AveragePool::default() };
    assert_eq!(run(op, &[&x]).to_f64_vec(), [2.0, 2.5, 2.0]);
}

#[test]
fn both_layouts_agree() {
    let x = random(&[2, 3, 6, 7], 1);
    let moved = transposed(&x, &[0, 2, 3, 1]);
    let nhwc = |t: &Tensor| transposed(t, &[0, 2, 3, 1]);
    let (kernel, strides, pads) = (vec![3, 2], vec![2, 1], vec![1, 0, 0, 1]);
    let max = MaxPool {
        kernel: kernel.clone(),
        strides: strides.clone(),
        pads: pads.clone(),
        indices: true,
        ..MaxPool::default()
    };
    let a = try_run(max.clone(), &[&x]).expect("runs");
    let b = try_run(MaxPool { layout: DataLayout::Nhwc, ..max }, &[&moved]).expect("runs");
    for (a, b) in a.iter().zip(&b) {
        assert_close(b, &nhwc(a), 0.0);
    }
    let average = AveragePool { kernel: kernel.clone(), strides, pads, ..AveragePool::default() };
    let a = run(average.clone(), &[&x]);
    assert_close(&run(AveragePool { layout: DataLayout::Nhwc, ..average }, &[&moved]), &nhwc(&a), 1e-6);
    let norm = LpPool { kernel, p: 3, ..LpPool::default() };
    let a = run(norm.clone(), &[&x]);
    assert_close(&run(LpPool { layout: DataLayout::Nhwc, ..norm }, &[&moved]), &nhwc(&a), 1e-6);
}

#[test]
fn norms_of_windows() {
    let x = Tensor::from_vec(vec![1, 1, 3], vec![3.0f32, -4.0, 0.0]);
    let norm = |p: i64| run(LpPool { kernel: vec![2], p, ..LpPool::default() }, &[&x]).to_f64_vec();
    assert_eq!(norm(1), [7.0, 4.0]);
    assert_eq!(norm(2), [5.0, 4.0]);
    assert!((norm(3)[0] - 91f64.cbrt()).abs() < 1e-5);
}
