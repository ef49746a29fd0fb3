//! What the examples share: files with a line of JSON for each table, messages on stderr, exit codes.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::process::ExitCode;
use workbench::watcher::Watcher;
use workbench::{Error, Result};

/// Messages on stderr.
pub struct Stderr;
impl Watcher for Stderr {
    fn says(&self, text: &str) {
        eprintln!("{text}");
    }
}

/// The exit code of what was done; an error is printed.
pub fn ended(done: Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(e.code as u8)
        }
    }
}

/// The tables of a file; a missing one has none.
///
/// # Errors
/// A file that cannot be read; the number of the first line that is no table.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let fail = |e: &dyn std::fmt::Display| Error::input(format!("{}: {e}", path.display()));
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        Err(e) => return Err(fail(&e)),
    };
    let one = |(n, line): (usize, &str)| serde_json::from_str(line).map_err(|e| fail(&format!("line {}: {e}", n + 1)));
    text.lines().enumerate().map(one).collect()
}

/// Writes tables, whole or not at all.
///
/// # Errors
/// A file that cannot be written.
pub fn write<T: Serialize>(path: &Path, tables: &[T]) -> Result<()> {
    let fail = |e: &dyn std::fmt::Display| Error::input(format!("{}: {e}", path.display()));
    let lines: Result<Vec<String>, _> = tables.iter().map(serde_json::to_string).collect();
    let text: String = lines.map_err(|e| fail(&e))?.into_iter().map(|l| l + "\n").collect();
    Ok(workbench::written::write_file(path, text.as_bytes())?)
}

/// Appends a table.
///
/// # Errors
/// A file that cannot be read or written.
pub fn append<T: Serialize + DeserializeOwned>(path: &Path, table: T) -> Result<()> {
    let mut all: Vec<T> = read(path)?;
    all.push(table);
    write(path, &all)
}
