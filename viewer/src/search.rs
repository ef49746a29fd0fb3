//! The search field: a query, and the boxes of the shown graph that it finds.

use crate::document::Document;
use crate::drawing::Drawn;
use compiler::compile::GroupKind;
use graphview::picture::{Category, Node};
use graphview::query::{Query, Subject};
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
    found: BTreeSet<usize>,
    shown: Option<(String, Arc<Drawn>)>,
}

impl Search {
    /// Boxes of a scene that the query finds; `None` while there is no query.
    pub fn find(&mut self, document: &Document, drawn: &Arc<Drawn>) -> Option<&BTreeSet<usize>> {
        if self.text.trim().is_empty() {
            (self.fault, self.shown) = (None, None);
            return None;
        }
        let known = self.shown.as_ref().is_some_and(|(text, d)| *text == self.text && Arc::ptr_eq(d, drawn));
        if !known {
            self.shown = Some((self.text.clone(), drawn.clone()));
            self.found.clear();
            self.fault = match Query::parse(&self.text) {
                Err(why) => Some(why),
                Ok(query) => {
                    let boxes = drawn.scene.boxes.iter().enumerate();
                    self.found = boxes.filter(|(_, b)| finds(document, &query, &b.node)).map(|(i, _)| i).collect();
                    None
                }
            };
        }
        self.fault.is_none().then_some(&self.found)
    }
    /// What the last [`Search::find`] found.
    pub fn found(&self) -> &BTreeSet<usize> {
        &self.found
    }
    /// The box found behind `from`, the first one behind the last.
    pub fn next(&self, from: Option<usize>, forward: bool) -> Option<usize> {
        let (first, last) = (self.found.first(), self.found.last());
        let next = match (from, forward) {
            (None, true) => None,
            (None, false) => last,
            (Some(i), true) => self.found.range(i + 1..).next(),
            (Some(i), false) => self.found.range(..i).next_back(),
        };
        next.or(if forward { first } else { last }).copied()
    }
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
