//! Derives workgroup barriers: between a write and a read, or a read and a write, of memory that threads share.
//!
//! A barrier goes before the outermost statement that conflicts with an access since the last barrier, so a copy nest
//! waits once and not in every iteration. Loops are walked twice: the second walk starts with the accesses of the last
//! iteration.

use crate::grid::{Axes, Axis};
use crate::tree::{Leaf, Node};
use rustc_hash::{FxHashMap, FxHashSet};
use tensor_ir::int::{self, Bounds, Int};
use tensor_ir::tir::{BufferId, Scope, TensorFunction};

/// Elements of one buffer that were touched since the last barrier.
#[derive(Clone, Debug, Default)]
struct Touched {
    reads: FxHashSet<Vec<Int>>,
    writes: FxHashMap<Vec<Int>, FxHashSet<tensor_ir::name::Name>>,
}

type State = FxHashMap<BufferId, Touched>;

/// Inserts barriers into a kernel.
pub(crate) struct Barriers<'a> {
    function: &'a TensorFunction,
    axes: &'a Axes,
    shared: FxHashSet<BufferId>,
    bounds: Bounds,
}

impl<'a> Barriers<'a> {
    /// For the expanded kernel `root`.
    pub fn new(function: &'a TensorFunction, axes: &'a Axes, root: &Node) -> Self {
        let (mut written, mut read) = (FxHashSet::default(), FxHashSet::default());
        root.visit_leaves(&mut |l| {
            written.insert(l.buffer);
            if l.combiner.is_some() {
                read.insert(l.buffer);
            }
            l.visit_loads(&mut |b, _| {
                read.insert(b);
            });
        });
        // Global memory that this kernel writes may be read back by other threads of the workgroup.
        let visible = |b: &BufferId| match function.buffers[*b].scope {
            Scope::Shared => true,
            Scope::Global => read.contains(b),
            Scope::Register | Scope::Subgroup { .. } | Scope::Fragment(_) => false,
        };
        let alone = axes.workgroup().iter().product::<u32>() == 1;
        let mut shared = if alone { FxHashSet::default() } else { written };
        shared.retain(visible);
        if !shared.is_empty() {
            let mut elsewhere = FxHashSet::default();
            read_elsewhere(root, &mut elsewhere);
            shared.retain(|b| function.buffers[*b].scope == Scope::Shared || elsewhere.contains(b));
        }
        let mut bounds = Bounds::new();
        for axis in axes.all() {
            bounds.insert(axis.var, 0, axis.extent - 1);
        }
        insert_loops(root, &mut bounds);
        Barriers { function, axes, shared, bounds }
    }

    /// The kernel with its barriers.
    pub fn insert(&self, root: Node) -> Node {
        if self.shared.is_empty() { root } else { self.walk(root, &mut State::default()) }
    }

    fn walk(&self, node: Node, state: &mut State) -> Node {
        match node {
            Node::Seq(list) => {
                let mut out = Vec::with_capacity(list.len());
                for n in list {
                    let here = self.touched(&n);
                    if self.conflict(state, &here) {
                        out.push(Node::Barrier);
                        state.clear();
                    }
                    out.push(self.walk(n, state));
                }
                Node::Seq(out)
            }
            Node::If { conds, body } => Node::If { conds, body: Box::new(self.walk(*body, state)) },
            Node::Loop { var, extent, spread, body } => {
                let mut after = state.clone();
                self.walk((*body).clone(), &mut after);
                merge(state, after);
                let here = self.touched(&body);
                let wait = self.conflict(state, &here) && !matches!(*body, Node::Seq(_));
                let body = if wait {
                    state.clear();
                    Node::Seq(vec![Node::Barrier, self.walk(*body, state)])
                } else {
                    self.walk(*body, state)
                };
                Node::Loop { var, extent, spread, body: Box::new(body) }
            }
            Node::Leaf(leaf) => {
                merge(state, self.touched_by(&leaf));
                Node::Leaf(leaf)
            }
            Node::Barrier => {
                state.clear();
                Node::Barrier
            }
        }
    }

    fn touched(&self, node: &Node) -> State {
        let mut state = State::default();
        node.visit_leaves(&mut |l| merge(&mut state, self.touched_by(l)));
        state
    }

    fn touched_by(&self, leaf: &Leaf) -> State {
        let mut state = State::default();
        leaf.visit_loads(&mut |b, ix| {
            if self.shared.contains(&b) {
                state.entry(b).or_default().reads.insert(ix.to_vec());
            }
        });
        if self.shared.contains(&leaf.buffer) {
            let t = state.entry(leaf.buffer).or_default();
            if leaf.combiner.is_some() {
                t.reads.insert(leaf.indices.clone());
            }
            t.writes.entry(leaf.indices.clone()).or_default().insert(leaf.block);
        }
        state
    }

