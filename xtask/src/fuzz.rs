//! `cargo xtask fuzz`: every fuzz target for a bounded time.

use crate::cargo::{cargo, run as run_command, target_dir};
use std::path::{Path, PathBuf};
use std::process::Command;

/// One line for the usage.
pub const HELP: &str = "[--seconds N] [--seed N] [TARGET...] mutated models, text, schedules, traces and arrays, each target for N seconds";

/// The targets, in the order in which they run.
const TARGETS: [&str; 5] = ["onnx", "text", "schedule", "trace", "npz"];

/// Runs the command. Findings are saved below the target folder, and printed with what replays them.
///
/// # Errors
/// Lists the targets that found something.
pub fn run(args: &[String]) -> Result<(), String> {
    let o = options(args)?;
    run_command(cargo(&["build", "--package", "fuzz"]))?;
    check(&program()?, &o)
}

/// The bounded run of `cargo xtask test`: with the program that the tests have built, where they did.
///
/// # Errors
/// As [`run`].
pub fn test(seconds: u32) -> Result<(), String> {
    let program = program()?;
    if !program.exists() {
        run_command(cargo(&["build", "--package", "fuzz"]))?;
    }
    check(&program, &Options { seconds, seed: 0, targets: TARGETS.map(String::from).to_vec() })
}

fn program() -> Result<PathBuf, String> {
    Ok(target_dir()?.join("debug").join(format!("fuzz{}", std::env::consts::EXE_SUFFIX)))
}

#[derive(Debug, PartialEq)]
struct Options {
    seconds: u32,
    seed: u64,
    targets: Vec<String>,
}

fn options(args: &[String]) -> Result<Options, String> {
    let usage = || format!("usage: cargo xtask fuzz {HELP}; targets: {}", TARGETS.join(", "));
    let mut o = Options { seconds: 60, seed: 0, targets: vec![] };
    let mut rest = args.iter();
    while let Some(a) = rest.next() {
        let mut number = || rest.next().and_then(|n| n.parse::<u64>().ok()).ok_or_else(usage);
        match a.as_str() {
            "--seconds" => o.seconds = u32::try_from(number()?).map_err(|_| usage())?,
            "--seed" => o.seed = number()?,
            target if TARGETS.contains(&target) => o.targets.push(target.into()),
            _ => return Err(usage()),
        }
    }
    if o.targets.is_empty() {
        o.targets = TARGETS.map(String::from).to_vec();
    }
    Ok(o)
}

fn check(program: &Path, o: &Options) -> Result<(), String> {
    let findings = target_dir()?.join("fuzz-findings");
    let mut failed = Vec::new();
    for target in &o.targets {
        let mut command = Command::new(program);
        command.args(["run", target, "--seconds", &o.seconds.to_string(), "--seed", &o.seed.to_string(), "--out"]);
        command.arg(&findings);
        if run_command(command).is_err() {
            failed.push(target.as_str());
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("findings in {}", failed.join(", "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read() {
        let parse = |list: &[&str]| options(&list.iter().map(|s| s.to_string()).collect::<Vec<_>>());
        let all = TARGETS.map(String::from).to_vec();
        assert_eq!(parse(&[]), Ok(Options { seconds: 60, seed: 0, targets: all }));
        let two = parse(&["--seconds", "5", "npz", "--seed", "9", "onnx"]);
        assert_eq!(two, Ok(Options { seconds: 5, seed: 9, targets: vec!["npz".into(), "onnx".into()] }));
        assert!(parse(&["--seconds"]).is_err());
        assert!(parse(&["pdf"]).is_err());
    }
}
