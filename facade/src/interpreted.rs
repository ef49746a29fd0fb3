//! Networks in the interpreter.

use crate::cpu_form::cpu_module;
use crate::error::Error;
use crate::execution::{Execution, INTERPRETER, Pending, STACK, on_thread};
use crate::machine::Machine;
use crate::options::Options;
use crate::program::Program;
use compiler::compile::check_ranges;
use compiler::graph::Module;
use compiler::int::DimRanges;
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use runtime_gpu::{GpuError, HostFunctions, Part, Recorder, observed};
use std::sync::Arc;

/// The interpreter as a machine. It has no limits; its profile has those that every device has.
pub(crate) struct Reference;

impl Machine for Reference {
    fn label(&self) -> String {
        "the interpreter".into()
    }
    fn profile(&self) -> DeviceProfile {
        DeviceProfile::baseline()
    }
    fn runs_plans(&self) -> bool {
        false
    }
    fn as_here(&self, named: DeviceProfile) -> Result<DeviceProfile, Error> {
        Ok(named)
    }
    fn open(&self, _: Program, module: &Module, options: &Options) -> Result<Box<dyn Execution>, Error> {
        Ok(Box::new(Interpreted::open(module, options)?))
    }
    fn open_part(&self, _: Program, module: Module, _: &Options) -> Result<Part<Error>, Error> {
        host_part(module)
    }
}

/// A network in the interpreter.
#[derive(Clone)]
pub(crate) struct Interpreted {
    /// As it runs: with host calls or in mixed precision.
    module: Arc<Module>,
    mixed: bool,
    /// As it was loaded, and the ranges of its open dimensions.
    loaded: Arc<Module>,
    ranges: DimRanges,
    functions: HostFunctions,
}

impl Interpreted {
    /// Makes the module ready.
    ///
    /// # Errors
    /// [`Error::NoRoom`]; a failing pass.
    pub(crate) fn open(module: &Module, options: &Options) -> Result<Interpreted, Error> {
        crate::memory::check_cpu_memory(module)?;
        let (form, mixed) = cpu_module(module.clone(), &options.pipeline)?;
        Ok(Interpreted {
            module: Arc::new(form),
            mixed,
            loaded: Arc::new(module.clone()),
            ranges: options.compile.dims.clone(),
            functions: options.host_functions.clone(),
        })
    }
}

impl Execution for Interpreted {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        self.run_recorded(inputs, &Recorder::default())
    }
    fn run_recorded(&self, inputs: &[Tensor], recorder: &Recorder) -> Result<Vec<Tensor>, Error> {
        // The interpreter itself would take any sizes.
        let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
        check_ranges(&self.loaded, &shapes, &self.ranges).map_err(|e| Error::Input(e.to_string()))?;
        interpret(&self.module, &self.functions, inputs, recorder)
    }
    fn run_async(&self, inputs: Vec<Tensor>) -> Pending<'_, Vec<Tensor>> {
        let own = self.clone();
        on_thread(move || own.run(&inputs))
    }
    fn place(&self) -> &'static str {
        INTERPRETER
    }
    fn is_mixed(&self) -> bool {
        self.mixed
    }
    fn sized_for(self: Box<Self>, _inputs: &[Tensor]) -> Result<Box<dyn Execution>, Error> {
        Ok(self)
    }
    fn interpreted(&self) -> Option<&Module> {
        Some(&self.module)
    }
}

/// Runs a module once in the interpreter; `recorder` takes notes.
///
/// # Errors
/// Wrong inputs, a failed node.
pub(crate) fn interpret(
    module: &Module,
    functions: &HostFunctions,
    inputs: &[Tensor],
    recorder: &Recorder,
) -> Result<Vec<Tensor>, Error> {
    let run = || Ok(observed(module, functions, recorder).run(module.entry, inputs)?);
    if module.functions.len() == 1 {
        return run();
    }
    std::thread::scope(|s| {
        let started = std::thread::Builder::new().name("weft-run".into()).stack_size(STACK).spawn_scoped(s, run);
        let thread = started.map_err(|e| GpuError::Host(format!("no thread for a run: {e}")))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A part for the interpreter.
///
/// # Errors
/// [`Error::NoRoom`].
pub(crate) fn host_part(module: Module) -> Result<Part<Error>, Error> {
    crate::memory::check_cpu_memory(&module)?;
    Ok(Part::Host(Box::new(module)))
}
