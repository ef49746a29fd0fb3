//! `weft export`

use crate::args::ExportArgs;
use crate::error::{CliError, CliResult, Code};
use crate::executor::{pipeline_options, target_profile};
use crate::models::load_open;
use crate::output::{log, write_file};
use compiler::attr::AttrStruct;
use compiler::passes::{PassContext, Sequential, Winograd, default_pipeline};

/// Writes a model as ONNX.
pub fn execute(a: &ExportArgs) -> CliResult<()> {
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
    write_file(&a.output, &bytes)?;
    log(&a.common, format!("wrote {} ({} bytes)", a.output.display(), bytes.len()));
    Ok(())
}
