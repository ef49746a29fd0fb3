//! Finds faster schedules for a model's kernels by measuring them on the device, and keeps them in the
//! tuning database, from which all other commands take them.
//!
//! Tensor functions with the largest share of the time come first. Each is searched ([`search`]), its winner is
//! confirmed on fresh rounds, and a line is written at once. In the end the network is timed in fresh processes, with
//! the lines of this run and without them: if it is slower with them, they are withdrawn. Then measured times of whole
//! functions decide about layouts, fusion and algorithms ([`graph`]), and those of regions about external targets
//! (`regions`).

pub mod by_hand;
pub mod candidate;
pub mod candidates;
pub mod graph;
mod known;
mod learned;
pub mod measurer;
mod network;
pub mod record;
mod regions;
mod request;
mod runs;
pub mod search;
pub mod space;
mod submit;
pub mod units;

use crate::error::{Code, Error, Result};
use crate::executor::{Device, execute, open_device, profile_on, scheduling};
use crate::models::short_name;
use crate::models::{Chance, inputs_for, load};
use crate::progress::{Progress, go_on, log};
use crate::settings::Settings;
use crate::worker::Setup;
use crate::{ceilings, tuning};
use candidates::Maker;
use compiler::schedule::template::{Match, Template};
use compiler::schedule::{ScheduleTarget, Workload};
use compiler::text::parse_templates;
use compiler::trace::Ceilings;
use known::Recorder;
use measurer::Measurer;
pub use record::{Tuned, TunedFunction};
pub use request::Request;
use runs::Runs;
use search::{Outcome, Search};
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
impl Tuned {
    /// The network, its graph and its regions in words.
    pub fn lines(&self) -> Vec<String> {
        let name = &self.model;
        let network = network::describe(name, self.network.as_ref());
        [vec![network], graph::describe(name, self.graph.as_ref()), regions::describe(&self.regions)].concat()
    }
}

/// Tunes the models one after another; `each` sees what was found for one.
///
/// # Errors
/// No device that computes, and models that cannot be compiled for it as a whole.
pub fn tune(a: &Request, each: &mut dyn FnMut(&Tuned) -> Result<()>) -> Result<Vec<Tuned>> {
    let settings = &a.settings;
    let (file, templates) = (tuning::file_to_write(settings)?, templates(&a.template)?);
    let device = open_device(settings)?;
    if let Device::Interpreter = &device {
        return Err(Error::new(Code::Device, "tune searches schedules of kernels; the interpreter runs none")
            .help("`--device cpu` or an adapter of `weft devices` runs some"));
    }
    let models = models(&a.models)?;
    let share = a.budget / u32::try_from(models.len()).unwrap_or(u32::MAX);
    if let Some(path) = &a.submit {
        submit::check(path)?;
    }
    let mut results = Vec::new();
    for model in &models {
        results.push(one((a, &templates), &device, &file, model, share)?);
        each(&results[results.len() - 1])?;
    }
    if let Some(path) = &a.submit {
        submit::write(a, &device, &file, path)?;
    }
    Ok(results)
}

/// The models; of a folder, those in it, in the order of their names.
fn models(given: &[String]) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for word in given {
        if !Path::new(word).is_dir() {
            all.push(word.clone());
            continue;
        }
        let fail = |e: std::io::Error| Error::input(format!("{word}: {e}"));
        let entries = std::fs::read_dir(word).map_err(fail)?.collect::<Result<Vec<_>, _>>().map_err(fail)?;
        let is_model = |p: &PathBuf| p.extension().is_some_and(|e| e == "onnx" || e == "weft");
        let mut own: Vec<PathBuf> = entries.into_iter().map(|e| e.path()).filter(is_model).collect();
        if own.is_empty() {
            return Err(Error::input(format!("{word}: the folder has no .onnx and no .weft file")));
        }
        own.sort();
        all.extend(own.into_iter().map(|p| p.display().to_string()));
    }
    Ok(all)
}

/// The templates of the files.
fn templates(files: &[PathBuf]) -> Result<Vec<Template>> {
    let mut all: Vec<Template> = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(path).map_err(|e| Error::input(format!("{}: {e}", path.display())))?;
        let own = parse_templates(&text).map_err(|e| Error::input(format!("{}: {e}", path.display())))?;
        if let Some(twice) = own.iter().find(|t| all.iter().any(|o| o.name == t.name)) {
            return Err(Error::input(format!("{}: there is a template `{}` already", path.display(), twice.name)));
        }
        all.extend(own);
    }
    Ok(all)
}

