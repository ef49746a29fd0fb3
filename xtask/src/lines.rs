//! `cargo xtask lines`: lines of Rust of each member, tests left out.

use cargo_metadata::MetadataCommand;
use std::path::Path;

/// The row of the table of commands.
pub const HELP: &str = "lines of Rust of each member, tests left out";

/// Prints a line for each member, and the sum.
///
/// # Errors
/// A manifest or a folder that cannot be read.
pub fn run(_: &[String]) -> Result<(), String> {
    let mut all = 0;
    let meta = MetadataCommand::new().no_deps().exec().map_err(|e| format!("cargo metadata: {e}"))?;
    for package in &meta.packages {
        let folder = package.manifest_path.parent().ok_or("a manifest in no folder")?;
        let lines = of_folder(folder.join("src").as_std_path())?;
        println!("{lines:7}  {}", folder.strip_prefix(&meta.workspace_root).unwrap_or(folder));
        all += lines;
    }
    println!("{all:7}  all");
    Ok(())
}

fn of_folder(folder: &Path) -> Result<usize, String> {
    let fail = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut sum = 0;
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        sum += match path.is_dir() {
            true if !is_test(&path) => of_folder(&path)?,
            false if path.extension().is_some_and(|e| e == "rs") && !is_test(&path) => of_file(&path)?,
            _ => 0,
        };
    }
    Ok(sum)
}

/// Files and folders of tests are called so.
fn is_test(path: &Path) -> bool {
    path.file_stem().is_some_and(|name| name == "tests" || name == "testing")
}

/// The lines before the tests of a file.
fn of_file(path: &Path) -> Result<usize, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    Ok(text[..end].lines().count())
}
