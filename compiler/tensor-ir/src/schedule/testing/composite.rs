//! Complete schedules of the two kinds of matrix kernels, on odd and even sizes.

use super::*;
use crate::tir::{LoopKind, Stmt};

/// One subgroup of 8 lanes computes `r` pixels by 32 channels; the pixels' values are broadcast from lane to lane.
fn software_gemm(r: i64) -> Vec<String> {
    [
        format!("split {{loop=y_i0, factors=[0, {r}], into=[px, pi]}}"),
        "split {loop=y_i1, factors=[0, 8, 4], into=[cx, lane, v]}".into(),
        "reorder {loops=[px, cx, lane, pi, v]}".into(),
        "bind {loop=px, axis=group_x}".into(),
        "bind {loop=cx, axis=group_y}".into(),
        "bind {loop=lane, axis=local_x}".into(),
        "compute-at {block=mm, at=lane, scope=register}".into(),
        "split {loop=mm_r0, factors=[0, 4], into=[ko, ki]}".into(),
        "pad-reduction {block=mm}".into(),
        "reorder {loops=[ko, mm_pi, ki, mm_v]}".into(),
        "stage-in-subgroup {block=mm, operand=\"0\", at=ko, into=as, lane=lane, dim=mm_pi}".into(),
        "stage-in-registers {block=mm, operand=\"1\", at=ko, into=wr}".into(),
        "decompose-reduction {block=mm, at=ko}".into(),
        "vectorize {loop=mm_v}".into(),
        "vectorize {loop=mm_init_mm_v}".into(),
        "vectorize {loop=wr_mm_v}".into(),
        "vectorize {loop=as_ki}".into(),
        "vectorize {loop=v}".into(),
        "unroll {loop=ki}".into(),
        "unroll {loop=mm_pi}".into(),
        "unroll {loop=mm_init_mm_pi}".into(),
        "unroll {loop=wr_ki}".into(),
        "unroll {loop=as_mm_pi}".into(),
        "unroll {loop=pi}".into(),
        "cut-kernel {}".into(),
    ]
    .into()
}

fn run(f: &TensorFunction, steps: &[String]) -> TensorFunction {
    scheduled(f, &steps.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn software_gemm_keeps_results() {
    for (m, n, k) in [(28, 32, 8), (30, 40, 12), (5, 7, 6), (29, 33, 2)] {
        let f = matmul(m, n, k);
        let g = run(&f, &software_gemm(28));
        assert_eq!(g.kernels().len(), 1);
        assert_same(&f, &g);
    }
}

#[test]
fn software_gemm_of_a_convolution_with_packed_weights() {
    let f = conv(2, 4, 5, 6, 12, 3, 1, 1);
    let g = scheduled(
        &f,
        &[
            "flatten-buffer {buffer=y, dims=[0, 1, 2]}",
            "transform-layout {buffer=w, splits=[0, 0, 0, 32], order=[3, 0, 1, 2, 4]}",
            "fuse {loops=[y_i0, y_i1, y_i2], into=p}",
            "split {loop=p, factors=[0, 7], into=[px, pi]}",
            "split {loop=y_i3, factors=[0, 8, 4], into=[cx, lane, v]}",
            "reorder {loops=[px, cx, lane, pi, v]}",
            "bind {loop=px, axis=group_x}",
            "bind {loop=cx, axis=group_y}",
            "bind {loop=lane, axis=local_x}",
            "compute-at {block=conv, at=lane, scope=register}",
            "split {loop=conv_r2, factors=[0, 4], into=[co, ci]}",
            "reorder {loops=[conv_r0, conv_r1, co, conv_pi, ci, conv_v]}",
            "stage-in-subgroup {block=conv, operand=\"0\", at=co, into=xs, lane=lane, dim=conv_pi}",
            "stage-in-registers {block=conv, operand=\"1\", at=co, into=wr}",
            "decompose-reduction {block=conv, at=conv_r0}",
            "vectorize {loop=conv_v}",
            "vectorize {loop=wr_conv_v}",
            "vectorize {loop=v}",
            "unroll {loop=conv_pi}",
            "cut-kernel {}",
        ],
    );
    assert_eq!(g.prepacks.len(), 1);
    assert_same(&f, &g);
}

/// Workgroups of 8x8 threads with 4x4 registers each and a K step of 8.
fn shared_gemm() -> Vec<String> {
    [
        "split {loop=y_i0, factors=[0, 8, 4], into=[bm, ty, i]}",
        "split {loop=y_i1, factors=[0, 8, 4], into=[bn, tx, j]}",
        "reorder {loops=[bm, bn, ty, tx, i, j]}",
        "bind {loop=bm, axis=group_y}",
        "bind {loop=bn, axis=group_x}",
        "bind {loop=ty, axis=local_y}",
        "bind {loop=tx, axis=local_x}",
        "compute-at {block=mm, at=tx, scope=register}",
        "split {loop=mm_r0, factors=[0, 8], into=[ko, ki]}",
        "pad-reduction {block=mm}",
        "reorder {loops=[ko, ki, mm_i, mm_j]}",
        "stage-in-shared {block=mm, operand=\"0\", at=ko, into=as}",
        "stage-in-shared {block=mm, operand=\"1\", at=ko, into=ws}",
        "stage-in-registers {block=mm, operand=\"0\", at=ki, into=ar}",
        "stage-in-registers {block=mm, operand=\"1\", at=ki, into=wr}",
        "decompose-reduction {block=mm, at=ko}",
        "reorder {loops=[as_ty, as_mm_i, as_ki]}",
        "fuse {loops=[as_ty, as_mm_i, as_ki], into=ac}",
        "split {loop=ac, factors=[0, 8, 8], into=[a0, a1, a2]}",
        "bind {loop=a1, axis=local_y}",
        "bind {loop=a2, axis=local_x}",
        "reorder {loops=[ws_ki, ws_tx, ws_mm_j]}",
        "fuse {loops=[ws_ki, ws_tx, ws_mm_j], into=wc}",
        "split {loop=wc, factors=[0, 8, 8], into=[w0, w1, w2]}",
        "bind {loop=w1, axis=local_y}",
        "bind {loop=w2, axis=local_x}",
        "unroll {loop=mm_i}",
        "vectorize {loop=mm_j}",
        "vectorize {loop=j}",
    ]
    .map(String::from)
    .into()
}

#[test]
fn shared_gemm_keeps_results() {
    for (m, n, k) in [(32, 64, 16), (37, 45, 19), (5, 3, 2)] {
        let f = matmul(m, n, k);
        let mut steps = shared_gemm();
        let g = run(&f, &steps);
        assert_same(&f, &g);
        steps.push("software-pipeline {loop=ko, buffers=[as, ws], double_buffer=true}".into());
        steps.push("cut-kernel {}".into());
        let g = run(&f, &steps);
        assert_eq!(g.kernels().len(), 1);
        assert_same(&f, &g);
    }
}

#[test]
fn traces_replay() {
    let f = matmul(37, 45, 19);
    let g = run(&f, &shared_gemm());
    let mut h = f.clone();
    crate::schedule::replay(&mut h, &g.trace).expect("replays");
    assert_eq!(g, h);
    let text: Vec<String> = g.trace.iter().map(crate::tir::InstrRef::text).collect();
    assert_eq!(text[0], "split {loop=y_i0, factors=[0,8,4], into=[bm,ty,i]}");
    let mut locals = 0;
    g.body.visit(&mut |s| locals += usize::from(matches!(s, Stmt::For(l) if matches!(l.kind, LoopKind::Local(_)))));
    assert_eq!(locals, 6);
}
