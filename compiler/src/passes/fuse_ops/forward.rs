//! The graph that fusion works on: nodes of one block in post-DFS order, with edges to their users.
//!
//! As in TVM, two kinds of nodes have no counterpart in the IR: the operand list of a concat (a tuple), and each used
//! result of a node with several results (an injective projection). Constants and block arguments are not in the graph.
//! A stateful node also counts as a user of the stateful node before it, since these keep their order.

use crate::arena::Id;
use crate::graph::{BlockId, Function, NodeId, ValueDef, ValueId};
use crate::ops::control::Const;
use crate::passes::fusion_kind::NodeInfo;
use crate::tir::FusionKind;
use rustc_hash::FxHashMap;

/// The origin of a node of the forward graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// A node.
    Node(NodeId),
    /// The operand list of a concat.
    Tuple(NodeId),
    /// A result of a node with several.
    Projection(NodeId, usize),
}
impl Source {
    /// The node it belongs to.
    pub fn node(self) -> NodeId {
        match self {
            Source::Node(n) | Source::Tuple(n) | Source::Projection(n, _) => n,
        }
    }
}

/// A node with its users.
#[derive(Clone, Debug)]
pub struct ForwardNode {
    /// Its origin.
    pub source: Source,
    /// Its kind.
    pub kind: FusionKind,
    /// Users with the kind of the edge.
    pub users: Vec<(usize, FusionKind)>,
    /// It is used in a way that fusion cannot see: as a result of the block.
    pub escapes: bool,
}

/// Nodes in post-DFS order: users come after what they use.
#[derive(Clone, Debug, Default)]
pub struct ForwardGraph {
    /// The nodes.
    pub nodes: Vec<ForwardNode>,
}

/// Builds the graph of one block. `info` holds every node of the block but the constants; `is_concat` says whose
/// operand lists are tuples.
pub fn build(
    f: &Function,
    block: BlockId,
    info: &FxHashMap<NodeId, NodeInfo>,
    is_concat: &dyn Fn(NodeId) -> bool,
) -> ForwardGraph {
    let stateful: Vec<NodeId> =
        f.blocks[block].nodes.iter().copied().filter(|&n| f.nodes[n].op.effects().stateful).collect();
    let effect_before = stateful.windows(2).map(|pair| (pair[1], pair[0])).collect();
    let b = Builder { f, block, info, is_concat, effect_before };
    let (order, index) = b.post_dfs();
    let mut g = ForwardGraph { nodes: Vec::with_capacity(order.len()) };
    for &source in &order {
        let kind = match source {
            Source::Node(n) => info[&n].kind,
            Source::Tuple(_) => FusionKind::Tuple,
            Source::Projection(..) => FusionKind::Injective,
        };
        g.nodes.push(ForwardNode { source, kind, users: vec![], escapes: false });
    }
    for (user, &source) in order.iter().enumerate() {
        for (v, child) in b.children(source) {
            let kind = b.edge_kind(source, v);
            g.nodes[index[&child]].users.push((user, kind));
        }
    }
    for &v in &f.blocks[block].results {
        if let Some(s) = b.producer(v) {
            g.nodes[index[&s]].escapes = true;
        }
    }
    g
}

struct Builder<'a> {
    f: &'a Function,
    block: BlockId,
    info: &'a FxHashMap<NodeId, NodeInfo>,
    is_concat: &'a dyn Fn(NodeId) -> bool,
    /// For each stateful node but the first, the one before it.
    effect_before: FxHashMap<NodeId, NodeId>,
}

