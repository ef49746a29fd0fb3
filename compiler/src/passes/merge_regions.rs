//! merge-regions: neighbouring regions of one external target become one, as large as possible.
//!
//! ```text
//!     O1              O are nodes of a target, X is not:
//!    /  \             {O1 O2} {X} {O3}: with O3 in the first region, X would read from it and be read by it
//!   O2   X
//!    \  /
//!     O3
//! ```
//!
//! Each region keeps the set of regions that it must not join: all regions of other targets among its parents, and
//! everything in the sets of its parents. It joins a parent of the same target that is not in that set. A node that no
//! target takes is a region of its own.

use super::fuse_ops::{Unit, order_units, predecessors};
use super::scopes::{given, origins_of, replace_inside};
use super::{Pass, PassContext, PassError};
use crate::attr_struct;
use crate::graph::{Block, BlockId, Function, Module, Node, NodeId, ValueDef, ValueId};
use crate::ops::external_scope::External;
use rustc_hash::FxHashMap;

attr_struct! {
    /// Joins regions of one external target.
    pub struct MergeRegions("merge-regions") {}
}

impl Pass for MergeRegions {
    fn opt_level(&self) -> u8 {
        0
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let mut changed = false;
        for f in module.functions.values_mut().filter(|f| !f.primitive) {
            for block in super::scopes::blocks_of(f) {
                changed |= self.merge(f, block, cx).map_err(|why| PassError::new("merge-regions", why))?;
            }
        }
        Ok(changed)
    }
}

impl MergeRegions {
    fn merge(&self, f: &mut Function, block: BlockId, cx: &mut PassContext) -> Result<bool, String> {
        let list = &f.blocks[block].nodes;
        let mut joined: Vec<Vec<NodeId>> = vec![vec![]; list.len()];
        for (place, root) in Restrictions::of(f, block).regions().into_iter().enumerate() {
            joined[root].push(list[place]);
        }
        joined.retain(|members| members.len() > 1);
        if joined.is_empty() {
            return Ok(false);
        }
        let units = order_units(f, block, &joined)?;
        let mut nodes = Vec::with_capacity(units.len());
        for unit in units {
            nodes.push(match unit {
                Unit::Single(n) => n,
                Unit::Group(g) => {
                    let names: Vec<_> = joined[g].iter().map(|&n| f.nodes[n].name).collect();
                    let target = f.nodes[joined[g][0]].op.downcast::<External>().map(|e| e.target);
                    let target = target.map_or("", |t| t.as_str());
                    cx.applied(self, &names, format!("{} nodes are one region of {target}", names.len()));
                    join(f, block, &joined[g])
                }
            });
        }
        f.blocks[block].nodes = nodes;
        Ok(true)
    }
}

/// The regions of a block's nodes, by place, with the sets of regions that they must not join.
struct Restrictions {
    parent: Vec<usize>,
    /// For each representative a bit for each region.
    sets: Vec<Vec<u64>>,
}

impl Restrictions {
    fn of(f: &Function, block: BlockId) -> Restrictions {
        let list = &f.blocks[block].nodes;
        let words = list.len().div_ceil(64);
        let mut r = Restrictions { parent: (0..list.len()).collect(), sets: vec![vec![0; words]; list.len()] };
        let external = |place: usize| f.nodes[list[place]].op.downcast::<External>();
        for (place, parents) in predecessors(f, block).into_iter().enumerate() {
            let same = |&p: &usize| external(place).is_some() && external(p) == external(place);
            for &p in &parents {
                let p_root = r.root(p);
                let set = r.sets[p_root].clone();
                r.add(place, &set);
                if !same(&p) {
                    r.insert(place, p_root);
                }
            }
            for p in parents.into_iter().filter(same) {
                r.join(place, p);
            }
        }
        r
    }
    fn root(&self, mut i: usize) -> usize {
        while self.parent[i] != i {
            i = self.parent[i];
        }
        i
    }
    /// The representative of each place.
    fn regions(&self) -> Vec<usize> {
        (0..self.parent.len()).map(|i| self.root(i)).collect()
    }
    /// True if region `i` must not join the region of representative `root`.
    fn has(&self, i: usize, root: usize) -> bool {
        self.sets[i][root / 64] >> (root % 64) & 1 == 1
    }
    fn insert(&mut self, i: usize, root: usize) {
        self.sets[i][root / 64] |= 1 << (root % 64);
    }
    fn add(&mut self, to: usize, set: &[u64]) {
        self.sets[to].iter_mut().zip(set).for_each(|(a, b)| *a |= b);
    }
    /// Joins the regions of `place` and of its parent `p`, unless they must not be joined.
    fn join(&mut self, place: usize, p: usize) {
        let (a, b) = (self.root(place), self.root(p));
        if a == b || self.has(a, b) {
            return;
        }
        self.parent[a] = b;
        let set = std::mem::take(&mut self.sets[a]);
        self.add(b, &set);
        // Whoever must not join one of both must not join the new region, nor what that depends on.
        for i in (0..self.sets.len()).filter(|&i| i != b && !self.sets[i].is_empty()).collect::<Vec<_>>() {
            if self.has(i, a) || self.has(i, b) {
                self.insert(i, b);
                self.add(i, &set);
            }
        }
    }
}

