//! `cargo xtask conformance`: ONNX's own node cases, each as `weft run --test-dir` would run it.
//!
//! The cases come with the Python package `onnx`. Cases of operators that Weft does not have are counted apart (the command
//! says so with its exit code), and so are those with elements of a type that it does not have (float8, int4, strings ...).

use crate::cargo::{build_weft, target_dir};
use crate::python;
use crate::vulkan::{Missing, prepare, quiet_loader};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// One line for the usage.
pub const HELP: &str = "[FILTER] [--device cpu|auto] [--limit N] [--release] [--places] runs ONNX's node cases";

/// The release whose cases count.
const PACKAGE: &str = "onnx==1.22.0";

/// Exit code of `weft` for operators that it does not have.
const UNSUPPORTED: i64 = 4;

/// Exit codes after which a process is not used again: the device's, and a bug's.
const DEVICE_OR_BUG: [i64; 2] = [5, 6];

/// The heading above cases that failed.
const FAILED: &str = "failed";

/// A case that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, PartialEq)]
struct Options {
    filter: String,
    device: String,
    limit: usize,
    release: bool,
    /// List where each case was computed.
    places: bool,
}

/// How a case ended.
enum Outcome {
    /// As expected; where it was computed.
    Pass(String),
    /// An operator is not there, or not in this use; the message.
    NoOperator(String),
    /// An element type is not there; the message.
    NoType(String),
    Fail(String),
}

/// Runs the command.
///
/// # Errors
/// When a case fails whose operators Weft has, or the set-up does.
pub fn run(args: &[String]) -> Result<(), String> {
    let options = parse(args)?;
    if options.device != "cpu" {
        prepare(Missing::Tolerated)?;
    }
    let weft = build_weft(options.release)?;
    let mut cases = find_cases(&options.filter)?;
    cases.truncate(options.limit);
    if cases.is_empty() {
        return Err(format!("no case's name contains `{}`", options.filter));
    }
    let outcomes = run_all(&weft, &options.device, &cases);
    if options.places {
        for (case, outcome) in cases.iter().zip(&outcomes) {
            if let Outcome::Pass(place) = outcome {
                println!("{place}: {}", name(case));
            }
        }
    }
    report(&cases, &outcomes, true)
}

/// All cases, on the CPU executor and on the device: a step of `cargo xtask test`. Without the package (there may be no
/// network) it is left out, loudly, except in continuous integration.
///
/// # Errors
/// When a case fails whose operators Weft has, or the set-up does.
pub fn test(weft: &Path) -> Result<(), String> {
    let cases = match find_cases("") {
        Ok(cases) => cases,
        Err(why) if std::env::var("CI").is_ok_and(|v| v == "true" || v == "1") => return Err(why),
        Err(why) => {
            eprintln!("\n!!! ONNX's test cases cannot be had ({why}): they are left out.\n");
            return Ok(());
        }
    };
    let mut failed = Vec::new();
    for device in ["cpu", "auto"] {
        eprintln!("--device {device}");
        failed
            .extend(report(&cases, &run_all(weft, device, &cases), false).err().map(|why| format!("{device}: {why}")));
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

fn parse(args: &[String]) -> Result<Options, String> {
    let mut o =
        Options { filter: String::new(), device: "cpu".into(), limit: usize::MAX, release: false, places: false };
    let mut rest = args.iter();
    while let Some(a) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{a} needs a value"));
        match a.as_str() {
            "--device" => o.device = value()?.clone(),
            "--limit" => o.limit = value()?.parse().map_err(|e| format!("--limit: {e}"))?,
            "--release" => o.release = true,
            "--places" => o.places = true,
            _ if a.starts_with('-') => {
                return Err(format!("unknown argument {a}; usage: cargo xtask conformance {HELP}"));
            }
            _ => o.filter = a.clone(),
        }
    }
    Ok(o)
}

/// The folders of the cases whose name contains `filter`, sorted.
fn find_cases(filter: &str) -> Result<Vec<PathBuf>, String> {
    let python = python::environment(&target_dir()?.join("conformance/venv"), &[PACKAGE])?;
    let place = "import importlib.util, os; print(os.path.dirname(importlib.util.find_spec('onnx').origin))";
    let found = Command::new(&python).args(["-c", place]).output().map_err(|e| format!("{}: {e}", python.display()))?;
    let package = PathBuf::from(String::from_utf8_lossy(&found.stdout).trim());
    let folder = package.join("backend/test/data/node");
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut cases: Vec<PathBuf> = entries
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.join("model.onnx").exists() && name(p).contains(filter))
        .collect();
    cases.sort();
    Ok(cases)
}

