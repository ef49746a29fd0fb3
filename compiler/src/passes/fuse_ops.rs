//! fuse-ops: forms groups of nodes, each of which becomes one kernel.
//!
//! ```text
//! %0 = conv %x, %w                 func @fused_conv_add_relu_0(%x, %w, %b) { conv; add; relu }
//! %1 = add %0, %b           =>     %2 = call %x, %w, %b {callee=fused_conv_add_relu_0}
//! %2 = relu %1
//! ```
//!
//! The classic rules are TVM's FuseOps: fusion kinds from the index maps of each op's tensor expression, the
//! post-dominator tree, a union-find with at most one anchor a group, three phases (see `fuse_ops/`). Each group
//! becomes a primitive graph function and a call; the copied nodes keep names and origins. Constants stay outside,
//! except literals (one element) and operands that only decide an op's form. No group exceeds the device's storage
//! buffers.
//!
//! `full` starts from the classic groups and applies the rules of `fuse_ops/full.rs`; `off`, the default of opt level
//! 0, makes each node its own group.

mod dominators;
mod forward;
mod full;
mod outline;
mod partition;
mod reason;
#[cfg(test)]
mod tests;
mod words;

pub use dominators::PostDominators;
pub use forward::{ForwardGraph, ForwardNode, Source, captures};
pub use full::{FUSION_RULES, FusionRule, GroupGraph, register_fusion_rule};
pub(super) use outline::{Unit, order_units, predecessors};
pub use partition::{Limits, Partition};
pub use reason::Reason;
use words::Words;

use super::fusion_kind::{NodeInfo, describe_block, describe_node};
use super::infer_types::instantiated;
use super::{FuseMode, Pass, PassContext, PassError};
use crate::arena::Id;
use crate::attr_struct;
use crate::graph::{BlockId, Function, Module, NodeId, ValueId};
use crate::name::Name;
use crate::ops::InferContext;
use crate::ops::concat::Concat;
use crate::ops::control::Const;
use crate::tir::FusionKind;
use rustc_hash::FxHashMap;

attr_struct! {
    /// Groups nodes into kernels.
    pub struct FuseOps("fuse-ops") {
        /// `full`, `classic` or `off`; absent means the context's mode.
        pub mode: Option<FuseMode> = None,
        /// Largest number of nodes in a group.
        pub max_group: usize = 256,
        /// Most scalar operations of a kernel for an element, a function like `exp` counted as 16: drivers take a time
        /// that grows with their square.
        pub max_operations: usize = 512,
    }
}

impl Pass for FuseOps {
    fn opt_level(&self) -> u8 {
        0
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let changed = instantiated(module, "fuse-ops")?;
        let names: Vec<Name> = module.functions.values().filter(|f| !f.primitive).map(|f| f.name).collect();
        let mut counter = 0;
        for name in names {
            let mut f = std::mem::replace(&mut module.functions[&name], Function::new(name));
            let done = self.fuse_function(module, &mut f, &mut counter, cx);
            module.functions.insert(name, f);
            done?;
        }
        Ok(changed || counter > 0)
    }
}

impl FuseOps {
    fn fuse_function(
        &self,
        module: &mut Module,
        f: &mut Function,
        counter: &mut usize,
        cx: &mut PassContext,
    ) -> Result<(), PassError> {
        take_sizes_in(module, f);
        let mut blocks = vec![f.body];
        blocks.extend(f.walk().iter().flat_map(|&n| f.nodes[n].regions.clone()));
        for block in blocks {
            let info = describe_block(module, f, block);
            let mode = if cx.opt_level == 0 { FuseMode::Off } else { cx.fuse };
            let mut groups = match self.mode.unwrap_or(mode) {
                FuseMode::Off => single_groups(f, block, &info),
                mode => self.partition_groups((module, f), block, &info, mode, cx),
            };
            // A call of a tensor function that nothing joins is a group as it is.
            groups.retain(|g| g.len() > 1 || module.tensor_callee(&f.nodes[g[0]].op).is_none());
            for group in groups.iter().filter(|g| g.len() > 1) {
                let names: Vec<Name> = group.iter().map(|&n| f.nodes[n].name).collect();
                cx.applied(self, &names, format!("fused {} nodes: {}", names.len(), ops_text(f, group)));
            }
            outline::outline_groups(module, f, block, &groups, &info, counter)
                .map_err(|e| PassError::new("fuse-ops", format!("@{}: {e}", f.name)))?;
        }
        Ok(())
    }

