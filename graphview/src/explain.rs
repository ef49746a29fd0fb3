//! Which kernel each node is in, what each pass did, what stopped the next fusion, and what was measured: explanations of
//! a compilation by its trace.

mod kernel;
mod left;
mod measured;
mod model;
mod node;
pub mod record;
mod relations;

use crate::document::Document;
use compiler::compile::GroupKind;
use compiler::trace::CompileTrace;
use record::{KernelExplained, LeftExplained, ModelExplained, NodeExplained, SortedExplained};
use relations::Relations;
use serde::Serialize;

/// The subject of an explanation.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Subject {
    /// The whole compilation.
    #[default]
    Model,
    /// One source node.
    Node(String),
    /// One kernel: what its schedule chose, and what the other choices are estimated to cost.
    Kernel(String),
    /// Results that fusion left between kernels.
    Left,
    /// The groups by what was measured of them: `time` or `error`.
    Sorted(String),
}

/// An explanation.
pub struct Explained {
    /// For programs.
    pub record: Record,
    /// For people.
    pub document: Document,
}

impl Explained {
    fn new(record: Record, document: Document) -> Explained {
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

/// Why there is no explanation.
#[derive(Debug)]
pub enum NotExplained {
    /// A node or a kernel that there is not; nothing was measured.
    Unknown {
        /// One sentence.
        why: String,
        /// What to do.
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

type Result<T> = std::result::Result<T, NotExplained>;

/// Explains a trace.
///
/// # Errors
/// No such node or kernel; nothing was measured; a trace without stages.
pub fn of_trace(trace: &CompileTrace, subject: &Subject, verbose: bool) -> Result<Explained> {
    let relations = Relations::new(trace);
    match subject {
        Subject::Model => Ok(model::explain(&relations, verbose)),
        Subject::Node(name) => node::explain(&relations, name, verbose),
        Subject::Kernel(name) => kernel::explain(&relations, name),
        Subject::Left => left::explain(&relations, verbose),
        Subject::Sorted(by) => measured::explain(&relations, by),
    }
}

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
