//! Races the whole network before and after tuning, in fresh processes: times from the process that searched are a few
//! per cent off.

use super::measurer::Measurer;
use super::record::NetworkRecord;
use super::request::Request;
use crate::error::{Error, Result};
use crate::figures::few_ms;
use crate::progress::{Progress, go_on, log};
use crate::worker::Setup;
use runtime_gpu::Standing;
use std::path::Path;
use std::time::{Duration, Instant};
use weft::statistics::Statistics;
use weft::{TuningDatabase, TuningLine};

/// Least and largest number of processes, and the rounds of the race in each.
const PROCESSES: (usize, usize) = (3, 8);
const ROUNDS: usize = 7;
/// No further process starts when the standard error of the median ratio is below this, or after this time.
const CERTAIN: f64 = 0.01;
const LONGEST: Duration = Duration::from_secs(60);
/// Lines are withdrawn if the ratio is at least this and exceeds 1 by more than its standard error.
const SLOWER: f64 = 1.01;

/// Compares a model with and without `lines`. If it is slower with them, or cannot be compared, they are withdrawn.
///
/// # Errors
/// A process that fails, and files that cannot be written.
pub fn judge(a: &Request, model: &str, file: &Path, lines: &[TuningLine]) -> Result<Option<NetworkRecord>> {
    if lines.is_empty() {
        return Ok(None);
    }
    let all = TuningDatabase::read_for(file, &[&lines[0].device]).map_err(Error::input)?;
    let others = all.lines.iter().filter(|l| !lines.iter().any(|new| new.key() == l.key()));
    let before = TuningDatabase { lines: others.cloned().collect(), ..all.clone() };
    let found = compare(a, model, &Sides { before: &before, after: file });
    if found.as_ref().is_ok_and(|found| found.kept) {
        return found.map(Some);
    }
    log(&a.settings, "tune: the new choices are withdrawn");
    for line in lines {
        let withdrawn = TuningLine { withdrawn: true, ..line.clone() };
        TuningDatabase::append(file, &withdrawn).map_err(Error::usage)?;
    }
    found.map(Some)
}

/// The databases that the network is compiled with before and after.
pub struct Sides<'a> {
    pub before: &'a TuningDatabase,
    pub after: &'a Path,
}

/// Races the network with both databases in fresh processes. The result is `kept` if the network is not slower after
/// than before: by the race's clock, and by the host's clock in most rounds.
///
/// # Errors
/// A process that fails, and files that cannot be written.
pub fn compare(a: &Request, model: &str, sides: &Sides<'_>) -> Result<NetworkRecord> {
    let without = tempfile::NamedTempFile::new().map_err(|e| Error::input(e.to_string()))?;
    for line in sides.before.merged() {
        TuningDatabase::append(without.path(), line).map_err(Error::usage)?;
    }
    let mut progress = Progress::new(&a.settings, &[]);
    let (mut all, mut before_ns, start) = (Standing::default(), Vec::new(), Instant::now());
    for process in 0..PROCESSES.1 {
        if process >= PROCESSES.0 && (all.uncertainty() < CERTAIN || start.elapsed() > LONGEST) {
            break;
        }
        go_on(&a.settings)?;
        progress.report("tune: the network in fresh processes", process, PROCESSES.1);
        // The side that is opened first changes from process to process.
        let swapped = process % 2 == 1;
        let mut files = [without.path(), sides.after].map(Path::to_path_buf);
        if swapped {
            files.reverse();
        }
        let seed = a.settings.seed.wrapping_add(process as u64);
        let [mut before, mut after] =
            Measurer::new(Setup::of(&a.settings, &a.input)).race_networks(model, files, ROUNDS, seed)?;
        let turned = |ratio: f64| if swapped { ratio.recip() } else { ratio };
        all.ratios.extend(after.ratios.iter().copied().map(turned));
        all.wall_ratios.extend(after.wall_ratios.iter().copied().map(turned));
        if swapped {
            std::mem::swap(&mut before, &mut after);
        }
        before_ns.extend(before.wall_ns);
        all.wall_ns.extend(after.wall_ns);
    }
    drop(progress);
    let (ratio, uncertainty) = (all.ratio(), all.uncertainty());
    let kept = !is_slower(ratio, uncertainty) && !all.is_slower_by_the_wall();
    let ms = [&before_ns, &all.wall_ns].map(|list| Statistics::of(list).median / 1e6);
    Ok(NetworkRecord { ratio, uncertainty, wall_ratio: all.wall_ratio(), pairs: all.ratios, ms, kept })
}

fn is_slower(ratio: f64, uncertainty: f64) -> bool {
    ratio >= SLOWER && ratio - uncertainty > 1.0
}

/// In words.
pub fn describe(model: &str, network: Option<&NetworkRecord>) -> String {
    let Some(NetworkRecord { ratio, uncertainty, wall_ratio, ms: [before, after], kept, .. }) = network else {
        return format!("{model}: nothing new was kept");
    };
    let by = if is_slower(*ratio, *uncertainty) { "its own" } else { "the host's clock in most rounds" };
    let rest = if *kept { String::new() } else { format!("; slower by {by}: the new choices are withdrawn") };
    let wall = format!("{} -> {} ms by the host's clock, ratio {wall_ratio:.3}", few_ms(*before), few_ms(*after));
    let own =
        format!("ratio {ratio:.3} +-{uncertainty:.3} by its own (timestamps of a device, CPU time of a processor)");
    format!("{model} in fresh processes: {wall}; {own}{rest}")
}
