//! Kernels of the schedule rules for common workloads and several devices, compared with the host executor.

use crate::device::{gpu, has_f16};
use crate::{assert_close, random, run_bytes};
use compiler::compile::assign_encodings;
use compiler::dtype::DType;
use compiler::graph::TensorType;
use compiler::int::{Int, const_dims};
use compiler::interpreter::run_tensor_function;
use compiler::ops::winograd::{WinogradInput, WinogradOutput};
use compiler::ops::{DataLayout, Op};
use compiler::profile::DeviceProfile;
use compiler::schedule::rules::{Choice, Scheduled, choices, schedule, schedule_with};
use compiler::schedule::{ScheduleOptions, ScheduleTarget};
use compiler::te::ComputeContext;
use compiler::tensor::Tensor;
use compiler::tir::{Access, Buffer, BufferId, Combiner, Cond, Encoding, Expr, Param, Scope, TensorFunction, UnaryOp};
use half::f16;

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

fn workloads(t: DType) -> Vec<(&'static str, TensorFunction)> {
    let mut out = vec![
        ("elementwise 64x32", elementwise(t, &[64, 32])),
        ("elementwise 5x7", elementwise(t, &[5, 7])),
        ("matmul 56x64x16", matmul(t, 56, 64, 16)),
        ("matmul 30x20x12", matmul(t, 30, 20, 12)),
        ("matmul 33x17x13", matmul(t, 33, 17, 13)),
        ("matmul 1x40x64", matmul(t, 1, 40, 64)),
        ("conv 3x3", conv(t, &Conv { n: 1, c: 16, h: 14, oc: 32, k: 3, stride: 1, pad: 1 })),
        ("conv 1x1", conv(t, &Conv { n: 2, c: 12, h: 7, oc: 24, k: 1, stride: 1, pad: 0 })),
        ("conv stem", conv(t, &Conv { n: 1, c: 3, h: 17, oc: 8, k: 7, stride: 2, pad: 3 })),
        ("depthwise 3x3", depthwise(t, &Conv { n: 1, c: 16, h: 14, oc: 16, k: 3, stride: 1, pad: 1 })),
        ("depthwise wide", depthwise(t, &Conv { n: 1, c: 32, h: 60, oc: 32, k: 3, stride: 1, pad: 1 })),
        ("depthwise stride", depthwise(t, &Conv { n: 1, c: 16, h: 21, oc: 16, k: 3, stride: 2, pad: 1 })),
        ("depthwise odd", depthwise(t, &Conv { n: 1, c: 7, h: 19, oc: 7, k: 5, stride: 1, pad: 2 })),
        ("elementwise 3x5x7", elementwise(t, &[3, 5, 7])),
        ("elementwise 1x1", elementwise(t, &[1, 1])),
        ("matmul 21x13x40", matmul(t, 21, 13, 40)),
        ("conv odd", conv(t, &Conv { n: 1, c: 5, h: 9, oc: 11, k: 3, stride: 2, pad: 1 })),
        ("softmax 6x10", softmax(t, 6, 10)),
        ("softmax 7x13", softmax(t, 7, 13)),
        ("softmax 3x1000", softmax(t, 3, 1000)),
        ("softmax 1x777", softmax(t, 1, 777)),
        ("softmax 40x100", softmax(t, 40, 100)),
        ("largest 2x500", largest(t, 2, 500)),
        ("largest 200x70", largest(t, 200, 70)),
        ("joined products", joined(t)),
        ("conv pool", conv_pool(t, &Conv { n: 2, c: 12, h: 15, oc: 24, k: 3, stride: 1, pad: 1 }, 2)),
        ("conv pool 3x3", conv_pool(t, &Conv { n: 1, c: 5, h: 11, oc: 18, k: 1, stride: 1, pad: 0 }, 3)),
        ("conv pool odd", conv_pool(t, &Conv { n: 1, c: 8, h: 9, oc: 11, k: 3, stride: 1, pad: 1 }, 2)),
    ];
    if t == DType::F32 {
        out.push(("transpose", transpose(t, [3, 20, 36])));
        out.push(("max pool", max_pool(12, 8)));
        for (layout, c) in [(DataLayout::Nhwc, 12), (DataLayout::Nhwc, 5), (DataLayout::Nchw, 8)] {
            for tile in [2, 4] {
                out.push(("tiles of data", tiles(tile, [2, 13, 10, c], layout)));
                out.push(("tiles of products", products(tile, [2, 13, 10, c], layout)));
            }
        }
    }
    out
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

fn bytes_of(t: &Tensor) -> Vec<u8> {
    t.bytes().to_vec()
}

fn tensor(dtype: DType, f: &TensorFunction, b: BufferId, seed: u64) -> Tensor {
    let shape = const_dims(&f.buffers[b].shape).expect("constant shape");
    let n = shape.iter().product();
    Tensor::from_f64(dtype, shape, random(n, seed).into_iter().map(f64::from))
}

/// Schedules, emits, runs, compares.
fn check<'a>(what: &str, t: DType, original: &TensorFunction, target: impl Into<ScheduleTarget<'a>>) {
    let target = target.into();
    let profile = target.profile;
    let mut f = original.clone();
    assign_encodings(&mut f, profile).unwrap_or_else(|e| panic!("{what}: {e}"));
    let inputs: Vec<BufferId> = f.inputs().collect();
    let tensors: Vec<Tensor> = inputs.iter().enumerate().map(|(i, b)| tensor(t, &f, *b, i as u64 + 1)).collect();
    let want = run_tensor_function(original, &tensors).expect("the host runs it").remove(0);
    let s = schedule(&f, &inputs[1..], target).unwrap_or_else(|e| panic!("{what}: {e}"));
    println!("{what} {t} on {}: rule {} (declined: {:?})", profile.name, s.rule, s.declined);
    agrees(what, t, &f, (&tensors, &want), &s, profile);
}

