//! Compares the vector executor with the interpreter. The two share only the scalar functions.

use super::*;
use crate::dtype::DType;
use crate::int::Int;
use crate::te::{ComputeContext, broadcast_index};
use crate::tensor_type::TensorType;
use crate::tir::{Access, BinaryOp, Buffer, Combiner, Cond, Encoding, Expr, Param, UnaryOp};
use proptest::prelude::*;

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

/// One function over operands of these dtypes and shapes.
fn function(
    operands: &[(DType, &[usize])],
    out: (DType, &[usize]),
    build: impl FnOnce(&mut ComputeContext<'_>, &[BufferId], &[Int]) -> BufferId,
) -> (TensorFunction, Vec<Tensor>, Vec<BufferId>) {
    let mut f = TensorFunction::new("f");
    let (mut ids, mut inputs) = (vec![], vec![]);
    for (i, (dtype, shape)) in operands.iter().enumerate() {
        let buffer = f.buffers.push(Buffer {
            name: Name::new(&format!("x{i}")),
            dtype: *dtype,
            shape: TensorType::fixed(*dtype, shape).shape,
            scope: Scope::Global,
            encoding: Encoding::Native,
        });
        f.params.push(Param { buffer, access: Access::Read });
        ids.push(buffer);
        inputs.push(sample(*dtype, shape, i));
    }
    let ty = TensorType::fixed(out.0, out.1);
    let shape = ty.shape.clone();
    let some = ids.iter().map(|&b| Some(b)).collect();
    let mut cx = ComputeContext::new(&mut f, some, vec![None; ids.len()], vec![ty], "out");
    let result = build(&mut cx, &ids, &shape);
    (f, inputs, vec![result])
}

/// Runs both ways; the vector plan must exist.
fn agree((f, inputs, outputs): (TensorFunction, Vec<Tensor>, Vec<BufferId>), tolerance: f64) -> Vec<Tensor> {
    assert!(plan(&f).is_some(), "falls back to the interpreter: {:?}", f.body);
    let fast = execute(&f, &inputs, &outputs).unwrap();
    let slow = interpret(&f, &inputs, &outputs, None).unwrap();
    for (a, b) in fast.iter().zip(&slow) {
        close(a, b, tolerance);
    }
    fast
}

#[test]
fn elementwise_with_broadcast() {
    let f = function(&[(DType::F32, &[3, 5, 700]), (DType::F32, &[5, 1])], (DType::F32, &[3, 5, 700]), |cx, x, s| {
        cx.compute("", s, DType::F32, |i| {
            let b = Expr::load(x[1], broadcast_index(i, &[5.into(), 1.into()]));
            Expr::unary(UnaryOp::Tanh, Expr::load(x[0], i.to_vec()) * b.clone()).max(b)
        })
    });
    agree(f, 1e-6);
}

#[test]
fn neighbouring_loops_become_one() {
    let (f, ..) = function(&[(DType::F32, &[4, 5, 6])], (DType::F32, &[4, 5, 6]), |cx, x, s| {
        cx.compute("", s, DType::F32, |i| Expr::load(x[0], i.to_vec()))
    });
    let Work::Compute(nest) = plan(&f).unwrap().remove(0).work else { panic!("a compute stage") };
    assert_eq!(nest.free, [120]);
}

#[test]
fn transpose_slice_and_reverse() {
    let f = function(&[(DType::I64, &[6, 40, 9])], (DType::I64, &[4, 6, 20]), |cx, x, s| {
        cx.compute("", s, DType::I64, |i| {
            Expr::load(x[0], vec![i[1].clone(), i[2].clone() * 2 + 1, Int::new(8) - i[0].clone() * 2])
        })
    });
    agree(f, 0.0);
}

#[test]
fn loops_of_one_iteration_are_in_no_index() {
    let (mut f, inputs, outputs) = function(&[(DType::F32, &[64, 27])], (DType::F32, &[1, 27, 64]), |cx, x, s| {
        cx.compute("", s, DType::F32, |i| Expr::load(x[0], vec![i[2].clone(), i[0].clone() + &i[1]]))
    });
    crate::schedule::simplify_function(&mut f);
    assert_eq!(f.stages().expect("a stage")[0].block.indices[0], Int::new(0));
    agree((f, inputs, outputs), 0.0);
}

#[test]
fn padding_is_never_read() {
    let f = function(&[(DType::F32, &[5, 7])], (DType::F32, &[9, 12]), |cx, x, s| {
        cx.compute("", s, DType::F32, |i| {
            let (r, c) = (i[0].clone() - 2, i[1].clone() - 3);
            let conds = vec![Cond::ge(&r, 0), Cond::lt(&r, 5), Cond::ge(&c, 0), Cond::lt(&c, 7)];
            Expr::guarded(conds, Expr::load(x[0], vec![r, c]), Expr::constant(-7.0, DType::F32))
        })
    });
    agree(f, 0.0);
}

#[test]
fn reshape_division_and_gather() {
    let f = function(&[(DType::F32, &[6, 10]), (DType::I32, &[64])], (DType::F32, &[4, 15, 3]), |cx, x, s| {
        cx.compute("", s, DType::F32, |i| {
            let flat = i[0].clone() * 15 + &i[1];
            let here = Expr::load(x[0], vec![flat.div(10), flat.rem(10)]);
            let row = Int::load(x[1], vec![flat.clone() + &i[2]]).rem(6);
            let there = Expr::load(x[0], vec![row, i[2].clone()]);
            here + there
        })
    });
    agree(f, 1e-6);
}

#[test]
fn an_index_out_of_bounds_is_an_error() {
    let (f, inputs, outputs) = function(&[(DType::F32, &[4])], (DType::F32, &[4]), |cx, x, s| {
        cx.compute("", s, DType::F32, |i| Expr::load(x[0], vec![i[0].clone() + 1]))
    });
    let message = execute(&f, &inputs, &outputs).unwrap_err().message;
    assert!(message.contains("stage `out`: a load from `x0` is out of bounds"), "{message}");
}

#[test]
fn scalars_and_empty_tensors() {
    let one = |shape: &'static [usize]| {
        function(&[(DType::F32, shape)], (DType::F32, shape), |cx, x, s| {
            cx.compute("", s, DType::F32, |i| Expr::unary(UnaryOp::Neg, Expr::load(x[0], i.to_vec())))
        })
    };
    assert_eq!(agree(one(&[]), 0.0)[0].to_f32_vec(), [3.75]);
    assert_eq!(agree(one(&[3, 0, 2]), 0.0)[0].shape(), [3, 0, 2]);
    // A reduction over nothing gives the identity.
    let empty_sum = function(&[(DType::F32, &[3, 0])], (DType::F32, &[3]), |cx, x, s| {
        cx.reduce("", s, DType::F32, &[0.into()], Combiner::Max, |i, r| {
            Expr::load(x[0], vec![i[0].clone(), r[0].clone()])
        })
    });
    let (f, inputs, outputs) = empty_sum;
    assert_eq!(execute(&f, &inputs, &outputs).unwrap()[0].to_f32_vec(), [f32::NEG_INFINITY; 3]);
}

