//! Elementwise functions of one operand, without attributes.

use super::generate::Full;
use super::{Homogeneity, InferContext, Op, OpResult, Precision};
use crate::attr_struct;
use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::{TensorType, ValueId};
use crate::int::Dim;
use crate::ops::onnx::{ExportContext, ImportContext, OnnxImport};
use crate::te::ComputeContext;
pub use crate::tir::Domain;
use crate::tir::{BinaryOp, Expr, UnaryOp};

/// Refuses a dtype outside the domain.
pub(super) fn check(domain: Domain, dtype: DType) -> OpResult<()> {
    if domain.takes(dtype) { Ok(()) } else { Err(format!("does not take {dtype}").into()) }
}

/// The dtype to compute in: f32 at least for functions of floats alone.
pub(super) fn computed_in(domain: Domain, dtype: DType) -> DType {
    if domain == Domain::Float { math_dtype(dtype) } else { dtype }
}

/// The dtype in which transcendental functions are computed: f32 for narrow floats.
pub(super) fn math_dtype(dtype: DType) -> DType {
    if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype }
}

/// Type of an elementwise function's result.
///
/// # Errors
/// Without an operand, and for an element type outside the domain.
pub fn infer_map(cx: &InferContext<'_>, domain: Domain) -> OpResult<Vec<TensorType>> {
    let x = cx.require(0)?;
    check(domain, x.dtype)?;
    Ok(vec![x.clone()])
}

/// The stage `out[i] = f(x[i], dtype of x[i])`. `f` gives a bool where the result is one, else the dtype it was given.
///
/// # Errors
/// Without an operand.
pub fn compute_map(cx: &mut ComputeContext<'_>, domain: Domain, f: impl FnOnce(Expr, DType) -> Expr) -> OpResult<()> {
    let x = cx.require(0)?;
    let (from, to, shape) = (cx.dtype(x), cx.output_type(0).dtype, cx.shape(x));
    let math = computed_in(domain, from);
    let out = cx.compute("", &shape, to, |i| {
        let value = f(Expr::load(x, i.to_vec()).cast(from, math), math);
        if to == DType::Bool { value } else { value.cast(math, to) }
    });
    cx.output(0, out);
    Ok(())
}

/// A property of an op in a table: the method of [`Op`] that says so.
macro_rules! property {
    (idempotent) => {
        fn is_idempotent(&self) -> bool {
            true
        }
    };
    (nonnegative) => {
        fn is_nonnegative(&self) -> bool {
            true
        }
    };
    (rectifies) => {
        fn clamp_bounds(&self) -> Option<(f64, f64)> {
            Some((0.0, f64::INFINITY))
        }
    };
    (homogeneous) => {
        fn homogeneity(&self) -> Homogeneity {
            Homogeneity::Full
        }
    };
    (positively_homogeneous) => {
        fn homogeneity(&self) -> Homogeneity {
            Homogeneity::Positive
        }
    };
}
pub(super) use property;

macro_rules! unary_ops {
    ($($(#[$doc:meta])* $name:ident($text:literal), $onnx:literal $since:literal, $domain:ident $(: $class:ident)? $(-> $result:ident)?,
        |$x:ident, $t:ident| $value:expr $(, |$d:ident| $int:expr)? $(=> $($property:ident)+)?;)*) => {
        $(
            attr_struct! { $(#[$doc])* pub struct $name($text) {} }
            impl Op for $name {
                fn arity(&self) -> (usize, usize) {
                    (1, 1)
                }
                fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
                    #[allow(unused_mut)]
                    let mut types = infer_map(cx, Domain::$domain)?;
                    $(types[0].dtype = DType::$result;)?
                    Ok(types)
                }
                $(fn infer_value(&self, cx: &InferContext<'_>) -> Option<Vec<Dim>> {
                    cx.int_input(0)?.iter().map(|$d: &Dim| -> Option<Dim> { $int }).collect()
                })?
                fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
                    compute_map(cx, Domain::$domain, |$x: Expr, $t: DType| $value)
                }
                $(fn precision(&self) -> Precision {
                    Precision::$class
                })?
                $($(property!($property);)+)?
                fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
                    cx.simple($onnx, vec![]);
                    Ok(())
                }
            }
        )*
        /// ONNX importers.
        pub const ONNX: &[OnnxImport] = &[$(OnnxImport {
            op_type: $onnx,
            domain: "",
            since: $since,
            import: |cx| {
                let x = cx.input(0)?;
                Ok(vec![cx.add($name {}, &[x])?])
            },
        },)*
        OnnxImport { op_type: "Dropout", domain: "", since: 7, import: import_dropout }];
    };
}

