//! `weft tune`: finds faster schedules for a model's kernels by measuring them on the device, and keeps them in the
//! tuning database, from which all other commands take them.
//!
//! Tensor functions with the largest share of the time come first. Each is searched ([`search`]), its winner is
//! confirmed on fresh rounds, and a line is written at once. In the end the network is timed in fresh processes, with
//! the lines of this run and without them: if it is slower with them, they are withdrawn. Then measured times of whole
//! functions decide about layouts, fusion and algorithms ([`graph`]), and those of regions about external targets ([`regions`]).

pub mod by_hand;
pub mod candidate;
pub mod candidates;
mod graph;
mod known;
mod learned;
pub mod measurer;
mod network;
mod regions;
mod runs;
pub mod search;
pub mod space;
mod submit;
pub mod units;

use crate::args::shared::without_options;
use crate::args::{Common, TuneArgs};
use crate::error::{CliError, CliResult, Code};
use crate::executor::{Device, execute, open_device, profile_on, scheduling};
use crate::models::{inputs_for, load};
use crate::output::{Progress, log, print_text, show_table, table, write_json};
use crate::{ceilings, tuning};
use candidates::Maker;
use compiler::schedule::template::{Match, Template};
use compiler::schedule::{ScheduleTarget, Workload};
use compiler::text::parse_templates;
use compiler::trace::Ceilings;
use known::Recorder;
use measurer::Measurer;
use runs::Runs;
use search::{Outcome, Search};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use units::{Unit, units};
use weft::{TuningDatabase, TuningLine};

/// Share of a network's time below which a function is left alone.
const LEAST_SHARE: f64 = 0.01;
/// Share of the budget for the search of functions; the rest is for layouts and fusion.
const SEARCH: f64 = 0.7;
/// Share of the device's peak rates from which on a function is fast enough.
const ROOF: f64 = 0.85;
/// Seconds of a function, at least.
const LEAST_SECONDS: f64 = 2.0;
/// Options of the command that the processes that it starts do not get; true for those with a value.
const OWN: &[(&str, bool)] = &[
    ("--budget", true),
    ("--kernel", true),
    ("--template", true),
    ("--submit", true),
    ("--same-sums", false),
    ("--tuning", true),
    ("--json", false),
    ("--quiet", false),
    ("-q", false),
    ("-v", false),
];

/// What became of a function.
struct Report {
    name: String,
    share: f64,
    tried: usize,
    refused: Vec<String>,
    by_templates: usize,
    outcome: Outcome,
}

/// Runs the command.
///
/// # Errors
/// No device that computes, and models that cannot be compiled for it as a whole.
pub fn execute_command(a: &TuneArgs) -> CliResult<()> {
    let common = &a.common;
    let budget = crate::bench::duration("--budget", &a.budget)?;
    let (file, templates) = (tuning::file_to_write(common)?, templates(&a.template)?);
    let device = open_device(common)?;
    match &device {
        Device::Gpu(gpu) => gpu.check_computes()?,
        Device::Cpu(_) => {}
        Device::Interpreter => {
            return Err(CliError::new(Code::Device, "tune searches schedules of kernels; the interpreter runs none")
                .help("`--device cpu` or an adapter of `weft devices` runs some"));
        }
    }
    let models = models(&a.models)?;
    let share = budget / models.len() as u32;
    if let Some(path) = &a.submit {
        submit::check(path)?;
    }
    let mut results = Vec::new();
    for model in &models {
        results.push(tune((a, &templates), &device, &file, model, share)?);
    }
    if let Some(path) = &a.submit {
        submit::write(a, &device, &file, path)?;
    }
    let all = if let [one] = results.as_slice() { one.clone() } else { results.into() };
    write_json(common, &all).map(|_| ())
}

