//! The viewer's host: times kernels on a device, and compiles the model with other options.
//!
//! This command compiles and measures the model in a separate process, which can be stopped at any time.

use compiler::agreement::{Tolerance, agree};
use compiler::compile::Compiled;
use compiler::plan::EmitKernel;
use compiler::profile::DeviceProfile;
use compiler::schedule::ScheduleOptions;
use compiler::tensor::Tensor;
use compiler::text::random_tensor;
use compiler::trace::CompileTrace;
use runtime_cpu::Processor;
use runtime_gpu::{DeviceChoice, Gpu, GpuError};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use viewer::live::{Host, Kept, Made, Ticket, Wanted};
use weft::TuningDatabase;
use weft::races::{Failure, Place};
use workbench::inputs::Inputs;
use workbench::options::Tabled;
use workbench::own_process;
use workbench::settings::Settings;
use workbench::tune::by_hand::ByHand;
use workbench::tune::units::Unit;

/// Rounds of a race between two forms of a kernel.
const ROUNDS: usize = 15;

/// This machine.
pub struct Machine {
    /// The model with the options that are not the window's.
    arguments: Vec<String>,
    /// Devices to time on: the first one that is here.
    choices: Vec<DeviceChoice>,
    /// The device that the trace is for, and what its rules were asked.
    profile: Option<DeviceProfile>,
    scheduling: ScheduleOptions,
    /// The tuning database; why there is none.
    tuning: Result<PathBuf, String>,
    /// The trace is for the processor; so many threads, 0 for all.
    threads: Option<usize>,
    place: OnceLock<Result<Place, String>>,
}

/// The model that a trace names, as an argument that no command takes for an option.
fn operand(model: &str) -> String {
    if model.starts_with('-') { format!("./{model}") } else { model.to_string() }
}