fn apply(op: UnaryOp, x: Expr) -> Expr {
    Expr::unary(op, x)
}

fn number(value: f64, t: DType) -> Expr {
    Expr::constant(value, t)
}

unary_ops! {
    /// `-x`.
    Neg("neg"), "Neg" 6, Number, |x, _t| apply(UnaryOp::Neg, x), |d| Some(Dim::new(0) - d) => homogeneous;
    /// `|x|`.
    Abs("abs"), "Abs" 6, Number, |x, _t| apply(UnaryOp::Abs, x), |d| match d.as_const() {
        Some(c) => c.checked_abs().map(Dim::new),
        None => Some(d.max(Dim::new(0) - d)),
    }
        => idempotent nonnegative positively_homogeneous;
    /// `e^x`.
    Exp("exp"), "Exp" 6, Float: Never, |x, _t| apply(UnaryOp::Exp, x) => nonnegative;
    /// Natural logarithm.
    Log("log"), "Log" 6, Float, |x, _t| apply(UnaryOp::Log, x);
    /// Square root.
    Sqrt("sqrt"), "Sqrt" 6, Float, |x, _t| apply(UnaryOp::Sqrt, x);
    /// `1 / x`.
    Reciprocal("reciprocal"), "Reciprocal" 6, Float: Never, |x, t| number(1.0, t) / x;
    /// Sine.
    Sin("sin"), "Sin" 7, Float, |x, _t| apply(UnaryOp::Sin, x);
    /// Cosine.
    Cos("cos"), "Cos" 7, Float, |x, _t| apply(UnaryOp::Cos, x);
    /// Tangent.
    Tan("tan"), "Tan" 7, Float: Never, |x, _t| apply(UnaryOp::Tan, x);
    /// Arc sine.
    Asin("asin"), "Asin" 7, Float, |x, _t| apply(UnaryOp::Asin, x);
    /// Arc cosine.
    Acos("acos"), "Acos" 7, Float, |x, _t| apply(UnaryOp::Acos, x);
    /// Arc tangent.
    Atan("atan"), "Atan" 7, Float, |x, _t| apply(UnaryOp::Atan, x);
    /// Hyperbolic sine.
    Sinh("sinh"), "Sinh" 9, Float: Never, |x, _t| apply(UnaryOp::Sinh, x);
    /// Hyperbolic cosine.
    Cosh("cosh"), "Cosh" 9, Float: Never, |x, _t| apply(UnaryOp::Cosh, x);
    /// Hyperbolic tangent.
    Tanh("tanh"), "Tanh" 6, Float, |x, _t| apply(UnaryOp::Tanh, x);
    /// Inverse hyperbolic sine.
    Asinh("asinh"), "Asinh" 9, Float, |x, _t| apply(UnaryOp::Asinh, x);
    /// Inverse hyperbolic cosine.
    Acosh("acosh"), "Acosh" 9, Float, |x, _t| apply(UnaryOp::Acosh, x);
    /// Inverse hyperbolic tangent.
    Atanh("atanh"), "Atanh" 9, Float, |x, _t| apply(UnaryOp::Atanh, x);
    /// Largest integer not above `x`.
    Floor("floor"), "Floor" 6, Float, |x, _t| apply(UnaryOp::Floor, x), |d| Some(d.clone()) => idempotent;
    /// Smallest integer not below `x`.
    Ceil("ceil"), "Ceil" 6, Float, |x, _t| apply(UnaryOp::Ceil, x), |d| Some(d.clone()) => idempotent;
    /// Nearest integer, halves to even.
    Round("round"), "Round" 11, Float, |x, _t| apply(UnaryOp::Round, x), |d| Some(d.clone()) => idempotent;
    /// -1, 0 or 1.
    Sign("sign"), "Sign" 9, Number, |x, _t| apply(UnaryOp::Sign, x), |d| Some(d.max(-1).min(1)) => idempotent;
    /// Logical negation.
    Not("not"), "Not" 1, Logic, |x, _t| apply(UnaryOp::Not, x), |d| Some(Dim::new(1) - d);
    /// Negation of every bit.
    BitNot("bit_not"), "BitwiseNot" 18, Integer, |x, _t| apply(UnaryOp::BitNot, x);
    /// The error function, relative error below 2e-7.
    Erf("erf"), "Erf" 9, Float, |x, t| erf(x, t);
    /// True for NaN.
    IsNan("is_nan"), "IsNaN" 9, Float -> Bool, |x, _t| apply(UnaryOp::IsNan, x);
    /// The operand.
    Identity("identity"), "Identity" 1, Any, |x, _t| x, |d| Some(d.clone()) => idempotent homogeneous;
    /// `max(x, 0)`.
    Relu("relu"), "Relu" 6, Number, |x, t| x.max(number(0.0, t)), |d| Some(d.max(0))
        => idempotent nonnegative rectifies positively_homogeneous;
    /// `1 / (1 + e^-x)`.
    Sigmoid("sigmoid"), "Sigmoid" 6, Float, |x, t| sigmoid(x, t) => nonnegative;
    /// `log(1 + e^x)`, without overflow.
    Softplus("softplus"), "Softplus" 1, Float, |x, t| {
        let small = apply(UnaryOp::Exp, apply(UnaryOp::Neg, apply(UnaryOp::Abs, x.clone())));
        x.max(number(0.0, t)) + log_1p(small, t)
    } => nonnegative;
    /// `x / (1 + |x|)`.
    Softsign("softsign"), "Softsign" 1, Float, |x, t| x.clone() / (number(1.0, t) + apply(UnaryOp::Abs, x));
    /// `x * clamp(x / 6 + 1/2, 0, 1)`.
    HardSwish("hard_swish"), "HardSwish" 14, Float, |x, t| {
        let gate = x.clone() * number(1.0 / 6.0, t) + number(0.5, t);
        x * gate.max(number(0.0, t)).min(number(1.0, t))
    };
    /// `x * tanh(softplus(x))`.
    Mish("mish"), "Mish" 18, Float, |x, t| mish(x, t);
}

