//! Ops that only move elements: no-ops, pairs, and moves that keep the order of the elements.

use crate::graph::ValueId;
use crate::int::{Int, const_dims};
use crate::ops::broadcast::{Expand, Tile};
use crate::ops::concat::Concat;
use crate::ops::layout_transform::LayoutTransform;
use crate::ops::pad::Pad;
use crate::ops::permute::{invert, permute};
use crate::ops::reshape::Reshape;
use crate::ops::slice::Slice;
use crate::ops::split::Split;
use crate::ops::transpose::Transpose;
use crate::ops::{DataLayout, InferContext};
use crate::passes::auto_layout::{TO_NCHW, TO_NHWC};
use crate::passes::rules::{Change, Match, Rule};
use crate::pattern::{Pattern, any, any_op, any_op_from, either, is, op, op_from, var};

pub(super) const RULES: &[Rule] = &[
    Rule {
        equation: "transpose(x, identity) = x",
        pattern: || op::<Transpose>([var("x")]),
        apply: |m| {
            let perm = m.op::<Transpose>()?.perm(m.ty().rank()).ok()?;
            if perm.iter().enumerate().all(|(i, &p)| i == p) { m.same_type(m.value("x")) } else { None }
        },
    },
    Rule {
        equation: "transpose(transpose(x, p), q) = transpose(x, p[q])",
        pattern: || op::<Transpose>([op::<Transpose>([var("x")]).named("inner")]),
        apply: |m| {
            let outer = m.op::<Transpose>()?.perm(m.ty().rank()).ok()?;
            let inner = m.made_by::<Transpose>(m.value("inner"))?.perm(outer.len()).ok()?;
            Change::node(Transpose { perm: permute(&inner, &outer) }, [m.value("x")])
        },
    },
    Rule {
        equation: "transpose(x, p) = reshape(x) when p only moves dimensions of size 1",
        pattern: || op::<Transpose>([var("x")]),
        apply: |m| {
            let x = m.value("x");
            let shape = &m.ty_of(x).shape;
            let perm = m.op::<Transpose>()?.perm(shape.len()).ok()?;
            let moved: Vec<usize> = perm.into_iter().filter(|&p| !shape[p].is(1)).collect();
            if moved.is_sorted() { reshape(m, x) } else { None }
        },
    },
    Rule {
        equation: "transpose(reshape(transpose(x, p)), q) = reshape(x) when the elements end in their old order",
        pattern: || op::<Transpose>([view(op::<Transpose>([var("x")]).named("inner")).named("middle")]),
        apply: reshape_between_transposes,
    },
    Rule {
        equation: "layout_transform(layout_transform(x, a to b), b to c) = layout_transform(x, a to c)",
        pattern: || op::<LayoutTransform>([op::<LayoutTransform>([var("x")]).named("inner")]),
        apply: |m| {
            let outer = m.op::<LayoutTransform>()?;
            let inner = m.made_by::<LayoutTransform>(m.value("inner"))?;
            if inner.from == outer.to {
                return m.same_type(m.value("x"));
            }
            Change::node(LayoutTransform { from: inner.from, to: outer.to }, [m.value("x")])
        },
    },
    Rule {
        equation: "layout_transform(transpose(x, nhwc to nchw), nchw to a) = layout_transform(x, nhwc to a)",
        pattern: || op::<LayoutTransform>([op::<Transpose>([var("x")]).named("inner")]),
        apply: |m| {
            let outer = m.op::<LayoutTransform>()?;
            let perm = m.made_by::<Transpose>(m.value("inner"))?.perm(m.ty_of(m.value("x")).rank()).ok()?;
            let fits = outer.from == DataLayout::Nchw && perm == TO_NCHW;
            let joined = LayoutTransform { from: DataLayout::Nhwc, to: outer.to };
            if fits { Change::node(joined, [m.value("x")]) } else { None }
        },
    },
    Rule {
        equation: "transpose(layout_transform(x, a to nchw), nchw to nhwc) = layout_transform(x, a to nhwc)",
        pattern: || op::<Transpose>([op::<LayoutTransform>([var("x")]).named("inner")]),
        apply: |m| {
            let inner = m.made_by::<LayoutTransform>(m.value("inner"))?;
            let perm = m.op::<Transpose>()?.perm(m.ty().rank()).ok()?;
            let fits = inner.to == DataLayout::Nchw && perm == TO_NHWC;
            let joined = LayoutTransform { from: inner.from, to: DataLayout::Nhwc };
            if fits { Change::node(joined, [m.value("x")]) } else { None }
        },
    },
    Rule {
        equation: "layout_transform(x) = reshape(x) when the elements keep their order",
        pattern: || op::<LayoutTransform>([var("x")]),
        apply: |m| {
            let x = m.value("x");
            if m.op::<LayoutTransform>()?.keeps_order(&m.ty_of(x).shape) { reshape(m, x) } else { None }
        },
    },
    Rule { equation: "reshape(x, shape of x) = x", pattern: || view(var("x")), apply: |m| m.same_type(m.value("x")) },
    Rule {
        equation: "reshape(reshape(x)) = reshape(x)",
        pattern: || view(view(var("x"))),
        apply: |m| reshape(m, m.value("x")),
    },
    Rule {
        equation: "reshape(x, operand) = reshape(x, attribute) when the operand is known",
        pattern: || op::<Reshape>([var("x"), any()]).attr::<Reshape>("no dims", |r| r.dims.is_empty()),
        apply: |m| reshape(m, m.value("x")),
    },
    Rule {
        equation: "expand(x, shape of x) = x",
        pattern: || op_from::<Expand>([var("x")]),
        apply: |m| m.same_type(m.value("x")),
    },
    Rule {
        equation: "tile(x, 1) = x",
        pattern: || op_from::<Tile>([var("x")]),
        // Of constant sizes: the same type then means that nothing is repeated.
        apply: |m| const_dims(&m.ty().shape).and_then(|_| m.same_type(m.value("x"))),
    },
    Rule {
        equation: "f(expand(x), y) = f(x, y) when f broadcasts x itself",
        pattern: || {
            let expanded = either([any_op([is::<Expand>(), any()]), any_op([any(), is::<Expand>()])]);
            expanded.property("broadcasts", |op| op.broadcasts())
        },
        apply: without_expand,
    },
    Rule {
        equation: "pad(x, 0) = x",
        pattern: || {
            op_from::<Pad>([var("x")]).attr::<Pad>("pads=0", |p| p.dims.is_empty() && p.pads.iter().all(|p| p.is(0)))
        },
        apply: |m| m.same_type(m.value("x")),
    },
    Rule {
        equation: "slice(x, all) = x",
        // With step 1 a slice of the same size starts at 0.
        pattern: || op::<Slice>([var("x")]).attr::<Slice>("steps=1", plain_steps),
        apply: |m| m.same_type(m.value("x")),
    },
    Rule {
        equation: "slice(slice(x)) = slice(x)",
        pattern: || {
            op::<Slice>([op::<Slice>([var("x")]).attr::<Slice>("steps=1", plain_steps).named("inner")])
                .attr::<Slice>("steps=1", plain_steps)
        },
        apply: slices,
    },
    Rule { equation: "concat(x) = x", pattern: || op::<Concat>([var("x")]), apply: |m| m.same_type(m.value("x")) },
    Rule {
        equation: "concat(all parts of split(x)) = x",
        pattern: || op_from::<Concat>([is::<Split>().result(0)]),
        apply: concat_of_split,
    },
];

