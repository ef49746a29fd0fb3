//! `--tuning`: the source of tuned choices. It is a file, by default `tuning.jsonl` in the cache folder. With `off`,
//! the rules schedule everything; with `require`, a device without tuned choices is an error.

use crate::error::{Code, Error, Result};
use crate::progress::log_once;
use crate::settings::Schedules;
use crate::settings::Settings;
use compiler::profile::DeviceProfile;
use compiler::schedule::rules::{FunctionVersion, Scheduled};
use compiler::schedule::{Rules, ScheduleError, ScheduleProvider, ScheduleTarget, Tuned};
use compiler::tir::{BufferId, TensorFunction};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use weft::{TuningDatabase, cache_dir};

/// The name of the database in the cache folder.
const FILE: &str = "tuning.jsonl";

/// The database in the cache folder; `None` without a cache folder.
fn usual(settings: &Settings) -> Option<PathBuf> {
    match settings.cache.as_deref() {
        Some("off") => None,
        Some(folder) => Some(PathBuf::from(folder).join(FILE)),
        None => Some(cache_dir()?.join(FILE)),
    }
}

/// The database of the cache folder, which has what is measured of devices as a whole whatever `--tuning` names.
pub fn file_in_cache() -> Option<PathBuf> {
    Some(cache_dir()?.join(FILE))
}

/// Its lines for a device; none of a file that cannot be read, which commands that use it report.
pub fn in_cache(device: &str) -> Arc<TuningDatabase> {
    file_in_cache().and_then(|f| remembered(&f, device).ok()).unwrap_or_default()
}

/// The file that `weft tune` writes.
///
/// # Errors
/// `--tuning off` or `require`; no cache folder and no `--tuning FILE`.
pub fn file_to_write(settings: &Settings) -> Result<PathBuf> {
    match settings.tuning.as_deref() {
        Some("off" | "require") => Err(Error::usage("tune writes a tuning database: --tuning names its file")),
        Some(file) => Ok(file.into()),
        None => usual(settings).ok_or_else(|| {
            Error::usage("there is no cache folder to keep the tuning database in").help("--tuning FILE names a file")
        }),
    }
}

/// Makes tuned choices part of all compilations of this process. `creates`: the command creates a missing file.
///
/// # Errors
/// A file named by `--tuning` that is missing or cannot be read.
pub fn provide(settings: &mut Settings, creates: bool) -> Result<()> {
    if let Some(file) = settings.tuning.as_deref().filter(|word| !matches!(*word, "off" | "require"))
        && !creates
        && !PathBuf::from(file).exists()
    {
        let why = format!("--tuning {file}: there is no such file");
        return Err(Error::usage(why).help("`weft tune MODEL --tuning FILE` makes one"));
    }
    let Some(file) = file_to_read(settings) else { return Ok(()) };
    match TuningDatabase::is_empty_file(&file) {
        Ok(true) => {}
        Ok(false) => {
            let rest = settings.schedules.0.clone().unwrap_or_else(|| Arc::new(Rules) as Arc<dyn ScheduleProvider>);
            settings.schedules = Schedules(Some(Arc::new(ByDevice { file, rest, read: Mutex::default() })));
        }
        Err(why) => ignore(settings, &why)?,
    }
    Ok(())
}

/// The tuned choices of a file, of which the lines of a device are read when a function is scheduled for it.
struct ByDevice {
    file: PathBuf,
    rest: Arc<dyn ScheduleProvider>,
    read: Mutex<BTreeMap<String, Arc<Tuned>>>,
}

impl ByDevice {
    fn of(&self, profile: &DeviceProfile) -> Arc<Tuned> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let device = profile.identity();
        // What is wrong with the file was said when the profile was made.
        let tuned =
            |device: &String| Arc::new(remembered(&self.file, device).unwrap_or_default().provider(self.rest.clone()));
        read.entry(device).or_insert_with_key(tuned).clone()
    }
}

impl ScheduleProvider for ByDevice {
    fn schedule(
        &self,
        function: &TensorFunction,
        constants: &[BufferId],
        target: ScheduleTarget<'_>,
    ) -> Result<Scheduled, ScheduleError> {
        self.of(target.profile).schedule(function, constants, target)
    }
    fn versions(
        &self,
        function: &TensorFunction,
        constants: &[BufferId],
        target: ScheduleTarget<'_>,
        all: &Scheduled,
    ) -> Vec<FunctionVersion> {
        self.of(target.profile).versions(function, constants, target, all)
    }
    fn identity(&self, profile: &DeviceProfile) -> Option<String> {
        self.of(profile).identity(profile)
    }
}