/// `log(1 + u)` for `0 <= u <= 1`, as `2 artanh(s)` with `s = u / (2 + u)`, at most a third, by its series. The
/// relative error is below 2e-8 before rounding (1e-17 in f64); `1 + u` itself would lose a small `u`.
fn log_1p(u: Expr, t: DType) -> Expr {
    let terms = if t == DType::F64 { 17 } else { 7 };
    let s = u.clone() / (u + number(2.0, t));
    let square = s.clone() * s.clone();
    let term = |n: i32| number(2.0 / f64::from(2 * n + 1), t);
    (0..terms - 1).rev().fold(term(terms - 1), |sum, n| sum * square.clone() + term(n)) * s
}

/// `1 / (1 + e^-x)`.
pub(super) fn sigmoid(x: Expr, t: DType) -> Expr {
    number(1.0, t) / (number(1.0, t) + apply(UnaryOp::Exp, apply(UnaryOp::Neg, x)))
}

/// `tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2)` for `e = e^x`; from 20 on the quotient is 1 in f32.
fn mish(x: Expr, t: DType) -> Expr {
    let e = apply(UnaryOp::Exp, x.clone().min(number(20.0, t)));
    let n = e.clone() * (e + number(2.0, t));
    x * (n.clone() / (n + number(2.0, t)))
}

/// The error function by two minimax polynomials (N. Juffa): below 0.93 `x + x P(x^2)`, above `1 - e^Q(|x|)`.
/// Beyond 4 the result is 1 in f32.
pub(super) fn erf(x: Expr, t: DType) -> Expr {
    const NEAR: [f64; 6] =
        [-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1];
    const FAR: [f64; 7] =
        [-1.72853470e-5, 3.83197126e-4, -3.88396438e-3, 2.42546219e-2, -1.06777877e-1, -6.34846687e-1, -1.28717512e-1];
    let horner =
        |c: &[f64], v: &Expr| c[1..].iter().fold(number(c[0], t), |acc, &next| acc * v.clone() + number(next, t));
    let near = horner(&NEAR, &(x.clone() * x.clone())) * x.clone() + x.clone();
    let a = apply(UnaryOp::Abs, x.clone()).min(number(4.0, t));
    let far = number(1.0, t) - apply(UnaryOp::Exp, horner(&FAR, &a) * a.clone() - a.clone());
    let signed = Expr::select(below(x, 0.0, t), apply(UnaryOp::Neg, far.clone()), far);
    Expr::select(below(a, 0.927734375, t), near, signed)
}

