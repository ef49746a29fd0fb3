//! The viewer's host: times kernels on a device, and compiles the model with other options.
//!
//! This command compiles and measures the model in a separate process, which can be stopped at any time.

use crate::args::shared::without_options;
use compiler::compile::Compiled;
use compiler::compile::MeasureKernel;
use compiler::trace::CompileTrace;
use runtime_gpu::{DeviceChoice, Gpu, GpuError, KernelTimer};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use viewer::live::{Host, Ticket, Wanted};

/// Runs of each kernel in a turn, and turns.
const RUNS: usize = 5;
const TURNS: usize = 3;

/// Options of `weft view` alone, and those that the window decides; true for those with a value.
const OWN: &[(&str, bool)] = &[
    ("--screenshot", true),
    ("--pass", true),
    ("--select", true),
    ("--view", true),
    ("--colour", true),
    ("--search", true),
    ("--beside", true),
    ("--size", true),
    ("--pixels", true),
    ("--dark", false),
    ("--amp", true),
    ("--layout", true),
    ("--fuse", true),
    ("--opt-level", true),
    ("-O", true),
    ("--quiet", false),
    ("-q", false),
];

/// This machine.
pub struct Machine {
    /// The model with the options that are not the window's.
    arguments: Vec<String>,
    /// Devices to time on: the first one that is here.
    choices: Vec<DeviceChoice>,
    gpu: OnceLock<Result<Arc<Gpu>, String>>,
}

impl Machine {
    /// For the model of a trace; `given` are the arguments of `weft view`, in which it is called `shown`. Kernels are timed
    /// on `device`; if that is left open, on the device of the trace where it is here.
    pub fn new(given: &[String], shown: &str, trace: &CompileTrace, device: &str) -> Machine {
        let mut arguments = without_options(given, OWN);
        if let Some(place) = arguments.iter_mut().find(|a| *a == shown) {
            *place = trace.model.clone();
        }
        let asked = DeviceChoice::parse(device);
        let own = (asked == DeviceChoice::Auto).then(|| DeviceChoice::parse(&trace.profile_name));
        Machine { arguments, choices: own.into_iter().chain([asked]).collect(), gpu: OnceLock::new() }
    }
    fn gpu(&self) -> Result<Arc<Gpu>, String> {
        let open = || {
            let (last, first) = self.choices.split_last().ok_or("no device was asked for")?;
            let here = first.iter().find_map(|c| Gpu::open(c).ok());
            let gpu = Arc::new(here.map_or_else(|| Gpu::open(last), Ok).map_err(|e| e.to_string())?);
            gpu.check_computes().map_err(|e: GpuError| e.to_string())?;
            Ok(gpu)
        };
        self.gpu.get_or_init(open).clone()
    }
    /// Runs a verb of the command on the model, and reads the trace that it writes.
    fn trace(&self, verb: &str, wanted: &Wanted, folder: &Path, ticket: &Ticket) -> Result<CompileTrace, String> {
        let path = folder.join(format!("{verb}.trace"));
        let level = wanted.opt_level.to_string();
        let program = std::env::current_exe().map_err(|e| format!("the command does not find itself: {e}"))?;
        let mut command = Command::new(program);
        command.arg(verb).args(&self.arguments).args(["--amp", &wanted.amp, "--layout", &wanted.layout]);
        command.args(["--fuse", &wanted.fuse, "--opt-level", &level, "--quiet", "--output"]).arg(&path);
        let errors = folder.join(format!("{verb}.txt"));
        let file = std::fs::File::create(&errors).map_err(|e| format!("{}: {e}", errors.display()))?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).spawn();
        let mut child = Running(child.map_err(|e| format!("weft {verb} does not start: {e}"))?);
        let done = loop {
            ticket.check()?;
            if let Some(done) = child.0.try_wait().map_err(|e| e.to_string())? {
                break done;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        // `compare` ends with 1 where results differ: that is what one wants to see.
        if !path.exists() {
            let said = std::fs::read_to_string(&errors).unwrap_or_default();
            return Err(format!("weft {verb} ended with {done}: {}", said.trim()));
        }
        crate::trace::read(&path).map_err(|e| e.message)
    }
}

/// A process that ends with its owner.
struct Running(Child);
impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Host for Machine {
    fn device(&self) -> Result<String, String> {
        self.gpu().map(|g| g.description.name.clone())
    }
    fn time(&self, modules: [&Compiled; 2]) -> Result<[f64; 2], String> {
        // One at a time: two would measure each other.
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().map_err(|_| "an earlier measurement failed".to_string())?;
        let mut timer = KernelTimer::new(self.gpu()?, RUNS);
        let mut best = [f64::INFINITY; 2];
        for _ in 0..TURNS {
            for (best, module) in best.iter_mut().zip(modules) {
                *best = best.min(timer.measure(module)?);
            }
        }
        Ok(best)
    }
    fn compile(&self, wanted: &Wanted, ticket: &Ticket) -> Result<CompileTrace, String> {
        let folder = tempfile::tempdir().map_err(|e| format!("there is no folder for temporary files: {e}"))?;
        let total = 1 + usize::from(wanted.errors);
        let verb = if wanted.times { "bench" } else { "compile" };
        ticket.report(if wanted.times { "compiling and running" } else { "compiling" }, 0, total);
        let mut trace = self.trace(verb, wanted, folder.path(), ticket)?;
        if wanted.errors {
            ticket.report("comparing node by node", 1, total);
            trace.errors = self.trace("compare", wanted, folder.path(), ticket)?.errors;
        }
        Ok(trace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(model: &str) -> CompileTrace {
        CompileTrace {
            model: model.into(),
            profile_name: "a device that is not here".into(),
            ..CompileTrace::default()
        }
    }

    #[test]
    fn what_the_window_decides_is_left_out() {
        let given: Vec<String> = "resnet18 --size 900x600 --amp fp16 -O2 --fuse=off --batch 2 -q --dark --device 0"
            .split(' ')
            .map(str::to_string)
            .collect();
        assert_eq!(without_options(&given, OWN), ["resnet18", "--batch", "2", "--device", "0"]);
        let m = Machine::new(&["a.trace".to_string()], "a.trace", &trace("resnet18"), "auto");
        assert_eq!(m.arguments, ["resnet18"]);
    }

    #[test]
    fn a_cancelled_process_ends() {
        let m = Machine::new(&["no such model".to_string()], "", &trace(""), "auto");
        let wanted = Wanted {
            amp: "off".into(),
            layout: "auto".into(),
            fuse: "full".into(),
            opt_level: 3,
            times: false,
            errors: false,
        };
        let ticket = Ticket::default();
        ticket.cancel();
        assert_eq!(m.compile(&wanted, &ticket).unwrap_err(), "cancelled");
    }
}