/// The models; of a folder, those in it, in the order of their names.
fn models(given: &[String]) -> CliResult<Vec<String>> {
    let mut all = Vec::new();
    for word in given {
        if !Path::new(word).is_dir() {
            all.push(word.clone());
            continue;
        }
        let fail = |e: std::io::Error| CliError::input(format!("{word}: {e}"));
        let entries = std::fs::read_dir(word).map_err(fail)?.collect::<Result<Vec<_>, _>>().map_err(fail)?;
        let is_model = |p: &PathBuf| p.extension().is_some_and(|e| e == "onnx" || e == "weft");
        let mut own: Vec<PathBuf> = entries.into_iter().map(|e| e.path()).filter(is_model).collect();
        if own.is_empty() {
            return Err(CliError::input(format!("{word}: the folder has no .onnx and no .weft file")));
        }
        own.sort();
        all.extend(own.into_iter().map(|p| p.display().to_string()));
    }
    Ok(all)
}

/// The templates of the files.
fn templates(files: &[PathBuf]) -> CliResult<Vec<Template>> {
    let mut all: Vec<Template> = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(path).map_err(|e| CliError::input(format!("{}: {e}", path.display())))?;
        let own = parse_templates(&text).map_err(|e| CliError::input(format!("{}: {e}", path.display())))?;
        if let Some(twice) = own.iter().find(|t| all.iter().any(|o| o.name == t.name)) {
            return Err(CliError::input(format!("{}: there is a template `{}` already", path.display(), twice.name)));
        }
        all.extend(own);
    }
    Ok(all)
}

/// Says which functions each template takes, and the functions for which one has a schedule: these are searched even if
/// they were tuned before.
fn taken_by(common: &Common, templates: &[Template], units: &[Unit], target: ScheduleTarget<'_>) -> Vec<Workload> {
    let mut all = Vec::new();
    for t in templates {
        let takes = |u: &Unit| t.matches(&u.function, &u.constants, target);
        let own: Vec<(&Unit, Match)> = units.iter().filter_map(|u| Some((u, takes(u)?))).collect();
        log(common, format!("tune: template {} takes {} of {} functions", t.name, own.len(), units.len()));
        for (unit, found) in own {
            match candidates::refusal(t, &found, unit, target) {
                None => all.push(unit.workload.clone()),
                Some(why) => {
                    log(common, format!("tune: none of its schedules applies to {}: {why}", unit.function.name))
                }
            }
        }
    }
    all
}

