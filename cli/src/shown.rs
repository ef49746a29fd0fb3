//! The trace that the viewer and the report show: a given one, or that of a model compiled now.

use crate::args::{Common, InputArgs};
use crate::error::{CliError, CliResult, Code};
use crate::executor::{compile_options, compile_with, pipeline_for, target_profile};
use crate::output::log;
use crate::parts::compile_before;
use compiler::compile::{CompileError, CompileOptions, compile_graph};
use compiler::name::Name;
use compiler::remark::{Remark, RemarkKind};
use compiler::trace::{CompileTrace, Contents};

/// The trace that `model` is, or that of its compilation.
///
/// # Errors
/// Code 2 for options that ask for the compilation of a trace; those of loading and compiling.
pub fn trace(model: &str, input: &InputArgs, common: &Common) -> CliResult<CompileTrace> {
    match crate::trace::given(model, common)? {
        Some(trace) => Ok(trace),
        None => compiled(model, input, common),
    }
}

fn compiled(model: &str, input: &InputArgs, common: &Common) -> CliResult<CompileTrace> {
    let profile = target_profile(common)?;
    let given = crate::inputs::given(input, model, common)?;
    let module = crate::models::load(model, common, given.as_ref())?;
    let inputs = crate::models::calibration_inputs(&module, given.as_ref(), common)?;
    let pipeline = pipeline_for(&module, common, &profile, &inputs)?;
    let options = CompileOptions { record: true, ..compile_options(pipeline, common, &profile)? };
    let c = match compile_with(module.clone(), &options, common, &profile) {
        Err(CompileError::NeedsCpu(why)) => match compile_before(&module, &options, common, &profile)? {
            // For a network that decides sizes at run time, the graphs of all parts are shown.
            Some(parted) => return parted.trace(model, &options, Contents::Summary),
            // The passes can still be viewed.
            None => {
                log(common, format!("no kernels: {why}"));
                let mut graph = compile_graph(module, &options, &profile)?;
                graph.remarks.push(Remark {
                    pass: Name::new("plan"),
                    kind: RemarkKind::Missed,
                    nodes: vec![],
                    message: format!("no kernels: {why}"),
                    detail: String::new(),
                });
                graph
            }
        },
        done => done?,
    };
    CompileTrace::new(model, &c, &options, weft::emitter(&c.profile), Contents::Summary)
        .map_err(|e| CliError::new(Code::Bug, e))
}
