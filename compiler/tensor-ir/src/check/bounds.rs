//! Proofs that every access of a kernel stays inside its buffer. The conditions of the access are used: the guards of
//! its block, and the conditions of the selects around a load.

use super::view::{Leaf, View};
use crate::int::{self, Bounds, Facts, Int, IntNode};
use crate::name::Name;
use crate::tir::{Block, BufferId, Cond, Expr, TensorFunction};

/// An access that is not proved to be inside.
#[derive(Clone, Debug)]
pub(super) struct Outside {
    pub(super) block: Name,
    pub(super) message: String,
}

/// The first access that is not proved to be inside of its buffer.
pub(super) fn outside(view: &View<'_>) -> Option<Outside> {
    view.leaves.iter().find_map(|leaf| {
        let mut point = ProgramPoint { f: view.f, facts: Facts::new(ranges(view.f, leaf)) };
        let found = point.block(leaf.block)?;
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

/// A point in a block: the conditions in force change on the way through its value.
struct ProgramPoint<'f> {
    f: &'f TensorFunction,
    facts: Facts,
}

impl ProgramPoint<'_> {
    /// The first access of a block that is not proved to be in bounds. Guards are evaluated without their own
    /// conditions.
    fn block(&mut self, b: &Block) -> Option<String> {
        let guards = b.guards.iter().flat_map(|c| [&c.lhs, &c.rhs]).find_map(|i| self.loads_of(i));
        guards.or_else(|| {
            self.facts.assume(&b.guards);
            self.element(b.buffer, &b.indices).or_else(|| self.expr(&b.value))
        })
    }

    fn expr(&mut self, e: &Expr) -> Option<String> {
        match e {
            Expr::Const(..) => None,
            Expr::Index(i, _) => self.loads_of(i),
            Expr::Load(b, ix) => self.element(*b, ix),
            Expr::Unary(_, a) | Expr::Cast(_, a) => self.expr(a),
            Expr::Binary(_, a, b) => self.expr(a).or_else(|| self.expr(b)),
            Expr::All(list) => self.conditions(list),
            Expr::Select(c, a, b) => {
                let holding: &[Cond] = if let Expr::All(list) = &**c { list } else { &[] };
                // Of several conditions, it is not known which one fails.
                let failing = if let [only] = holding { only.opposite() } else { None };
                let chosen = |this: &mut Self| this.under(holding, |this| this.expr(a));
                let other = |this: &mut Self| this.under(failing.as_slice(), |this| this.expr(b));
                self.expr(c).or_else(|| chosen(self)).or_else(|| other(self))
            }
        }
    }

    /// A condition is evaluated only if the conditions before it hold.
    fn conditions(&mut self, list: &[Cond]) -> Option<String> {
        (0..list.len()).find_map(|n| {
            let Cond { lhs, rhs, .. } = &list[n];
            self.under(&list[..n], |this| this.loads_of(lhs).or_else(|| this.loads_of(rhs)))
        })
    }

    /// Looks with further conditions in force.
    fn under(&mut self, conds: &[Cond], look: impl FnOnce(&mut Self) -> Option<String>) -> Option<String> {
        let mark = self.facts.mark();
        self.facts.assume(conds);
        let found = look(self);
        self.facts.forget(mark);
        found
    }

    /// Loads inside an index expression.
    fn loads_of(&mut self, i: &Int) -> Option<String> {
        let mut found = None;
        i.visit(&mut |n| {
            if let IntNode::Load(b, ix) = n.node()
                && found.is_none()
            {
                found = self.element(*b, ix);
            }
        });
        found
    }

    fn element(&mut self, b: BufferId, indices: &[Int]) -> Option<String> {
        let buffer = &self.f.buffers[b];
        for (i, extent) in indices.iter().zip(&buffer.shape) {
            if let Some(nested) = self.loads_of(i) {
                return Some(nested);
            }
            if !(self.facts.prove(i, 0, i64::MAX) && below(&mut self.facts, i, extent)) {
                return Some(format!("index {i} is not inside of `{}` with shape {:?}", buffer.name, buffer.shape));
            }
        }
        None
    }
}

/// Whether `i < extent`, which may be symbolic: a quotient or a minimum is then no sum that the analysis could take
/// apart.
fn below(facts: &mut Facts, i: &Int, extent: &Int) -> bool {
    facts.prove(&(extent.clone() - i), 1, i64::MAX)
        || match i.node() {
            IntNode::Div(a, k) if k.as_const().is_some_and(|k| k > 0) => below(facts, a, &(extent.clone() * k)),
            IntNode::Min(a, b) => below(facts, a, extent) || below(facts, b, extent),
            IntNode::Max(a, b) => below(facts, a, extent) && below(facts, b, extent),
            _ => false,
        }
}
