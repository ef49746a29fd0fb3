//! An edited schedule: whether it is legal, the kernels that it gives, and their time beside that of the old ones.

use super::{Host, Kept};
use crate::document::Document;
use crate::worker::Worker;
use compiler::check::check_function;
use compiler::compile::{CompileOptions, Compiled, compile, constant_operands, function_alone, operand_buffers};
use compiler::graph::Module;
use compiler::name::Name;
use compiler::profile::DeviceProfile;
use compiler::schedule::estimate::estimate;
use compiler::schedule::rules::Choice;
use compiler::schedule::{Choose, Rules, ScheduleOptions, ScheduleProvider, Tuned, Workload};
use compiler::text::{parse_instructions, print_instruction, print_module};
use compiler::tir::TensorFunction;
use rustc_hash::FxHashMap;
use shaders_gen::Emitter;
use std::sync::Arc;

/// A schedule to try.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Attempt {
    /// Name of the tensor function.
    pub function: String,
    /// Index of the part of the network that it is in.
    pub part: usize,
    /// Instructions, one a line.
    pub schedule: String,
    /// Whether it is run.
    pub timed: bool,
}

/// A kernel that the schedule gives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Made {
    /// Entry point.
    pub entry: String,
    /// Threads of a workgroup.
    pub workgroup: [u32; 3],
    /// Workgroups of a dispatch.
    pub grid: [u32; 3],
    /// Bytes of workgroup memory.
    pub shared_bytes: u32,
    /// All accesses and index arithmetic proved.
    pub bounds_proved: bool,
    /// WGSL text.
    pub wgsl: String,
}

/// The result of a legal schedule.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// The kernels.
    pub kernels: Vec<Made>,
    /// The applied schedule: if a choice was edited, the rules have rewritten the following instructions.
    pub schedule: Vec<String>,
    /// Microseconds of the old schedule and of this one, taken in turns on the same device; why there are none.
    pub times: Result<[f64; 2], String>,
    /// Microseconds of the old schedule and of this one by the cost model; `None` if it cannot weigh one of them.
    pub estimated: Option<[f64; 2]>,
    /// The whole model with this schedule, as text that `weft run` takes.
    pub module: String,
    /// The choices that alone make this schedule; `None` if instructions were edited besides.
    pub kept: Option<Kept>,
}

/// Why a schedule is refused: the message, and the loops with the culprit's line marked by `>`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The error.
    pub message: String,
    /// The loops, a line each.
    pub loops: Vec<String>,
}
impl Refusal {
    /// Errors print the loops below their message, indented.
    fn new(text: &str) -> Refusal {
        let is_loop = |l: &&str| l.starts_with("  ") || l.starts_with('>');
        let (loops, message): (Vec<&str>, Vec<&str>) = text.lines().partition(is_loop);
        Refusal { message: message.join("\n"), loops: loops.into_iter().map(str::to_string).collect() }
    }
}

/// Tries schedules and keeps the results.
pub type Trier = Worker<Attempt, Result<Arc<Outcome>, Refusal>>;

impl Trier {
    /// Starts the thread; `wake` is called when an attempt is done.
    pub fn start(document: Arc<Document>, host: Option<Arc<dyn Host>>, wake: impl Fn() + Send + 'static) -> Trier {
        let bench = move || {
            let mut sources: FxHashMap<usize, Result<Source, String>> = FxHashMap::default();
            move |a: &Attempt| match sources.entry(a.part).or_insert_with(|| Source::new(&document, a.part)) {
                Ok(source) => source.attempt(a, host.as_deref()).map(Arc::new).map_err(|why| Refusal::new(&why)),
                Err(why) => Err(Refusal::new(why)),
            }
        };
        Worker::new(bench, wake)
    }
}

/// The module with its schedules pending, and the device that they are for.
struct Source {
    module: Module,
    profile: DeviceProfile,
    scheduling: ScheduleOptions,
}

impl Source {
    fn new(document: &Document, part: usize) -> Result<Source, String> {
        let (module, profile) = document.functions("lowered", part)?;
        let scheduling = document.trace().options.scheduling.clone();
        Ok(Source { module, profile, scheduling })
    }

    fn attempt(&self, a: &Attempt, host: Option<&dyn Host>) -> Result<Outcome, String> {
        let name = Name::new(&a.function);
        let old = self.module.tensor_functions.get(&name);
        let old = old.ok_or_else(|| format!("the tensor function `{name}` is not in the trace"))?;
        let pending = parse_instructions(&a.schedule).map_err(|e| e.to_string())?;
        let new = TensorFunction { pending, ..old.clone() };
        let compiled = self.alone(&new, host)?;
        let scheduled = compiled.module.tensor_functions.get(&name).ok_or("the function was not lowered")?;
        // Instructions are checked when they are applied; here the whole function is checked, as for text from a file.
        check_function(scheduled).map_err(|e| e.to_string())?;
        let before = self.alone(old, host);
        let weigh = |c: &Compiled| {
            let f = c.module.tensor_functions.get(&name)?;
            let kernels = estimate(f, &[], self.scheduling.on(&self.profile)).ok()?.kernels;
            Some(kernels.iter().map(|k| k.cost.total() / 1e3).sum::<f64>())
        };
        let estimated = before.as_ref().ok().and_then(|b| Some([weigh(b)?, weigh(&compiled)?]));
        let times = match host.filter(|_| a.timed) {
            None => Err("not run".to_string()),
            Some(host) => before.as_ref().map_err(String::clone).and_then(|old| host.time([old, &compiled])),
        };
        let kept = self.kept(old, before.as_ref().ok(), scheduled);
        let mut module = self.module.clone();
        module.tensor_functions.insert(name, new);
        Ok(Outcome {
            kernels: compiled.plan.kernels.iter().map(|k| made(&k.emitted)).collect(),
            schedule: scheduled.trace.iter().map(print_instruction).collect(),
            estimated,
            times: times.map(|t| t.map(|ns| ns / 1e3)),
            kept,
            module: print_module(&module),
        })
    }

