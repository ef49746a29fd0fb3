//! Fusion beyond the classic rules: the rules of [`FUSION_RULES`] run one after another on the classic groups. The file
//! of each rule says when it applies; a rule that weighs one kernel against two asks the estimate. A rule only joins
//! whole groups, and never exceeds the device's storage buffers for a kernel.

mod attention;
mod concat_in_place;
mod multi_output;
mod permuted_store;
mod pooling_epilogue;
mod prologue;
mod reduction_chain;
mod reduction_epilogue;
mod row_chain;

use super::forward::{ForwardGraph, Source};
use super::partition::Partition;
use crate::cost::{CostModel, Weighed};
use crate::graph::{Function, Module, NodeId, ValueId};
use crate::int::Int;
use crate::name::Name;
use crate::ops::control::Const;
use crate::passes::fusion_kind::{NodeInfo, group_expression};
use crate::registry::Table;
use crate::schedule::ScheduleTarget;
use crate::schedule::estimate::{Estimate, times};
use crate::tir::BufferId;
use crate::tir::analysis::compared::compared_again;
use rustc_hash::{FxHashMap, FxHashSet};

/// The part of a cost that the estimate does not tell.
const UNCERTAIN: f64 = 0.02;
/// A ratio of two costs that no error of the estimate explains.
const FAR: f64 = 4.0;

/// A fusion rule: it joins groups of a [`GroupGraph`], or says why it does not.
pub struct FusionRule {
    /// Name, as remarks have it.
    pub name: &'static str,
    /// The groups that it looks for.
    pub looks_for: &'static str,
    /// Looks at all groups once.
    pub apply: fn(&mut GroupGraph<'_, '_>),
}

/// Every rule, in the order they run; [`register_fusion_rule`] adds one before them.
pub static FUSION_RULES: Table<FusionRule> = Table::new(&[
    FusionRule {
        name: row_chain::RULE,
        looks_for: "reductions along the same rows with elementwise work between and behind them, such as softmax",
        apply: row_chain::apply,
    },
    FusionRule {
        name: reduction_epilogue::RULE,
        looks_for: "elementwise work of the same shape behind a reduction",
        apply: reduction_epilogue::apply,
    },
    FusionRule {
        name: concat_in_place::RULE,
        looks_for: "operands of a concat that can be written into their part of its result",
        apply: concat_in_place::apply,
    },
    FusionRule {
        name: pooling_epilogue::RULE,
        looks_for: "a reduction over windows of the results of a convolution",
        apply: pooling_epilogue::apply,
    },
    FusionRule {
        name: prologue::RULE,
        looks_for: "elementwise and moving work in front of an anchor or a reduction",
        apply: prologue::apply,
    },
    FusionRule {
        name: attention::RULE,
        looks_for: "a product, a softmax of its rows and a product of that",
        apply: attention::apply,
    },
    FusionRule {
        name: reduction_chain::RULE,
        looks_for: "a short reduction or product of one row, and one of its results",
        apply: reduction_chain::apply,
    },
    FusionRule {
        name: multi_output::RULE,
        looks_for: "elementwise work on a value that others use too",
        apply: multi_output::apply,
    },
    FusionRule { name: permuted_store::RULE, looks_for: "a transpose behind an anchor", apply: permuted_store::apply },
]);

/// Adds a rule of another crate. It runs before those of the table. Call it before anything is compiled.
///
/// # Errors
/// When there is a rule of this name.
pub fn register_fusion_rule(rule: FusionRule) -> Result<(), String> {
    let name = rule.name;
    FUSION_RULES.add(rule, |r| r.name == name).map_err(|_| format!("there is a fusion rule `{name}`"))
}

