//! Runs in flight: what the host does for one overlaps with what the device does for another.

use crate::device_tensor::RunInput;
use crate::error::GpuError;
use crate::pool::Lease;
use crate::readback::{Polling, Readback};
use crate::resources::{Resources, Shared};
use crate::session::Session;
use crate::transfers::Transfers;
use compiler::tensor::Tensor;
use std::sync::Arc;

/// A run that is submitted, with the copies of its results. It has resources of its own until it is waited for or dropped.
#[must_use = "the results come when the run is waited for"]
pub struct InFlight {
    shared: Arc<Shared>,
    resources: Lease<Resources>,
    results: Readback,
}

impl Session {
    /// Uploads inputs and submits a run with the copies of its results, and waits for neither. The device does runs in the order of these calls, and
    /// each [`InFlight`] has the results of its own inputs, in whatever order they are waited for. As many may be in flight as the session's options
    /// say; beyond, the future waits until one is waited for or dropped.
    ///
    /// Where the host decides or computes something in the middle of a run, the future waits for that.
    ///
    /// # Errors
    /// Wrong inputs, a failed host step, a lost device.
    pub async fn submit(&self, inputs: &[RunInput<'_>]) -> Result<InFlight, GpuError> {
        let shared = &self.shared;
        let mut resources = self.pool.take().await;
        let uploads = resources.bind(shared, inputs, &[])?;
        let encoder = resources.execute(shared, uploads, Polling::Thread).await?;
        let results = Readback::submit(shared, &resources, encoder, &shared.plan.outputs);
        resources.staging.submitted();
        Ok(InFlight { shared: shared.clone(), resources, results })
    }
}

impl InFlight {
    /// The results, in the order of the plan's outputs. Whoever polls the future is woken when they are there.
    ///
    /// # Errors
    /// A lost device.
    pub async fn results(self) -> Result<Vec<Tensor>, GpuError> {
        let mut outputs = vec![];
        self.finish(&mut outputs, Polling::Thread).await?;
        Ok(outputs)
    }

    /// Blocks until the results are there.
    ///
    /// # Errors
    /// A lost device.
    pub fn wait(self) -> Result<Vec<Tensor>, GpuError> {
        let mut outputs = vec![];
        self.wait_into(&mut outputs)?;
        Ok(outputs)
    }

    /// As [`InFlight::wait`], with results in the memory of `outputs` as [`Session::run_into`] has them.
    ///
    /// # Errors
    /// A lost device.
    pub fn wait_into(self, outputs: &mut Vec<Tensor>) -> Result<(), GpuError> {
        pollster::block_on(self.finish(outputs, Polling::Caller))
    }

    /// Bytes that the run has moved.
    pub fn transfers(&self) -> Transfers {
        self.resources.moved.so_far()
    }

    async fn finish(self, outputs: &mut Vec<Tensor>, polling: Polling) -> Result<(), GpuError> {
        self.results.done(&self.shared.gpu, polling).await?;
        self.results.tensors(&self.shared, &self.resources, outputs)
    }
}
