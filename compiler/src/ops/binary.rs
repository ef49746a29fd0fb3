//! Elementwise functions of two operands, with NumPy broadcasting.

use super::broadcast::{broadcast_dims, operand_index};
use super::cast::Cast;
use super::unary::{Domain, Identity, check, computed_in};
use super::{Checked, DataLayout, InferContext, Op, OpRef, OpResult, PackedOp, Precision};
use crate::dtype::DType;
use crate::graph::{TensorType, ValueId};
use crate::int::{Cond, Dim};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{BinaryOp, Expr, UnaryOp};
use crate::{attr_enum, attr_struct};

/// Type of a broadcast function's result: both operands have one dtype of the domain.
fn infer_zip(cx: &InferContext<'_>, domain: Domain) -> OpResult<Vec<TensorType>> {
    let (a, b) = (cx.require(0)?, cx.require(1)?);
    if a.dtype != b.dtype {
        return Err(format!("operands are {} and {}", a.dtype, b.dtype).into());
    }
    check(domain, a.dtype)?;
    Ok(vec![TensorType::new(a.dtype, broadcast_dims(&a.shape, &b.shape)?)])
}

/// The stage `out[i] = f(a[i], b[i], dtype)` with broadcasting.
fn compute_zip(cx: &mut ComputeContext<'_>, domain: Domain, f: impl FnOnce(Expr, Expr, DType) -> Expr) -> OpResult<()> {
    let (a, b) = (cx.require(0)?, cx.require(1)?);
    let (from, to, shape) = (cx.dtype(a), cx.output_type(0).dtype, cx.output_type(0).shape.clone());
    let (a_shape, b_shape) = (cx.shape(a), cx.shape(b));
    let math = computed_in(domain, from);
    let out = cx.compute("", &shape, to, |i| {
        let a = Expr::load(a, operand_index(i, &shape, &a_shape)).cast(from, math);
        let b = Expr::load(b, operand_index(i, &shape, &b_shape)).cast(from, math);
        let value = f(a, b, math);
        if to == DType::Bool { value } else { value.cast(math, to) }
    });
    cx.output(0, out);
    Ok(())
}

/// Integer values of a broadcast function's result.
fn zip_values(cx: &InferContext<'_>, f: impl Fn(&Dim, &Dim) -> Option<Dim>) -> Option<Vec<Dim>> {
    let (a, b) = (cx.int_input(0)?, cx.int_input(1)?);
    let n = if a.len() == 1 { b.len() } else { a.len() };
    if (a.len() != n && a.len() != 1) || (b.len() != n && b.len() != 1) {
        return None;
    }
    let at = |v: &[Dim], i: usize| if v.len() == 1 { v[0].clone() } else { v[i].clone() };
    (0..n).map(|i| f(&at(&a, i), &at(&b, i))).collect()
}

/// The same of a function that divides by operand 1: symbolic divisors are none of those that may be below 0.
fn zip_divided(cx: &InferContext<'_>, f: fn(&Dim, &Dim) -> Option<Dim>) -> Option<Vec<Dim>> {
    if cx.input(0)?.dtype.is_float() {
        return None;
    }
    let fits = |b: &Dim| b.as_const().is_some() || cx.module.dims.proves(b, 0);
    zip_values(cx, |a, b| if fits(b) { f(a, b) } else { None })
}

/// Folds two constants, without overflow, or combines symbols.
fn fold(a: &Dim, b: &Dim, constant: fn(i64, i64) -> Option<i64>, symbolic: fn(Dim, Dim) -> Option<Dim>) -> Option<Dim> {
    match (a.as_const(), b.as_const()) {
        (Some(a), Some(b)) => constant(a, b).map(Dim::new),
        _ => symbolic(a.clone(), b.clone()),
    }
}

/// The quotient rounded towards 0, by a divisor above 0.
fn truncated_quotient(a: Dim, b: Dim) -> Option<Dim> {
    if b.as_const().is_some_and(|c| c < 1) {
        return None;
    }
    let below = (Dim::new(0) - &a).max(0).div(&b);
    Some(a.max(0).div(b) - below)
}

