//! Networks on a GPU, for fixed and for open sizes.

use crate::alone::plans_alone;
use crate::error::Error;
use crate::execution::{Execution, Pending, steps_in};
use crate::machine::Machine;
use crate::options::Options;
use crate::program::Program;
use compiler::compile::Compiled;
use compiler::graph::Module;
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use runtime_gpu::{DeviceTensor, Gpu, GpuError, OpenPlanned, OpenSession, Part, Planned, Recorder, RunInput};
use std::sync::Arc;

impl Machine for Arc<Gpu> {
    fn label(&self) -> String {
        let d = &self.description;
        format!("{} ({}, {})", d.name, d.backend, d.driver)
    }
    fn profile(&self) -> DeviceProfile {
        self.profile.clone()
    }
    fn as_here(&self, named: DeviceProfile) -> Result<DeviceProfile, Error> {
        Ok(named.limited_to(&self.profile))
    }
    fn open(&self, program: Program, module: &Module, options: &Options) -> Result<Box<dyn Execution>, Error> {
        Ok(match opened(self, program, module, options)? {
            Opened::Fixed(Planned { session, compiled }) => Box::new(OnGpu { session: Arc::new(session), compiled }),
            Opened::Open(OpenPlanned { session, compiled }) => Box::new(OpenOnGpu { session, compiled }),
        })
    }
    fn open_part(&self, program: Program, module: Module, options: &Options) -> Result<Part<Error>, Error> {
        Ok(match opened(self, program, &module, options)? {
            Opened::Fixed(planned) => Part::Session(Box::new(planned)),
            Opened::Open(planned) => Part::Open(Box::new(planned)),
        })
    }
    fn read<'a>(&'a self, tensor: &'a DeviceTensor) -> Pending<'a, Tensor> {
        Box::pin(async { Ok(tensor.read(self).await?) })
    }
}

/// A session of a program, and the compilation that it comes from.
enum Opened {
    Fixed(Planned),
    Open(OpenPlanned),
}

fn opened(gpu: &Arc<Gpu>, mut program: Program, module: &Module, options: &Options) -> Result<Opened, Error> {
    let session = program.open(gpu, options)?;
    let compiled = program.compiled;
    Ok(match compiled.as_ref().and_then(|c| c.open.clone()) {
        Some(open) => {
            let session = OpenSession::new(open, session).with_plans_alone(plans_alone(module, gpu, options));
            Opened::Open(OpenPlanned { session, compiled })
        }
        None => Opened::Fixed(Planned { session, compiled }),
    })
}

/// By one plan.
struct OnGpu {
    session: Arc<runtime_gpu::Session>,
    compiled: Option<Box<Compiled>>,
}

impl Execution for OnGpu {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        Ok(self.session.run(inputs)?)
    }
    fn run_recorded(&self, inputs: &[Tensor], recorder: &Recorder) -> Result<Vec<Tensor>, Error> {
        Ok(self.session.run_recorded(inputs, recorder)?)
    }
    fn run_into(&self, inputs: &[Tensor], outputs: &mut Vec<Tensor>) -> Result<(), Error> {
        self.session.run_into(inputs, outputs)?;
        Ok(())
    }
    fn run_async(&self, inputs: Vec<Tensor>) -> Pending<'_, Vec<Tensor>> {
        Box::pin(async move { Ok(self.session.run_async(&inputs).await?) })
    }
    fn place(&self) -> &'static str {
        place_of(&self.session)
    }
    fn compilation(&self) -> Option<&Compiled> {
        self.compiled.as_deref()
    }
    fn sized_for(self: Box<Self>, _inputs: &[Tensor]) -> Result<Box<dyn Execution>, Error> {
        Ok(self)
    }
    fn on_device(&self) -> Option<&runtime_gpu::Session> {
        Some(&self.session)
    }
    fn on_device_for(&self, _inputs: &[RunInput<'_>]) -> Result<Option<Arc<runtime_gpu::Session>>, GpuError> {
        Ok(Some(self.session.clone()))
    }
}

/// By plans, one for each list of sizes.
struct OpenOnGpu {
    session: OpenSession,
    compiled: Option<Box<Compiled>>,
}

impl Execution for OpenOnGpu {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        Ok(self.session.run(inputs)?)
    }
    fn run_recorded(&self, inputs: &[Tensor], recorder: &Recorder) -> Result<Vec<Tensor>, Error> {
        let given: Vec<RunInput<'_>> = inputs.iter().map(RunInput::Host).collect();
        Ok(self.session.for_inputs(&given)?.run_recorded(inputs, recorder)?)
    }
    fn run_into(&self, inputs: &[Tensor], outputs: &mut Vec<Tensor>) -> Result<(), Error> {
        self.session.run_into(inputs, outputs)?;
        Ok(())
    }
    fn run_async(&self, inputs: Vec<Tensor>) -> Pending<'_, Vec<Tensor>> {
        Box::pin(async move { Ok(self.session.run_async(&inputs).await?) })
    }
    fn place(&self) -> &'static str {
        place_of(self.session.first())
    }
    fn compilation(&self) -> Option<&Compiled> {
        self.compiled.as_deref()
    }
    fn sized_for(self: Box<Self>, inputs: &[Tensor]) -> Result<Box<dyn Execution>, Error> {
        let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
        let Planned { session, compiled } = self.session.planned(&shapes, self.compiled)?;
        Ok(Box::new(OnGpu { session: Arc::new(session), compiled }))
    }
    fn on_device_for(&self, inputs: &[RunInput<'_>]) -> Result<Option<Arc<runtime_gpu::Session>>, GpuError> {
        self.session.for_inputs(inputs).map(Some)
    }
    fn keeps_tensors_on_device(&self) -> bool {
        true
    }
}

fn place_of(session: &runtime_gpu::Session) -> &'static str {
    steps_in(session.has_device_steps(), session.has_host_steps())
}
