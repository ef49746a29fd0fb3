//! Pools over whole axes, and constants that become the bias of convolutions and products.

use crate::graph::{Constant, Module};
use crate::int::const_dims;
use crate::interpreter::eval_node;
use crate::ops::Op;
use crate::ops::OpRef;
use crate::ops::binary::Add;
use crate::ops::global_pool::{GlobalAveragePool, GlobalMaxPool};
use crate::ops::matmul::Gemm;
use crate::ops::pool::{AveragePool, MaxPool};
use crate::ops::reduce::{Reduce, ReduceKind};
use crate::ops::weights::{Bias, Channels};
use crate::ops::window::{AutoPad, DataLayout};
use crate::passes::rules::{Change, Match, Operand, Rule};
use crate::passes::scaled_weights::scale_weights;
use crate::pattern::{Pattern, any, any_op, commuted, constant, op, op_from, var};

pub(super) const RULES: &[Rule] = &[
    Rule {
        equation: "average_pool(x) over everything = global_average_pool(x)",
        pattern: || {
            op::<AveragePool>([var("x")])
                .attr::<AveragePool>("no pads", |p| unpadded(p.auto_pad, &p.pads) && all_one(&p.dilations))
        },
        apply: |m| {
            let p = m.op::<AveragePool>()?;
            if covers(m, p.layout, &p.kernel) {
                return Change::node(GlobalAveragePool { layout: p.layout }, [m.value("x")]);
            }
            None
        },
    },
    Rule {
        equation: "max_pool(x) over everything = global_max_pool(x)",
        pattern: || {
            op::<MaxPool>([var("x")]).attr::<MaxPool>("no pads, values only", |p| {
                unpadded(p.auto_pad, &p.pads) && all_one(&p.dilations) && !p.indices
            })
        },
        apply: |m| {
            let p = m.op::<MaxPool>()?;
            if covers(m, p.layout, &p.kernel) {
                return Change::node(GlobalMaxPool { layout: p.layout }, [m.value("x")]);
            }
            None
        },
    },
    Rule {
        equation: "mean(x) or max(x) over the picture = global pool",
        pattern: || {
            op::<Reduce>([var("x").rank(4).float()]).attr::<Reduce>("axes 2 and 3 kept", |r| {
                r.keepdims && r.axes == [2, 3] && matches!(r.kind, ReduceKind::Mean | ReduceKind::Max)
            })
        },
        apply: |m| {
            let layout = DataLayout::Nchw;
            let op: OpRef = match m.op::<Reduce>()?.kind {
                ReduceKind::Mean => GlobalAveragePool { layout }.into(),
                _ => GlobalMaxPool { layout }.into(),
            };
            Change::node(op, [m.value("x")])
        },
    },
    Rule {
        equation: "conv(x, w) + c = conv(x, w, c)",
        pattern: || {
            let anchor = with_room_for_bias(any_op([var("x"), var("w")]), |_| true);
            commuted::<Add>(anchor.used_once().named("anchor"), constant().float().named("c"))
        },
        apply: |m| with_bias(m, None),
    },
    Rule {
        equation: "conv(x, w, b) + c = conv(x, w, b + c)",
        pattern: || {
            let anchor = any_op([var("x"), var("w"), constant().named("b")]);
            let anchor = with_room_for_bias(anchor, |b| b.factor == 1.0);
            commuted::<Add>(anchor.used_once().named("anchor"), constant().float().named("c"))
        },
        apply: |m| {
            let old = m.constant(m.value("b"))?.clone();
            with_bias(m, Some(old))
        },
    },
    Rule {
        equation: "gemm(x, w) * alpha = gemm(x, alpha * w)",
        pattern: || {
            op_from::<Gemm>([any(), constant().float().used_once().named("w")])
                .attr::<Gemm>("alpha is not 1", |g| g.alpha != 1.0)
        },
        apply: |m| {
            let gemm = m.op::<Gemm>()?;
            let channels = gemm.weight_channels(2)?.results;
            let w = scale_weights(m.constant(m.value("w"))?.clone(), &[gemm.alpha], channels)?;
            let mut operands: Vec<Operand> = m.operands().into_iter().map(Operand::from).collect();
            operands[1] = Operand::Constant("weights", w);
            Some(Change::Nodes(vec![(Gemm { alpha: 1.0, ..gemm.clone() }.into(), operands)]))
        },
    },
    Rule {
        equation: "gemm(x, w) + 0 * c = gemm(x, w)",
        pattern: || op::<Gemm>([any(), any(), any()]).attr::<Gemm>("beta is 0", |g| g.beta == 0.0),
        apply: |m| {
            let gemm = Gemm { beta: 1.0, ..m.op::<Gemm>()?.clone() };
            Some(Change::Nodes(vec![(gemm.into(), m.operands().into_iter().take(2).map(Operand::from).collect())]))
        },
    },
    Rule {
        equation: "beta * c = c2 in a gemm",
        pattern: || {
            op::<Gemm>([any(), any(), constant().float().used_once().named("c")])
                .attr::<Gemm>("beta is neither 0 nor 1", |g| g.beta != 0.0 && g.beta != 1.0)
        },
        apply: |m| {
            let (gemm, c) = (m.op::<Gemm>()?, m.constant(m.value("c"))?.clone());
            let axis = c.shape.len().checked_sub(1)?;
            let scaled = scale_weights(c, &[gemm.beta], Channels::Axis(axis))?;
            let mut operands: Vec<Operand> = m.operands().into_iter().map(Operand::from).collect();
            operands[2] = Operand::Constant("bias", scaled);
            Some(Change::Nodes(vec![(Gemm { beta: 1.0, ..gemm.clone() }.into(), operands)]))
        },
    },
];