fn tune(
    (a, templates): (&TuneArgs, &[Template]),
    device: &Device,
    file: &Path,
    model: &str,
    budget: Duration,
) -> CliResult<Value> {
    let (common, start) = (&a.common, Instant::now());
    let given = crate::inputs::given(&a.input, model, common)?;
    let module = load(model, common, given.as_ref())?;
    let inputs = inputs_for(&module, given.as_ref(), common)?;
    let executor = execute(module.clone(), common, device, &inputs)?.sized_for(&inputs)?;
    let profile = profile_on(common, device)?;
    let timed = match a.kernel {
        None => regions::measure(a, (&module, &inputs), device, file)?,
        Some(_) => vec![],
    };
    let mut units = units(&executor, &profile, &Runs::of(&executor, common, &inputs)?)?;
    let total: f64 = units.iter().map(|u| u.us).sum();
    if let Some(name) = &a.kernel {
        let compiled = executor.compilation().ok_or_else(|| candidate::bug("a session without its compilation"))?;
        let owner = units::owner(compiled, name)?;
        units.retain(|u| u.function.name == owner);
        if units.is_empty() {
            return Err(CliError::usage(format!("`{name}` has sizes that only a run knows, or takes no time")));
        }
    }
    let scheduling = scheduling(common);
    let target = scheduling.on(&profile);
    let known = TuningDatabase::read_for(file, &[&profile.identity()]).map_err(CliError::input)?;
    let (before, taken) = (units.len(), taken_by(common, templates, &units, target));
    let again = |u: &Unit| a.kernel.is_some() || taken.contains(&u.workload);
    units.retain(|u| again(u) || !known.lines.iter().any(|l| l.workload() == u.workload));
    if units.len() < before {
        log(common, format!("tune: {} functions have been tuned on this device before", before - units.len()));
    }
    drop(executor);
    let for_units = if a.kernel.is_some() { budget } else { budget.mul_f64(SEARCH) };
    let ceilings = ceilings::stored(device).map_or_else(|| ceilings::measure(device, common), Ok);
    let ceilings = ceilings.map_err(|e| log(common, format!("tune: no peak rates: {}", e.message))).ok();
    let (reports, lines) =
        search_all((a, templates), (target, ceilings), (&units, total), (file, &known), (start, for_units))?;
    let options = arguments(a);
    let network = network::judge(a, (model, &options), file, &lines)?;
    let subject = graph::Subject { module: &module, inputs: &inputs, device, model: (model, &options), file, target };
    let graph = if a.kernel.is_some() || a.same_sums {
        Value::Null
    } else {
        // If the device has no memory for two networks, the schedules that were found are still reported.
        match graph::decide(a, &subject, Instant::now() + budget.mul_f64(1.0 - SEARCH)) {
            Err(e) if e.code == Code::Device => {
                log(common, format!("tune: layouts and fusion stay: {}", e.message));
                Value::Null
            }
            found => found?,
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    show(common, model, &reports, (&network, &graph), &timed)?;
    Ok(json!({ "schema": 1, "model": crate::models::short_name(model), "device": crate::device::describe(device),
        "tuning": file.display().to_string(), "seconds": seconds,
        "functions": reports.iter().map(Report::to_json).collect::<Vec<_>>(), "network": network, "graph": graph, "regions": timed }))
}

fn search_all(
    (a, templates): (&TuneArgs, &[Template]),
    (target, ceilings): (ScheduleTarget<'_>, Option<Ceilings>),
    (units, total): (&[Unit], f64),
    (file, known): (&Path, &TuningDatabase),
    (start, budget): (Instant, Duration),
) -> CliResult<(Vec<Report>, Vec<TuningLine>)> {
    let mut progress = Progress::new(&a.common, &[]);
    let (mut reports, mut lines) = (Vec::new(), Vec::new());
    let mut measurer = Measurer::new(arguments(a)).with_same_sums(a.same_sums);
    for (n, unit) in units.iter().enumerate() {
        let (share, rest) = (unit.us / total, units[n..].iter().map(|u| u.us).sum::<f64>());
        let left = budget.saturating_sub(start.elapsed()).as_secs_f64();
        if share < LEAST_SHARE && a.kernel.is_none() {
            break;
        }
        if left < LEAST_SECONDS {
            let percent = rest / total * 1e2;
            log(
                &a.common,
                format!("tune: the budget ends before the functions with the last {percent:.0} % of the time"),
            );
            break;
        }
        let part = ceilings.map_or(0.0, |c| unit.part_of_roof(&c, target.profile));
        if part >= ROOF && a.kernel.is_none() {
            let percent = part * 1e2;
            log(
                &a.common,
                format!("tune: {} stays: it reaches {percent:.0} % of the device's peak", unit.function.name),
            );
            continue;
        }
        let seconds = (left * unit.us / rest).max(LEAST_SECONDS).min(left);
        let saved: f64 = reports.iter().map(|r: &Report| r.share * (1.0 - r.outcome.ratio())).sum();
        let words =
            format!("{} of {} functions: {}, {:.1} % saved", n + 1, units.len(), unit.function.name, saved * 1e2);
        let maker = Maker::new(target, unit, templates);
        let words = format!("tune: {words}");
        let mut recorder = Recorder { progress: &mut progress, words, unit, file, refused: vec![] };
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        let enough_ns = unit.us * 1e3 / unit.calls.max(1) as f64 * part / ROOF;
        let found = search_one((a, known), (&mut measurer, &maker), &mut recorder, (until, enough_ns));
        let refused = recorder.refused;
        let (outcome, tried, by_templates) = match found {
            Ok(found) => found,
            Err(e) => {
                log(&a.common, format!("tune: {} is left out: {}", unit.function.name, e.message));
                continue;
            }
        };
        let line = outcome.line(unit, a.common.seed);
        TuningDatabase::append(file, &line).map_err(CliError::usage)?;
        if line.is_tuned() {
            lines.push(line);
        }
        reports.push(Report { name: unit.function.name.to_string(), share, tried, refused, by_templates, outcome });
    }
    Ok((reports, lines))
}

/// Searches for one function; returns what was found, the candidates that ran, and those of templates among them.
fn search_one(
    (a, known): (&TuneArgs, &TuningDatabase),
    (measurer, maker): (&mut Measurer, &Maker<'_>),
    recorder: &mut Recorder<'_>,
    (until, enough_ns): (Instant, f64),
) -> CliResult<(Outcome, usize, usize)> {
    let (unit, seed) = (maker.unit, a.common.seed);
    measurer.take(&unit.function, &unit.positions)?;
    let now = TuningDatabase::read_for(recorder.file, &[&unit.workload.device]).map_err(CliError::input)?;
    let mut lists = vec![(known::seeds(&now, maker)?, usize::MAX)];
    lists.extend(maker.of_templates(seed));
    let mut search = Search::new(measurer, maker, recorder, seed);
    search.seen = known::refused(known, unit)?;
    search.enough_ns = enough_ns;
    let outcome = search.run(lists, until)?;
    Ok((outcome, search.opened, search.by_templates))
}

/// The options of this process that those that it starts get too.
fn arguments(a: &TuneArgs) -> Vec<String> {
    arguments_of("tune", OWN, &a.models)
}

/// The options of this process after the `verb`, without its `own` and without the models.
pub fn arguments_of(verb: &str, own: &[(&str, bool)], models: &[String]) -> Vec<String> {
    let given: Vec<String> = std::env::args().skip_while(|w| w != verb).skip(1).collect();
    let mut kept = without_options(&given, own);
    kept.retain(|word| !models.contains(word));
    kept
}

impl Report {
    fn to_json(&self) -> Value {
        let o = &self.outcome;
        json!({ "name": self.name, "share": self.share, "tried": self.tried, "refused": self.refused,
            "by_templates": self.by_templates, "ratio": o.ratio(), "us": o.us, "estimated_us": o.estimated_us,
            "rounds": o.rounds, "choices": o.winner.as_ref().map(|_| o.schedule().0), "schedule": o.schedule().1,
            "by": o.winner.as_ref().map(|w| &w.by) })
    }
}

fn show(
    common: &Common,
    model: &str,
    reports: &[Report],
    (network, graph): (&Value, &Value),
    timed: &[Value],
) -> CliResult<()> {
    if common.json.as_deref() == Some("-") || common.quiet {
        return Ok(());
    }
    let mut t = table(&["function", "share", "tried", "default us", "tuned us", "ratio", "schedule"]);
    for r in reports {
        let o = &r.outcome;
        t.add_row([
            r.name.clone(),
            format!("{:.1} %", r.share * 1e2),
            r.tried.to_string(),
            format!("{:.1}", o.us[0]),
            format!("{:.1}", o.us[1]),
            format!("{:.3}", o.ratio()),
            o.describe(),
        ]);
    }
    show_table(&t)?;
    let refused: usize = reports.iter().map(|r| r.refused.len()).sum();
    if refused > 0 {
        print_text(&format!("{refused} candidates gave wrong results or did not run; --json names them"))?;
    }
    let name = crate::models::short_name(model);
    print_text(&network::describe(&name, network))?;
    let lines = [graph::describe(&name, graph), regions::describe(timed)].concat();
    lines.iter().try_for_each(|line| print_text(line))
}
