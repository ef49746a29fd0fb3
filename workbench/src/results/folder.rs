//! The folder of results: a file for each, named by what it is of.

use super::checks::check;
use super::entry::{Entry, read};
use crate::error::{Error, Result};
use compiler::fingerprint::Fingerprint;
use serde_json::Value;
use std::path::Path;
use weft::written::write_file;

/// An entry with the name and content of its file.
pub struct Filed {
    pub name: String,
    pub entry: Entry,
    text: String,
}

impl Filed {
    /// The file of an entry. Paths in its options become names.
    ///
    /// # Errors
    /// None that an entry can cause.
    pub fn of(mut entry: Entry) -> Result<Filed> {
        entry.model = bare(&entry.model);
        entry.settings.values_mut().chain(entry.method.values_mut()).for_each(without_paths);
        let text = serde_json::to_string_pretty(&entry).map_err(|e| Error::input(e.to_string()))? + "\n";
        let digest = Fingerprint::of(|w| w.text(&text)).to_string();
        let words = [&entry.model, &entry.device.name, &entry.dtype, &entry.env.weft];
        let name: Vec<String> = words.iter().map(|w| plain(w)).collect();
        Ok(Filed { name: format!("{}-{}.json", name.join("-"), &digest[..8]), entry, text })
    }
    /// Writes it into the folder.
    pub fn write(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(|e| Error::usage(format!("{}: {e}", folder.display())))?;
        Ok(write_file(&folder.join(&self.name), self.text.as_bytes())?)
    }
}

/// Letters, digits and dots; all else is one `_`.
fn plain(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.').filter(|w| !w.is_empty());
    words.collect::<Vec<_>>().join("_").chars().take(40).collect()
}

/// The last part of a path; `@` of a list stays.
fn bare(text: &str) -> String {
    let at = if text.starts_with('@') { "@" } else { "" };
    let name = text.rsplit(['/', '\\']).next().unwrap_or_default();
    format!("{at}{}", name.trim_start_matches('@'))
}

fn without_paths(value: &mut Value) {
    match value {
        Value::String(text) if text.contains(['/', '\\']) => *text = bare(text),
        Value::Array(list) => list.iter_mut().for_each(without_paths),
        Value::Object(map) => map.values_mut().for_each(without_paths),
        _ => {}
    }
}

/// The entries of a folder in the order of their names, each checked again; none where there is no folder.
///
/// # Errors
/// A folder that cannot be read, and a file in it that is broken.
pub fn list(folder: &Path) -> Result<Vec<Filed>> {
    let fail = |e: std::io::Error| Error::input(format!("{}: {e}", folder.display()));
    if !folder.exists() {
        return Ok(vec![]);
    }
    let entries = std::fs::read_dir(folder).map_err(fail)?.collect::<Result<Vec<_>, _>>().map_err(fail)?;
    let mut paths: Vec<_> = entries.into_iter().map(|e| e.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "json"));
    paths.sort();
    let mut out: Vec<Filed> = vec![];
    for path in paths {
        let at = |why: String| {
            Error::input(why).at(path.display().to_string()).help("take the file out of the folder, and add it again")
        };
        for entry in read(&path).map_err(at)? {
            check(&entry).and_then(|()| contradiction(&entry, &out)).map_err(at)?;
            out.push(Filed { name: path.file_name().unwrap_or_default().display().to_string(), ..Filed::of(entry)? });
        }
    }
    Ok(out)
}

/// Holds an entry against those that are filed: what one network computes with equal inputs does not depend on where.
///
/// # Errors
/// Names the file that says something else.
pub fn contradiction(e: &Entry, filed: &[Filed]) -> Result<(), String> {
    let same = filed.iter().find(|f| f.entry.work == e.work && f.entry.flops != e.flops);
    same.map_or(Ok(()), |f| {
        Err(format!("`flops` is {}, and {} has {} for the same network and inputs", e.flops, f.name, f.entry.flops))
    })
}