macro_rules! binary_ops {
    ($($(#[$doc:meta])* $name:ident($text:literal), $onnx:literal $import:ident $since:literal, $domain:ident $($trait:ident)? $(-> $result:ident)?,
        |$a:ident, $b:ident, $t:ident| $value:expr $(, $int:expr)? $(=> holds $cond:expr)? $(=> divides $quotient:expr)? $(=> unpacked $why:literal)?;)*) => {
        $(
            attr_struct! { $(#[$doc])* pub struct $name($text) {} }
            impl Op for $name {
                fn arity(&self) -> (usize, usize) {
                    (2, 2)
                }
                fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
                    #[allow(unused_mut)]
                    let mut types = infer_zip(cx, Domain::$domain)?;
                    $(types[0].dtype = DType::$result;)?
                    Ok(types)
                }
                $(fn infer_value(&self, cx: &InferContext<'_>) -> Option<Vec<Dim>> {
                    zip_values(cx, $int)
                })?
                $(fn infer_value(&self, cx: &InferContext<'_>) -> Option<Vec<Dim>> {
                    let cond: fn(&Dim, &Dim) -> Cond = $cond;
                    zip_values(cx, |a, b| Some(cx.module.dims.truth(&cond(a, b))))
                })?
                $(fn infer_value(&self, cx: &InferContext<'_>) -> Option<Vec<Dim>> {
                    zip_divided(cx, $quotient)
                })?
                fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
                    compute_zip(cx, Domain::$domain, |$a: Expr, $b: Expr, $t: DType| $value)
                }
                fn broadcasts(&self) -> bool {
                    true
                }
                $(fn commutes(&self) -> bool {
                    stringify!($trait) == "commuting"
                }
                fn checked(&self, types: &[Option<&TensorType>]) -> Option<Checked> {
                    if stringify!($trait) == "dividing" { Checked::divisors(types) } else { None }
                })?
                $(fn packed(&self, _layout: DataLayout, _cx: &InferContext<'_>) -> Option<OpResult<PackedOp>> {
                    Some(Err($why.into()))
                })?
                fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
                    cx.simple($onnx, vec![]);
                    Ok(())
                }
            }
        )*
        /// ONNX importers.
        pub const ONNX: &[OnnxImport] = &[
            $(OnnxImport { op_type: $onnx, domain: "", since: $since, import: |cx| $import(cx, OpRef::new($name {})) },)*
            OnnxImport { op_type: "Pow", domain: "", since: 7, import: import_pow },
            OnnxImport { op_type: "Sum", domain: "", since: 6, import: |cx| import_chain(cx, OpRef::new(Add {})) },
            OnnxImport { op_type: "Mean", domain: "", since: 6, import: import_mean },
            OnnxImport { op_type: "Mod", domain: "", since: 10, import: import_mod },
            OnnxImport { op_type: "BitShift", domain: "", since: 11, import: import_bit_shift },
        ];
    };
}

fn apply(op: BinaryOp, a: Expr, b: Expr) -> Expr {
    Expr::binary(op, a, b)
}

