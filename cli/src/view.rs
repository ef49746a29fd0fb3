//! `weft view`: a compilation in a window.

use crate::args::ViewArgs;
use crate::args::shared::refuse_for_trace;
use crate::error::{CliError, CliResult, Code};
use crate::executor::{compile_options, compile_with, pipeline_for, target_profile};
use crate::models::load;
use compiler::compile::CompileOptions;
use compiler::trace::{CompileTrace, Contents};
use shaders_gen::Emitter;
use std::path::Path;

/// Opens the viewer on a trace, or on that of a model compiled now.
pub fn execute(a: &ViewArgs) -> CliResult<()> {
    let trace = match crate::trace::is_trace(&a.model) {
        true => {
            refuse_for_trace(&a.common, &a.model)?;
            crate::trace::read(Path::new(&a.model))?
        }
        false => compiled(a)?,
    };
    open(trace)
}

fn compiled(a: &ViewArgs) -> CliResult<CompileTrace> {
    let profile = target_profile(&a.common)?;
    let given = crate::inputs::given(&a.input, &a.model, &a.common)?;
    let module = load(&a.model, &a.common, given.as_ref())?;
    let inputs = crate::precision::calibration_inputs(&module, given.as_ref(), &a.common)?;
    let pipeline = pipeline_for(&module, &a.common, &profile, &inputs)?;
    let options = CompileOptions { record: true, ..compile_options(pipeline, &a.common)? };
    let c = compile_with(module, &options, &a.common, &profile)?;
    CompileTrace::new(&a.model, &c, &options, &Emitter, Contents::Summary).map_err(|e| CliError::new(Code::Bug, e))
}

#[cfg(feature = "view")]
fn open(trace: CompileTrace) -> CliResult<()> {
    viewer::open(trace).map_err(|why| {
        CliError::new(Code::Device, format!("the window does not open: {why}"))
            .help("it needs a display; `weft inspect` and `weft explain` show traces as text")
    })
}

#[cfg(not(feature = "view"))]
fn open(_: CompileTrace) -> CliResult<()> {
    Err(CliError::new(Code::Usage, "this build has no viewer").help(
        "build with `cargo build --release --package cli --features view`; `weft inspect` and `weft explain` show traces as text",
    ))
}