impl Machine {
    /// For the model of a trace, with the options and inputs that it was asked for with. Kernels are timed on the
    /// device of the options; if that is left open, on the device of the trace where it is here.
    pub fn new(settings: &Settings, inputs: &Inputs, trace: &CompileTrace) -> Machine {
        // What the window decides.
        let usual = Settings::default();
        let (amp, layout, fuse, opt_level) = (usual.amp, usual.layout, usual.fuse, usual.opt_level);
        let profile = serde_json::from_str::<DeviceProfile>(&trace.profile).ok();
        let native = profile.as_ref().is_some_and(|p| !p.model().shaders);
        let threads = settings.threads.filter(|_| native || !settings.is_default("threads"));
        let others = Settings { amp, layout, fuse, opt_level, threads, keep_f32: vec![], ..settings.clone() };
        let arguments = [vec![operand(&trace.model)], others.words(), inputs.words()].concat();
        let asked = DeviceChoice::parse(&settings.device);
        let own = (asked == DeviceChoice::Auto).then(|| DeviceChoice::parse(&trace.profile_name));
        let tuning = workbench::tuning::file_to_write(settings).map_err(|e| e.message);
        let threads = native.then(|| settings.threads.map_or(0, |n| n as usize));
        let choices = own.into_iter().chain([asked]).collect();
        let scheduling = trace.options.scheduling.clone();
        Machine { arguments, choices, profile, scheduling, tuning, threads, place: OnceLock::new() }
    }
    fn place(&self) -> Result<Place, String> {
        let open = || {
            if let Some(threads) = self.threads {
                return Ok(Place::Cpu(Arc::new(Processor::open(threads, None).map_err(|e| e.to_string())?)));
            }
            let (last, first) = self.choices.split_last().ok_or("no device was asked for")?;
            let here = first.iter().find_map(|c| Gpu::open(c).ok());
            let gpu = Arc::new(here.map_or_else(|| Gpu::open(last), Ok).map_err(|e| e.to_string())?);
            gpu.check_computes().map_err(|e: GpuError| e.to_string())?;
            Ok(Place::Gpu(gpu))
        };
        self.place.get_or_init(open).clone()
    }
    /// Runs a verb of the command on the model, and reads the trace that it writes.
    fn trace(&self, verb: &str, wanted: &Wanted, folder: &Path, ticket: &Ticket) -> Result<CompileTrace, String> {
        let path = folder.join(format!("{verb}.trace"));
        self.run(verb, wanted, (folder, &path), ticket, |command| command.arg("--output").arg(&path))?;
        workbench::traces::read(&path).map_err(|e| e.message)
    }
    /// The smallest list of nodes to keep in f32 with which results agree.
    fn keep_list(&self, wanted: &Wanted, folder: &Path, ticket: &Ticket) -> Result<Vec<String>, String> {
        let path = folder.join("keep.txt");
        self.run("compare", wanted, (folder, &path), ticket, |command| command.arg("--write-keep").arg(&path))?;
        let text = weft::plain_files::read_text(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).map(str::to_string).collect())
    }
    /// Runs a verb of the command on the model until it has written `path`.
    fn run(
        &self,
        verb: &str,
        wanted: &Wanted,
        (folder, path): (&Path, &Path),
        ticket: &Ticket,
        output: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Result<(), String> {
        let level = wanted.opt_level.to_string();
        let mut command = own_process::again()?;
        command.arg(verb).args(&self.arguments).args(["--amp", &wanted.amp, "--layout", &wanted.layout]);
        command.args(wanted.keep_f32.iter().flat_map(|k| ["--keep-f32", k]));
        command.args(["--fuse", &wanted.fuse, "--opt-level", &level, "--config", "none", "--quiet"]);
        output(&mut command);
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
        Ok(())
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
        self.place().map(|p| match p {
            Place::Gpu(gpu) => gpu.description.name.clone(),
            Place::Cpu(processor) => processor.profile().name.to_string(),
        })
    }
    fn emitter(&self, profile: &DeviceProfile) -> Option<&'static dyn EmitKernel> {
        Some(weft::emitter(profile))
    }
    fn time(&self, modules: [&Compiled; 2]) -> Result<[f64; 2], String> {
        // One at a time: two would measure each other.
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().map_err(|_| "an earlier measurement failed".to_string())?;
        let place = self.place()?;
        let inputs: Vec<Tensor> = modules[0]
            .plan
            .inputs
            .iter()
            .enumerate()
            .map(|(i, v)| random_tensor(v.dtype, &v.shape, i as u64))
            .collect();
        let load = |m: &Compiled| place.load(m, &inputs).map_err(Failure::why);
        let (before, after) = (load(modules[0])?, load(modules[1])?);
        let [want, got] =
            [before.results(&inputs).map_err(Failure::why)?, after.results(&inputs).map_err(Failure::why)?];
        for (got, want) in got.iter().zip(&want) {
            let found = agree(got, want, &Tolerance::new(want.dtype(), None, None));
            if !found.pass {
                return Err(format!("wrong results: {}", found.why));
            }
        }
        let standings = place.race(&[&before, &after], ROUNDS, 1).map_err(Failure::why)?;
        let [first, second] = standings.as_slice() else { return Err("nothing was measured".into()) };
        // Their ratio is the median of the rounds' ratios.
        let ns = first.median_elapsed(&place.profile());
        Ok([ns, ns * second.ratio()])
    }
    fn compile(&self, wanted: &Wanted, ticket: &Ticket) -> Result<Made, String> {
        let folder = tempfile::tempdir().map_err(|e| format!("there is no folder for temporary files: {e}"))?;
        let total = 1 + usize::from(wanted.errors) + usize::from(wanted.find_keep);
        let mut wanted = wanted.clone();
        if wanted.find_keep {
            ticket.report("measuring lists of nodes to keep in f32", 0, total);
            wanted.keep_f32 = self.keep_list(&wanted, folder.path(), ticket)?;
        }
        let (wanted, found) = (&wanted, usize::from(wanted.find_keep));
        let verb = if wanted.times { "bench" } else { "compile" };
        ticket.report(if wanted.times { "compiling and running" } else { "compiling" }, found, total);
        let mut trace = self.trace(verb, wanted, folder.path(), ticket)?;
        if wanted.errors {
            ticket.report("comparing node by node", found + 1, total);
            trace.errors = self.trace("compare", wanted, folder.path(), ticket)?.errors;
        }
        Ok(Made { trace, keep_f32: wanted.keep_f32.clone() })
    }
    fn keep(&self, kept: &Kept, us: [f64; 2], estimated_us: Option<[f64; 2]>) -> Result<String, String> {
        let path = self.tuning.as_ref().map_err(String::clone)?;
        let profile = self.profile.as_ref().ok_or("the trace does not say for which device it is")?;
        let by_hand = ByHand {
            unit: &Unit::new(kept.function.clone(), kept.constants.clone(), profile),
            target: self.scheduling.on(profile),
            before: &kept.before,
            after: &kept.after,
            ratio: us[1] / us[0],
            rounds: [0, 0],
            us,
            estimated_us: estimated_us.map_or([None; 2], |us| us.map(Some)),
            seed: 0,
        };
        TuningDatabase::append(path, &by_hand.line(&TuningDatabase::read_for(path, &[&profile.identity()])?))?;
        Ok(path.display().to_string())
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
        let mut settings = Settings { fuse: "off".into(), opt_level: 2, batch: Some(2), ..Settings::default() };
        (settings.amp, settings.device) = ("fp16".into(), "0".into());
        let m = Machine::new(&settings, &Inputs::default(), &trace("resnet18"));
        assert_eq!(m.arguments, ["resnet18", "--device", "0", "--batch", "2"]);
    }

    /// A trace names a model; it must not give the commands that the viewer starts an option, such as a library.
    #[test]
    fn the_model_of_a_trace_is_no_option() {
        let m = Machine::new(&Settings::default(), &Inputs::default(), &trace("--host-functions=evil.so"));
        assert_eq!(m.arguments, ["./--host-functions=evil.so"]);
    }

    #[test]
    fn a_cancelled_process_ends() {
        let m = Machine::new(&Settings::default(), &Inputs::default(), &trace("no such model"));
        let wanted = Wanted {
            amp: "off".into(),
            layout: "auto".into(),
            fuse: "full".into(),
            opt_level: 3,
            keep_f32: vec![],
            find_keep: false,
            times: false,
            errors: false,
        };
        let ticket = Ticket::default();
        ticket.cancel();
        assert_eq!(m.compile(&wanted, &ticket).unwrap_err(), "cancelled");
    }
}
