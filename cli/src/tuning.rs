//! `--tuning`: where tuned choices come from. A file, else `tuning.jsonl` in the cache folder; `off` for the rules
//! alone; `require` for an error where there are none for the device.

use crate::args::{Common, Schedules};
use crate::error::{CliError, CliResult};
use crate::output::log_once;
use compiler::schedule::{Rules, ScheduleProvider};
use std::path::PathBuf;
use std::sync::Arc;
use weft::{TuningDatabase, cache_dir};

/// The name of the database in the cache folder.
const FILE: &str = "tuning.jsonl";

/// The database of the cache folder; `None` where there is no such folder.
fn usual(common: &Common) -> Option<PathBuf> {
    match common.cache.as_deref() {
        Some("off") => None,
        Some(folder) => Some(PathBuf::from(folder).join(FILE)),
        None => Some(cache_dir()?.join(FILE)),
    }
}

/// The file that `weft tune` writes.
///
/// # Errors
/// No cache folder and no `--tuning FILE`.
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

/// Lets tuned choices schedule, where there are some. `creates`: the command makes the file.
///
/// # Errors
/// A file that is not there or cannot be read, and `require` without one.
pub fn provide(common: &mut Common, creates: bool) -> CliResult<()> {
    let required = common.tuning.as_deref() == Some("require");
    let file = match common.tuning.as_deref() {
        Some("off") => return Ok(()),
        Some("require") | None => usual(common),
        Some(file) => {
            let path = PathBuf::from(file);
            if !path.exists() && !creates {
                let why = format!("--tuning {file}: there is no such file");
                return Err(CliError::usage(why).help("`weft tune MODEL --tuning FILE` makes one"));
            }
            Some(path)
        }
    };
    let database = file.map_or_else(|| Ok(TuningDatabase::default()), |f| TuningDatabase::read(&f));
    let database = match database {
        // Nobody named it: the command does without.
        Err(why) if common.tuning.is_none() => {
            log_once(common, format!("tuning: nothing is taken from {why}"));
            TuningDatabase::default()
        }
        database => database.map_err(CliError::input)?,
    };
    if required || !database.lines.is_empty() {
        let rest = common.schedules.0.clone().unwrap_or_else(|| Arc::new(Rules) as Arc<dyn ScheduleProvider>);
        common.schedules = Schedules(Some(Arc::new(database.provider(rest, required))));
    }
    Ok(())
}
