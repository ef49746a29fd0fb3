//! Which kernel each node is in, what each pass did, what stopped the next fusion, and what was measured: explanations of
//! a compilation by its trace.

mod explained;
mod kernel;
mod left;
mod measured;
mod model;
mod node;
pub mod record;
mod relations;

use compiler::trace::CompileTrace;
use explained::Result;
pub use explained::{Explained, NotExplained, Record, count_groups};
use relations::Relations;

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
