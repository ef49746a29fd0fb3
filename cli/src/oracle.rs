//! `weft oracle` (hidden): tables of measured schedules, and searches that run on them. A table has up to some number of
//! schedules of each shape of [`benches::shapes`], drawn with a seed from all that the rules' choices reach, each with
//! its time by that of the default in the same race. A search on a table sees its schedules alone, so that it is
//! deterministic, and the best that it could find is known.

mod subjects;
mod table;
mod trials;

use crate::args::{OracleArgs, OracleShapes};
use crate::error::{CliError, CliResult, Code};
use crate::executor::{open_device, profile_on, scheduling};
use crate::output::{Progress, log};
use crate::tune::candidate::Candidate;
use crate::tune::candidates::Maker;
use crate::tune::measurer::Measurer;
use crate::tune::space::{Opened, Racing, Space};
use crate::tune::units::Unit;
use benches::shapes::{KNOWN, OTHERS, Shape};
use compiler::schedule::ScheduleTarget;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rustc_hash::FxHashSet;
use subjects::{measurer, unit_of};
use table::{Measured, Row, Table};

/// Schedules that are looked at before some are drawn.
const REACHED: usize = 768;
/// Schedules in a race beside the default.
const TOGETHER: usize = 16;
/// Rounds of a race.
const ROUNDS: usize = 9;
/// Measures tables, or runs searches on them.
///
/// # Errors
/// No device that computes; a file that cannot be read or written.
pub fn execute(a: &OracleArgs) -> CliResult<()> {
    match () {
        () if a.searches => trials::searches(a),
        () if a.picks => trials::picks(a),
        () if a.calibrate => trials::calibrate(a),
        () => measure(a),
    }
}

/// The shapes of the command.
fn shapes(a: &OracleArgs) -> &'static [(&'static str, Shape)] {
    match a.shapes {
        OracleShapes::Known => KNOWN,
        OracleShapes::Others => OTHERS,
    }
}

/// Appends the tables of the shapes that the file has none of.
fn measure(a: &OracleArgs) -> CliResult<()> {
    let device = open_device(&a.common)?;
    let profile = profile_on(&a.common, &device)?;
    let scheduling = scheduling(&a.common);
    let known = table::read(&a.file)?;
    let mut measurer = measurer(a);
    for (name, shape) in shapes(a) {
        if known.iter().any(|t| t.shape == *name && t.device == profile.identity()) {
            continue;
        }
        let unit = unit_of(a, shape, &profile)?;
        let table = measure_shape(a, (name, &unit), scheduling.on(&profile), &mut measurer)?;
        let (count, best) = (table.rows.len(), table.best());
        table::append(&a.file, &table)?;
        log(&a.common, format!("oracle: {name}: {count} of {} schedules, the best at {best:.3}", table.reached));
    }
    Ok(())
}

/// All schedules that changes of choices reach from the default, nearest first, at most [`REACHED`].
fn reached(maker: &Maker<'_>) -> CliResult<Vec<Candidate>> {
    let mut all = vec![maker.default()?];
    let mut seen: FxHashSet<String> = all.iter().map(Candidate::key).collect();
    let mut at = 0;
    while at < all.len() && all.len() < REACHED {
        let near = maker.around(&all[at]);
        all.extend(near.into_iter().filter(|c| seen.insert(c.key())));
        at += 1;
    }
    all.truncate(REACHED);
    Ok(all)
}

fn measure_shape(
    a: &OracleArgs,
    (name, unit): (&str, &Unit),
    target: ScheduleTarget<'_>,
    measurer: &mut Measurer,
) -> CliResult<Table> {
    let mut progress = Progress::new(&a.common, &[]);
    let maker = Maker::new(target, unit, &[]);
    let all = reached(&maker)?;
    let (default, mut others) = (all[0].clone(), all[1..].to_vec());
    let mut random = ChaCha8Rng::seed_from_u64(a.common.seed);
    others.shuffle(&mut random);
    others.truncate(a.most.saturating_sub(1));
    measurer.take(&unit.function, &unit.positions)?;
    let incumbent = measurer.open_default(&default)?;
    let incumbent = incumbent.map_err(|why| CliError::new(Code::Bug, format!("{name}: the default: {why}")))?;
    let mut out = Table::new((name, unit), target.profile, &a.common, (all.len(), ROUNDS));
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
        let standings = measurer.race(&list, ROUNDS, a.common.seed.wrapping_add(n as u64))?;
        us.push(standings[0].median_ns() / 1e3);
        for ((c, _), s) in opened.iter().zip(&standings[1..]) {
            out.rows.push(Row::of(c, Measured::of(s)));
        }
        measurer.keep(&[&incumbent]);
    }
    out.us = weft::statistics::Statistics::of(&us).median;
    Ok(out)
}