    fn conflict(&self, before: &State, now: &State) -> bool {
        now.iter().any(|(b, now)| before.get(b).is_some_and(|before| self.clash(*b, before, now)))
    }

    /// Accesses of an element by the thread that owns it need no barrier: both use the same index, which differs
    /// between all threads in all iterations.
    fn clash(&self, buffer: BufferId, before: &Touched, now: &Touched) -> bool {
        let mut all: FxHashSet<&Vec<Int>> = before.writes.keys().chain(now.writes.keys()).collect();
        all.extend(before.reads.iter().chain(&now.reads));
        let own = all.len() == 1 && all.iter().all(|ix| self.names_one_thread(ix));
        let raw = !before.writes.is_empty() && !now.reads.is_empty();
        let war = !before.reads.is_empty() && !now.writes.is_empty();
        // Blocks that only write different parts (a fill, then a copy) are kept in order too; one block's instances are
        // disjoint.
        let blocks = |t: &Touched| t.writes.values().flatten().copied().collect::<FxHashSet<_>>();
        let waw = self.function.buffers[buffer].scope == Scope::Shared
            && !before.writes.is_empty()
            && !now.writes.is_empty()
            && blocks(before) != blocks(now);
        !own && (raw || war || waw)
    }

    /// True when the thread's index along an axis is a digit of `index`: `index / c % extent` gives it back.
    fn tells(&self, index: &Int, axis: &Axis) -> bool {
        if !index.uses(axis.var) {
            return false;
        }
        let at = |n: i64| index.substitute(axis.var, &Int::new(n));
        let step = int::simplify(&(at(1) - at(0)), &self.bounds).as_const().filter(|c| *c > 0);
        let digit = |c: i64| int::simplify(&index.div(c).rem(axis.extent), &self.bounds);
        step.is_some_and(|c| digit(c).as_var() == Some(axis.var))
    }

    fn names_one_thread(&self, indices: &[Int]) -> bool {
        let tells = |a: &Axis| indices.iter().any(|i| self.tells(i, a));
        self.axes.local.iter().flatten().filter(|a| a.extent > 1).all(tells)
    }
}

/// Buffers with loads that are not of what the same iteration has stored just before, by a leaf of the same sequence. A
/// block stores each element of device memory once, so no other thread stores what such a load reads.
fn read_elsewhere(node: &Node, out: &mut FxHashSet<BufferId>) {
    match node {
        Node::Seq(list) => list.iter().enumerate().for_each(|(i, n)| match n {
            Node::Leaf(leaf) => loads_elsewhere(leaf, &list[..i], out),
            n => read_elsewhere(n, out),
        }),
        Node::Loop { body, .. } | Node::If { body, .. } => read_elsewhere(body, out),
        Node::Leaf(leaf) => loads_elsewhere(leaf, &[], out),
        Node::Barrier => {}
    }
}

/// The buffers of [`read_elsewhere`] of one leaf, with what precedes it in its sequence.
fn loads_elsewhere(leaf: &Leaf, before: &[Node], out: &mut FxHashSet<BufferId>) {
    let stored = |b: BufferId, ix: &[Int]| {
        before.iter().any(|n| matches!(n, Node::Leaf(w) if w.stores_for(leaf) && w.buffer == b && w.indices == ix))
    };
    leaf.visit_loads(&mut |b, ix| {
        if !stored(b, ix) {
            out.insert(b);
        }
    });
    if leaf.combiner.is_some() {
        out.insert(leaf.buffer);
    }
}

/// Ranges of the loops below `node`.
fn insert_loops(node: &Node, bounds: &mut Bounds) {
    match node {
        Node::Seq(list) => list.iter().for_each(|n| insert_loops(n, bounds)),
        Node::If { body, .. } => insert_loops(body, bounds),
        Node::Loop { var, extent, body, .. } => {
            if let Some((_, high)) = int::range(extent, bounds) {
                bounds.insert(*var, 0, (high - 1).max(0));
            }
            insert_loops(body, bounds);
        }
        Node::Leaf(leaf) => {
            for (var, extent) in &leaf.tensor {
                bounds.insert(*var, 0, extent - 1);
            }
            if let Some(lane) = leaf.lane {
                bounds.insert(lane.var, 0, i64::from(lane.count) - 1);
            }
        }
        Node::Barrier => {}
    }
}

fn merge(into: &mut State, from: State) {
    for (b, t) in from {
        let slot = into.entry(b).or_default();
        slot.reads.extend(t.reads);
        for (ix, blocks) in t.writes {
            slot.writes.entry(ix).or_default().extend(blocks);
        }
    }
}
