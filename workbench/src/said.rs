//! Messages and times of one piece of work so far.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Messages and times of one piece of work so far.
#[derive(Default, Debug)]
struct Said {
    lines: Vec<String>,
    stages: Vec<(String, f64)>,
    json: bool,
}

/// Messages and times so far; clones share them.
#[derive(Clone, Default, Debug)]
pub struct State(Arc<Mutex<Said>>);
impl State {
    fn lock(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// True when the result is written as JSON.
    pub fn json_is_written(&self) -> bool {
        self.lock().json
    }
    /// The result is written as JSON.
    pub fn json_stands(&self) {
        self.lock().json = true;
    }
    /// True for a line that was not said before; from now on it was.
    pub fn is_new(&self, line: &str) -> bool {
        let mut said = self.lock();
        let new = !said.lines.iter().any(|l| l == line);
        if new {
            said.lines.push(line.into());
        }
        new
    }
    /// Adds milliseconds to a stage of the work.
    pub fn add(&self, stage: &str, ms: f64) {
        let mut said = self.lock();
        match said.stages.iter_mut().find(|s| s.0 == stage) {
            Some(s) => s.1 += ms,
            None => said.stages.push((stage.into(), ms)),
        }
    }
    /// Runs `f` as a stage of the work.
    pub fn time<T>(&self, stage: &str, f: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let out = f();
        self.add(stage, start.elapsed().as_secs_f64() * 1e3);
        out
    }
    /// Milliseconds by stage, in order of their first appearance.
    pub fn stages(&self) -> Vec<(String, f64)> {
        self.lock().stages.clone()
    }
}
