//! `weft export`

use crate::args::{Common, ExportArgs};
use crate::c_target::files_of;
use crate::error::{CliError, CliResult, Code};
use crate::executor::{Device, compile_options, pipeline_for, pipeline_options, profile_on, target_profile};
use crate::models::{inputs_for, load, load_open, short_name};
use crate::output::{Progress, log, write_file};
use compiler::attr::AttrStruct;
use compiler::compile::{CompileError, compile};
use compiler::graph::open_dims;
use compiler::passes::{PassContext, Sequential, Winograd, default_pipeline};
use runtime_cpu::Processor;
use std::path::Path;
use std::sync::Arc;

/// Writes a model as ONNX, or as C.
pub fn execute(a: &ExportArgs) -> CliResult<()> {
    match (&a.c, &a.output) {
        (Some(folder), _) => write_c(&a.model, &a.common, folder),
        (None, Some(output)) => write_onnx(a, output),
        (None, None) => Err(CliError::usage("-o FILE.onnx or --c DIR says what to write")),
    }
}

fn write_onnx(a: &ExportArgs, output: &Path) -> CliResult<()> {
    let mut module = load_open(&a.model, &a.common)?;
    if a.optimized {
        let mut options = pipeline_options(&a.common)?;
        // ONNX has no operators for Winograd's transforms: convolutions stay convolutions.
        options.disabled.push(Winograd::NAME.into());
        let mut cx = PassContext::new(target_profile(&a.common)?);
        options.configure(&mut cx);
        Sequential::new(default_pipeline(&options))
            .run(&mut module, &mut cx)
            .map_err(|e| CliError::new(Code::Bug, e.to_string()))?;
    }
    let bytes = compiler::onnx::export_onnx(&module).map_err(|e| CliError::input(e.to_string()))?;
    write_file(output, &bytes)?;
    log(&a.common, format!("wrote {} ({} bytes)", output.display(), bytes.len()));
    Ok(())
}

/// Compiles the model for one thread of this machine's CPU, and writes the plan as C.
fn write_c(model: &str, common: &Common, folder: &Path) -> CliResult<()> {
    let module = load(model, common, None)?;
    if let Some(dim) = open_dims(&module).first() {
        return Err(CliError::usage(format!("`{dim}` is open, and C has fixed sizes"))
            .help(format!("give it a size with `--dim {dim}=N`")));
    }
    let inputs = inputs_for(&module, None, common)?;
    let processor = Processor::open(1, None).map_err(|e| CliError::new(Code::Device, e.to_string()))?;
    let profile = profile_on(common, &Device::Cpu(Arc::new(processor)))?;
    let options = compile_options(pipeline_for(&module, common, &profile, &inputs)?, common)?;
    let mut progress = Progress::new(common, &[("kernels", "scheduling")]);
    let refused = |why: String| CliError::new(Code::Unsupported, format!("{model} does not become C: {why}"));
    let compiled = compile(module, &options, &profile, &c_source::Emitter, &mut |s, d, t| progress.report(s, d, t));
    drop(progress);
    let compiled = compiled.map_err(|e| match e {
        CompileError::NeedsCpu(why) => refused(why),
        e => e.into(),
    })?;
    let files = files_of(&compiled, &short_name(model)).map_err(refused)?;
    std::fs::create_dir_all(folder).map_err(|e| CliError::input(format!("{}: {e}", folder.display())))?;
    for file in &files {
        write_file(&folder.join(file.name), &file.bytes)?;
    }
    let bytes: usize = files.iter().map(|f| f.bytes.len()).sum();
    log(
        common,
        format!("wrote {} ({} files, {bytes} bytes); network.h says how to build it", folder.display(), files.len()),
    );
    Ok(())
}
