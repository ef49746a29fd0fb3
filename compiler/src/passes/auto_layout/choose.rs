//! The choice: a layout for each convertible node at the least total cost, as a minimum cut.
//!
//! A value that is made in one layout and used in the other costs one transform, for any number of users. With the two
//! colours 0 and 1 the cost is a sum of `cost * [maker is 0 and some user is 1]` and its mirror image; an extra vertex
//! for "some user is 1" makes each term a single edge. The cost model gives the costs: each anchor in either layout,
//! and each transform that moves data.

use super::min_cut::{CutGraph, INFINITE, ONE, ZERO};
use super::propagation::{Convertible, Form, Propagation, unsqueezed};
use super::scheme::{Scheme, moves_no_data};
use crate::cost::{CostModel, NodeForm};
use crate::graph::{BlockId, Function, NodeId, TensorType, ValueDef, ValueId};
use crate::ops::permute::{invert, permute};
use crate::ops::transpose::Transpose;
use rustc_hash::{FxHashMap, FxHashSet};

/// The nodes that run in their converted form, and the cost of the choice.
pub struct Choice {
    /// Nodes that move.
    pub converted: FxHashSet<NodeId>,
    /// Total cost.
    pub cost: u64,
}

/// The inputs of the choice.
#[derive(Clone, Copy)]
pub struct Costs<'a> {
    /// The function.
    pub f: &'a Function,
    /// The convertible nodes of the block.
    pub propagation: &'a Propagation,
    /// The two layouts.
    pub scheme: Scheme,
    /// Costs of nodes.
    pub model: &'a dyn CostModel,
}

impl Costs<'_> {
    /// The cost of changing data of type `ty` to colour `to`; 0 if the order of the elements does not change.
    pub fn transform(&self, ty: &TensorType, to: u8) -> u64 {
        if self.scheme.keeps_order(&ty.shape, to) {
            return 0;
        }
        let Ok(converted) = self.scheme.converted(ty, to) else { return INFINITE / 4 };
        self.model.node(&NodeForm {
            op: self.scheme.transform(to),
            inputs: vec![Some((ty.clone(), false))],
            outputs: vec![converted],
        })
    }
    fn permutation(&self, ty: &TensorType, perm: &[usize]) -> u64 {
        if moves_no_data(&ty.shape, perm) {
            return 0;
        }
        self.model.node(&NodeForm {
            op: Transpose { perm: perm.to_vec() }.into(),
            inputs: vec![Some((ty.clone(), false))],
            outputs: vec![TensorType::new(ty.dtype, permute(&ty.shape, perm))],
        })
    }
    /// An anchor in the layout of `colour`.
    pub fn anchor(&self, n: NodeId, colour: u8) -> u64 {
        let (m, node) = (&self.propagation.convertible[&n], &self.f.nodes[n]);
        let moves = colour != m.source_layout;
        let ty = |v: ValueId, form: Option<&Form>| match form {
            Some(Form::Converted) if moves => {
                self.scheme.converted(self.f.ty(v), colour).unwrap_or(self.f.ty(v).clone())
            }
            _ => self.f.ty(v).clone(),
        };
        let operand = |(i, v): (usize, &Option<ValueId>)| {
            v.map(|v| (ty(v, m.operand(i)), self.propagation.constants.contains(&v)))
        };
        self.model.node(&NodeForm {
            op: if moves { m.op.clone() } else { node.op.clone() },
            inputs: node.inputs.iter().enumerate().map(operand).collect(),
            outputs: node.outputs.iter().zip(&m.results).map(|(&v, form)| ty(v, Some(form))).collect(),
        })
    }
    /// The cost of the transforms that belong to the converted form of a node.
    fn own_transforms(&self, n: NodeId, m: &Convertible) -> u64 {
        let node = &self.f.nodes[n];
        let mut cost = 0u64;
        for (i, form) in &m.operands {
            let Some(v) = node.inputs[*i].filter(|v| !self.propagation.constants.contains(v)) else { continue };
            let ty = self.f.ty(v);
            cost += match form {
                Form::Unsqueezed => self.transform(&unsqueezed(ty, self.scheme.rank(m.source_layout)), m.other()),
                Form::Permuted(p) => self.permutation(ty, p),
                Form::AsIs | Form::Converted | Form::Shaped(_) => 0,
            };
        }
        for (form, &v) in m.results.iter().zip(&node.outputs) {
            if let Form::Permuted(p) = form {
                // Made in the other order, and brought back.
                let ty = self.f.ty(v);
                cost += self.permutation(&TensorType::new(ty.dtype, permute(&ty.shape, p)), &invert(p));
            }
        }
        cost
    }
}

