//! Ops that only move elements: no-ops, pairs, and moves that keep the order of the elements.

use super::{Change, Match, Rule};
use crate::graph::ValueId;
use crate::int::Int;
use crate::ops::broadcast::Expand;
use crate::ops::concat::Concat;
use crate::ops::pad::Pad;
use crate::ops::permute::{invert, permute};
use crate::ops::reshape::{Flatten, Reshape, Squeeze, Unsqueeze};
use crate::ops::slice::Slice;
use crate::ops::transpose::Transpose;

pub(super) const RULES: &[Rule] = &[
    Rule {
        equation: "transpose(x, identity) = x",
        apply: |m| {
            let perm = m.op::<Transpose>()?.perm(m.ty().rank()).ok()?;
            if perm.iter().enumerate().all(|(i, &p)| i == p) { m.same_type(m.input(0)?) } else { None }
        },
    },
    Rule {
        equation: "transpose(transpose(x, p), q) = transpose(x, p[q])",
        apply: |m| {
            let outer = m.op::<Transpose>()?.perm(m.ty().rank()).ok()?;
            let (below, inner) = m.made_by::<Transpose>(m.input(0)?)?;
            let perm = permute(&inner.perm(outer.len()).ok()?, &outer);
            Some(Change::Node(Transpose { perm }.into(), vec![Some(below.input(0)?)]))
        },
    },
    Rule {
        equation: "transpose(x, p) = reshape(x) when p only moves dimensions of size 1",
        apply: |m| {
            let x = m.input(0)?;
            let shape = &m.ty_of(x).shape;
            let perm = m.op::<Transpose>()?.perm(shape.len()).ok()?;
            let moved: Vec<usize> = perm.into_iter().filter(|&p| !shape[p].is(1)).collect();
            if moved.is_sorted() { reshape(m, x) } else { None }
        },
    },
    Rule {
        equation: "transpose(reshape(transpose(x, p)), q) = reshape(x) when the elements end in their old order",
        apply: reshape_between_transposes,
    },
    Rule {
        equation: "reshape(x, shape of x) = x",
        apply: |m| {
            if is_reshape(m) { m.same_type(m.input(0)?) } else { None }
        },
    },
    Rule {
        equation: "reshape(reshape(x)) = reshape(x)",
        apply: |m| {
            if !is_reshape(m) {
                return None;
            }
            let below = Match { r: m.r, n: m.r.f.def_node(m.input(0)?)? };
            if is_reshape(&below) { reshape(m, below.input(0)?) } else { None }
        },
    },
    Rule {
        equation: "reshape(x, operand) = reshape(x, attribute) when the operand is known",
        apply: |m| {
            let known = m.op::<Reshape>()?.dims.is_empty() && m.num_inputs() > 1;
            if known { reshape(m, m.input(0)?) } else { None }
        },
    },
    Rule { equation: "expand(x, shape of x) = x", apply: |m| m.op::<Expand>().and_then(|_| m.same_type(m.input(0)?)) },
    Rule {
        equation: "pad(x, 0) = x",
        apply: |m| {
            let none = m.op::<Pad>()?.pads.iter().all(|p| p.is(0)) && m.op::<Pad>()?.dims.is_empty();
            if none { m.same_type(m.input(0)?) } else { None }
        },
    },
    Rule {
        equation: "slice(x, all) = x",
        apply: |m| {
            let s = m.op::<Slice>()?;
            let forward = s.dims.is_empty() && s.steps.iter().all(|&s| s == 1);
            // With step 1 a slice of the same size starts at 0.
            if forward { m.same_type(m.input(0)?) } else { None }
        },
    },
    Rule {
        equation: "concat(x) = x",
        apply: |m| {
            m.op::<Concat>()?;
            if m.num_inputs() == 1 { m.same_type(m.input(0)?) } else { None }
        },
    },
];

fn is_reshape(m: &Match<'_, '_>) -> bool {
    m.op::<Reshape>().is_some_and(|r| r.dims.is_empty())
        || m.op::<Flatten>().is_some()
        || m.op::<Squeeze>().is_some()
        || m.op::<Unsqueeze>().is_some()
}

/// A reshape of `x` to the node's result; none where a dimension of 0 would have another meaning.
fn reshape(m: &Match<'_, '_>, x: ValueId) -> Option<Change> {
    if m.ty_of(x) == m.ty() {
        return Some(Change::Value(x));
    }
    let shape = m.ty().shape.clone();
    if shape.is_empty() || shape.iter().any(|d| d.is(0)) {
        return None;
    }
    Some(Change::Node(Reshape::to(shape).into(), vec![Some(x)]))
}

fn reshape_between_transposes(m: &Match<'_, '_>) -> Option<Change> {
    let outer = m.op::<Transpose>()?.perm(m.ty().rank()).ok()?;
    let middle = Match { r: m.r, n: m.r.f.def_node(m.input(0)?)? };
    if !is_reshape(&middle) {
        return None;
    }
    let (below, inner) = middle.made_by::<Transpose>(middle.input(0)?)?;
    let x = below.input(0)?;
    let inner = inner.perm(m.ty_of(x).rank()).ok()?;
    let factors = common_factors(&permute(&m.ty_of(x).shape, &inner), &middle.ty().shape)?;
    let order = |dims: &[usize], side: fn(&(usize, usize)) -> usize| -> Vec<usize> {
        dims.iter().flat_map(|&d| factors.iter().enumerate().filter(move |o| side(o.1) == d).map(|o| o.0)).collect()
    };
    let back = invert(&inner);
    if order(&outer, |o| o.1) == order(&back, |o| o.0) { reshape(m, x) } else { None }
}

/// The common refinement of two shapes of as many elements: for each factor the dimension that it belongs to in either,
/// factors of 1 left out. `None` where the shapes have no common refinement that is known.
fn common_factors(from: &[Int], to: &[Int]) -> Option<Vec<(usize, usize)>> {
    let list =
        |s: &[Int]| -> Vec<(usize, Int)> { s.iter().cloned().enumerate().filter(|d| !d.1.is(1)).rev().collect() };
    let (mut a, mut b) = (list(from), list(to));
    let mut out = Vec::new();
    while let (Some((i, x)), Some((j, y))) = (a.pop(), b.pop()) {
        out.push((i, j));
        if x == y {
            continue;
        }
        // Leading factors first: the rest of the larger dimension stays to be matched.
        match (x.as_const()?, y.as_const()?) {
            (x, y) if y != 0 && x % y == 0 => a.push((i, Int::new(x / y))),
            (x, y) if x != 0 && y % x == 0 => b.push((j, Int::new(y / x))),
            _ => return None,
        }
    }
    (a.is_empty() && b.is_empty()).then_some(out)
}