/// Runs what is scheduled of `f`.
fn agrees(
    what: &str,
    t: DType,
    f: &TensorFunction,
    (tensors, want): (&[Tensor], &Tensor),
    s: &Scheduled,
    profile: &DeviceProfile,
) {
    let inputs: Vec<BufferId> = f.inputs().collect();
    for (name, _) in s.function.kernels() {
        let k = shaders_gen::emit_kernel(&s.function, name, profile).unwrap_or_else(|e| panic!("{what}: {e}"));
        let generated = k.module.downcast_ref::<shaders_gen::GeneratedModule>().expect("a generated module");
        assert!(k.bounds_proved, "{what}: {:#?}\n{}", generated.unproved, k.wgsl);
    }
    let memory: Vec<(BufferId, Vec<u8>)> = inputs
        .iter()
        .zip(tensors)
        .map(|(b, x)| match s.function.prepacks.iter().find(|p| p.buffer == *b) {
            Some(p) => {
                let packed = run_tensor_function(&p.packer, std::slice::from_ref(x)).expect("packs");
                (*b, bytes_of(&packed[0]))
            }
            None => (*b, bytes_of(x)),
        })
        .collect();
    let out = s.function.outputs().next().expect("an output");
    let got = run_bytes(&s.function, profile, &memory, out);
    let n = want.len();
    let got: Vec<f32> = match t {
        DType::F16 => got[..2 * n].chunks_exact(2).map(|c| f16::from_le_bytes([c[0], c[1]]).to_f32()).collect(),
        _ => got[..4 * n].chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect(),
    };
    let want: Vec<f32> = want.to_f64_vec().into_iter().map(|x| x as f32).collect();
    assert_close(&got, &want, if t == DType::F16 { 4e-3 } else { 2e-4 });
}

pub fn real_device() -> DeviceProfile {
    let name = "no subgroups".into();
    DeviceProfile { name, software: false, subgroup: (0, 0), driver: String::new(), ..gpu().profile.clone() }
}

pub fn software_device() -> DeviceProfile {
    let DeviceProfile { subgroup, f16, .. } = gpu().profile;
    DeviceProfile { name: "software".into(), subgroup, f16, ..DeviceProfile::lavapipe() }
}

