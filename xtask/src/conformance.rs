//! `cargo xtask conformance`: ONNX's own node cases, each through `weft run --test-dir`.
//!
//! The cases come with the Python package `onnx`. Cases of operators that Weft does not have are counted apart (the command
//! says so with its exit code), and so are those with elements of a type that it does not have (float8, int4, strings ...).

use crate::cargo::{build_weft, target_dir};
use crate::python;
use crate::vulkan::{Missing, prepare, quiet_loader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One line for the usage.
pub const HELP: &str = "[FILTER] [--device cpu|auto] [--limit N] [--release] runs ONNX's node cases";

/// The release whose cases count.
const PACKAGE: &str = "onnx==1.22.0";

/// Exit code of `weft` for operators that it does not have.
const UNSUPPORTED: i32 = 4;

/// A case that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, PartialEq)]
struct Options {
    filter: String,
    device: String,
    limit: usize,
    release: bool,
}

/// How a case ended.
enum Outcome {
    Pass,
    /// The operator is not there.
    NoOperator,
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
    report(&cases, &outcomes)
}

fn parse(args: &[String]) -> Result<Options, String> {
    let mut o = Options { filter: String::new(), device: "cpu".into(), limit: usize::MAX, release: false };
    let mut rest = args.iter();
    while let Some(a) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{a} needs a value"));
        match a.as_str() {
            "--device" => o.device = value()?.clone(),
            "--limit" => o.limit = value()?.parse().map_err(|e| format!("--limit: {e}"))?,
            "--release" => o.release = true,
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

/// One worker a core; the outcomes in the order of the cases.
fn run_all(weft: &Path, device: &str, cases: &[PathBuf]) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(2, |n| n.get()).min(cases.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(i) else { break };
                    let outcome = run_case(weft, device, case);
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
fn run_case(weft: &Path, device: &str, case: &Path) -> Outcome {
    let sets = (0..).map(|set| case.join(format!("test_data_set_{set}"))).take_while(|data| data.exists());
    let mut outcome = Outcome::Fail("has no test_data_set_0".into());
    for data in sets {
        outcome = run_data_set(weft, device, case, &data);
        if !matches!(outcome, Outcome::Pass) {
            break;
        }
    }
    outcome
}

fn run_data_set(weft: &Path, device: &str, case: &Path, data: &Path) -> Outcome {
    let mut c = Command::new(weft);
    c.arg("run").arg(case.join("model.onnx")).arg("--test-dir").arg(data).args(["--device", device, "--quiet"]);
    c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    quiet_loader(&mut c);
    let mut child = match c.spawn() {
        Ok(child) => child,
        Err(e) => return Outcome::Fail(format!("does not start: {e}")),
    };
    let errors = child.stderr.take();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        if let Some(mut e) = errors {
            let _ = std::io::Read::read_to_string(&mut e, &mut text);
        }
        text
    });
    let start = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if start.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(5)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return Outcome::Fail(format!("no answer in {} s", PATIENCE.as_secs()));
            }
        }
    };
    let text = reader.join().unwrap_or_default();
    outcome_of(status.code(), &text)
}

/// What an exit code and the error text say.
fn outcome_of(code: Option<i32>, text: &str) -> Outcome {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("at: ")).collect();
    let message = lines[..lines.len().min(3)].join(" | ");
    match code {
        Some(0) => Outcome::Pass,
        Some(_) if message.contains("has the type") && message.contains("which is not supported") => {
            Outcome::NoType(message)
        }
        Some(UNSUPPORTED) => Outcome::NoOperator,
        Some(c) => Outcome::Fail(format!("exit code {c}: {message}")),
        None => Outcome::Fail(format!("killed: {message}")),
    }
}

fn report(cases: &[PathBuf], outcomes: &[Outcome]) -> Result<(), String> {
    let list = |title: &str, pick: fn(&Outcome) -> Option<&str>| -> usize {
        println!("\n{title}:");
        let picked = cases.iter().zip(outcomes).filter_map(|(c, o)| pick(o).map(|why| (name(c), why)));
        picked.map(|(case, why)| println!("  {case}  {why}")).count()
    };
    let no_operator = list("operator not supported", |o| matches!(o, Outcome::NoOperator).then_some(""));
    let no_type = list("element type not supported", |o| match o {
        Outcome::NoType(why) => Some(why),
        _ => None,
    });
    let failed = list("failed", |o| match o {
        Outcome::Fail(why) => Some(why),
        _ => None,
    });
    let passed = outcomes.iter().filter(|o| matches!(o, Outcome::Pass)).count();
    println!(
        "\n{} cases: {passed} passed, {failed} failed, {no_operator} of operators and {no_type} of element types that are not \
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
        assert!(matches!(outcome_of(Some(4), "error[4]: no Foo"), Outcome::NoOperator));
        assert!(matches!(outcome_of(Some(4), missing), Outcome::NoType(why) if !why.contains("model.onnx")));
        assert!(matches!(outcome_of(Some(1), "error[1]: results differ"), Outcome::Fail(_)));
        assert!(matches!(outcome_of(None, missing), Outcome::Fail(_)));
    }

    #[test]
    #[cfg(unix)]
    fn the_exit_code_decides() {
        let case = std::env::temp_dir().join(format!("weft-case-{}", std::process::id()));
        let run = |program: &str| run_case(Path::new(program), "cpu", &case);
        assert!(matches!(run("true"), Outcome::Fail(why) if why.contains("test_data_set_0")));
        std::fs::create_dir_all(case.join("test_data_set_0")).unwrap();
        assert!(matches!(run("true"), Outcome::Pass));
        assert!(matches!(run("false"), Outcome::Fail(why) if why.starts_with("exit code 1")));
        assert!(matches!(run("/no/such/program"), Outcome::Fail(why) if why.contains("start")));
        std::fs::remove_dir_all(&case).unwrap();
    }
}
