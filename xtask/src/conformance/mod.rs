//! `cargo xtask conformance`: ONNX's own node cases, each as `weft run --test-dir` would run it.
//!
//! The cases come with the Python package `onnx`. Each runs in the interpreter, by shaders and on the CPU. If it is
//! then not right, or not computed there alone, it runs again with its small inputs as constants. Cases with
//! unsupported operators are counted separately (the command tells by its exit code), and so are cases with unsupported
//! element types (strings ...). The outcome of each case is compared with the committed [`ledger`].

mod ledger;
mod needs;
mod runner;

use crate::cargo::{build_weft, in_ci, root, target_dir};
use crate::python;
use crate::vulkan::{Missing, prepare};
use ledger::{End, Ledger, PLACES, Standing};
use runner::{Inputs, Outcome, Runner, run_case};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// One line for the usage.
pub const HELP: &str =
    "[FILTER] [--limit N] [--release] [--bless] runs ONNX's node cases and holds them against the committed list";

/// The release whose cases count.
const PACKAGE: &str = "onnx==1.22.0";

/// The committed list.
const LEDGER: &str = "docs/conformance.txt";

/// Which cases need constants, and why: written with the list.
const NEEDS: &str = "docs/conformance.md";

#[derive(Debug, PartialEq)]
struct Options {
    filter: String,
    limit: usize,
    release: bool,
    /// Write the list instead of comparing with it.
    bless: bool,
}

/// A case: its outcomes in the interpreter, by shaders and on the CPU.
pub struct Case {
    name: String,
    outcomes: [Outcomes; 3],
}

/// As the case stands and, where that was not the best, with constants.
pub struct Outcomes {
    as_is: Outcome,
    constants: Option<Outcome>,
}

impl Outcomes {
    fn end(&self) -> End {
        let as_is = self.as_is.standing;
        End { as_is, best: self.constants.as_ref().map_or(as_is, |c| c.standing.max(as_is)) }
    }
}

/// Runs the command.
///
/// # Errors
/// When a case ends worse than the list says, or the set-up fails.
pub fn run(args: &[String]) -> Result<(), String> {
    let options = parse(args)?;
    prepare(Missing::Tolerated)?;
    let weft = build_weft(options.release)?;
    let mut cases = find_cases(&options.filter)?;
    cases.truncate(options.limit);
    if cases.is_empty() {
        return Err(format!("no case's name contains `{}`", options.filter));
    }
    let whole = options.filter.is_empty() && options.limit == usize::MAX;
    judge(run_all(&weft, &cases), whole, options.bless)
}

/// All cases: a step of `cargo xtask test`. Without the package (there may be no
/// network) it is left out, loudly, except in continuous integration.
///
/// # Errors
/// When a case ends worse than the list says, or the set-up fails.
pub fn test(weft: &Path) -> Result<(), String> {
    match find_cases("") {
        Ok(cases) => judge(run_all(weft, &cases), true, false),
        Err(why) if in_ci() => Err(why),
        Err(why) => {
            eprintln!("\n!!! ONNX's test cases cannot be had ({why}): they are left out.\n");
            Ok(())
        }
    }
}

fn parse(args: &[String]) -> Result<Options, String> {
    let mut o = Options { filter: String::new(), limit: usize::MAX, release: false, bless: false };
    let mut rest = args.iter();
    while let Some(a) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{a} needs a value"));
        match a.as_str() {
            "--limit" => o.limit = value()?.parse().map_err(|e| format!("--limit: {e}"))?,
            "--release" => o.release = true,
            "--bless" => o.bless = true,
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

/// Three `weft cases` processes a core, one for each device; the cases in their order.
fn run_all(weft: &Path, cases: &[PathBuf]) -> Vec<Case> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(2, |n| n.get()).min(cases.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let mut runners = PLACES.map(|(_, device)| Runner::new(weft, device));
                while let Some((i, case)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, cases.get(i)?)))
                {
                    let [interpreter, device, cpu] = &mut runners;
                    let outcomes = [
                        outcomes(interpreter, case, Standing::Host),
                        outcomes(device, case, Standing::Device),
                        outcomes(cpu, case, Standing::Device),
                    ];
                    let mut list = done.lock().unwrap_or_else(PoisonError::into_inner);
                    list.push((i, Case { name: name(case), outcomes }));
                    if list.len() % 200 == 0 {
                        eprintln!("{} of {}", list.len(), cases.len());
                    }
                }
            });
        }
    });
    let mut list = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    list.sort_by_key(|(i, _)| *i);
    list.into_iter().map(|(_, case)| case).collect()
}

/// The case as it stands and, where it does not come to `wanted`, with constants if that makes any.
fn outcomes(runner: &mut Runner<'_>, case: &Path, wanted: Standing) -> Outcomes {
    let as_is = run_case(runner, case, Inputs::AsIs);
    // An operator may be there for constants only.
    let again = as_is.standing < wanted && as_is.standing != Standing::NoType;
    let constants = again.then(|| run_case(runner, case, Inputs::Constants)).filter(|o| o.constants);
    Outcomes { as_is, constants }
}

/// Prints the sums and what changed against the committed list, or writes the list.
fn judge(cases: Vec<Case>, whole: bool, bless: bool) -> Result<(), String> {
    let now = Ledger(cases.iter().map(|c| (c.name.clone(), c.outcomes.each_ref().map(Outcomes::end))).collect());
    let path = root().join(LEDGER);
    let text = std::fs::read_to_string(&path).or_else(|e| match bless {
        true => Ok(String::new()),
        false => Err(format!("{}: {e}; `--bless` writes it", path.display())),
    })?;
    let before = Ledger::parse(&text).map_err(|e| format!("{LEDGER}: {e}"))?;
    let (lost, gained) = before.compare(&now, whole);
    for (title, list) in [("better than listed", &gained), ("LOST", &lost)] {
        if !list.is_empty() {
            println!("\n{title}:");
            list.iter().for_each(|line| println!("  {line}"));
        }
    }
    let failing = cases.iter().flat_map(|c| c.outcomes.iter().map(move |o| (c, o)));
    for (case, o) in failing.filter(|(_, o)| o.end().best == Standing::Fails) {
        println!("  {} fails: {}", case.name, o.constants.as_ref().unwrap_or(&o.as_is).why);
    }
    print!("\n{}", now.sums());
    if bless {
        let mut all = if whole { Ledger::default() } else { before };
        all.0.extend(now.0);
        write(&path, &all.print())?;
        return if whole { write(&root().join(NEEDS), &needs::document(&cases, &all)) } else { Ok(()) };
    }
    if !gained.is_empty() {
        println!("`cargo xtask conformance --bless` writes what is better into {LEDGER}");
    }
    if lost.is_empty() { Ok(()) } else { Err(format!("{} cases end worse than {LEDGER} says", lost.len())) }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_may_come_in_any_order() {
        let parse = |list: &[&str]| parse(&list.iter().map(|s| s.to_string()).collect::<Vec<_>>());
        let o = parse(&["--bless", "conv", "--limit", "3"]).unwrap();
        assert_eq!((o.filter.as_str(), o.limit, o.release, o.bless), ("conv", 3, false, true));
        assert!(parse(&["--limit"]).is_err());
        assert!(parse(&["--limit", "many"]).is_err());
        assert!(parse(&["--devices"]).is_err());
    }
}
