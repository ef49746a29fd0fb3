//! Runs: inputs up, dispatches, results back.

use crate::buffers::new_encoder;
use crate::error::GpuError;
use crate::loops::Running;
use crate::poller::Polling;
use crate::readback::Readback;
use crate::recorder::{Doing, Recorder};
use crate::resources::{BoundStep, BoundSteps, Resources, Shared};
use crate::session::Session;
use crate::transfers::Transfers;
use compiler::fault::Fault;
use compiler::plan::{BufferView, Call, HostStep};
use compiler::tensor::Tensor;
use std::sync::Arc;
use std::time::Instant;

/// Times of one run, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunTimes {
    /// Inputs to device memory.
    pub upload: f64,
    /// Encoding and submitting; 0 if the host splits the run, since all its times then count as `gpu`.
    pub encode: f64,
    /// From submit until the device is done.
    pub gpu: f64,
    /// Results to host memory.
    pub readback: f64,
    /// All of it.
    pub total: f64,
    /// Bytes that went up, back and from buffer to buffer.
    pub moved: Transfers,
}

pub(crate) fn ms(from: Instant) -> f64 {
    from.elapsed().as_secs_f64() * 1e3
}

impl Session {
    /// Runs once: `inputs` in the order of the plan's inputs; results in the order of its outputs. If all resources are
    /// in use by other runs, it waits.
    ///
    /// # Errors
    /// Wrong inputs, a failed host step, a lost device.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, GpuError> {
        Ok(self.run_timed(inputs)?.0)
    }

    /// As [`Session::run`], with results in the memory of `outputs` if these are unshared results of an earlier run:
    /// then no memory is allocated for them.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_into(&self, inputs: &[Tensor], outputs: &mut Vec<Tensor>) -> Result<RunTimes, GpuError> {
        let done = pollster::block_on(self.run_polled(inputs, outputs, Polling::Caller, &Recorder::default()));
        done.map_err(|e| e.of_plan(self.shared.is_foreign))
    }

    /// Runs once without blocking the polling thread while it waits for resources or for the device. Work of the host
    /// runs on the polling thread: encoding inputs and results, and host steps of the plan.
    ///
    /// Dropping the future releases its resources, after the device has finished the submitted commands.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub async fn run_async(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, GpuError> {
        let mut outputs = vec![];
        let done = self.run_polled(inputs, &mut outputs, Polling::Thread, &Recorder::default()).await;
        done.map_err(|e| e.of_plan(self.shared.is_foreign))?;
        Ok(outputs)
    }

    /// Runs once, and returns the times from the moment it has resources.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_timed(&self, inputs: &[Tensor]) -> Result<(Vec<Tensor>, RunTimes), GpuError> {
        let mut outputs = vec![];
        let times = self.run_into(inputs, &mut outputs)?;
        Ok((outputs, times))
    }

    /// As [`Session::run`]; `recorder` takes notes.
    ///
    /// # Errors
    /// As there.
    pub fn run_recorded(&self, inputs: &[Tensor], recorder: &Recorder) -> Result<Vec<Tensor>, GpuError> {
        let mut outputs = vec![];
        let done = pollster::block_on(self.run_polled(inputs, &mut outputs, Polling::Caller, recorder));
        done.map_err(|e| e.of_plan(self.shared.is_foreign))?;
        Ok(outputs)
    }

    async fn run_polled(
        &self,
        inputs: &[Tensor],
        outputs: &mut Vec<Tensor>,
        polling: Polling,
        recorder: &Recorder,
    ) -> Result<RunTimes, GpuError> {
        let shared = &self.shared;
        let mut resources = self.pool.take().await;
        resources.recorder = recorder.clone();
        let start = Instant::now();
        let mut t = RunTimes::default();
        recorder.doing(|| Doing::Upload);
        let uploads = resources.write_inputs(shared, inputs)?;
        t.upload = ms(start);
        let mark = Instant::now();
        let encoder = resources.execute(shared, uploads, polling).await?;
        let results = Readback::submit(shared, &resources, encoder, &shared.plan.outputs);
        resources.staging.submitted();
        t.encode = ms(mark);
        let mark = Instant::now();
        recorder.doing(|| Doing::Wait);
        results.done(&shared.gpu, polling).await?;
        t.gpu = ms(mark);
        if shared.is_interrupted() {
            t.gpu += std::mem::take(&mut t.encode);
        }
        let mark = Instant::now();
        recorder.doing(|| Doing::Readback);
        results.tensors(shared, &resources, outputs)?;
        recorder.doing(|| Doing::Between);
        t.readback = ms(mark);
        t.total = ms(start);
        t.moved = resources.moved.so_far();
        Ok(t)
    }
}

