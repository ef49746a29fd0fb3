//! `cargo xtask semver`: the public interface of the published crates against an earlier commit.
//!
//! cargo-semver-checks compares rustdoc's JSON of both. The crates are on no registry yet, so the baseline is a commit
//! of this repository.

use crate::cargo::{cargo, in_ci, root, run as run_command, succeeds, target_dir};
use crate::heading::heading;
use crate::package::published;
use std::path::PathBuf;
use std::process::Command;

/// One line for the usage.
pub const HELP: &str = "[BASE] says what in the public interface of the published crates is no longer as at the commit \
                        BASE (by default the last tag), by cargo-semver-checks, which is fetched";

/// The program, as cargo installs it.
const PROGRAM: &str = "cargo-semver-checks";

/// A version that is known to read the documentation of the compiler that builds the project.
const VERSION: &str = "0.51.0";

/// Runs the command.
///
/// # Errors
/// Without a commit to compare with; when an interface broke without a new version; in continuous integration, when
/// the program cannot be had.
pub fn run(args: &[String]) -> Result<(), String> {
    let base = match args {
        [] => last_tag()?,
        [base] if !base.starts_with('-') => base.clone(),
        _ => return Err(format!("usage: cargo xtask semver {HELP}")),
    };
    let program = match program() {
        Ok(program) => program,
        Err(why) if in_ci() => return Err(why),
        Err(why) => {
            eprintln!("\n!!! {PROGRAM} cannot be had ({why}): the interface is not compared.\n");
            return Ok(());
        }
    };
    heading(&format!("{PROGRAM} against {base}"));
    let mut c = Command::new(program);
    c.current_dir(root()).args(["semver-checks", "--baseline-rev", &base]);
    for (name, _) in published()?.iter().filter_map(|p| p.rsplit_once('-')) {
        c.args(["--package", name]);
    }
    run_command(c)
}

/// The last tag of the history.
fn last_tag() -> Result<String, String> {
    let said = Command::new("git").current_dir(root()).args(["describe", "--tags", "--abbrev=0"]).output();
    let said = said.map_err(|e| format!("git: {e}"))?;
    let tag = String::from_utf8_lossy(&said.stdout).trim().to_string();
    match said.status.success() && !tag.is_empty() {
        true => Ok(tag),
        false => Err("no tag to compare with: name a commit, for example `cargo xtask semver HEAD~10`".into()),
    }
}

/// The program: on the PATH, or built from its sources into the target folder on first use.
fn program() -> Result<PathBuf, String> {
    if succeeds(PROGRAM, &["semver-checks", "--version"]) {
        return Ok(PROGRAM.into());
    }
    let place = target_dir()?.join("semver");
    let program = place.join("bin").join(format!("{PROGRAM}{}", std::env::consts::EXE_SUFFIX));
    if !program.exists() {
        heading(&format!("cargo install {PROGRAM}"));
        let mut c = cargo(&["install", "--locked", "--version", VERSION, PROGRAM, "--root"]);
        c.arg(&place).current_dir(std::env::temp_dir());
        run_command(c)?;
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_no_commit() {
        assert!(run(&["--all".into()]).is_err_and(|e| e.starts_with("usage")));
    }

    /// The library is among the crates whose interface is compared, by its name on the registry.
    #[test]
    fn the_library_is_compared() {
        let all = published().expect("packages");
        assert!(all.iter().filter_map(|p| p.rsplit_once('-')).any(|(name, _)| name == "weft-nn"), "{all:?}");
    }
}
