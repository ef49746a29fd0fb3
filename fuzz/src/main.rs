//! The fuzzer: `cargo xtask fuzz` builds it and runs each target for a while.
//!
//! A case depends only on target, seed and number, so every finding can be reproduced. Cases are mutants of a corpus
//! (the files of `fuzz/corpus`, the inputs of `filetests`, and the output of the exporter and the compiler for these),
//! made with knowledge of their format. Cases run in a child process through the functions that the command calls. A
//! finding is a panic, an abort, more than 2 GiB on the heap, a case that does not end, or an error that Weft reports
//! as a bug; its input is saved, and `fuzz one TARGET FILE` replays it. Files in `fuzz/corpus` are replayed by the
//! tests.
//!
//! Deliberately absent: coverage feedback. libFuzzer, AFL and honggfuzz need instrumented builds of a nightly or C++
//! toolchain; this fuzzer runs wherever the tests run.

mod memory;

use fuzz::corpus::Corpus;
use fuzz::runner::{Options, run};
use fuzz::target::Target;
use fuzz::targets::find;
use fuzz::{memory_limit, worker};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[global_allocator]
static HEAP: memory::Counting = memory::Counting;

const USAGE: &str = "usage: fuzz run TARGET [--seconds N] [--seed N] [--from N] [--timeout N] [--out DIR]
       fuzz one TARGET FILE
       fuzz case TARGET SEED NUMBER FILE    (writes the case)
       fuzz targets";

fn main() -> ExitCode {
    memory::limit(memory_limit());
    // As the command does with what the machine has left.
    compiler::tensor::limit_host_memory(memory_limit() / 2);
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["targets"] => {
            fuzz::targets::TARGETS.iter().for_each(|t| println!("{:<10} {}", t.name, t.help));
            Ok(true)
        }
        ["run", target, rest @ ..] => options(rest).and_then(|o| run(named(target)?, &o)),
        ["one", target, file] => replay(target, file),
        ["case", target, seed, number, file] => write_case(target, seed, number, file),
        ["worker", target, seeds, seed, from, count] => work(target, seeds, [seed, from, count]),
        _ => Err(USAGE.to_string()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn named(name: &str) -> Result<&'static Target, String> {
    find(name).ok_or_else(|| format!("no target `{name}`; `fuzz targets` lists them"))
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is no number\n{USAGE}"))
}

fn options(words: &[&str]) -> Result<Options, String> {
    let mut o = Options::default();
    for pair in words.chunks(2) {
        let [flag, value] = pair else { return Err(USAGE.into()) };
        match *flag {
            "--seconds" => o.time = Duration::from_secs(number(value)?),
            "--timeout" => o.timeout = Duration::from_secs(number(value)?),
            "--seed" => o.seed = number(value)?,
            "--from" => o.from = number(value)?,
            "--out" => o.out = PathBuf::from(value),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(o)
}

/// Runs one input in this process: a panic shows its place, an abort ends it.
fn replay(target: &str, file: &str) -> Result<bool, String> {
    let bytes = std::fs::read(file).map_err(|e| format!("cannot read {file}: {e}"))?;
    match (named(target)?.run)(&bytes) {
        Ok(stage) => {
            println!("no finding: {stage}");
            Ok(true)
        }
        Err(bug) => {
            println!("finding: {bug}");
            Ok(false)
        }
    }
}

fn write_case(target: &str, seed: &str, case: &str, file: &str) -> Result<bool, String> {
    let bytes = Corpus::of(named(target)?).case(number(seed)?, number(case)?);
    std::fs::write(file, bytes).map_err(|e| format!("cannot write {file}: {e}"))?;
    Ok(true)
}

fn work(target: &str, seeds: &str, numbers: [&str; 3]) -> Result<bool, String> {
    let target = named(target)?;
    let [seed, from, count] = numbers.map(number);
    worker::work(target, &Corpus::load(target, Path::new(seeds)), seed?, from?, count?);
    Ok(true)
}
