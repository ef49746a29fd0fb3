//! A compiled network.

use crate::alone::plans_alone;
use crate::cpu_form::cpu_module;
use crate::device::Device;
use crate::error::Error;
use crate::native::Native;
use crate::options::Options;
use crate::program::Program;
use crate::session::{Execution, Session};
use crate::staged::StagedModel;
use compiler::compile::{CompileError, Compiled, split_network};
use compiler::graph::Module;
use std::sync::Arc;

/// How the module runs.
enum Form {
    /// By one plan.
    Planned(Box<Program>),
    /// In parts; each is compiled when its sizes are known.
    Staged,
    /// By the interpreter, with the reason if that was not requested.
    Interpreted(Option<String>),
}

/// A network compiled for a device. Sessions are opened from it.
pub struct CompiledModel {
    module: Module,
    options: Options,
    form: Form,
}

impl CompiledModel {
    pub(crate) fn new(module: Module, options: &Options) -> Result<CompiledModel, Error> {
        let form = match &options.profile {
            None => Form::Interpreted(None),
            Some(profile) => match Program::new(&module, profile, options) {
                Ok(program) => Form::Planned(Box::new(program)),
                Err(CompileError::NeedsCpu(why)) => match split_network(&module)? {
                    Some(_) => Form::Staged,
                    None => Form::Interpreted(Some(why)),
                },
                Err(e) => return Err(e.into()),
            },
        };
        Ok(CompiledModel { module, options: options.clone(), form })
    }

    /// By a plan that was made before.
    pub(crate) fn of_program(module: Module, options: &Options, program: Program) -> CompiledModel {
        CompiledModel { module, options: options.clone(), form: Form::Planned(Box::new(program)) }
    }

    /// The whole compilation, for reports: groups, kernels, remarks. `None` if the plan came from disk, or the model
    /// runs in parts or in the interpreter.
    pub fn compilation(&self) -> Option<&Compiled> {
        match &self.form {
            Form::Planned(program) => program.compiled.as_deref(),
            Form::Staged | Form::Interpreted(_) => None,
        }
    }

    /// True when the plan was made by an earlier start, or is from a bundle.
    pub fn came_from_disk(&self) -> bool {
        matches!(&self.form, Form::Planned(program) if program.compiled.is_none())
    }

    /// Opens a session on the device: memory is allocated, weights go up, the driver makes its pipelines.
    ///
    /// # Errors
    /// [`Error::Device`]: the kernels exceed this device's limits, memory is insufficient, or host functions are
    /// missing.
    pub fn session(self, device: &Device) -> Result<Session, Error> {
        let CompiledModel { module, options, form } = self;
        let execution = match (form, device) {
            (Form::Planned(mut program), Device::Gpu(gpu)) => {
                let session = program.open(gpu, &options)?;
                match program.compiled.as_ref().and_then(|c| c.open.clone()) {
                    Some(open) => {
                        let session = runtime_gpu::OpenSession::new(open, session);
                        let session = Arc::new(session.with_plans_alone(plans_alone(&module, gpu, &options)));
                        Execution::Open { session, compiled: program.compiled }
                    }
                    None => Execution::Gpu { session: Arc::new(session), compiled: program.compiled },
                }
            }
            (Form::Staged, Device::Gpu(_) | Device::Cpu(_)) => {
                let profile = options.profile.clone().unwrap_or_else(|| device.profile());
                match StagedModel::open(&module, device, &profile, &options)? {
                    Some(staged) => Execution::Staged(Arc::new(staged)),
                    None => interpreted(&module, &options)?,
                }
            }
            (Form::Planned(mut program), Device::Cpu(processor)) => {
                let session = Arc::new(Native::open(&mut program, &module, processor, &options)?);
                Execution::Native { session, compiled: program.compiled }
            }
            (Form::Interpreted(why), _) => {
                if let Some(why) = why {
                    options.watch.moves_to_interpreter(&why);
                }
                interpreted(&module, &options)?
            }
            (Form::Planned(_) | Form::Staged, Device::Interpreter) => interpreted(&module, &options)?,
        };
        Ok(Session::new(module, execution, options.host_functions, options.compile.dims))
    }
}

fn interpreted(module: &Module, options: &Options) -> Result<Execution, Error> {
    crate::memory::check_cpu_memory(module)?;
    let (module, mixed) = cpu_module(module.clone(), &options.pipeline)?;
    Ok(Execution::Interpreted { module: Arc::new(module), mixed })
}
