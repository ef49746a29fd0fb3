//! Places conditions: as far out as possible where no barrier or subgroup operation is inside, at the leaf otherwise.
//!
//! Barriers and subgroup operations must be reached by all threads, so around them only uniform conditions may branch.

use crate::grid::Axes;
use crate::tree::{Leaf, Node, has_load};
use compiler::name::Name;
use compiler::tir::Cond;

/// Decides where each condition is tested.
pub(crate) struct Guards<'a> {
    pub axes: &'a Axes,
    /// True for a leaf that all threads must reach.
    pub collective: &'a dyn Fn(&Leaf) -> bool,
}

impl Guards<'_> {
    /// Rewrites the whole kernel.
    pub fn place(&self, node: Node) -> Node {
        let node = self.push_down(node, &[]);
        let (conds, node) = self.hoist(node);
        Node::when(conds, node)
    }

    fn is_uniform(&self, c: &Cond) -> bool {
        self.axes.is_uniform(&c.lhs) && self.axes.is_uniform(&c.rhs)
    }

    /// A loop that not all threads run equally often, although all must reach what is inside.
    pub fn divergent_loop(&self, node: &Node) -> Option<Name> {
        match node {
            Node::Seq(list) => list.iter().find_map(|n| self.divergent_loop(n)),
            Node::If { body, .. } => self.divergent_loop(body),
            Node::Loop { var, extent, spread, body } => {
                let divergent = (*spread || !self.axes.is_uniform(extent)) && body.needs_uniform_flow(self.collective);
                if divergent { Some(*var) } else { self.divergent_loop(body) }
            }
            Node::Leaf(_) | Node::Barrier => None,
        }
    }

    /// Moves non-uniform conditions around collective operations down to the leaves.
    fn push_down(&self, node: Node, above: &[Cond]) -> Node {
        match node {
            Node::Seq(list) => Node::Seq(list.into_iter().map(|n| self.push_down(n, above)).collect()),
            Node::Loop { var, extent, spread, body } => {
                Node::Loop { var, extent, spread, body: Box::new(self.push_down(*body, above)) }
            }
            Node::If { conds, body } => {
                if !body.needs_uniform_flow(self.collective) {
                    let body = self.push_down(*body, &[]);
                    return Node::when(above.iter().cloned().chain(conds).collect(), body);
                }
                let (uniform, divergent): (Vec<Cond>, Vec<Cond>) = conds.into_iter().partition(|c| self.is_uniform(c));
                let above: Vec<Cond> = above.iter().cloned().chain(divergent).collect();
                Node::when(uniform, self.push_down(*body, &above))
            }
            Node::Leaf(mut leaf) => {
                leaf.guards.splice(0..0, above.iter().cloned());
                Node::Leaf(leaf)
            }
            Node::Barrier => Node::Barrier,
        }
    }

    /// Takes the conditions out of `node` that may be tested before it.
    fn hoist(&self, node: Node) -> (Vec<Cond>, Node) {
        match node {
            Node::Barrier => (vec![], node),
            Node::Leaf(mut leaf) => {
                let collective = (self.collective)(&leaf);
                let (out, stay) = std::mem::take(&mut leaf.guards).into_iter().partition(|c| {
                    if collective { self.is_uniform(c) } else { !has_load(&c.lhs) && !has_load(&c.rhs) }
                });
                leaf.guards = stay;
                (out, Node::Leaf(leaf))
            }
            // Around collective operations only uniform conditions are left.
            Node::If { conds, body } => {
                let (inner, body) = self.hoist(*body);
                (conds.into_iter().chain(inner).collect(), body)
            }
            Node::Loop { var, extent, spread, body } => {
                let (conds, body) = self.hoist(*body);
                let (inside, out): (Vec<Cond>, Vec<Cond>) =
                    conds.into_iter().partition(|c| c.lhs.uses(var) || c.rhs.uses(var));
                (out, Node::Loop { var, extent, spread, body: Box::new(Node::when(inside, body)) })
            }
            Node::Seq(list) => self.hoist_seq(list),
        }
    }

    /// What all statements share goes out; neighbours with the same rest share one branch.
    fn hoist_seq(&self, list: Vec<Node>) -> (Vec<Cond>, Node) {
        let parts: Vec<(Vec<Cond>, Node)> = list.into_iter().map(|n| self.hoist(n)).collect();
        let common: Vec<Cond> = match parts.split_first() {
            Some((first, rest)) => first.0.iter().filter(|c| rest.iter().all(|p| p.0.contains(c))).cloned().collect(),
            None => vec![],
        };
        let mut out: Vec<(Vec<Cond>, Vec<Node>)> = Vec::new();
        for (conds, node) in parts {
            let rest: Vec<Cond> = conds.into_iter().filter(|c| !common.contains(c)).collect();
            match out.last_mut() {
                Some((same, nodes)) if *same == rest => nodes.push(node),
                _ => out.push((rest, vec![node])),
            }
        }
        let list = out.into_iter().map(|(conds, nodes)| Node::when(conds, Node::seq(nodes))).collect();
        (common, Node::seq(list))
    }
}