/// A group that a rule made.
pub struct Made {
    /// The rule's name.
    pub rule: &'static str,
    /// The nodes, in post-DFS order.
    pub nodes: Vec<NodeId>,
    /// A description, if it did more than joining the nodes into one group.
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

/// The groups and graph that the rules work on.
pub struct GroupGraph<'a, 'g> {
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
    /// The device, and what the user asks of the schedule rules.
    pub target: ScheduleTarget<'a>,
    /// The costs of groups.
    pub costs: &'a dyn CostModel,
    /// The joined groups.
    pub made: Vec<Made>,
    /// The declined candidates, with reasons.
    pub declined: Vec<Declined>,
}

/// Both costs in words. One kernel is chosen if it takes less than `limit` times as long as several.
fn describe(w: &Weighed, limit: f64) -> String {
    let [one, apart] = times([w.one, w.other]);
    format!("{one} as one, {apart} apart ({})", w.verdict(limit, "one kernel"))
}

impl GroupGraph<'_, '_> {
    /// Applies the rules, those of other crates first.
    pub(super) fn run(&mut self) {
        FUSION_RULES.added().into_iter().chain(FUSION_RULES.own()).for_each(|rule| (rule.apply)(self));
    }
    /// The groups, each with its nodes in the order of the function.
    pub fn groups(&mut self) -> Vec<Vec<NodeId>> {
        let mut groups: Vec<(usize, Vec<NodeId>)> = Vec::new();
        for i in 0..self.g.nodes.len() {
            let (root, Source::Node(n)) = (self.p.root(i), self.g.nodes[i].source) else { continue };
            match groups.iter_mut().find(|g| g.0 == root) {
                Some((_, nodes)) => nodes.push(n),
                None => groups.push((root, vec![n])),
            }
        }
        groups.into_iter().map(|g| g.1).collect()
    }
    /// Joins the groups of two nodes for the rule; a remark says `what` was joined.
    ///
    /// # Errors
    /// With the reason, which becomes a remark: another node would run between both, the group would be too large or
    /// bind more buffers than the device has, or no kernel computes it.
    pub fn join(&mut self, rule: &'static str, [first, second]: [NodeId; 2], what: String) -> Result<(), String> {
        let joined = self.try_join([first, second]);
        match &joined {
            Ok(nodes) => self.made.push(Made { rule, nodes: nodes.clone(), what: Some(what) }),
            Err(why) => self.declined.push(Declined { rule, nodes: vec![first, second], why: why.clone() }),
        }
        joined.map(|_| ())
    }
    fn try_join(&mut self, nodes: [NodeId; 2]) -> Result<Vec<NodeId>, String> {
        let place = |n: NodeId| self.g.nodes.iter().position(|x| x.source == Source::Node(n));
        let [Some(a), Some(b)] = nodes.map(place) else { return Err("it is no node of the block".into()) };
        let roots = [self.p.root(a), self.p.root(b)];
        if roots[0] == roots[1] {
            return Err("both are in one group".into());
        }
        let mut members = self.p.members_of(a);
        members.extend(self.p.members_of(b));
        members.sort_unstable();
        if let Some(between) = self.between(&members) {
            return Err(format!("{between} would have to run in the middle of the group"));
        }
        if self.p.size(&roots) > self.p.limits().max_group || !self.p.fits(&roots) {
            return Err(format!(
                "the group would be too large, or have more bindings than {}",
                self.target.profile.name
            ));
        }
        let own: Vec<NodeId> = members.iter().map(|&i| self.g.nodes[i].source.node()).collect();
        group_expression(self.module, self.f, &own)?;
        let kind = self.p.group_kind(roots[0]).max(self.p.group_kind(roots[1]));
        self.p.join(a, b);
        self.p.raise_kind(b, kind);
        Ok(own)
    }
    /// A node outside that reads something of these nodes and makes something that they read.
    fn between(&self, members: &[usize]) -> Option<Name> {
        let mut after: FxHashSet<usize> = FxHashSet::default();
        // Nodes stand behind what they read.
        for i in 0..self.g.nodes.len() {
            if members.contains(&i) || after.contains(&i) {
                after.extend(self.g.nodes[i].users.iter().map(|u| u.0).filter(|u| !members.contains(u)));
            }
        }
        let feeds = |i: &usize| self.g.nodes[*i].users.iter().any(|u| members.contains(&u.0));
        let found = after.into_iter().filter(feeds).min()?;
        Some(self.f.nodes[self.g.nodes[found].source.node()].name)
    }
    /// The cost of these nodes (operands before users) as one group.
    fn cost(&self, nodes: &[NodeId]) -> Result<Estimate, String> {
        let (te, outside, _) = group_expression(self.module, self.f, nodes)?;
        let constant = |v: &ValueId| self.f.def_op::<Const>(*v).is_some();
        let constants: Vec<BufferId> = outside.iter().filter(|o| constant(o.0)).map(|o| *o.1).collect();
        let found = self.costs.function(&te, &constants);
        found.as_ref().clone()
    }
    /// Whether two groups cost less as one, in words with both times. If the costs are too close to distinguish, one
    /// kernel is better, since it stores fewer values. With `fewer` the joined group must also have fewer kernels.
    ///
    /// # Errors
    /// The same description if it does not pay, or the reason why it cannot be estimated.
    pub fn pays(&self, first: &[NodeId], second: &[NodeId], fewer: bool) -> Result<String, String> {
        let all: Vec<NodeId> = first.iter().chain(second).copied().collect();
        let (one, first, second) = (self.cost(&all)?, self.cost(first)?, self.cost(second)?);
        let unknown = if one.kernels.len() < first.kernels.len() + second.kernels.len() { UNCERTAIN } else { 0.0 };
        let weighed = Weighed::functions(self.costs, &one, &[first, second]);
        if fewer && unknown == 0.0 {
            let [apart] = times([weighed.other]);
            return Err(format!("one group would have as many kernels, {apart} apart"));
        }
        // Both times are known.
        let unknown = if weighed.measured { 0.0 } else { unknown };
        let limit = 1.0 + unknown;
        let words = describe(&weighed, limit);
        if weighed.one < weighed.other * limit { Ok(words) } else { Err(words) }
    }
    /// Both times, in words, if two groups cost far more as one: more than the estimate may be wrong, which follows
    /// measurements on a processor. `None` also where they cannot be estimated.
    pub fn far_dearer_as_one(&self, first: &[NodeId], second: &[NodeId]) -> Option<String> {
        let all: Vec<NodeId> = first.iter().chain(second).copied().collect();
        let [one, first, second] = [&all[..], first, second].map(|nodes| self.cost(nodes).ok());
        let weighed = Weighed::functions(self.costs, &one?, &[first?, second?]);
        let far = if self.target.profile.machine.register_tile().is_some() { 1.0 } else { FAR };
        (weighed.one > far * weighed.other).then(|| describe(&weighed, far))
    }
    /// For each node of the graph, the nodes that it uses.
    fn makers(&self) -> Vec<Vec<usize>> {
        let mut makers: Vec<Vec<usize>> = vec![vec![]; self.g.nodes.len()];
        for (i, node) in self.g.nodes.iter().enumerate() {
            node.users.iter().for_each(|u| makers[u.0].push(i));
        }
        makers
    }
}

/// The values among those of `nodes` that these nodes compare with themselves, computed again ([`compared_again`]): in
/// one group they are stored and loaded all the same, which takes a kernel of their own.
fn compared_values(module: &Module, f: &Function, nodes: &[NodeId]) -> Vec<ValueId> {
    let Ok((te, _, made)) = group_expression(module, f, nodes) else { return vec![] };
    let compared = compared_again(&te);
    made.into_iter().filter(|(_, buffer)| compared.contains(buffer)).map(|(v, _)| v).collect()
}

fn shape_of<'a>(g: &ForwardGraph, f: &'a Function, i: usize) -> Option<&'a [Int]> {
    let Source::Node(n) = g.nodes[i].source else { return None };
    match f.nodes[n].outputs[..] {
        [v] => Some(&f.ty(v).shape),
        _ => None,
    }
}
