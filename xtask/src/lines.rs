//! `cargo xtask lines`: lines of Rust of each member, tests left out.

use std::path::Path;

/// The row of the table of commands.
pub const HELP: &str = "lines of Rust of each member, tests left out";

/// Where members are.
const FOLDERS: [&str; 17] = [
    "compiler/tensor-ir",
    "compiler",
    "shaders-gen",
    "runtime-cpu",
    "runtime-gpu",
    "onednn",
    "c-source",
    "rust-source",
    "facade",
    "graphview",
    "viewer",
    "benches",
    "workbench",
    "cli",
    "bindings/python",
    "capi",
    "xtask",
];

/// Prints a line for each member, and the sum.
///
/// # Errors
/// A folder that cannot be read.
pub fn run(_: &[String]) -> Result<(), String> {
    let mut all = 0;
    for folder in FOLDERS {
        let lines = of_folder(&Path::new(folder).join("src"))?;
        println!("{lines:7}  {folder}");
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
