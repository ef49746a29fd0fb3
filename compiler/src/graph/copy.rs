//! Copies nodes of one function into another, to inline a call or to join functions for a plan.

use super::{Block, BlockId, Function, Node, NodeId, Origins, ValueDef, ValueId};
use crate::arena::Id;
use rustc_hash::FxHashMap;

/// Copies nodes of a function into another.
pub(crate) struct CopyNodes<'a> {
    /// The function that they come from.
    pub from: &'a Function,
    /// The new values of old ones. It must contain all values from outside of the copied nodes.
    pub map: FxHashMap<ValueId, ValueId>,
    /// Source nodes for those that have none.
    pub origins: Origins,
    /// The nodes that were copied, each with its copy.
    pub copied: Vec<(NodeId, NodeId)>,
}

impl<'a> CopyNodes<'a> {
    /// Begins to copy nodes of `from`, whose values are given by `map`.
    pub fn new(from: &'a Function, map: FxHashMap<ValueId, ValueId>) -> CopyNodes<'a> {
        CopyNodes { from, map, origins: Origins::none(), copied: vec![] }
    }

    /// The nodes of `block` to the end of the block `into` of `to`.
    pub fn nodes(&mut self, block: BlockId, to: &mut Function, into: BlockId) {
        for &n in &self.from.blocks[block].nodes {
            let node = &self.from.nodes[n];
            let id = NodeId::from_index(to.nodes.len());
            let mut outputs = vec![];
            for (i, &v) in node.outputs.iter().enumerate() {
                let value = &self.from.values[v];
                let new = to.fresh_value(value.ty.clone(), ValueDef::Result(id, i), value.name);
                self.map.insert(v, new);
                outputs.push(new);
            }
            let inputs = node.inputs.iter().map(|v| v.map(|v| self.map[&v])).collect();
            let origins = if node.origins.names().is_empty() { self.origins.clone() } else { node.origins.clone() };
            to.nodes.push(Node { inputs, outputs, origins, regions: vec![], block: Some(into), ..node.clone() });
            to.blocks[into].nodes.push(id);
            self.copied.push((n, id));
            let regions = node.regions.iter().map(|&r| self.region(r, id, to)).collect();
            to.nodes[id].regions = regions;
        }
    }

    /// The block `region` as one that node `owner` of `to` owns.
    pub fn region(&mut self, region: BlockId, owner: NodeId, to: &mut Function) -> BlockId {
        let new = to.blocks.push(Block { owner: Some(owner), ..Block::default() });
        for (i, &arg) in self.from.blocks[region].args.iter().enumerate() {
            let value = &self.from.values[arg];
            let copy = to.fresh_value(value.ty.clone(), ValueDef::Arg(new, i), value.name);
            to.blocks[new].args.push(copy);
            self.map.insert(arg, copy);
        }
        self.nodes(region, to, new);
        to.blocks[new].results = self.from.blocks[region].results.iter().map(|v| self.map[v]).collect();
        new
    }
}
