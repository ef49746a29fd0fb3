//! `--external`: targets that run parts of the graph.

use crate::args::Common;
use crate::error::{CliError, CliResult, Code};
use compiler::attr::Attrs;
use compiler::external::TargetSpec;
use compiler::passes::external_passes;

/// The passes that `--external` asks for, with their options; none without.
///
/// # Errors
/// An unknown target or option; a target that cannot run here.
pub fn passes(common: &Common) -> CliResult<Vec<(String, Attrs)>> {
    for text in &common.external {
        let usage = |why| CliError::usage(format!("--external {text}: {why}"));
        let spec = TargetSpec::parse(text).map_err(usage)?;
        let missing = |why| CliError::new(Code::Device, format!("--external {text}: {why}"));
        spec.target.check(&spec.options).map_err(missing)?;
    }
    Ok(if common.external.is_empty() { vec![] } else { external_passes(&common.external) })
}
