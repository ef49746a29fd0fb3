//! Explicit padding before a window moves into the window's own padding.

use super::algebra::not_negative;
use crate::graph::ValueId;
use crate::ops::OpRef;
use crate::ops::conv::Conv;
use crate::ops::pad::{Pad, PadMode};
use crate::ops::pool::{AveragePool, MaxPool};
use crate::ops::window::{AutoPad, DataLayout};
use crate::passes::rules::{Change, Match, Operand, Rule};
use crate::pattern::{Pattern, op, op_from, var};

pub(super) const RULES: &[Rule] = &[
    Rule {
        equation: "conv(pad(x, 0), w) = conv(x, w) with those pads",
        pattern: || op_from::<Conv>([padded()]),
        apply: |m| {
            let conv = m.op::<Conv>()?;
            let pads = padding(m, conv.layout, conv.auto_pad, &conv.pads, |v, _| v == conv.pad_value as f64)?;
            replace(m, Conv { pads, ..conv.clone() }.into())
        },
    },
    Rule {
        equation: "average_pool(pad(x, 0)) = average_pool(x) with those pads, when padding counts",
        pattern: || {
            op::<AveragePool>([padded()]).attr::<AveragePool>("padding counts", |p| p.count_include_pad && !p.ceil_mode)
        },
        apply: |m| {
            let pool = m.op::<AveragePool>()?;
            let pads = padding(m, pool.layout, pool.auto_pad, &pool.pads, |v, _| v == 0.0)?;
            replace(m, AveragePool { pads, ..pool.clone() }.into())
        },
    },
    Rule {
        equation: "max_pool(pad(x, low)) = max_pool(x) with those pads, when no x is below low",
        pattern: || op::<MaxPool>([padded()]).attr::<MaxPool>("values only", |p| !p.indices && !p.ceil_mode),
        apply: |m| {
            let pool = m.op::<MaxPool>()?;
            let pads = padding(m, pool.layout, pool.auto_pad, &pool.pads, |v, x| {
                v == f64::NEG_INFINITY || (v <= 0.0 && not_negative().find(m.r, x).is_some())
            })?;
            // Windows that see padding only would give the lowest value instead.
            if pads.iter().enumerate().any(|(i, &b)| b >= pool.kernel[i % pool.kernel.len()]) {
                return None;
            }
            replace(m, MaxPool { pads, ..pool.clone() }.into())
        },
    },
];

/// Data padded with a constant.
fn padded() -> Pattern {
    op_from::<Pad>([var("x")])
        .attr::<Pad>("constant", |p| p.mode == PadMode::Constant && p.dims.is_empty())
        .named("pad")
}

/// The node as `op` on the data before the padding.
fn replace(m: &Match<'_, '_>, op: OpRef) -> Option<Change> {
    let others = m.operands().into_iter().skip(1).map(Operand::from);
    Change::node(op, [Operand::Value(m.value("x"))].into_iter().chain(others))
}

/// The window's pads with those of the padding of its data. `fits` is asked about the padded value and the data.
fn padding(
    m: &Match<'_, '_>,
    layout: DataLayout,
    auto_pad: AutoPad,
    pads: &[i64],
    fits: impl Fn(f64, ValueId) -> bool,
) -> Option<Vec<i64>> {
    let (x, pad) = (m.value("x"), m.made_by::<Pad>(m.value("pad"))?);
    if auto_pad != AutoPad::NotSet {
        return None;
    }
    let value = match m.operands_of(m.value("pad")).get(1).copied().flatten() {
        None => pad.value,
        Some(v) => m.scalar(v)?,
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
    Some(own.iter().zip(added).map(|(a, b)| a + b).collect())
}
