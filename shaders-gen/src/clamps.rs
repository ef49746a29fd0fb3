//! Removes clamps that the enclosing loops and conditions make unnecessary, by `Facts::prove_less`.
//!
//! A schedule clamps indices that are computed ahead of a guard, for all threads. If the guard is later placed around
//! the computation, or the index is that of a loop of open length, the clamp has no effect.

use crate::grid::{Axes, open_end};
use crate::tree::{Leaf, Node, has_load};
use tensor_ir::int::{Facts, Int};
use tensor_ir::tir::Cond;

/// The facts at a program point.
pub(crate) struct Clamps<'a> {
    pub ranges: &'a mut Facts,
    /// True for a leaf whose value all threads compute.
    pub collective: &'a dyn Fn(&Leaf) -> bool,
}

impl Clamps<'_> {
    /// Rewrites the whole kernel.
    pub fn remove(&mut self, axes: &Axes, root: Node) -> Node {
        self.under(&axes.open_ends(), root)
    }

    fn under(&mut self, conds: &[Cond], node: Node) -> Node {
        let mark = self.ranges.mark();
        self.ranges.assume(conds);
        let node = self.node(node);
        self.ranges.forget(mark);
        node
    }

    fn node(&mut self, node: Node) -> Node {
        match node {
            Node::Seq(list) => Node::Seq(list.into_iter().map(|n| self.node(n)).collect()),
            Node::Loop { var, extent, spread, body } => {
                let below = if spread { vec![] } else { open_end(&Int::var(var), &extent) };
                Node::Loop { var, extent, spread, body: Box::new(self.under(&below, *body)) }
            }
            Node::If { conds, body } => {
                let body = Box::new(self.under(&conds, *body));
                Node::If { conds, body }
            }
            Node::Leaf(leaf) => Node::Leaf(Box::new(self.leaf(*leaf))),
            Node::Barrier => Node::Barrier,
        }
    }

    fn leaf(&mut self, mut leaf: Leaf) -> Leaf {
        let mark = self.ranges.mark();
        if !leaf.across && !(self.collective)(&leaf) {
            self.ranges.assume(&leaf.facts);
        }
        leaf.indices = leaf.indices.iter().map(|i| self.index(i)).collect();
        leaf.value = leaf.value.map_ints(&mut |i| self.index(i));
        self.ranges.forget(mark);
        leaf
    }

    /// Threads that the conditions exclude compute the index too: it must be an i32 for all.
    fn index(&mut self, i: &Int) -> Int {
        if has_load(i) {
            return i.clone();
        }
        let plain = self.ranges.without_clamps(i);
        if plain == *i {
            return plain;
        }
        let plain = self.ranges.simplify(&plain);
        let mut fits = true;
        plain.visit(&mut |e| fits &= self.ranges.fits_i32(e));
        if fits { plain } else { i.clone() }
    }
}
