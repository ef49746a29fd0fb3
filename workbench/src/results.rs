//! A folder of benchmarks from many machines: files of `weft bench --json` are checked, filed and shown as one page.
//!
//! A figure that contradicts itself is refused with the reason (`checks`). A consistent lie cannot be found, and the
//! page says that figures are their senders' own. A filed entry holds the fields of `entry` alone, without paths and
//! names of hosts.

mod checks;
mod entry;
mod folder;
mod page;

use crate::error::{Code, Error, Result};
use checks::check;
use entry::{Entry, read};
use folder::{Filed, contradiction, list};
pub use page::page;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Filed and refused bench files.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Added {
    /// Names of the new files in the folder.
    pub filed: Vec<String>,
    /// Names of those that were there already.
    pub there: Vec<String>,
    /// Refused results.
    pub refused: Vec<Refused>,
}

/// A refused result.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Refused {
    /// The file.
    pub file: String,
    /// Its place in a file of several, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row: Option<usize>,
    /// Why.
    pub why: String,
}

impl Refused {
    /// The file and the row.
    pub fn place(&self) -> String {
        self.row.map_or(self.file.clone(), |row| format!("{}, result {row}", self.file))
    }
}

impl Added {
    /// The error of what was refused.
    pub fn error(&self) -> Option<Error> {
        let [first, others @ ..] = &self.refused[..] else { return None };
        let more = others.iter().map(|r| format!("\n{}: {}", r.place(), r.why)).collect::<String>();
        let help = "`weft bench --json=F.json` writes such files; figures that disagree are measured again, on a quiet machine";
        Some(Error::new(Code::Input, format!("{}{more}", first.why)).at(first.place()).help(help))
    }
}

/// Checks bench files and files their results in a folder, which is made if it is not there.
///
/// # Errors
/// A folder that holds broken results or cannot be written. What is wrong with a file is said in the result.
pub fn add(files: &[PathBuf], folder: &Path) -> Result<Added> {
    let mut there = list(folder)?;
    let mut added = Added::default();
    for file in files {
        let name = file.display().to_string();
        let entries = match read(file) {
            Ok(entries) => entries,
            Err(why) => {
                added.refused.push(Refused { file: name, row: None, why });
                continue;
            }
        };
        let several = entries.len() > 1;
        for (i, entry) in entries.into_iter().enumerate() {
            let refused = |why| Refused { file: name.clone(), row: several.then_some(i + 1), why };
            match check(&entry).and_then(|()| contradiction(&entry, &there)) {
                Err(why) => added.refused.push(refused(why)),
                Ok(()) => put(entry, folder, &mut there, &mut added)?,
            }
        }
    }
    Ok(added)
}

fn put(entry: Entry, folder: &Path, there: &mut Vec<Filed>, added: &mut Added) -> Result<()> {
    let filed = Filed::of(entry)?;
    if there.iter().any(|f| f.name == filed.name) {
        added.there.push(filed.name);
        return Ok(());
    }
    filed.write(folder)?;
    added.filed.push(filed.name.clone());
    there.push(filed);
    Ok(())
}
