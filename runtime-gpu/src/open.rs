//! Networks of open sizes: pipelines and constants are made once, activations for each list of sizes that is used.

use crate::device_outputs::DeviceOutputs;
use crate::error::GpuError;
use crate::in_flight::InFlight;
use crate::planned::Planned;
use crate::run::RunTimes;
use crate::session::Session;
use crate::tensors::{DeviceTensor, RunInput};
use compiler::compile::{Compiled, OpenPlan, SizeError};
use compiler::name::Name;
use compiler::recent::Recent;
use compiler::tensor::Tensor;
use std::sync::Arc;

/// An open session for inputs of any sizes within the declared ranges. A list of sizes that came up before costs
/// nothing but its run; a new one costs the numbering of buffers, their allocation and bind groups, no compilation and
/// no upload of constants.
pub struct OpenSession {
    open: Arc<OpenPlan>,
    first: Session,
    kept: Recent<Vec<(Name, i64)>, Session>,
    alone: Option<Arc<Alone>>,
}

/// Compiles for these sizes of all open dimensions alone.
pub type Alone = dyn Fn(&[(Name, i64)]) -> Result<Planned, GpuError> + Send + Sync;

impl From<SizeError> for GpuError {
    fn from(e: SizeError) -> GpuError {
        match e {
            SizeError::BeyondOpenPlan(why) => GpuError::BeyondOpenPlan(why),
            SizeError::Bug { .. } => GpuError::Internal(e.to_string()),
            other => GpuError::Input(other.to_string()),
        }
    }
}

impl OpenSession {
    /// Makes it from a session for some sizes, and the open plan for others.
    pub fn new(open: Arc<OpenPlan>, first: Session) -> OpenSession {
        OpenSession { open, first, kept: Recent::default(), alone: None }
    }

    /// Sizes beyond the limits of the kernels for all sizes are compiled by `alone`; without it they are refused.
    pub fn with_plans_alone(self, alone: Arc<Alone>) -> OpenSession {
        OpenSession { alone: Some(alone), ..self }
    }

    /// The session for inputs of these shapes, in the order of the network's inputs.
    ///
    /// # Errors
    /// Shapes that the network does not take, sizes beyond the declared ranges or the device, memory.
    pub fn at(&self, shapes: &[&[usize]]) -> Result<Arc<Session>, GpuError> {
        let sizes = self.open.sizes(shapes)?;
        self.kept.get(sizes, |sizes| match (self.open.at(sizes), &self.alone) {
            (Err(SizeError::BeyondOpenPlan(_)), Some(alone)) => Ok(alone(sizes)?.session),
            (plan, _) => self.first.with_plan(plan?.0),
        })
    }

    /// The session for inputs of the shapes of `inputs`.
    ///
    /// # Errors
    /// As [`OpenSession::at`].
    pub fn for_inputs(&self, inputs: &[RunInput<'_>]) -> Result<Arc<Session>, GpuError> {
        let shapes: Vec<&[usize]> = inputs.iter().map(RunInput::shape).collect();
        self.at(&shapes)
    }

    fn for_tensors(&self, inputs: &[Tensor]) -> Result<Arc<Session>, GpuError> {
        let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
        self.at(&shapes)
    }

    /// The session for inputs of exactly these shapes, with its compilation; `compiled` is the compilation for all
    /// sizes.
    ///
    /// # Errors
    /// As [`OpenSession::at`].
    pub fn planned(&self, shapes: &[&[usize]], mut compiled: Option<Box<Compiled>>) -> Result<Planned, GpuError> {
        let sizes = self.open.sizes(shapes)?;
        let (plan, memory) = match (self.open.at(&sizes), &self.alone) {
            (Err(SizeError::BeyondOpenPlan(_)), Some(alone)) => return alone(&sizes),
            (plan, _) => plan?,
        };
        let session = self.first.with_plan(plan.clone())?;
        if let Some(c) = &mut compiled {
            c.take_sizes(plan, memory);
        }
        Ok(Planned { session, compiled })
    }

    /// Runs once: `inputs` in the order of the network's inputs, results in the order of its outputs.
    ///
    /// # Errors
    /// As [`OpenSession::at`] and [`Session::run`].
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, GpuError> {
        self.for_tensors(inputs)?.run(inputs)
    }

    /// As [`Session::run_into`].
    ///
    /// # Errors
    /// As [`OpenSession::run`].
    pub fn run_into(&self, inputs: &[Tensor], outputs: &mut Vec<Tensor>) -> Result<RunTimes, GpuError> {
        self.for_tensors(inputs)?.run_into(inputs, outputs)
    }

    /// As [`Session::run_async`]; memory for sizes that are new is allocated on the thread that polls.
    ///
    /// # Errors
    /// As [`OpenSession::run`].
    pub async fn run_async(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, GpuError> {
        self.for_tensors(inputs)?.run_async(inputs).await
    }

    /// As [`Session::submit`]. Runs at one list of sizes take turns; those at others have memory of their own.
    ///
    /// # Errors
    /// As [`OpenSession::run`].
    pub async fn submit(&self, inputs: &[RunInput<'_>]) -> Result<InFlight, GpuError> {
        self.for_inputs(inputs)?.submit(inputs).await
    }

    /// As [`Session::run_bound`]: results stay on the device, in the buffers that are given for them.
    ///
    /// # Errors
    /// As [`OpenSession::at`] and [`Session::run_bound`].
    pub async fn run_bound(
        &self,
        inputs: &[RunInput<'_>],
        outputs: &[Option<&DeviceTensor>],
    ) -> Result<DeviceOutputs, GpuError> {
        self.for_inputs(inputs)?.run_bound(inputs, outputs).await
    }

    /// The session that the others share pipelines and constants with.
    pub fn first(&self) -> &Session {
        &self.first
    }

    /// Lists of sizes that are ready to run.
    pub fn sizes_kept(&self) -> usize {
        self.kept.len()
    }
}