binary_ops! {
    /// `a + b`.
    Add("add"), "Add" import_two 7, Number commuting, |a, b, _t| a + b, |a, b| fold(a, b, i64::checked_add, |a, b| Some(a + b));
    /// `a - b`.
    Sub("sub"), "Sub" import_two 7, Number, |a, b, _t| a - b, |a, b| fold(a, b, i64::checked_sub, |a, b| Some(a - b));
    /// `a * b`.
    Mul("mul"), "Mul" import_two 7, Number commuting, |a, b, _t| a * b, |a, b| fold(a, b, i64::checked_mul, |a, b| Some(a * b));
    /// `a / b`; of integers, rounded towards 0.
    Div("div"), "Div" import_two 7, Number dividing, |a, b, _t| a / b
        => divides |a, b| fold(a, b, i64::checked_div, truncated_quotient);
    /// Smaller of two.
    Min("min"), "Min" import_chain 8, Number commuting, |a, b, _t| a.min(b), |a, b| Some(a.min(b));
    /// Larger of two.
    Max("max"), "Max" import_chain 8, Number commuting, |a, b, _t| a.max(b), |a, b| Some(a.max(b));
    /// `x` where not negative, else `slope * x`.
    PRelu("prelu"), "PRelu" import_two 7, Number, |x, slope, t| {
        let low = Expr::binary(BinaryOp::Lt, x.clone(), Expr::int(0, t));
        Expr::select(low, x.clone() * slope, x)
    } => unpacked "its slope runs along the channels";
    /// `a == b`.
    Equal("equal"), "Equal" import_two 7, Any commuting -> Bool, |a, b, _t| apply(BinaryOp::Eq, a, b) => holds |a, b| Cond::eq(a, b);
    /// `a > b`.
    Greater("greater"), "Greater" import_two 7, Number -> Bool, |a, b, _t| apply(BinaryOp::Gt, a, b) => holds |a, b| Cond::lt(b, a);
    /// `a >= b`.
    GreaterOrEqual("greater_or_equal"), "GreaterOrEqual" import_two 12, Number -> Bool, |a, b, _t| apply(BinaryOp::Ge, a, b)
        => holds |a, b| Cond::ge(a, b);
    /// `a < b`.
    Less("less"), "Less" import_two 7, Number -> Bool, |a, b, _t| apply(BinaryOp::Lt, a, b) => holds |a, b| Cond::lt(a, b);
    /// `a <= b`.
    LessOrEqual("less_or_equal"), "LessOrEqual" import_two 12, Number -> Bool, |a, b, _t| apply(BinaryOp::Le, a, b)
        => holds |a, b| Cond::ge(b, a);
    /// Logical and.
    And("and"), "And" import_two 7, Logic commuting, |a, b, _t| apply(BinaryOp::And, a, b), |a, b| Some(a.min(b));
    /// Logical or.
    Or("or"), "Or" import_two 7, Logic commuting, |a, b, _t| apply(BinaryOp::Or, a, b), |a, b| Some(a.max(b));
    /// Logical exclusive or.
    Xor("xor"), "Xor" import_two 7, Logic commuting, |a, b, _t| apply(BinaryOp::Xor, a, b), |a, b| Some(a.max(b) - a.min(b));
    /// And of every bit.
    BitAnd("bit_and"), "BitwiseAnd" import_two 18, Integer commuting, |a, b, _t| apply(BinaryOp::BitAnd, a, b);
    /// Or of every bit.
    BitOr("bit_or"), "BitwiseOr" import_two 18, Integer commuting, |a, b, _t| apply(BinaryOp::BitOr, a, b);
    /// Exclusive or of every bit.
    BitXor("bit_xor"), "BitwiseXor" import_two 18, Integer commuting, |a, b, _t| apply(BinaryOp::BitXor, a, b);
}

attr_struct! {
    /// `a` to the power `b`.
    pub struct Pow("pow") {}
}
impl Op for Pow {
    fn arity(&self) -> (usize, usize) {
        (2, 2)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        infer_zip(cx, Domain::Number)
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let exponent = cx.constant(1).filter(|t| t.len() == 1).map(|t| t.to_f64_vec()[0]);
        let float = cx.dtype(cx.require(0)?).is_float();
        let domain = if float { Domain::Float } else { Domain::Number };
        compute_zip(cx, domain, |a, b, t| match exponent {
            Some(1.0) => a,
            Some(2.0) => a.clone() * a,
            Some(3.0) => a.clone() * a.clone() * a,
            Some(0.5) if float => square_root(a, t),
            Some(-1.0) if float => Expr::constant(1.0, t) / a,
            _ => apply(BinaryOp::Pow, a, b),
        })
    }
    fn precision(&self) -> Precision {
        Precision::Never
    }
    fn broadcasts(&self) -> bool {
        true
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        cx.simple("Pow", vec![]);
        Ok(())
    }
}

