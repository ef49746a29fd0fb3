//! Workloads of one kernel or a few, for tests of schedules on devices and on processors.

use compiler::dtype::DType;
use compiler::graph::TensorType;
use compiler::int::{Int, const_dims};
use compiler::ops::winograd::{WinogradInput, WinogradOutput};
use compiler::ops::{DataLayout, Op};
use compiler::te::ComputeContext;
use compiler::tir::{Access, Buffer, BufferId, Combiner, Cond, Encoding, Expr, Param, Scope, TensorFunction, UnaryOp};

pub fn ints(dims: &[i64]) -> Vec<Int> {
    dims.iter().map(|&d| Int::new(d)).collect()
}

/// A function with read parameters `inputs`; `build` appends stages, the last of which writes the result.
pub fn function(
    dtype: DType,
    inputs: &[(&str, &[i64])],
    build: impl FnOnce(&mut TensorFunction, &[BufferId]) -> BufferId,
) -> TensorFunction {
    let mut f = TensorFunction::new("test");
    let mut ids = Vec::new();
    for (name, shape) in inputs {
        let (scope, encoding) = (Scope::Global, Encoding::Native);
        let buffer = f.buffers.push(Buffer { name: (*name).into(), dtype, shape: ints(shape), scope, encoding });
        f.params.push(Param { buffer, access: Access::Read });
        ids.push(buffer);
    }
    let out = build(&mut f, &ids);
    f.params.push(Param { buffer: out, access: Access::Write });
    f
}

pub fn stage(f: &mut TensorFunction, prefix: &str, build: impl FnOnce(&mut ComputeContext) -> BufferId) -> BufferId {
    build(&mut ComputeContext::new(f, vec![], vec![], vec![], prefix))
}

pub fn wide(b: BufferId, ix: Vec<Int>, t: DType) -> Expr {
    Expr::load(b, ix).cast(t, DType::F32)
}

pub fn narrow(e: Expr, t: DType) -> Expr {
    e.cast(DType::F32, t)
}

pub fn elementwise(t: DType, shape: &[i64]) -> TensorFunction {
    function(t, &[("x", shape), ("s", &shape[1..])], |f, ids| {
        let (x, s) = (ids[0], ids[1]);
        stage(f, "y", |c| {
            c.compute("", &ints(shape), t, |i| {
                let e = Expr::unary(UnaryOp::Tanh, wide(x, i.to_vec(), t)) * wide(s, i[1..].to_vec(), t);
                narrow(e, t)
            })
        })
    })
}

/// The last two dimensions change places; an operand that lies like the result is added.
pub fn transpose(t: DType, shape: [i64; 3]) -> TensorFunction {
    let out = [shape[0], shape[2], shape[1]];
    function(t, &[("x", &shape), ("z", &out[1..])], |f, ids| {
        let (x, z) = (ids[0], ids[1]);
        stage(f, "y", |c| {
            c.compute("", &ints(&out), t, |i| {
                let across = wide(x, vec![i[0].clone(), i[2].clone(), i[1].clone()], t);
                narrow(across + wide(z, i[1..].to_vec(), t), t)
            })
        })
    })
}

pub fn matmul(t: DType, m: i64, n: i64, k: i64) -> TensorFunction {
    function(t, &[("a", &[m, k]), ("w", &[k, n]), ("bias", &[n])], |f, ids| {
        let (a, w, bias) = (ids[0], ids[1], ids[2]);
        let mm = stage(f, "mm", |c| {
            c.reduce("", &ints(&[m, n]), DType::F32, &ints(&[k]), Combiner::Sum, |s, r| {
                wide(a, vec![s[0].clone(), r[0].clone()], t) * wide(w, vec![r[0].clone(), s[1].clone()], t)
            })
        });
        stage(f, "y", |c| {
            c.compute("", &ints(&[m, n]), t, |i| {
                let sum = Expr::load(mm, i.to_vec()) + wide(bias, vec![i[1].clone()], t);
                narrow(sum.max(Expr::constant(0.0, DType::F32)), t)
            })
        })
    })
}

