//! Functions that need more than a trace: compiling the model with other options, and timing kernels on a device.
//!
//! The program that opens the viewer may give it a [`Host`]. Schedules can be edited without one: the trace's tensor
//! functions are enough to check and compile an edit ([`attempt`]).

mod again;
pub mod attempt;

pub use again::{Again, Done};

use compiler::compile::Compiled;
use compiler::plan::EmitKernel;
use compiler::profile::DeviceProfile;
use compiler::schedule::InstrRef;
use compiler::tir::TensorFunction;
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
    /// Patterns of nodes that stay in f32, besides those of the command line.
    pub keep_f32: Vec<String>,
    /// Find the smallest list of nodes to keep in f32 with which results agree, by measuring, and compile with it.
    pub find_keep: bool,
    /// Run the result, and put its times into the trace.
    pub times: bool,
    /// Hold each node against the reference, and put the errors into the trace.
    pub errors: bool,
}

/// A compilation that was asked for.
#[derive(Clone, PartialEq, Debug)]
pub struct Made {
    /// Its trace, with what was measured.
    pub trace: CompileTrace,
    /// Patterns of nodes that it keeps in f32: those that were asked for, or those that were found.
    pub keep_f32: Vec<String>,
}

/// A schedule of a tensor function that may be kept.
#[derive(Clone, PartialEq, Debug)]
pub struct Kept {
    /// The function without a schedule.
    pub function: TensorFunction,
    /// Positions of operands that are constants.
    pub constants: Vec<usize>,
    /// The schedule that it was held against.
    pub before: Vec<InstrRef>,
    /// The schedule.
    pub after: Vec<InstrRef>,
}

/// The model and a device.
pub trait Host: Send + Sync {
    /// The device that runs are timed on.
    ///
    /// # Errors
    /// Why there is none.
    fn device(&self) -> Result<String, String>;
    /// What makes kernels for a device; `None` for shaders.
    fn emitter(&self, _: &DeviceProfile) -> Option<&'static dyn EmitKernel> {
        None
    }
    /// Nanoseconds of a run of each of two modules, in turns, on inputs that are made up.
    ///
    /// # Errors
    /// An error of the device.
    fn time(&self, modules: [&Compiled; 2]) -> Result<[f64; 2], String>;
    /// Compiles the model, and measures on request. It checks the ticket between parts of the work.
    ///
    /// # Errors
    /// The model is missing, the compilation fails, or it was cancelled.
    fn compile(&self, wanted: &Wanted, ticket: &Ticket) -> Result<Made, String>;
    /// Stores a schedule, so that later compilations for the device use them, and says where. `us` are microseconds of
    /// the schedule that there was and of this one, measured; `estimated_us` the same by the cost model.
    ///
    /// # Errors
    /// There is no place to store them.
    fn keep(&self, kept: &Kept, us: [f64; 2], estimated_us: Option<[f64; 2]>) -> Result<String, String>;
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
