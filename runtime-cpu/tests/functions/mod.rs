//! Small functions to schedule, as the rules' own tests have them.

pub mod plan;
#[path = "../../../compiler/tensor-ir/src/schedule/testing/functions.rs"]
mod shared;

pub use shared::*;

use tensor_ir::dtype::DType;
use tensor_ir::int::{Cond, Int};
use tensor_ir::tir::{BufferId, Combiner, Expr, Stmt, TensorFunction};

/// `f` with its f32 parameters stored as `dtype`, and computed in f32. Results that a reduction adds up stay f32.
pub fn stored_as(f: &TensorFunction, dtype: DType) -> TensorFunction {
    let mut g = f.clone();
    let reduced = |b: BufferId| f.body.blocks().iter().any(|block| block.buffer == b && block.reduce.is_some());
    let stored: Vec<BufferId> = f.params.iter().map(|p| p.buffer).collect();
    let stored: Vec<BufferId> =
        stored.into_iter().filter(|b| f.buffers[*b].dtype == DType::F32 && !reduced(*b)).collect();
    stored.iter().for_each(|b| g.buffers[*b].dtype = dtype);
    g.body.visit_mut(&mut |s| {
        let Stmt::Block(b) = s else { return };
        let mut widen = |e: &Expr| match e {
            Expr::Load(from, _) if stored.contains(from) => Some(e.clone().cast(dtype, DType::F32)),
            _ => None,
        };
        b.value = b.value.rewrite(&mut |i| i.clone(), &mut widen);
        if stored.contains(&b.buffer) {
            b.value = b.value.clone().cast(DType::F32, dtype);
        }
    });
    g
}

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

/// Convolution of one image with `groups` groups of `[data, results]` channels, windows of `k` x `k`, and a bias:
/// blocks conv, y.
pub fn grouped(
    groups: i64,
    [data, results]: [i64; 2],
    h: i64,
    [k, stride, pad]: [i64; 3],
    nhwc: bool,
) -> TensorFunction {
    let (all, out) = (groups * results, (h + 2 * pad - k) / stride + 1);
    let at = |c: Int, y: Int, x: Int| if nhwc { vec![Int::new(0), y, x, c] } else { vec![Int::new(0), c, y, x] };
    let shape = |c: i64, side: i64| at(c.into(), side.into(), side.into()).into_iter().skip(1);
    let shape = |c: i64, side: i64| [Int::new(1)].into_iter().chain(shape(c, side)).collect::<Vec<Int>>();
    let numbers = |s: &[Int]| s.iter().filter_map(Int::as_const).collect::<Vec<i64>>();
    let part = |i: &[Int]| if nhwc { [&i[3], &i[1], &i[2]] } else { [&i[1], &i[2], &i[3]] }.map(Clone::clone);
    let x = numbers(&shape(groups * data, h));
    function(&[("x", &x), ("w", &[all, data, k, k]), ("bias", &[all])], |c, ids| {
        let [x, w, bias] = ids[..] else { unreachable!("three operands") };
        let wide = shape(all, out);
        let conv = stage(c, "conv", |c| {
            c.reduce("", &wide, DType::F32, &ints(&[k, k, data]), Combiner::Sum, |s, r| {
                let [o, y, x1] = part(s);
                let place = |i: Int, tap: &Int| i * stride + tap - pad;
                let (y, x1) = (place(y, &r[0]), place(x1, &r[1]));
                let conds = [&y, &x1].into_iter().flat_map(|i| [Cond::ge(i.clone(), 0), Cond::lt(i.clone(), h)]);
                let load = Expr::load(x, at(o.div(results) * data + &r[2], y.clone(), x1.clone()));
                let padded = Expr::guarded(conds.collect(), load, Expr::constant(0.0, DType::F32));
                padded * Expr::load(w, vec![o, r[2].clone(), r[0].clone(), r[1].clone()])
            })
        });
        stage(c, "y", |c| {
            c.compute("", &wide, DType::F32, |i| {
                Expr::load(conv, i.to_vec()) + Expr::load(bias, vec![part(i)[0].clone()])
            })
        })
    })
}