pub struct Conv {
    pub n: i64,
    pub c: i64,
    pub h: i64,
    pub oc: i64,
    pub k: i64,
    pub stride: i64,
    pub pad: i64,
}

pub fn conv(t: DType, p: &Conv) -> TensorFunction {
    let oh = (p.h + 2 * p.pad - p.k) / p.stride + 1;
    let inputs: [(&str, &[i64]); 3] = [("x", &[p.n, p.h, p.h, p.c]), ("w", &[p.k, p.k, p.c, p.oc]), ("bias", &[p.oc])];
    function(t, &inputs, |f, ids| {
        let (x, wt, bias) = (ids[0], ids[1], ids[2]);
        let shape = ints(&[p.n, oh, oh, p.oc]);
        let acc = stage(f, "conv", |c| {
            c.reduce("", &shape, DType::F32, &ints(&[p.k, p.k, p.c]), Combiner::Sum, |s, r| {
                let at = |d: usize| s[d + 1].clone() * p.stride + &r[d] - p.pad;
                let conds = [at(0), at(1)].into_iter().flat_map(|i| [Cond::ge(i.clone(), 0), Cond::lt(i, p.h)]);
                let load = wide(x, vec![s[0].clone(), at(0), at(1), r[2].clone()], t);
                let conds = if p.pad == 0 { vec![] } else { conds.collect() };
                let load = Expr::guarded(conds, load, Expr::constant(0.0, DType::F32));
                load * wide(wt, vec![r[0].clone(), r[1].clone(), r[2].clone(), s[3].clone()], t)
            })
        });
        stage(f, "y", |c| {
            c.compute("", &shape, t, |i| narrow(Expr::load(acc, i.to_vec()) + wide(bias, vec![i[3].clone()], t), t))
        })
    })
}

/// Depthwise, of one image of `h` x `h`, in NHWC.
pub fn depthwise(t: DType, p: &Conv) -> TensorFunction {
    let oh = (p.h + 2 * p.pad - p.k) / p.stride + 1;
    function(t, &[("x", &[1, p.h, p.h, p.c]), ("w", &[p.k, p.k, p.c]), ("bias", &[p.c])], |f, ids| {
        let (x, wt, bias) = (ids[0], ids[1], ids[2]);
        let shape = ints(&[1, oh, oh, p.c]);
        let acc = stage(f, "conv", |c| {
            c.reduce("", &shape, DType::F32, &ints(&[p.k, p.k]), Combiner::Sum, |s, r| {
                let at = |d: usize| s[d + 1].clone() * p.stride + &r[d] - p.pad;
                let conds = [at(0), at(1)].into_iter().flat_map(|i| [Cond::ge(i.clone(), 0), Cond::lt(i, p.h)]);
                let load = wide(x, vec![s[0].clone(), at(0), at(1), s[3].clone()], t);
                let load = Expr::guarded(conds.collect(), load, Expr::constant(0.0, DType::F32));
                load * wide(wt, vec![r[0].clone(), r[1].clone(), s[3].clone()], t)
            })
        });
        stage(f, "y", |c| {
            c.compute("", &shape, t, |i| narrow(Expr::load(acc, i.to_vec()) + wide(bias, vec![i[3].clone()], t), t))
        })
    })
}

pub fn softmax(t: DType, rows: i64, columns: i64) -> TensorFunction {
    function(t, &[("x", &[rows, columns])], |f, ids| {
        let x = ids[0];
        let (row, all, red) = (ints(&[rows]), ints(&[rows, columns]), ints(&[columns]));
        let max = stage(f, "max", |c| {
            c.reduce("", &row, DType::F32, &red, Combiner::Max, |s, r| wide(x, vec![s[0].clone(), r[0].clone()], t))
        });
        let exp = stage(f, "exp", |c| {
            c.compute("", &all, DType::F32, |i| {
                Expr::unary(UnaryOp::Exp, wide(x, i.to_vec(), t) - Expr::load(max, vec![i[0].clone()]))
            })
        });
        let sum = stage(f, "sum", |c| {
            c.reduce("", &row, DType::F32, &red, Combiner::Sum, |s, r| {
                Expr::load(exp, vec![s[0].clone(), r[0].clone()])
            })
        });
        stage(f, "y", |c| {
            c.compute("", &all, t, |i| narrow(Expr::load(exp, i.to_vec()) / Expr::load(sum, vec![i[0].clone()]), t))
        })
    })
}

