//! Plans on the processor, for fixed and for open sizes.

use crate::error::Error;
use crate::execution::{Execution, Pending, on_thread, steps_in};
use crate::machine::Machine;
use crate::memory::check_run_memory;
use crate::options::Options;
use crate::program::Program;
use compiler::compile::{Compiled, OpenPlan, SizeError};
use compiler::graph::{Module, bind_dims};
use compiler::name::Name;
use compiler::plan::{Content, PlanBuffer};
use compiler::profile::DeviceProfile;
use compiler::recent::Recent;
use compiler::tensor::Tensor;
use runtime_cpu::{CpuError, Isa, Processor, ResultMemory, Work, pack_constant};
use runtime_gpu::{Doing, HostFunctions, Part, Recorder, RunPart, processor_model};
use std::any::Any;
use std::sync::Arc;

/// Sizes of all open dimensions.
type Dims = Vec<(Name, i64)>;

/// A network on the processor.
struct Native {
    /// For fixed sizes; with open ones, for the least of them.
    first: Arc<runtime_cpu::Session>,
    open: Option<OpenNative>,
    functions: HostFunctions,
}

/// A session with its compilation, if it was compiled here.
type Opened = (runtime_cpu::Session, Option<Box<Compiled>>);

/// Compiles for these sizes alone.
type Alone = dyn Fn(&[(Name, i64)]) -> Result<Opened, Error> + Send + Sync;

/// Sessions for sizes of open dimensions, which share constants.
struct OpenNative {
    plan: Arc<OpenPlan>,
    kept: Recent<Dims, runtime_cpu::Session>,
    /// Compiles for sizes that are beyond the open plan.
    alone: Box<Alone>,
}

impl Native {
    /// Opens a session of a program.
    ///
    /// # Errors
    /// Constants that cannot be read; no memory for them or for a run.
    fn open(
        program: &mut Program,
        module: &Module,
        processor: &Arc<Processor>,
        options: &Options,
    ) -> Result<Native, Error> {
        let first = Arc::new(program.open_on(processor, options)?);
        let plan = program.compiled.as_ref().and_then(|c| c.open.clone());
        if plan.is_none() {
            check_run_memory(first.plan())?;
        }
        let open = plan.map(|plan| {
            let (module, processor, options) = (module.clone(), processor.clone(), options.clone());
            let alone = move |sizes: &[(Name, i64)]| {
                let mut module = module.clone();
                bind_dims(&mut module, sizes)?;
                let profile = options.profile.clone().unwrap_or_else(|| processor.profile());
                let mut program = Program::new(&module, &profile, &options)?;
                let session = program.open_on(&processor, &options)?;
                check_run_memory(session.plan())?;
                Ok((session, program.compiled))
            };
            OpenNative { plan, kept: Recent::default(), alone: Box::new(alone) }
        });
        Ok(Native { first, open, functions: options.host_functions.clone() })
    }

    /// Runs once, with inputs and results in the network's order.
    ///
    /// # Errors
    /// Wrong inputs, a failed host step.
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        Ok(self.at(inputs)?.run(inputs, self.functions.on_tensors())?)
    }

    /// As [`Native::run`]; `recorder` takes notes.
    ///
    /// # Errors
    /// As there.
    fn run_recorded(&self, inputs: &[Tensor], recorder: &Recorder) -> Result<Vec<Tensor>, Error> {
        if !recorder.is_on() {
            return self.run(inputs);
        }
        let session = self.at(inputs)?;
        recorder.doing(|| Doing::Between);
        let (results, spans) = session.run_measured(inputs, self.functions.on_tensors())?;
        recorder.add(spans.into_iter().map(|s| (doing(s.work), s.start, s.end)));
        Ok(results)
    }

    /// The session for inputs of these sizes.
    fn at(&self, inputs: &[Tensor]) -> Result<Arc<runtime_cpu::Session>, Error> {
        let Some(open) = &self.open else { return Ok(self.first.clone()) };
        open.kept.get(open.sizes(inputs)?, |sizes| match open.plan.at(sizes) {
            Err(SizeError::BeyondOpenPlan(_)) => Ok((open.alone)(sizes)?.0),
            plan => {
                let plan = plan.map_err(error_of)?.0;
                check_run_memory(&plan)?;
                Ok(self.first.with_plan(plan))
            }
        })
    }

    /// The network for inputs of exactly these sizes, with its compilation; `compiled` is that for all sizes.
    ///
    /// # Errors
    /// Sizes that the network does not take.
    fn sized_for(
        &self,
        inputs: &[Tensor],
        mut compiled: Option<Box<Compiled>>,
    ) -> Result<(Native, Option<Box<Compiled>>), Error> {
        let fixed = |first| Native { first, open: None, functions: self.functions.clone() };
        let Some(open) = &self.open else { return Ok((fixed(self.first.clone()), compiled)) };
        let sizes = open.sizes(inputs)?;
        let (plan, memory) = match open.plan.at(&sizes) {
            Err(SizeError::BeyondOpenPlan(_)) => {
                let (session, compiled) = (open.alone)(&sizes)?;
                return Ok((fixed(Arc::new(session)), compiled));
            }
            plan => plan.map_err(error_of)?,
        };
        check_run_memory(&plan)?;
        let session = self.first.with_plan(plan.clone());
        if let Some(c) = &mut compiled {
            c.take_sizes(plan, memory);
        }
        Ok((fixed(Arc::new(session)), compiled))
    }

    /// The session that runs; with open sizes, one for the least of them.
    fn session(&self) -> &runtime_cpu::Session {
        &self.first
    }
    fn is_open(&self) -> bool {
        self.open.is_some()
    }
}

