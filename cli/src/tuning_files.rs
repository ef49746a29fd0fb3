//! `weft tuning`: looks at tuning databases, and joins them.

use crate::args::{TuningAction, TuningArgs};
use crate::output::{print_text, show_table, table, write_json};
use compiler::profile::CostFactors;
use compiler::schedule::estimate::Cost;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;
use weft::{TuningDatabase, TuningLine};
use workbench::record::Versioned;
use workbench::tuning::report_bad;
use workbench::written::write_file;
use workbench::{Error, Result};

/// The lines that count.
#[derive(Serialize, JsonSchema)]
pub struct ShownRecord {
    /// By function and device.
    lines: Vec<LineRecord>,
}

/// A tuned function.
#[derive(Serialize, JsonSchema)]
struct LineRecord {
    /// The tensor function, as it was called where it was tuned.
    name: String,
    /// Name, driver, the driver's version, processor of a software device.
    device: String,
    /// Time divided by the default's.
    ratio: f64,
    /// Microseconds of the default, and with the choices.
    us: [f64; 2],
    /// `choose` instructions.
    choices: Vec<String>,
    /// Instructions of a schedule that no rule makes; then `choices` is empty.
    schedule: Vec<String>,
    /// `tune`, `template NAME`, or `hand` for one that `weft edit` or the viewer kept.
    by: String,
}

/// How many lines there are, and how many count.
#[derive(Serialize, JsonSchema)]
pub struct CheckedRecord<'l> {
    /// Lines of functions.
    lines: usize,
    /// Different ones.
    functions: usize,
    /// Those with a schedule that is faster than the default.
    tuned: usize,
    /// Schedules that gave wrong results or did not run.
    refused: usize,
    /// Times of functions.
    function_times: usize,
    /// Times of schedules.
    schedule_times: usize,
    /// Lines that do not parse.
    bad_lines: usize,
    /// Fitted factors of the estimate.
    calibrations: usize,
    /// That have lines.
    devices: BTreeSet<&'l str>,
}

/// The result of `--mend`.
#[derive(Serialize, JsonSchema)]
pub struct MendedRecord {
    /// Lines that did not parse.
    dropped: usize,
}

/// A fit of the estimate.
#[derive(Serialize, JsonSchema)]
pub struct CalibratedRecord<'l> {
    /// Whose schedules were measured.
    device: &'l str,
    /// By part of the estimate.
    #[schemars(with = "std::collections::BTreeMap<String, f64>")]
    factors: CostFactors,
    /// How many they were fitted to.
    functions: usize,
    /// How many they were fitted to.
    schedules: usize,
    /// Two means over functions: of the estimate, and with factors by the other functions.
    rank_correlation: [f64; 2],
    /// They rank better, and were appended to the file.
    kept: bool,
}

/// Runs the command.
///
/// # Errors
/// Files that cannot be read, and lines that are none, by their number.
pub fn execute(a: &TuningArgs) -> Result<()> {
    if a.mend {
        return mend(a);
    }
    let mut all = TuningDatabase::default();
    for file in &a.files {
        check_there(file)?;
        all.extend(TuningDatabase::read(file).map_err(Error::input)?);
    }
    report_bad(&all, &a.common);
    if let Some(device) = &a.of {
        let wanted = device.to_lowercase();
        all.retain(|device| device.to_lowercase().contains(&wanted));
        if all == TuningDatabase::default() {
            return Err(Error::usage(format!("--of {device}: no line is for such a device")));
        }
    }
    match a.action {
        TuningAction::Show => show(a, &all),
        TuningAction::Check => check(a, &all),
        TuningAction::Merge | TuningAction::Export => write(a, &all),
        TuningAction::Calibrate => calibrate(a, &all),
    }
}

fn check_there(file: &Path) -> Result<()> {
    let why = || Error::input(format!("{}: there is no such file", file.display()));
    if file.exists() { Ok(()) } else { Err(why()) }
}

/// Drops the lines that do not parse; all others stay as they are.
fn mend(a: &TuningArgs) -> Result<()> {
    if a.action != TuningAction::Check {
        return Err(Error::usage("--mend is for `weft tuning check`"));
    }
    let mut dropped = 0;
    for file in &a.files {
        check_there(file)?;
        // No line that another process appends meanwhile is lost.
        let _held = TuningDatabase::lock(file).map_err(Error::usage)?;
        let (good, bad) = TuningDatabase::good_lines(file).map_err(Error::input)?;
        if bad > 0 {
            write_file(file, &good)?;
        }
        dropped += bad;
    }
    if write_json(&a.common, &Versioned::new(MendedRecord { dropped }))? {
        return Ok(());
    }
    print_text(&format!("{dropped} lines that do not parse were dropped"))
}