/// A result of an op with weights that adds a bias, and how it does that passes `test`.
fn with_room_for_bias(anchor: Pattern, test: fn(&Bias) -> bool) -> Pattern {
    anchor.when("takes a bias", move |s, v| {
        let f = s.function();
        let node = f.def_node(s.resolve(v)).map(|n| &f.nodes[n]);
        let how = node.and_then(|n| n.op.weight_channels(f.ty(*n.inputs.get(1)?.as_ref()?).rank()));
        how.and_then(|h| h.bias).is_some_and(|b| test(&b))
    })
}

fn unpadded(auto_pad: AutoPad, pads: &[i64]) -> bool {
    matches!(auto_pad, AutoPad::NotSet) && pads.iter().all(|&p| p == 0)
}
fn all_one(list: &[i64]) -> bool {
    list.iter().all(|&d| d == 1)
}

/// True when the kernel is as large as the picture.
fn covers(m: &Match<'_, '_>, layout: DataLayout, kernel: &[i64]) -> bool {
    let shape = &m.ty_of(m.value("x")).shape;
    const_dims(layout.spatial(shape)).is_some_and(|s| s.iter().map(|&d| d as i64).eq(kernel.iter().copied()))
}

/// The anchor with the constant `c`, one element for each channel (or one for all), added to its bias.
fn with_bias(m: &Match<'_, '_>, old: Option<Constant>) -> Option<Change> {
    let anchor = m.value("anchor");
    let op = m.r.f.nodes[m.r.f.def_node(anchor)?].op.clone();
    let (ty, c) = (m.ty_of(anchor), m.small_constant(m.value("c"))?);
    let how = op.weight_channels(m.ty_of(m.value("w")).rank())?;
    let axis = how.result_axis(ty.rank());
    let channels = ty.shape[axis].as_const()? as usize;
    let own = (c.shape().len() + axis).checked_sub(ty.rank());
    let along = |(i, &d): (usize, &usize)| d == 1 || (Some(i) == own && d == channels);
    if c.shape().len() > ty.rank() || !c.shape().iter().enumerate().all(along) {
        return None;
    }
    let values = c.to_f64_vec();
    let added = (0..channels).map(|i| values[if values.len() == 1 { 0 } else { i }]);
    let mut bias = crate::tensor::Tensor::from_f64(c.dtype(), vec![channels], added);
    if let Some(old) = old.filter(|o| o.shape == [channels]) {
        bias = eval_node(&Add {}.into(), &[Some(old.load().ok()?), Some(bias)], &Module::new("none")).ok()?.pop()?;
    } else if m.get("b").is_some() {
        return None;
    }
    let bias = Operand::Constant("bias", Constant::from_tensor(&bias));
    Some(Change::Nodes(vec![(how.bias?.plain, vec![m.value("x").into(), m.value("w").into(), bias])]))
}
