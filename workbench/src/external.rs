//! `--external`: targets that run parts of the graph.

use crate::error::{Code, Error, Result};
use crate::settings::Settings;
use compiler::attr::Attrs;
use compiler::external::TargetSpec;
use compiler::passes::external_passes;

/// The passes that `--external` asks for, with their options; none without.
///
/// # Errors
/// An unknown target, option or value of an option; a target that cannot run here.
pub fn passes(settings: &Settings) -> Result<Vec<(String, Attrs)>> {
    let targets = targets(settings);
    for text in &targets {
        let usage = |why| Error::usage(format!("--external {text}: {why}"));
        let spec = TargetSpec::parse(text).map_err(usage)?;
        let missing = |why| Error::new(Code::Device, format!("--external {text}: {why}"));
        spec.target.check(&spec.options).map_err(missing)?;
    }
    Ok(if targets.is_empty() { vec![] } else { external_passes(&targets) })
}

/// The targets with their options: those that have threads get the number of `--threads`.
fn targets(settings: &Settings) -> Vec<String> {
    let with = |text: &String| match settings.threads {
        Some(n) if takes_threads(text) && !text.contains(":threads=") => format!("{text}:threads={n}"),
        _ => text.clone(),
    };
    settings.external.iter().map(with).collect()
}

/// True if a target of `--external` runs on a number of threads.
pub fn use_threads(settings: &Settings) -> bool {
    settings.external.iter().any(|text| takes_threads(text))
}

fn takes_threads(text: &str) -> bool {
    let spec = TargetSpec::parse(text);
    spec.is_ok_and(|spec| spec.target.options().iter().any(|o| o.0 == "threads"))
}

/// Sets the variable that OpenMP reads when a library that uses it is loaded, to the number of `--threads`.
///
/// # Safety
/// There is one thread.
pub unsafe fn provide_threads(settings: &Settings) {
    if let (Some(n), true) = (settings.threads, use_threads(settings)) {
        // SAFETY: there is one thread, as the caller says.
        unsafe { std::env::set_var("OMP_NUM_THREADS", n.to_string()) };
    }
}