/// A database that cannot be read: an error if the user named it, else a line that says so.
///
/// # Errors
/// As just said.
fn ignore(settings: &Settings, why: &str) -> Result<()> {
    if settings.tuning.is_some() {
        return Err(Error::input(why));
    }
    log_once(settings, format!("tuning: the database is ignored: {why}"));
    Ok(())
}

/// As [`read`], but the file of the cache folder was not asked for, so one that cannot be read is reported and ignored.
/// Lines that do not parse are reported once.
///
/// # Errors
/// A file named by `--tuning` that cannot be read.
pub fn read_or_warn(settings: &Settings, device: &str) -> Result<Arc<TuningDatabase>> {
    match read(settings, device) {
        Ok(database) => {
            report_bad(&database, settings);
            Ok(database)
        }
        Err(why) => ignore(settings, &why).map(|()| Arc::default()),
    }
}

/// Says, once a process, which lines of a database were skipped.
pub fn report_bad(database: &TuningDatabase, settings: &Settings) {
    if let Some(first) = database.bad.first() {
        let others = match database.bad.len() - 1 {
            0 => String::new(),
            n => format!(", and {n} more lines"),
        };
        log_once(settings, format!("tuning: skipped {first}{others}; `weft tuning check FILE --mend` drops them"));
    }
}

/// The file that `--tuning` names.
fn file_to_read(settings: &Settings) -> Option<PathBuf> {
    match settings.tuning.as_deref() {
        Some("off") => None,
        Some("require") | None => usual(settings),
        Some(file) => Some(PathBuf::from(file)),
    }
}

/// The lines for a device in the database of the command line.
///
/// # Errors
/// A file that cannot be read, and one that was named and has no line of a database: it is another file.
pub fn read(settings: &Settings, device: &str) -> Result<Arc<TuningDatabase>, String> {
    let database = file_to_read(settings).map_or_else(|| Ok(Arc::default()), |f| remembered(&f, device))?;
    let is_named = settings.tuning.as_deref().is_some_and(|word| !matches!(word, "off" | "require"));
    match database.bad.first() {
        Some(bad) if is_named && database.has_only_bad_lines() => Err(bad.clone()),
        _ => Ok(database),
    }
}

/// A file as it was when this process last read its lines for a device: its size, the time of its last change, the
/// lines.
type Remembered = (u64, SystemTime, Arc<TuningDatabase>);

/// The lines of a device are read once a process unless the file changes: several steps of a command need them.
fn remembered(path: &Path, device: &str) -> Result<Arc<TuningDatabase>, String> {
    static READ: Mutex<BTreeMap<(PathBuf, String), Remembered>> = Mutex::new(BTreeMap::new());
    let state = std::fs::metadata(path).and_then(|m| Ok((m.len(), m.modified()?))).ok();
    let Some((len, changed)) = state else { return TuningDatabase::read_for(path, &[device]).map(Arc::new) };
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (path.to_path_buf(), device.to_string());
    if let Some((l, c, database)) = read.get(&key)
        && (*l, *c) == (len, changed)
    {
        return Ok(database.clone());
    }
    let database = Arc::new(TuningDatabase::read_for(path, &[device])?);
    read.insert(key, (len, changed, database.clone()));
    Ok(database)
}

/// The profile with the factors on its estimate that the database has.
///
/// # Errors
/// A file named by `--tuning` that cannot be read.
pub fn calibrated(settings: &Settings, profile: DeviceProfile) -> Result<DeviceProfile> {
    let database = read_or_warn(settings, &profile.identity())?;
    let found = database.calibration(&profile.identity()).map(|l| l.factors);
    Ok(DeviceProfile { factors: found.unwrap_or(profile.factors), ..profile })
}

/// Checks `--tuning require` for the device of `profile`.
///
/// # Errors
/// The database has no tuned choices for the device.
pub fn check_required(settings: &Settings, profile: &DeviceProfile) -> Result<()> {
    if settings.tuning.as_deref() != Some("require") {
        return Ok(());
    }
    let database = read(settings, &profile.identity()).map_err(Error::input)?;
    if database.best().keys().any(|w| w.device == profile.identity()) {
        return Ok(());
    }
    let why = format!("--tuning require: there are no tuned choices for {}", profile.identity());
    Err(Error::new(Code::Device, why).help("`weft tune MODEL` makes some; `--tuning off` takes the rules' choices"))
}
