//! Output: results to stdout, messages to stderr, progress only on a terminal.

use crate::args::Common;
use crate::table::{Table, terminal_width};
pub use crate::table::{table, verdict};
use crate::terminal::print_log;
use compiler::bare::{shown, shown_in_json};
use compiler::trace::driver_stats::StatsRecord;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use workbench::document::{Block, Document};
use workbench::progress::log;
use workbench::watcher::Watcher;
use workbench::written::write_file;
use workbench::{Error, Result};

/// Writes JSON to stdout or a file, when asked for; returns whether stdout is taken by it.
pub fn write_json(common: &Common, value: &impl Serialize) -> Result<bool> {
    let Some(target) = &common.json else { return Ok(false) };
    let text = json_text(value)?;
    common.state.json_stands();
    if target == "-" {
        print_json(&text)?;
        return Ok(true);
    }
    write_file(target.as_ref(), shown_in_json(&text).as_bytes())?;
    Ok(false)
}

fn json_text(value: &impl Serialize) -> Result<String> {
    serde_json::to_string_pretty(value).map_err(|e| Error::usage(e.to_string()))
}

/// As [`write_json`]; of several records their list.
pub fn write_records<T: Serialize>(common: &Common, records: &[T]) -> Result<bool> {
    if let [one] = records { write_json(common, one) } else { write_json(common, &records) }
}

/// Prints what [`write_records`] writes.
pub fn print_records<T: Serialize>(records: &[T]) -> Result<()> {
    print_json(&if let [one] = records { json_text(one) } else { json_text(&records) }?)
}

/// Prints a line to stdout; a closed pipe ends quietly. Names in it may come from files: hidden characters are shown.
pub fn print_text(text: &str) -> Result<()> {
    print_line(&shown(text))
}

/// As [`print_text`], with lines that are longer than the terminal broken between words.
pub fn print_wrapped(text: &str) -> Result<()> {
    print_text(&wrapped(text, terminal_width()))
}

/// Prints a table to stdout as [`print_text`]; its cells are shown already, and may be coloured.
pub fn show_table(table: &Table) -> Result<()> {
    print_line(&table.to_string())
}

/// Prints the texts and tables of a document.
pub fn show_document(d: &Document) -> Result<()> {
    d.blocks.iter().try_for_each(|block| match block {
        Block::Text(text) => print_wrapped(text),
        Block::Table { header, rows } => {
            let mut t = table(&header.iter().map(String::as_str).collect::<Vec<_>>());
            for row in rows {
                t.add_row(row);
            }
            show_table(&t)
        }
    })
}

/// `text` with lines that are longer than `width` broken between words, the rest indented below; whole without a width.
fn wrapped(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_string() };
    let line = |line: &str| {
        let indent = line.len() - line.trim_start().len();
        let (mut out, mut used) = (" ".repeat(indent), indent);
        for (i, word) in line.trim_start().split(' ').enumerate() {
            let n = word.chars().count();
            if i > 0 && used + 1 + n > width && used > indent + 4 {
                out += &format!("\n{}", " ".repeat(indent + 4));
                used = indent + 4;
            } else if i > 0 {
                out.push(' ');
                used += 1;
            }
            out += word;
            used += n;
        }
        out
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Shows what a driver said of kernels.
pub fn show_driver_stats(stats: &StatsRecord) -> Result<()> {
    let mut d = Document::default();
    workbench::driver_stats::tell(&mut d, stats, |_| true);
    show_document(&d)
}

/// Prints a text of JSON to stdout as [`print_text`].
pub fn print_json(text: &str) -> Result<()> {
    print_line(&shown_in_json(text))
}

fn print_line(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::usage(format!("cannot write to stdout: {e}")))
        }
        _ => Ok(()),
    }
}

/// With `-v`, where the time went: on stderr.
pub fn log_stages(common: &Common) {
    let stages = common.state.stages();
    if common.verbose > 0 && !stages.is_empty() {
        let list: Vec<String> = stages.iter().map(|(stage, ms)| format!("{stage} {ms:.1} ms")).collect();
        log(common, format!("time: {}", list.join(", ")));
    }
}

/// The command watches the work: messages on stderr, progress as a bar with the time left on a terminal.
pub struct Terminal {
    quiet: bool,
    bar: Option<ProgressBar>,
    stage: Mutex<String>,
}

impl Terminal {
    /// A bar when stderr is a terminal; with `quiet` no bar and no messages.
    pub fn new(quiet: bool) -> Terminal {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::hidden();
            bar.set_length(1);
            if let Ok(style) = ProgressStyle::with_template("{msg:>12} [{bar:30}] {pos}/{len}, {eta} left  {prefix}") {
                bar.set_style(style);
            }
            bar
        });
        Terminal { quiet, bar, stage: Mutex::default() }
    }
}

impl Watcher for Terminal {
    fn says(&self, text: &str) {
        if !self.quiet {
            print_log(text);
        }
    }
    fn stops(&self) -> bool {
        crate::interrupt::stops()
    }
    fn is_at(&self, stage: &str, at_work: &str, done: usize, total: usize) {
        let Some(bar) = &self.bar else { return };
        let mut at = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if *at != stage {
            *at = stage.into();
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.reset();
            bar.set_message(shown(stage));
        }
        bar.set_prefix(shown(at_work));
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    }
    fn is_over(&self) {
        if let Some(bar) = &self.bar {
            self.stage.lock().unwrap_or_else(PoisonError::into_inner).clear();
            bar.finish_and_clear();
        }
    }
}

/// A table whose rows appear when they are done: the widths are decided beforehand. The header comes with the first
/// row,
/// so that none stands above an error.
pub struct Rows {
    widths: Vec<usize>,
    header: Cell<Option<Vec<String>>>,
}
impl Rows {
    /// Each column is as wide as its title and the given number of characters.
    pub fn new(columns: &[(&str, usize)]) -> Rows {
        Rows {
            widths: columns.iter().map(|(title, width)| title.chars().count().max(*width)).collect(),
            header: Cell::new(Some(columns.iter().map(|c| c.0.to_string()).collect())),
        }
    }
    /// Prints a row.
    pub fn print(&self, cells: &[String]) -> Result<()> {
        self.header.take().iter().try_for_each(|header| self.line(header))?;
        self.line(cells)
    }
    fn line(&self, cells: &[String]) -> Result<()> {
        let line: Vec<String> = cells.iter().zip(&self.widths).map(|(c, w)| format!("{c:w$}")).collect();
        print_text(format!(" {}", line.join("  ")).trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn long_lines_break_between_words() {
        let text = "  ends: one two three four\nshort";
        assert_eq!(wrapped(text, Some(16)), "  ends: one two\n      three four\nshort");
        assert_eq!(wrapped(text, None), text);
        assert_eq!(wrapped("averyveryverylongword and", Some(10)), "averyveryverylongword\n    and");
        assert_eq!(wrapped("", Some(10)), "");
    }
}
