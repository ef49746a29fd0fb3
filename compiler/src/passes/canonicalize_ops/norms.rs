//! Softmax and normalisations that are written as several ops.

use crate::graph::{Constant, ValueId};
use crate::ops::binary::{Add, Div, Mul, Pow, Sub};
use crate::ops::group_norm::{GroupNorm, InstanceNorm};
use crate::ops::norm::{LayerNorm, RmsNorm};
use crate::ops::reduce::{Reduce, ReduceKind};
use crate::ops::reshape::Reshape;
use crate::ops::softmax::{LogSoftmax, Softmax};
use crate::ops::unary::{Exp, Log, Reciprocal, Sqrt};
use crate::ops::{DataLayout, OpRef};
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
    Rule {
        equation: "reshape(instance_norm(reshape(x), s, b)) = group_norm(x, s, b)",
        pattern: || {
            let groups = op::<Reshape>([var("x")]).used_once().named("groups");
            let norm = op::<InstanceNorm>([groups, var("s"), var("b")])
                .attr::<InstanceNorm>("channels first", |n| n.layout == DataLayout::Nchw);
            op::<Reshape>([norm.used_once().named("norm")])
        },
        apply: |m| {
            let (x, groups) = (m.ty_of(m.value("x")), m.ty_of(m.value("groups")));
            let (channels, count) = (x.shape.get(1)?.as_const()?, groups.shape[1].as_const()?);
            if x != m.ty() || x.shape[0] != groups.shape[0] || channels % count != 0 || x.rank() < 3 {
                return None;
            }
            let epsilon = m.made_by::<InstanceNorm>(m.value("norm"))?.epsilon;
            let op = GroupNorm { groups: count, epsilon, per_group: true, ..GroupNorm::default() };
            Change::node(op, [m.value("x"), m.value("s"), m.value("b")])
        },
    },
    Rule {
        equation: "group_norm(x, s, b) * c = group_norm(x, s * c, b * c)",
        pattern: || commuted::<Mul>(group_norm(), constant().named("c")),
        apply: |m| affine(m, |s, b, c| (s * c, b * c)),
    },
    Rule {
        equation: "group_norm(x, s, b) + c = group_norm(x, s, b + c)",
        pattern: || commuted::<Add>(group_norm(), constant().named("c")),
        apply: |m| affine(m, |s, b, c| (s, b + c)),
    },
];

/// A normalisation of groups whose scale and bias are constants.
fn group_norm() -> Pattern {
    op::<GroupNorm>([var("x"), constant().named("s"), constant().named("b")]).used_once().named("norm")
}

/// The group normalisation of the match with the scale and bias that `f` makes of them and of the factor or summand `c`
/// of each channel.
fn affine(m: &Match<'_, '_>, f: fn(f64, f64, f64) -> (f64, f64)) -> Option<Change> {
    let norm = m.made_by::<GroupNorm>(m.value("norm"))?.clone();
    let x = m.ty_of(m.value("x"));
    let channels = usize::try_from(norm.layout.channels(&x.shape).as_const()?).ok()?;
    let c = m.small_constant(m.value("c"))?;
    // One element for each channel, or one for all.
    let axis = (norm.layout.channel_axis(x.rank())? + c.shape().len()).checked_sub(x.rank());
    let plain = c.shape().iter().enumerate().all(|(d, n)| *n == 1 || (Some(d) == axis && *n == channels));
    if !plain || c.shape().len() > x.rank() {
        return None;
    }
    let (s, b) = (m.small_constant(m.value("s"))?, m.small_constant(m.value("b"))?);
    let (dtype, values) = (s.dtype(), [s.to_f64_vec(), b.to_f64_vec(), c.to_f64_vec()]);
    let of = |v: &[f64], channel: usize| v.get(channel * v.len() / channels).copied();
    let mut made = (Vec::with_capacity(channels), Vec::with_capacity(channels));
    for i in 0..channels {
        let (scale, bias) = f(of(&values[0], i)?, of(&values[1], i)?, of(&values[2], i)?);
        made.0.push(scale);
        made.1.push(bias);
    }
    let constant = |v: Vec<f64>| Constant::from_tensor(&Tensor::from_f64(dtype, vec![channels], v));
    let operands = vec![
        m.value("x").into(),
        Operand::Constant("scale", constant(made.0)),
        Operand::Constant("bias", constant(made.1)),
    ];
    Some(Change::Nodes(vec![(GroupNorm { per_group: false, ..norm }.into(), operands)]))
}

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
    let variance = commuted::<Add>(mean, constant().named("epsilon"));
    let root = either([op::<Sqrt>([variance.clone()]), op::<Pow>([variance, number(0.5)])]);
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
