//! `cargo run -p weft-workbench --example units -- FILE MODEL... --device cpu:avx2 --threads 1`: tables of the units of
//! networks on the processor, each with every candidate of every rule, what the estimate says of it and how long it
//! takes. `scripts/cpu_prices.py` fits the prices of the estimate to such tables.

#[path = "../common/mod.rs"]
mod common;
mod judge;
mod table;

use common::{Stderr, ended};
use compiler::compile::{CompileOptions, compile, function_alone};
use compiler::interpreter::HostFunctions;
use compiler::profile::DeviceProfile;
use compiler::schedule::ScheduleTarget;
use compiler::tensor::Tensor;
use compiler::text::random_tensor;
use compiler::tir::TensorFunction;
use runtime_cpu::{CpuError, Session, Work};
use runtime_gpu::{Racer, Sample, race_of};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use table::{Row, Table};
use weft::races::{Loaded, Place};
use weft::statistics::Statistics;
use workbench::executor::{compile_options, compile_with, open_device, pipeline_for, profile_on, scheduling};
use workbench::progress::log;
use workbench::settings::Settings;
use workbench::tune::candidate::Candidate;
use workbench::tune::candidates::Maker;
use workbench::tune::space::Space;
use workbench::tune::units::Unit;
use workbench::watcher::Watched;
use workbench::{Code, Error, Result};

/// Candidates of a unit, at most.
const REACHED: usize = 96;
/// Rounds of a race.
const ROUNDS: usize = 9;

const USAGE: &str = "\
units FILE MODEL...    measure units of the models that the file lacks, and append them
units FILE --again      measure the rows of the file once more
units FILE --recount   count and estimate the rows of the file again, with this build's rules
units FILE --judge     what the estimate chooses beside the best, by this build's rules
--each N: units of a model (8), spread over its functions by time; --device cpu:avx2 and the other options of `weft`";

/// The command line.
struct Asked {
    file: PathBuf,
    models: Vec<String>,
    flags: BTreeSet<String>,
    /// Units of a model.
    each: usize,
    settings: Settings,
}

impl Asked {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Asked, String> {
        let (mut plain, mut flags, mut each, mut settings) = (vec![], BTreeSet::new(), 8, Settings::default());
        settings.tuning = Some("off".into());
        while let Some(word) = words.next() {
            let Some(name) = word.strip_prefix("--") else {
                plain.push(word);
                continue;
            };
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match name {
                "again" | "recount" | "judge" => drop(flags.insert(name.to_string())),
                "each" => each = value()?.parse().map_err(|_| "--each needs a number")?,
                _ => settings.ask(name, &value()?)?,
            }
        }
        match plain.split_first() {
            Some((file, models)) => Ok(Asked { file: file.into(), models: models.to_vec(), flags, each, settings }),
            None => Err("which file?".into()),
        }
    }
}

fn main() -> ExitCode {
    ended(match Asked::read(std::env::args().skip(1)) {
        Ok(mut a) => {
            a.settings.watch = Watched(Arc::new(Stderr));
            run(&a)
        }
        Err(why) => Err(Error::usage(format!("{why}\n\n{USAGE}"))),
    })
}

fn run(a: &Asked) -> Result<()> {
    if a.flags.contains("recount") {
        let tables = common::read::<Table>(&a.file)?;
        let again: Result<Vec<Table>> = tables.into_iter().map(Table::recounted).collect();
        return common::write(&a.file, &again?);
    }
    if a.flags.contains("judge") {
        print!("{}", judge::judged(&common::read::<Table>(&a.file)?)?);
        return Ok(());
    }
    if a.flags.contains("again") {
        return measure_again(a);
    }
    measure(a)
}

/// Measures all rows of the file once more.
fn measure_again(a: &Asked) -> Result<()> {
    let (place, profile) = processor(a)?;
    let scheduling = scheduling(&a.settings);
    let mut tables = common::read::<Table>(&a.file)?;
    for n in 0..tables.len() {
        let t = &mut tables[n];
        if t.profile.identity() != profile.identity() {
            let text = format!("{} was measured on {}, this is {}", t.name, t.profile.identity(), profile.identity());
            return Err(Error::usage(text));
        }
        t.profile = profile.clone();
        let unit = Unit::new(t.parsed()?, t.constants.clone(), &profile);
        let maker = Maker::new(scheduling.on(&profile), &unit, &[]);
        let made =
            t.rows.drain(..).map(|r| Ok(maker.of_choices(&r.parsed()?).map(|c| (r, c)))).collect::<Result<Vec<_>>>()?;
        let (rows, all): (Vec<Row>, Vec<Candidate>) = made.into_iter().flatten().unzip();
        let found = times(&place, &unit, scheduling.on(&profile), &all, ROUNDS)?;
        t.rows = found.into_iter().map(|(n, us)| rows[n].clone().with_time(us)).collect();
        log(&a.settings, format!("{}: {} candidates", t.name, t.rows.len()));
        common::write(&a.file, &tables)?;
    }
    Ok(())
}

/// The processor, and its profile.
fn processor(a: &Asked) -> Result<(Place, DeviceProfile)> {
    let device = open_device(&a.settings)?;
    let profile = profile_on(&a.settings, &device)?;
    let place = Place::of(&device).filter(|p| matches!(p, Place::Cpu(_)));
    Ok((place.ok_or_else(|| Error::usage("units are measured on the processor: `--device cpu`"))?, profile))
}

