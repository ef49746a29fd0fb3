//! The choice: a layout for each movable node at the least total cost, as a minimum cut.
//!
//! A value that is made in one layout and wanted in the other by anybody costs one transform, however many want it. With
//! the two colours 0 and 1 this is a sum of `cost * [maker is 0 and some user is 1]` and its mirror image; a helper node
//! for "some user is 1" makes each a single edge. Costs are in bytes of traffic: what an anchor loses in NCHW, what a
//! transform moves.

use super::frames::{Form, Frames};
use super::min_cut::{CutGraph, INFINITE, ONE, ZERO};
use super::{LayoutCost, TO_NHWC};
use crate::graph::{BlockId, Function, NodeId, TensorType, ValueDef, ValueId};
use crate::int::Int;
use crate::ops::control::Const;
use rustc_hash::{FxHashMap, FxHashSet};

/// The nodes that run in their moved form, and the cost of the choice.
pub struct Choice {
    /// Nodes that move.
    pub moved: FxHashSet<NodeId>,
    /// Total cost.
    pub cost: u64,
}

/// Chooses. `pin` fixes nodes to a layout.
pub fn choose(
    f: &Function,
    block: BlockId,
    frames: &Frames,
    costs: &dyn LayoutCost,
    pin: &dyn Fn(NodeId) -> Option<u8>,
) -> Choice {
    let mut c = Chooser { f, block, frames, costs, g: CutGraph::new(), node: FxHashMap::default() };
    let order: Vec<NodeId> = f.blocks[block].nodes.iter().copied().filter(|n| frames.movable.contains_key(n)).collect();
    for &n in &order {
        c.add_node(n, pin(n));
    }
    for (root, members) in c.classes() {
        c.add_value(root, &members);
    }
    let Chooser { g, node, .. } = c;
    let (colours, cost) = g.solve();
    let moved = order.into_iter().filter(|n| colours[node[n]] as u8 != frames.movable[n].frame).collect();
    Choice { moved, cost }
}

struct Chooser<'a> {
    f: &'a Function,
    block: BlockId,
    frames: &'a Frames,
    costs: &'a dyn LayoutCost,
    g: CutGraph,
    node: FxHashMap<NodeId, usize>,
}

