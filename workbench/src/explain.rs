//! Explanations of models and traces.
//!
//! A model is compiled first, and its trace is explained, so that a model and its trace give the same output.

use crate::error::{Error, Result};
use crate::executor::{compile_options, pipeline_for, target_profile};
use crate::inputs::Inputs;
use crate::models::load;
use crate::parts::{Parts, compile_parts};
use crate::settings::Settings;
use compiler::compile::CompileOptions;
use compiler::trace::{CompileTrace, Contents};
pub use graphview::explain::{Explained, Subject, record};
use graphview::explain::{NotExplained, Record};

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
    let mut found = of_trace(&trace, &a.subject, a.verbose)?;
    if let (Record::Model(record), Some(parts)) = (&mut found.record, parts) {
        found.document.say("\nParts: a run decides sizes, and all this is the part that is known before");
        parts.tell(&mut found.document);
        record.parts = Some(parts.record());
    }
    Ok(found)
}

/// Explains a trace.
///
/// # Errors
/// No such node or kernel; nothing was measured; a trace without stages.
pub fn of_trace(trace: &CompileTrace, subject: &Subject, verbose: bool) -> Result<Explained> {
    graphview::explain::of_trace(trace, subject, verbose).map_err(|e| match e {
        NotExplained::Unknown { why, help } => Error::usage(why).help(help),
        NotExplained::Lacking(why) => Error::input(why),
    })
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
