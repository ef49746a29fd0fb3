//! Calling cargo and other programs in the workspace.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The workspace's root folder.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().map(PathBuf::from).unwrap_or_default()
}

/// True in continuous integration (`CI=true`), where a check that cannot run is a failure.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|v| v == "true" || v == "1")
}

/// The workspace with the viewer's window and pictures. All steps select the same, since another selection has other
/// features of dependencies, and nearly all of them would be built again. The Python package is among them; its tests
/// run from a wheel with the module that was built here (`cargo xtask wheel`).
pub const ALL: &[&str] = &["--workspace", "--features", "weft-command/view"];

/// A cargo command in the workspace's root.
pub fn cargo(args: &[&str]) -> Command {
    let mut c = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_string()));
    c.current_dir(root()).args(args);
    if in_ci() {
        // What a second build would take over takes as much room again.
        c.env("CARGO_INCREMENTAL", "0");
    }
    c
}

/// This program. The tests build it anew while it runs, and Linux then says that the running one is deleted.
///
/// # Errors
/// Where the system does not say.
pub fn own_program() -> Result<PathBuf, String> {
    let path = std::env::current_exe().map_err(|e| e.to_string())?;
    let text = path.to_string_lossy();
    Ok(text.strip_suffix(" (deleted)").map_or_else(|| path.clone(), PathBuf::from))
}

/// Cargo's output folder, wherever the user's settings put it.
///
/// # Errors
/// When `cargo metadata` fails.
pub fn target_dir() -> Result<PathBuf, String> {
    let meta = cargo_metadata::MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .exec()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    Ok(meta.target_directory.into_std_path_buf())
}

/// Builds the `weft` command, without the viewer, which costs minutes; returns the program's path.
///
/// # Errors
/// When the build fails.
pub fn build_weft(release: bool) -> Result<PathBuf, String> {
    let mut c = cargo(&["build", "--package", "weft-command", "--no-default-features"]);
    if release {
        c.arg("--release");
    }
    run(c)?;
    let name = format!("weft{}", std::env::consts::EXE_SUFFIX);
    Ok(target_dir()?.join(if release { "release" } else { "debug" }).join(name))
}

/// Runs a command to its end.
///
/// # Errors
/// When it cannot start or fails.
pub fn run(mut c: Command) -> Result<(), String> {
    let status = c.status().map_err(|e| format!("{} does not start: {e}", show(&c)))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", show(&c))) }
}

/// True when a command starts and succeeds; its output is dropped.
pub fn succeeds(program: &str, args: &[&str]) -> bool {
    let quiet =
        Command::new(program).args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|s| s.success())
}

/// A command as a person would type it.
pub fn show(c: &Command) -> String {
    let words = std::iter::once(c.get_program()).chain(c.get_args());
    words.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// The program that the tests have built: another selection of packages would build its dependencies again.
pub fn tested_weft() -> Result<PathBuf, String> {
    let built = target_dir()?.join("debug").join(format!("weft{}", std::env::consts::EXE_SUFFIX));
    if built.exists() { Ok(built) } else { build_weft(false) }
}
