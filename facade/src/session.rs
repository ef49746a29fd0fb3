//! A network that is ready to run.

use crate::cpu_form::has_halved;
use crate::error::Error;
use crate::native::Native;
use crate::outputs::Outputs;
use crate::staged::StagedModel;
use compiler::compile::{CompileError, Compiled, check_ranges, lost_positions};
use compiler::graph::{Module, TensorType, input_ports};
use compiler::int::DimRanges;
use compiler::interpreter::Interpreter;
use compiler::tensor::Tensor;
use runtime_cpu::CpuError;
use runtime_gpu::{GpuError, HostFunctions, Planned};
use std::sync::Arc;

/// The place of a run without a device.
pub const INTERPRETER: &str = "interpreter";

/// How a session runs.
pub(crate) enum Execution {
    /// By a plan on a device.
    Gpu { session: Arc<runtime_gpu::Session>, compiled: Option<Box<Compiled>> },
    /// By plans on a device, one for each list of sizes.
    Open { session: Arc<runtime_gpu::OpenSession>, compiled: Option<Box<Compiled>> },
    /// On a device in parts, since it decides sizes while it runs.
    Staged(Arc<StagedModel>),
    /// By a plan on the processor.
    Native { session: Arc<Native>, compiled: Option<Box<Compiled>> },
    /// By the interpreter: the module as loaded, with host calls or in mixed precision.
    Interpreted { module: Arc<Module>, mixed: bool },
}

/// A network that is ready to run, on any number of threads.
pub struct Session {
    /// As it was loaded.
    module: Arc<Module>,
    pub(crate) execution: Execution,
    functions: HostFunctions,
    /// The ranges of open dimensions.
    ranges: DimRanges,
}

impl Session {
    pub(crate) fn new(module: Module, execution: Execution, functions: HostFunctions, ranges: DimRanges) -> Session {
        Session { module: Arc::new(module), execution, functions, ranges }
    }

    /// Checks the declared ranges on the interpreter too, which would take any sizes.
    fn check_ranges(&self, inputs: &[Tensor]) -> Result<(), Error> {
        let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
        check_ranges(&self.module, &shapes, &self.ranges).map_err(|e| Error::Input(e.to_string()))
    }

    /// Runs once. `inputs` are tensors by name, in any order; each has the type and shape that [`Session::inputs`]
    /// says.
    ///
    /// # Errors
    /// An input that is missing, unknown or of another type or shape; a failed host function; a lost device.
    pub fn run(&self, inputs: &[(&str, Tensor)]) -> Result<Outputs, Error> {
        Ok(self.named(self.run_in_order(&self.in_order(inputs)?)?))
    }

