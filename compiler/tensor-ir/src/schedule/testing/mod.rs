//! Support for tests of instructions: small functions to schedule, instructions from text, and the comparison of
//! results. The interpreter refuses accesses out of bounds and races, and gives NaN for elements that were never
//! written.

mod composite;
mod proposals;

pub use proposals::*;

use super::{InstrRef, apply};
use crate::dtype::DType;
use crate::int::Int;
use crate::name::Name;
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{Access, Buffer, BufferId, Combiner, Cond, Encoding, Expr, Param, Scope, TensorFunction, UnaryOp};

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

fn ints(dims: &[i64]) -> Vec<Int> {
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

/// Windows behind a convolution: their size and steps along height and width, padding before and behind, the combiner.
pub struct PoolingSpec {
    pub kernel: [i64; 2],
    pub stride: [i64; 2],
    pub pad: i64,
    pub combiner: Combiner,
}

/// `conv` 3x3 without padding on `x[n, h, w, c_in]`, or with the channels first, then bias and rectifier, then windows
/// of that: blocks conv, t, y.
pub fn conv_windows(first: bool, [n, c_in, h, w, oc]: [i64; 5], p: &PoolingSpec) -> TensorFunction {
    let at = |n: Int, c: Int, y: Int, x: Int| if first { vec![n, c, y, x] } else { vec![n, y, x, c] };
    let part = |i: &[Int]| -> [Int; 4] {
        let (c, y, x) = if first { (1, 2, 3) } else { (3, 1, 2) };
        [&i[0], &i[c], &i[y], &i[x]].map(Clone::clone)
    };
    let shape = |n: i64, c: i64, y: i64, x: i64| if first { [n, c, y, x] } else { [n, y, x, c] };
    let (oh, ow) = (h - 2, w - 2);
    let size = |d: usize, o: i64| (o + 2 * p.pad - p.kernel[d]) / p.stride[d] + 1;
    function(&[("x", &shape(n, c_in, h, w)), ("w", &[3, 3, c_in, oc]), ("bias", &[oc])], |c, ids| {
        let (x, wt, bias) = (ids[0], ids[1], ids[2]);
        let wide = ints(&shape(n, oc, oh, ow));
        let acc = stage(c, "conv", |c| {
            c.reduce("", &wide, DType::F32, &ints(&[3, 3, c_in]), Combiner::Sum, |s, r| {
                let [b, o, y, x1] = part(s);
                let load = Expr::load(x, at(b, r[2].clone(), y + &r[0], x1 + &r[1]));
                load * Expr::load(wt, vec![r[0].clone(), r[1].clone(), r[2].clone(), o])
            })
        });
        let t = stage(c, "t", |c| {
            c.compute("", &wide, DType::F32, |i| {
                let sum = Expr::load(acc, i.to_vec()) + Expr::load(bias, vec![part(i)[1].clone()]);
                sum.max(Expr::constant(0.0, DType::F32))
            })
        });
        let out = ints(&shape(n, oc, size(0, oh), size(1, ow)));
        stage(c, "y", |c| {
            c.reduce("", &out, DType::F32, &ints(&p.kernel), p.combiner, |s, r| {
                let [b, o, y, x] = part(s);
                let (y, x) = (y * p.stride[0] + &r[0] - p.pad, x * p.stride[1] + &r[1] - p.pad);
                let conds = [(&y, oh), (&x, ow)].map(|(i, n)| [Cond::ge(i.clone(), 0), Cond::lt(i.clone(), n)]);
                let conds = if p.pad > 0 { conds.concat() } else { vec![] };
                Expr::guarded(conds, Expr::load(t, at(b, o, y, x)), Expr::constant(-1.0, DType::F32))
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

/// Winograd's transform of data (`input`) or of products, in NHWC with tails: as the ops of the compiler compute them.
pub fn tiles(input: bool) -> TensorFunction {
    parsed(if input { include_str!("winograd_input.weft") } else { include_str!("winograd_output.weft") })
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

/// One instruction from its text.
pub fn instruction(text: &str) -> InstrRef {
    let list = crate::text::parse_instructions(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    assert_eq!(list.len(), 1, "{text}");
    let printed = list[0].text();
    assert_eq!(crate::text::parse_instructions(&printed).expect("parses"), list, "{printed}");
    list[0].clone()
}

/// `f` with instructions applied; panics on a refusal.
pub fn scheduled(f: &TensorFunction, instructions: &[&str]) -> TensorFunction {
    let mut f = f.clone();
    for text in instructions {
        apply(&mut f, instruction(text)).unwrap_or_else(|e| panic!("{e}\n{}", super::print_loops(&f, &f.body, None)));
    }
    f
}

/// The error of one instruction.
pub fn refusal(f: &TensorFunction, text: &str) -> String {
    apply(&mut f.clone(), instruction(text)).expect_err("a refusal").to_string()
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
            let shape = crate::int::const_dims(packed.unwrap_or(f.declared_shape(b))).expect("constant shape");
            let n = shape.iter().product();
            Tensor::from_f64(f.buffers[b].dtype, shape, random(f.buffers[b].name, n))
        })
        .collect()
}

/// The elements of all results, by the interpreter.
pub fn evaluate(f: &TensorFunction) -> Vec<f64> {
    if let Err(errors) = crate::verify::verify_tensor_function(f) {
        panic!("{errors:?}\n{}", super::print_loops(f, &f.body, None));
    }
    let text = || super::print_loops(f, &f.body, None);
    let out = crate::interpreter::run_scheduled(f, &inputs_of(f)).unwrap_or_else(|e| panic!("{e}\n{}", text()));
    out.iter().flat_map(Tensor::to_f64_vec).collect()
}

/// Asserts that both functions compute the same on random inputs, up to rounding.
pub fn assert_same(a: &TensorFunction, b: &TensorFunction) {
    assert_close(&evaluate(a), &evaluate(b), b);
}

/// Asserts that these are the results of `b`, up to rounding.
fn assert_close(want: &[f64], got: &[f64], b: &TensorFunction) {
    assert_eq!(want.len(), got.len(), "number of elements");
    for (n, (x, y)) in want.iter().zip(got).enumerate() {
        let close = (x - y).abs() <= 2e-5 * (1.0 + x.abs());
        assert!(close, "element {n}: {x} became {y}\n{}", super::print_loops(b, &b.body, None));
    }
}

#[test]
fn every_instruction_has_a_header_a_filetest_and_a_row_of_documentation() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: String| std::fs::read_to_string(root.join(&path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    let docs = read("docs/schedule.md".into());
    for def in super::INSTRUCTIONS.iter() {
        let file = def.name.replace('-', "_");
        let source = read(format!("compiler/tensor-ir/src/schedule/{file}.rs"));
        let head: String = source.lines().take_while(|l| l.starts_with("//!")).collect();
        assert!(head.contains(&format!("`{}`:", def.name)), "the header of {file}.rs does not name the instruction");
        assert!(head.contains("Before -> after"), "the header of {file}.rs has no before -> after");
        assert!(read(format!("filetests/schedule/{file}.weft")).contains(def.name), "{file}.weft");
        assert!(docs.contains(&format!("| `{} {{", def.name)), "docs/schedule.md has no row for {}", def.name);
    }
}