    /// The choices of a schedule, if a compilation that is given them makes the same one.
    fn kept(&self, old: &TensorFunction, before: Option<&Compiled>, new: &TensorFunction) -> Option<Kept> {
        let function = TensorFunction { pending: vec![], ..old.clone() };
        let constants = operand_buffers(&function, &constant_operands(&self.module, function.name));
        let workload = Workload::of(&function, &constants, &self.profile);
        let (choices, target) = (choices_of(new), self.scheduling.on(&self.profile));
        let again = Tuned::new([(workload.clone(), choices.clone())], Arc::new(Rules));
        let again = again.schedule(&function, &constants, target).ok()?;
        let lines = |f: &TensorFunction| f.trace.iter().map(print_instruction).collect::<Vec<_>>();
        let default = before.and_then(|c| c.module.tensor_functions.get(&old.name)).map_or(vec![], choices_of);
        let name = function.name.to_string();
        (lines(&again.function) == lines(new)).then_some(Kept { workload, name, choices, default })
    }

    /// Compiles a function alone, called with the operands that it has in the model: constants where they are
    /// constants.
    fn alone(&self, f: &TensorFunction, host: Option<&dyn Host>) -> Result<Compiled, String> {
        let module = function_alone(f, &constant_operands(&self.module, f.name))?;
        let mut options = CompileOptions::default();
        options.pipeline.scheduling.clone_from(&self.scheduling);
        let emitter = host.and_then(|h| h.emitter(&self.profile)).unwrap_or(&Emitter);
        compile(module, &options, &self.profile, emitter, &mut |_, _, _| ()).map_err(|e| e.to_string())
    }
}

fn choices_of(f: &TensorFunction) -> Vec<Choice> {
    let chosen = f.trace.iter().filter_map(Choose::of_instruction);
    chosen.map(|c| Choice { unit: c.unit, point: c.point, value: c.value.clone() }).collect()
}

fn made(e: &compiler::plan::EmittedKernel) -> Made {
    Made {
        entry: e.name.clone(),
        workgroup: e.workgroup,
        grid: e.grid,
        shared_bytes: e.shared_bytes,
        bounds_proved: e.bounds_proved,
        wgsl: e.wgsl.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::tests::trace;

    struct Clock;
    impl Host for Clock {
        fn device(&self) -> Result<String, String> {
            Ok("a clock".into())
        }
        fn time(&self, modules: [&Compiled; 2]) -> Result<[f64; 2], String> {
            // A thread takes a nanosecond, so that the launch alone tells.
            Ok(modules.map(|m| m.plan.kernels.iter().map(|k| f64::from(k.emitted.grid.iter().product::<u32>())).sum()))
        }
        fn compile(&self, _: &crate::live::Wanted, _: &crate::live::Ticket) -> Result<crate::live::Made, String> {
            Err("there is no model".into())
        }
        fn keep(&self, _: &Kept, _: [f64; 2], _: Option<[f64; 2]>) -> Result<String, String> {
            Err("there is no database".into())
        }
    }

    /// The schedule of the first kernel with a chosen value, and what can be chosen in it.
    fn first() -> (Document, usize, Vec<String>) {
        let document = Document::new(trace()).unwrap();
        let chosen = |k: &compiler::trace::Kernel| k.schedule.iter().any(|l| l.starts_with("choose "));
        let at = document.trace().kernels.iter().position(chosen).expect("a rule had a choice");
        let lines = document.trace().kernels[at].schedule.clone();
        (document, at, lines)
    }

    fn attempt(document: &Document, kernel: usize, lines: &[String]) -> Result<Outcome, String> {
        let source = Source::new(document, 0).unwrap();
        let function = document.trace().kernels[kernel].function.clone();
        source.attempt(&Attempt { function, part: 0, schedule: lines.join("\n"), timed: true }, Some(&Clock))
    }

    #[test]
    fn the_schedule_as_it_is_gives_the_kernel_as_it_is() {
        let (document, at, lines) = first();
        let outcome = attempt(&document, at, &lines).unwrap();
        let kernel = &document.trace().kernels[at];
        assert!(outcome.kernels.iter().any(|k| k.entry == kernel.entry && k.wgsl == kernel.wgsl));
        assert_eq!(outcome.schedule, lines);
        let [old, new] = outcome.times.unwrap();
        assert_eq!(old, new);
        let kept = outcome.kept.expect("its choices make it");
        assert!(!kept.choices.is_empty() && kept.choices == kept.default, "{kept:?}");
        compiler::text::parse_module(&outcome.module).expect("the module that is saved parses");
    }

    #[test]
    fn an_illegal_edit_is_refused_with_the_loop() {
        let (document, at, mut lines) = first();
        let bind = lines.iter().position(|l| l.starts_with("bind ")).expect("a loop is bound");
        let line = lines[bind].clone();
        lines.insert(bind + 1, line);
        let why = Refusal::new(&attempt(&document, at, &lines).unwrap_err());
        assert!(why.message.contains("bind"), "{why:?}");
        assert!(why.loops.iter().any(|l| l.starts_with('>')), "{why:?}");
        let why = Refusal::new(&attempt(&document, at, &["splot {loop=i}".to_string()]).unwrap_err());
        assert!(why.message.contains("splot"), "{why:?}");
    }
}
