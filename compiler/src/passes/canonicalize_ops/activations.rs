//! Activations that are written as several ops.

use crate::ops::activation::{Gelu, GeluApproximation, HardSigmoid, Swish};
use crate::ops::binary::{Add, Div, Mul, Pow};
use crate::ops::clip::Clip;
use crate::ops::unary::{Erf, HardSwish, Mish, Sigmoid, Softplus, Tanh};
use crate::passes::rules::{Change, Match, Rule};
use crate::pattern::{Pattern, commuted, either, near, number, op, var};
use std::f64::consts::{FRAC_1_SQRT_2, SQRT_2};

pub(super) const RULES: &[Rule] = &[
    Rule {
        equation: "x * sigmoid(x) = swish(x)",
        pattern: || commuted::<Mul>(var("x"), op::<Sigmoid>([var("x")])),
        apply: |m| Change::node(Swish { alpha: 1.0 }, [m.value("x")]),
    },
    Rule {
        equation: "x * tanh(softplus(x)) = mish(x)",
        pattern: || commuted::<Mul>(var("x"), op::<Tanh>([op::<Softplus>([var("x")])])),
        apply: |m| Change::node(Mish {}, [m.value("x")]),
    },
    Rule {
        equation: "x * hard_sigmoid(x) = hard_swish(x)",
        pattern: || {
            let inner = op::<HardSigmoid>([var("x")]);
            commuted::<Mul>(
                var("x"),
                inner.attr::<HardSigmoid>("alpha=1/6, beta=1/2", |h| {
                    (h.alpha - 1.0 / 6.0).abs() < 1e-4 && (h.beta - 0.5).abs() < 1e-6
                }),
            )
        },
        apply: hard_swish,
    },
    Rule {
        equation: "x * clip(x + 3, 0, 6) / 6 = hard_swish(x)",
        pattern: || {
            let product = commuted::<Mul>(var("x"), shifted_clip());
            either([sixth(product), commuted::<Mul>(sixth(var("x")), shifted_clip())])
        },
        apply: hard_swish,
    },
    Rule {
        equation: "clip(x + 3, 0, 6) / 6 = hard_sigmoid(x)",
        pattern: || sixth(shifted_clip()),
        apply: |m| Change::node(HardSigmoid { alpha: 1.0 / 6.0, beta: 0.5 }, [m.value("x")]),
    },
    Rule {
        equation: "x * (1 + erf(x / sqrt(2))) / 2 = gelu(x)",
        pattern: || {
            let inner = either([op::<Div>([var("x"), near(SQRT_2)]), commuted::<Mul>(var("x"), near(FRAC_1_SQRT_2))]);
            half_of_product(commuted::<Add>(op::<Erf>([inner]), number(1.0)))
        },
        apply: |m| Change::node(Gelu { approximate: GeluApproximation::None }, [m.value("x")]),
    },
    Rule {
        equation: "x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2 = gelu(x) by tanh",
        pattern: || {
            let square = either([op::<Mul>([var("x"), var("x")]), op::<Pow>([var("x"), number(2.0)])]);
            let cube = either([op::<Pow>([var("x"), number(3.0)]), commuted::<Mul>(var("x"), square)]);
            let inner = commuted::<Add>(var("x"), commuted::<Mul>(cube, near(0.044715)));
            let root = (2.0 / std::f64::consts::PI).sqrt();
            let tanh = op::<Tanh>([commuted::<Mul>(inner, near(root))]);
            half_of_product(commuted::<Add>(tanh, number(1.0)))
        },
        apply: |m| Change::node(Gelu { approximate: GeluApproximation::Tanh }, [m.value("x")]),
    },
];

fn hard_swish(m: &Match<'_, '_>) -> Option<Change> {
    Change::node(HardSwish {}, [m.value("x")])
}

/// `clip(x + 3, 0, 6)`.
fn shifted_clip() -> Pattern {
    op::<Clip>([commuted::<Add>(var("x"), number(3.0))])
        .attr::<Clip>("0..6", |c| c.min == Some(0.0) && c.max == Some(6.0))
}

/// `p / 6`.
fn sixth(p: Pattern) -> Pattern {
    either([op::<Div>([p.clone(), number(6.0)]), commuted::<Mul>(p, near(1.0 / 6.0))])
}

/// `p / 2`.
fn half(p: Pattern) -> Pattern {
    either([commuted::<Mul>(p.clone(), number(0.5)), op::<Div>([p, number(2.0)])])
}

/// `x * p / 2` in any order.
fn half_of_product(p: Pattern) -> Pattern {
    either([
        half(commuted::<Mul>(var("x"), p.clone())),
        commuted::<Mul>(half(var("x")), p.clone()),
        commuted::<Mul>(var("x"), half(p)),
    ])
}
