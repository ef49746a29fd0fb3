//! Simplifies every index expression and condition of a tensor function under the ranges of its loops.

use super::accesses::{proves, refutes};
use crate::dtype::DType;
use crate::int::{self, Bounds, Int, IntNode};
use crate::name::Name;
use crate::tir::{Block, Cond, CondOp, Expr, Scalar, Stmt, TensorFunction};
use rustc_hash::{FxHashMap, FxHashSet};

/// Simplifies all extents, indices, guards and conditions; guards and conditions that always hold go away.
pub fn simplify_function(f: &mut TensorFunction) {
    simplify_where(f, |_, _| true);
}

/// [`simplify_function`] for the result of an instruction applied to `before`, which is simplified if it has a trace.
/// Blocks that did not change, and whose variables have unchanged ranges, are skipped.
pub(super) fn simplify_changes(f: &mut TensorFunction, before: &TensorFunction) {
    if before.trace.is_empty() {
        return simplify_function(f);
    }
    let known: FxHashMap<Name, &Block> = before.body.blocks().into_iter().map(|b| (b.name, b)).collect();
    let ranges = before.bounds();
    let mut moved: Option<FxHashSet<Name>> = None;
    simplify_where(f, |b, bounds| {
        let moved = moved
            .get_or_insert_with(|| bounds.iter().filter(|(v, r)| ranges.get(*v) != Some(*r)).map(|(v, _)| v).collect());
        let same = known.get(&b.name).is_some_and(|old| *old == b);
        !same || !moved.is_empty() && uses_any(b, moved)
    });
}

fn uses_any(b: &Block, vars: &FxHashSet<Name>) -> bool {
    let mut found = false;
    b.visit_ints(&mut |i| i.visit(&mut |n| found |= n.as_var().is_some_and(|v| vars.contains(&v))));
    found
}

/// Simplifies extents, shapes, and the blocks for which `wanted` says so.
fn simplify_where(f: &mut TensorFunction, mut wanted: impl FnMut(&Block, &Bounds) -> bool) {
    let bounds = f.bounds();
    f.body.visit_mut(&mut |s| match s {
        Stmt::For(l) => l.extent = int::simplify(&l.extent, &bounds),
        Stmt::Block(b) if wanted(b, &bounds) => {
            b.guards = simplify_conds(&b.guards, &bounds);
            b.indices = b.indices.iter().map(|i| int::simplify(i, &bounds)).collect();
            b.value = simplify_expr(&b.value, &bounds);
        }
        _ => {}
    });
    for id in f.buffers.ids() {
        let shape = f.buffers[id].shape.iter().map(|d| int::simplify(d, &bounds)).collect();
        f.buffers[id].shape = shape;
    }
}

/// Simplifies the index expressions of `e` and folds Selects whose condition is decided.
pub fn simplify_expr(e: &Expr, bounds: &Bounds) -> Expr {
    e.rewrite(&mut |i| int::simplify(i, bounds), &mut |e| match e {
        Expr::All(conds) if conds.iter().any(|c| refutes(c, bounds)) => Some(Expr::Const(Scalar::Int(0), DType::Bool)),
        Expr::All(conds) => Some(Expr::All(simplify_conds(conds, bounds))),
        Expr::Select(c, a, b) => match &**c {
            Expr::All(conds) if conds.is_empty() => Some((**a).clone()),
            Expr::Const(Scalar::Int(0), _) => Some((**b).clone()),
            _ => None,
        },
        _ => None,
    })
}

/// The conditions that are not proved, simplified, without repeats.
pub fn simplify_conds(conds: &[Cond], bounds: &Bounds) -> Vec<Cond> {
    let mut out = Vec::new();
    for c in conds {
        let c = widen(&c.map(&mut |i| int::simplify(i, bounds)), bounds);
        if !proves(&c, bounds) && !out.contains(&c) {
            out.push(c);
        }
    }
    out
}

/// `4*x + v < 4*m` -> `x < m` for `0 <= v < 4`, so that a guard over a vector loop is one for the whole vector.
///
/// `e < g*m` equals `floor(e/g) < m` for any divisor `g` of the right side. `g` is the coefficient on the left whose
/// quotient uses the fewest variables.
fn widen(c: &Cond, bounds: &Bounds) -> Cond {
    let Some(right) = c.rhs.as_const() else { return c.clone() };
    if c.op == CondOp::Eq {
        return c.clone();
    }
    let mut factors = Vec::new();
    collect_coefficients(&c.lhs, &mut factors);
    factors.sort_unstable();
    let mut best = c.clone();
    for g in factors {
        if g < 2 || right % g != 0 {
            continue;
        }
        let lhs = int::simplify(&c.lhs.div(g), bounds);
        if lhs.vars().len() < best.lhs.vars().len() && !matches!(lhs.node(), IntNode::Div(..)) {
            best = Cond { lhs, op: c.op, rhs: Int::new(right / g) };
        }
    }
    best
}

fn collect_coefficients(i: &Int, out: &mut Vec<i64>) {
    match i.node() {
        IntNode::Add(a, b) | IntNode::Sub(a, b) => {
            collect_coefficients(a, out);
            collect_coefficients(b, out);
        }
        IntNode::Mul(a, b) => out.extend(a.as_const().or(b.as_const())),
        _ => {}
    }
}