/// Makes one region of several, in their order; returns its node, which is in no block.
fn join(f: &mut Function, block: BlockId, members: &[NodeId]) -> NodeId {
    let outputs = given(f, &f.uses(), members, block);
    let origins = origins_of(f, members);
    let first = f.nodes[members[0]].clone();
    let id = <NodeId as crate::arena::Id>::from_index(f.nodes.len());
    let mut inner: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    let mut nodes = vec![];
    for &n in members {
        let region = f.nodes[n].regions[0];
        inner.extend(f.nodes[n].outputs.iter().copied().zip(f.blocks[region].results.iter().copied()));
        nodes.extend(std::mem::take(&mut f.blocks[region].nodes));
        f.nodes[n].block = None;
    }
    let results = outputs.iter().map(|v| inner[v]).collect();
    let region = f.blocks.push(Block { owner: Some(id), nodes: nodes.clone(), results, args: vec![] });
    nodes.iter().for_each(|&n| f.nodes[n].block = Some(region));
    replace_inside(f, region, &inner);
    for (k, &v) in outputs.iter().enumerate() {
        f.values[v].def = ValueDef::Result(id, k);
    }
    f.nodes.push(Node { outputs, regions: vec![region], origins, block: Some(block), ..first })
}

#[cfg(test)]
mod tests {
    use super::super::{AnnotateTarget, PartitionGraph, run_pass};
    use super::*;
    use crate::interpreter::run_function;
    use crate::tensor::Tensor;
    use crate::text::parse_module;
    use std::fmt::Write;

    /// Nodes of random ops on random earlier values: relu and neg are supported, exp and add are not.
    fn random_graph(seed: u64, nodes: usize) -> Module {
        let mut state = seed;
        let mut draw = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        let mut text = "graph @main(%v0: f32[2]) -> (y: f32[2], z: f32[2]) {\n".to_string();
        for i in 1..=nodes {
            let near = |draw: &mut dyn FnMut(usize) -> usize| i - 1 - draw(i.min(5));
            let (a, b) = (near(&mut draw), near(&mut draw));
            let _ = match ["tanh", "neg", "sin", "add", "mul"][draw(5)] {
                op @ ("add" | "mul") => writeln!(text, "  %v{i} = {op} %v{a}, %v{b} : f32[2]"),
                op => writeln!(text, "  %v{i} = {op} %v{a} : f32[2]"),
            };
        }
        let _ = writeln!(text, "  return %v{nodes}, %v{}\n}}", nodes - 1);
        parse_module(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }

    fn partitioned(m: &mut Module, targets: &[&str]) {
        let annotate = AnnotateTarget { targets: targets.iter().map(|t| t.to_string()).collect() };
        let cx = &mut PassContext { verify: true, ..PassContext::default() };
        run_pass(&annotate, m, cx).unwrap_or_else(|e| panic!("{e}"));
        run_pass(&MergeRegions {}, m, cx).unwrap_or_else(|e| panic!("{e}"));
        run_pass(&PartitionGraph {}, m, cx).unwrap_or_else(|e| panic!("{e}"));
    }

    #[test]
    fn regions_of_random_graphs_have_no_circle_and_compute_the_same() {
        let x = [Tensor::from_vec(vec![2], vec![0.3f32, -0.7])];
        for seed in 0..200 {
            let mut m = random_graph(seed, 5 + seed as usize % 40);
            let want = run_function(&m, m.entry, &x).unwrap_or_else(|e| panic!("{e}"));
            partitioned(&mut m, &["interpreter:ops=tanh+add", "interpreter:ops=neg+mul"]);
            crate::verify::verify_module(&m).unwrap_or_else(|e| panic!("seed {seed}: {e:?}"));
            assert_eq!(run_function(&m, m.entry, &x).unwrap_or_else(|e| panic!("{e}")), want, "seed {seed}");
        }
    }

    #[test]
    fn a_chain_of_300_nodes_is_one_region() {
        let nodes: String = (1..=300).map(|i| format!("  %v{i} = neg %v{} : f32[2]\n", i - 1)).collect();
        let text = format!("graph @main(%v0: f32[2]) -> (y: f32[2]) {{\n{nodes}  return %v300\n}}\n");
        let mut m = parse_module(&text).unwrap_or_else(|e| panic!("{e}"));
        partitioned(&mut m, &["interpreter"]);
        assert_eq!(m.main().live_nodes(), 1);
        assert_eq!(m.functions.values().map(Function::live_nodes).sum::<usize>(), 301);
    }
}
