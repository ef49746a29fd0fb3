//! What the node pane says about a box. It is computed once, when the box is chosen: frames only read it.

use crate::document::{Document, group_title};
use crate::drawing::Drawn;
use compiler::remark::RemarkKind;
use graphview::picture::{Category, Node};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Rows of one list; the rest is a count. A large layer has thousands.
const ROWS: usize = 40;

/// The first rows of a list.
pub struct Rows<T> {
    /// Those that are shown.
    pub shown: Vec<T>,
    /// Number of the others.
    pub more: usize,
}

impl<T> Rows<T> {
    fn of<S>(all: &[S], row: impl FnMut(&S) -> T) -> Rows<T> {
        Rows { shown: all.iter().take(ROWS).map(row).collect(), more: all.len().saturating_sub(ROWS) }
    }
}

/// A kernel of a group.
pub struct OwnKernel {
    /// Its position in the trace.
    pub kernel: usize,
    /// Its name.
    pub name: String,
    /// Lines of its WGSL that the box became; 0 if they are not known apart.
    pub lines: u32,
}

/// A group that a box became.
pub struct OwnGroup {
    /// Its position in the trace.
    pub group: usize,
    /// Its line.
    pub title: String,
    /// Its kernels, in the order of their dispatches.
    pub kernels: Vec<OwnKernel>,
}

/// A group that reads or feeds the box's own.
pub struct Neighbour {
    /// `reads` or `feeds`.
    pub word: &'static str,
    /// Its position in the trace.
    pub group: usize,
    /// Its line.
    pub title: String,
    /// Why the two are not one group.
    pub why: Vec<String>,
}

/// A remark about a box.
pub struct Reason {
    /// The pass and its message.
    pub text: String,
    /// Whether it says that something was not done.
    pub missed: bool,
}

/// Everything that the pane shows of a box.
pub struct Details {
    /// The box.
    pub node: Node,
    /// Time with its share of the run, where it was measured.
    pub ms: Option<f64>,
    /// Relative error, and whether it is within the tolerance.
    pub error: Option<(f64, bool)>,
    /// Source nodes with their ops.
    pub origins: Rows<(String, String)>,
    /// Groups that it became.
    pub groups: Rows<OwnGroup>,
    /// Why its group ends where it does; empty if it is not in one group.
    pub border: Vec<String>,
    /// Groups before and behind its own.
    pub neighbours: Rows<Neighbour>,
    /// Remarks about it.
    pub reasons: Rows<Reason>,
}

/// The details of the last box that was asked for, in the graph that was shown then.
#[derive(Default)]
pub struct Last(Option<(Arc<Drawn>, Arc<Details>)>);

impl Last {
    /// The details, if they are of the box `key` in this graph.
    pub fn of(&self, key: &str, shown: Option<&Arc<Drawn>>) -> Option<Arc<Details>> {
        let (drawn, details) = self.0.as_ref()?;
        (details.node.key == key && Arc::ptr_eq(drawn, shown?)).then(|| details.clone())
    }
    /// Keeps details.
    pub fn keep(&mut self, shown: Option<Arc<Drawn>>, details: Details) -> Arc<Details> {
        let details = Arc::new(details);
        self.0 = shown.map(|s| (s, details.clone()));
        details
    }
}

impl Details {
    /// The details of a box of the document's pictures.
    pub fn of(d: &Document, node: Node) -> Details {
        let groups = match node.category {
            Category::Terminal => vec![],
            _ => d.groups_of(&node),
        };
        let ops: FxHashMap<&str, &str> = d.trace().sources.iter().map(|s| (s.name.as_str(), s.op.as_str())).collect();
        let origin = |o: &String| (o.clone(), ops.get(o.as_str()).map_or(String::new(), |op| op.to_string()));
        let own: FxHashSet<&str> = node.origins.iter().map(String::as_str).collect();
        let (border, neighbours) = match groups[..] {
            [g] => (d.border_of(g), neighbours(d, g)),
            _ => (vec![], vec![]),
        };
        let about = |name: &compiler::name::Name| node.name == name.as_str() || own.contains(name.as_str());
        let remarks: Vec<_> = d.trace().remarks.iter().filter(|r| r.nodes.iter().any(about)).collect();
        Details {
            ms: d.time_of(&node),
            error: d.error_of(&node),
            origins: Rows::of(&node.origins, origin),
            groups: Rows::of(&groups, |&g| group(d, g, &own)),
            border,
            neighbours: Rows::of(&neighbours, |&(word, other, from, to)| Neighbour {
                word,
                group: other,
                title: group_title(other, &d.trace().groups[other]),
                why: d.border_between(from, to).iter().map(|r| r.message.clone()).collect(),
            }),
            reasons: Rows::of(&remarks, |r| Reason {
                text: format!("{}: {}", r.pass, r.message),
                missed: r.kind == RemarkKind::Missed,
            }),
            node,
        }
    }
}

fn group(d: &Document, group: usize, own: &FxHashSet<&str>) -> OwnGroup {
    let t = d.trace();
    let kernel = |&(_, k): &(usize, usize)| {
        // A line of several nodes counts for each, so that the sum over nodes would count it twice.
        let lines = t.line_counts(k).into_iter().filter(|(n, _)| own.contains(n)).map(|(_, lines)| lines).max();
        OwnKernel { kernel: k, name: t.kernels[k].name.clone(), lines: lines.unwrap_or(0) }
    };
    let kernels = d.calls_of(group).iter().take(ROWS).map(kernel).collect();
    OwnGroup { group, title: group_title(group, &t.groups[group]), kernels }
}

/// Groups beside a group: the word, the other group, the one that is read and the one that reads.
fn neighbours(d: &Document, group: usize) -> Vec<(&'static str, usize, usize, usize)> {
    let reads = d.trace().groups[group].reads.iter().map(|&r| ("reads", r, r, group));
    reads.chain(d.readers_of(group).iter().map(|&r| ("feeds", r, group, r))).collect()
}
