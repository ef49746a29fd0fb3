//! Places conditions: as far out as possible if no barrier or subgroup operation is inside, else at the leaf.
//!
//! All threads must reach barriers and subgroup operations, so around these only uniform conditions may branch.
//!
//! Statements that only fill registers have no conditions of their own. If all uses of the registers are under a
//! condition on the thread, the statements are placed under it too, so threads beyond the end compute nothing.

use crate::grid::Axes;
use crate::tree::{Leaf, Node, has_load};
use rustc_hash::{FxHashMap, FxHashSet};
use tensor_ir::name::Name;
use tensor_ir::tir::{BufferId, Cond, Scope, TensorFunction};

/// Decides where each condition is tested.
pub(crate) struct Guards<'a> {
    f: &'a TensorFunction,
    axes: &'a Axes,
    /// True for a leaf that all threads must reach.
    collective: &'a dyn Fn(&Leaf) -> bool,
    /// How often the kernel accesses each buffer.
    accesses: FxHashMap<BufferId, usize>,
}

/// How often each buffer is accessed below `nodes`.
fn accesses<'n>(nodes: impl IntoIterator<Item = &'n Node>) -> FxHashMap<BufferId, usize> {
    let mut count: FxHashMap<BufferId, usize> = FxHashMap::default();
    for n in nodes {
        n.visit_leaves(&mut |leaf| {
            leaf.visit_loads(&mut |b, _| *count.entry(b).or_default() += 1);
            *count.entry(leaf.buffer).or_default() += 1;
        });
    }
    count
}

impl<'a> Guards<'a> {
    pub fn new(
        f: &'a TensorFunction,
        axes: &'a Axes,
        collective: &'a dyn Fn(&Leaf) -> bool,
        root: &Node,
    ) -> Guards<'a> {
        Guards { f, axes, collective, accesses: accesses([root]) }
    }

    /// Rewrites the whole kernel.
    pub fn place(&self, node: Node) -> Node {
        let node = self.push_down(node, &[]);
        let (conds, node) = self.hoist(node);
        Node::when(conds, node)
    }

    fn is_uniform(&self, c: &Cond) -> bool {
        self.axes.is_uniform(&c.lhs) && self.axes.is_uniform(&c.rhs)
    }

    /// A loop whose number of iterations differs between threads, although all threads must reach its body.
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

    /// Conditions of all statements move out; neighbours with the same remaining conditions share one branch.
    fn hoist_seq(&self, list: Vec<Node>) -> (Vec<Cond>, Node) {
        let parts: Vec<(Vec<Cond>, Node)> = list.into_iter().map(|n| self.hoist(n)).collect();
        let common = self.common(&parts);
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

    /// The conditions that all parts of a sequence have, or all with effects beyond registers that nothing else uses.
    fn common(&self, parts: &[(Vec<Cond>, Node)]) -> Vec<Cond> {
        let of_all = |c: &Cond| parts.iter().all(|p| p.0.contains(c));
        let quiet: Vec<bool> = parts.iter().map(|p| self.is_quiet(&p.1)).collect();
        let mut loud = parts.iter().zip(&quiet).filter(|(_, quiet)| !**quiet).map(|(p, _)| p);
        let Some((first, _)) = loud.next() else {
            return parts.first().map_or(vec![], |p| p.0.iter().filter(|c| of_all(c)).cloned().collect());
        };
        let rest: Vec<_> = loud.collect();
        let candidates: Vec<&Cond> = first.iter().filter(|c| rest.iter().all(|p| p.0.contains(c))).collect();
        let own = candidates.iter().any(|c| !of_all(c)) && self.registers_are_own(parts, &quiet);
        candidates.into_iter().filter(|c| of_all(c) || own && self.is_of_thread(c)).cloned().collect()
    }

    /// True if the node writes only registers of its thread.
    fn is_quiet(&self, node: &Node) -> bool {
        let mut quiet = true;
        node.visit_leaves(&mut |l| quiet &= self.f.buffers[l.buffer].scope == Scope::Register && !l.across);
        quiet && !node.needs_uniform_flow(self.collective)
    }

    /// True if the registers that the quiet parts write are not accessed anywhere else.
    fn registers_are_own(&self, parts: &[(Vec<Cond>, Node)], quiet: &[bool]) -> bool {
        let here = accesses(parts.iter().map(|p| &p.1));
        let mut written: FxHashSet<BufferId> = FxHashSet::default();
        for ((_, part), _) in parts.iter().zip(quiet).filter(|p| *p.1) {
            part.visit_leaves(&mut |l| {
                written.insert(l.buffer);
            });
        }
        written.iter().all(|b| here.get(b) == self.accesses.get(b))
    }

    /// True for a condition that no loop at run time changes.
    fn is_of_thread(&self, c: &Cond) -> bool {
        let fixed = |v: Name| self.axes.all().any(|a| a.var == v) || self.f.symbols.iter().any(|s| s.0 == v);
        [&c.lhs, &c.rhs].into_iter().all(|i| !has_load(i) && i.vars().into_iter().all(fixed))
    }
}
