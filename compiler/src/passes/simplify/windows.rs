//! Explicit padding before a window moves into the window's own padding.

use super::{Change, Match, Rule};
use crate::graph::ValueId;
use crate::ops::OpRef;
use crate::ops::clip::Clip;
use crate::ops::conv::Conv;
use crate::ops::pad::{Pad, PadMode};
use crate::ops::pool::{AveragePool, MaxPool};
use crate::ops::unary::{Abs, Exp, Relu, Sigmoid};
use crate::ops::window::{AutoPad, DataLayout};

pub(super) const RULES: &[Rule] = &[
    Rule {
        equation: "conv(pad(x, 0), w) = conv(x, w) with those pads",
        apply: |m| {
            let conv = m.op::<Conv>()?;
            let p = padding(m, conv.layout, conv.auto_pad, &conv.pads, |v, _| v == 0.0)?;
            replace(m, Conv { pads: p.0, ..conv.clone() }.into(), p.1)
        },
    },
    Rule {
        equation: "average_pool(pad(x, 0)) = average_pool(x) with those pads, when padding counts",
        apply: |m| {
            let pool = m.op::<AveragePool>()?;
            if !pool.count_include_pad || pool.ceil_mode {
                return None;
            }
            let p = padding(m, pool.layout, pool.auto_pad, &pool.pads, |v, _| v == 0.0)?;
            replace(m, AveragePool { pads: p.0, ..pool.clone() }.into(), p.1)
        },
    },
    Rule {
        equation: "max_pool(pad(x, low)) = max_pool(x) with those pads, when no x is below low",
        apply: |m| {
            let pool = m.op::<MaxPool>()?;
            if pool.indices || pool.ceil_mode {
                return None;
            }
            let p = padding(m, pool.layout, pool.auto_pad, &pool.pads, |v, x| {
                v == f64::NEG_INFINITY || (v <= 0.0 && not_negative(m, x))
            })?;
            // Windows that see padding only would give the lowest value instead.
            if p.0.iter().enumerate().any(|(i, &b)| b >= pool.kernel[i % pool.kernel.len()]) {
                return None;
            }
            replace(m, MaxPool { pads: p.0, ..pool.clone() }.into(), p.1)
        },
    },
];

fn replace(m: &Match<'_, '_>, op: OpRef, x: ValueId) -> Option<Change> {
    let mut inputs = m.r.f.nodes[m.n].inputs.clone();
    inputs[0] = Some(x);
    Some(Change::Node(op, inputs))
}

/// The window's pads with those of a constant padding of its data, and the data before. `fits` is asked about the
/// constant and the data.
fn padding(
    m: &Match<'_, '_>,
    layout: DataLayout,
    auto_pad: AutoPad,
    pads: &[i64],
    fits: impl Fn(f64, ValueId) -> bool,
) -> Option<(Vec<i64>, ValueId)> {
    let (below, pad) = m.made_by::<Pad>(m.input(0)?)?;
    let x = below.input(0)?;
    if auto_pad != AutoPad::NotSet || pad.mode != PadMode::Constant || !pad.dims.is_empty() {
        return None;
    }
    let value = match below.input(1) {
        None => pad.value,
        Some(v) => *below.constant(v)?.to_f64_vec().first()?,
    };
    let rank = m.ty_of(x).rank();
    let given: Vec<i64> = pad.pads.iter().map(|p| p.as_const()).collect::<Option<_>>()?;
    if !fits(value, x) || given.len() != 2 * rank || given.iter().any(|&p| p < 0) {
        return None;
    }
    let spatial = layout.spatial_axes(rank);
    if (0..2 * rank).any(|i| given[i] != 0 && !spatial.contains(&(i % rank))) {
        return None;
    }
    let own = if pads.is_empty() { vec![0; 2 * spatial.len()] } else { pads.to_vec() };
    // A window's own padding of another value would lie outside of this one.
    if own.iter().any(|&p| p != 0) && value != 0.0 {
        return None;
    }
    let added = spatial.clone().map(|a| given[a]).chain(spatial.map(|a| given[rank + a]));
    Some((own.iter().zip(added).map(|(a, b)| a + b).collect(), x))
}

/// True when no element can be negative, by the op that makes it.
fn not_negative(m: &Match<'_, '_>, x: ValueId) -> bool {
    m.made_by::<Relu>(x).is_some()
        || m.made_by::<Abs>(x).is_some()
        || m.made_by::<Exp>(x).is_some()
        || m.made_by::<Sigmoid>(x).is_some()
        || m.made_by::<Clip>(x).is_some_and(|(_, c)| c.min.is_some_and(|v| v >= 0.0))
}
