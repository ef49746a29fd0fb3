//! Softmax and normalisations that are written out of other ops.

use crate::graph::{Constant, ValueId};
use crate::ops::OpRef;
use crate::ops::binary::{Add, Div, Mul, Pow, Sub};
use crate::ops::norm::{LayerNorm, RmsNorm};
use crate::ops::reduce::{Reduce, ReduceKind};
use crate::ops::softmax::{LogSoftmax, Softmax};
use crate::ops::unary::{Exp, Log, Reciprocal, Sqrt};
use crate::passes::rules::{Change, Match, Operand, Rule};
use crate::pattern::{Pattern, commuted, constant, either, number, op, var};
use crate::tensor::Tensor;

pub(super) const RULES: &[Rule] = &[
    Rule {
        equation: "exp(x - max(x)) / sum(exp(x - max(x))) = softmax(x)",
        pattern: || exponentials_over_sum(op::<Sub>([var("x"), kept(ReduceKind::Max, var("x")).named("max")])),
        apply: |m| {
            let axes = axes(m, "sum")?;
            if axes != self::axes(m, "max")? {
                return None;
            }
            Change::node(Softmax { axes }, [m.value("x")])
        },
    },
    Rule {
        equation: "exp(x) / sum(exp(x)) = softmax(x)",
        pattern: || exponentials_over_sum(var("x")),
        apply: |m| Change::node(Softmax { axes: axes(m, "sum")? }, [m.value("x")]),
    },
    Rule {
        equation: "log(softmax(x)) = log_softmax(x)",
        pattern: || op::<Log>([op::<Softmax>([var("x")]).named("softmax")]),
        apply: |m| {
            let axes = m.made_by::<Softmax>(m.value("softmax"))?.axes.clone();
            Change::node(LogSoftmax { axes }, [m.value("x")])
        },
    },
    Rule {
        equation: "(x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) = layer_norm(x, 1)",
        pattern: || {
            let centred = op::<Sub>([var("x"), kept(ReduceKind::Mean, var("x")).named("mean")]).named("d");
            over_root_of_mean_square(centred, var("d"))
        },
        apply: |m| {
            let (axis, epsilon) = trailing(m, "x", &axes(m, "square")?)?;
            if axes(m, "mean")? != axes(m, "square")? {
                return None;
            }
            normalised(m, LayerNorm { axis, epsilon, statistics: false }.into())
        },
    },
    Rule {
        equation: "x / sqrt(mean(x^2) + epsilon) = rms_norm(x, 1)",
        pattern: || over_root_of_mean_square(var("x"), var("x")),
        apply: |m| {
            let (axis, epsilon) = trailing(m, "x", &axes(m, "square")?)?;
            normalised(m, RmsNorm { axis, epsilon }.into())
        },
    },
    Rule {
        equation: "norm(x, 1) * s = norm(x, s)",
        pattern: || {
            let plain = |p: Pattern| p.used_once().named("norm");
            let layer = op::<LayerNorm>([var("x"), number(1.0)]).attr::<LayerNorm>("no statistics", |l| !l.statistics);
            let norm = either([plain(layer), plain(op::<RmsNorm>([var("x"), number(1.0)]))]);
            commuted::<Mul>(norm, constant().named("s"))
        },
        apply: |m| renewed(m, [m.value("x"), m.value("s")]),
    },
    Rule {
        equation: "layer_norm(x, s) + b = layer_norm(x, s, b)",
        pattern: || {
            let norm = op::<LayerNorm>([var("x"), var("s")]).attr::<LayerNorm>("no statistics", |l| !l.statistics);
            commuted::<Add>(norm.used_once().named("norm"), constant().named("b"))
        },
        apply: |m| renewed(m, [m.value("x"), m.value("s"), m.value("b")]),
    },
];

/// A reduction that keeps its axes.
fn kept(kind: ReduceKind, x: Pattern) -> Pattern {
    op::<Reduce>([x]).attr::<Reduce>(format!("{kind}, keepdims"), move |r| r.kind == kind && r.keepdims)
}

fn exponentials_over_sum(x: Pattern) -> Pattern {
    op::<Div>([op::<Exp>([x]).named("e"), kept(ReduceKind::Sum, var("e")).named("sum")])
}

/// `data / sqrt(mean(again^2) + epsilon)`.
fn over_root_of_mean_square(data: Pattern, again: Pattern) -> Pattern {
    let square = either([op::<Pow>([again.clone(), number(2.0)]), op::<Mul>([again.clone(), again])]);
    let mean = kept(ReduceKind::Mean, square).named("square");
    let root = op::<Sqrt>([commuted::<Add>(mean, constant().named("epsilon"))]);
    let inverse = either([op::<Reciprocal>([root.clone()]), op::<Div>([number(1.0), root.clone()])]);
    either([op::<Div>([data.clone(), root]), commuted::<Mul>(data, inverse)])
}

fn axes(m: &Match<'_, '_>, name: &str) -> Option<Vec<usize>> {
    Some(m.made_by::<Reduce>(m.value(name))?.axes.clone())
}

/// The first of the axes when they are the last ones of `x`, and epsilon.
fn trailing(m: &Match<'_, '_>, x: &str, axes: &[usize]) -> Option<(usize, f64)> {
    let (first, rank) = (*axes.first()?, m.ty_of(m.value(x)).rank());
    let epsilon = m.scalar(m.value("epsilon")).filter(|e| *e >= 0.0)?;
    axes.iter().copied().eq(first..rank).then_some((first, epsilon))
}

/// The normalisation of `x` with a scale of 1.
fn normalised(m: &Match<'_, '_>, op: OpRef) -> Option<Change> {
    let one = Tensor::from_f64(m.ty().dtype, vec![], [1.0]);
    let scale = Operand::Constant("scale", Constant::from_tensor(&one));
    Some(Change::Nodes(vec![(op, vec![m.value("x").into(), scale])]))
}

/// The normalisation of the match with other operands.
fn renewed<const N: usize>(m: &Match<'_, '_>, operands: [ValueId; N]) -> Option<Change> {
    let norm = m.r.f.def_node(m.value("norm"))?;
    Change::node(m.r.f.nodes[norm].op.clone(), operands)
}
