//! Moves groups of nodes into primitive graph functions, and calls these.

use crate::arena::Id;
use crate::graph::{Block, BlockId, Function, Module, Node, NodeId, Origins, TensorType, Value, ValueDef, ValueId};
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::control::{Call, Const};
use crate::passes::fuse_ops::forward::captures;
use crate::passes::fusion_kind::NodeInfo;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Replaces each group of `block` by a call of a new primitive function. Nodes of no group stay.
///
/// # Errors
/// When groups depend on each other in a circle, which is a bug of the partition.
pub fn outline_groups(
    module: &mut Module,
    f: &mut Function,
    block: BlockId,
    groups: &[Vec<NodeId>],
    info: &FxHashMap<NodeId, NodeInfo>,
    counter: &mut usize,
) -> Result<(), String> {
    let order = order_units(f, block, groups)?;
    let uses = f.uses();
    let results: FxHashSet<ValueId> = f.blocks.iter().flat_map(|(_, b)| b.results.iter().copied()).collect();
    let mut nodes = Vec::with_capacity(order.len());
    let mut map: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    for unit in order {
        match unit {
            Unit::Single(n) => nodes.push(n),
            Unit::Group(g) => {
                let members: FxHashSet<NodeId> = groups[g].iter().copied().collect();
                let escapes =
                    |v: ValueId| results.contains(&v) || uses[v.index()].iter().any(|u| !members.contains(&u.0));
                let shape = GroupShape::new(f, &groups[g], info, &escapes);
                let callee = shape.build(module, f, *counter);
                *counter += 1;
                nodes.push(shape.call(f, block, callee, &mut map));
            }
        }
    }
    f.blocks[block].nodes = nodes;
    f.replace_uses_many(&|v| map.get(&v).copied().unwrap_or(v));
    Ok(())
}

/// A node that stays, or a group.
#[derive(Clone, Copy)]
pub(in crate::passes) enum Unit {
    /// A node that stays.
    Single(NodeId),
    /// A group, by its number.
    Group(usize),
}

/// Orders nodes and groups so that operands come before users. Otherwise the order is that of the block (a group is at
/// the position of its last node); stateful nodes keep their order.
pub(in crate::passes) fn order_units(
    f: &Function,
    block: BlockId,
    groups: &[Vec<NodeId>],
) -> Result<Vec<Unit>, String> {
    let mut unit_of: FxHashMap<NodeId, usize> = FxHashMap::default();
    let mut units: Vec<(Unit, usize)> = groups.iter().enumerate().map(|(g, _)| (Unit::Group(g), 0)).collect();
    for (g, members) in groups.iter().enumerate() {
        members.iter().for_each(|&n| {
            unit_of.insert(n, g);
        });
    }
    let list = &f.blocks[block].nodes;
    for (place, &n) in list.iter().enumerate() {
        let unit = *unit_of.entry(n).or_insert_with(|| {
            units.push((Unit::Single(n), 0));
            units.len() - 1
        });
        units[unit].1 = place;
    }
    let mut users: Vec<Vec<usize>> = vec![vec![]; units.len()];
    let mut waits = vec![0usize; units.len()];
    let mut edge = |from: usize, to: usize| {
        if from != to {
            users[from].push(to);
            waits[to] += 1;
        }
    };
    for (to, before) in predecessors(f, block).into_iter().enumerate() {
        before.into_iter().for_each(|from| edge(unit_of[&list[from]], unit_of[&list[to]]));
    }
    let mut ready: BinaryHeap<Reverse<(usize, usize)>> =
        (0..units.len()).filter(|&u| waits[u] == 0).map(|u| Reverse((units[u].1, u))).collect();
    let mut out = Vec::with_capacity(units.len());
    while let Some(Reverse((_, u))) = ready.pop() {
        out.push(units[u].0);
        for &to in &users[u] {
            waits[to] -= 1;
            if waits[to] == 0 {
                ready.push(Reverse((units[to].1, to)));
            }
        }
    }
    if out.len() < units.len() { Err("fused groups depend on each other in a circle".into()) } else { Ok(out) }
}

/// For each node of a block, the positions of the nodes of this block that must come before it: those whose results it
/// or its regions read, and the last node with an effect.
pub(in crate::passes) fn predecessors(f: &Function, block: BlockId) -> Vec<Vec<usize>> {
    let list = &f.blocks[block].nodes;
    let places: FxHashMap<NodeId, usize> = list.iter().enumerate().map(|(place, &n)| (n, place)).collect();
    let mut last_effect = None;
    let before = |(place, &n): (usize, &NodeId)| {
        let node = &f.nodes[n];
        let captured = node.regions.iter().flat_map(|&r| captures(f, r));
        let read = node.inputs.iter().flatten().copied().chain(captured);
        let mut before: Vec<usize> = read.filter_map(|v| places.get(&f.def_node(v)?).copied()).collect();
        if node.op.effects().stateful {
            before.extend(last_effect.replace(place));
        }
        before
    };
    list.iter().enumerate().map(before).collect()
}

/// The inputs and outputs of a group.
struct GroupShape {
    /// Members in order, constants that are copied inside first.
    members: Vec<NodeId>,
    inside_constants: Vec<NodeId>,
    inputs: Vec<ValueId>,
    outputs: Vec<ValueId>,
}

