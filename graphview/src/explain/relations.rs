//! Relations of groups: producers and readers, dispatches, and why groups end where they do.

use compiler::compile::GroupKind;
use compiler::remark::{Remark, RemarkKind, SCHEDULING};
use compiler::trace::{Call, CompileTrace, Group};

/// A compilation with its groups related to each other.
pub struct Relations<'a> {
    /// The compilation.
    pub t: &'a CompileTrace,
    /// For each group, the groups that read its results.
    pub feeds: Vec<Vec<usize>>,
    /// For each group its dispatches, in order.
    pub dispatches: Vec<Vec<&'a Call>>,
    /// For each group the remarks about its border.
    borders: Vec<Vec<usize>>,
}

impl<'a> Relations<'a> {
    /// Relates the groups.
    pub fn new(t: &'a CompileTrace) -> Relations<'a> {
        let mut dispatches = vec![vec![]; t.groups.len()];
        t.calls().for_each(|c| dispatches[c.group].push(c));
        Relations { t, feeds: t.readers(), dispatches, borders: t.border_remarks() }
    }
    /// A group.
    pub fn group(&self, i: usize) -> &'a Group {
        &self.t.groups[i]
    }
    /// Dispatches of all groups.
    pub fn count_dispatches(&self) -> usize {
        self.dispatches.iter().map(Vec::len).sum()
    }
    /// Why nothing more followed in the group's kernel: the failed conditions of fusion about its own nodes.
    pub fn boundary(&self, i: usize) -> Vec<String> {
        self.t.border_of_group(i, &self.borders[i], &self.feeds[i])
    }
    /// The same for people; with `verbose` each condition in the terms of the pass behind it, such as fusion kinds.
    pub fn boundary_text(&self, i: usize, verbose: bool) -> Vec<String> {
        let detail = |message: &str| {
            let own = self.borders[i].iter().map(|&r| &self.t.remarks[r]);
            own.filter(|r| r.message == message && verbose).map(|r| r.detail.as_str()).find(|d| !d.is_empty())
        };
        let with_detail = |message: String| match detail(&message) {
            Some(detail) => format!("{message} ({detail})"),
            None => message,
        };
        self.boundary(i).into_iter().map(with_detail).collect()
    }
    /// The remarks of the schedule rules about the group: which rule took it, or why others declined.
    pub fn scheduling(&self, i: usize, kind: RemarkKind) -> Vec<&'a str> {
        let g = self.group(i);
        let same = |r: &Remark| r.nodes.iter().map(|n| n.as_str()).eq(g.origins.iter().map(String::as_str));
        let about = |r: &&Remark| r.pass.as_str() == SCHEDULING && r.kind == kind && same(r);
        self.t.remarks.iter().filter(about).map(|r| r.message.as_str()).collect()
    }
}

/// `1, 2, 5`.
pub fn numbers(list: &[usize]) -> String {
    list.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// The first `most` names, and how many there are besides.
pub fn join(names: &[&str], most: usize) -> String {
    let mut text = names.iter().take(most).copied().collect::<Vec<_>>().join(", ");
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
        GroupKind::Control => "control flow".into(),
        GroupKind::Kernel => match &g.layout {
            Some(layout) => format!("{}, {layout}", g.rule),
            None => g.rule.to_string(),
        },
    }
}
