//! Kernels on matrix units with subgroups of every size, announced by the device or not: fewer subgroups than tasks,
//! equally many, and more; random shapes with tails.

use super::{Choice, choices, schedule};
use crate::attr::Attr;
use crate::schedule::testing::{
    MATRIX_SHAPES, SUBGROUP_SIZES, assert_same_on_subgroups, chosen, matrix_device, parsed, proposed,
};
use crate::tir::TensorFunction;

/// Pseudo-random sizes, the same in each run.
struct Sizes(u64);

impl Sizes {
    fn next(&mut self, from: i64, to: i64) -> i64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        from + (self.0 >> 33) as i64 % (to - from + 1)
    }
}

/// The scheduled function at every size, where the device announced one.
fn check(f: &TensorFunction, mnk: [u32; 3], announced: u32) {
    let g = proposed(f, &matrix_device(mnk, (announced, announced)), "matmul-matrix");
    check_sizes(f, &g, mnk, announced);
}

fn check_sizes(f: &TensorFunction, g: &TensorFunction, mnk: [u32; 3], announced: u32) {
    // A workgroup of the smallest tile has whole subgroups.
    let threads = if mnk[0] * mnk[1] >= 256 { 4 } else { 16 } * announced;
    let sizes: Vec<u32> = SUBGROUP_SIZES.into_iter().filter(|s| threads.is_multiple_of(*s)).collect();
    assert_same_on_subgroups(f, g, &sizes);
}

/// A convolution of 3x3 with what follows it.
fn convolution([h, c, o]: [i64; 3], after: &str) -> TensorFunction {
    parsed(&format!(
        "tensor @conv(%x: f16[1,{h},{h},{c}], %w: f16[{o},{c},3,3], %bias: f16[{o}], %z: f16[1,{h},{h},{o}], out %y: f32[1,{h},{h},{o}]) {{
  buffer %sum: f32[1,{h},{h},{o}] global
  for n in 0..1 {{ for p in 0..{h} {{ for q in 0..{h} {{ for o in 0..{o} {{ for r in 0..3 {{ for s in 0..3 {{ for c in 0..{c} {{
    block sum reduce sum init {{ %sum[n, p, q, o] <- select(all(p + r - 1 >= 0, q + s - 1 >= 0, p + r - 1 < {h}, q + s - 1 < {h}), f32(%x[n, p + r - 1, q + s - 1, c]), 0.0) * f32(%w[o, c, r, s]) }}
  }} }} }} }} }} }} }}
  for a in 0..1 {{ for i in 0..{h} {{ for j in 0..{h} {{ for k in 0..{o} {{
    block y {{ %y[a, i, j, k] <- max(%sum[a, i, j, k] + {after}, 0.0) }}
  }} }} }} }}
}}"
    ))
}

#[test]
fn convolutions_with_bias_and_residual() {
    let mut sizes = Sizes(1);
    for mnk in MATRIX_SHAPES {
        for after in ["f32(%bias[k])", "f32(%z[a, i, j, k])"] {
            let size = [sizes.next(5, 6), sizes.next(3, 6), sizes.next(5, 19)];
            check(&convolution(size, after), mnk, 16);
        }
    }
}

#[test]
fn products_with_gelu() {
    let mut sizes = Sizes(2);
    for mnk in MATRIX_SHAPES {
        let (m, n, k) = (sizes.next(4, 40), sizes.next(4, 40), sizes.next(8, 40));
        let f = parsed(&format!(
            "tensor @mm(%a: f16[{m},{k}], %b: f16[{k},{n}], out %y: f32[{m},{n}]) {{
  buffer %mm: f32[{m},{n}] global
  for i in 0..{m} {{ for j in 0..{n} {{ for k in 0..{k} {{
    block mm reduce sum init {{ %mm[i, j] <- f32(%a[i, k]) * f32(%b[k, j]) }}
  }} }} }}
  for p in 0..{m} {{ for q in 0..{n} {{
    block y {{ %y[p, q] <- %mm[p, q] * 0.5 * (tanh(%mm[p, q] * 0.79788456 * (%mm[p, q] * %mm[p, q] * 0.044715 + 1.0)) + 1.0) }}
  }} }}
}}"
        ));
        for announced in [16, 32] {
            check(&f, mnk, announced);
        }
    }
}

#[test]
fn slices_of_a_reduction() {
    let mut sizes = Sizes(3);
    for mnk in MATRIX_SHAPES {
        let (m, n) = (sizes.next(4, 8), sizes.next(4, 8));
        let f = parsed(&format!(
            "tensor @mm(%a: f16[{m},512], %b: f16[512,{n}], out %y: f32[{m},{n}]) {{
  for i in 0..{m} {{ for j in 0..{n} {{ for k in 0..512 {{
    block y reduce sum init {{ %y[i, j] <- f32(%a[i, k]) * f32(%b[k, j]) }}
  }} }} }}
}}"
        ));
        let p = matrix_device(mnk, (16, 16));
        let made = schedule(&f, &[], &p).unwrap_or_else(|e| panic!("{e}")).function;
        let all = choices(&made.trace);
        let slices = all.iter().find(|c| c.point == "slices".into()).expect("a choice");
        let most = slices.of.iter().find(|v| **v != Attr::Int(1)).expect("more than one").clone();
        let g = chosen(&f, &p, Choice { unit: slices.unit, point: slices.point, value: most });
        assert_eq!(g.kernels().len(), 2, "slices, and their sum");
        check_sizes(&f, &g, mnk, 16);
    }
}
