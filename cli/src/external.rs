//! `--external`: targets that run parts of the graph.

use crate::args::Common;
use crate::error::{CliError, CliResult, Code};
use compiler::attr::Attrs;
use compiler::external::TargetSpec;
use compiler::passes::external_passes;

/// The passes that `--external` asks for, with their options; none without.
///
/// # Errors
/// An unknown target, option or value of an option; a target that cannot run here.
pub fn passes(common: &Common) -> CliResult<Vec<(String, Attrs)>> {
    let targets = targets(common);
    for text in &targets {
        let usage = |why| CliError::usage(format!("--external {text}: {why}"));
        let spec = TargetSpec::parse(text).map_err(usage)?;
        let missing = |why| CliError::new(Code::Device, format!("--external {text}: {why}"));
        spec.target.check(&spec.options).map_err(missing)?;
    }
    Ok(if targets.is_empty() { vec![] } else { external_passes(&targets) })
}

/// The targets with their options: those that have threads get the number of `--threads`.
fn targets(common: &Common) -> Vec<String> {
    let with = |text: &String| match common.threads {
        Some(n) if takes_threads(text) && !text.contains(":threads=") => format!("{text}:threads={n}"),
        _ => text.clone(),
    };
    common.external.iter().map(with).collect()
}

/// True if a target of `--external` runs on a number of threads.
pub fn use_threads(common: &Common) -> bool {
    common.external.iter().any(|text| takes_threads(text))
}

fn takes_threads(text: &str) -> bool {
    let spec = TargetSpec::parse(text);
    spec.is_ok_and(|spec| spec.target.options().iter().any(|o| o.0 == "threads"))
}

/// Sets the variable that OpenMP reads when a library that uses it is loaded, to the number of `--threads`.
///
/// # Safety
/// There is one thread.
pub unsafe fn provide_threads(common: &Common) {
    if let (Some(n), true) = (common.threads, use_threads(common)) {
        // SAFETY: there is one thread, as the caller says.
        unsafe { std::env::set_var("OMP_NUM_THREADS", n.to_string()) };
    }
}
