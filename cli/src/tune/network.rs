//! Compares the whole network before and after tuning, in fresh processes: times from the process that searched
//! are a few per cent off.

use crate::args::TuneArgs;
use crate::error::{CliError, CliResult};
use crate::output::{Progress, log};
use crate::own_process;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use weft::statistics::Statistics;
use weft::{TuningDatabase, TuningLine};

/// Pairs of processes.
const PAIRS: usize = 5;
/// Times of a process, in place of a number of runs.
const MEASURED: [&str; 4] = ["--warmup", "2", "--duration", "1s"];
/// Ratio from which on lines are withdrawn.
const SLOWER: f64 = 1.01;

/// Compares a model, with the options that it is compiled with, with and without `lines`. If it is slower with them, or cannot be compared, they are withdrawn.
///
/// # Errors
/// A process that fails, and files that cannot be written.
pub fn judge(a: &TuneArgs, model: (&str, &[String]), file: &Path, lines: &[TuningLine]) -> CliResult<Value> {
    if lines.is_empty() {
        return Ok(Value::Null);
    }
    let all = TuningDatabase::read(file).map_err(CliError::input)?;
    let others = all.lines.iter().filter(|l| !lines.iter().any(|new| new.key() == l.key()));
    let before = TuningDatabase { lines: others.cloned().collect(), ..all.clone() };
    let found = compare(a, model, &Sides { before: &before, after: file });
    if found.as_ref().is_ok_and(|found| found["kept"] == true) {
        return found;
    }
    log(&a.common, "tune: the new choices are withdrawn");
    for line in lines {
        let withdrawn = TuningLine { withdrawn: true, ..line.clone() };
        TuningDatabase::append(file, &withdrawn).map_err(CliError::input)?;
    }
    found
}

/// What the network is compiled with before and after.
pub struct Sides<'a> {
    pub before: &'a TuningDatabase,
    pub after: &'a Path,
}

/// Times the network in pairs of fresh processes. It is `kept` if it is not slower after than before.
///
/// # Errors
/// A process that fails, and files that cannot be written.
pub fn compare(a: &TuneArgs, model: (&str, &[String]), sides: &Sides<'_>) -> CliResult<Value> {
    let without = tempfile::NamedTempFile::new().map_err(|e| CliError::input(e.to_string()))?;
    for line in sides.before.merged() {
        TuningDatabase::append(without.path(), line).map_err(CliError::input)?;
    }
    let mut progress = Progress::new(&a.common, &[]);
    let (mut ratios, mut ms) = (Vec::new(), [Vec::new(), Vec::new()]);
    for pair in 0..PAIRS {
        progress.report("tune: the network in fresh processes", pair, PAIRS);
        let mut pair_ms = [0.0; 2];
        // The order changes from pair to pair.
        for side in [pair % 2, 1 - pair % 2] {
            pair_ms[side] = device_ms(model, [without.path(), sides.after][side])?;
        }
        ratios.push(pair_ms[1] / pair_ms[0]);
        ms.iter_mut().zip(pair_ms).for_each(|(list, ms)| list.push(ms));
    }
    drop(progress);
    let ratio = Statistics::of(&ratios).median;
    let ms = ms.map(|list| Statistics::of(&list).median);
    Ok(json!({ "ratio": ratio, "pairs": ratios, "ms": ms, "kept": ratio < SLOWER }))
}

/// In words.
pub fn describe(model: &str, network: &Value) -> String {
    match (network["ratio"].as_f64(), network["kept"].as_bool()) {
        (Some(ratio), Some(true)) => {
            let ms = |side: usize| network["ms"][side].as_f64().unwrap_or(0.0);
            format!("{model} in fresh processes: {:.2} ms before, {:.2} ms tuned (ratio {ratio:.3})", ms(0), ms(1))
        }
        (Some(ratio), _) => format!("{model} in fresh processes: ratio {ratio:.3}; the new choices are withdrawn"),
        _ => format!("{model}: nothing new was kept"),
    }
}

/// Milliseconds of a run on the device, as a process of its own measures them.
fn device_ms((model, options): (&str, &[String]), tuning: &Path) -> CliResult<f64> {
    let mut command = own_process::again().map_err(CliError::input)?;
    command.args(["bench", model, "--json", "--quiet", "--tuning"]).arg(tuning).args(MEASURED).args(options);
    let out = command.stdin(Stdio::null()).output().map_err(|e| CliError::input(format!("weft bench: {e}")))?;
    let said = || String::from_utf8_lossy(&out.stderr).trim().to_string();
    let value: Value =
        serde_json::from_slice(&out.stdout).map_err(|_| CliError::input(format!("weft bench: {}", said())))?;
    value["device_ms"]["median"].as_f64().ok_or_else(|| CliError::input(format!("weft bench: {}", said())))
}