/// A list of steps that is under way.
struct Open {
    steps: BoundSteps,
    /// How many of them are done.
    at: usize,
    /// The owner of the steps.
    owner: Owner,
}

/// The owner of a list of steps.
enum Owner {
    /// A run, or a branch.
    Once,
    Loop(Running),
    Call(Arc<Call>),
}

impl Shared {
    /// Computes the results of a host step.
    ///
    /// # Errors
    /// What the function says.
    pub(crate) fn host_results(&self, h: &HostStep, inputs: Vec<Tensor>) -> Result<Vec<Tensor>, GpuError> {
        let functions = self.host_functions.on_tensors();
        (h.run)(inputs, functions).map_err(|e| GpuError::of_fault(Fault { message: format!("{}: {e}", h.name), ..e }))
    }
}

impl Resources {
    /// Executes all steps after the commands in `encoder`. Steps after the last host step are encoded, and the caller
    /// submits them.
    pub(crate) async fn execute(
        &mut self,
        shared: &Shared,
        mut encoder: Option<wgpu::CommandEncoder>,
        polling: Polling,
    ) -> Result<Option<wgpu::CommandEncoder>, GpuError> {
        self.recorder.doing(|| Doing::Encode);
        self.restore_buffers(shared);
        self.copies.clear();
        // Lists of steps that are under way, and how far: the steps of a branch or of an iteration are a list inside
        // another.
        let mut open = vec![Open { steps: self.steps.clone(), at: 0, owner: Owner::Once }];
        while let Some(inner) = open.last_mut() {
            let (steps, at) = (inner.steps.clone(), inner.at);
            inner.at += 1;
            if let Some(step) = steps.get(at) {
                self.forget_copies(step);
            }
            match steps.get(at) {
                None => {
                    let next = match &mut inner.owner {
                        Owner::Once => None,
                        Owner::Loop(running) => self.end_iteration(shared, &mut encoder, running, polling).await?,
                        Owner::Call(call) => {
                            self.leave(shared, &mut encoder, call);
                            None
                        }
                    };
                    match next {
                        Some(steps) => (inner.steps, inner.at) = (steps, 0),
                        None => drop(open.pop()),
                    }
                }
                Some(BoundStep::Host(h)) => self.host_step(shared, encoder.take(), h, polling).await?,
                Some(BoundStep::Branch(condition, sides)) => {
                    let views = std::slice::from_ref(condition);
                    let read = self.read(shared, encoder.take(), views, polling).await?;
                    let taken = read.first().is_some_and(|t| t.to_i64_vec().first().is_some_and(|&c| c != 0));
                    open.push(Open { steps: sides[usize::from(!taken)].clone(), at: 0, owner: Owner::Once });
                }
                Some(BoundStep::Call(call)) => {
                    let steps = self.enter(shared, &mut encoder, call)?;
                    open.push(Open { steps, at: 0, owner: Owner::Call(call.clone()) });
                }
                Some(BoundStep::Loop(l)) => {
                    if let Some((running, steps)) = self.begin_loop(shared, &mut encoder, l, polling).await? {
                        open.push(Open { steps, at: 0, owner: Owner::Loop(running) });
                    }
                }
                Some(BoundStep::Copy(from, to)) if shared.holds_tensor(*to) => {
                    self.host[*to] = self.host[*from].clone()
                }
                Some(step) => {
                    let encoder = encoder.get_or_insert_with(|| new_encoder(&shared.gpu));
                    shared.encode(encoder, self, step)?;
                }
            }
        }
        self.copy_results(shared, &mut encoder)?;
        Ok(encoder)
    }

