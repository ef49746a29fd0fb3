//! Fusion beyond the classic rules. The rules of [`RULES`] run one after another on the classic groups; each file says when its
//! rule applies; those that weigh one kernel against two ask the estimate. A rule only joins whole groups, and never beyond the
//! device's storage buffers for a kernel.

mod attention;
mod concat_in_place;
mod multi_output;
mod permuted_store;
mod pooling_epilogue;
mod prologue;
mod reduction_epilogue;
mod row_chain;

use super::forward::{ForwardGraph, Source};
use super::partition::Partition;
use crate::cost::CostModel;
use crate::graph::{Function, Module, NodeId, ValueId};
use crate::int::Int;
use crate::ops::control::Const;
use crate::passes::fusion_kind::{NodeInfo, group_expression};
use crate::profile::DeviceProfile;
use crate::schedule::estimate::Cost;
use crate::tir::BufferId;
use rustc_hash::FxHashMap;

/// The part of a cost that the estimate does not tell.
const UNCERTAIN: f64 = 0.02;

/// Every rule, in the order they run.
const RULES: &[fn(&mut Extension<'_, '_>)] = &[
    row_chain::apply,
    reduction_epilogue::apply,
    concat_in_place::apply,
    pooling_epilogue::apply,
    prologue::apply,
    attention::apply,
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
pub struct Declined {
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
    /// What groups cost.
    pub costs: &'a dyn CostModel,
    /// What was joined.
    pub made: Vec<Made>,
    /// What was not, and why.
    pub declined: Vec<Declined>,
}

impl Extension<'_, '_> {
    /// Applies the rules.
    pub fn run(&mut self) {
        RULES.iter().for_each(|rule| rule(self));
    }
    /// What these nodes, operands before users, cost as one group, and its kernels.
    fn cost(&self, nodes: &[NodeId]) -> Result<(Cost, usize), String> {
        let (te, outside, _) = group_expression(self.module, self.f, nodes)?;
        let constant = |v: &ValueId| self.f.def_op::<Const>(*v).is_some();
        let constants: Vec<BufferId> = outside.iter().filter(|o| constant(o.0)).map(|o| *o.1).collect();
        let found = self.costs.function(&te, &constants);
        found.as_ref().as_ref().map(|e| (e.cost, e.kernels.len())).map_err(String::clone)
    }
    /// Whether two groups cost less as one, in words with the parts of both costs. Of what the estimate cannot tell apart one kernel
    /// is the better: what it does not store takes no memory either. With `fewer` the one group must have fewer kernels, too.
    fn pays(&self, first: &[NodeId], second: &[NodeId], fewer: bool) -> Result<String, String> {
        let all: Vec<NodeId> = first.iter().chain(second).copied().collect();
        let ((one, kernels), (first, of_first), (second, of_second)) =
            (self.cost(&all)?, self.cost(first)?, self.cost(second)?);
        let two = first + second;
        let unknown = if kernels < of_first + of_second { UNCERTAIN } else { 0.0 };
        if fewer && unknown == 0.0 {
            return Err(format!("one group would have as many kernels, {two} apart"));
        }
        let words = format!("{one} as one, {two} apart");
        if one.total() < two.total() * (1.0 + unknown) { Ok(words) } else { Err(words) }
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
