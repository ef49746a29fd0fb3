//! Groups: a union-find over the forward graph, merged in TVM's three phases.
//!
//! A group has at most one anchor (an out-elementwise-fusable node). Reads and writes of a group are counted as it
//! grows, so that no group needs more storage buffers than the device has.

use super::dominators::PostDominators;
use super::forward::{ForwardGraph, ForwardNode, Source};
use super::reason::Reason;
use crate::arena::Id;
use crate::graph::{Function, NodeId, ValueId};
use crate::passes::fusion_kind::NodeInfo;
use crate::tir::FusionKind;
use rustc_hash::FxHashMap;

/// The limits of a group.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Nodes.
    pub max_group: usize,
    /// Storage buffers.
    pub max_bindings: u32,
    /// Scalar operations in the text for one element.
    pub max_operations: usize,
}

/// The values that a group reads from other groups and writes for them, with the number of uses.
#[derive(Clone, Debug, Default)]
struct Ports {
    /// Values from outside, with the number of uses inside.
    reads: Vec<(ValueId, u32)>,
    /// Values made inside, with the number of uses outside.
    writes: Vec<(ValueId, u32)>,
}

/// The groups.
pub struct Partition<'a> {
    g: &'a ForwardGraph,
    tree: PostDominators,
    limits: Limits,
    /// Bindings that a value takes.
    weight: Vec<u32>,
    parent: Vec<usize>,
    kind: Vec<FusionKind>,
    anchor: Vec<Option<usize>>,
    size: Vec<usize>,
    members: Vec<Vec<usize>>,
    ports: Vec<Ports>,
    /// For each node, the operations of its own text if that is inlined into its users, and the nodes that it loads,
    /// with the number of loads.
    text: Vec<(f64, Vec<(usize, f64)>)>,
    stamp: Vec<u32>,
    round: u32,
    /// Why a node is not in its post-dominator's group; overwritten by each phase.
    declined: Vec<Option<Reason>>,
}