    /// As [`Session::run`], with results in the memory of `outputs` from an earlier run of this session: if these are
    /// not shared, no memory is allocated for tensors. For a model in parts or on the interpreter the results are new.
    ///
    /// ```
    /// # use weft::{Device, Model, Options, Outputs, Tensor};
    /// # fn main() -> Result<(), weft::Error> {
    /// # let device = Device::best();
    /// let model = Model::from_text("graph @main(%x: f32[4]) -> (y: f32[4]) {\n  %y = neg %x : f32[4]\n  return %y\n}\n")?;
    /// let session = model.compile(&Options::for_device(&device))?.session(&device)?;
    /// let mut outputs = Outputs::default();
    /// for i in 0..3 {
    ///     session.run_into(&[("x", Tensor::from_vec(vec![4], vec![i as f32; 4]))], &mut outputs)?;
    ///     assert_eq!(outputs["y"].to_f32_vec(), [-(i as f32); 4]);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_into(&self, inputs: &[(&str, Tensor)], outputs: &mut Outputs) -> Result<(), Error> {
        let given = self.in_order(inputs)?;
        let mut tensors: Vec<Tensor> = outputs.list.drain(..).map(|(_, t)| t).collect();
        let done = match &self.execution {
            Execution::Gpu { session, .. } => session.run_into(&given, &mut tensors),
            Execution::Open { session, .. } => session.run_into(&given, &mut tensors),
            Execution::Native { .. } | Execution::Staged(_) | Execution::Interpreted { .. } => {
                *outputs = self.named(self.run_in_order(&given)?);
                return Ok(());
            }
        };
        match done {
            Err(GpuError::TooWide(_)) => tensors = interpret(&self.module, &self.functions, &given)?,
            other => drop(other?),
        }
        *outputs = self.named(self.checked(&given, tensors)?);
        Ok(())
    }

    /// The results of a run with these inputs. Debug builds refuse positions that there are not, as the fault of a
    /// kernel.
    fn checked(&self, inputs: &[Tensor], results: Vec<Tensor>) -> Result<Vec<Tensor>, Error> {
        if cfg!(debug_assertions) {
            let lost = lost_positions(&self.module, inputs, &results);
            if !lost.is_empty() {
                return Err(CompileError::Bug { at: self.place().into(), message: lost.join("; ") }.into());
            }
        }
        Ok(results)
    }

    /// Runs once, without blocking the polling thread while the device works. Runs that are controlled by the host
    /// (models in parts, the interpreter) use a separate thread. It works with any executor.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub async fn run_async(&self, inputs: &[(&str, Tensor)]) -> Result<Outputs, Error> {
        let given = self.in_order(inputs)?;
        let results = match &self.execution {
            Execution::Gpu { session, .. } => session.run_async(&given).await,
            Execution::Open { session, .. } => session.run_async(&given).await,
            Execution::Staged(staged) => {
                let staged = staged.clone();
                return Ok(self.named(on_thread(move || staged.staged.run(&given)).await?));
            }
            Execution::Native { session, .. } => {
                let (session, functions, module) = (session.clone(), self.functions.clone(), self.module.clone());
                let run = move || Ok(run_native(&session, &module, &functions, &given)?.0);
                return Ok(self.named(on_thread(run).await?));
            }
            Execution::Interpreted { module, .. } => {
                self.check_ranges(&given)?;
                return self.interpret_async(module.clone(), given).await;
            }
        };
        match results {
            Err(GpuError::TooWide(_)) => self.interpret_async(self.module.clone(), given).await,
            other => Ok(self.named(self.checked(&given, other?)?)),
        }
    }

    async fn interpret_async(&self, module: Arc<Module>, inputs: Vec<Tensor>) -> Result<Outputs, Error> {
        let functions = self.functions.clone();
        Ok(self.named(on_thread(move || interpret(&module, &functions, &inputs)).await?))
    }

    /// Runs once with inputs and results in the model's order.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_in_order(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        Ok(self.run_placed(inputs)?.0)
    }

    /// As [`Session::run_in_order`]; also returns the place of the run.
    ///
    /// # Errors
    /// As there.
    pub fn run_placed(&self, inputs: &[Tensor]) -> Result<(Vec<Tensor>, &'static str), Error> {
        let (results, place) = self.run_unchecked(inputs)?;
        Ok((self.checked(inputs, results)?, place))
    }

    /// As [`Session::run_placed`], with whatever positions kernels find.
    ///
    /// # Errors
    /// As there.
    pub fn run_unchecked(&self, inputs: &[Tensor]) -> Result<(Vec<Tensor>, &'static str), Error> {
        let results = match &self.execution {
            Execution::Gpu { session, .. } => session.run(inputs),
            Execution::Open { session, .. } => session.run(inputs),
            Execution::Staged(staged) => return Ok((staged.staged.run(inputs)?, self.place())),
            Execution::Native { session, .. } => {
                let (results, native) = run_native(session, &self.module, &self.functions, inputs)?;
                return Ok((results, if native { self.place() } else { INTERPRETER }));
            }
            Execution::Interpreted { module, .. } => {
                self.check_ranges(inputs)?;
                return Ok((interpret(module, &self.functions, inputs)?, INTERPRETER));
            }
        };
        match results {
            // Kernels read integers as 32 bits, and the data of a run may exceed that.
            Err(GpuError::TooWide(_)) => Ok((interpret(&self.module, &self.functions, inputs)?, INTERPRETER)),
            other => Ok((other?, self.place())),
        }
    }

    /// The inputs in the model's order.
    pub(crate) fn in_order<T: Clone>(&self, inputs: &[(&str, T)]) -> Result<Vec<T>, Error> {
        let ports = input_ports(&self.module);
        let names = || ports.iter().map(|p| p.0.to_string()).collect::<Vec<_>>().join(", ");
        if let Some((name, _)) = inputs.iter().find(|(n, _)| !ports.iter().any(|p| p.0.as_str() == *n)) {
            return Err(Error::Input(format!("the model has no input `{name}`; there are: {}", names())));
        }
        let find = |name: &str| inputs.iter().find(|i| i.0 == name).map(|i| i.1.clone());
        let given = ports.iter().map(|p| {
            find(p.0.as_str()).ok_or_else(|| Error::Input(format!("input `{}` is missing: it is {:?}", p.0, p.1)))
        });
        given.collect()
    }

    pub(crate) fn named(&self, results: Vec<Tensor>) -> Outputs {
        Outputs { list: self.output_names().into_iter().zip(results).collect() }
    }

    /// Names and types of the inputs, in order.
    pub fn inputs(&self) -> Vec<(String, TensorType)> {
        input_ports(&self.module).into_iter().map(|(n, t)| (n.to_string(), t)).collect()
    }
    /// Names of the results, in order.
    pub fn output_names(&self) -> Vec<String> {
        self.module.main().result_names.iter().map(|n| n.to_string()).collect()
    }
    /// The place of a run: `device`, `device and host`, `host`, or the interpreter.
    pub fn place(&self) -> &'static str {
        match &self.execution {
            Execution::Gpu { session, .. } => place_of(session),
            Execution::Open { session, .. } => place_of(session.first()),
            Execution::Native { session, .. } => {
                let session = session.session();
                steps_in(session.has_kernels(), session.has_host_steps())
            }
            Execution::Staged(s) => match (s.staged.has_device_steps(), s.staged.has_host_steps()) {
                (true, false) => "device",
                (true, true) => "device and host",
                (false, _) => INTERPRETER,
            },
            Execution::Interpreted { .. } => INTERPRETER,
        }
    }
    /// True when mixed precision has put anything into f16, as far as a plan that was compiled here says.
    pub fn is_mixed(&self) -> bool {
        match &self.execution {
            Execution::Gpu { compiled, .. } | Execution::Open { compiled, .. } | Execution::Native { compiled, .. } => {
                compiled.as_ref().is_some_and(|c| has_halved(&c.passes))
            }
            Execution::Staged(staged) => staged.is_mixed(),
            Execution::Interpreted { mixed, .. } => *mixed,
        }
    }
    /// The session on the device, for tensors that stay there, for times, and for the caller's own commands; `None` for
    /// models in parts and on the interpreter.
    pub fn on_device(&self) -> Option<&runtime_gpu::Session> {
        match &self.execution {
            Execution::Gpu { session, .. } => Some(session),
            _ => None,
        }
    }
    /// The session on the processor, for the times of its kernels; `None` on other devices and for open sizes.
    pub fn on_processor(&self) -> Option<&runtime_cpu::Session> {
        match &self.execution {
            Execution::Native { session, .. } if !session.is_open() => Some(session.session()),
            _ => None,
        }
    }
    /// What the interpreter runs, where it runs the model as a whole: to observe it node by node.
    pub fn interpreted(&self) -> Option<&Module> {
        match &self.execution {
            Execution::Interpreted { module, .. } => Some(module),
            _ => None,
        }
    }
    /// Runs a model that is in parts once, part by part, and lets `visit` look at each part after it ran;
    /// others do not run.
    ///
    /// # Errors
    /// As [`Session::run`], and errors of `visit`.
    pub fn visit_parts(&self, inputs: &[Tensor], visit: &mut runtime_gpu::Visit<'_, Error>) -> Result<(), Error> {
        if let Execution::Staged(staged) = &self.execution {
            staged.staged.visit(inputs, visit)?;
        }
        Ok(())
    }
    /// The compilation, if the model was compiled now and as a whole.
    pub fn compilation(&self) -> Option<&Compiled> {
        match &self.execution {
            Execution::Gpu { compiled, .. } | Execution::Open { compiled, .. } | Execution::Native { compiled, .. } => {
                compiled.as_deref()
            }
            _ => None,
        }
    }

    /// A session with one plan, for inputs of exactly these sizes, from a session for open sizes.
    ///
    /// # Errors
    /// Sizes that the network, the declared ranges or the device do not take.
    pub fn sized_for(self, inputs: &[Tensor]) -> Result<Session, Error> {
        let execution = match self.execution {
            Execution::Open { session, compiled } => {
                let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
                let Planned { session, compiled } = session.planned(&shapes, compiled)?;
                Execution::Gpu { session: Arc::new(session), compiled }
            }
            Execution::Native { session, compiled } => {
                let (session, compiled) = session.sized_for(inputs, compiled)?;
                Execution::Native { session: Arc::new(session), compiled }
            }
            other => other,
        };
        Ok(Session { execution, ..self })
    }
}

