//! Neutral elements, repeated and inverse functions, clamps, casts.

use super::{Change, Match, Rule};
use crate::dtype::DType;
use crate::ops::binary::{Add, Div, Mul, Pow, Sub};
use crate::ops::cast::Cast;
use crate::ops::clip::Clip;
use crate::ops::unary::{Abs, Ceil, Floor, Identity, Neg, Relu, Round, Sign};

pub(super) const RULES: &[Rule] = &[
    Rule { equation: "identity(x) = x", apply: |m| m.op::<Identity>().and_then(|_| Some(Change::Value(m.input(0)?))) },
    Rule { equation: "x + 0 = x", apply: |m| m.op::<Add>().and_then(|_| neutral(m, 0.0, true)) },
    Rule { equation: "x * 1 = x", apply: |m| m.op::<Mul>().and_then(|_| neutral(m, 1.0, true)) },
    Rule { equation: "x - 0 = x", apply: |m| m.op::<Sub>().and_then(|_| neutral(m, 0.0, false)) },
    Rule { equation: "x / 1 = x", apply: |m| m.op::<Div>().and_then(|_| neutral(m, 1.0, false)) },
    Rule { equation: "x ^ 1 = x", apply: |m| m.op::<Pow>().and_then(|_| neutral(m, 1.0, false)) },
    Rule { equation: "-(-x) = x", apply: |m| inner::<Neg>(m).and_then(|(x, _)| m.same_type(x)) },
    Rule { equation: "f(f(x)) = f(x) for abs, floor, ceil, round, sign", apply: idempotent },
    Rule { equation: "clamp(clamp(x, a, b), c, d) = clamp(x, clamp(a, c, d), clamp(b, c, d))", apply: clamps },
    Rule {
        equation: "clamp(x, -inf, inf) = x",
        apply: |m| {
            let c = m.op::<Clip>()?;
            let unbounded = c.min.is_none_or(|v| v == f64::NEG_INFINITY) && c.max.is_none_or(|v| v == f64::INFINITY);
            if unbounded && m.num_inputs() == 1 { m.same_type(m.input(0)?) } else { None }
        },
    },
    Rule { equation: "cast(x, type of x) = x", apply: |m| m.op::<Cast>().and_then(|_| m.same_type(m.input(0)?)) },
    Rule { equation: "cast(cast(x, a), b) = cast(x, b) when a holds every x", apply: casts },
];

/// The operand that stays when the other one is all `value` (only the right one unless the op commutes).
fn neutral(m: &Match<'_, '_>, value: f64, commutes: bool) -> Option<Change> {
    let (a, b) = (m.input(0)?, m.input(1)?);
    if m.is_all(b, value) && m.ty_of(a) == m.ty() {
        return m.same_type(a);
    }
    if commutes && m.is_all(a, value) { m.same_type(b) } else { None }
}

/// The operand of `T` of `T`, and the inner result.
fn inner<T: 'static>(m: &Match<'_, '_>) -> Option<(crate::graph::ValueId, crate::graph::ValueId)> {
    m.op::<T>()?;
    let v = m.input(0)?;
    let (below, _) = m.made_by::<T>(v)?;
    Some((below.input(0)?, v))
}

fn idempotent(m: &Match<'_, '_>) -> Option<Change> {
    let found = inner::<Abs>(m)
        .or_else(|| inner::<Floor>(m))
        .or_else(|| inner::<Ceil>(m))
        .or_else(|| inner::<Round>(m))
        .or_else(|| inner::<Sign>(m));
    m.same_type(found?.1)
}

/// Bounds of a clamp with constant bounds: a relu is one from 0.
fn bounds(m: &Match<'_, '_>) -> Option<(f64, f64)> {
    if m.op::<Relu>().is_some() {
        return Some((0.0, f64::INFINITY));
    }
    let c = m.op::<Clip>()?;
    let (low, high) = (c.min.unwrap_or(f64::NEG_INFINITY), c.max.unwrap_or(f64::INFINITY));
    (m.num_inputs() == 1 && low <= high).then_some((low, high))
}

fn clamps(m: &Match<'_, '_>) -> Option<Change> {
    let (c, d) = bounds(m)?;
    let v = m.input(0)?;
    let below = Match { r: m.r, n: m.r.f.def_node(v)? };
    let (a, b) = bounds(&below)?;
    let (low, high) = (a.clamp(c, d), b.clamp(c, d));
    // When the inner clamp has other users it is computed anyway, and this one reads its result just as well.
    if (low, high) == (a, b) {
        return m.same_type(v);
    }
    let x = below.input(0)?;
    if (low, high) == (0.0, f64::INFINITY) {
        return Some(Change::Node(Relu {}.into(), vec![Some(x)]));
    }
    let finite = |v: f64| v.is_finite().then_some(v);
    Some(Change::Node(Clip { min: finite(low), max: finite(high) }.into(), vec![Some(x)]))
}

fn casts(m: &Match<'_, '_>) -> Option<Change> {
    let to = m.op::<Cast>()?.to;
    let (below, middle) = m.made_by::<Cast>(m.input(0)?)?;
    let x = below.input(0)?;
    let from = m.ty_of(x).dtype;
    if !holds(from, middle.to) {
        return None;
    }
    if from == to { m.same_type(x) } else { Some(Change::Node(Cast { to }.into(), vec![Some(x)])) }
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