impl<'a> Partition<'a> {
    /// Every node alone. `weight` gives the bindings of a value, `uses` the number of its uses.
    pub fn new(
        g: &'a ForwardGraph,
        f: &Function,
        info: &FxHashMap<NodeId, NodeInfo>,
        weight: Vec<u32>,
        uses: &[u32],
        limits: Limits,
    ) -> Partition<'a> {
        let n = g.nodes.len();
        let mut p = Partition {
            g,
            tree: PostDominators::new(g),
            limits,
            weight,
            parent: (0..n).collect(),
            kind: g.nodes.iter().map(|x| x.kind).collect(),
            anchor: vec![None; n],
            size: vec![0; n],
            members: (0..n).map(|i| vec![i]).collect(),
            ports: vec![Ports::default(); n],
            text: vec![(0.0, vec![]); n],
            stamp: vec![0; n],
            round: 0,
            declined: vec![None; n],
        };
        let place = |(i, node): (usize, &ForwardNode)| (node.source, i);
        let places: FxHashMap<Source, usize> = g.nodes.iter().enumerate().map(place).collect();
        for (i, node) in g.nodes.iter().enumerate() {
            let Source::Node(id) = node.source else { continue };
            p.size[i] = 1;
            p.anchor[i] = (node.kind == FusionKind::OutElementwiseFusable).then_some(i);
            if f.nodes.get(id).is_some() {
                p.ports[i] = ports_of(f, id, &info[&id], uses);
                p.text[i] = text_of(f, id, &info[&id], &places);
            }
        }
        p
    }
    /// The group's representative: the node that the others were merged into.
    pub fn root(&mut self, mut i: usize) -> usize {
        while self.parent[i] != i {
            self.parent[i] = self.parent[self.parent[i]];
            i = self.parent[i];
        }
        i
    }
    /// Runs the three phases.
    pub fn run(&mut self) {
        for phase in 0..3 {
            for i in 0..self.g.nodes.len() {
                self.visit(i, phase);
            }
        }
    }
    fn visit(&mut self, i: usize, phase: u32) {
        if self.kind[i] == FusionKind::Opaque {
            return;
        }
        let Some((sink, edge)) = self.tree.parent(i) else {
            self.declined[i] = Some(Reason::NoDominator);
            return;
        };
        if phase == 2 {
            let enters = self.kind[i] <= FusionKind::Injective && self.kind[sink] == FusionKind::Tuple;
            let root = self.root(sink);
            if enters && self.kind[root] <= FusionKind::Injective {
                self.try_fuse(i, sink, &|k, _| k <= FusionKind::Injective);
            }
            return;
        }
        if self.root(i) == self.root(sink) {
            return;
        }
        if self.kind[sink] == FusionKind::Tuple {
            self.declined[i] = Some(Reason::Tuple { sink });
            return;
        }
        use FusionKind::*;
        match self.kind[i] {
            OutElementwiseFusable if phase == 0 => {
                if edge == Elementwise {
                    self.try_fuse(i, sink, &|k, _| k <= Broadcast);
                } else {
                    self.declined[i] = Some(Reason::Edge { sink, edge, needs: "elementwise" });
                }
            }
            Elementwise | Broadcast => {
                if edge <= Injective || edge == Reduction {
                    self.try_fuse(i, sink, &|k, is_sink| {
                        k <= Injective || (is_sink && matches!(k, Reduction | OutElementwiseFusable))
                    });
                } else {
                    self.declined[i] = Some(Reason::Edge { sink, edge, needs: "injective or reduction" });
                }
            }
            Injective | Tuple if phase == 1 => {
                self.try_fuse(i, sink, &|k, _| k <= Injective);
            }
            Reduction => self.declined[i] = Some(Reason::Reduction { sink }),
            _ => {}
        }
    }
    /// Merges `src` and all nodes between into the sink's group when each of their groups' kinds passes `cond` and the
    /// limits hold; else records why not.
    pub(super) fn try_fuse(&mut self, src: usize, sink: usize, cond: &dyn Fn(FusionKind, bool) -> bool) {
        match self.path(src, sink, cond).and_then(|between| self.check_limits(src, &between, sink).map(|_| between)) {
            // A later phase would also count the nodes that other groups have gained since.
            Err(reason) if reason.is_limit() && self.declined[src].as_ref().is_some_and(Reason::is_limit) => {}
            Err(reason) => self.declined[src] = Some(reason),
            Ok(between) => {
                self.declined[src] = None;
                self.merge(src, sink);
                for b in between {
                    self.merge(b, sink);
                }
            }
        }
    }
    /// All nodes strictly between `src` and `sink`.
    fn path(&mut self, src: usize, sink: usize, cond: &dyn Fn(FusionKind, bool) -> bool) -> Result<Vec<usize>, Reason> {
        self.round += 1;
        let mut between = Vec::new();
        let mut work: Vec<usize> = self.g.nodes[src].users.iter().rev().map(|u| u.0).collect();
        while let Some(x) = work.pop() {
            if std::mem::replace(&mut self.stamp[x], self.round) == self.round {
                continue;
            }
            let root = self.root(x);
            if !cond(self.kind[root], x == sink) {
                return Err(match (self.anchor_of(src), self.anchor[root]) {
                    (Some(_), Some(anchor)) => Reason::Anchored { at: x, anchor },
                    _ => Reason::Path { at: x, kind: self.kind[root] },
                });
            }
            if x == sink {
                continue;
            }
            between.push(x);
            // Every node on the way would join the group, and each node has at most one virtual companion per operand.
            if between.len() > 4 * self.limits.max_group + 64 {
                return Err(Reason::Size { size: between.len(), limit: self.limits.max_group });
            }
            work.extend(self.g.nodes[x].users.iter().rev().map(|u| u.0));
        }
        Ok(between)
    }
    fn anchor_of(&mut self, i: usize) -> Option<usize> {
        let root = self.root(i);
        self.anchor[root]
    }
    fn check_limits(&mut self, src: usize, between: &[usize], sink: usize) -> Result<(), Reason> {
        let mut roots: Vec<usize> = Vec::new();
        for x in between.iter().copied().chain([src, sink]) {
            let r = self.root(x);
            roots.push(r);
        }
        roots.sort_unstable();
        roots.dedup();
        let size = roots.iter().map(|&r| self.size[r]).sum();
        if size > self.limits.max_group {
            return Err(Reason::Size { size, limit: self.limits.max_group });
        }
        let count = self.bindings(&self.merged(&roots));
        if count > self.limits.max_bindings && roots.len() > 1 {
            return Err(Reason::Bindings { count, limit: self.limits.max_bindings });
        }
        let operations = self.operations(&roots);
        if operations > self.limits.max_operations as f64 && roots.len() > 1 {
            return Err(Reason::Operations { operations, limit: self.limits.max_operations });
        }
        Ok(())
    }
    /// Scalar operations in the text of a kernel of the groups `roots` for one element. Each load of an injective
    /// member is replaced by its whole text, so a chain of `x + x` doubles with every step. Operations in the loops of
    /// an anchor or a reduction do not count.
    fn operations(&self, roots: &[usize]) -> f64 {
        let mut members: Vec<usize> = roots.iter().flat_map(|&r| self.members[r].iter().copied()).collect();
        members.sort_unstable();
        let mut total = 0.0;
        let mut whole: FxHashMap<usize, (f64, bool)> = FxHashMap::default();
        // Users come after what they use.
        for m in members {
            let (own, loads) = &self.text[m];
            let mut sum = *own;
            for &(p, times) in loads {
                if let Some((inside, used)) = whole.get_mut(&p) {
                    *used = true;
                    sum += times * *inside;
                }
            }
            // A map is inlined into its users; any other node is stored, and loaded as an element.
            match self.g.nodes[m].kind <= FusionKind::Injective {
                true => drop(whole.insert(m, (sum, false))),
                false => total += sum,
            }
        }
        total + whole.values().filter(|(_, used)| !used).map(|(sum, _)| sum).sum::<f64>()
    }
    /// Ports of the union of several groups.
    fn merged(&self, roots: &[usize]) -> Ports {
        let mut out = Ports::default();
        for &r in roots {
            out.reads.extend(&self.ports[r].reads);
            out.writes.extend(&self.ports[r].writes);
        }
        out.reads.sort_unstable();
        out.reads.dedup_by(|b, a| {
            let same = a.0 == b.0;
            a.1 += if same { b.1 } else { 0 };
            same
        });
        out.writes.sort_unstable();
        let writes = &mut out.writes;
        out.reads.retain(|&(v, inside)| match writes.binary_search_by_key(&v, |w| w.0) {
            Ok(w) => {
                writes[w].1 = writes[w].1.saturating_sub(inside);
                false
            }
            Err(_) => true,
        });
        writes.retain(|w| w.1 > 0);
        out
    }
    fn bindings(&self, p: &Ports) -> u32 {
        p.reads.iter().chain(&p.writes).map(|(v, _)| self.weight[v.index()]).sum()
    }
    pub(super) fn merge(&mut self, child: usize, into: usize) {
        let (c, p) = (self.root(child), self.root(into));
        if c == p {
            return;
        }
        debug_assert!(self.anchor[c].is_none() || self.anchor[p].is_none(), "a group has at most one anchor");
        self.link(c, p);
    }
    /// Joins the groups of two nodes without checks, for rules that make several kernels of a group.
    pub(super) fn join(&mut self, child: usize, into: usize) {
        let (c, p) = (self.root(child), self.root(into));
        if c != p {
            self.link(c, p);
        }
    }
    fn link(&mut self, c: usize, p: usize) {
        self.ports[p] = self.merged(&[c, p]);
        self.ports[c] = Ports::default();
        self.size[p] += self.size[c];
        let moved = std::mem::take(&mut self.members[c]);
        self.members[p].extend(moved);
        self.parent[c] = p;
        if self.anchor[c].is_some() {
            self.anchor[p] = self.anchor[p].or(self.anchor[c]);
            self.kind[p] = self.kind[p].max(self.kind[c]);
        }
    }
    /// The post-dominator of a node, with the kind of the tree edge.
    pub(super) fn dominator(&self, i: usize) -> Option<(usize, FusionKind)> {
        self.tree.parent(i)
    }
    /// The anchor of a group, by its representative.
    pub(super) fn anchor(&self, root: usize) -> Option<usize> {
        self.anchor[root]
    }
    /// The kind of a group, by its representative.
    pub(super) fn group_kind(&self, root: usize) -> FusionKind {
        self.kind[root]
    }
    /// Raises the kind of a node's group, so that no later rule takes it for less.
    pub(super) fn raise_kind(&mut self, i: usize, kind: FusionKind) {
        let root = self.root(i);
        self.kind[root] = self.kind[root].max(kind);
    }
    /// True when the groups `roots` together stay within the limits.
    pub(super) fn fits(&self, roots: &[usize]) -> bool {
        self.size(roots) <= self.limits.max_group && self.bindings(&self.merged(roots)) <= self.limits.max_bindings
    }
    /// Nodes of the groups `roots` together.
    pub(super) fn size(&self, roots: &[usize]) -> usize {
        roots.iter().map(|&r| self.size[r]).sum()
    }
    /// The limits of a group.
    pub(super) fn limits(&self) -> Limits {
        self.limits
    }
    /// Values that the group `root` reads from outside.
    pub(super) fn reads(&self, root: usize) -> impl Iterator<Item = ValueId> + '_ {
        self.ports[root].reads.iter().map(|r| r.0)
    }
    /// Values that the group `root` writes for others.
    pub(super) fn writes(&self, root: usize) -> impl Iterator<Item = ValueId> + '_ {
        self.ports[root].writes.iter().map(|w| w.0)
    }
    /// Bindings that values take.
    pub(super) fn weigh(&self, values: impl Iterator<Item = ValueId>) -> u32 {
        values.map(|v| self.weight[v.index()]).sum()
    }
    /// The nodes of the group of `i`, in post-DFS order.
    pub(super) fn members_of(&mut self, i: usize) -> Vec<usize> {
        let root = self.root(i);
        let mut list = self.members[root].clone();
        list.sort_unstable();
        list
    }
    /// The members of each group, by representative.
    pub(super) fn members(&mut self) -> FxHashMap<usize, Vec<usize>> {
        let mut out: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        for i in 0..self.g.nodes.len() {
            out.entry(self.root(i)).or_default().push(i);
        }
        out
    }
    /// The boundaries: node, its post-dominator where it has one, and the reason; only where they are in different
    /// groups.
    pub fn boundaries(&mut self) -> Vec<(usize, Option<usize>, Reason)> {
        let mut out = Vec::new();
        for i in 0..self.g.nodes.len() {
            let Some(reason) = self.declined[i].clone() else { continue };
            let sink = self.tree.parent(i).map(|p| p.0);
            if sink.is_none_or(|s| self.root(s) != self.root(i)) {
                out.push((i, sink, reason));
            }
        }
        out
    }
}

