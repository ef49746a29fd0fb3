//! Small functions to schedule, and content for their parameters.
//!
//! The tests of `runtime-cpu` have this file by its path. A crate of such functions would not do: it would depend on
//! this crate, whose own unit tests would then have two copies of each type. So the file says `tensor_ir` in both.

use tensor_ir::dtype::DType;
use tensor_ir::int::{Cond, Int};
use tensor_ir::name::Name;
use tensor_ir::te::ComputeContext;
use tensor_ir::tensor::Tensor;
use tensor_ir::tir::{Access, Buffer, BufferId, Combiner, Encoding, Expr, Param, Scope, TensorFunction, UnaryOp};

/// A function with parameters `inputs` (name, shape); `build` appends stages, the last of which writes the result.
pub fn function(
    inputs: &[(&str, &[i64])],
    build: impl FnOnce(&mut ComputeContext, &[BufferId]) -> BufferId,
) -> TensorFunction {
    let mut f = TensorFunction::new("test");
    let mut ids = Vec::new();
    for (name, shape) in inputs {
        let buffer = f.buffers.push(Buffer {
            name: (*name).into(),
            dtype: DType::F32,
            shape: shape.iter().map(|&d| Int::new(d)).collect(),
            scope: Scope::Global,
            encoding: Encoding::Native,
        });
        f.params.push(Param { buffer, access: Access::Read });
        ids.push(buffer);
    }
    let mut context = ComputeContext::new(&mut f, vec![], vec![], vec![], "s");
    let out = build(&mut context, &ids);
    f.params.push(Param { buffer: out, access: Access::Write });
    f
}

/// A stage of one op named `prefix`.
pub fn stage<R>(c: &mut ComputeContext, prefix: &str, build: impl FnOnce(&mut ComputeContext) -> R) -> R {
    build(&mut ComputeContext::new(c.function, vec![], vec![], vec![], prefix))
}

/// Sizes of a shape.
pub fn ints(dims: &[i64]) -> Vec<Int> {
    dims.iter().map(|&d| Int::new(d)).collect()
}

/// `y = (x + 1) * x`, then `max(.., 0.25)`: blocks t0, t1, y.
pub fn elementwise_chain(shape: &[i64]) -> TensorFunction {
    let dims = ints(shape);
    function(&[("x", shape)], |c, ids| {
        let x = ids[0];
        let one = Expr::constant(1.0, DType::F32);
        let t0 = stage(c, "t0", |c| c.compute("", &dims, DType::F32, |i| Expr::load(x, i.to_vec()) + one));
        let t1 = stage(c, "t1", |c| {
            c.compute("", &dims, DType::F32, |i| Expr::load(t0, i.to_vec()) * Expr::load(x, i.to_vec()))
        });
        stage(c, "y", |c| {
            c.compute("", &dims, DType::F32, |i| Expr::load(t1, i.to_vec()).max(Expr::constant(0.25, DType::F32)))
        })
    })
}

/// `y[p, j] = max(sum_k a[p, k] * w[k, j] + bias[j], 0)`: blocks mm, y.
pub fn matmul(m: i64, n: i64, k: i64) -> TensorFunction {
    function(&[("a", &[m, k]), ("w", &[k, n]), ("bias", &[n])], |c, ids| {
        let (a, w, bias) = (ids[0], ids[1], ids[2]);
        let mm = stage(c, "mm", |c| {
            c.reduce("", &ints(&[m, n]), DType::F32, &ints(&[k]), Combiner::Sum, |s, r| {
                Expr::load(a, vec![s[0].clone(), r[0].clone()]) * Expr::load(w, vec![r[0].clone(), s[1].clone()])
            })
        });
        stage(c, "y", |c| {
            c.compute("", &ints(&[m, n]), DType::F32, |i| {
                (Expr::load(mm, i.to_vec()) + Expr::load(bias, vec![i[1].clone()])).max(Expr::constant(0.0, DType::F32))
            })
        })
    })
}

/// NHWC convolution with padding and an epilogue: blocks conv, y; weights `[kh, kw, ic, oc]`.
#[allow(clippy::too_many_arguments)]
pub fn conv(n: i64, c_in: i64, h: i64, w: i64, oc: i64, k: i64, stride: i64, pad: i64) -> TensorFunction {
    let (oh, ow) = ((h + 2 * pad - k) / stride + 1, (w + 2 * pad - k) / stride + 1);
    function(&[("x", &[n, h, w, c_in]), ("w", &[k, k, c_in, oc]), ("bias", &[oc])], |c, ids| {
        let (x, wt, bias) = (ids[0], ids[1], ids[2]);
        let shape = ints(&[n, oh, ow, oc]);
        let acc = stage(c, "conv", |c| {
            c.reduce("", &shape, DType::F32, &ints(&[k, k, c_in]), Combiner::Sum, |s, r| {
                let (ih, iw) = (s[1].clone() * stride + &r[0] - pad, s[2].clone() * stride + &r[1] - pad);
                let conds = vec![
                    Cond::ge(ih.clone(), 0),
                    Cond::lt(ih.clone(), h),
                    Cond::ge(iw.clone(), 0),
                    Cond::lt(iw.clone(), w),
                ];
                let load = Expr::load(x, vec![s[0].clone(), ih, iw, r[2].clone()]);
                let load = if pad == 0 { load } else { Expr::guarded(conds, load, Expr::constant(0.0, DType::F32)) };
                load * Expr::load(wt, vec![r[0].clone(), r[1].clone(), r[2].clone(), s[3].clone()])
            })
        });
        stage(c, "y", |c| {
            c.compute("", &shape, DType::F32, |i| Expr::load(acc, i.to_vec()) + Expr::load(bias, vec![i[3].clone()]))
        })
    })
}

