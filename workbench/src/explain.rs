//! Which kernel each node is in, what each pass did, what stopped the next fusion, and what was measured.
//!
//! A model is compiled first, and its trace is explained, so that a model and its trace give the same output.

mod kernel;
mod left;
mod measured;
mod model;
mod node;
pub mod record;
mod relations;

use crate::document::Document;
use crate::error::Result;
use crate::executor::{compile_options, pipeline_for, target_profile};
use crate::inputs::Inputs;
use crate::models::load;
use crate::parts::{Parts, compile_parts};
use crate::record::Versioned;
use crate::settings::Settings;
use compiler::compile::CompileOptions;
use compiler::trace::{CompileTrace, Contents};
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
    pub record: Versioned<Record>,
    /// For people.
    pub document: Document,
}

impl Explained {
    fn new(record: Record, document: Document) -> Explained {
        Explained { record: Versioned::new(record), document }
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

/// An explanation to give.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Path or zoo name of a model, or a trace or a bundle.
    pub model: String,
    /// Values for its inputs.
    pub input: Inputs,
    /// The subject.
    pub subject: Subject,
    /// Say more.
    pub verbose: bool,
    /// Everything else.
    pub settings: Settings,
}

/// Explains a model or a trace.
///
/// # Errors
/// Those of loading and compiling, and of [`of_trace`].
pub fn explain(a: &Request) -> Result<Explained> {
    let (trace, parts) = match crate::traces::given(&a.model, &a.settings)? {
        Some(trace) => (trace, None),
        None => compiled(a)?,
    };
    of_trace(&trace, parts.as_ref(), &a.subject, a.verbose)
}

/// Explains a trace; `parts` are those of a network whose sizes a run decides.
///
/// # Errors
/// No such node or kernel; nothing was measured; a trace without stages.
pub fn of_trace(trace: &CompileTrace, parts: Option<&Parts>, subject: &Subject, verbose: bool) -> Result<Explained> {
    let relations = Relations::new(trace);
    match subject {
        Subject::Model => Ok(model::explain(&relations, parts, verbose)),
        Subject::Node(name) => node::explain(&relations, name, verbose),
        Subject::Kernel(name) => kernel::explain(&relations, name),
        Subject::Left => left::explain(&relations, verbose),
        Subject::Sorted(by) => measured::explain(&relations, by),
    }
}

/// The compilation of a model; of one in parts, of what is known before a run, with the parts.
fn compiled(a: &Request) -> Result<(CompileTrace, Option<Parts>)> {
    let given = crate::inputs::given(&a.input, &a.model, &a.settings)?;
    let module = load(&a.model, &a.settings, given.as_ref())?;
    let profile = target_profile(&a.settings)?;
    let inputs = crate::models::calibration_inputs(&module, given.as_ref(), &a.settings)?;
    // Estimates are told from the recorded stages.
    let record = a.verbose || matches!(a.subject, Subject::Kernel(_) | Subject::Left);
    let pipeline = pipeline_for(&module, &a.settings, &profile, &inputs)?;
    let options = CompileOptions { record, ..compile_options(pipeline, &a.settings, &profile)? };
    let c = compile_parts(module, &options, &a.settings, &profile)?;
    Ok((c.trace(&a.model, &options, Contents::Summary)?, c.parts))
}
