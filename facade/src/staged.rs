//! Models whose sizes are decided at run time, on a device: all parts that can be planned run there.

use crate::cpu_form::has_halved;
use crate::error::Error;
use crate::execution::{Execution, INTERPRETER, Pending, on_thread};
use crate::interpreted::host_part;
use crate::machine::Machine;
use crate::options::Options;
use crate::program::Program;
use compiler::compile::{CompileError, split_loop, split_network};
use compiler::graph::Module;
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use runtime_gpu::{Open, Part, Recorder, Staged, Visit};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A model in parts.
#[derive(Clone)]
pub(crate) struct StagedModel {
    staged: Arc<Staged<Error>>,
    mixed: Arc<AtomicBool>,
}

impl StagedModel {
    /// Opens the model in parts; `None` if no node decides sizes.
    ///
    /// # Errors
    /// An error of the compilation.
    pub(crate) fn open(
        module: &Module,
        machine: Arc<dyn Machine>,
        profile: &DeviceProfile,
        options: &Options,
    ) -> Result<Option<StagedModel>, Error> {
        let Some(stages) = split_network(module)? else { return Ok(None) };
        let mixed = Arc::new(AtomicBool::new(false));
        let (profile, kept) = (profile.clone(), options.clone());
        let opener = Opener { machine, profile, options: kept, mixed: mixed.clone() };
        let staged = Staged::open(stages, options.compile.dims.clone(), options.host_functions.clone(), opener.open())?;
        Ok(Some(StagedModel { staged: Arc::new(staged), mixed }))
    }
}

impl Execution for StagedModel {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        self.staged.run(inputs)
    }
    fn run_recorded(&self, inputs: &[Tensor], recorder: &Recorder) -> Result<Vec<Tensor>, Error> {
        self.staged.run_recorded(inputs, recorder)
    }
    fn run_async(&self, inputs: Vec<Tensor>) -> Pending<'_, Vec<Tensor>> {
        let staged = self.staged.clone();
        on_thread(move || staged.run(&inputs))
    }
    fn place(&self) -> &'static str {
        match (self.staged.has_device_steps(), self.staged.has_host_steps()) {
            (true, false) => "device",
            (true, true) => "device and host",
            (false, _) => INTERPRETER,
        }
    }
    fn is_mixed(&self) -> bool {
        self.mixed.load(Ordering::Relaxed)
    }
    fn sized_for(self: Box<Self>, _inputs: &[Tensor]) -> Result<Box<dyn Execution>, Error> {
        Ok(self)
    }
    fn visit_parts(&self, inputs: &[Tensor], visit: &mut Visit<'_, Error>) -> Result<(), Error> {
        self.staged.visit(inputs, visit)?;
        Ok(())
    }
}

/// What opens a part.
#[derive(Clone)]
struct Opener {
    machine: Arc<dyn Machine>,
    profile: DeviceProfile,
    options: Options,
    mixed: Arc<AtomicBool>,
}

impl Opener {
    fn open(self) -> Open<Error> {
        Arc::new(move |module| self.part(module))
    }

    fn part(&self, module: Module) -> Result<Part<Error>, Error> {
        match Program::new(&module, &self.profile, &self.options) {
            Ok(program) => {
                if program.compiled.as_ref().is_some_and(|c| has_halved(&c.passes)) {
                    self.mixed.store(true, Ordering::Relaxed);
                }
                self.machine.open_part(program, module, &self.options)
            }
            Err(CompileError::NeedsCpu(why)) => match split_network(&module)? {
                Some(stages) => {
                    let functions = self.options.host_functions.clone();
                    Ok(Part::Staged(Box::new(Staged::open(
                        stages,
                        self.options.compile.dims.clone(),
                        functions,
                        self.clone().open(),
                    )?)))
                }
                None => self.loop_part(module, &why),
            },
            Err(e) => Err(e.into()),
        }
    }
}

impl Opener {
    /// A part without a plan. If it is a loop, its body may have one, or parts.
    fn loop_part(&self, module: Module, why: &str) -> Result<Part<Error>, Error> {
        if let Some(parts) = split_loop(&module)? {
            let body = self.part(parts.body.clone())?;
            if !matches!(body, Part::Host(_)) {
                return Ok(Part::Loop(Box::new((parts, body))));
            }
        }
        let nodes = module.main().walk().len();
        self.options.watch.moves_to_interpreter(&format!("a part of {nodes} nodes cannot run in kernels: {why}"));
        host_part(module)
    }
}
