//! Proofs that every access of a kernel is inside of its buffer, under the conditions that hold where it happens: the
//! block's guards, and those of the selects around a load.

use super::view::{Leaf, View};
use crate::int::{self, Bounds, Int, IntNode};
use crate::name::Name;
use crate::tir::{BufferId, Cond, CondOp, Expr, TensorFunction};

/// An access that is not proved to be inside.
#[derive(Clone, Debug)]
pub(super) struct Outside {
    pub(super) block: Name,
    pub(super) message: String,
}

/// The first access that is not proved to be inside of its buffer.
pub(super) fn outside(view: &View<'_>) -> Option<Outside> {
    view.leaves.iter().find_map(|leaf| {
        let facts: Vec<Cond> = leaf.block.guards.clone();
        let scope = Places { f: view.f, bounds: ranges(view.f, leaf) };
        let found = scope.block(leaf, &facts)?;
        Some(Outside { block: leaf.block.name, message: found })
    })
}

/// Ranges of the symbols and of the loops around a leaf.
pub(super) fn ranges(f: &TensorFunction, leaf: &Leaf<'_>) -> Bounds {
    let mut bounds = Bounds::new();
    for (n, low, high) in &f.symbols {
        bounds.insert(*n, *low, *high);
    }
    for l in &leaf.loops {
        if let Some((_, high)) = int::range(&l.extent, &bounds) {
            bounds.insert(l.var, 0, (high - 1).max(0));
        }
    }
    bounds
}

struct Places<'f> {
    f: &'f TensorFunction,
    bounds: Bounds,
}

impl Places<'_> {
    fn block(&self, leaf: &Leaf<'_>, facts: &[Cond]) -> Option<String> {
        let b = leaf.block;
        let guards = b.guards.iter().flat_map(|c| [&c.lhs, &c.rhs]).find_map(|i| self.loads_of(i, &[]));
        guards.or_else(|| self.element(b.buffer, &b.indices, facts)).or_else(|| self.expr(&b.value, facts))
    }

    fn expr(&self, e: &Expr, facts: &[Cond]) -> Option<String> {
        match e {
            Expr::Const(..) => None,
            Expr::Index(i, _) => self.loads_of(i, facts),
            Expr::Load(b, ix) => self.element(*b, ix, facts),
            Expr::Unary(_, a) | Expr::Cast(_, a) => self.expr(a, facts),
            Expr::Binary(_, a, b) => self.expr(a, facts).or_else(|| self.expr(b, facts)),
            Expr::All(list) => {
                // A condition is evaluated where those before it hold.
                let before = |n: usize| [facts, &list[..n]].concat();
                list.iter().enumerate().find_map(|(n, c)| {
                    let facts = before(n);
                    self.loads_of(&c.lhs, &facts).or_else(|| self.loads_of(&c.rhs, &facts))
                })
            }
            Expr::Select(c, a, b) => {
                let mut inside = facts.to_vec();
                if let Expr::All(list) = &**c {
                    inside.extend(list.iter().cloned());
                }
                self.expr(c, facts).or_else(|| self.expr(a, &inside)).or_else(|| self.expr(b, facts))
            }
        }
    }

    /// Loads inside an index expression.
    fn loads_of(&self, i: &Int, facts: &[Cond]) -> Option<String> {
        let mut found = None;
        i.visit(&mut |n| {
            if let IntNode::Load(b, ix) = n.node()
                && found.is_none()
            {
                found = self.element(*b, ix, facts);
            }
        });
        found
    }

    fn element(&self, b: BufferId, indices: &[Int], facts: &[Cond]) -> Option<String> {
        let buffer = &self.f.buffers[b];
        let bounds = self.narrowed(facts);
        for (i, extent) in indices.iter().zip(&buffer.shape) {
            if let Some(nested) = self.loads_of(i, facts) {
                return Some(nested);
            }
            if !(below(i, extent, facts, &bounds) && not_negative(i, facts, &bounds)) {
                return Some(format!("index {i} is not inside of `{}` with shape {:?}", buffer.name, buffer.shape));
            }
        }
        None
    }

    /// The ranges of variables where conditions on them alone hold.
    fn narrowed(&self, facts: &[Cond]) -> Bounds {
        let mut bounds = self.bounds.clone();
        for c in facts {
            let (Some(v), Some(n)) = (c.lhs.as_var(), c.rhs.as_const()) else { continue };
            let Some((low, high)) = bounds.get(v) else { continue };
            let (low, high) = match c.op {
                CondOp::Lt => (low, high.min(n.saturating_sub(1))),
                CondOp::Ge => (low.max(n), high),
                CondOp::Eq => (n, n),
            };
            if low <= high {
                bounds.insert(v, low, high);
            }
        }
        bounds
    }
}

fn below(i: &Int, extent: &Int, facts: &[Cond], bounds: &Bounds) -> bool {
    let proved = int::prove(&(extent.clone() - i), 1, i64::MAX, bounds);
    // i = lhs + d and lhs < rhs, so extent - i >= extent - rhs - d + 1.
    let room = |c: &Cond| {
        let d = i.clone() - &c.lhs;
        int::prove(&(extent.clone() - &c.rhs - d), 0, i64::MAX, bounds)
    };
    proved
        || facts.iter().any(|c| c.op == CondOp::Lt && room(c))
        || match i.node() {
            IntNode::Div(a, k) if k.as_const().is_some_and(|k| k > 0) => below(a, &(extent.clone() * k), facts, bounds),
            IntNode::Min(a, b) => below(a, extent, facts, bounds) || below(b, extent, facts, bounds),
            IntNode::Max(a, b) => below(a, extent, facts, bounds) && below(b, extent, facts, bounds),
            _ => false,
        }
}

fn not_negative(i: &Int, facts: &[Cond], bounds: &Bounds) -> bool {
    let room = |c: &Cond| int::prove(&(c.rhs.clone() + (i.clone() - &c.lhs)), 0, i64::MAX, bounds);
    int::prove(i, 0, i64::MAX, bounds)
        || facts.iter().any(|c| c.op == CondOp::Ge && room(c))
        || match i.node() {
            IntNode::Div(a, k) if k.as_const().is_some_and(|k| k > 0) => not_negative(a, facts, bounds),
            IntNode::Min(a, b) => not_negative(a, facts, bounds) && not_negative(b, facts, bounds),
            IntNode::Max(a, b) => not_negative(a, facts, bounds) || not_negative(b, facts, bounds),
            _ => false,
        }
}