/// Says which functions each template takes, and the functions for which one has a schedule: these are searched even if
/// they were tuned before.
fn taken_by(settings: &Settings, templates: &[Template], units: &[Unit], target: ScheduleTarget<'_>) -> Vec<Workload> {
    let mut all = Vec::new();
    for t in templates {
        let takes = |u: &Unit| t.matches(&u.function, &u.constants, target);
        let own: Vec<(&Unit, Match)> = units.iter().filter_map(|u| Some((u, takes(u)?))).collect();
        log(settings, format!("tune: template {} takes {} of {} functions", t.name, own.len(), units.len()));
        for (unit, found) in own {
            match candidates::refusal(t, &found, unit, target) {
                None => all.push(unit.workload.clone()),
                Some(why) => log(settings, format!("tune: none of its schedules applies to {}: {why}", unit.label)),
            }
        }
    }
    all
}

fn one(
    (a, templates): (&Request, &[Template]),
    device: &Device,
    file: &Path,
    model: &str,
    budget: Duration,
) -> Result<Tuned> {
    let (settings, start) = (&a.settings, Instant::now());
    let given = crate::inputs::given(&a.input, model, settings)?;
    let module = load(model, settings, given.as_ref())?;
    let inputs = inputs_for(&module, given.as_ref(), settings)?;
    let chance = Chance::of(&module, &inputs, given.as_ref());
    let executor = execute(module.clone(), settings, device, &inputs)?.sized_for(&inputs)?;
    let profile = profile_on(settings, device)?;
    let timed = match a.kernel {
        None => regions::measure(a, (&module, &inputs), device, file)?,
        Some(_) => vec![],
    };
    let runs = Runs::of(&executor, settings, &inputs).map_err(|e| chance.blamed(e))?;
    let mut units = units(&executor, &profile, &runs)?;
    let total: f64 = units.iter().map(|u| u.us).sum();
    if let Some(name) = &a.kernel {
        keep_kernel(&mut units, &executor, name)?;
    }
    let scheduling = scheduling(settings);
    let target = scheduling.on(&profile);
    let known = TuningDatabase::read_for(file, &[&profile.identity()]).map_err(Error::input)?;
    let (before, taken) = (units.len(), taken_by(settings, templates, &units, target));
    let again = |u: &Unit| a.kernel.is_some() || taken.contains(&u.workload);
    units.retain(|u| again(u) || !known.lines.iter().any(|l| l.workload() == u.workload));
    if units.len() < before {
        log(settings, format!("tune: {} functions have been tuned on this device before", before - units.len()));
    }
    drop(executor);
    let for_units = if a.kernel.is_some() { budget } else { budget.mul_f64(SEARCH) };
    let ceilings = ceilings::stored(device).map_or_else(|| ceilings::measure(device, settings, true), Ok);
    let ceilings = ceilings.map_err(|e| log(settings, format!("tune: no peak rates: {}", e.message))).ok();
    let (reports, lines) =
        search_all((a, templates), (target, ceilings), (&units, total), (file, &known), (start, for_units))?;
    go_on(settings)?;
    let network = network::judge(a, model, file, &lines)?;
    let subject = graph::Subject { module: &module, inputs: &inputs, device, model, file, target };
    let graph = if a.kernel.is_some() || a.same_sums {
        None
    } else {
        // If the device has no memory for two networks, the schedules that were found are still reported.
        match graph::decide(a, &subject, Instant::now() + budget.mul_f64(1.0 - SEARCH)) {
            Err(e) if e.code == Code::Device => {
                log(settings, format!("tune: layouts and fusion stay: {}", e.message));
                None
            }
            found => Some(found?),
        }
    };
    Ok(Tuned {
        model: short_name(model),
        device: crate::device::describe(device),
        tuning: file.display().to_string(),
        seconds: start.elapsed().as_secs_f64(),
        functions: reports,
        network,
        graph,
        regions: timed,
    })
}

/// Leaves the functions of one kernel, or of one layer.
fn keep_kernel(units: &mut Vec<Unit>, executor: &weft::Session, name: &str) -> Result<()> {
    let compiled = executor.compilation().ok_or_else(|| candidate::bug("a session without its compilation"))?;
    let owners = units::owners(compiled, name)?;
    units.retain(|u| owners.contains(&u.function.name));
    match units.is_empty() {
        true => Err(Error::usage(format!("`{name}` has sizes that only a run knows, or takes no time"))),
        false => Ok(()),
    }
}