fn place_of(session: &runtime_gpu::Session) -> &'static str {
    steps_in(session.has_device_steps(), session.has_host_steps())
}

/// The place of a run with steps on the device, and on the host.
fn steps_in(device: bool, host: bool) -> &'static str {
    match (device, host) {
        (true, false) => "device",
        (true, true) => "device and host",
        (false, _) => "host",
    }
}

/// Runs by a plan on the processor; in the interpreter if the inputs hold integers beyond 32 bits, which kernels do not
/// take. Also returns whether the plan ran.
fn run_native(
    session: &Native,
    module: &Module,
    functions: &HostFunctions,
    inputs: &[Tensor],
) -> Result<(Vec<Tensor>, bool), Error> {
    match session.run(inputs) {
        Err(Error::Processor(CpuError::TooWide(_))) => Ok((interpret(module, functions, inputs)?, false)),
        other => Ok((other?, true)),
    }
}

fn interpret(module: &Module, functions: &HostFunctions, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
    let run = || Ok(Interpreter::new(module).with_host(functions.on_tensors()).run(module.entry, inputs)?);
    if module.functions.len() == 1 {
        return run();
    }
    std::thread::scope(|s| {
        let started = std::thread::Builder::new().name("weft-run".into()).stack_size(STACK).spawn_scoped(s, run);
        let thread = started.map_err(|e| GpuError::Host(format!("no thread for a run: {e}")))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Bytes of stack for a run on the host: calls nest there as they do in the functions.
const STACK: usize = 64 << 20;

/// The result of `work`, on a separate thread.
async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    let (sender, done) = async_channel::bounded(1);
    // Nobody listens any more when the run was given up.
    let run = move || drop(sender.try_send(work()));
    let started = std::thread::Builder::new().name("weft-run".into()).stack_size(STACK).spawn(run);
    started.map_err(|e| GpuError::Host(format!("no thread for a run: {e}")))?;
    done.recv().await.unwrap_or_else(|_| Err(GpuError::Host("a run on the host ended without results".into()).into()))
}
