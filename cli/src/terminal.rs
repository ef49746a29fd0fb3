//! Colours and questions on a terminal.

use compiler::bare::shown;
use std::io::{IsTerminal, Write};

/// True if `stream` is a terminal and colours are not switched off (<https://no-color.org>).
pub fn colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// `text` in bold red where stderr takes colours.
pub fn alarming(text: &str) -> String {
    if colours(&std::io::stderr()) { format!("\x1b[1;31m{text}\x1b[0m") } else { text.to_string() }
}

/// Prints a line to stderr, with hidden characters shown. A closed pipe is ignored.
pub fn print_log(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", shown(text));
}

/// Prints an error to stderr as [`print_log`], with `label` in it in red where stderr takes colours.
pub fn print_error(text: &str, label: &str) {
    let text = shown(text).replacen(label, &alarming(label), 1);
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Asks a question that is answered by yes or no, on a terminal; `usual` is the answer of an empty line. Without a
/// terminal nobody is asked, and the answer is no.
pub fn asks(question: &str, usual: bool) -> bool {
    let there = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !there {
        return false;
    }
    let mut stderr = std::io::stderr();
    let mut line = String::new();
    // Where the question cannot be shown or answered, nothing is done.
    let shown = write!(stderr, "{}", shown(question)).and_then(|()| stderr.flush()).is_ok();
    if !shown || std::io::stdin().read_line(&mut line).is_err() {
        return false;
    }
    match line.trim().to_lowercase().as_str() {
        "" => usual && line.ends_with('\n'),
        "y" | "yes" => true,
        _ => false,
    }
}