/// Depthwise convolution of one image of `h` x `h` with padding and an epilogue, NHWC or NCHW: blocks conv, y.
pub fn depthwise(channels: i64, h: i64, k: i64, stride: i64, pad: i64, nhwc: bool) -> TensorFunction {
    let out = (h + 2 * pad - k) / stride + 1;
    let shape = |h: i64| if nhwc { [1, h, h, channels] } else { [1, channels, h, h] };
    let (y, x, c) = if nhwc { (1, 2, 3) } else { (2, 3, 1) };
    function(&[("x", &shape(h)), ("w", &[channels, k, k]), ("bias", &[channels])], |cx, ids| {
        let (data, weights, bias) = (ids[0], ids[1], ids[2]);
        let acc = stage(cx, "conv", |cx| {
            cx.reduce("", &ints(&shape(out)), DType::F32, &ints(&[k, k]), Combiner::Sum, |s, r| {
                let mut at = s.to_vec();
                at[y] = s[y].clone() * stride + &r[0] - pad;
                at[x] = s[x].clone() * stride + &r[1] - pad;
                let conds = [y, x].into_iter().flat_map(|d| [Cond::ge(at[d].clone(), 0), Cond::lt(at[d].clone(), h)]);
                let conds: Vec<Cond> = if pad == 0 { vec![] } else { conds.collect() };
                let load = Expr::guarded(conds, Expr::load(data, at), Expr::constant(0.0, DType::F32));
                load * Expr::load(weights, vec![s[c].clone(), r[0].clone(), r[1].clone()])
            })
        });
        stage(cx, "y", |cx| {
            cx.compute("", &ints(&shape(out)), DType::F32, |i| {
                Expr::load(acc, i.to_vec()) + Expr::load(bias, vec![i[c].clone()])
            })
        })
    })
}

/// `y[i] = sum_r x[i, r]`: block y.
pub fn row_sum(rows: i64, columns: i64) -> TensorFunction {
    function(&[("x", &[rows, columns])], |c, ids| {
        let x = ids[0];
        stage(c, "y", |c| {
            c.reduce("", &ints(&[rows]), DType::F32, &ints(&[columns]), Combiner::Sum, |s, r| {
                Expr::load(x, vec![s[0].clone(), r[0].clone()])
            })
        })
    })
}

/// Softmax over the rows: blocks max, exp, sum, y.
pub fn softmax(rows: i64, columns: i64) -> TensorFunction {
    function(&[("x", &[rows, columns])], |c, ids| {
        let x = ids[0];
        let (row, all, red) = (ints(&[rows]), ints(&[rows, columns]), ints(&[columns]));
        let reduce = |c: &mut ComputeContext, name: &str, of: BufferId, op: Combiner| {
            stage(c, name, |c| {
                c.reduce("", &row, DType::F32, &red, op, |s, r| Expr::load(of, vec![s[0].clone(), r[0].clone()]))
            })
        };
        let max = reduce(c, "max", x, Combiner::Max);
        let exp = stage(c, "exp", |c| {
            c.compute("", &all, DType::F32, |i| {
                Expr::unary(UnaryOp::Exp, Expr::load(x, i.to_vec()) - Expr::load(max, vec![i[0].clone()]))
            })
        });
        let sum = reduce(c, "sum", exp, Combiner::Sum);
        stage(c, "y", |c| {
            c.compute("", &all, DType::F32, |i| Expr::load(exp, i.to_vec()) / Expr::load(sum, vec![i[0].clone()]))
        })
    })
}

/// Content of a parameter: pseudo-random, from its name only.
fn random(name: Name, n: usize) -> Vec<f64> {
    let mut state = name.as_str().bytes().fold(0x9e37_79b9u64, |a, b| a.wrapping_mul(31).wrapping_add(u64::from(b)));
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % 2001) as f64 / 1000.0 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// Random content of the parameters that a function reads.
pub fn inputs_of(f: &TensorFunction) -> Vec<Tensor> {
    f.inputs()
        .map(|b| {
            let packer = f.prepacks.iter().find(|p| p.buffer == b).map(|p| &p.packer);
            let packed = packer.and_then(|p| Some(p.declared_shape(p.inputs().next()?)));
            let shape = tensor_ir::int::const_dims(packed.unwrap_or(f.declared_shape(b))).expect("constant shape");
            let n = shape.iter().product();
            Tensor::from_f64(f.buffers[b].dtype, shape, random(f.buffers[b].name, n))
        })
        .collect()
}
