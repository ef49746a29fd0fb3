//! Models whose sizes are decided at run time, on a device: all parts that can be planned run there.

use crate::alone::plans_alone;
use crate::cpu_form::has_halved;
use crate::device::Device;
use crate::error::Error;
use crate::native::Native;
use crate::options::Options;
use crate::program::Program;
use compiler::compile::{CompileError, split_network};
use compiler::graph::Module;
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use runtime_gpu::{Open, OpenPlanned, OpenSession, Part, Planned, RunPart, Staged};
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
                        return Ok(Part::Other(Box::new(Native::open(
                            &mut program,
                            &module,
                            processor,
                            &self.options,
                        )?)));
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
            Err(CompileError::NeedsCpu(_)) => match split_network(&module)? {
                Some(stages) => {
                    let functions = self.options.host_functions.clone();
                    Ok(Part::Staged(Box::new(Staged::open(
                        stages,
                        self.options.compile.dims.clone(),
                        functions,
                        self.clone().open(),
                    )?)))
                }
                None => host_part(module),
            },
            Err(e) => Err(e.into()),
        }
    }
}

/// A part for the interpreter.
fn host_part(module: Module) -> Result<Part<Error>, Error> {
    crate::memory::check_cpu_memory(&module)?;
    Ok(Part::Host(Box::new(module)))
}

impl RunPart<Error> for Native {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        Native::run(self, inputs)
    }
    fn has_kernels(&self) -> bool {
        self.session().has_kernels()
    }
    fn has_host_steps(&self) -> bool {
        self.session().has_host_steps()
    }
}
