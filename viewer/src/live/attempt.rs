//! An edited schedule: whether it is legal, the kernels that it gives, and their time beside that of the old ones.

use super::{Host, Kept};
use crate::document::Document;
use crate::worker::Worker;
pub use compiler::compile::EditRefused as Refusal;
use compiler::compile::{Edited, compile_edited, constant_operands};
use compiler::graph::Module;
use compiler::name::Name;
use compiler::plan::EmitKernel;
use compiler::profile::DeviceProfile;
use compiler::schedule::ScheduleOptions;
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
    /// What keeps this schedule; `None` for a function with open sizes.
    pub kept: Option<Kept>,
}

/// Tries schedules and keeps the results.
pub type Trier = Worker<Attempt, Result<Arc<Outcome>, Refusal>>;

impl Trier {
    /// Starts the thread; `wake` is called when an attempt is done.
    pub fn start(document: Arc<Document>, host: Option<Arc<dyn Host>>, wake: impl Fn() + Send + 'static) -> Trier {
        let bench = move || {
            let mut sources: FxHashMap<usize, Result<Source, String>> = FxHashMap::default();
            move |a: &Attempt| match sources.entry(a.part).or_insert_with(|| Source::new(&document, a.part)) {
                Ok(source) => source.attempt(a, host.as_deref()).map(Arc::new),
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

    fn attempt(&self, a: &Attempt, host: Option<&dyn Host>) -> Result<Outcome, Refusal> {
        let name = Name::new(&a.function);
        let old = self.module.tensor_functions.get(&name);
        let old = old.ok_or_else(|| Refusal::new(&format!("the tensor function `{name}` is not in the trace")))?;
        let emitter = host.and_then(|h| h.emitter(&self.profile)).unwrap_or(&Emitter);
        let edited = self.alone(old, &a.schedule, emitter)?;
        let own = old.pending.iter().map(print_instruction).collect::<Vec<_>>().join("\n");
        let before = self.alone(old, &own, emitter);
        let kept = before.as_ref().ok().and_then(|before| self.kept(old, [before, &edited]));
        let old_ns = before.as_ref().ok().and_then(|b| b.estimated_ns);
        let estimated = old_ns.zip(edited.estimated_ns).map(|(old, new)| [old / 1e3, new / 1e3]);
        let times = match host.filter(|_| a.timed) {
            None => Err("not run".to_string()),
            Some(host) => before.map_err(|e| e.to_string()).and_then(|b| host.time([&b.compiled, &edited.compiled])),
        };
        let pending = parse_instructions(&a.schedule).map_err(|e| Refusal::new(&e.to_string()))?;
        let mut module = self.module.clone();
        module.tensor_functions.insert(name, TensorFunction { pending, ..old.clone() });
        Ok(Outcome {
            kernels: edited.compiled.plan.kernels.iter().map(|k| made(&k.emitted)).collect(),
            schedule: edited.function.trace.iter().map(print_instruction).collect(),
            estimated,
            times: times.map(|t| t.map(|ns| ns / 1e3)),
            kept,
            module: print_module(&module),
        })
    }

    /// Compiles a function alone with a schedule, called with the operands that it has in the model: constants where
    /// they are constants.
    fn alone(&self, f: &TensorFunction, schedule: &str, emitter: &dyn EmitKernel) -> Result<Edited, Refusal> {
        let plain = TensorFunction { pending: vec![], ..f.clone() };
        let constants = constant_operands(&self.module, f.name);
        compile_edited(&plain, &constants, schedule, self.scheduling.on(&self.profile), emitter)
    }

    fn kept(&self, f: &TensorFunction, [before, after]: [&Edited; 2]) -> Option<Kept> {
        let function = TensorFunction { pending: vec![], ..f.clone() };
        let constants = constant_operands(&self.module, f.name);
        let [before, after] = [before, after].map(|e| e.function.trace.clone());
        f.symbols.is_empty().then_some(Kept { function, constants, before, after })
    }
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
    use compiler::compile::Compiled;

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

    fn attempt(document: &Document, kernel: usize, lines: &[String]) -> Result<Outcome, Refusal> {
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
        let kept = outcome.kept.expect("its sizes are fixed");
        assert!(!kept.after.is_empty() && kept.after == kept.before, "{kept:?}");
        compiler::text::parse_module(&outcome.module).expect("the module that is saved parses");
    }

    #[test]
    fn an_illegal_edit_is_refused_with_the_loop() {
        let (document, at, mut lines) = first();
        let bind = lines.iter().position(|l| l.starts_with("bind ")).expect("a loop is bound");
        let line = lines[bind].clone();
        lines.insert(bind + 1, line);
        let why = attempt(&document, at, &lines).unwrap_err();
        assert!(why.message.contains("bind"), "{why:?}");
        assert!(why.loops.iter().any(|l| l.starts_with('>')), "{why:?}");
        let why = attempt(&document, at, &["splot {loop=i}".to_string()]).unwrap_err();
        assert!(why.message.contains("splot"), "{why:?}");
    }
}
