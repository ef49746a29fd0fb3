//! merge-composite: nodes that a pattern of an external target matches become one composite.
//!
//! ```text
//! %0 = conv %x, %w, %b        =>     %1 = composite {name="dnnl.conv2d_bias_relu", partitioned_from=conv_relu} {
//! %1 = relu %0                         %0 = conv %x, %w, %b
//!                                      %1 = relu %0
//!                                      yield %1
//!                                    }
//! ```
//!
//! Patterns are tried in the order of the targets and of their tables, each over the whole function. A composite has
//! the results of its last node only. So a match is not merged if a node outside reads another result of it, or if one
//! of its operands depends on it, which would be a cycle.

use super::scopes::{blocks_of, enclose, is_plain, open_blocks, parse_targets, reads};
use super::{Pass, PassContext, PassError};
use crate::arena::Id;
use crate::attr_struct;
use crate::external::{ExternalPattern, TargetSpec};
use crate::graph::{BlockId, Function, Module, NodeId};
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::external_scope::Composite;
use crate::pattern::{Found, Plain};
use rustc_hash::FxHashSet;
use tensor_ir::text::print_attrs;

attr_struct! {
    /// Makes composites of what patterns of external targets match.
    pub struct MergeComposite("merge-composite") {
        /// Targets in order of preference, as `NAME[:OPTION=VALUE]...`.
        pub targets: Vec<String> = vec![],
    }
}

impl Pass for MergeComposite {
    fn opt_level(&self) -> u8 {
        0
    }
    fn required(&self) -> &'static [&'static str] {
        &["infer-types"]
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let targets = parse_targets("merge-composite", &self.targets)?;
        let functions: Vec<Name> = module.functions.values().filter(|f| !f.primitive).map(|f| f.name).collect();
        let mut changed = false;
        for spec in &targets {
            for pattern in spec.target.patterns() {
                changed |= functions.iter().fold(false, |c, &f| self.merge(module, f, spec, &pattern, cx) | c);
            }
        }
        Ok(changed)
    }
}

/// A match that becomes a composite.
struct Match {
    block: BlockId,
    /// In the block's order; the last one is the root.
    nodes: Vec<NodeId>,
}

impl MergeComposite {
    /// Makes composites of the matches of one pattern in one function.
    fn merge(
        &self,
        module: &mut Module,
        function: Name,
        spec: &TargetSpec,
        pattern: &ExternalPattern,
        cx: &mut PassContext,
    ) -> bool {
        let f = &module.functions[&function];
        let subject = Plain::new(module, f);
        let name = Name::new(&format!("{}.{}", spec.target.name(), pattern.name));
        let mut taken: FxHashSet<NodeId> = FxHashSet::default();
        let mut matches = vec![];
        for block in open_blocks(f) {
            for &n in f.blocks[block].nodes.iter().rev() {
                let Some(found) = f.nodes[n].outputs.first().and_then(|&v| pattern.pattern.find(&subject, v)) else {
                    continue;
                };
                let Some(nodes) = in_block(f, block, &found).filter(|l| !l.iter().any(|n| taken.contains(n))) else {
                    continue;
                };
                let names: Vec<Name> = nodes.iter().map(|&n| f.nodes[n].name).collect();
                match refused(f, block, &nodes).map_or_else(|| (pattern.check)(&subject, &found), Err) {
                    Ok(()) => {
                        cx.applied(self, &names, format!("{} is {name}", print_names(&names)));
                        taken.extend(&nodes);
                        matches.push(Match { block, nodes });
                    }
                    Err(why) => {
                        cx.missed(self, &names, format!("{} is not {name}: {why}", print_names(&names)));
                    }
                }
            }
        }
        let f = &mut module.functions[&function];
        matches.iter().for_each(|m| make(f, m, name));
        !matches.is_empty()
    }
}

fn print_names(names: &[Name]) -> String {
    names.iter().map(|n| n.as_str()).collect::<Vec<_>>().join(" + ")
}

/// The nodes of a match in the block's order, if all are nodes of it that a target may take.
fn in_block(f: &Function, block: BlockId, found: &Found) -> Option<Vec<NodeId>> {
    let mut nodes: Vec<NodeId> = found.nodes.iter().chain(&found.between).copied().collect();
    nodes.sort_unstable();
    nodes.dedup();
    let fits = nodes.iter().all(|&n| f.nodes[n].block == Some(block) && is_plain(f, n));
    let list = &f.blocks[block].nodes;
    fits.then(|| list.iter().copied().filter(|n| nodes.binary_search(n).is_ok()).collect())
}

/// Why the nodes of a match cannot be one node.
fn refused(f: &Function, block: BlockId, nodes: &[NodeId]) -> Option<String> {
    let (&root, inner) = nodes.split_last()?;
    // Nodes of the block that depend on a matched one.
    let mut depends: FxHashSet<NodeId> = FxHashSet::default();
    for &n in f.blocks[block].nodes.iter().skip_while(|&&n| n != nodes[0]) {
        let makers = || reads(f, n).into_iter().filter_map(|v| Some((v, f.def_node(v)?)));
        if nodes.contains(&n) {
            if let Some((v, _)) = makers().find(|(_, d)| depends.contains(d)) {
                let v = f.describe_value(v);
                return Some(format!("its operand {v} depends on it, and the composite would be part of a circle"));
            }
        } else if makers().any(|(_, d)| nodes.contains(&d) || depends.contains(&d)) {
            depends.insert(n);
        }
        if n == root {
            break;
        }
    }
    let uses = f.uses();
    let outside = |n: NodeId| {
        let read = |v: &&crate::graph::ValueId| {
            let users = &uses[v.index()];
            users.iter().any(|u| !nodes.contains(&u.0)) || blocks_of(f).iter().any(|&b| f.blocks[b].results.contains(v))
        };
        f.nodes[n].outputs.iter().find(read).copied()
    };
    let v = inner.iter().find_map(|&n| outside(n))?;
    Some(format!("another node reads {}, which is inside", f.describe_value(v)))
}

fn make(f: &mut Function, m: &Match, name: Name) {
    let Some(&root) = m.nodes.last() else { return };
    let ops: Vec<&str> = m.nodes.iter().map(|&n| f.nodes[n].op.name()).collect();
    let macs = |n: &NodeId| {
        let (inputs, outputs) = f.node_types(*n);
        f.nodes[*n].op.macs(&inputs, &outputs)
    };
    // The first one of the largest.
    let anchor = m.nodes.iter().rev().max_by_key(|n| macs(n)).map(|&n| &f.nodes[n].op);
    let anchor = anchor.map(|op| format!("{}{}", op.name(), print_attrs(&op.attrs()))).unwrap_or_default();
    let op = OpRef::new(Composite { name, partitioned_from: ops.join("_"), anchor });
    let (outputs, label) = (f.nodes[root].outputs.clone(), f.nodes[root].name);
    let composite = enclose(f, &m.nodes, &outputs, op, label);
    let list = &mut f.blocks[m.block].nodes;
    list.iter_mut().filter(|n| **n == root).for_each(|n| *n = composite);
    list.retain(|n| !m.nodes.contains(n));
}