/// The operations of a node's own text, and the nodes that it loads, with how often.
fn text_of(f: &Function, n: NodeId, info: &NodeInfo, places: &FxHashMap<Source, usize>) -> (f64, Vec<(usize, f64)>) {
    let own = if info.kind <= FusionKind::Injective { info.operations } else { 0.0 };
    let loads = f.nodes[n].inputs.iter().zip(&info.loads).filter_map(|(v, &times)| {
        let from = places.get(&Source::Node(f.def_node((*v)?)?))?;
        (times > 0).then_some((*from, f64::from(times)))
    });
    (own, loads.collect())
}

/// The reads and writes of one node.
fn ports_of(f: &Function, n: NodeId, info: &NodeInfo, uses: &[u32]) -> Ports {
    let node = &f.nodes[n];
    let mut reads: Vec<(ValueId, u32)> = Vec::new();
    for v in node.inputs.iter().zip(&info.reads).filter(|x| *x.1).filter_map(|x| *x.0) {
        // A constant of one element becomes a literal of the kernel.
        let literal = f.def_op::<crate::ops::control::Const>(v).is_some() && f.ty(v).numel().is(1);
        if literal {
            continue;
        }
        match reads.iter_mut().find(|r| r.0 == v) {
            Some(r) => r.1 += 1,
            None => reads.push((v, 1)),
        }
    }
    let writes = node.outputs.iter().map(|&v| (v, uses[v.index()])).filter(|w| w.1 > 0).collect();
    Ports { reads, writes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FusionKind::*;

    /// A graph of `(kind, users, edge override)`; the last node escapes. Returns the groups as sorted lists.
    fn groups(nodes: &[(FusionKind, &[usize])], max_group: usize) -> Vec<Vec<usize>> {
        let mut g = ForwardGraph::default();
        for (i, (kind, users)) in nodes.iter().enumerate() {
            let edge = |u: usize| match nodes[u].0 {
                Tuple => Injective,
                Broadcast => Elementwise,
                k => k,
            };
            let source =
                if *kind == Tuple { Source::Tuple(NodeId::from_index(i)) } else { Source::Node(NodeId::from_index(i)) };
            let users = users.iter().map(|&u| (u, edge(u))).collect();
            g.nodes.push(ForwardNode { source, kind: *kind, users, escapes: i + 1 == nodes.len() });
        }
        let f = Function::new("f");
        let info = FxHashMap::default();
        let limits = Limits { max_group, max_bindings: 32, max_operations: usize::MAX };
        let mut p = Partition::new(&g, &f, &info, vec![], &[], limits);
        p.run();
        let mut by_root: std::collections::BTreeMap<usize, Vec<usize>> = Default::default();
        for i in 0..nodes.len() {
            by_root.entry(p.root(i)).or_default().push(i);
        }
        let mut out: Vec<_> = by_root.into_values().collect();
        out.sort();
        out
    }

    #[test]
    fn diamond_of_three_branches_after_a_convolution() {
        let got = groups(
            &[
                (OutElementwiseFusable, &[1, 2, 3]),
                (Elementwise, &[4]),
                (Elementwise, &[4]),
                (Elementwise, &[5]),
                (Broadcast, &[5]),
                (Broadcast, &[]),
            ],
            256,
        );
        assert_eq!(got, [[0, 1, 2, 3, 4, 5]]);
    }

    #[test]
    fn of_two_convolutions_meeting_in_an_add_the_first_takes_it() {
        let got = groups(
            &[(OutElementwiseFusable, &[2]), (OutElementwiseFusable, &[2]), (Broadcast, &[3]), (Elementwise, &[])],
            256,
        );
        assert_eq!(got, [vec![0, 2, 3], vec![1]]);
    }

    #[test]
    fn a_reduction_takes_its_prologue_and_never_extends() {
        let got = groups(&[(Elementwise, &[1]), (Reduction, &[2]), (Elementwise, &[])], 256);
        assert_eq!(got, [vec![0, 1], vec![2]]);
        let softmax = groups(&[(OutElementwiseFusable, &[1]), (Elementwise, &[])], 256);
        assert_eq!(softmax, [[0, 1]]);
    }

    #[test]
    fn injective_goes_forward_in_phase_one_only_into_injective() {
        let into_conv = groups(&[(Injective, &[1]), (OutElementwiseFusable, &[2]), (Elementwise, &[])], 256);
        assert_eq!(into_conv, [vec![0], vec![1, 2]]);
        let chain = groups(&[(Injective, &[1]), (Elementwise, &[2]), (Injective, &[])], 256);
        assert_eq!(chain, [[0, 1, 2]]);
        let conv_then_transpose = groups(&[(OutElementwiseFusable, &[1]), (Elementwise, &[2]), (Injective, &[])], 256);
        assert_eq!(conv_then_transpose, [vec![0, 1], vec![2]]);
    }

    #[test]
    fn concat_of_two_convolution_branches_stays_apart() {
        // conv -> relu, conv -> relu, (tuple) -> concat
        let got = groups(
            &[
                (OutElementwiseFusable, &[1]),
                (Elementwise, &[4]),
                (OutElementwiseFusable, &[3]),
                (Elementwise, &[4]),
                (Tuple, &[5]),
                (Injective, &[]),
            ],
            256,
        );
        assert_eq!(got, [vec![0, 1], vec![2, 3], vec![4, 5]]);
        // elementwise branches enter the tuple in phase 2
        let light = groups(&[(Elementwise, &[2]), (Injective, &[2]), (Tuple, &[3]), (Injective, &[])], 256);
        assert_eq!(light, [[0, 1, 2, 3]]);
        // a tuple that escapes keeps its fields out
        let escaping = groups(&[(Elementwise, &[2]), (Elementwise, &[2]), (Tuple, &[])], 256);
        assert_eq!(escaping, [[0], [1], [2]]);
    }

    #[test]
    fn depth_limit_cuts_a_chain() {
        let users: Vec<Vec<usize>> = (0..300).map(|i| if i < 299 { vec![i + 1] } else { vec![] }).collect();
        let nodes: Vec<(FusionKind, &[usize])> = users.iter().map(|u| (Elementwise, u.as_slice())).collect();
        let sizes: Vec<usize> = groups(&nodes, 256).iter().map(Vec::len).collect();
        assert_eq!(sizes, [256, 44]);
    }
}
