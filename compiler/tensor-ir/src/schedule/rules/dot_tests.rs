//! Compares products of bytes with the reference evaluator, over the whole range of bytes: every choice, with and
//! without tails.

use super::{Choice, Scheduled, choices, schedule, schedule_with};
use crate::attr::Attr;
use crate::dtype::DType;
use crate::int::const_dims;
use crate::interpreter::{run_scheduled, run_tensor_function};
use crate::profile::DeviceProfile;
use crate::schedule::ScheduleTarget;
use crate::schedule::testing::{Asking, asking};
use crate::tensor::Tensor;
use crate::text::parse_tensor_function;
use crate::tir::{BufferId, Encoding, LoopKind, Stmt, TensorFunction};

fn function(text: &str) -> TensorFunction {
    parse_tensor_function(text).unwrap_or_else(|e| panic!("{e}")).canonical()
}

fn product(t: DType, m: i64, n: i64, k: i64) -> TensorFunction {
    function(&format!(
        "tensor @mm(%a: {t}[{m},{k}], %b: {t}[{k},{n}], %z: i32[{m},{n}], out %y: i32[{m},{n}]) {{
  buffer %mm: i32[{m},{n}] global
  for i in 0..{m} {{ for j in 0..{n} {{ for k in 0..{k} {{
    block mm reduce sum init {{ %mm[i, j] <- i32(%a[i, k]) * i32(%b[k, j]) }}
  }} }} }}
  for yi in 0..{m} {{ for yj in 0..{n} {{ block y {{ %y[yi, yj] <- max(%mm[yi, yj] + %z[yi, yj], -9:i32) }} }} }}
}}"
    ))
}

/// Data of `[rows, columns, channels]`, a zero point in the padding.
fn convolution(h: i64, c: i64, o: i64) -> TensorFunction {
    function(&format!(
        "tensor @conv(%x: i8[1,{h},{h},{c}], %w: i8[{o},{c},3,3], out %y: i32[1,{h},{h},{o}]) {{
  for n in 0..1 {{ for p in 0..{h} {{ for q in 0..{h} {{ for o in 0..{o} {{ for r in 0..3 {{ for s in 0..3 {{ for c in 0..{c} {{
    block y reduce sum init {{ %y[n, p, q, o] <- select(all(p + r - 1 >= 0, q + s - 1 >= 0, p + r - 1 < {h}, q + s - 1 < {h}), i32(%x[n, p + r - 1, q + s - 1, c]), -77:i32) * i32(%w[o, c, r, s]) }}
  }} }} }} }} }} }} }}
}}"
    ))
}

/// A device with so many cores that tiles are small. The products are so small that the estimate prefers other rules.
fn device() -> Asking {
    asking(DeviceProfile { cores: 1000, ..DeviceProfile::named("ada").expect("a profile") }, "matmul-dot")
}

/// Any byte, each of them where there are enough.
fn inputs(f: &TensorFunction) -> Vec<Tensor> {
    let value = |t: DType, n: usize| match t {
        DType::I8 => (n * 37 + 11) as u8 as i8 as f64,
        DType::U8 => (n * 37 + 11) as u8 as f64,
        _ => n as f64 - 40.0,
    };
    let of = |(salt, b): (usize, BufferId)| {
        let (t, shape) = (f.buffers[b].dtype, const_dims(&f.buffers[b].shape).expect("constant"));
        let n = shape.iter().product::<usize>();
        Tensor::from_f64(t, shape, (0..n).map(|n| value(t, n * (salt + 1) + n / 7)))
    };
    f.inputs().enumerate().map(of).collect()
}

fn check(f: &TensorFunction, s: &Scheduled) {
    check_rule("matmul-dot", f, s);
}

fn check_rule(rule: &str, f: &TensorFunction, s: &Scheduled) {
    assert_eq!(s.rule, rule, "declined: {:?}", s.declined);
    let inputs = inputs(f);
    let want = run_tensor_function(f, &inputs).unwrap_or_else(|e| panic!("{e}"));
    let got = run_scheduled(&s.function, &inputs).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(want[0].to_i64_vec(), got[0].to_i64_vec());
}

