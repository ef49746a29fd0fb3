//! The text in an editor, or in a file that is edited already.

use std::path::{Path, PathBuf};
use std::process::Command;
use workbench::{Error, Result};

/// The variables that name an editor, as other programs read them.
const VARIABLES: [&str; 2] = ["VISUAL", "EDITOR"];

/// A text that a user changes.
pub struct Draft {
    text: String,
    source: Source,
}

enum Source {
    /// A file for the editor, which is deleted in the end, and the editor's words.
    Editor(tempfile::NamedTempFile, Vec<String>),
    File(PathBuf),
}

impl Draft {
    /// The text, for the editor of the environment; or the file that has the edited text.
    ///
    /// # Errors
    /// No editor is named; no temporary file.
    pub fn new(text: String, file: Option<&Path>) -> Result<Draft> {
        if let Some(path) = file {
            return Ok(Draft { text, source: Source::File(path.to_path_buf()) });
        }
        let named =
            VARIABLES.iter().filter_map(|v| Some((*v, std::env::var(v).ok().filter(|w| !w.trim().is_empty())?)));
        let Some((variable, line)) = named.into_iter().next() else {
            return Err(Error::usage("no editor is named by VISUAL or EDITOR").help(
                "`--schedule FILE` takes an edited schedule; `weft compile MODEL --emit weft` prints schedules",
            ));
        };
        let Some(words) = words(&line).filter(|w| !w.is_empty()) else {
            return Err(Error::usage(format!("{variable}={line} is no command line")));
        };
        let fail = |e: std::io::Error| Error::input(format!("no temporary file: {e}"));
        let file = tempfile::Builder::new().prefix("weft-").suffix(".schedule").tempfile().map_err(fail)?;
        std::fs::write(file.path(), &text).map_err(fail)?;
        Ok(Draft { text, source: Source::Editor(file, words) })
    }

    /// Whether the user can change the text once more.
    pub fn goes_on(&self) -> bool {
        matches!(self.source, Source::Editor(..))
    }

    /// Lets the user change the text, and reads it; `None` if it is as it was at first.
    ///
    /// # Errors
    /// An editor that does not start or fails, and a file that cannot be read.
    pub fn edited(&mut self) -> Result<Option<String>> {
        let path = match &self.source {
            Source::File(path) => path.as_path(),
            Source::Editor(file, words) => {
                let shown = words.join(" ");
                let fail = |why: String| Error::usage(format!("the editor `{shown}` {why}"));
                let status = Command::new(&words[0]).args(&words[1..]).arg(file.path()).status();
                let status = status.map_err(|e| fail(format!("does not start: {e}")))?;
                if !status.success() {
                    return Err(fail(format!("ended with {status}; nothing is changed")));
                }
                file.path()
            }
        };
        let text = std::fs::read_to_string(path).map_err(|e| Error::input(format!("{}: {e}", path.display())))?;
        Ok((instructions(&text) != instructions(&self.text)).then_some(text))
    }
}

/// The text without comments and blanks at the ends of lines.
fn instructions(text: &str) -> Vec<&str> {
    let lines = text.lines().map(|l| l.split(';').next().unwrap_or(l).trim());
    lines.filter(|l| !l.is_empty()).collect()
}

/// The words of a command line; blanks may be quoted. Backslashes are those of paths on Windows.
fn words(line: &str) -> Option<Vec<String>> {
    match cfg!(windows) {
        true => Some(line.split_whitespace().map(String::from).collect()),
        false => shlex::split(line),
    }
}