fn name(case: &Path) -> String {
    case.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

/// One `weft cases` process a core; the outcomes in the order of the cases.
fn run_all(weft: &Path, device: &str, cases: &[PathBuf]) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(2, |n| n.get()).min(cases.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let mut runner = Runner { weft, device, process: None };
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(i) else { break };
                    let outcome = run_case(&mut runner, case);
                    let mut list = done.lock().unwrap_or_else(PoisonError::into_inner);
                    list.push((i, outcome));
                    if list.len() % 200 == 0 {
                        eprintln!("{} of {}", list.len(), cases.len());
                    }
                }
            });
        }
    });
    let mut list = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    list.sort_by_key(|(i, _)| *i);
    list.into_iter().map(|(_, outcome)| outcome).collect()
}

/// All data sets of a case; the first that does not pass decides.
fn run_case(runner: &mut Runner<'_>, case: &Path) -> Outcome {
    let sets = (0..).map(|set| case.join(format!("test_data_set_{set}"))).take_while(|data| data.exists());
    let mut outcome = Outcome::Fail("has no test_data_set_0".into());
    for data in sets {
        outcome = match runner.run(&case.join("model.onnx"), &data) {
            Ok((code, message)) => outcome_of(code, &message),
            Err(why) => Outcome::Fail(why),
        };
        if !matches!(outcome, Outcome::Pass(_)) {
            break;
        }
    }
    outcome
}

/// A `weft cases` process that is started when it is needed, and again after a case that took it down.
struct Runner<'a> {
    weft: &'a Path,
    device: &'a str,
    process: Option<Process>,
}

/// The process, its stdin, and the lines of its stdout.
struct Process {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}
impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Runner<'_> {
    /// Exit code and message of one data set.
    fn run(&mut self, model: &Path, data: &Path) -> Result<(i64, String), String> {
        let mut process = match self.process.take() {
            Some(p) => p,
            None => self.start()?,
        };
        let asked = writeln!(process.stdin, "{}\t{}", model.display(), data.display());
        asked.and_then(|()| process.stdin.flush()).map_err(|e| format!("weft takes no case: {e}"))?;
        let line = match process.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => return Err(format!("no answer in {} s", PATIENCE.as_secs())),
            Err(RecvTimeoutError::Disconnected) => {
                let ended = process.child.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
                return Err(format!("took weft down: {ended}"));
            }
        };
        let answer: serde_json::Value = serde_json::from_str(&line).map_err(|e| format!("`{line}`: {e}"))?;
        let (code, message) = (answer["code"].as_i64(), answer["message"].as_str().unwrap_or("").to_string());
        let code = code.ok_or_else(|| format!("`{line}` has no code"))?;
        // A device may be lost for all that comes after, and a bug may leave anything behind.
        if !DEVICE_OR_BUG.contains(&code) {
            self.process = Some(process);
        }
        Ok((code, message))
    }

    fn start(&self) -> Result<Process, String> {
        let mut c = Command::new(self.weft);
        c.args(["cases", "--quiet", "--device", self.device]);
        c.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        quiet_loader(&mut c);
        let mut child = c.spawn().map_err(|e| format!("weft does not start: {e}"))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("weft starts without pipes".into());
        };
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Process { child, stdin, lines })
    }
}

/// What an exit code and the error text say.
fn outcome_of(code: i64, text: &str) -> Outcome {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("at: ")).collect();
    let message = lines[..lines.len().min(3)].join(" | ");
    match code {
        0 => Outcome::Pass(text.to_string()),
        _ if message.contains("has the type") && message.contains("which is not supported") => Outcome::NoType(message),
        UNSUPPORTED => Outcome::NoOperator(message),
        c => Outcome::Fail(format!("exit code {c}: {message}")),
    }
}

