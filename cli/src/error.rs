//! Errors as the command shows them.

use crate::terminal::print_error;
use workbench::Error;

/// Clap's error about the command line.
pub fn of_usage(e: &clap::Error) -> Error {
    let text = e.render().to_string();
    let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
    let first = lines.next().unwrap_or("wrong usage");
    let error = Error::usage(first.strip_prefix("error: ").unwrap_or(first));
    match lines.find_map(|l| l.strip_prefix("tip: ")) {
        Some(tip) => error.help(tip),
        None => error.help("`weft COMMAND --help` shows what it takes"),
    }
}

/// Shows an error on stderr.
pub fn print(e: &Error) {
    print_error(&e.to_string(), &format!("error[{}]:", e.code as u8));
}
