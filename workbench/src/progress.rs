//! Messages and progress, for who watches.

use crate::error::{Code, Error, Result};
use crate::said::State;
use crate::settings::Settings;
use crate::watcher::Watched;
use std::time::Instant;

/// Lets work go on, or ends it where who watches says so.
///
/// # Errors
/// It is to end.
pub fn go_on(settings: &Settings) -> Result<()> {
    match settings.watch.0.stops() {
        true => Err(stopped()),
        false => Ok(()),
    }
}

/// The error of work that was stopped.
pub fn stopped() -> Error {
    Error::new(Code::Check, "it was stopped")
}

/// A message.
pub fn log(settings: &Settings, text: impl AsRef<str>) {
    settings.watch.0.says(text.as_ref());
}

/// A message that is said once, however often it holds.
pub fn log_once(settings: &Settings, text: impl Into<String>) {
    let text = text.into();
    if settings.state.is_new(&text) {
        log(settings, &text);
    }
}

/// Progress of long work. Times of stages are kept.
pub struct Progress {
    watch: Watched,
    state: State,
    names: &'static [(&'static str, &'static str)],
    stage: Option<(String, Instant)>,
}

impl Progress {
    /// `names` says what stages are called; they keep theirs otherwise.
    pub fn new(settings: &Settings, names: &'static [(&'static str, &'static str)]) -> Progress {
        Progress { watch: settings.watch.clone(), state: settings.state.clone(), names, stage: None }
    }
    /// Reports. A stage may name what it works on: `driver: layer1.0.conv1`.
    pub fn report(&mut self, stage: &str, done: usize, total: usize) {
        let (stage, at_work) = stage.split_once(": ").unwrap_or((stage, ""));
        let name = self.names.iter().find(|n| n.0 == stage).map_or(stage, |n| n.1);
        if self.stage.as_ref().is_none_or(|s| s.0 != name) {
            self.end_stage();
            self.stage = Some((name.to_string(), Instant::now()));
        }
        self.watch.0.is_at(name, at_work, done, total);
    }
    /// True when the work is to end.
    pub fn stops(&self) -> bool {
        self.watch.0.stops()
    }
    fn end_stage(&mut self) {
        if let Some((name, start)) = self.stage.take() {
            self.state.add(&name, start.elapsed().as_secs_f64() * 1e3);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end_stage();
        self.watch.0.is_over();
    }
}