/// Prints what failed and the sums; with `all` also what is not supported.
fn report(cases: &[PathBuf], outcomes: &[Outcome], all: bool) -> Result<(), String> {
    let list = |title: &str, pick: fn(&Outcome) -> Option<&str>| -> usize {
        let picked = cases.iter().zip(outcomes).filter_map(|(c, o)| pick(o).map(|why| (name(c), why)));
        let picked: Vec<(String, &str)> = picked.collect();
        if !picked.is_empty() && (all || title == FAILED) {
            println!("\n{title}:");
            picked.iter().for_each(|(case, why)| println!("  {case}  {why}"));
        }
        picked.len()
    };
    let no_operator = list("operator not supported", |o| match o {
        Outcome::NoOperator(why) => Some(why),
        _ => None,
    });
    let no_type = list("element type not supported", |o| match o {
        Outcome::NoType(why) => Some(why),
        _ => None,
    });
    let failed = list(FAILED, |o| match o {
        Outcome::Fail(why) => Some(why),
        _ => None,
    });
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for outcome in outcomes {
        if let Outcome::Pass(place) = outcome {
            *places.entry(place).or_default() += 1;
        }
    }
    let passed: usize = places.values().sum();
    let places = places.iter().map(|(place, n)| format!("{n} on the {place}")).collect::<Vec<_>>().join(", ");
    println!(
        "\n{} cases: {passed} passed ({places}), {failed} failed, {no_operator} of operators and {no_type} of element types that are not \
         supported",
        cases.len()
    );
    if failed == 0 { Ok(()) } else { Err(format!("{failed} cases failed")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_may_come_in_any_order() {
        let parse = |list: &[&str]| parse(&list.iter().map(|s| s.to_string()).collect::<Vec<_>>());
        let o = parse(&["--device", "auto", "conv", "--limit", "3"]).unwrap();
        assert_eq!((o.filter.as_str(), o.device.as_str(), o.limit, o.release), ("conv", "auto", 3, false));
        assert!(parse(&["--limit"]).is_err());
        assert!(parse(&["--limit", "many"]).is_err());
        assert!(parse(&["--devices"]).is_err());
    }

    #[test]
    fn what_is_missing_is_told_from_what_is_wrong() {
        let missing = "error[4]: tensor `x` has the type int4, which is not supported\n  at: model.onnx\n";
        assert!(matches!(outcome_of(4, "error[4]: no Foo"), Outcome::NoOperator(why) if why.contains("Foo")));
        assert!(matches!(outcome_of(4, missing), Outcome::NoType(why) if !why.contains("model.onnx")));
        assert!(matches!(outcome_of(1, "error[1]: results differ"), Outcome::Fail(_)));
    }

    /// A stand-in for `weft` that answers `lines`, one a case.
    #[cfg(unix)]
    fn answers(name: &str, script: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let program = std::env::temp_dir().join(format!("weft-{name}-{}", std::process::id()));
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    #[test]
    #[cfg(unix)]
    fn a_case_that_takes_the_process_down_costs_itself_alone() {
        let case = std::env::temp_dir().join(format!("weft-case-{}", std::process::id()));
        let echo = answers("echo", r#"while read -r line; do echo '{"code":0,"message":"device"}'; done"#);
        let dies = answers("dies", "read -r line; exit 7");
        let run = |program: &Path, times: usize| {
            let mut runner = Runner { weft: program, device: "cpu", process: None };
            (0..times).map(|_| run_case(&mut runner, &case)).collect::<Vec<_>>().pop().unwrap()
        };
        assert!(matches!(run(&echo, 1), Outcome::Fail(why) if why.contains("test_data_set_0")));
        std::fs::create_dir_all(case.join("test_data_set_0")).unwrap();
        assert!(matches!(run(&echo, 3), Outcome::Pass(place) if place == "device"));
        assert!(matches!(run(&dies, 2), Outcome::Fail(why) if why.contains("took weft down")));
        assert!(matches!(run(Path::new("/no/such/program"), 1), Outcome::Fail(why) if why.contains("start")));
        for made in [echo, dies] {
            std::fs::remove_file(made).unwrap();
        }
        std::fs::remove_dir_all(&case).unwrap();
    }
}