/// `x < limit` as a bool.
pub(super) fn below(x: Expr, limit: f64, t: DType) -> Expr {
    Expr::binary(BinaryOp::Lt, x, number(limit, t))
}

/// At inference nothing is dropped, and the mask is all true.
fn import_dropout(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let training = cx.opt(2).is_some() && cx.const_tensor(2).is_none_or(|t| t.to_i64_vec() != [0]);
    let ratio = cx.const_tensor(1).and_then(|t| t.to_f64_vec().first().copied());
    if training && ratio != Some(0.0) {
        return Err(Fault::unsupported("training mode is unsupported"));
    }
    let x = cx.input(0)?;
    let mut out = vec![cx.add(Identity {}, &[x])?];
    if cx.num_outputs > 1 {
        let shape = cx.ty(0)?.shape;
        let mask = Full { shape, value: 1.0, dtype: DType::Bool, dims: vec![] };
        out.push(cx.add(mask, &[])?);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{run, try_run};
    use crate::tensor::Tensor;

    #[test]
    fn erf_is_within_two_parts_in_ten_million() {
        // Values of erf from tables (Abramowitz and Stegun 7.1; 20 digits by series).
        let known = [
            (1e-4, 1.128379163334249e-4),
            (0.1, 0.112462916018285),
            (0.5, 0.520499877813047),
            (0.9, 0.796908212422832),
            (1.0, 0.842700792949715),
            (1.5, 0.966105146475311),
            (2.0, 0.995322265018953),
            (3.0, 0.999977909503001),
            (6.0, 1.0),
        ];
        for (x, want) in known {
            for sign in [1.0, -1.0] {
                let x = (sign * x) as f32;
                let got = run(Erf {}, &[&Tensor::scalar(x)]).to_f64_vec()[0];
                assert!((got - sign * want).abs() < 2e-7 * want, "erf({x}) = {got}, want {want}");
            }
        }
    }

    #[test]
    fn saturated_ends_stay_finite() {
        let x = Tensor::from_vec(vec![4], vec![-1e4f32, -100.0, 100.0, 1e4]);
        assert_eq!(run(Sigmoid {}, &[&x]).to_f64_vec(), [0.0, 0.0, 1.0, 1.0]);
        let softplus = run(Softplus {}, &[&x]).to_f64_vec();
        assert_eq!([softplus[0], softplus[2], softplus[3]], [0.0, 100.0, 1e4]);
        // e^-100, as exactly as a number below the normal ones can be.
        assert!((softplus[1] - (-100.0f64).exp()).abs() < 3e-45, "{}", softplus[1]);
        assert_eq!(run(Mish {}, &[&x]).to_f64_vec()[2..], [100.0, 1e4]);
        assert!(run(Mish {}, &[&x]).to_f64_vec()[1].abs() < 1e-30);
        assert_eq!(run(Erf {}, &[&x]).to_f64_vec(), [-1.0, -1.0, 1.0, 1.0]);
    }

    #[test]
    fn softplus_keeps_the_precision_of_small_results() {
        let xs = [-87.0, -40.0, -17.5, -12.34, -3.0, -0.5, -1e-3, 0.0, 1e-3, 0.7, 3.0, 12.0, 40.0];
        for dtype in [DType::F32, DType::F64] {
            let x = Tensor::from_f64(dtype, vec![xs.len()], xs);
            let bound = if dtype == DType::F32 { 1e-6 } else { 1e-14 };
            for (x, got) in x.to_f64_vec().into_iter().zip(run(Softplus {}, &[&x]).to_f64_vec()) {
                let want = x.max(0.0) + (-x.abs()).exp().ln_1p();
                assert!((got - want).abs() <= bound * want, "softplus({x}) = {got}, want {want}");
            }
        }
    }

    #[test]
    fn element_types_outside_the_domain_are_refused() {
        assert!(try_run(Not {}, &[&Tensor::scalar(1i32)]).is_err());
        assert!(try_run(Exp {}, &[&Tensor::scalar(1i32)]).is_err());
        assert!(try_run(Neg {}, &[&Tensor::zeros(DType::Bool, vec![1])]).is_err());
        assert_eq!(run(Abs {}, &[&Tensor::scalar(-3i64)]).to_i64_vec(), [3]);
    }
}
