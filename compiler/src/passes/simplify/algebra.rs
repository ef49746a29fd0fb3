//! Neutral elements, repeated and inverse functions, clamps, casts.

use crate::dtype::DType;
use crate::graph::{Constant, Module, ValueId};
use crate::interpreter::eval_node;
use crate::ops::OpRef;
use crate::ops::binary::{Add, Div, Mul, Pow, Sub};
use crate::ops::cast::Cast;
use crate::ops::clip::Clip;
use crate::ops::control::Const;
use crate::ops::select::Where;
use crate::ops::unary::{Abs, Identity, Neg, Relu};
use crate::passes::rules::{Change, Match, Operand, Rule};
use crate::pattern::{Pattern, any, any_op, commuted, constant, either, number, op, var};
use crate::tensor::Tensor;

pub(super) const RULES: &[Rule] = &[
    Rule { equation: "identity(x) = x", pattern: || op::<Identity>([var("x")]), apply: only_x },
    Rule { equation: "x + 0 = x", pattern: || commuted::<Add>(var("x"), number(0.0)), apply: only_x },
    Rule { equation: "x * 1 = x", pattern: || commuted::<Mul>(var("x"), number(1.0)), apply: only_x },
    Rule { equation: "x - 0 = x", pattern: || op::<Sub>([var("x"), number(0.0)]), apply: only_x },
    Rule { equation: "x / 1 = x", pattern: || op::<Div>([var("x"), number(1.0)]), apply: only_x },
    Rule { equation: "x ^ 1 = x", pattern: || op::<Pow>([var("x"), number(1.0)]), apply: only_x },
    Rule { equation: "-(-x) = x", pattern: || op::<Neg>([op::<Neg>([var("x")])]), apply: only_x },
    Rule { equation: "where(c, x, x) = x", pattern: || op::<Where>([any(), var("x"), var("x")]), apply: only_x },
    Rule {
        equation: "f(f(x)) = f(x) for idempotent f",
        pattern: || any_op([any_op([any()]).named("x")]).property("idempotent", |op| op.is_idempotent()),
        apply: |m| {
            let made = |v| m.r.f.def_node(v).map(|n| &m.r.f.nodes[n].op);
            (made(m.value("x")) == Some(&m.r.f.nodes[m.n].op)).then(|| only_x(m))?
        },
    },
    Rule {
        equation: "abs(x) = x, relu(x) = x when no x is negative",
        pattern: || either([op::<Abs>([not_negative().named("x")]), op::<Relu>([not_negative().named("x")])]),
        apply: only_x,
    },
    Rule {
        equation: "clamp(clamp(x, a, b), c, d) = clamp(x, clamp(a, c, d), clamp(b, c, d))",
        pattern: || clamp(clamp(var("x")).named("inner")),
        apply: clamps,
    },
    Rule {
        equation: "clamp(x, -inf, inf) = x",
        pattern: || {
            let all = Some((f64::NEG_INFINITY, f64::INFINITY));
            any_op([var("x")]).property("unbounded", move |op| op.clamp_bounds() == all)
        },
        apply: only_x,
    },
    Rule {
        equation: "cast(x, type of x) = x when x is rounded to its type",
        pattern: || op::<Cast>([var("x")]),
        apply: same_type,
    },
    Rule {
        equation: "cast(cast(x, a), b) = cast(x, b) when a holds every x",
        pattern: || op::<Cast>([op::<Cast>([var("x")]).named("inner")]),
        apply: casts,
    },
    Rule {
        equation: "(x + a) + b = x + (a + b) for constants, unless that hides an overflow",
        pattern: || commuted::<Add>(commuted::<Add>(var("x"), small("a")).used_once(), small("b")),
        apply: |m| reassociate(m, Add {}.into()),
    },
    Rule {
        equation: "(x * a) * b = x * (a * b) for constants whose product is in range, unless that hides an overflow",
        pattern: || commuted::<Mul>(commuted::<Mul>(var("x"), small("a")).used_once(), small("b")),
        apply: |m| reassociate(m, Mul {}.into()),
    },
];

fn only_x(m: &Match<'_, '_>) -> Option<Change> {
    m.same_type(m.value("x"))
}

/// A value of which no element can be negative, by the op that makes it.
pub(super) fn not_negative() -> Pattern {
    any_op([any()]).property("never negative", |op| op.is_nonnegative())
}

/// A clamp with constant bounds.
fn clamp(x: Pattern) -> Pattern {
    any_op([x]).property("clamp", |op| op.clamp_bounds().is_some())
}

/// A constant that is small enough to compute with.
fn small(name: &'static str) -> Pattern {
    constant().float().named(name)
}

