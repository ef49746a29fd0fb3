//! Work of the command in this process: searches for schedules and for what makes a result wrong.

use crate::arrays::tensors_of;
use crate::errors::usage;
use crate::interrupt::{calling, on_thread};
use crate::json::loads;
use crate::model::size_text;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use workbench::bisect::Right;
use workbench::inputs::Inputs;
use workbench::options::{Heading, Opt, Tabled};
use workbench::own_process;
use workbench::record::Versioned;
use workbench::settings::Settings;
use workbench::watcher::{Watched, Watcher};

/// Weft's version.
#[pyfunction]
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// The texts of a value: one for each part of a list, `KEY=VALUE` for each item of a dictionary, with pairs as ranges;
/// none of None.
fn texts(value: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if value.is_none() {
        return Ok(vec![]);
    }
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(vec![flag.is_true().to_string()]);
    }
    if let Ok(pairs) = value.cast::<PyDict>() {
        let one = |(k, v): (Bound<'_, PyAny>, Bound<'_, PyAny>)| Ok(format!("{}={}", k.str()?, size_text(&v)?));
        return pairs.iter().map(one).collect();
    }
    if value.cast::<PyString>().is_err()
        && !value.hasattr("__fspath__")?
        && let Ok(parts) = value.try_iter()
    {
        return parts.map(|p| Ok(p?.str()?.to_string())).collect();
    }
    Ok(vec![value.str()?.to_string()])
}

/// The headings of all options.
const ALL: &[Heading] = &[Heading::Device, Heading::Model, Heading::Compiler, Heading::Files];

/// Takes keyword arguments as the options of the table that stand under these headings.
///
/// # Errors
/// TypeError for one that there is not; code 2 for a value that it does not take.
pub fn take(settings: &mut Settings, given: Option<&Bound<'_, PyDict>>, headings: &[Heading]) -> PyResult<()> {
    let is_taken = |row: &&Opt<Settings>| headings.contains(&row.heading);
    for (name, value) in given.into_iter().flatten() {
        let name = name.str()?.to_string();
        let Some(row) = Settings::row(&name).filter(|row| row.name == name && is_taken(row)) else {
            let there: Vec<&str> = Settings::rows().iter().filter(is_taken).map(|row| row.name).collect();
            let why = format!("got an unexpected keyword argument '{name}'; options are {}", there.join(", "));
            return Err(pyo3::exceptions::PyTypeError::new_err(why));
        };
        let texts = texts(&value)?;
        let texts = if row.listed && !texts.is_empty() { vec![texts.join(",")] } else { texts };
        for text in texts {
            let wrong = |why| usage(format!("{name}={text:?}: {why}"), row.sentence());
            settings.ask(row.name, &text).map_err(wrong)?;
        }
    }
    Ok(())
}

/// Tells a function in Python, and stops where Python gave the work up.
struct Watching {
    progress: Option<Py<PyAny>>,
    given_up: Arc<AtomicBool>,
}

impl Watcher for Watching {
    fn says(&self, text: &str) {
        let say = |py: Python<'_>| -> PyResult<()> {
            py.import("logging")?.call_method1("getLogger", ("weft_nn",))?.call_method1("info", ("%s", text))?;
            Ok(())
        };
        // A handler that fails does not stop the work.
        let _ = calling(say);
    }
    fn is_at(&self, stage: &str, at_work: &str, done: usize, total: usize) {
        let Some(progress) = &self.progress else { return };
        let told = calling(|py| progress.call1(py, (stage, at_work, done, total)).map(drop));
        if told.is_err() {
            self.given_up.store(true, Ordering::Release);
        }
    }
    fn stops(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }
}

/// Runs work that a watcher follows; what ends the call ends the work too, before the next step of it.
fn watched<T: Send + 'static>(
    py: Python<'_>,
    mut settings: Settings,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(Settings) -> workbench::Result<T> + Send + 'static,
) -> PyResult<T> {
    let given_up = Arc::new(AtomicBool::new(false));
    settings.watch = Watched(Arc::new(Watching { progress, given_up: given_up.clone() }));
    let done = on_thread(py, move || {
        weft::external::register()?;
        work(settings)
    });
    given_up.store(true, Ordering::Release);
    done
}

/// Searches for faster schedules: `weft_nn.tune` is this with a path.
///
/// Returns a dictionary, as `weft tune --json` has it.
#[pyfunction]
#[pyo3(signature = (model, tuning, again, *, seconds, kernel=None, same_sums=false, template=vec![], progress=None, **options))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub fn tune<'py>(
    py: Python<'py>,
    model: String,
    tuning: PathBuf,
    again: Vec<OsString>,
    seconds: f64,
    kernel: Option<String>,
    same_sums: bool,
    template: Vec<PathBuf>,
    progress: Option<Py<PyAny>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    own_process::starts_with(again);
    let mut settings = Settings { tuning: Some(tuning.display().to_string()), ..Settings::default() };
    take(&mut settings, options, ALL)?;
    let budget =
        Duration::try_from_secs_f64(seconds).map_err(|e| usage(format!("seconds={seconds}: {e}"), "give 60"))?;
    let found = watched(py, settings, progress, move |mut settings| {
        workbench::tuning::provide(&mut settings, true)?;
        let models = vec![model];
        let request =
            workbench::tune::Request { models, budget, kernel, same_sums, template, settings, ..Default::default() };
        workbench::tune::tune(&request, &mut |_| Ok(()))
    })?;
    loads(py, &found.first().map(Versioned::new))
}

/// Finds what makes a result wrong: `weft_nn.bisect` is this with a path.
///
/// Returns a dictionary, as `weft bisect --json` has it.
#[pyfunction]
#[pyo3(signature = (model, folder, inputs=None, against=None, *, rtol=None, atol=None, progress=None, **options))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub fn bisect<'py>(
    py: Python<'py>,
    model: String,
    folder: Option<PathBuf>,
    inputs: Option<&Bound<'py, PyDict>>,
    against: Option<&Bound<'py, PyDict>>,
    rtol: Option<f64>,
    atol: Option<f64>,
    progress: Option<Py<PyAny>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut settings = Settings::of_program();
    take(&mut settings, options, ALL)?;
    let input = Inputs { arrays: inputs.map(tensors_of).transpose()?.unwrap_or_default(), ..Inputs::default() };
    let results = against.map(tensors_of).transpose()?.unwrap_or_default();
    let right = Right { rtol, atol, results, ..Default::default() };
    let found = watched(py, settings, progress, move |mut settings| {
        workbench::tuning::provide(&mut settings, false)?;
        workbench::bisect::bisect(&workbench::bisect::Request { model, input, right, folder, settings })
    })?;
    loads(py, &Versioned::new(found))
}