/// Chooses. `pin` fixes nodes to a layout.
pub fn choose(costs: Costs<'_>, block: BlockId, pin: &dyn Fn(NodeId) -> Option<u8>) -> Choice {
    let (f, propagation) = (costs.f, costs.propagation);
    let mut c = Chooser { f, block, propagation, costs, g: CutGraph::new(), node: FxHashMap::default() };
    let order: Vec<NodeId> =
        f.blocks[block].nodes.iter().copied().filter(|n| propagation.convertible.contains_key(n)).collect();
    for &n in &order {
        c.add_node(n, pin(n));
    }
    for (root, members) in c.classes() {
        c.add_value(root, &members);
    }
    let Chooser { g, node, .. } = c;
    let (colours, cost) = g.solve();
    let converted =
        order.into_iter().filter(|n| colours[node[n]] as u8 != propagation.convertible[n].source_layout).collect();
    Choice { converted, cost }
}

struct Chooser<'a> {
    f: &'a Function,
    block: BlockId,
    propagation: &'a Propagation,
    costs: Costs<'a>,
    g: CutGraph,
    node: FxHashMap<NodeId, usize>,
}

impl Chooser<'_> {
    fn add_node(&mut self, n: NodeId, pin: Option<u8>) {
        let m = &self.propagation.convertible[&n];
        let x = self.g.add_node();
        self.node.insert(n, x);
        let mut cost = [0u64; 2];
        if m.anchor {
            cost = [self.costs.anchor(n, 0), self.costs.anchor(n, 1)];
        }
        cost[m.other() as usize] += self.costs.own_transforms(n, m);
        match pin {
            Some(0) => cost[1] = INFINITE,
            Some(_) => cost[0] = INFINITE,
            None => {}
        }
        // Colour 0 costs the edge to the terminal 1, and the other way round.
        self.g.add_cost(x, ONE, cost[0]);
        self.g.add_cost(ZERO, x, cost[1]);
    }
    /// Values by tensor: the result of a removed transpose is in the class of its operand.
    fn classes(&self) -> Vec<(ValueId, Vec<ValueId>)> {
        let mut classes: indexmap::IndexMap<ValueId, Vec<ValueId>> = indexmap::IndexMap::new();
        let mut values: Vec<ValueId> = self.propagation.source_layout.keys().copied().collect();
        values.sort_unstable();
        for v in values {
            classes.entry(root_of(self.f, self.propagation, v)).or_default().push(v);
        }
        classes.into_iter().collect()
    }
    /// The node whose colour decides the layout of value `v`; `None` if its layout is fixed.
    fn maker(&self, v: ValueId) -> Option<usize> {
        let ValueDef::Result(n, i) = self.f.values[v].def else { return None };
        let m = self.propagation.convertible.get(&n)?;
        (m.results[i] == Form::Converted).then(|| self.node[&n])
    }
    fn add_value(&mut self, root: ValueId, members: &[ValueId]) {
        // The tensor exists at first in its source layout.
        let (ty, source_layout) = (self.f.ty(root), self.propagation.source_layout[&root]);
        let away = self.costs.transform(ty, 1 - source_layout);
        if away == 0 {
            return;
        }
        let back = self
            .costs
            .scheme
            .converted(ty, 1 - source_layout)
            .map_or(away, |converted| self.costs.transform(&converted, source_layout));
        let [to_zero, to_one] = if source_layout == 0 { [back, away] } else { [away, back] };
        let terminal = |layout: u8| if layout == 0 { ZERO } else { ONE };
        let maker = self.maker(root).unwrap_or(terminal(self.propagation.source_layout[&root]));
        let mut users: Vec<usize> = Vec::new();
        for &v in members {
            let as_is = terminal(self.propagation.source_layout[&v]);
            if self.f.blocks[self.block].results.contains(&v) {
                users.push(as_is);
            }
            for &(n, i) in self.propagation.users.get(&v).into_iter().flatten() {
                if self.propagation.dissolved.contains(&n) {
                    continue;
                }
                let moves =
                    self.propagation.convertible.get(&n).is_some_and(|m| m.operand(i) == Some(&Form::Converted));
                users.push(if moves { self.node[&n] } else { as_is });
            }
        }
        users.sort_unstable();
        users.dedup();
        users.retain(|&u| u != maker);
        match users[..] {
            [] => {}
            [user] => {
                self.g.add_cost(maker, user, to_one);
                self.g.add_cost(user, maker, to_zero);
            }
            _ => {
                let (some_one, some_zero) = (self.g.add_node(), self.g.add_node());
                self.g.add_cost(maker, some_one, to_one);
                self.g.add_cost(some_zero, maker, to_zero);
                for u in users {
                    self.g.add_cost(some_one, u, INFINITE);
                    self.g.add_cost(u, some_zero, INFINITE);
                }
            }
        }
    }
}

/// The value that `v` is a mere transposition of, through dissolved transposes.
pub fn root_of(f: &Function, propagation: &Propagation, mut v: ValueId) -> ValueId {
    while let Some(n) = f.def_node(v)
        && propagation.dissolved.contains(&n)
        && let Some(x) = f.nodes[n].inputs[0]
    {
        v = x;
    }
    v
}
