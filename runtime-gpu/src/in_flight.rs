//! Runs in flight: the host's work for one run overlaps with the device's work for another.
//!
//! [`Session::submit`] starts a run and leaves it in flight, with the copies of its results. The queue executes runs in
//! the order of submission, and each run has the results of its own inputs. The program `overlap` in `benches` times
//! one, two and three runs in flight.

use crate::error::GpuError;
use crate::poller::Polling;
use crate::pool::Lease;
use crate::readback::Readback;
use crate::recorder::Recorder;
use crate::resources::{Resources, Shared};
use crate::run::{RunTimes, ms};
use crate::session::Session;
use crate::tensors::RunInput;
use crate::transfers::Transfers;
use compiler::tensor::Tensor;
use std::sync::Arc;
use std::time::Instant;

/// A run that is submitted, with the copies of its results. It has resources of its own until it is waited for or
/// dropped.
#[must_use = "the results come when the run is waited for"]
pub struct InFlight {
    shared: Arc<Shared>,
    resources: Lease<Resources>,
    results: Readback,
    start: Instant,
    submitted: Instant,
    times: RunTimes,
}

impl Session {
    /// Uploads inputs and submits a run with the copies of its results, without waiting. The device executes runs in
    /// the order of these calls. Each [`InFlight`] has the results of its own inputs, in any order of waiting. If as
    /// many runs are in flight as the session's options allow, the future waits until one is waited for or dropped.
    ///
    /// If the host decides or computes something in the middle of a run, the future waits for that.
    ///
    /// # Errors
    /// Wrong inputs, a failed host step, a lost device.
    pub async fn submit(&self, inputs: &[RunInput<'_>]) -> Result<InFlight, GpuError> {
        let shared = &self.shared;
        let mut resources = self.pool.take().await;
        resources.recorder = Recorder::default();
        let start = Instant::now();
        let uploads = resources.bind(shared, inputs, &[])?;
        let upload = ms(start);
        let encoder = resources.execute(shared, uploads, Polling::Thread).await?;
        let results = Readback::submit(shared, &resources, encoder, &shared.plan.outputs);
        resources.staging.submitted();
        let times = RunTimes { upload, encode: ms(start) - upload, ..RunTimes::default() };
        Ok(InFlight { shared: shared.clone(), resources, results, start, submitted: Instant::now(), times })
    }
}

impl InFlight {
    /// The results, in the order of the plan's outputs. The future is woken when they are ready.
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

    /// As [`InFlight::wait`], with results in the memory of `outputs` as in [`Session::run_into`]; also returns the
    /// times. The device time is from the submission until the wait, including earlier runs.
    ///
    /// # Errors
    /// A lost device.
    pub fn wait_into(self, outputs: &mut Vec<Tensor>) -> Result<RunTimes, GpuError> {
        pollster::block_on(self.finish(outputs, Polling::Caller))
    }

    /// Bytes that the run has moved.
    pub fn transfers(&self) -> Transfers {
        self.resources.moved.so_far()
    }

    /// Times so far: upload and encoding.
    pub fn times(&self) -> RunTimes {
        self.times
    }

    /// True when the device has done the run. Asks the device, and does not wait.
    ///
    /// # Errors
    /// A lost device.
    pub fn is_done(&self) -> Result<bool, GpuError> {
        self.results.is_done(&self.shared.gpu)
    }

    async fn finish(self, outputs: &mut Vec<Tensor>, polling: Polling) -> Result<RunTimes, GpuError> {
        let InFlight { shared, resources, results, start, submitted, mut times } = self;
        results.done(&shared.gpu, polling).await?;
        times.gpu = ms(submitted);
        let mark = Instant::now();
        results.tensors(&shared, &resources, outputs)?;
        times.readback = ms(mark);
        times.total = ms(start);
        times.moved = resources.moved.so_far();
        Ok(times)
    }
}
