//! This command in another process.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// A program and its first arguments, where the command is part of an interpreter.
static WORDS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Says how another process starts this command: a program and its first arguments. Without it, that is the program
/// that runs. To be called once, before any other process is started.
pub fn starts_with(words: Vec<OsString>) {
    // A second call changes nothing.
    let _ = WORDS.set(words);
}

/// The command, for another process; its arguments are to be added.
///
/// # Errors
/// Says so where the program does not know its own path.
pub fn again() -> Result<Command, String> {
    let mut words = WORDS.get().into_iter().flatten();
    let own = || std::env::current_exe().map_err(|e| format!("the command does not find itself: {e}"));
    let mut command = Command::new(words.next().map_or_else(own, |program| Ok(PathBuf::from(program)))?);
    command.args(words);
    Ok(command)
}

/// The name of the program: `weft`, or of one with extensions of its own.
pub fn name() -> String {
    let own = WORDS.get().is_none().then(std::env::current_exe).and_then(Result::ok);
    own.as_deref().and_then(|path| path.file_stem()).map_or("weft".into(), |s| s.to_string_lossy().into_owned())
}
