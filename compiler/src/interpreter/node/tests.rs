//! Compares the vector executor with the lockstep interpreter, on the tensor expressions of ops.

use super::*;
use crate::interpreter::{run_scheduled, run_tensor_function};
use crate::ops::conv::Conv;
use crate::ops::matmul::{Gemm, MatMul};
use crate::ops::pool::{AveragePool, MaxPool};
use crate::ops::softmax::Softmax;
use crate::ops::window::DataLayout;
use tensor_ir::interpreter::{StageKind, stage_kinds};

/// Values that differ, of both signs, and small enough for every dtype.
fn sample(dtype: DType, shape: &[usize], seed: usize) -> Tensor {
    let n = shape.iter().product();
    let value = |i: usize| {
        let x = ((i * 7919 + seed * 104_729) % 61) as f64;
        if dtype.is_float() { (x - 30.0) / 8.0 } else { x }
    };
    Tensor::from_f64(dtype, shape.to_vec(), (0..n).map(value))
}

fn close(a: &Tensor, b: &Tensor, tolerance: f64) {
    assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()));
    for (i, (x, y)) in a.to_f64_vec().iter().zip(b.to_f64_vec()).enumerate() {
        let same = (x.is_nan() && y.is_nan()) || *x == y || (x - y).abs() <= tolerance * (1.0 + y.abs());
        assert!(same, "element {i}: {x} and {y}");
    }
}

/// The tensor function of one op, whose results are parameters, and its operands.
fn function_of(op: &OpRef, inputs: &[Tensor]) -> (TensorFunction, Vec<Tensor>) {
    let inputs: Vec<Option<Tensor>> = inputs.iter().cloned().map(Some).collect();
    let types = infer_concrete(op, &inputs).unwrap();
    let (mut f, present, outputs) = node_function(op, &inputs, types).unwrap();
    f.params.extend(outputs.into_iter().map(|buffer| Param { buffer, access: Access::Write }));
    (f, present)
}

/// Runs both ways; the vector executor must not leave the function to the other one.
fn op_agrees(op: impl Into<OpRef>, inputs: &[Tensor], tolerance: f64) {
    let (f, inputs) = function_of(&op.into(), inputs);
    assert!(stage_kinds(&f).is_some(), "falls back to the interpreter: {:?}", f.body);
    let fast = run_tensor_function(&f, &inputs).unwrap();
    let slow = run_scheduled(&f, &inputs).unwrap();
    for (a, b) in fast.iter().zip(&slow) {
        close(a, b, tolerance);
    }
}

fn has_contraction(op: impl Into<OpRef>, inputs: &[Tensor]) -> bool {
    stage_kinds(&function_of(&op.into(), inputs).0).unwrap().contains(&StageKind::Contract)
}

#[test]
fn matrix_products() {
    for (a, b) in [
        (vec![17, 40], vec![40, 33]),
        (vec![2, 3, 24, 40], vec![2, 3, 40, 24]),
        (vec![2, 3, 24, 40], vec![40, 24]),
        (vec![3, 1, 24, 40], vec![5, 40, 24]),
        (vec![1, 64], vec![64, 100]),
        (vec![64], vec![64, 100]),
    ] {
        for dtype in [DType::F32, DType::F16, DType::I32] {
            op_agrees(MatMul {}, &[sample(dtype, &a, 0), sample(dtype, &b, 1)], 1e-4);
        }
    }
    let operands = [sample(DType::F32, &[17, 40], 0), sample(DType::F32, &[40, 33], 1)];
    assert!(has_contraction(MatMul {}, &operands));
    for (trans_a, trans_b) in [(false, true), (true, false), (true, true)] {
        let shape = |t, r, c| if t { vec![c, r] } else { vec![r, c] };
        let inputs = [
            sample(DType::F32, &shape(trans_a, 30, 20), 0),
            sample(DType::F32, &shape(trans_b, 20, 50), 1),
            sample(DType::F32, &[50], 2),
        ];
        op_agrees(Gemm { alpha: 0.5, beta: 2.0, trans_a, trans_b }, &inputs, 1e-4);
    }
}

#[test]
fn convolutions() {
    let conv = |strides: &[i64], pads: &[i64], group, layout| Conv {
        strides: strides.to_vec(),
        pads: pads.to_vec(),
        group,
        layout,
        ..Conv::default()
    };
    let (nchw, nhwc) = (DataLayout::Nchw, DataLayout::Nhwc);
    let cases = [
        (vec![1, 8, 9, 11], vec![16, 8, 3, 3], conv(&[], &[1, 1, 1, 1], 1, nchw), true),
        (vec![2, 8, 9, 11], vec![16, 8, 3, 3], conv(&[2, 2], &[1, 0, 1, 2], 1, nchw), true),
        (vec![2, 8, 9, 11], vec![16, 8, 1, 1], conv(&[], &[], 1, nchw), true),
        (vec![2, 9, 11, 8], vec![16, 8, 3, 3], conv(&[], &[1, 1, 1, 1], 1, nhwc), true),
        (vec![1, 16, 9, 11], vec![32, 4, 3, 3], conv(&[], &[1, 1, 1, 1], 4, nchw), true),
        (vec![1, 9, 11, 16], vec![32, 4, 3, 3], conv(&[], &[1, 1, 1, 1], 4, nhwc), true),
        (vec![1, 16, 9, 11], vec![16, 1, 3, 3], conv(&[], &[1, 1, 1, 1], 16, nchw), false),
        (vec![1, 8, 40], vec![16, 8, 5], conv(&[2], &[2, 2], 1, nchw), true),
    ];
    for (x, w, op, product) in cases {
        let bias = [w[0]];
        for dtype in [DType::F32, DType::F16] {
            let inputs = [sample(dtype, &x, 0), sample(dtype, &w, 1), sample(dtype, &bias, 2)];
            assert_eq!(has_contraction(op.clone(), &inputs), product, "{op:?}");
            op_agrees(op.clone(), &inputs, if dtype == DType::F32 { 1e-4 } else { 2e-3 });
        }
    }
}

#[test]
fn pools_and_softmax() {
    let x = sample(DType::F32, &[2, 5, 13, 17], 0);
    let max = MaxPool { kernel: vec![3, 3], strides: vec![2, 2], pads: vec![1, 1, 1, 1], ..MaxPool::default() };
    op_agrees(max, std::slice::from_ref(&x), 0.0);
    let mean = AveragePool { kernel: vec![3, 2], pads: vec![1, 0, 1, 1], ..AveragePool::default() };
    op_agrees(mean, std::slice::from_ref(&x), 1e-5);
    op_agrees(Softmax::default(), std::slice::from_ref(&x), 1e-5);
}