/// `a ^ 0.5`: the root, where 0 and infinity count as positive.
fn square_root(a: Expr, t: DType) -> Expr {
    let size = Expr::unary(UnaryOp::Abs, a.clone());
    let is = |end: f64| Expr::binary(BinaryOp::Eq, size.clone(), Expr::constant(end, t));
    let at_end = Expr::binary(BinaryOp::Or, is(0.0), is(f64::INFINITY));
    Expr::unary(UnaryOp::Sqrt, Expr::select(at_end, size, a))
}

attr_struct! {
    /// Remainder of `a / b`.
    pub struct Mod("mod") {
        /// True for the sign of the dividend (C's `fmod`), false for the sign of the divisor.
        pub fmod: bool = false,
    }
}
impl Op for Mod {
    fn arity(&self) -> (usize, usize) {
        (2, 2)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        infer_zip(cx, Domain::Number)
    }
    fn infer_value(&self, cx: &InferContext<'_>) -> Option<Vec<Dim>> {
        if self.fmod {
            return zip_values(cx, |a, b| fold(a, b, i64::checked_rem, |_, _| None));
        }
        zip_divided(cx, |a, b| fold(a, b, floor_mod, |a, b| b.as_const().is_none_or(|c| c > 0).then(|| a.rem(b))))
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let op = if self.fmod { BinaryOp::TruncMod } else { BinaryOp::FloorMod };
        let domain = if cx.output_type(0).dtype.is_float() { Domain::Float } else { Domain::Number };
        compute_zip(cx, domain, |a, b, _| apply(op, a, b))
    }
    fn broadcasts(&self) -> bool {
        true
    }
    fn checked(&self, types: &[Option<&TensorType>]) -> Option<Checked> {
        Checked::divisors(types)
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        cx.simple("Mod", vec![("fmod", OnnxAttr::Int(self.fmod as i64))]);
        Ok(())
    }
}

fn floor_mod(a: i64, b: i64) -> Option<i64> {
    a.checked_rem(b).map(|r| if r != 0 && (r < 0) != (b < 0) { r + b } else { r })
}

attr_enum! {
    /// Where bits are shifted to.
    pub enum ShiftDirection {
        /// To higher places.
        Left = "left",
        /// To lower places.
        Right = "right",
    }
}

attr_struct! {
    /// `a` shifted by `b` bits.
    pub struct BitShift("bit_shift") {
        /// The direction.
        pub direction: ShiftDirection = ShiftDirection::Left,
    }
}
impl Op for BitShift {
    fn arity(&self) -> (usize, usize) {
        (2, 2)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        infer_zip(cx, Domain::Integer)
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let op = if self.direction == ShiftDirection::Left { BinaryOp::Shl } else { BinaryOp::Shr };
        compute_zip(cx, Domain::Integer, |a, b, _| apply(op, a, b))
    }
    fn broadcasts(&self) -> bool {
        true
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        cx.simple("BitShift", vec![("direction", OnnxAttr::Str(self.direction.name().to_uppercase()))]);
        Ok(())
    }
}

fn import_two(cx: &mut ImportContext<'_, '_>, op: OpRef) -> OpResult<Vec<ValueId>> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    Ok(vec![cx.add(op, &[a, b])?])
}

/// A variadic op as a chain of two-operand ones.
fn import_chain(cx: &mut ImportContext<'_, '_>, op: OpRef) -> OpResult<Vec<ValueId>> {
    let mut acc = cx.input(0)?;
    if cx.inputs.len() == 1 {
        acc = cx.add(Identity {}, &[acc])?;
    }
    for i in 1..cx.inputs.len() {
        let next = cx.input(i)?;
        acc = cx.add(op.clone(), &[acc, next])?;
    }
    Ok(vec![acc])
}

fn import_mean(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let sum = import_chain(cx, OpRef::new(Add {}))?[0];
    let dtype = cx.b.ty(sum).dtype;
    let n = cx.constant(&Tensor::from_f64(dtype, vec![], [cx.inputs.len() as f64]));
    Ok(vec![cx.add(Div {}, &[sum, n])?])
}