/// A part of a run on the processor, as a recorded run names it.
fn doing(work: Work) -> Doing {
    match work {
        Work::Inputs => Doing::Upload,
        Work::Outputs => Doing::Readback,
        Work::Prepare => Doing::Prepare,
        Work::Operands => Doing::Upload,
        Work::Copy => Doing::Copy,
        Work::Kernel(i) => Doing::Kernel(i),
        Work::Host(name, group) => Doing::Step(name, group),
    }
}

/// The model of this machine's processor; `CPU` if the system does not say.
pub fn processor_name() -> String {
    let model = processor_model();
    if model.is_empty() { "CPU".into() } else { model }
}

impl Machine for Arc<Processor> {
    fn label(&self) -> String {
        let threads = self.threads();
        let threads = if threads == 1 { "1 thread".to_string() } else { format!("{threads} threads") };
        format!("{} ({}, {threads})", processor_name(), self.isa().name())
    }
    fn profile(&self) -> DeviceProfile {
        DeviceProfile { processor: processor_model(), ..Processor::profile(self) }
    }
    fn as_here(&self, named: DeviceProfile) -> Result<DeviceProfile, Error> {
        Err(Error::NoShaders { name: named.name })
    }
    fn open(&self, program: Program, module: &Module, options: &Options) -> Result<Box<dyn Execution>, Error> {
        Ok(Box::new(OnProcessor::open(self, program, module, options)?))
    }
    fn open_part(&self, program: Program, module: Module, options: &Options) -> Result<Part<Error>, Error> {
        Ok(Part::Other(Box::new(OnProcessor::open(self, program, &module, options)?)))
    }
}

/// A network, or a part of one, on the processor.
struct OnProcessor {
    native: Arc<Native>,
    /// Its compilation, if it was compiled here.
    compiled: Option<Box<Compiled>>,
}

impl OnProcessor {
    fn open(
        processor: &Arc<Processor>,
        mut program: Program,
        module: &Module,
        options: &Options,
    ) -> Result<OnProcessor, Error> {
        let mut progress = options.watch.opens();
        progress("constants", 0, 1);
        let native = Arc::new(Native::open(&mut program, module, processor, options)?);
        Ok(OnProcessor { native, compiled: program.compiled })
    }
}

impl Execution for OnProcessor {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        self.native.run(inputs)
    }
    fn run_recorded(&self, inputs: &[Tensor], recorder: &Recorder) -> Result<Vec<Tensor>, Error> {
        self.native.run_recorded(inputs, recorder)
    }
    fn run_to(
        &self,
        inputs: &[Tensor],
        memory: &mut [Option<ResultMemory<'_>>],
        _: &[String],
    ) -> Result<Vec<Option<Tensor>>, Error> {
        let native = &self.native;
        Ok(native.at(inputs)?.run_into(inputs, native.functions.on_tensors(), memory)?)
    }
    fn run_async(&self, inputs: Vec<Tensor>) -> Pending<'_, Vec<Tensor>> {
        let native = self.native.clone();
        on_thread(move || native.run(&inputs))
    }
    fn place(&self) -> &'static str {
        let session = self.native.session();
        steps_in(session.has_kernels(), session.has_host_steps())
    }
    fn compilation(&self) -> Option<&Compiled> {
        self.compiled.as_deref()
    }
    fn sized_for(self: Box<Self>, inputs: &[Tensor]) -> Result<Box<dyn Execution>, Error> {
        let (native, compiled) = self.native.sized_for(inputs, self.compiled)?;
        Ok(Box::new(OnProcessor { native: Arc::new(native), compiled }))
    }
    fn on_processor(&self) -> Option<&runtime_cpu::Session> {
        (!self.native.is_open()).then(|| self.native.session())
    }
}

impl RunPart<Error> for OnProcessor {
    fn run(&self, inputs: &[Tensor], recorder: &Recorder) -> Result<Vec<Tensor>, Error> {
        self.native.run_recorded(inputs, recorder)
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
        let Some(part) = part.downcast_ref::<OnProcessor>() else { return Ok(None) };
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

/// The bytes of a constant's buffer as kernels of the processor read them, in Rust or in C; none for other buffers.
///
/// # Errors
/// A constant that cannot be read or packed.
pub fn packed_constant(compiled: &Compiled, buffer: &PlanBuffer, isa: Isa) -> Result<Vec<u8>, String> {
    let Content::Constant { name, packer } = &buffer.content else { return Ok(vec![]) };
    let constant = compiled.module.constants.get(name).ok_or_else(|| format!("there is no constant {name}"))?;
    Ok(pack_constant(buffer, constant.load()?, packer.as_deref(), isa)?)
}

impl OpenNative {
    fn sizes(&self, inputs: &[Tensor]) -> Result<Dims, Error> {
        let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
        self.plan.sizes(&shapes).map_err(error_of)
    }
}

fn error_of(e: SizeError) -> Error {
    Error::Processor(match e {
        SizeError::Bug { .. } => CpuError::Internal(e.to_string()),
        other => CpuError::Input(other.to_string()),
    })
}