impl Builder<'_> {
    /// The graph node of a value; `None` for constants and values from outside of the block.
    fn producer(&self, v: ValueId) -> Option<Source> {
        let ValueDef::Result(n, i) = self.f.values[v].def else { return None };
        let node = &self.f.nodes[n];
        if node.block != Some(self.block) || node.op.is::<Const>() {
            return None;
        }
        Some(if node.outputs.len() > 1 { Source::Projection(n, i) } else { Source::Node(n) })
    }
    /// The nodes that a graph node uses, in order, each with the value on the edge if there is one.
    fn children(&self, source: Source) -> Vec<(Option<ValueId>, Source)> {
        match source {
            Source::Projection(n, _) => vec![(None, Source::Node(n))],
            Source::Node(n) if (self.is_concat)(n) => vec![(None, Source::Tuple(n))],
            Source::Node(n) | Source::Tuple(n) => {
                let node = &self.f.nodes[n];
                let mut out: Vec<_> =
                    node.inputs.iter().flatten().filter_map(|&v| Some((Some(v), self.producer(v)?))).collect();
                for &r in &node.regions {
                    let captured = captures(self.f, r);
                    out.extend(captured.into_iter().filter_map(|v| Some((Some(v), self.producer(v)?))));
                }
                out.extend(self.effect_before.get(&n).map(|&before| (None, Source::Node(before))));
                out
            }
        }
    }
    /// An edge has its consumer's kind; a broadcast whose operand has the result's shape counts as elementwise.
    fn edge_kind(&self, user: Source, v: Option<ValueId>) -> FusionKind {
        match user {
            Source::Tuple(_) | Source::Projection(..) => FusionKind::Injective,
            Source::Node(n) => {
                let kind = self.info[&n].kind;
                let outputs = &self.f.nodes[n].outputs;
                let same = v.is_some_and(|v| outputs.len() == 1 && self.f.ty(v).shape == self.f.ty(outputs[0]).shape);
                if kind == FusionKind::Broadcast && same { FusionKind::Elementwise } else { kind }
            }
        }
    }
    /// Depth-first from the block's results, operands in order; then whatever was not reached, in block order.
    fn post_dfs(&self) -> (Vec<Source>, FxHashMap<Source, usize>) {
        let mut order = Vec::new();
        let mut index: FxHashMap<Source, usize> = FxHashMap::default();
        let mut entered: rustc_hash::FxHashSet<Source> = Default::default();
        let block = &self.f.blocks[self.block];
        let rest = block.nodes.iter().filter(|&&n| !self.f.nodes[n].op.is::<Const>()).map(|&n| Source::Node(n));
        let starts: Vec<Source> = block.results.iter().filter_map(|&v| self.producer(v)).chain(rest).collect();
        for start in starts {
            let mut stack = vec![(start, false)];
            while let Some((s, done)) = stack.pop() {
                if done {
                    index.insert(s, order.len());
                    order.push(s);
                } else if entered.insert(s) {
                    stack.push((s, true));
                    stack.extend(self.children(s).into_iter().rev().map(|(_, c)| (c, false)));
                }
            }
        }
        (order, index)
    }
}

/// Values from outside that a region uses, nested regions included, in order of first use.
pub fn captures(f: &Function, region: BlockId) -> Vec<ValueId> {
    let mut inside = vec![false; f.values.len()];
    let mut used: Vec<ValueId> = Vec::new();
    let mut work = vec![region];
    while let Some(b) = work.pop() {
        f.blocks[b].args.iter().for_each(|v| inside[v.index()] = true);
        for &n in &f.blocks[b].nodes {
            f.nodes[n].outputs.iter().for_each(|v| inside[v.index()] = true);
            used.extend(f.nodes[n].inputs.iter().flatten());
            work.extend(&f.nodes[n].regions);
        }
        used.extend(&f.blocks[b].results);
    }
    let mut seen = rustc_hash::FxHashSet::default();
    used.into_iter().filter(|v| !inside[v.index()] && seen.insert(*v)).collect()
}

/// Equal ops on equal types have equal costs.
pub(super) fn key_of<'a>(f: &Function, nodes: impl Iterator<Item = &'a NodeId>) -> String {
    use std::fmt::Write;
    let mut key = String::new();
    for &n in nodes {
        let node = &f.nodes[n];
        let _ = write!(key, "{:?}(", node.op);
        for v in node.inputs.iter().flatten() {
            let constant = f.def_op::<crate::ops::control::Const>(*v).map(|c| c.1.name);
            let _ = write!(key, "{:?}{:?},", f.ty(*v), constant.filter(|_| f.ty(*v).rank() <= 1));
        }
        key.push(')');
    }
    key
}