impl GroupShape {
    fn new(
        f: &Function,
        members: &[NodeId],
        info: &FxHashMap<NodeId, NodeInfo>,
        escapes: &dyn Fn(ValueId) -> bool,
    ) -> GroupShape {
        let made: FxHashSet<ValueId> = members.iter().flat_map(|&n| f.nodes[n].outputs.iter().copied()).collect();
        let mut s = GroupShape { members: members.to_vec(), inside_constants: vec![], inputs: vec![], outputs: vec![] };
        let mut seen = FxHashSet::default();
        // Literals, and constants that only decide the computation's form, are copied inside.
        let mut read = FxHashSet::default();
        for &n in members {
            let inputs = f.nodes[n].inputs.iter().zip(&info[&n].reads).filter(|x| *x.1).filter_map(|x| *x.0);
            read.extend(inputs.filter(|&v| !f.ty(v).numel().is(1)));
        }
        for &n in members {
            for v in f.nodes[n].inputs.iter().flatten().copied() {
                if made.contains(&v) || seen.contains(&v) {
                    continue;
                }
                let constant = f.def_op::<Const>(v).map(|c| c.0);
                match constant {
                    Some(c) if !read.contains(&v) => s.inside_constants.push(c),
                    _ => s.inputs.push(v),
                }
                seen.insert(v);
            }
            s.outputs.extend(f.nodes[n].outputs.iter().copied().filter(|&v| escapes(v)));
        }
        s
    }
    /// Adds the function `@fused_<ops>_<number>` with copies of the nodes.
    fn build(&self, module: &mut Module, f: &Function, number: usize) -> Name {
        let mut g = Function::new(module.fresh_name(&self.name(f, number)));
        g.primitive = true;
        let body = g.body;
        let mut map: FxHashMap<ValueId, ValueId> = FxHashMap::default();
        for (i, &v) in self.inputs.iter().enumerate() {
            let name = f.values[v].name.or_else(|| f.def_op::<Const>(v).map(|c| c.1.name));
            let name = name.unwrap_or_else(|| Name::new(&format!("p{i}")));
            let arg = g.fresh_value(f.ty(v).clone(), ValueDef::Arg(body, i), Some(name));
            g.blocks[body].args.push(arg);
            map.insert(v, arg);
        }
        for &n in self.inside_constants.iter().chain(&self.members) {
            copy_node(f, n, &mut g, body, &mut map);
        }
        g.blocks[body].results = self.outputs.iter().map(|v| map[v]).collect();
        g.result_types = self.types(f);
        let name = |(i, v): (usize, &ValueId)| f.values[*v].name.unwrap_or_else(|| Name::new(&format!("out{i}")));
        g.result_names = self.outputs.iter().enumerate().map(name).collect();
        let name = g.name;
        module.functions.insert(name, g);
        name
    }
    fn types(&self, f: &Function) -> Vec<TensorType> {
        self.outputs.iter().map(|&v| f.ty(v).clone()).collect()
    }
    fn name(&self, f: &Function, number: usize) -> String {
        const SHOWN: usize = 6;
        let ops: Vec<&str> = self.members.iter().take(SHOWN).map(|&n| f.nodes[n].op.name()).collect();
        let more = if self.members.len() > SHOWN { "_etc" } else { "" };
        format!("fused_{}{more}_{number}", ops.join("_"))
    }
    /// Adds the call; `map` sends each result of the group to the call's result. Returns the call's node.
    fn call(&self, f: &mut Function, block: BlockId, callee: Name, map: &mut FxHashMap<ValueId, ValueId>) -> NodeId {
        let id = NodeId::from_index(f.nodes.len());
        let types = self.types(f);
        let mut outputs = Vec::with_capacity(types.len());
        for (i, (ty, &old)) in types.into_iter().zip(&self.outputs).enumerate() {
            let name = f.values[old].name;
            let new = f.fresh_value(ty, ValueDef::Result(id, i), name);
            map.insert(old, new);
            outputs.push(new);
        }
        let origins = self.members.iter().fold(Origins::none(), |o, &n| o.union(&f.nodes[n].origins));
        let node = Node {
            op: OpRef::new(Call { callee }),
            inputs: self.inputs.iter().map(|v| Some(*v)).collect(),
            outputs,
            regions: vec![],
            name: callee,
            origins,
            block: Some(block),
        };
        for &n in &self.members {
            f.nodes[n].block = None;
        }
        f.nodes.push(node)
    }
}

fn copy_node(f: &Function, n: NodeId, g: &mut Function, body: BlockId, map: &mut FxHashMap<ValueId, ValueId>) {
    let node = &f.nodes[n];
    let id = NodeId::from_index(g.nodes.len());
    let mut outputs = Vec::with_capacity(node.outputs.len());
    for (i, v) in node.outputs.iter().enumerate() {
        let Value { ty, name, .. } = f.values[*v].clone();
        let new = g.fresh_value(ty, ValueDef::Result(id, i), name);
        map.insert(*v, new);
        outputs.push(new);
    }
    let inputs = node.inputs.iter().map(|v| v.map(|v| map[&v])).collect();
    g.nodes.push(Node { inputs, outputs, block: Some(body), ..node.clone() });
    let Block { nodes, .. } = &mut g.blocks[body];
    nodes.push(id);
}
