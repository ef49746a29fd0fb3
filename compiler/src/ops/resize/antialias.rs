//! Interpolation with a kernel that is stretched if the result is smaller than the source, so that every source element
//! contributes.

use super::coordinate::Coordinate;
use super::{Resize, ResizeMode, cubic_beyond, cubic_inner};
use crate::dtype::DType;
use crate::fault::Fault;
use crate::int::{Bounds, Int, simplify};
use crate::ops::OpResult;
use crate::ops::reshape::loop_bounds;
use crate::te::ComputeContext;
use crate::tir::{BinaryOp, BufferId, Combiner, Cond, Expr, UnaryOp};

/// The most taps of a kernel.
const TAP_LIMIT: i64 = 1 << 16;

/// Where the taps of one axis are.
struct Kernel {
    axis: usize,
    at: Coordinate,
    /// Distance of the first tap from the source coordinate, rounded down.
    start: i64,
    taps: i64,
}

/// A resized axis: weights `[size, taps]` that are not normalised, and their sums `[size]`.
struct Axis {
    kernel: Kernel,
    weights: BufferId,
    totals: BufferId,
}

impl Kernel {
    /// The source index of a tap, not yet moved inside.
    fn place(&self, i: &Int, tap: &Int, bounds: &Bounds) -> Int {
        simplify(&(self.at.at(i).div(&self.at.c) + self.start + tap), bounds)
    }
}

/// The weight at distance `x`.
fn weight(op: &Resize, x: Expr, t: DType) -> Expr {
    let x = Expr::unary(UnaryOp::Abs, x);
    let number = |v: f64| Expr::constant(v, t);
    if op.mode == ResizeMode::Linear {
        return (number(1.0) - x).max(number(0.0));
    }
    let below = |limit: f64| Expr::binary(BinaryOp::Lt, x.clone(), number(limit));
    let near = cubic_inner(&x, op.cubic_coeff_a, t);
    let far = Expr::select(below(2.0), cubic_beyond(&x, op.cubic_coeff_a, t), number(0.0));
    Expr::select(below(1.0), near, far)
}

/// Stages the weights of an axis.
fn stage(op: &Resize, cx: &mut ComputeContext<'_>, axis: usize, from: &Int, to: &Int, t: DType) -> OpResult<Axis> {
    let at = op.coordinate(axis, from, to)?;
    let (p, q) = op.scale(axis, from, to);
    let (Some(p), Some(q)) = (p.as_const(), q.as_const()) else {
        return Err(Fault::unsupported("antialiasing needs sizes that are known at compile time"));
    };
    let scale = (p as f64 / q as f64).min(1.0);
    let reach = if op.mode == ResizeMode::Linear { 1.0 } else { 2.0 };
    let start = (-reach / scale).floor() as i64 + 1;
    let taps = 2 - 2 * start;
    if taps > TAP_LIMIT {
        return Err(Fault::unsupported(format!("antialiasing over {taps} elements is unsupported")));
    }
    let shape = [to.clone(), Int::new(taps)];
    let kernel = Kernel { axis, at, start, taps };
    let weights = cx.compute("weights", &shape, t, |i| {
        let bounds = loop_bounds(i, &shape);
        let rest = Expr::Index(simplify(&kernel.at.at(&i[0]).rem(&kernel.at.c), &bounds), t);
        let fraction = rest / Expr::Index(kernel.at.c.clone(), t);
        let distance = (Expr::Index(i[1].clone() + start, t) - fraction) * Expr::constant(scale, t);
        let weight = weight(op, distance, t);
        if !op.exclude_outside {
            return weight;
        }
        let place = kernel.place(&i[0], &i[1], &bounds);
        Expr::guarded(vec![Cond::ge(&place, 0), Cond::lt(place, from)], weight, Expr::constant(0.0, t))
    });
    let totals = cx.reduce("totals", &shape[..1], t, &shape[1..], Combiner::Sum, |i, r| {
        Expr::load(weights, vec![i[0].clone(), r[0].clone()])
    });
    Ok(Axis { kernel, weights, totals })
}

/// The tensor expression of an antialiased resize.
pub(super) fn compute(op: &Resize, cx: &mut ComputeContext<'_>, t: DType) -> OpResult<()> {
    let x = cx.require(0)?;
    let (ty, shape) = (cx.output_type(0).clone(), cx.shape(x));
    let mut axes = Vec::new();
    for (axis, (from, to)) in shape.iter().zip(&ty.shape).enumerate() {
        if !op.keeps(axis, from, to) {
            axes.push(stage(op, cx, axis, from, to, t)?);
        }
    }
    let extents: Vec<Int> = axes.iter().map(|a| Int::new(a.kernel.taps)).collect();
    let sum = cx.reduce("sum", &ty.shape, t, &extents, Combiner::Sum, |i, r| {
        let bounds = loop_bounds(&[i, r].concat(), &[&ty.shape[..], &extents].concat());
        let mut at = i.to_vec();
        let mut factor: Option<Expr> = None;
        for (a, tap) in axes.iter().zip(r) {
            let (axis, place) = (a.kernel.axis, a.kernel.place(&i[a.kernel.axis], tap, &bounds));
            at[axis] = simplify(&place.max(0).min(shape[axis].clone() - 1), &bounds);
            let weight = Expr::load(a.weights, vec![i[axis].clone(), tap.clone()]);
            factor = Some(match factor {
                Some(f) => f * weight,
                None => weight,
            });
        }
        let value = Expr::load(x, at).cast(ty.dtype, t);
        match factor {
            Some(f) => value * f,
            None => value,
        }
    });
    let out = cx.compute("", &ty.shape, ty.dtype, |i| {
        let total = |v: Expr, a: &Axis| v / Expr::load(a.totals, vec![i[a.kernel.axis].clone()]);
        axes.iter().fold(Expr::load(sum, i.to_vec()), total).cast(t, ty.dtype)
    });
    cx.output(0, out);
    Ok(())
}
