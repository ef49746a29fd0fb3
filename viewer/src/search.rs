//! The search field: a query, and the boxes of the shown graph that it finds.

use crate::document::Document;
use crate::drawing::Drawn;
use compiler::compile::GroupKind;
use graphview::picture::{Category, Node, Picture};
use graphview::query::{Query, Subject};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A query as it is being written, and what it finds.
#[derive(Default)]
pub struct Search {
    /// The text.
    pub text: String,
    /// The field gets the keyboard at the next frame.
    pub grab: bool,
    /// Its error.
    pub fault: Option<String>,
    /// Boxes that show what is found: itself, or a closed layer that it is in.
    boxes: Arc<BTreeSet<usize>>,
    /// Keys of what is found, in the order of the picture.
    found: Vec<String>,
    shown: Option<(String, Arc<Drawn>)>,
}

impl Search {
    /// Boxes of a scene that the query finds; `None` while there is no query.
    pub fn find(&mut self, document: &Document, drawn: &Arc<Drawn>) -> Option<Arc<BTreeSet<usize>>> {
        if self.text.trim().is_empty() {
            (self.fault, self.shown) = (None, None);
            return None;
        }
        let known = self.shown.as_ref().is_some_and(|(text, d)| *text == self.text && Arc::ptr_eq(d, drawn));
        if !known {
            self.shown = Some((self.text.clone(), drawn.clone()));
            self.found.clear();
            self.boxes = Arc::default();
            self.fault = match Query::parse(&self.text) {
                Err(why) => Some(why),
                Ok(query) => {
                    hits(document, &query, &drawn.layered.picture, &mut self.found);
                    let keys: FxHashSet<&str> = self.found.iter().map(String::as_str).collect();
                    let shows = |n: &Node| keys.contains(n.key.as_str()) || holds(n, &keys);
                    let boxes = drawn.scene.boxes.iter().enumerate();
                    self.boxes = Arc::new(boxes.filter(|(_, b)| shows(&b.node)).map(|(i, _)| i).collect());
                    None
                }
            };
        }
        self.fault.is_none().then(|| self.boxes.clone())
    }
    /// What the last [`Search::find`] found.
    pub fn found(&self) -> &[String] {
        &self.found
    }
    /// The key found behind `from`, the first one behind the last.
    pub fn next(&self, from: Option<&str>, forward: bool) -> Option<&str> {
        let at = from.and_then(|key| self.found.iter().position(|k| k == key));
        let next = match (at, forward) {
            (None, true) => 0,
            (None, false) => self.found.len().checked_sub(1)?,
            (Some(i), true) => (i + 1) % self.found.len(),
            (Some(i), false) => (i + self.found.len() - 1) % self.found.len(),
        };
        self.found.get(next).map(String::as_str)
    }
}

/// Keys of the boxes that a query finds, also in closed layers. A fused group is found by the ops in it.
fn hits(document: &Document, query: &Query, picture: &Picture, out: &mut Vec<String>) {
    for n in &picture.nodes {
        let in_group = || n.inside.iter().flat_map(|p| p.walk()).any(|m| finds(document, query, m));
        let own = n.category != Category::Layer && finds(document, query, n);
        if own || n.category == Category::Group && in_group() {
            out.push(n.key.clone());
        }
        if n.category != Category::Group {
            n.inside.iter().for_each(|p| hits(document, query, p, out));
        }
    }
}

/// Whether a layer holds one of the keys.
fn holds(n: &Node, keys: &FxHashSet<&str>) -> bool {
    let mut inside = n.inside.iter().filter(|_| n.category == Category::Layer).flat_map(|p| p.walk());
    inside.any(|m| keys.contains(m.key.as_str()))
}

/// Whether a query finds a box.
pub fn finds(document: &Document, query: &Query, node: &Node) -> bool {
    let t = document.trace();
    let groups = if node.category == Category::Terminal { vec![] } else { document.groups_of(node) };
    let kernels: Vec<String> =
        groups.iter().flat_map(|&g| document.calls_of(g)).map(|&(_, kernel)| t.kernels[kernel].name.clone()).collect();
    let runs = match groups.first().map(|&g| t.groups[g].kind) {
        Some(GroupKind::Kernel) => "kernel",
        Some(GroupKind::View) => "view",
        Some(GroupKind::Host) => "host",
        Some(GroupKind::Control) => "control",
        None => "",
    };
    let sum =
        |of: &dyn Fn(usize) -> u64| (!groups.is_empty()).then(|| groups.iter().map(|&g| of(g)).sum::<u64>() as f64);
    query.finds(&Subject {
        node,
        time: document.time_of(node),
        error: document.error_of(node).map(|e| e.0),
        flops: sum(&|g| t.groups[g].flops),
        bytes: sum(&|g| t.groups[g].bytes),
        fused: groups.iter().any(|&g| t.groups[g].ops.len() > 1),
        runs,
        kernels: &kernels,
    })
}
