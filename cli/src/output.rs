//! Results to stdout, logs to stderr, progress only on a terminal.

use crate::args::Common;
use crate::error::{CliError, CliResult};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};

/// Writes JSON to stdout or a file, when asked for; returns whether stdout is taken by it.
pub fn write_json(common: &Common, value: &serde_json::Value) -> CliResult<bool> {
    let Some(target) = &common.json else { return Ok(false) };
    let text = serde_json::to_string_pretty(value).map_err(|e| CliError::usage(e.to_string()))?;
    if target == "-" {
        print_text(&text)?;
        return Ok(true);
    }
    write_file(target.as_ref(), text.as_bytes())?;
    Ok(false)
}

/// Prints a line to stdout; a closed pipe ends quietly.
pub fn print_text(text: &str) -> CliResult<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(CliError::usage(format!("cannot write to stdout: {e}")))
        }
        _ => Ok(()),
    }
}

/// Writes a file whole or not at all: to a temporary name beside it, then renamed.
pub fn write_file(path: &std::path::Path, bytes: &[u8]) -> CliResult<()> {
    let fail = |e: std::io::Error| CliError::usage(format!("cannot write {}: {e}", path.display()));
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let temporary = path.with_file_name(format!(".{name}.{}", std::process::id()));
    std::fs::write(&temporary, bytes).and_then(|()| std::fs::rename(&temporary, path)).map_err(|e| {
        let _ = std::fs::remove_file(&temporary);
        fail(e)
    })
}

/// A log line on stderr.
pub fn log(common: &Common, text: impl AsRef<str>) {
    if !common.quiet {
        eprintln!("{}", text.as_ref());
    }
}

/// Progress of long work: a bar on a terminal, nothing elsewhere.
pub struct Progress {
    bar: Option<ProgressBar>,
    stage: String,
}
impl Progress {
    /// A bar when stderr is a terminal and output is wanted.
    pub fn new(common: &Common) -> Progress {
        let bar = (!common.quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(1);
            if let Ok(style) = ProgressStyle::with_template("{msg:>10} [{bar:30}] {pos}/{len}") {
                bar.set_style(style);
            }
            bar
        });
        Progress { bar, stage: String::new() }
    }
    /// Reports.
    pub fn report(&mut self, stage: &str, done: usize, total: usize) {
        if let Some(bar) = &self.bar {
            if self.stage != stage {
                self.stage = stage.to_string();
                bar.set_message(self.stage.clone());
            }
            bar.set_length(total as u64);
            bar.set_position(done as u64);
        }
    }
}
impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A plain table without borders.
pub fn table(header: &[&str]) -> comfy_table::Table {
    let mut t = comfy_table::Table::new();
    t.load_style(comfy_table::presets::NOTHING);
    t.set_header(header.iter().copied());
    t
}

/// `1.23 G`, `456 M`.
pub fn si(value: f64) -> String {
    for (limit, unit) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if value >= limit {
            return format!("{:.2} {unit}", value / limit);
        }
    }
    format!("{value:.0} ")
}