fn plain_steps(s: &Slice) -> bool {
    s.dims.is_empty() && s.steps.iter().all(|&s| s == 1)
}

/// An op that gives its operand another shape, which does not wait for the run.
fn view(x: Pattern) -> Pattern {
    any_op_from([x]).property("view", |op| op.is_view() && op.defined_symbols().is_empty())
}

/// The node on what one of its operands expands, where the result keeps its type. One operand at a time: without both
/// expansions the result may be smaller.
fn without_expand(m: &Match<'_, '_>) -> Option<Change> {
    let op = &m.r.f.nodes[m.n].op;
    let operands = m.operands();
    (0..operands.len()).find_map(|i| {
        let v = operands[i]?;
        m.made_by::<Expand>(v)?;
        let mut less = operands.clone();
        less[i] = m.operands_of(v).first().copied().flatten();
        let types = op.infer(&InferContext::new(m.r.module, &m.r.f, &less, &[])).ok()?;
        if types.first() == Some(m.ty()) { Change::node(op.clone(), less) } else { None }
    })
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
    Change::node(Reshape::to(shape), [x])
}

/// Two slices of constant sizes with step 1 as one.
fn slices(m: &Match<'_, '_>) -> Option<Change> {
    let (x, inner) = (m.value("x"), m.value("inner"));
    let shape = const_dims(&m.ty_of(x).shape)?;
    let middle = m.made_by::<Slice>(inner)?.starts_at(&m.ty_of(x).shape)?;
    let outer = m.op::<Slice>()?.starts_at(&m.ty_of(inner).shape)?;
    let sizes = const_dims(&m.ty().shape)?;
    let (mut s, mut axes) = (Slice::default(), vec![]);
    for (a, (&size, &full)) in sizes.iter().zip(&shape).enumerate() {
        let start = middle[a] + outer[a];
        if start != 0 || size != full {
            s.starts.push(Int::new(start));
            s.ends.push(Int::new(start + size as i64));
            axes.push(a as i64);
        }
    }
    s.axes = axes;
    Change::node(s, [x])
}

fn concat_of_split(m: &Match<'_, '_>) -> Option<Change> {
    let operands: Vec<ValueId> = m.operands().into_iter().collect::<Option<_>>()?;
    let n = m.r.f.def_node(*operands.first()?)?;
    let (node, split) = (&m.r.f.nodes[n], m.r.f.nodes[n].op.downcast::<Split>()?);
    let rank = m.ty().rank() as i64;
    let same_axis = split.axis.rem_euclid(rank.max(1)) == m.op::<Concat>()?.axis.rem_euclid(rank.max(1));
    if node.outputs != operands || !same_axis {
        return None;
    }
    m.same_type(m.r.resolve(node.inputs.first().copied().flatten()?))
}

fn reshape_between_transposes(m: &Match<'_, '_>) -> Option<Change> {
    let outer = m.op::<Transpose>()?.perm(m.ty().rank()).ok()?;
    let x = m.value("x");
    let inner = m.made_by::<Transpose>(m.value("inner"))?.perm(m.ty_of(x).rank()).ok()?;
    let factors = common_factors(&permute(&m.ty_of(x).shape, &inner), &m.ty_of(m.value("middle")).shape)?;
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