#[test]
fn products_are_exact_with_and_without_tails() {
    for t in [DType::I8, DType::U8] {
        for (m, n, k) in [(1, 33, 64), (3, 32, 20), (32, 32, 32), (37, 21, 43), (5, 70, 19), (64, 8, 130)] {
            let f = product(t, m, n, k);
            check(&f, &schedule(&f, &[], &device()).unwrap_or_else(|e| panic!("{e}")));
            let weights: Vec<BufferId> = f.inputs().skip(1).take(1).collect();
            let s = schedule(&f, &weights, &device()).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(s.function.prepacks.len(), usize::from(k % 4 == 0), "whole words are packed");
            check(&f, &s);
        }
    }
}

/// The number of operations on words in a schedule's text.
fn dots(s: &Scheduled) -> usize {
    let mut dots = 0;
    s.function.body.visit(&mut |s| dots += usize::from(matches!(s, Stmt::For(l) if l.kind == LoopKind::Tensor)));
    dots
}

#[test]
fn a_few_rows_multiply_words() {
    let ada = DeviceProfile::named("ada").expect("a profile");
    for t in [DType::I8, DType::U8] {
        for (m, n, k) in [(1, 40, 64), (1, 33, 1280), (2, 16, 112), (3, 20, 2048), (8, 12, 96)] {
            let f = product(t, m, n, k);
            let weights: Vec<BufferId> = f.inputs().skip(1).take(1).collect();
            let s = schedule(&f, &weights, &asking(ada.clone(), "matmul-vector")).unwrap_or_else(|e| panic!("{e}"));
            check_rule("matmul-vector", &f, &s);
            assert_eq!(dots(&s), 1);
            let words = s.function.buffers.iter().filter(|(_, b)| b.encoding == Encoding::ByteQuad).count();
            assert_eq!(words, 2, "both operands are words in registers");
        }
    }
}

#[test]
fn a_long_reduction_is_cut_into_slices() {
    for m in [2, 3, 17] {
        let f = product(DType::I8, m, 36, 2048);
        let weights: Vec<BufferId> = f.inputs().skip(1).take(1).collect();
        let choice = Choice { unit: "mm".into(), point: "slices".into(), value: Attr::Int(4) };
        check(&f, &schedule_with(&f, &weights, &device(), &[choice]).unwrap_or_else(|e| panic!("{e}")));
    }
}

#[test]
fn zero_points_stand_in_the_padding() {
    for (h, c, o) in [(6, 8, 12), (5, 3, 20), (7, 6, 9)] {
        let f = convolution(h, c, o);
        let weights: Vec<BufferId> = f.inputs().skip(1).collect();
        let s = schedule(&f, &weights, &device()).unwrap_or_else(|e| panic!("{e}"));
        check(&f, &s);
        let words = s.function.buffers.iter().filter(|(_, b)| b.encoding == Encoding::ByteQuad).count();
        assert!(words >= 2, "both operands are staged in words");
        assert_eq!(dots(&s), 1);
    }
}

#[test]
fn every_choice_gives_the_same_results() {
    let f = product(DType::I8, 40, 36, 20);
    let made = schedule(&f, &[], &device()).unwrap_or_else(|e| panic!("{e}")).function;
    let mut tried = 0;
    for c in choices(&made.trace).into_iter().filter(|c| c.point != "rule".into()) {
        for value in &c.of {
            let choice = Choice { unit: c.unit, point: c.point, value: value.clone() };
            check(&f, &schedule_with(&f, &[], &device(), &[choice]).unwrap_or_else(|e| panic!("{e}")));
            tried += 1;
        }
    }
    assert!(tried >= 6, "{tried}");
}

#[test]
fn what_is_no_product_of_bytes_of_one_type_is_left_to_others() {
    let declined = |f: &TensorFunction, p: ScheduleTarget<'_>| {
        let s = schedule(f, &[], p).unwrap_or_else(|e| panic!("{e}"));
        assert_ne!(s.rule, "matmul-dot");
        s.declined.join("; ")
    };
    let mixed = function(
        "tensor @mm(%a: u8[40,40], %b: i8[40,40], out %y: i32[40,40]) {
  for i in 0..40 { for j in 0..40 { for k in 0..40 {
    block y reduce sum init { %y[i, j] <- i32(%a[i, k]) * i32(%b[k, j]) }
  } } }
}",
    );
    assert!(declined(&mixed, (&device()).into()).contains("one operand is u8, the other i8"));
    let bytes = product(DType::I8, 40, 40, 40);
    assert!(declined(&bytes, (&DeviceProfile::lavapipe()).into()).contains("one by one"));
    assert!(declined(&product(DType::I8, 40, 40, 4), (&device()).into()).contains("too few for tiles"));
}
