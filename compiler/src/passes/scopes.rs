//! Scopes of nodes: nodes of a block move into the region of a new node, and out of it again.
//!
//! A value that the scope gives stays the same value, so no user outside changes; inside, the nodes get values of their
//! own.

use super::fuse_ops::captures;
use crate::arena::Id;
use crate::external::TargetSpec;
use crate::graph::{Block, BlockId, Function, Node, NodeId, Origins, ValueDef, ValueId};
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::control::{CallHost, Const};
use crate::ops::external_scope::{Composite, External};
use rustc_hash::{FxHashMap, FxHashSet};

/// The targets of a pass's option, in order of preference.
pub(super) fn parse_targets(pass: &str, targets: &[String]) -> Result<Vec<TargetSpec>, super::PassError> {
    let refuse = |why| super::PassError::request(pass, why);
    targets.iter().map(|t| TargetSpec::parse(t).map_err(refuse)).collect()
}

/// True for a node that a target may take: one that only computes its results, of known sizes.
pub(super) fn is_plain(f: &Function, n: NodeId) -> bool {
    let node = &f.nodes[n];
    let op = &node.op;
    let own = op.is::<Const>() || op.is::<CallHost>() || op.callee().is_some() || !node.regions.is_empty();
    let functions = node.outputs.iter().chain(node.inputs.iter().flatten()).any(|&v| f.ty(v).is_function());
    !own && !functions && !op.effects().stateful && op.defined_symbols().is_empty()
}

/// Source nodes of several nodes.
pub(super) fn origins_of(f: &Function, nodes: &[NodeId]) -> Origins {
    nodes.iter().fold(Origins::none(), |o, &n| o.union(&f.nodes[n].origins))
}

/// The values outside of its nodes that a node reads, its regions included.
pub(super) fn reads(f: &Function, n: NodeId) -> Vec<ValueId> {
    let node = &f.nodes[n];
    let captured = node.regions.iter().flat_map(|&r| captures(f, r));
    node.inputs.iter().flatten().copied().chain(captured).collect()
}

/// Moves `members`, nodes of one block in order, into the region of a new node of `op`, which is in no block yet. It
/// gives the values `outputs` of the members.
pub(super) fn enclose(f: &mut Function, members: &[NodeId], outputs: &[ValueId], op: OpRef, name: Name) -> NodeId {
    let origins = origins_of(f, members);
    let id = NodeId::from_index(f.nodes.len());
    let block = members.first().and_then(|&n| f.nodes[n].block);
    let region = f.blocks.push(Block { owner: Some(id), nodes: members.to_vec(), ..Block::default() });
    let mut inner = FxHashMap::default();
    for (k, &v) in outputs.iter().enumerate() {
        let def = f.values[v].def;
        let new = f.fresh_value(f.ty(v).clone(), def, None);
        if let ValueDef::Result(n, i) = def {
            f.nodes[n].outputs[i] = new;
        }
        f.values[v].def = ValueDef::Result(id, k);
        inner.insert(v, new);
        f.blocks[region].results.push(new);
    }
    members.iter().for_each(|&n| f.nodes[n].block = Some(region));
    replace_inside(f, region, &inner);
    let (inputs, outputs) = (vec![], outputs.to_vec());
    f.nodes.push(Node { op, inputs, outputs, regions: vec![region], name, origins, block })
}

/// Replaces values in the nodes of a region and of those inside it; not in what the region itself yields.
pub(super) fn replace_inside(f: &mut Function, region: BlockId, map: &FxHashMap<ValueId, ValueId>) {
    let new = |v: ValueId| {
        let mut v = v;
        while let Some(&next) = map.get(&v) {
            v = next;
        }
        v
    };
    for n in f.walk_block(region) {
        f.nodes[n].inputs.iter_mut().flatten().for_each(|v| *v = new(*v));
        for r in f.nodes[n].regions.clone() {
            f.blocks[r].results.iter_mut().for_each(|v| *v = new(*v));
        }
    }
}

/// Puts the nodes of scopes that `dissolves` in place of these.
pub(super) fn dissolve(f: &mut Function, dissolves: impl Fn(&Node) -> bool) -> bool {
    let mut map: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    for block in f.blocks.ids().collect::<Vec<_>>() {
        let mut open = std::mem::take(&mut f.blocks[block].nodes);
        open.reverse();
        let mut nodes = Vec::with_capacity(open.len());
        while let Some(n) = open.pop() {
            let node = &f.nodes[n];
            let ([region], true) = (node.regions.as_slice(), dissolves(node)) else {
                f.nodes[n].block = Some(block);
                nodes.push(n);
                continue;
            };
            let inner = std::mem::take(&mut f.blocks[*region].nodes);
            map.extend(f.nodes[n].outputs.iter().copied().zip(f.blocks[*region].results.iter().copied()));
            open.extend(inner.into_iter().rev());
            f.nodes[n].block = None;
        }
        f.blocks[block].nodes = nodes;
    }
    // A value outside keeps its name where the inner one has none.
    for (&old, &new) in &map {
        if f.values[new].name.is_none() {
            f.values[new].name = f.values[old].name;
        }
    }
    f.replace_uses_many(&|v| {
        let mut v = v;
        while let Some(&next) = map.get(&v) {
            v = next;
        }
        v
    });
    !map.is_empty()
}

/// The blocks of a function in which nodes stand, each before those inside it.
pub(super) fn blocks_of(f: &Function) -> Vec<BlockId> {
    let inner = f.walk().into_iter().flat_map(|n| f.nodes[n].regions.clone());
    [f.body].into_iter().chain(inner).collect()
}

/// The same without those inside scopes of external targets: whoever looks for nodes to take finds none taken.
pub(super) fn open_blocks(f: &Function) -> Vec<BlockId> {
    let taken = |b: &BlockId| {
        f.blocks[*b].owner.is_some_and(|o| f.nodes[o].op.is::<Composite>() || f.nodes[o].op.is::<External>())
    };
    blocks_of(f).into_iter().filter(|b| !taken(b)).collect()
}

/// The outputs of `members` that other nodes or the results of blocks use, each once.
pub(super) fn given(f: &Function, uses: &[Vec<(NodeId, usize)>], members: &[NodeId], block: BlockId) -> Vec<ValueId> {
    let inside: FxHashSet<NodeId> = members.iter().flat_map(|&n| with_inner(f, n)).collect();
    let yielded: FxHashSet<ValueId> = blocks_of(f)
        .into_iter()
        .filter(|&b| b == block || f.blocks[b].owner.is_none_or(|o| !inside.contains(&o)))
        .flat_map(|b| f.blocks[b].results.iter().copied())
        .collect();
    let escapes = |v: &ValueId| yielded.contains(v) || uses[v.index()].iter().any(|(user, _)| !inside.contains(user));
    members.iter().flat_map(|&n| f.nodes[n].outputs.iter().copied()).filter(escapes).collect()
}

/// A node and those in its regions.
fn with_inner(f: &Function, n: NodeId) -> Vec<NodeId> {
    let inner = f.nodes[n].regions.iter().flat_map(|&r| f.walk_block(r));
    [n].into_iter().chain(inner).collect()
}