/// Operands of different types are computed in the float one of them, and the result has the type of the base.
fn import_pow(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (mut base, mut exponent) = (cx.input(0)?, cx.input(1)?);
    let (from, by) = (cx.ty(0)?.dtype, cx.ty(1)?.dtype);
    let math = if !from.is_float() && by.is_float() { by } else { from };
    if from != math {
        base = cx.add(Cast::new(math), &[base])?;
    }
    if by != math {
        exponent = cx.add(Cast::new(math), &[exponent])?;
    }
    let mut out = cx.add(Pow {}, &[base, exponent])?;
    if from != math {
        out = cx.add(Cast::new(from), &[out])?;
    }
    Ok(vec![out])
}

fn import_mod(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let fmod = cx.attrs.int("fmod").unwrap_or(0) != 0;
    import_two(cx, OpRef::new(Mod { fmod }))
}

fn import_bit_shift(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let text = cx.attrs.str("direction").unwrap_or_default().to_lowercase();
    let direction = ShiftDirection::parse(&text).ok_or("direction is neither LEFT nor RIGHT")?;
    import_two(cx, OpRef::new(BitShift { direction }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{run, try_run};

    #[test]
    fn operands_broadcast_from_every_side() {
        let a = Tensor::from_vec(vec![2, 1], vec![1.0f32, 2.0]);
        let b = Tensor::from_vec(vec![3], vec![10.0f32, 20.0, 30.0]);
        let sum = run(Add {}, &[&a, &b]);
        assert_eq!(sum.shape(), [2, 3]);
        assert_eq!(sum.to_f64_vec(), [11.0, 21.0, 31.0, 12.0, 22.0, 32.0]);
        assert_eq!(run(Sub {}, &[&Tensor::scalar(1.0f32), &b]).to_f64_vec(), [-9.0, -19.0, -29.0]);
        assert!(try_run(Mul {}, &[&Tensor::ints(&[1, 2]), &Tensor::ints(&[1, 2, 3])]).is_err());
        assert!(try_run(Mul {}, &[&Tensor::ints(&[1]), &b]).is_err());
    }

    #[test]
    fn integers_divide_towards_zero_and_remainders_have_the_sign_asked_for() {
        let (a, b) = (Tensor::ints(&[-7, 7, -7, 7]), Tensor::ints(&[2, -2, -2, 2]));
        assert_eq!(run(Div {}, &[&a, &b]).to_i64_vec(), [-3, -3, 3, 3]);
        assert_eq!(run(Mod { fmod: false }, &[&a, &b]).to_i64_vec(), [1, -1, -1, 1]);
        assert_eq!(run(Mod { fmod: true }, &[&a, &b]).to_i64_vec(), [-1, 1, -1, 1]);
    }

    #[test]
    fn powers() {
        let x = Tensor::from_vec(vec![3], vec![-2.0f32, 0.5, 3.0]);
        let to = |e: f32| run(Pow {}, &[&x, &Tensor::scalar(e)]).to_f64_vec();
        assert_eq!(to(2.0), [4.0, 0.25, 9.0]);
        assert_eq!(to(3.0), [-8.0, 0.125, 27.0]);
        assert_eq!(to(-1.0)[..2], [-0.5, 2.0]);
        assert_eq!(to(0.0), [1.0, 1.0, 1.0]);
        let ends = Tensor::from_vec(vec![3], vec![f32::NEG_INFINITY, -0.0, f32::INFINITY]);
        let roots = run(Pow {}, &[&ends, &Tensor::scalar(0.5f32)]).to_f64_vec();
        assert_eq!(roots, [f64::INFINITY, 0.0, f64::INFINITY]);
        assert!(roots[1].is_sign_positive());
    }

    #[test]
    fn shape_arithmetic_does_not_overflow() {
        assert_eq!(fold(&Dim::new(i64::MAX), &Dim::new(1), i64::checked_add, |a, b| Some(a + b)), None);
        assert_eq!(floor_mod(i64::MIN, -1), None);
        assert_eq!(floor_mod(-7, 3), Some(2));
        assert_eq!(floor_mod(1, 0), None);
    }
}