/// The largest element of each row.
pub fn largest(t: DType, rows: i64, columns: i64) -> TensorFunction {
    function(t, &[("x", &[rows, columns])], |f, ids| {
        let x = ids[0];
        let max = stage(f, "max", |c| {
            c.reduce("", &ints(&[rows]), DType::F32, &ints(&[columns]), Combiner::Max, |s, r| {
                wide(x, vec![s[0].clone(), r[0].clone()], t)
            })
        });
        stage(f, "y", |c| c.compute("", &ints(&[rows]), t, |i| narrow(Expr::load(max, i.to_vec()), t)))
    })
}

/// The largest element of each column, as a global pool of channels-last images reads them.
pub fn largest_of_columns(t: DType, rows: i64, columns: i64) -> TensorFunction {
    function(t, &[("x", &[rows, columns])], |f, ids| {
        let x = ids[0];
        let max = stage(f, "max", |c| {
            c.reduce("", &ints(&[columns]), DType::F32, &ints(&[rows]), Combiner::Max, |s, r| {
                wide(x, vec![r[0].clone(), s[0].clone()], t)
            })
        });
        stage(f, "y", |c| c.compute("", &ints(&[columns]), t, |i| narrow(Expr::load(max, i.to_vec()), t)))
    })
}

/// Two products side by side: each is written into its part of the result.
pub fn joined(t: DType) -> TensorFunction {
    let (m, k, left, right) = (21, 12, 16, 8);
    function(t, &[("x", &[m, k]), ("u", &[k, left]), ("v", &[k, right])], |f, ids| {
        let x = ids[0];
        let product = |f: &mut TensorFunction, name: &str, w: BufferId, n: i64| {
            stage(f, name, |c| {
                c.reduce("", &ints(&[m, n]), DType::F32, &ints(&[k]), Combiner::Sum, |s, r| {
                    wide(x, vec![s[0].clone(), r[0].clone()], t) * wide(w, vec![r[0].clone(), s[1].clone()], t)
                })
            })
        };
        let (a, b) = (product(f, "a", ids[1], left), product(f, "b", ids[2], right));
        stage(f, "y", |c| {
            c.compute("", &ints(&[m, left + right]), t, |i| {
                let second = Expr::load(b, vec![i[0].clone(), i[1].clone() - left]);
                narrow(Expr::guarded(vec![Cond::lt(i[1].clone(), left)], Expr::load(a, i.to_vec()), second), t)
            })
        })
    })
}

pub fn max_pool(h: i64, channels: i64) -> TensorFunction {
    function(DType::F32, &[("x", &[1, h, h, channels])], |f, ids| {
        let x = ids[0];
        stage(f, "y", |c| {
            c.reduce("", &ints(&[1, h / 2, h / 2, channels]), DType::F32, &ints(&[3, 3]), Combiner::Max, |s, r| {
                let at = |d: usize| s[d + 1].clone() * 2 + &r[d] - 1;
                let conds = [at(0), at(1)].into_iter().flat_map(|i| [Cond::ge(i.clone(), 0), Cond::lt(i, h)]).collect();
                let load = Expr::load(x, vec![s[0].clone(), at(0), at(1), s[3].clone()]);
                Expr::guarded(conds, load, Expr::constant(f64::NEG_INFINITY, DType::F32))
            })
        })
    })
}

