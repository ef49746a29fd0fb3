//! What a compilation says about its groups: who feeds whom, which dispatches they have, and why they end where they do.

use compiler::compile::{Compiled, Group, GroupKind};
use compiler::name::Name;
use compiler::plan::Dispatch;
use compiler::remark::{Remark, RemarkKind};
use std::collections::HashMap;

/// The pass whose remarks are about the borders of groups.
const FUSION: &str = "fuse-ops";

/// A compilation with its groups related to each other.
pub struct Relations<'a> {
    /// The compilation.
    pub c: &'a Compiled,
    /// For each group those that read its results.
    pub feeds: Vec<Vec<usize>>,
    /// For each group those whose results it reads.
    pub reads: Vec<Vec<usize>>,
    /// For each group whether a result of it is one of the model's.
    pub leaves: Vec<bool>,
    /// For each group its dispatches, in order.
    pub dispatches: Vec<Vec<&'a Dispatch>>,
}

impl<'a> Relations<'a> {
    /// Relates the groups.
    pub fn new(c: &'a Compiled) -> Relations<'a> {
        let n = c.groups.len();
        let main = c.module.main();
        let by_name: HashMap<Name, usize> = c.groups.iter().enumerate().map(|(i, g)| (g.function, i)).collect();
        let group_of = |v| main.def_node(v).and_then(|d| by_name.get(&main.nodes[d].name)).copied();
        let (mut feeds, mut reads) = (vec![vec![]; n], vec![vec![]; n]);
        for node in main.walk().into_iter().map(|id| &main.nodes[id]) {
            let Some(&to) = by_name.get(&node.name) else { continue };
            for from in node.inputs.iter().flatten().filter_map(|&v| group_of(v)) {
                push_new(&mut feeds[from], to);
                push_new(&mut reads[to], from);
            }
        }
        let mut leaves = vec![false; n];
        for from in main.results().iter().filter_map(|&v| group_of(v)) {
            leaves[from] = true;
        }
        let mut dispatches = vec![vec![]; n];
        for d in crate::compile::dispatches(c) {
            dispatches[d.group].push(d);
        }
        Relations { c, feeds, reads, leaves, dispatches }
    }
    /// A group.
    pub fn group(&self, i: usize) -> &'a Group {
        &self.c.groups[i]
    }
    /// Why nothing more followed in the group's kernel: the failed conditions of fusion about its own nodes.
    pub fn boundary(&self, i: usize) -> Vec<String> {
        let g = self.group(i);
        let about_own = |r: &&Remark| {
            let own = r.nodes.first().is_some_and(|n| g.nodes.contains(n));
            r.kind == RemarkKind::Missed && r.pass.as_str() == FUSION && own
        };
        let mut why: Vec<String> = self.c.remarks.iter().filter(about_own).map(|r| r.message.clone()).collect();
        why.dedup();
        if self.leaves[i] {
            why.push("its result is a result of the model".into());
        }
        if why.is_empty() {
            why.push(match self.feeds[i].as_slice() {
                [] => "nothing reads its result".into(),
                to => format!("no rule joins it with group {}", numbers(to)),
            });
        }
        why
    }
    /// Why rules that were asked before the one that took the group's schedule declined.
    pub fn declined(&self, i: usize) -> Vec<&'a Remark> {
        let g = self.group(i);
        let about = |r: &&Remark| r.pass.as_str() == "schedule" && r.nodes == g.origins;
        self.c.remarks.iter().filter(about).collect()
    }
}

fn push_new(list: &mut Vec<usize>, i: usize) {
    if !list.contains(&i) {
        list.push(i);
    }
}

/// `1, 2, 5`.
pub fn numbers(list: &[usize]) -> String {
    list.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// The first `most` names, and how many there are besides.
pub fn join(names: &[Name], most: usize) -> String {
    let mut text = names.iter().take(most).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    if names.len() > most {
        text += &format!(" and {} more", names.len() - most);
    }
    text
}

/// How a group runs, in words: its schedule rule and layout, or what takes its place.
pub fn how(g: &Group) -> String {
    match g.kind {
        GroupKind::View => "view".into(),
        GroupKind::Host => "host".into(),
        GroupKind::Kernel => match g.layout {
            Some(layout) => format!("{}, {layout}", g.rule),
            None => g.rule.to_string(),
        },
    }
}
