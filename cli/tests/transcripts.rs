//! Transcripts of the command: each `transcripts/<name>.txt` holds commands after `$ weft`, and below each what it
//! prints (stdout, then stderr marked by `! `) and its exit code where that is not 0. Commands run in the folder of the
//! transcripts; times are written as `_ ms`, figures and machines of comma-separated values as `_`.
//!
//! With the environment variable `WEFT_BLESS=1` what was printed replaces the expectation.

use std::path::{Path, PathBuf};
use std::process::Command;

const PROMPT: &str = "$ weft ";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
}

/// Words of a command line; single quotes hold blanks.
fn words(line: &str) -> Vec<String> {
    let mut out = Vec::new();
    for (i, part) in line.split('\'').enumerate() {
        match i % 2 {
            0 => out.extend(part.split_whitespace().map(String::from)),
            _ => out.push(part.to_string()),
        }
    }
    out
}

/// Replaces `12.3 ms` and `"ms": 12.3` by `_`.
fn without_times(line: &str) -> String {
    let is_number = |w: &str| !w.is_empty() && w.chars().all(|c| c.is_ascii_digit() || c == '.');
    let words: Vec<&str> = line.split(' ').collect();
    let mut out: Vec<String> = words.iter().map(|w| w.to_string()).collect();
    for i in 0..words.len() {
        let unit = words.get(i + 1).is_some_and(|w| w.trim_end_matches([';', ',', ':']) == "ms");
        let key = i > 0 && words[i - 1] == "\"ms\":";
        if (unit && is_number(words[i])) || (key && is_number(words[i].trim_end_matches(','))) {
            out[i] = "_".into();
        }
    }
    out.join(" ")
}

/// Replaces figures with a decimal point in a row of comma-separated values by `_` (tokens a second, times, ratios),
/// and
/// what stands behind the first `columns`: the machine.
fn without_figures(line: &str, columns: usize) -> String {
    let figure = |cell: &str| cell.contains('.') && cell.parse::<f64>().is_ok();
    let own = line.split(',').take(columns).map(|cell| if figure(cell) { "_" } else { cell });
    let machine = line.split(',').nth(columns).map(|_| "_");
    own.chain(machine).collect::<Vec<_>>().join(",")
}

fn run(line: &str) -> String {
    let o = Command::new(env!("CARGO_BIN_EXE_weft"))
        .env("WEFT_DEVICE", "0")
        .args(words(line))
        .current_dir(folder())
        .env("NO_COLOR", "1")
        .output()
        .expect("weft starts");
    let mut text = format!("{PROMPT}{line}\n");
    let rows = line.contains("--format csv");
    let printed = String::from_utf8_lossy(&o.stdout).into_owned();
    let before_machine = printed.split(",device,driver,build").next().map_or(0, |head| head.split(',').count());
    for (i, l) in printed.lines().enumerate() {
        let l = match rows && i > 0 {
            true => without_figures(l, before_machine),
            false => without_times(l),
        };
        text += l.trim_end();
        text += "\n";
    }
    for l in String::from_utf8_lossy(&o.stderr).lines() {
        text += format!("! {}", without_times(l)).trim_end();
        text += "\n";
    }
    if o.status.code() != Some(0) {
        text += &format!("exit {}\n", o.status.code().map_or("by a signal".into(), |c| c.to_string()));
    }
    text
}

#[test]
fn transcripts_hold() {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder())
        .expect("the folder of the transcripts")
        .map(|e| e.expect("an entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "txt"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    let bless = std::env::var_os("WEFT_BLESS").is_some_and(|v| v == "1");
    let mut wrong = Vec::new();
    for path in files {
        let want = std::fs::read_to_string(&path).expect("a transcript");
        let got: Vec<String> = want.lines().filter_map(|l| l.strip_prefix(PROMPT)).map(run).collect();
        let got = got.join("\n");
        if bless {
            std::fs::write(&path, &got).expect("the transcript is written");
        } else if got != want {
            let diff = similar::TextDiff::from_lines(&want, &got).unified_diff().to_string();
            wrong.push(format!("{}\n{diff}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
