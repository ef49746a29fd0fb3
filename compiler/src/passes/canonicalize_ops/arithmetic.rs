//! Functions of a constant, and functions that are equal to another one.

use crate::graph::Constant;
use crate::ops::binary::{Add, Div, Max, Min, Mul, Pow, Sub};
use crate::ops::clip::Clip;
use crate::ops::unary::{Exp, Neg, Reciprocal, Relu, Sigmoid};
use crate::passes::rules::{Change, Match, Operand, Rule};
use crate::pattern::{commuted, constant, either, number, op, op_from, var};
use crate::tensor::Tensor;

pub(super) const RULES: &[Rule] = &[
    Rule {
        equation: "1 / (1 + exp(-x)) = sigmoid(x)",
        pattern: || {
            let below = commuted::<Add>(number(1.0), op::<Exp>([op::<Neg>([var("x")])]));
            either([op::<Div>([number(1.0), below.clone()]), op::<Reciprocal>([below])])
        },
        apply: |m| Change::node(Sigmoid {}, [m.value("x")]),
    },
    Rule {
        equation: "1 / x = reciprocal(x)",
        pattern: || either([op::<Div>([number(1.0), var("x")]), op::<Pow>([var("x"), number(-1.0)])]).float(),
        apply: |m| Change::node(Reciprocal {}, [m.value("x")]),
    },
    Rule {
        equation: "x - c = x + (-c)",
        pattern: || op::<Sub>([var("x"), constant().float().named("c")]),
        apply: |m| with_constant(m, |v| Some(-v)).and_then(|c| Change::node(Add {}, [m.value("x").into(), c])),
    },
    Rule {
        equation: "x / c = x * (1 / c) when that is exact",
        pattern: || op::<Div>([var("x"), constant().float().named("c")]),
        apply: |m| with_constant(m, power_of_two).and_then(|c| Change::node(Mul {}, [m.value("x").into(), c])),
    },
    Rule {
        equation: "max(x, 0) = relu(x)",
        pattern: || commuted::<Max>(var("x"), number(0.0)),
        apply: |m| Change::node(Relu {}, [m.value("x")]),
    },
    Rule {
        equation: "max(x, c) = clip(x, c, inf), min(x, c) = clip(x, -inf, c)",
        pattern: || {
            let c = constant().named("c");
            either([commuted::<Max>(var("x"), c.clone()), commuted::<Min>(var("x"), c)])
        },
        apply: |m| {
            let c = m.scalar(m.value("c")).filter(|c| c.is_finite())?;
            let clip = match m.op::<Max>() {
                Some(_) => Clip { min: Some(c), max: None },
                None => Clip { min: None, max: Some(c) },
            };
            Change::node(clip, [m.value("x")])
        },
    },
    Rule {
        equation: "clip(x, operands) = clip(x, attributes) when they are known",
        pattern: || op_from::<Clip>([var("x")]),
        apply: |m| {
            let (c, operands) = (m.op::<Clip>()?, m.operands());
            if operands.len() < 2 {
                return None;
            }
            let bound = |i: usize, own: Option<f64>| match operands.get(i).copied().flatten() {
                Some(v) if own.is_none() => m.scalar(v).map(Some),
                _ => Some(own),
            };
            Change::node(Clip { min: bound(1, c.min)?, max: bound(2, c.max)? }, [m.value("x")])
        },
    },
];

/// The constant `c` of the match with `f` of each element, where all of them have one.
fn with_constant(m: &Match<'_, '_>, f: impl Fn(f64) -> Option<f64>) -> Option<Operand> {
    let old = m.small_constant(m.value("c"))?;
    if m.constant(m.value("x")).is_some() {
        return None;
    }
    let new: Vec<f64> = old.to_f64_vec().into_iter().map(f).collect::<Option<_>>()?;
    let new = Tensor::from_f64(old.dtype(), old.shape().to_vec(), new);
    Some(Operand::Constant("constant", Constant::from_tensor(&new)))
}

/// `1 / c` for a power of two within the range of every float type that has it.
fn power_of_two(c: f64) -> Option<f64> {
    let mantissa = c.to_bits() & ((1 << 52) - 1);
    (mantissa == 0 && (1e-4..=1e4).contains(&c.abs())).then(|| 1.0 / c)
}