impl Chooser<'_> {
    fn add_node(&mut self, n: NodeId, pin: Option<u8>) {
        let m = &self.frames.movable[&n];
        let x = self.g.add_node();
        self.node.insert(n, x);
        let mut cost = [0u64; 2];
        if m.anchor {
            cost = [self.costs.anchor(self.f, n, false), self.costs.anchor(self.f, n, true)];
        }
        let node = &self.f.nodes[n];
        for (i, form) in &m.operands {
            let Some(v) = node.inputs[*i].filter(|&v| self.f.def_op::<Const>(v).is_none()) else { continue };
            let ty = self.f.ty(v);
            cost[m.other() as usize] += match form {
                Form::Aligned => {
                    let ones = std::iter::repeat_n(Int::new(1), 4usize.saturating_sub(ty.rank()));
                    let shape = ones.chain(ty.shape.iter().cloned()).collect();
                    self.costs.transform(&TensorType::new(ty.dtype, shape), &TO_NHWC)
                }
                Form::Permuted(p) => self.costs.transform(ty, p),
                Form::AsIs | Form::Moved => 0,
            };
        }
        for (form, &v) in m.results.iter().zip(&node.outputs) {
            if let Form::Permuted(p) = form {
                cost[m.other() as usize] += self.costs.transform(self.f.ty(v), p);
            }
        }
        match pin {
            Some(0) => cost[1] = INFINITE,
            Some(_) => cost[0] = INFINITE,
            None => {}
        }
        // Colour 0 costs the edge to the terminal 1, and the other way round.
        self.g.add_cost(x, ONE, cost[0]);
        self.g.add_cost(ZERO, x, cost[1]);
    }
    /// Values by the tensor they stand for: results of dissolved transposes with their operands.
    fn classes(&self) -> Vec<(ValueId, Vec<ValueId>)> {
        let mut classes: indexmap::IndexMap<ValueId, Vec<ValueId>> = indexmap::IndexMap::new();
        let mut values: Vec<ValueId> = self.frames.frame.keys().copied().collect();
        values.sort_unstable();
        for v in values {
            classes.entry(root_of(self.f, self.frames, v)).or_default().push(v);
        }
        classes.into_iter().collect()
    }
    /// The colour that a movable node gives value `v`; `None` when it comes as it stands.
    fn maker(&self, v: ValueId) -> Option<usize> {
        let ValueDef::Result(n, i) = self.f.values[v].def else { return None };
        let m = self.frames.movable.get(&n)?;
        (m.results[i] == Form::Moved).then(|| self.node[&n])
    }
    fn add_value(&mut self, root: ValueId, members: &[ValueId]) {
        let cost = self.costs.transform(self.f.ty(root), &TO_NHWC);
        if cost == 0 {
            return;
        }
        let terminal = |layout: u8| if layout == 0 { ZERO } else { ONE };
        let maker = self.maker(root).unwrap_or(terminal(self.frames.frame[&root]));
        let mut users: Vec<usize> = Vec::new();
        for &v in members {
            let as_is = terminal(self.frames.frame[&v]);
            if self.f.blocks[self.block].results.contains(&v) {
                users.push(as_is);
            }
            for &(n, i) in self.frames.users.get(&v).into_iter().flatten() {
                if self.frames.dissolved.contains(&n) {
                    continue;
                }
                let moves = self.frames.movable.get(&n).is_some_and(|m| m.operand(i) == Some(&Form::Moved));
                users.push(if moves { self.node[&n] } else { as_is });
            }
        }
        users.sort_unstable();
        users.dedup();
        users.retain(|&u| u != maker);
        match users[..] {
            [] => {}
            [user] => {
                self.g.add_cost(maker, user, cost);
                self.g.add_cost(user, maker, cost);
            }
            _ => {
                let (some_one, some_zero) = (self.g.add_node(), self.g.add_node());
                self.g.add_cost(maker, some_one, cost);
                self.g.add_cost(some_zero, maker, cost);
                for u in users {
                    self.g.add_cost(some_one, u, INFINITE);
                    self.g.add_cost(u, some_zero, INFINITE);
                }
            }
        }
    }
}

/// The value that `v` is a mere transposition of, through dissolved transposes.
pub fn root_of(f: &Function, frames: &Frames, mut v: ValueId) -> ValueId {
    while let Some(n) = f.def_node(v)
        && frames.dissolved.contains(&n)
        && let Some(x) = f.nodes[n].inputs[0]
    {
        v = x;
    }
    v
}

/// Costs from sizes alone.
pub struct AnalyticCost;
impl AnalyticCost {
    fn bytes(ty: &TensorType) -> u64 {
        // An open dimension counts as 16.
        let count = ty.numel().eval(&|_| Some(16)).unwrap_or(1).max(0) as u64;
        count.saturating_mul(ty.dtype.size() as u64).min(1 << 40)
    }
}
impl LayoutCost for AnalyticCost {
    /// Read once, written once, and a launch that costs as much as 64 KiB.
    fn transform(&self, ty: &TensorType, perm: &[usize]) -> u64 {
        if super::moves_no_data(&ty.shape, perm) { 0 } else { 2 * Self::bytes(ty) + 65536 }
    }
    /// An anchor in NCHW reads its data across channels: as if it read and wrote everything twice more, and each
    /// multiply-accumulate cost a quarter of a byte.
    fn anchor(&self, f: &Function, n: NodeId, nhwc: bool) -> u64 {
        if nhwc {
            return 0;
        }
        let (inputs, outputs) = crate::ops::node_types(f, n);
        let data = inputs.first().copied().flatten().map_or(0, Self::bytes);
        let traffic = data + outputs.iter().map(|t| Self::bytes(t)).sum::<u64>();
        let macs = f.nodes[n].op.macs(&inputs, &outputs);
        if macs > 0 { 2 * traffic + macs / 4 } else { traffic / 2 }
    }
}