/// Says where the budget ended: after so many functions of all, before those with the share `rest` of the time.
/// `part` of the budget is for the search, of which a time was spent when it began.
fn ended((done, all): (usize, usize), rest: f64, (spent, part): (Duration, f64)) -> String {
    let percent = rest * 1e2;
    match done {
        0 => {
            let [first, every] = [1, all].map(|n| ((spent.as_secs_f64() + n as f64 * LEAST_SECONDS) / part).ceil());
            format!(
                "tune: 0 of {all} functions were searched: --budget {first:.0}s is the least for the first of them, \
                 {every:.0}s for all"
            )
        }
        _ => format!("tune: the budget ends after {done} of {all} functions; the rest has {percent:.0} % of the time"),
    }
}

fn search_all(
    (a, templates): (&Request, &[Template]),
    (target, ceilings): (ScheduleTarget<'_>, Option<Ceilings>),
    (units, total): (&[Unit], f64),
    (file, known): (&Path, &TuningDatabase),
    (start, budget): (Instant, Duration),
) -> Result<(Vec<TunedFunction>, Vec<TuningLine>)> {
    let mut progress = Progress::new(&a.settings, &[]);
    let (mut reports, mut lines) = (Vec::new(), Vec::new());
    let mut measurer = Measurer::new(Setup::of(&a.settings, &a.input)).with_same_sums(a.same_sums);
    for (n, unit) in units.iter().enumerate() {
        let (share, rest) = (unit.us / total, units[n..].iter().map(|u| u.us).sum::<f64>());
        go_on(&a.settings)?;
        let left = budget.saturating_sub(start.elapsed()).as_secs_f64();
        if share < LEAST_SHARE && a.kernel.is_none() {
            break;
        }
        if left < LEAST_SECONDS {
            let part = if a.kernel.is_some() { 1.0 } else { SEARCH };
            log(&a.settings, ended((n, units.len()), rest / total, (start.elapsed(), part)));
            break;
        }
        let part = ceilings.map_or(0.0, |c| unit.part_of_roof(&c, target.profile));
        if part >= ROOF && a.kernel.is_none() {
            let percent = part * 1e2;
            log(&a.settings, format!("tune: {} stays: it reaches {percent:.0} % of the device's peak", unit.label));
            continue;
        }
        let seconds = (left * unit.us / rest).max(LEAST_SECONDS).min(left);
        let saved: f64 = reports.iter().map(|r: &TunedFunction| r.share * (1.0 - r.ratio)).sum();
        let words = format!("{} of {} functions: {}, {:.1} % saved", n + 1, units.len(), unit.label, saved * 1e2);
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
                log(&a.settings, format!("tune: {} is left out: {}", unit.label, e.message));
                continue;
            }
        };
        let line = outcome.line(unit, a.settings.seed);
        TuningDatabase::append(file, &line).map_err(Error::usage)?;
        if line.is_tuned() {
            lines.push(line);
        }
        let (name, label) = (unit.function.name.to_string(), unit.label.clone());
        reports.push(TunedFunction { name, label, share, tried, refused, by_templates, ..TunedFunction::of(&outcome) });
    }
    Ok((reports, lines))
}

/// Searches for one function; returns what was found, the candidates that ran, and those of templates among them.
fn search_one(
    (a, known): (&Request, &TuningDatabase),
    (measurer, maker): (&mut Measurer, &Maker<'_>),
    recorder: &mut Recorder<'_>,
    (until, enough_ns): (Instant, f64),
) -> Result<(Outcome, usize, usize)> {
    let (unit, seed) = (maker.unit, a.settings.seed);
    measurer.take(&unit.function, &unit.positions)?;
    let now = TuningDatabase::read_for(recorder.file, &[&unit.workload.device]).map_err(Error::input)?;
    let mut lists = vec![(known::seeds(&now, maker)?, usize::MAX)];
    lists.extend(maker.of_templates(seed));
    let mut search = Search::new(measurer, maker, recorder, seed);
    search.seen = known::refused(known, unit)?;
    search.enough_ns = enough_ns;
    let outcome = search.run(lists, until)?;
    Ok((outcome, search.opened, search.by_templates))
}

impl TunedFunction {
    /// The figures of what was found.
    fn of(found: &Outcome) -> TunedFunction {
        let (choices, schedule) = found.schedule();
        TunedFunction {
            ratio: found.ratio(),
            us: found.us,
            estimated_us: found.estimated_us,
            rounds: found.rounds,
            choices: found.winner.as_ref().map(|_| choices),
            schedule,
            by: found.winner.as_ref().map(|w| w.by.clone()),
            difference: found.describe(),
            ..TunedFunction::default()
        }
    }
}
