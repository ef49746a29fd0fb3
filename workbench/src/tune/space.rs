//! What a search is made of: the schedules of a function, what measures them, who is told.

use super::candidate::Candidate;
use crate::error::Result;
use runtime_gpu::Standing;

/// A candidate that gave the right results.
#[derive(Clone)]
pub struct Opened {
    /// Its number with the one who times it.
    pub id: usize,
    /// Its instructions.
    pub trace: String,
    /// Milliseconds of a run, with its results read back.
    pub ms: f64,
}

impl Opened {
    /// A candidate that is not measured: its times are in a table.
    pub fn recorded(id: usize) -> Opened {
        Opened { id, trace: String::new(), ms: 0.0 }
    }
}

/// The schedules of a function.
pub trait Space {
    /// The default schedule.
    ///
    /// # Errors
    /// A function that no rule takes: a bug.
    fn default(&self) -> Result<Candidate>;
    /// The candidates next to this one.
    fn around(&self, c: &Candidate) -> Vec<Candidate>;
    /// The maker of a candidate, for its line.
    fn by(&self, c: &Candidate) -> String;
}

/// Verifies and times candidates of a function.
pub trait Racing {
    /// Opens the default schedule, or says why it is refused.
    ///
    /// # Errors
    /// Nothing can be measured.
    fn open_default(&mut self, c: &Candidate) -> Result<Result<Opened, String>>;
    /// Opens a candidate, or says why it is refused.
    ///
    /// # Errors
    /// Nothing can be measured any more.
    fn open(&mut self, c: &Candidate) -> Result<Result<Opened, String>>;
    /// Drops all candidates but these.
    fn keep(&mut self, list: &[&Opened]);
    /// Races candidates, the first of which is the incumbent. Of one that fails, the standing is empty.
    ///
    /// # Errors
    /// Nothing can be measured any more.
    fn race(&mut self, list: &[&Opened], rounds: usize, seed: u64) -> Result<Vec<Standing>>;
}

/// Who is told of a search.
pub trait Watching {
    /// So many candidates ran, of so many that are planned. True: the search is to end.
    fn ran(&mut self, done: usize, planned: usize) -> bool;
    /// A candidate was in a race.
    ///
    /// # Errors
    /// It cannot be recorded.
    fn raced(&mut self, c: &Candidate, standing: &Standing) -> Result<()>;
    /// A candidate gave wrong results or did not run.
    ///
    /// # Errors
    /// It cannot be recorded.
    fn refused(&mut self, c: &Candidate, why: &str) -> Result<()>;
}