fn clamps(m: &Match<'_, '_>) -> Option<Change> {
    let (c, d) = m.r.f.nodes[m.n].op.clamp_bounds()?;
    let inner = m.value("inner");
    let (a, b) = m.r.f.nodes[m.r.f.def_node(inner)?].op.clamp_bounds()?;
    let (low, high) = (a.clamp(c, d), b.clamp(c, d));
    // When the inner clamp has other users it is computed anyway, and this one reads its result just as well.
    if (low, high) == (a, b) {
        return m.same_type(inner);
    }
    if (low, high) == (0.0, f64::INFINITY) {
        return Change::node(Relu {}, [m.value("x")]);
    }
    let finite = |v: f64| v.is_finite().then_some(v);
    Change::node(Clip { min: finite(low), max: finite(high) }, [m.value("x")])
}

fn casts(m: &Match<'_, '_>) -> Option<Change> {
    let outer = m.op::<Cast>()?;
    let to = outer.to;
    let (x, middle) = (m.value("x"), m.ty_of(m.value("inner")).dtype);
    let from = m.ty_of(x).dtype;
    if !holds(from, middle) {
        return None;
    }
    if from == to && may_leave_out(m, outer, x) { m.same_type(x) } else { Change::node(outer.clone(), [x]) }
}

fn same_type(m: &Match<'_, '_>) -> Option<Change> {
    let x = m.value("x");
    may_leave_out(m, m.op::<Cast>()?, x).then(|| m.same_type(x))?
}

/// A cast of `x` to its own type changes nothing unless it rounds, and `x` may be more precise than its type while it
/// is in registers. Parameters, constants, and what such a cast has rounded are not.
fn may_leave_out(m: &Match<'_, '_>, cast: &Cast, x: ValueId) -> bool {
    let f = &m.r.f;
    let rounded = match f.def_node(x).map(|n| &f.nodes[n].op) {
        Some(op) => op.is::<Const>() || op.downcast::<Cast>().is_some_and(Cast::rounds),
        None => f.params().contains(&x),
    };
    rounded || !cast.rounds()
}

/// `op(x, op(a, b))` with the constants computed now, when the result keeps its type.
fn reassociate(m: &Match<'_, '_>, op: OpRef) -> Option<Change> {
    // A constant `x` is for fold-constants.
    let (a, b, x) = (m.value("a"), m.value("b"), m.value("x"));
    if m.constant(x).is_some() {
        return None;
    }
    let operands = [Some(m.small_constant(a)?), Some(m.small_constant(b)?)];
    let joined = eval_node(&op, &operands, &Module::new("none")).ok()?.into_iter().next()?;
    // Where x is large or small, a product that leaves the range of its type would be no more what the two products
    // were.
    let smallest =
        if joined.dtype() == DType::F16 { f64::from(half::f16::MIN_POSITIVE) } else { f64::from(f32::MIN_POSITIVE) };
    let in_range = |v: &f64| v.is_finite() && (op.is::<Add>() || v.abs() >= smallest);
    if !joined.to_f64_vec().iter().all(in_range) || hides_overflow(&op, operands[0].as_ref()?, &joined) {
        return None;
    }
    Change::node(op, [Operand::Value(x), Operand::Constant("constant", Constant::from_tensor(&joined))])
}

/// Some `x` may overflow with the first constant and not with both joined: `(x * 2) * 0.5` of a large x is infinite.
fn hides_overflow(op: &OpRef, first: &Tensor, joined: &Tensor) -> bool {
    let sizes = |t: &Tensor| t.to_f64_vec().into_iter().map(f64::abs);
    let (largest, least) = (sizes(first).fold(0.0, f64::max), sizes(joined).fold(f64::INFINITY, f64::min));
    // A sum of the largest number and less than half its last digit does not overflow.
    let harmless = if op.is::<Add>() { -first.dtype().lowest() * 2f64.powi(-25) } else { 1.0 };
    largest > harmless && largest > least
}

/// True when every value of `from` is a value of `to`.
fn holds(from: DType, to: DType) -> bool {
    use DType::*;
    let bits = |t: DType| match t {
        Bool => 1,
        U8 => 8,
        U16 => 16,
        U32 => 32,
        U64 => 64,
        I8 => 7,
        I16 => 15,
        I32 => 31,
        I64 => 63,
        F16 => 11,
        BF16 => 8,
        F32 => 24,
        F64 => 53,
    };
    match (from, to) {
        _ if from == to => true,
        (F16 | BF16, F32 | F64) | (F32, F64) => true,
        _ if from.is_float() => false,
        (_, Bool) => false,
        _ if to.is_float() => bits(from) <= bits(to),
        _ if from.is_signed() && !to.is_signed() => false,
        _ => bits(from) <= bits(to),
    }
}