/// Appends the tables of the models' units.
fn measure(a: &Asked) -> Result<()> {
    let (place, profile) = processor(a)?;
    let scheduling = scheduling(&a.settings);
    for model in &a.models {
        let known = common::read::<Table>(&a.file)?;
        let module = workbench::models::load(model, &a.settings, None)?;
        let options = compile_options(pipeline_for(&module, &a.settings, &profile, &[])?, &a.settings, &profile)?;
        let compiled = compile_with(module, &options, &a.settings, &profile)?;
        let mut found: Vec<(f64, Unit)> = vec![];
        for name in compiled.unscheduled.keys() {
            let Some((unit, _)) = Unit::of(&compiled, *name, &profile) else { continue };
            let seen = known.iter().map(|t| &t.function_id).chain(found.iter().map(|f| &f.1.workload.function));
            if seen.into_iter().any(|id| *id == unit.workload.function) {
                continue;
            }
            let default = Maker::new(scheduling.on(&profile), &unit, &[]).default()?;
            if let Ok(us) = times(&place, &unit, scheduling.on(&profile), &[default], 3) {
                found.push((us[0].1, unit));
            }
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (count, last) = (found.len(), found.len().saturating_sub(1));
        let some: BTreeSet<usize> = (0..a.each).map(|n| n * last / a.each.saturating_sub(1).max(1)).collect();
        for (_, (_, unit)) in found.into_iter().enumerate().filter(|f| some.contains(&f.0)) {
            let target = scheduling.on(&profile);
            let all = Maker::new(target, &unit, &[]).reached(REACHED)?;
            let rows = times(&place, &unit, target, &all, ROUNDS)?;
            let rows: Vec<Row> = rows.into_iter().map(|(n, us)| Row::of(&all[n], us)).collect();
            let table = Table::new(workbench::models::short_name(model), &unit, &profile, rows).recounted()?;
            log(&a.settings, format!("{model}: {} of {count}: {} candidates", table.name, table.rows.len()));
            common::append(&a.file, table)?;
        }
    }
    Ok(())
}

/// The position and microseconds of each candidate that runs, raced; the first must run.
fn times(
    place: &Place,
    unit: &Unit,
    target: ScheduleTarget<'_>,
    all: &[Candidate],
    rounds: usize,
) -> Result<Vec<(usize, f64)>> {
    let bug = |why: String| Error::new(Code::Bug, format!("{}: {why}", unit.function.name));
    let mut loaded: Vec<(usize, Box<Session>, Vec<Tensor>)> = vec![];
    for (n, c) in all.iter().enumerate() {
        let f = TensorFunction { pending: c.trace.clone(), ..unit.function.clone() };
        let module = function_alone(&f, &unit.positions).map_err(bug)?;
        let main = module.main();
        let sizes = |p| (main.ty(p).dtype, main.ty(p).const_shape().unwrap_or_default());
        let inputs = main.params().iter().zip(100..).map(|(p, seed)| {
            let (dtype, shape) = sizes(*p);
            random_tensor(dtype, &shape, seed)
        });
        let inputs: Vec<Tensor> = inputs.collect();
        let mut options = CompileOptions::default();
        options.pipeline.scheduling.clone_from(target.options);
        let compiled = compile(module, &options, target.profile, place.emitter(), &mut |_, _, _| ());
        let Ok(compiled) = compiled else { continue };
        if let Ok(Loaded::Cpu { session, inputs }) = place.load(&compiled, &inputs) {
            loaded.push((n, session, inputs));
        }
    }
    if loaded.first().is_none_or(|l| l.0 != 0) {
        return Err(bug("the default schedule does not run".into()));
    }
    let racers: Vec<Racer<'_, CpuError>> = loaded.iter().map(|(_, s, inputs)| racer(s, inputs)).collect();
    let standings = race_of(racers, rounds, 1).map_err(|e| bug(e.to_string()))?;
    // Those that left the race early have fewer rounds: what counts is the ratio to the first in the same round.
    let us = standings[0].median_ns() / 1e3;
    Ok(loaded.iter().zip(&standings).map(|(l, s)| (l.0, s.ratio() * us)).collect())
}

/// The time of a module's kernels, the median of its runs. Of each run that by the clock counts, unless the process was
/// interrupted: then its CPU time, which has the work beside kernels too.
fn racer<'r>(session: &'r Session, inputs: &'r [Tensor]) -> Racer<'r, CpuError> {
    Box::new(move |runs| {
        let (functions, mut each) = (HostFunctions::default(), Vec::with_capacity(runs));
        for _ in 0..runs {
            let mut kernels = 0.0;
            let run = Sample::of(true, || {
                let (_, spans) = session.run_measured(inputs, &functions)?;
                let own = spans.iter().filter(|s| matches!(s.work, Work::Kernel(_)));
                kernels = own.map(|s| (s.end - s.start) * 1e3).sum::<f64>();
                Ok(())
            })?;
            each.push(run.ns.min(kernels));
        }
        let ns = Statistics::of(&each).median * runs as f64;
        Ok(Sample { ns, wall_ns: ns })
    })
}
