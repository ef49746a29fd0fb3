//! Functions that need more than a trace: compiling the model with other options, and timing kernels on a device.
//!
//! The program that opens the viewer may give it a [`Host`]. Schedules can be edited without one: the trace's tensor
//! functions are enough to check and compile an edit ([`attempt`]).

mod again;
pub mod attempt;

pub use again::{Again, Done};

use compiler::compile::Compiled;
use compiler::trace::CompileTrace;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Options that a model can be compiled with anew, as the command line writes them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Mixed precision.
    pub amp: String,
    /// Layout.
    pub layout: String,
    /// Fusion.
    pub fuse: String,
    /// Opt level, 0 to 3.
    pub opt_level: u8,
    /// Run the result, and put its times into the trace.
    pub times: bool,
    /// Hold each node against the reference, and put the errors into the trace.
    pub errors: bool,
}

/// The model and a device.
pub trait Host: Send + Sync {
    /// The device that runs are timed on.
    ///
    /// # Errors
    /// Why there is none.
    fn device(&self) -> Result<String, String>;
    /// Nanoseconds of a run of each of two modules, in turns, on inputs that are made up.
    ///
    /// # Errors
    /// An error of the device.
    fn time(&self, modules: [&Compiled; 2]) -> Result<[f64; 2], String>;
    /// Compiles the model, and measures on request. It checks the ticket between parts of the work.
    ///
    /// # Errors
    /// The model is missing, the compilation fails, or it was cancelled.
    fn compile(&self, wanted: &Wanted, ticket: &Ticket) -> Result<CompileTrace, String>;
}

/// The progress of a piece of work, and whether it was cancelled.
#[derive(Default)]
pub struct Ticket {
    stage: Mutex<(String, usize, usize)>,
    cancelled: AtomicBool,
}
impl Ticket {
    /// Says what is being done: `done` of `total` parts of `stage`.
    pub fn report(&self, stage: &str, done: usize, total: usize) {
        if let Ok(mut s) = self.stage.lock() {
            *s = (stage.to_string(), done, total);
        }
    }
    /// What is being done, and how much of it.
    pub fn progress(&self) -> (String, f32) {
        let s = self.stage.lock().map(|s| s.clone()).unwrap_or_default();
        (s.0, s.1 as f32 / s.2.max(1) as f32)
    }
    /// Nobody wants it any more.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
    /// # Errors
    /// The work was cancelled.
    pub fn check(&self) -> Result<(), String> {
        if self.cancelled.load(Ordering::Relaxed) { Err("cancelled".into()) } else { Ok(()) }
    }
}
