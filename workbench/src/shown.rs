//! The trace that the viewer and the report show: a given one, or that of a model compiled now.

use crate::arrays::Named;
use crate::error::{Code, Error, Result};
use crate::executor::{compile_options, compile_with, pipeline_for, target_profile};
use crate::inputs::Inputs;
use crate::match_models::named_alike;
use crate::parts::compile_before;
use crate::progress::log;
use crate::settings::Settings;
use compiler::compile::{CompileError, CompileOptions, compile_graph};
use compiler::graph::Module;
use compiler::name::Name;
use compiler::remark::{Remark, RemarkKind};
use compiler::trace::{CompileTrace, Contents};
use std::path::Path;

/// The trace that `model` is, or that of its compilation.
///
/// # Errors
/// Code 2 for options that ask for the compilation of a trace; those of loading and compiling.
pub fn trace(model: &str, input: &Inputs, settings: &Settings) -> Result<CompileTrace> {
    match crate::traces::given(model, settings)? {
        Some(trace) => Ok(trace),
        None => compiled(model, input, settings),
    }
}

/// The trace to show beside `model`: a given one, or the trace of another model. Its nodes that compute what a node of
/// `model` does have that node's name.
///
/// # Errors
/// Code 2 for a model beside a trace; errors of matching, loading and compiling.
pub fn beside(model: &str, other: &Path, input: &Inputs, settings: &Settings) -> Result<CompileTrace> {
    let path = other.display().to_string();
    let is_trace = |path: &str| Ok::<_, Error>(crate::traces::is_trace(path) || crate::bundles::find(path)?.is_some());
    if is_trace(&path)? {
        return crate::traces::read(other);
    }
    if is_trace(model)? {
        let why = format!("--beside {path}: a model stands beside a model, and a trace beside a trace");
        return Err(Error::usage(why).help("`weft compile MODEL -o F.trace` makes one"));
    }
    let module = named_alike(model, &path, input, settings)?;
    compiled_module(&path, module, None, settings)
}

fn compiled(model: &str, input: &Inputs, settings: &Settings) -> Result<CompileTrace> {
    let given = crate::inputs::given(input, model, settings)?;
    let module = crate::models::load(model, settings, given.as_ref())?;
    compiled_module(model, module, given.as_ref(), settings)
}

fn compiled_module(model: &str, module: Module, given: Option<&Named>, settings: &Settings) -> Result<CompileTrace> {
    let profile = target_profile(settings)?;
    let inputs = crate::models::calibration_inputs(&module, given, settings)?;
    let pipeline = pipeline_for(&module, settings, &profile, &inputs)?;
    let options = CompileOptions { record: true, ..compile_options(pipeline, settings, &profile)? };
    let c = match compile_with(module.clone(), &options, settings, &profile) {
        Err(CompileError::NeedsCpu(why)) => match compile_before(&module, &options, settings, &profile)? {
            // For a network that decides sizes at run time, the graphs of all parts are shown.
            Some(parted) => return parted.trace(model, &options, Contents::Summary),
            // The passes can still be viewed.
            None => {
                log(settings, format!("no kernels: {why}"));
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
        .map_err(|e| Error::new(Code::Bug, e))
}