/// Workloads that the interpreter runs in milliseconds: every kind once, with tails.
pub fn small_workloads(t: DType) -> Vec<(&'static str, TensorFunction)> {
    let mut out = vec![
        ("elementwise 5x7", elementwise(t, &[5, 7])),
        ("elementwise 8x12", elementwise(t, &[8, 12])),
        ("matmul 6x8x8", matmul(t, 6, 8, 8)),
        ("matmul 5x11x9", matmul(t, 5, 11, 9)),
        ("conv 3x3", conv(t, &Conv { n: 1, c: 2, h: 4, oc: 8, k: 3, stride: 1, pad: 1 })),
        ("conv odd", conv(t, &Conv { n: 1, c: 3, h: 5, oc: 9, k: 3, stride: 2, pad: 1 })),
        ("depthwise", depthwise(t, &Conv { n: 1, c: 3, h: 5, oc: 3, k: 3, stride: 1, pad: 1 })),
        ("softmax 6x10", softmax(t, 6, 10)),
        ("softmax 2x70", softmax(t, 2, 70)),
        ("largest 2x90", largest(t, 2, 90)),
        ("conv pool", conv_pool(t, &Conv { n: 1, c: 2, h: 4, oc: 8, k: 3, stride: 1, pad: 1 }, 2)),
    ];
    if t == DType::F32 {
        out.push(("transpose", transpose(t, [2, 5, 6])));
        out.push(("max pool", max_pool(6, 4)));
        out.push(("tiles of data", tiles(4, [1, 5, 6, 2], DataLayout::Nhwc)));
        out.push(("tiles of products", products(2, [1, 5, 3, 2], DataLayout::Nchw)));
    }
    out
}

/// Winograd's transform of images `[n, h, w, c]`, which lie in the layout.
pub fn tiles(tile: i64, [n, h, w, c]: [i64; 4], layout: DataLayout) -> TensorFunction {
    let shape = if layout == DataLayout::Nhwc { [n, h, w, c] } else { [n, c, h, w] };
    let op = WinogradInput { tile, pads: vec![1, 0, 2, 1], layout };
    function(DType::F32, &[("x", &shape)], |f, ids| {
        let made = op.result(&TensorType::new(DType::F32, ints(&shape))).expect("a result");
        stage_of(f, &op, vec![Some(ids[0])], made)
    })
}

/// Winograd's transform of products to images `[n, h, w, c]`, with a bias and a rectifier behind it.
pub fn products(tile: i64, [n, h, w, c]: [i64; 4], layout: DataLayout) -> TensorFunction {
    let last = layout == DataLayout::Nhwc;
    let (t, count) = (tile + 2, n * ((h + tile - 1) / tile) * ((w + tile - 1) / tile));
    let shape = if last { [t, t, count, c] } else { [t, t, c, count] };
    let image = if last { [n, h, w, c] } else { [n, c, h, w] };
    let op = WinogradOutput { tile, height: h.into(), width: w.into(), layout };
    function(DType::F32, &[("x", &shape), ("bias", &[c])], |f, ids| {
        let made = TensorType::new(DType::F32, ints(&image));
        let y = stage_of(f, &op, vec![Some(ids[0]), Some(ids[1])], made);
        stage(f, "relu", |c| {
            let value = |i: &[Int]| Expr::load(y, i.to_vec()).max(Expr::constant(0.0, DType::F32));
            c.compute("", &ints(&image), DType::F32, value)
        })
    })
}

/// The stages of an op.
fn stage_of(f: &mut TensorFunction, op: &dyn Op, inputs: Vec<Option<BufferId>>, made: TensorType) -> BufferId {
    let constants = vec![None; inputs.len()];
    let mut cx = ComputeContext::new(f, inputs, constants, vec![made], "y");
    op.compute(&mut cx).expect("an expression");
    cx.into_outputs()[0].expect("a result")
}

/// A convolution with bias and rectifier, then the largest elements of windows that do not overlap.
pub fn conv_pool(t: DType, p: &Conv, window: i64) -> TensorFunction {
    let mut f = conv(t, p);
    let y = f.params.pop().expect("a result").buffer;
    let shape = const_dims(&f.buffers[y].shape).expect("constant sizes");
    let out = [p.n, shape[1] as i64 / window, shape[2] as i64 / window, p.oc];
    let pool = stage(&mut f, "pool", |c| {
        c.reduce("", &ints(&out), t, &ints(&[window, window]), Combiner::Max, |s, r| {
            let at = |d: usize| s[d].clone() * window + &r[d - 1];
            Expr::load(y, vec![s[0].clone(), at(1), at(2), s[3].clone()]).max(Expr::constant(0.0, t))
        })
    });
    f.params.push(Param { buffer: pool, access: Access::Write });
    f
}
