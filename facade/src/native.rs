//! Plans on the processor, for fixed and for open sizes.

use crate::error::Error;
use crate::memory::check_run_memory;
use crate::options::Options;
use crate::program::Program;
use compiler::compile::{Compiled, OpenPlan, SizeError};
use compiler::graph::{Module, bind_dims};
use compiler::name::Name;
use compiler::plan::{Content, PlanBuffer};
use compiler::recent::Recent;
use compiler::tensor::Tensor;
use runtime_cpu::{CpuError, Isa, Processor, pack_constant};
use runtime_gpu::HostFunctions;
use std::sync::Arc;

/// Sizes of all open dimensions.
type Dims = Vec<(Name, i64)>;

/// A network on the processor.
pub(crate) struct Native {
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
    pub(crate) fn open(
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
    pub(crate) fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        Ok(self.at(inputs)?.run(inputs, self.functions.on_tensors())?)
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
    pub(crate) fn sized_for(
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
    pub(crate) fn session(&self) -> &runtime_cpu::Session {
        &self.first
    }
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
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