/// A device with subgroups of the size that is here, whose rules do not count on that size.
pub fn subgroup_device() -> DeviceProfile {
    DeviceProfile { name: "subgroups".into(), subgroup: gpu().profile.subgroup, ..real_device() }
}

/// Sums, products and extremes of random lengths: by one subgroup, by several, and through workgroup memory.
#[test]
fn every_way_to_share_a_reduction() {
    let mut tried = 0;
    for seed in 0..3 {
        let n: Vec<i64> = random(4, 90 + seed).into_iter().map(|x| (x.abs() * 700.0) as i64 % 700).collect();
        let works = [
            ("softmax", softmax(DType::F32, 1 + n[0] % 5, 130 + n[1])),
            ("softmax of vectors", softmax(DType::F32, 2, 4 * (40 + n[2] / 4))),
            ("largest", largest(DType::F32, 1 + n[3] % 3, 200 + n[0])),
        ];
        for (what, f) in works {
            for base in [subgroup_device(), software_device()] {
                let asked = ScheduleOptions::of_rules(["rows", "reduction-threads"]);
                let base = base.limited_to(&gpu().profile);
                tried += check_choices(what, DType::F32, &f, asked.on(&base));
            }
        }
    }
    assert!(tried > 100, "{tried}");
}

#[test]
fn rules_for_devices_with_subgroups() {
    for (what, f) in workloads(DType::F32) {
        check(what, DType::F32, &f, &subgroup_device());
        // A driver whose compiler unrolls loops.
        check(what, DType::F32, &f, &subgroup_device().with_driver(INTEL));
    }
}

#[test]
fn rules_for_software_devices() {
    for (what, f) in workloads(DType::F32) {
        check(what, DType::F32, &f, &software_device());
    }
}

#[test]
fn rules_for_real_devices() {
    for (what, f) in workloads(DType::F32) {
        check(what, DType::F32, &f, &real_device());
    }
}

/// The product and the convolutions of the workloads in f16, every choice; on Mesa's lavapipe from version 25 on.
#[test]
fn rules_on_matrix_units() {
    let own = &gpu().profile;
    if own.matrix_units().is_ok_and(|all| all.is_empty()) {
        eprintln!("NOT RUN: {} multiplies no matrices of f16 into f32", own.name);
        return;
    }
    let asked = ScheduleOptions::of_rules(["matmul-matrix"]);
    for profile in std::iter::once(own.clone()).chain(with_words(own)) {
        let mut tried = 0;
        // The last one may be cut into slices.
        for (m, n, k) in [(16, 16, 16), (37, 21, 40), (70, 130, 64), (19, 36, 1024)] {
            tried += check_choices("product", DType::F16, &matmul(DType::F16, m, n, k), asked.on(&profile));
        }
        for (what, f) in workloads(DType::F16).into_iter().filter(|w| w.0.contains("conv")) {
            check(what, DType::F16, &f, asked.on(&profile));
        }
        assert!(tried >= 12, "{tried}");
    }
}

const INTEL: &str = "intel open-source mesa driver";

/// This device with the drivers on which memory of halves is words, in each way.
fn with_words(p: &DeviceProfile) -> impl Iterator<Item = DeviceProfile> {
    let driver = |d: &str| DeviceProfile { software: false, ..p.clone().with_driver(d) };
    ["nvidia", "radv", INTEL].map(driver).into_iter().filter(|p| p.half_words().is_some())
}

#[test]
fn rules_on_native_halves() {
    if !has_f16("rules_on_native_halves") {
        return;
    }
    for (what, f) in workloads(DType::F16) {
        check(what, DType::F16, &f, &software_device());
        check(what, DType::F16, &f, &real_device());
        with_words(&subgroup_device()).for_each(|p| check(what, DType::F16, &f, &p));
    }
}

#[test]
fn rules_on_packed_halves() {
    for (what, f) in workloads(DType::F16) {
        check(what, DType::F16, &f, &DeviceProfile { f16: false, ..software_device() });
        check(what, DType::F16, &f, &DeviceProfile { f16: false, ..real_device() });
    }
}

