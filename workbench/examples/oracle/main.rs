//! `cargo run --release -p weft-workbench --example oracle -- FILE`: tables of measured schedules, and searches that
//! run on them. A table has up to some number of schedules of each shape of [`benches::shapes`], drawn with a seed
//! from all that the rules' choices reach, each with its time by that of the default in the same race. A search on a
//! table sees its schedules alone, so that it is deterministic, and the best that it could find is known.

#[path = "../common/mod.rs"]
mod common;
mod subjects;
mod table;
mod trials;

use benches::shapes::{KNOWN, OTHERS, Shape};
use common::{Stderr, ended};
use compiler::schedule::ScheduleTarget;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use subjects::{measurer, unit_of};
use table::{Measured, Row, Table};
use workbench::document::Document;
use workbench::executor::{open_device, profile_on, scheduling};
use workbench::progress::{Progress, log};
use workbench::settings::Settings;
use workbench::tune::candidate::Candidate;
use workbench::tune::candidates::Maker;
use workbench::tune::measurer::Measurer;
use workbench::tune::space::{Opened, Racing};
use workbench::tune::units::Unit;
use workbench::watcher::Watched;
use workbench::worker::WORKER;
use workbench::{Code, Error, Result};

/// Schedules that are looked at before some are drawn.
const REACHED: usize = 768;
/// Schedules in a race beside the default.
const TOGETHER: usize = 16;
/// Rounds of a race.
const ROUNDS: usize = 9;

const USAGE: &str = "\
oracle FILE             measure the tables that the file lacks, and append them
oracle FILE --searches  run searches on the tables
oracle FILE --picks     run searches on the device, of the schedules of the tables
oracle FILE --calibrate calibrate the estimate by the tables
--others: other shapes than those by which the search is chosen; --most N: schedules of a table, or candidates of a search;
--seeds N: seeds of searches; --json; and the options of `weft` for devices and compilations";

/// What is asked.
#[derive(Default)]
pub struct Asked {
    /// The file of tables.
    pub file: PathBuf,
    /// What is done, and how it is shown.
    pub flags: BTreeSet<String>,
    /// Schedules of a table, or candidates of a search, at most.
    pub most: usize,
    /// Seeds of searches.
    pub seeds: u64,
    /// Everything else.
    pub settings: Settings,
}

impl Asked {
    fn read(words: impl Iterator<Item = String>) -> Result<Asked, String> {
        let mut out = Asked { most: 64, seeds: 8, ..Asked::default() };
        let mut words = words.peekable();
        while let Some(word) = words.next() {
            let Some(name) = word.strip_prefix("--") else {
                out.file = word.into();
                continue;
            };
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match name {
                "searches" | "picks" | "calibrate" | "others" | "json" => drop(out.flags.insert(name.into())),
                "most" => out.most = value()?.parse().map_err(|_| "--most needs a number")?,
                "seeds" => out.seeds = value()?.parse().map_err(|_| "--seeds needs a number")?,
                _ => out.settings.ask(name, &value()?)?,
            }
        }
        if out.file.as_os_str().is_empty() { Err("which file?".into()) } else { Ok(out) }
    }
    fn is(&self, flag: &str) -> bool {
        self.flags.contains(flag)
    }
    /// Prints a result.
    pub fn show(&self, found: &Value, d: &Document) {
        if self.is("json") {
            println!("{found:#}");
        } else {
            print!("{}", d.text());
        }
    }
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if words.peek().is_some_and(|w| w == WORKER) {
        return ended(workbench::worker::serve(&Settings::default()));
    }
    match Asked::read(words) {
        Ok(mut a) => {
            a.settings.watch = Watched(Arc::new(Stderr));
            ended(run(&a))
        }
        Err(why) => {
            eprintln!("{why}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Measures tables, or runs searches on them.
fn run(a: &Asked) -> Result<()> {
    match () {
        () if a.is("searches") => trials::searches(a),
        () if a.is("picks") => trials::picks(a),
        () if a.is("calibrate") => trials::calibrate(a),
        () => measure(a),
    }
}

/// The shapes of the command.
fn shapes(a: &Asked) -> &'static [(&'static str, Shape)] {
    if a.is("others") { OTHERS } else { KNOWN }
}

/// Appends the tables of the shapes that the file has none of.
fn measure(a: &Asked) -> Result<()> {
    let device = open_device(&a.settings)?;
    let profile = profile_on(&a.settings, &device)?;
    let scheduling = scheduling(&a.settings);
    let known = common::read::<Table>(&a.file)?;
    let mut measurer = measurer(a);
    for (name, shape) in shapes(a) {
        if known.iter().any(|t| t.shape == *name && t.device == profile.identity()) {
            continue;
        }
        let unit = unit_of(a, shape, &profile)?;
        let table = measure_shape(a, (name, &unit), scheduling.on(&profile), &mut measurer)?;
        let (count, best) = (table.rows.len(), table.best());
        let reached = table.reached;
        common::append(&a.file, table)?;
        log(&a.settings, format!("oracle: {name}: {count} of {reached} schedules, the best at {best:.3}"));
    }
    Ok(())
}

fn measure_shape(
    a: &Asked,
    (name, unit): (&str, &Unit),
    target: ScheduleTarget<'_>,
    measurer: &mut Measurer,
) -> Result<Table> {
    let mut progress = Progress::new(&a.settings, &[]);
    let maker = Maker::new(target, unit, &[]);
    let all = maker.reached(REACHED)?;
    let (default, mut others) = (all[0].clone(), all[1..].to_vec());
    let mut random = ChaCha8Rng::seed_from_u64(a.settings.seed);
    others.shuffle(&mut random);
    others.truncate(a.most.saturating_sub(1));
    measurer.take(&unit.function, &unit.positions)?;
    let incumbent = measurer.open_default(&default)?;
    let incumbent = incumbent.map_err(|why| Error::new(Code::Bug, format!("{name}: the default: {why}")))?;
    let mut out = Table::new((name, unit), target.profile, &a.settings, (all.len(), ROUNDS));
    out.rows.push(Row::of(&default, Measured::DEFAULT));
    let mut us = Vec::new();
    for (n, some) in others.chunks(TOGETHER).enumerate() {
        progress.report(&format!("oracle: {name}"), n * TOGETHER, others.len());
        let mut opened: Vec<(&Candidate, Opened)> = Vec::new();
        for c in some {
            match measurer.open(c)? {
                Ok(found) => opened.push((c, found)),
                Err(why) => out.rows.push(Row::of(c, Measured::Refused { why })),
            }
        }
        let list: Vec<&Opened> = std::iter::once(&incumbent).chain(opened.iter().map(|o| &o.1)).collect();
        let standings = measurer.race(&list, ROUNDS, a.settings.seed.wrapping_add(n as u64))?;
        us.push(standings[0].median_ns() / 1e3);
        for ((c, _), s) in opened.iter().zip(&standings[1..]) {
            out.rows.push(Row::of(c, Measured::of(s)));
        }
        measurer.keep(&[&incumbent]);
    }
    out.us = weft::statistics::Statistics::of(&us).median;
    Ok(out)
}
