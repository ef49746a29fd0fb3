//! A compiled network.

use crate::device::Device;
use crate::error::Error;
use crate::execution::Execution;
use crate::interpreted::Interpreted;
use crate::options::Options;
use crate::program::Program;
use crate::session::Session;
use crate::staged::StagedModel;
use compiler::compile::{CompileError, Compiled, split_network};
use compiler::graph::Module;

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
        let machine = device.machine();
        let execution: Box<dyn Execution> = match form {
            Form::Planned(program) => machine.open(*program, &module, &options)?,
            Form::Staged if machine.runs_plans() => {
                let profile = options.profile.clone().unwrap_or_else(|| machine.profile());
                match StagedModel::open(&module, machine, &profile, &options)? {
                    Some(staged) => Box::new(staged),
                    None => Box::new(Interpreted::open(&module, &options)?),
                }
            }
            Form::Staged | Form::Interpreted(None) => Box::new(Interpreted::open(&module, &options)?),
            Form::Interpreted(Some(why)) => {
                options.watch.moves_to_interpreter(&why);
                Box::new(Interpreted::open(&module, &options)?)
            }
        };
        Ok(Session::new(module, execution, options.host_functions))
    }
}