/// Every value of each choice that the rule makes which the target asks for.
pub fn check_choices(what: &str, t: DType, original: &TensorFunction, target: ScheduleTarget<'_>) -> usize {
    let ScheduleTarget { profile, options } = target;
    let mut f = original.canonical();
    assign_encodings(&mut f, profile).unwrap_or_else(|e| panic!("{what}: {e}"));
    let inputs: Vec<BufferId> = f.inputs().collect();
    let tensors: Vec<Tensor> = inputs.iter().enumerate().map(|(i, b)| tensor(t, &f, *b, i as u64 + 1)).collect();
    let want = run_tensor_function(original, &tensors).expect("the host runs it").remove(0);
    let first = schedule(&f, &inputs[1..], target).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(options.asks_for(first.rule), "{what} on {}: rule {}: {:?}", profile.name, first.rule, first.declined);
    agrees(what, t, &f, (&tensors, &want), &first, profile);
    let mut tried = 0;
    for c in choices(&first.function.trace).into_iter().filter(|c| !["rule", "function"].contains(&c.point.as_str())) {
        for value in &c.of[1..] {
            let one = Choice { unit: c.unit, point: c.point, value: value.clone() };
            println!("{what} {t} on {}: {one:?}", profile.name);
            let s = schedule_with(&f, &inputs[1..], target, &[one]).unwrap_or_else(|e| panic!("{what}: {e}"));
            agrees(what, t, &f, (&tensors, &want), &s, profile);
            tried += 1;
        }
    }
    tried
}

/// Random shapes, most of which end inside a tile; halves native and packed.
#[test]
fn every_tile_of_a_transpose() {
    let mut tried = 0;
    for seed in 0..6 {
        let sizes = random(3, 70 + seed).into_iter().map(|x| 5 + (x.abs() * 60.0) as i64 % 60).collect::<Vec<_>>();
        // Some divide into vectors along one side, some along both.
        let shape = match seed % 3 {
            0 => [1 + sizes[0] % 3, sizes[1], sizes[2]],
            1 => [1 + sizes[0] % 3, sizes[1] / 4 * 4 + 4, sizes[2]],
            _ => [1 + sizes[0] % 3, sizes[1] / 4 * 4 + 4, sizes[2] / 4 * 4 + 4],
        };
        for (t, f16) in [(DType::F32, true), (DType::F16, true), (DType::F16, false)] {
            if t == DType::F16 && !f16 && shape[1] % 4 != 0 {
                continue;
            }
            for base in [real_device(), software_device()] {
                let f16 = f16 && gpu().profile.f16;
                let profile = DeviceProfile { f16, ..base };
                let asked = ScheduleOptions::of_rules(["transpose-tiled"]);
                tried += check_choices(&format!("transpose {shape:?}"), t, &transpose(t, shape), asked.on(&profile));
            }
        }
    }
    assert!(tried > 60, "{tried}");
}

/// Tiles that do not end at words keep their rule: they go to f32 memory, and one more kernel packs them.
#[test]
fn odd_rows_of_packed_halves_keep_their_tiles() {
    for (profile, rule) in [(software_device(), "matmul-subgroup"), (real_device(), "matmul-tiled")] {
        let profile = DeviceProfile { f16: false, ..profile };
        for (columns, kernels) in [(17, 2), (16, 1)] {
            let mut f = matmul(DType::F16, 33, columns, 16);
            assign_encodings(&mut f, &profile).expect("encodings");
            let inputs: Vec<BufferId> = f.inputs().collect();
            let s = schedule(&f, &inputs[1..], &profile).expect("a schedule");
            assert_eq!((s.rule, s.function.kernels().len()), (rule, kernels), "{columns} columns: {:?}", s.declined);
        }
    }
}

#[test]
fn rules_with_buffer_slices() {
    let profile = DeviceProfile { max_binding: 4096, max_storage_buffers: 32, ..real_device() };
    check("matmul", DType::F32, &matmul(DType::F32, 40, 48, 64), &profile);
    check("elementwise", DType::F32, &elementwise(DType::F32, &[100, 30]), &profile);
}
