//! Why fused groups end where they do.

use super::CompileTrace;
use crate::remark::{Remark, RemarkKind};
use rustc_hash::FxHashMap;

/// The pass whose remarks are about the borders of groups.
const FUSION: &str = "fuse-ops";

impl CompileTrace {
    /// For each group, the groups that read its results.
    pub fn readers(&self) -> Vec<Vec<usize>> {
        let mut readers = vec![vec![]; self.groups.len()];
        for (i, g) in self.groups.iter().enumerate() {
            g.reads.iter().for_each(|&from| readers[from].push(i));
        }
        readers
    }
    /// For each group the failed conditions of fusion that are about its own nodes: positions of remarks.
    pub fn border_remarks(&self) -> Vec<Vec<usize>> {
        let mut groups_of: FxHashMap<&str, Vec<usize>> = FxHashMap::default();
        for (i, g) in self.groups.iter().enumerate() {
            g.nodes.iter().for_each(|n| groups_of.entry(n.as_str()).or_default().push(i));
        }
        let mut out = vec![vec![]; self.groups.len()];
        for (i, r) in self.remarks.iter().enumerate() {
            let missed = r.kind == RemarkKind::Missed && r.pass.as_str() == FUSION;
            let own = r.nodes.first().filter(|_| missed).and_then(|n| groups_of.get(n.as_str()));
            own.into_iter().flatten().for_each(|&g| out[g].push(i));
        }
        out
    }
    /// Why `to`, which reads `from`, is a separate group. `own` are the remarks about the border of `from`; those that
    /// name a node of `to` are used, else those that name no node of another group.
    pub fn border_between<'a>(&'a self, from: usize, to: usize, own: &[usize]) -> Vec<&'a Remark> {
        let list: Vec<&Remark> = own.iter().map(|&i| &self.remarks[i]).collect();
        let names = |r: &Remark, g: usize| r.nodes.iter().any(|n| self.groups[g].nodes.iter().any(|o| o == n.as_str()));
        let both: Vec<&Remark> = list.iter().filter(|r| names(r, to)).copied().collect();
        if !both.is_empty() {
            return both;
        }
        let inside = |r: &&Remark| r.nodes.iter().all(|n| self.groups[from].nodes.iter().any(|o| o == n.as_str()));
        list.into_iter().filter(inside).collect()
    }
    /// Why a group's kernel ends there, in words. `own` are the remarks about its border, `readers` the groups that
    /// read it.
    pub fn border_of_group(&self, group: usize, own: &[usize], readers: &[usize]) -> Vec<String> {
        let mut why: Vec<String> = own.iter().map(|&i| self.remarks[i].message.clone()).collect();
        why.dedup();
        if self.groups[group].is_result {
            why.push("its result is a result of the model".into());
        }
        if why.is_empty() {
            let list = || readers.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
            why.push(match readers {
                [] => "nothing reads its result".into(),
                _ => format!("no rule joins it with group {}", list()),
            });
        }
        why
    }
}
