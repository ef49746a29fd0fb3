//! Models whose sizes are decided at run time, on a device: all parts that can be planned run there.

use crate::alone::plans_alone;
use crate::cpu_form::has_halved;
use crate::device::Device;
use crate::error::Error;
use crate::native::Native;
use crate::options::Options;
use crate::program::Program;
use compiler::compile::{CompileError, Compiled, split_loop, split_network};
use compiler::graph::Module;
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use runtime_gpu::{Open, OpenPlanned, OpenSession, Part, Planned, RunPart, Staged};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A model in parts.
pub(crate) struct StagedModel {
    pub(crate) staged: Staged<Error>,
    mixed: Arc<AtomicBool>,
}

impl StagedModel {
    /// Opens the model in parts; `None` if no node decides sizes.
    ///
    /// # Errors
    /// An error of the compilation.
    pub(crate) fn open(
        module: &Module,
        device: &Device,
        profile: &DeviceProfile,
        options: &Options,
    ) -> Result<Option<StagedModel>, Error> {
        let Some(stages) = split_network(module)? else { return Ok(None) };
        let mixed = Arc::new(AtomicBool::new(false));
        let opener =
            Opener { device: device.clone(), profile: profile.clone(), options: options.clone(), mixed: mixed.clone() };
        let staged = Staged::open(stages, options.compile.dims.clone(), options.host_functions.clone(), opener.open())?;
        Ok(Some(StagedModel { staged, mixed }))
    }
    /// True when mixed precision has put anything into f16.
    pub(crate) fn is_mixed(&self) -> bool {
        self.mixed.load(Ordering::Relaxed)
    }
}

/// What opens a part.
#[derive(Clone)]
struct Opener {
    device: Device,
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
            Ok(mut program) => {
                if program.compiled.as_ref().is_some_and(|c| has_halved(&c.passes)) {
                    self.mixed.store(true, Ordering::Relaxed);
                }
                let gpu = match &self.device {
                    Device::Gpu(gpu) => gpu,
                    Device::Cpu(processor) => {
                        let native = Native::open(&mut program, &module, processor, &self.options)?;
                        return Ok(Part::Other(Box::new(NativePart { native, compiled: program.compiled })));
                    }
                    Device::Interpreter => return host_part(module),
                };
                let session = program.open(gpu, &self.options)?;
                let alone = plans_alone(&module, gpu, &self.options);
                let compiled = program.compiled;
                match compiled.as_ref().and_then(|c| c.open.clone()) {
                    Some(open) => {
                        let session = OpenSession::new(open, session).with_plans_alone(alone);
                        Ok(Part::Open(Box::new(OpenPlanned { session, compiled })))
                    }
                    None => Ok(Part::Session(Box::new(Planned { session, compiled }))),
                }
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

/// A part for the interpreter.
fn host_part(module: Module) -> Result<Part<Error>, Error> {
    crate::memory::check_cpu_memory(&module)?;
    Ok(Part::Host(Box::new(module)))
}

/// A part on the processor.
struct NativePart {
    native: Native,
    /// Its compilation, if it was compiled here.
    compiled: Option<Box<Compiled>>,
}

impl RunPart<Error> for NativePart {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        self.native.run(inputs)
    }
    fn has_kernels(&self) -> bool {
        self.native.session().has_kernels()
    }
    fn has_host_steps(&self) -> bool {
        self.native.session().has_host_steps()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A part that ran on the processor, as it runs for inputs of these sizes.
pub struct PartOnProcessor {
    native: Native,
    compiled: Box<Compiled>,
}

impl PartOnProcessor {
    /// What [`Ran::Other`](runtime_gpu::Ran::Other) is of a session here; `None` for a plan from a file.
    ///
    /// # Errors
    /// Sizes that the part does not take.
    pub fn of(part: &dyn Any, inputs: &[Tensor]) -> Result<Option<PartOnProcessor>, Error> {
        let Some(part) = part.downcast_ref::<NativePart>() else { return Ok(None) };
        let (native, compiled) = part.native.sized_for(inputs, part.compiled.clone())?;
        Ok(compiled.map(|compiled| PartOnProcessor { native, compiled }))
    }
    /// Its session.
    pub fn session(&self) -> &runtime_cpu::Session {
        self.native.session()
    }
    /// Its compilation.
    pub fn compiled(&self) -> &Compiled {
        &self.compiled
    }
}