#[test]
fn every_dtype_converts() {
    for from in DType::ALL {
        for to in DType::ALL {
            let f = function(&[(from, &[600])], (to, &[600]), |cx, x, s| {
                cx.compute("", s, to, |i| Expr::load(x[0], i.to_vec()).cast(from, to))
            });
            agree(f, 0.0);
        }
    }
}

#[test]
fn every_function_of_every_dtype() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::I32, DType::I64, DType::U8, DType::U64, DType::Bool] {
        for &op in BinaryOp::ALL {
            use BinaryOp::*;
            let logical = matches!(op, And | Or | Xor);
            if (logical != (dtype == DType::Bool) && !op.is_comparison())
                || (dtype.is_float() && matches!(op, BitAnd | BitOr | BitXor | Shl | Shr))
            {
                continue;
            }
            let out = if op.is_comparison() { DType::Bool } else { dtype };
            let f = function(&[(dtype, &[130]), (dtype, &[130])], (out, &[130]), |cx, x, s| {
                cx.compute("", s, out, |i| Expr::binary(op, Expr::load(x[0], i.to_vec()), Expr::load(x[1], i.to_vec())))
            });
            agree(f, 1e-6);
        }
        for &op in UnaryOp::ALL {
            use UnaryOp::*;
            let test = matches!(op, IsNan | IsInf);
            let fits = match dtype {
                DType::Bool => op == Not,
                t if t.is_float() => !matches!(op, Not | BitNot),
                _ => matches!(op, Neg | Abs | Sign | BitNot),
            };
            if !fits {
                continue;
            }
            let out = if test { DType::Bool } else { dtype };
            let f = function(&[(dtype, &[130])], (out, &[130]), |cx, x, s| {
                cx.compute("", s, out, |i| Expr::unary(op, Expr::load(x[0], i.to_vec())))
            });
            agree(f, 1e-6);
        }
    }
}