    /// TVM's groups, in mode `full` joined by its rules, each sorted by position in the block.
    fn partition_groups(
        &self,
        (module, f): (&Module, &Function),
        block: BlockId,
        info: &FxHashMap<NodeId, NodeInfo>,
        mode: FuseMode,
        cx: &mut PassContext,
    ) -> Vec<Vec<NodeId>> {
        let graph = forward::build(f, block, info, &|n| is_concat(f, n));
        let limits = Limits {
            max_group: self.max_group.max(1),
            max_bindings: cx.profile.max_storage_buffers,
            max_operations: self.max_operations.max(1),
        };
        let weight =
            f.values.iter().map(|(_, v)| v.ty.bytes().map_or(1, |b| cx.profile.bindings_for(b as u64))).collect();
        let uses = f.count_uses();
        let mut p = Partition::new(&graph, f, info, weight, &uses, limits);
        p.run();
        let costs = cx.costs();
        let mut weighed: Vec<[NodeId; 2]> = vec![];
        if mode == FuseMode::Full {
            let (g, target, costs) = (&graph, cx.target(), &*costs);
            let (made, declined) = (vec![], vec![]);
            let mut rules = full::GroupGraph { p: &mut p, g, module, f, info, target, costs, made, declined };
            rules.run();
            let (made, declined) = (rules.made, rules.declined);
            for made in made {
                let names: Vec<Name> = made.nodes.iter().map(|&n| f.nodes[n].name).collect();
                let what = made.what.unwrap_or_else(|| ops_text(f, &made.nodes));
                cx.applied(self, &names, format!("{}: {what}", made.rule));
            }
            for declined in declined {
                let names: Vec<Name> = declined.nodes.iter().map(|&n| f.nodes[n].name).collect();
                cx.missed(self, &names, format!("{}: {}", declined.rule, declined.why));
                weighed.extend(<[NodeId; 2]>::try_from(&declined.nodes[..]));
            }
        }
        let profile = cx.profile.clone();
        let mut words = Words::new((module, f), &graph, info, &profile, &*costs);
        for (i, sink, reason) in p.boundaries() {
            let node = |x: usize| graph.nodes[x].source.node();
            if !matches!(graph.nodes[i].source, Source::Node(_)) {
                continue;
            }
            if reason == Reason::NoDominator && graph.nodes[i].users.is_empty() {
                continue;
            }
            // A rule has said more of it.
            if sink.is_some_and(|s| weighed.contains(&[node(i), node(s)])) {
                continue;
            }
            let nodes: Vec<Name> = [Some(i), sink].into_iter().flatten().map(|x| f.nodes[node(x)].name).collect();
            let message = words.sentence(&mut p, i, sink, &reason);
            cx.missed_in_detail(self, &nodes, message, reason.condition(&graph, f, i, &profile.name));
        }
        for &n in &f.blocks[block].nodes {
            if let Some(why) = info.get(&n).and_then(|i| i.opaque.as_ref()) {
                cx.missed(self, &[f.nodes[n].name], format!("{} runs alone: {why}", f.nodes[n].name));
            }
        }
        let mut by_root: FxHashMap<usize, usize> = FxHashMap::default();
        let mut root_of: FxHashMap<NodeId, usize> = FxHashMap::default();
        for (i, node) in graph.nodes.iter().enumerate() {
            if let Source::Node(n) = node.source {
                root_of.insert(n, p.root(i));
            }
        }
        let mut groups: Vec<Vec<NodeId>> = Vec::new();
        for n in fusible(f, block, info) {
            let slot = *by_root.entry(root_of[&n]).or_insert_with(|| {
                groups.push(vec![]);
                groups.len() - 1
            });
            groups[slot].push(n);
        }
        groups
    }
}

/// Sizes that an op reads from an operand become attributes if they are known as expressions: inside a group the
/// computation of the operand is not visible. (Constants go into the group with their users.)
fn take_sizes_in(module: &Module, f: &mut Function) {
    for n in f.walk() {
        let node = &f.nodes[n];
        let cx = InferContext::new(module, f, &node.inputs, &node.regions);
        let Some((op, left)) = node.op.with_known_sizes(&cx) else { continue };
        let computed = |v: &Option<ValueId>| v.is_some_and(|v| f.def_op::<Const>(v).is_none());
        if node.inputs.len() > left && node.inputs[left..].iter().any(computed) {
            f.nodes[n].op = op;
            f.nodes[n].inputs.truncate(left);
        }
    }
}

/// Nodes of a block that have a kernel and a used result, in order.
fn fusible<'a>(
    f: &'a Function,
    block: BlockId,
    info: &'a FxHashMap<NodeId, NodeInfo>,
) -> impl Iterator<Item = NodeId> + 'a {
    let uses = f.count_uses();
    f.blocks[block].nodes.iter().copied().filter(move |n| {
        let used = f.nodes[*n].outputs.iter().any(|v| uses[v.index()] > 0);
        used && info.get(n).is_some_and(|i| i.kind != FusionKind::Opaque)
    })
}

fn single_groups(f: &Function, block: BlockId, info: &FxHashMap<NodeId, NodeInfo>) -> Vec<Vec<NodeId>> {
    fusible(f, block, info).map(|n| vec![n]).collect()
}

fn is_concat(f: &Function, n: NodeId) -> bool {
    f.nodes[n].op.is::<Concat>()
}

fn ops_text(f: &Function, group: &[NodeId]) -> String {
    group.iter().map(|&n| f.nodes[n].op.name()).collect::<Vec<_>>().join(" + ")
}

/// The anchor of a fused group: its first out-elementwise-fusable node, else its first reduction.
pub fn group_anchor(module: &Module, f: &Function) -> Option<NodeId> {
    let kinds: Vec<(NodeId, FusionKind)> =
        f.blocks[f.body].nodes.iter().filter_map(|&n| Some((n, describe_node(module, f, n)?.kind))).collect();
    let first = |k: FusionKind| kinds.iter().find(|x| x.1 == k).map(|x| x.0);
    first(FusionKind::OutElementwiseFusable).or_else(|| first(FusionKind::Reduction))
}
