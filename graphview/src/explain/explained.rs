//! an explanation, or the reason why it cannot be given.

use super::record::{KernelExplained, LeftExplained, ModelExplained, NodeExplained, SortedExplained};
use crate::document::Document;
use compiler::compile::GroupKind;
use compiler::trace::CompileTrace;
use serde::Serialize;

/// An explanation.
pub struct Explained {
    /// For programs.
    pub record: Record,
    /// For people.
    pub document: Document,
}

impl Explained {
    /// With both.
    pub fn new(record: Record, document: Document) -> Explained {
        Explained { record, document }
    }
}

/// An explanation as `--json` has it.
#[derive(Serialize)]
#[serde(untagged)]
#[allow(missing_docs)]
pub enum Record {
    Model(Box<ModelExplained>),
    Node(NodeExplained),
    Kernel(Box<KernelExplained>),
    Left(LeftExplained),
    Sorted(Box<SortedExplained>),
}

/// The reason why an explanation cannot be given.
#[derive(Debug)]
pub enum NotExplained {
    /// A node or a kernel that there is not; nothing was measured.
    Unknown {
        /// One sentence.
        why: String,
        /// Advice.
        help: String,
    },
    /// The trace lacks what the explanation needs.
    Lacking(String),
}

impl From<String> for NotExplained {
    fn from(why: String) -> NotExplained {
        NotExplained::Lacking(why)
    }
}

/// An explanation, or the reason why it cannot be given.
pub type Result<T> = std::result::Result<T, NotExplained>;

/// How many groups there are, and where they run.
pub fn count_groups(t: &CompileTrace) -> String {
    let count = |k: GroupKind| t.groups.iter().filter(|g| g.kind == k).count();
    let (kernels, views, host) = (count(GroupKind::Kernel), count(GroupKind::View), count(GroupKind::Host));
    let control = match count(GroupKind::Control) {
        0 => String::new(),
        n => format!(", {n} control flow"),
    };
    format!("{} groups: {kernels} kernels, {views} views, {host} on the host{control}", t.groups.len())
}
