use super::*;
use crate::ops::testing::{random, run_both, try_run};

fn dims(v: &[i64]) -> Vec<Dim> {
    v.iter().map(|&d| Dim::new(d)).collect()
}

#[test]
fn every_regrouping_keeps_the_order() {
    let x = random(&[2, 3, 4, 1, 6], 1);
    let shapes: [&[i64]; 8] =
        [&[144], &[6, 24], &[2, 12, 6], &[4, 36], &[3, 2, 24], &[1, 2, 3, 4, 6, 1], &[9, 16], &[8, 3, 6]];
    for shape in shapes {
        let out = run_both(Reshape::to(dims(shape)), &[&x]).remove(0);
        assert_eq!(out.bytes(), x.bytes(), "{shape:?}");
    }
    assert_eq!(run_both(Reshape { shape: dims(&[0, -1, 6]), ..Reshape::default() }, &[&x])[0].shape(), [2, 12, 6]);
    assert_eq!(run_both(Flatten { axis: 2 }, &[&x])[0].shape(), [6, 24]);
    assert_eq!(run_both(Flatten { axis: 0 }, &[&x])[0].shape(), [1, 144]);
    assert_eq!(run_both(Squeeze::default(), &[&x])[0].shape(), [2, 3, 4, 6]);
    assert_eq!(run_both(Unsqueeze { axes: vec![0, -1] }, &[&x])[0].shape(), [1, 2, 3, 4, 1, 6, 1]);
    assert_eq!(run_both(Reshape::to(vec![]), &[&Tensor::ints(&[7])])[0].shape(), [0usize; 0]);
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let x = random(&[2, 3], 1);
    for shape in [&[7][..], &[-1, 4], &[-1, -1], &[2, 3, 0], &[-2, 3]] {
        assert!(try_run(Reshape::to(dims(shape)), &[&x]).is_err(), "{shape:?}");
    }
    assert!(try_run(Squeeze { axes: vec![0] }, &[&x]).is_err());
    assert!(try_run(Unsqueeze { axes: vec![4] }, &[&x]).is_err());
    let empty = Reshape { shape: dims(&[0, 3]), allowzero: true, dims: vec![] };
    assert!(try_run(empty.clone(), &[&x]).is_err());
    assert_eq!(try_run(empty, &[&Tensor::zeros(crate::dtype::DType::F32, vec![3, 0])]).unwrap()[0].shape(), [0, 3]);
}

#[test]
fn symbolic_dims_divide_out() {
    let (n, m) = (Dim::var("n"), Dim::var("m"));
    let product = [n.clone(), Dim::new(12), m.clone()];
    assert_eq!(divide_dims(&product, &[Dim::new(4), m.clone()]), Some(n.clone() * 3));
    assert_eq!(divide_dims(&product, std::slice::from_ref(&(n.clone() * 12))), Some(m.clone()));
    assert_eq!(divide_dims(&[Dim::new(7)], &[Dim::new(2)]), None);
    assert_eq!(divide_dims(std::slice::from_ref(&n), &[Dim::new(0)]), None);
    // Equal leading and trailing dims map straight through.
    let index = [Int::var("i"), Int::var("j"), Int::var("k")];
    let to = [n.clone(), Dim::new(6), m.clone()];
    let from = [n, Dim::new(2), Dim::new(3), m];
    assert_eq!(reshape_index(&index, &to, &from)[0], index[0]);
    assert_eq!(reshape_index(&index, &to, &from)[3], index[2]);
}