/// Fits the estimate to the measured schedules of one device, and appends the factors to the file if they rank
/// functions that they have not seen better than no factors do.
fn calibrate(a: &TuningArgs, all: &TuningDatabase) -> Result<()> {
    let devices: BTreeSet<&str> = all.samples.iter().map(|l| l.device.as_str()).collect();
    let device = match devices.iter().collect::<Vec<_>>()[..] {
        [device] => *device,
        [] => {
            return Err(Error::input("the files have no measured schedules").help("`weft tune MODEL` measures some"));
        }
        _ => {
            return Err(Error::usage("the files have measured schedules of several devices: --of names one")
                .help(devices.iter().copied().collect::<Vec<_>>().join("\n")));
        }
    };
    let output = match (&a.output, &a.files[..]) {
        (Some(path), _) => path,
        (None, [one]) => one,
        _ => return Err(Error::usage("there are several files: -o names the one that takes the factors")),
    };
    let samples = weft::calibration::samples(all, device);
    let found = weft::calibration::calibrate(&samples).map_err(Error::input)?;
    let line = found.line(device, &samples);
    if found.is_better() {
        TuningDatabase::append(output, &line).map_err(Error::usage)?;
    }
    let record = CalibratedRecord {
        device,
        factors: line.factors,
        functions: line.functions,
        schedules: line.schedules,
        rank_correlation: line.ranks,
        kept: found.is_better(),
    };
    if write_json(&a.common, &Versioned::new(record))? {
        return Ok(());
    }
    let mut t = table(&["part of the estimate", "factor"]);
    let names = Cost::default().parts().map(|p| p.0);
    names.iter().zip(line.factors.to_array()).for_each(|(name, f)| {
        t.add_row([(*name).to_string(), format!("{f:.3}")]);
    });
    let [before, after] = line.ranks;
    let verdict = match found.is_better() {
        true => format!("they are kept in {}", output.display()),
        false => "they are not kept: the estimate ranks better without them".into(),
    };
    show_table(&t)?;
    print_text(&format!(
        "{} schedules of {} functions; mean rank correlation of estimates with times {before:.3}, with factors by the \
         other functions {after:.3}; {verdict}",
        line.schedules, line.functions
    ))
}

/// The lines that count.
fn show(a: &TuningArgs, all: &TuningDatabase) -> Result<()> {
    let best = all.best();
    let record = |l: &&TuningLine| {
        let TuningLine { name, device, ratio, us, choices, schedule, by, .. } = (*l).clone();
        LineRecord { name, device, ratio, us, choices, schedule, by }
    };
    let lines = best.values().map(record).collect();
    if write_json(&a.common, &Versioned::new(ShownRecord { lines }))? {
        return Ok(());
    }
    let mut t = table(&["function", "ratio", "default us", "tuned us", "schedule", "by", "device"]);
    for l in best.values() {
        t.add_row([
            l.name.clone(),
            format!("{:.3}", l.ratio),
            format!("{:.1}", l.us[0]),
            format!("{:.1}", l.us[1]),
            l.describe(),
            l.by.clone(),
            l.device.split(" | ").next().unwrap_or_default().to_string(),
        ]);
    }
    show_table(&t)
}

/// How many lines there are, and how many count.
fn check(a: &TuningArgs, all: &TuningDatabase) -> Result<()> {
    let of_functions = all.functions.iter().map(|l| l.device.as_str());
    let of_samples = all.samples.iter().map(|l| l.device.as_str());
    let devices: BTreeSet<&str> =
        all.lines.iter().map(|l| l.device.as_str()).chain(of_functions).chain(of_samples).collect();
    let searched: BTreeSet<_> = all.lines.iter().map(TuningLine::workload).collect();
    let tuned = all.best().len();
    let found = CheckedRecord {
        lines: all.lines.len(),
        functions: searched.len(),
        tuned,
        refused: all.refused.len(),
        function_times: all.functions.len(),
        schedule_times: all.samples.len(),
        bad_lines: all.bad.len(),
        calibrations: all.calibrations.len(),
        devices: devices.clone(),
    };
    if write_json(&a.common, &Versioned::new(found))? {
        return Ok(());
    }
    let mut text = format!("{} lines of {} functions; {tuned} have tuned choices", all.lines.len(), searched.len());
    text.push_str(&format!(
        "\n{} refused schedules, {} times of functions, {} of schedules",
        all.refused.len(),
        all.functions.len(),
        all.samples.len()
    ));
    if !all.others.is_empty() {
        text.push_str(&format!("\n{} lines of a later version of Weft, which are not read", all.others.len()));
    }
    if !all.bad.is_empty() {
        text.push_str(&format!("\n{} lines that do not parse, which --mend drops", all.bad.len()));
    }
    devices.iter().for_each(|d| text.push_str(&format!("\n  {d}")));
    print_text(&text)
}

/// The lines that count, to a file or to stdout. The order of the files does not matter.
fn write(a: &TuningArgs, all: &TuningDatabase) -> Result<()> {
    if a.action == TuningAction::Export && a.of.is_none() {
        return Err(Error::usage("export takes the lines of one device: --of names it")
            .help("`weft tuning check FILE` lists the devices; `merge` takes all"));
    }
    let mut text = String::new();
    for line in all.merged() {
        text.push_str(&serde_json::to_string(&line).map_err(|e| Error::input(e.to_string()))?);
        text.push('\n');
    }
    let others: BTreeSet<&String> = all.others.iter().collect();
    others.into_iter().for_each(|line| text.push_str(&format!("{line}\n")));
    match &a.output {
        Some(path) => Ok(write_file(path, text.as_bytes())?),
        None => print_text(text.trim_end()),
    }
}