    /// Submits the encoder, then reads these tensors back.
    pub(crate) async fn read(
        &mut self,
        shared: &Shared,
        encoder: Option<wgpu::CommandEncoder>,
        views: &[BufferView],
        polling: Polling,
    ) -> Result<Vec<Tensor>, GpuError> {
        let operands = Readback::submit(shared, self, encoder, views);
        if views.iter().any(|s: &BufferView| !shared.on_host(s)) {
            self.recorder.doing(|| Doing::Wait);
            operands.done(&shared.gpu, polling).await?;
        }
        self.recorder.doing(|| Doing::Readback);
        let mut tensors = vec![];
        operands.tensors(shared, self, &mut tensors)?;
        self.recorder.doing(|| Doing::Encode);
        Ok(tensors)
    }

    /// Submits the encoder, then runs a host step: writes of the host reach the device before the next submission, so
    /// earlier commands must be submitted first.
    pub(crate) async fn host_step(
        &mut self,
        shared: &Shared,
        encoder: Option<wgpu::CommandEncoder>,
        h: &HostStep,
        polling: Polling,
    ) -> Result<(), GpuError> {
        let inputs = self.read_operands(shared, encoder, &h.inputs, polling).await?;
        self.recorder.doing(|| Doing::Step(h.name.to_string(), h.group));
        let outputs = shared.host_results(h, inputs)?;
        self.recorder.doing(|| Doing::Upload);
        h.outputs.iter().zip(&outputs).try_for_each(|(tensor, t)| self.write_result(shared, tensor, t))?;
        self.recorder.doing(|| Doing::Encode);
        Ok(())
    }

    /// As [`Resources::read`], but for tensors that the host has already.
    pub(crate) async fn read_operands(
        &mut self,
        shared: &Shared,
        encoder: Option<wgpu::CommandEncoder>,
        views: &[BufferView],
        polling: Polling,
    ) -> Result<Vec<Tensor>, GpuError> {
        let held: Vec<Option<Tensor>> = views.iter().map(|v| self.copies.get(v)).collect();
        let missing: Vec<BufferView> =
            views.iter().zip(&held).filter(|(_, held)| held.is_none()).map(|(v, _)| v.clone()).collect();
        let mut read = self.read(shared, encoder, &missing, polling).await?.into_iter();
        missing.iter().zip(read.as_slice()).for_each(|(view, t)| self.copies.keep(&shared.kept_on_host, view, t));
        Ok(held.into_iter().filter_map(|held| held.or_else(|| read.next())).collect())
    }

    /// Writes a result of a host step.
    pub(crate) fn write_result(&mut self, shared: &Shared, view: &BufferView, t: &Tensor) -> Result<(), GpuError> {
        self.copies.keep(&shared.kept_on_host, view, t);
        self.write(shared, view, t)
    }

    /// Forgets the host's copies of what a step on the device writes.
    pub(crate) fn forget_copies(&mut self, step: &BoundStep) {
        match step {
            BoundStep::Gpu(list) => list.iter().flat_map(|d| &d.written).for_each(|&b| self.copies.forget(b)),
            BoundStep::Copy(_, to) => self.copies.forget(*to),
            BoundStep::DeviceCall(h, _) => h.outputs.iter().for_each(|v| self.copies.forget(v.buffer)),
            BoundStep::Host(_) | BoundStep::Branch(..) => {}
            BoundStep::Loop(_) | BoundStep::Call(_) => self.copies.clear(),
        }
    }
}
