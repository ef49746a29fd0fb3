//! Colours on a terminal.

use std::io::IsTerminal;

/// True if `stream` is a terminal and colours are not switched off (<https://no-color.org>).
pub fn colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// `text` in bold red where stderr takes colours.
pub fn alarming(text: &str) -> String {
    if colours(&std::io::stderr()) { format!("\x1b[1;31m{text}\x1b[0m") } else { text.to_string() }
}
