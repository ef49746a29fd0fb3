//! `--tuning`: the source of tuned choices. It is a file, by default `tuning.jsonl` in the cache folder. With `off`, the
//! rules schedule everything; with `require`, a device without tuned choices is an error.

use crate::args::{Common, Schedules};
use crate::error::{CliError, CliResult, Code};
use crate::output::log_once;
use compiler::profile::DeviceProfile;
use compiler::schedule::{Rules, ScheduleProvider};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;
use weft::{TuningDatabase, cache_dir};

/// The name of the database in the cache folder.
const FILE: &str = "tuning.jsonl";

/// The database in the cache folder; `None` without a cache folder.
fn usual(common: &Common) -> Option<PathBuf> {
    match common.cache.as_deref() {
        Some("off") => None,
        Some(folder) => Some(PathBuf::from(folder).join(FILE)),
        None => Some(cache_dir()?.join(FILE)),
    }
}

/// The database of the cache folder, which has what is measured of devices as a whole whatever `--tuning` names.
pub fn file_in_cache() -> Option<PathBuf> {
    Some(cache_dir()?.join(FILE))
}

/// Its lines; none of a file that cannot be read, which commands that use it report.
pub fn in_cache() -> TuningDatabase {
    file_in_cache().and_then(|f| remembered(&f).ok()).unwrap_or_default()
}

/// The file that `weft tune` writes.
///
/// # Errors
/// `--tuning off` or `require`; no cache folder and no `--tuning FILE`.
pub fn file_to_write(common: &Common) -> CliResult<PathBuf> {
    match common.tuning.as_deref() {
        Some("off" | "require") => Err(CliError::usage("tune writes a tuning database: --tuning names its file")),
        Some(file) => Ok(file.into()),
        None => usual(common).ok_or_else(|| {
            CliError::usage("there is no cache folder to keep the tuning database in")
                .help("--tuning FILE names a file")
        }),
    }
}

/// Makes tuned choices part of all compilations of this process. `creates`: the command creates a missing file.
///
/// # Errors
/// A file named by `--tuning` that is missing or cannot be read.
pub fn provide(common: &mut Common, creates: bool) -> CliResult<()> {
    if let Some(file) = common.tuning.as_deref().filter(|word| !matches!(*word, "off" | "require"))
        && !creates
        && !PathBuf::from(file).exists()
    {
        let why = format!("--tuning {file}: there is no such file");
        return Err(CliError::usage(why).help("`weft tune MODEL --tuning FILE` makes one"));
    }
    let database = read_or_warn(common)?;
    if !database.lines.is_empty() {
        let rest = common.schedules.0.clone().unwrap_or_else(|| Arc::new(Rules) as Arc<dyn ScheduleProvider>);
        common.schedules = Schedules(Some(Arc::new(database.provider(rest))));
    }
    Ok(())
}

/// As [`read`], but the file of the cache folder was not asked for, so one that cannot be read is reported and ignored.
/// Lines that do not parse are reported once.
///
/// # Errors
/// A file named by `--tuning` that cannot be read.
pub fn read_or_warn(common: &Common) -> CliResult<TuningDatabase> {
    match read(common) {
        Err(why) if common.tuning.is_none() => {
            log_once(common, format!("tuning: the database is ignored: {why}"));
            Ok(TuningDatabase::default())
        }
        database => {
            let database = database.map_err(CliError::input)?;
            report_bad(&database, common);
            Ok(database)
        }
    }
}

/// Says, once a process, which lines of a database were skipped.
pub fn report_bad(database: &TuningDatabase, common: &Common) {
    if let Some(first) = database.bad.first() {
        let others = match database.bad.len() - 1 {
            0 => String::new(),
            n => format!(", and {n} more lines"),
        };
        log_once(common, format!("tuning: skipped {first}{others}; `weft tuning check FILE --mend` drops them"));
    }
}

/// The database of the command line.
///
/// # Errors
/// A file that cannot be read.
pub fn read(common: &Common) -> Result<TuningDatabase, String> {
    let file = match common.tuning.as_deref() {
        Some("off") => None,
        Some("require") | None => usual(common),
        Some(file) => Some(PathBuf::from(file)),
    };
    let database = file.map_or_else(|| Ok(TuningDatabase::default()), |f| remembered(&f))?;
    // A file that was named and has no line of a database is another file.
    let is_named = common.tuning.as_deref().is_some_and(|word| !matches!(word, "off" | "require"));
    match database.bad.first() {
        Some(bad) if is_named && database == (TuningDatabase { bad: database.bad.clone(), ..Default::default() }) => {
            Err(bad.clone())
        }
        _ => Ok(database),
    }
}

/// A file as it was when this process last read it, by its size and the time of its last change.
type Remembered = (PathBuf, u64, SystemTime, TuningDatabase);

/// The file is read once a process unless it changes: several steps of a command need it, and it may have thousands of
/// lines.
fn remembered(path: &Path) -> Result<TuningDatabase, String> {
    static LAST: Mutex<Option<Remembered>> = Mutex::new(None);
    let state = std::fs::metadata(path).and_then(|m| Ok((m.len(), m.modified()?))).ok();
    let Some((len, changed)) = state else { return TuningDatabase::read(path) };
    let mut last = LAST.lock().map_err(|e| e.to_string())?;
    if let Some((file, l, c, database)) = &*last
        && (file.as_path(), *l, *c) == (path, len, changed)
    {
        return Ok(database.clone());
    }
    let database = TuningDatabase::read(path)?;
    *last = Some((path.into(), len, changed, database.clone()));
    Ok(database)
}

/// The profile with the factors on its estimate that the database has.
///
/// # Errors
/// A file named by `--tuning` that cannot be read.
pub fn calibrated(common: &Common, profile: DeviceProfile) -> CliResult<DeviceProfile> {
    let database = read_or_warn(common)?;
    let found = database.calibration(&profile.identity()).map(|l| l.factors);
    Ok(DeviceProfile { factors: found.unwrap_or(profile.factors), ..profile })
}

/// Checks `--tuning require` for the device of `profile`.
///
/// # Errors
/// The database has no tuned choices for the device.
pub fn check_required(common: &Common, profile: &DeviceProfile) -> CliResult<()> {
    if common.tuning.as_deref() != Some("require") {
        return Ok(());
    }
    let database = read(common).map_err(CliError::input)?;
    if database.best().keys().any(|w| w.device == profile.identity()) {
        return Ok(());
    }
    let why = format!("--tuning require: there are no tuned choices for {}", profile.identity());
    Err(CliError::new(Code::Device, why).help("`weft tune MODEL` makes some; `--tuning off` takes the rules' choices"))
}
