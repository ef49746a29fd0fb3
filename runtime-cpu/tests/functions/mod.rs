//! Small functions to schedule, as the rules' own tests have them.

pub mod plan;
#[path = "../../../compiler/tensor-ir/src/schedule/testing/functions.rs"]
mod shared;

pub use shared::*;

use tensor_ir::dtype::DType;
use tensor_ir::int::Cond;
use tensor_ir::tir::{Combiner, Expr, TensorFunction};

/// Extrema of windows of `k` x `k` of one NHWC image, with this number around it, and an epilogue: blocks pool, y.
pub fn pool(channels: i64, h: i64, [k, stride, pad]: [i64; 3], padding: f64, combiner: Combiner) -> TensorFunction {
    let out = ints(&[1, (h + 2 * pad - k) / stride + 1, (h + 2 * pad - k) / stride + 1, channels]);
    function(&[("x", &[1, h, h, channels])], |c, ids| {
        let x = ids[0];
        let pool = stage(c, "pool", |c| {
            c.reduce("", &out, DType::F32, &ints(&[k, k]), combiner, |s, r| {
                let place = |d: usize| s[d].clone() * stride + &r[d - 1] - pad;
                let conds = [1, 2].into_iter().flat_map(|d| [Cond::ge(place(d), 0), Cond::lt(place(d), h)]).collect();
                let at = vec![s[0].clone(), place(1), place(2), s[3].clone()];
                Expr::guarded(conds, Expr::load(x, at), Expr::constant(padding, DType::F32))
            })
        });
        stage(c, "y", |c| {
            c.compute("", &out, DType::F32, |i| Expr::load(pool, i.to_vec()) * Expr::constant(0.5, DType::F32))
        })
    })
}
