//! Fusion beyond the classic rules. The rules of [`RULES`] run one after another on the classic groups; each file says
//! when its rule applies. A rule only joins whole groups, and never beyond the device's storage buffers for a kernel.

mod concat_in_place;
mod multi_output;
mod permuted_store;
mod pooling_epilogue;
mod prologue;
mod reduction_epilogue;
mod row_chain;

use super::forward::{ForwardGraph, Source};
use super::partition::Partition;
use crate::graph::{Function, Module, NodeId};
use crate::int::Int;
use crate::passes::fusion_kind::NodeInfo;
use crate::profile::DeviceProfile;
use rustc_hash::FxHashMap;

/// Every rule, in the order they run.
const RULES: &[fn(&mut Extension<'_, '_>)] = &[
    row_chain::apply,
    reduction_epilogue::apply,
    concat_in_place::apply,
    pooling_epilogue::apply,
    prologue::apply,
    multi_output::apply,
    permuted_store::apply,
];

/// A group that a rule made.
pub struct Made {
    /// The rule's name.
    pub rule: &'static str,
    /// The nodes, in post-DFS order.
    pub nodes: Vec<NodeId>,
    /// What it did, where that is more than putting the nodes into one group.
    pub what: Option<String>,
}
impl Made {
    fn of(rule: &'static str, g: &ForwardGraph, nodes: &[usize]) -> Made {
        let mut list: Vec<NodeId> = Vec::new();
        for &i in nodes {
            if let Source::Node(n) = g.nodes[i].source
                && !list.contains(&n)
            {
                list.push(n);
            }
        }
        Made { rule, nodes: list, what: None }
    }
}

/// A place where a rule looked and did not apply.
pub struct Missed {
    /// The rule's name.
    pub rule: &'static str,
    /// The nodes it is about.
    pub nodes: Vec<NodeId>,
    /// The failed condition with its values.
    pub why: String,
}

/// What the rules work on.
pub struct Extension<'a, 'g> {
    /// The groups.
    pub p: &'a mut Partition<'g>,
    /// The graph they are of.
    pub g: &'a ForwardGraph,
    /// The module, for constants.
    pub module: &'a Module,
    /// The function.
    pub f: &'a Function,
    /// Kinds and reads of the nodes.
    pub info: &'a FxHashMap<NodeId, NodeInfo>,
    /// The device.
    pub profile: &'a DeviceProfile,
    /// What was joined.
    pub made: Vec<Made>,
    /// What was not, and why.
    pub missed: Vec<Missed>,
}

impl Extension<'_, '_> {
    /// Applies the rules.
    pub fn run(&mut self) {
        RULES.iter().for_each(|rule| rule(self));
    }
    /// For each node of the graph those that it uses.
    fn makers(&self) -> Vec<Vec<usize>> {
        let mut makers: Vec<Vec<usize>> = vec![vec![]; self.g.nodes.len()];
        for (i, node) in self.g.nodes.iter().enumerate() {
            node.users.iter().for_each(|u| makers[u.0].push(i));
        }
        makers
    }
}

fn shape_of<'a>(g: &ForwardGraph, f: &'a Function, i: usize) -> Option<&'a [Int]> {
    let Source::Node(n) = g.nodes[i].source else { return None };
    match f.nodes[n].outputs[..] {
        [v] => Some(&f.ty(v).shape),
        _ => None,
    }
}