#[test]
fn reductions_both_ways() {
    let combiners = [Combiner::Sum, Combiner::Max, Combiner::Min, Combiner::Prod];
    for dtype in [DType::F32, DType::F64, DType::I32, DType::I64, DType::U8, DType::U64, DType::Bool] {
        for c in combiners {
            if dtype == DType::Bool && matches!(c, Combiner::Sum | Combiner::Prod) {
                continue;
            }
            for axis in [0, 1] {
                let shape = [37, 41];
                let kept = shape[1 - axis];
                let f = function(&[(dtype, &shape)], (dtype, &[kept]), |cx, x, s| {
                    cx.reduce("", s, dtype, &[shape[axis].into()], c, |i, r| {
                        let (i, r) = (i[0].clone(), r[0].clone());
                        Expr::load(x[0], if axis == 0 { vec![r, i] } else { vec![i, r] })
                    })
                });
                agree(f, 1e-4);
            }
        }
    }
}

#[test]
fn long_sums_are_accurate() {
    let n = 1 << 20;
    let (f, _, outputs) = function(&[(DType::F32, &[n])], (DType::F32, &[]), |cx, x, s| {
        cx.reduce("", s, DType::F32, &[n.into()], Combiner::Sum, |_, r| Expr::load(x[0], vec![r[0].clone()]))
    });
    let x = Tensor::from_vec(vec![n], vec![0.1f32; n]);
    let sum = execute(&f, &[x], &outputs).unwrap()[0].to_f32_vec()[0];
    assert!((f64::from(sum) - n as f64 * f64::from(0.1f32)).abs() < 0.01, "{sum}");
}

#[test]
fn nan_survives_a_maximum() {
    let (f, _, outputs) = function(&[(DType::F32, &[3])], (DType::F32, &[]), |cx, x, s| {
        cx.reduce("", s, DType::F32, &[3.into()], Combiner::Max, |_, r| Expr::load(x[0], vec![r[0].clone()]))
    });
    let x = Tensor::from_vec(vec![3], vec![1.0, f32::NAN, 2.0]);
    assert!(execute(&f, &[x], &outputs).unwrap()[0].to_f32_vec()[0].is_nan());
}

#[test]
fn a_function_the_vectors_cannot_run_is_interpreted() {
    let (mut f, inputs, outputs) = function(&[(DType::F32, &[4])], (DType::F32, &[4]), |cx, x, s| {
        cx.compute("", s, DType::F32, |i| Expr::load(x[0], i.to_vec()))
    });
    f.body.visit_mut(&mut |s| {
        if let crate::tir::Stmt::Block(b) = s {
            b.indices = vec![Int::new(3) - &b.indices[0]];
        }
    });
    assert!(plan(&f).is_none());
    let mut want = inputs[0].to_f32_vec();
    want.reverse();
    assert_eq!(execute(&f, &inputs, &outputs).unwrap()[0].to_f32_vec(), want);
}

/// Random index maps and functions over a padded window of two operands.
fn expressions() -> impl Strategy<Value = (usize, usize, i64, i64, bool, u8)> {
    (1usize..40, 1usize..40, 1i64..5, -4i64..5, any::<bool>(), 0u8..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_stages_agree((rows, cols, step, shift, swap, kind) in expressions()) {
        let shape = [rows, cols];
        let f = function(&[(DType::F32, &shape), (DType::F32, &shape)], (DType::F32, &[cols, rows]), |cx, x, s| {
            let value = |i: &[Int], k: Int| {
                let r = if swap { i[1].clone() } else { (i[0].clone() * rows + &i[1]).div(cols) };
                let c = i[0].clone() * step + shift + k;
                let conds = vec![Cond::ge(&c, 0), Cond::lt(&c, cols), Cond::lt(&r, rows)];
                let padded = Expr::guarded(conds, Expr::load(x[0], vec![r, c]), Expr::constant(0.5, DType::F32));
                let other = Expr::load(x[1], vec![i[1].rem(rows), i[0].clone()]);
                match kind {
                    0 => padded * other,
                    1 => padded + other,
                    2 => Expr::select(Expr::binary(BinaryOp::Lt, padded.clone(), other.clone()), other, padded),
                    _ => Expr::unary(UnaryOp::Abs, padded).max(other),
                }
            };
            if kind % 2 == 0 {
                cx.reduce("", s, DType::F32, &[7.into()], Combiner::Sum, |i, r| value(i, r[0].clone()))
            } else {
                cx.compute("", s, DType::F32, |i| value(i, Int::new(0)))
            }
        });
        agree(f, 1e-4);
    }
}
