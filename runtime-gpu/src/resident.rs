//! Repeated execution with inputs and results on the device, for timing.

use crate::buffers::new_encoder;
use crate::error::GpuError;
use crate::poller::Polling;
use crate::pool::Lease;
use crate::readback::Readback;
use crate::recorder::Recorder;
use crate::resources::{Bound, BoundStep, Resources, Shared};
use crate::run::ms;
use crate::session::Session;
use crate::timestamps::{Timestamps, tick_us};
use compiler::plan::HostStep;
use compiler::tensor::Tensor;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The time of a call of a host function.
pub struct HostCallTime {
    /// The call's group.
    pub group: usize,
    /// Microseconds, with the tensors' way to the host and back.
    pub us: f64,
    /// The tensors of a call on the host; none for one on device buffers.
    pub edges: Vec<Edge>,
}

/// A tensor on its way to a call on the host, or from it: operands in order, then results.
#[derive(Clone, Debug)]
pub struct Edge {
    /// It is an operand of the call, which comes from the device; else a result, which goes there.
    pub operand: bool,
    /// Bytes that were moved between host and device: 0 for a tensor that is, or stays, on the host.
    pub bytes: u64,
    /// Microseconds that the host waits for it.
    pub us: f64,
}

fn microseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

/// A session with inputs on the device. Others who run on the session wait until it is dropped: a thread that holds it
/// must not run on the session itself.
pub struct Resident<'a> {
    shared: &'a Shared,
    resources: Lease<Resources>,
}

impl Session {
    /// Writes inputs to the device, to be executed on many times. Waits for its turn as [`Session::run`] does.
    ///
    /// # Errors
    /// A wrong number, dtype or shape.
    pub fn resident(&self, inputs: &[Tensor]) -> Result<Resident<'_>, GpuError> {
        let mut resources = pollster::block_on(self.pool.take());
        resources.recorder = Recorder::default();
        if let Some(uploads) = resources.write_inputs(&self.shared, inputs)? {
            self.shared.gpu.queue.submit([uploads.finish()]);
            resources.staging.submitted();
        }
        Ok(Resident { shared: &self.shared, resources })
    }
}

impl Resident<'_> {
    /// Executes once; milliseconds from encoding until the device is done.
    ///
    /// # Errors
    /// A failed host step, a lost device.
    pub fn run(&mut self) -> Result<f64, GpuError> {
        let start = Instant::now();
        let encoder = pollster::block_on(self.resources.execute(self.shared, None, Polling::Caller))?;
        let done = Readback::submit(self.shared, &self.resources, encoder, []);
        pollster::block_on(done.done(&self.shared.gpu, Polling::Caller))?;
        Ok(ms(start))
    }

    /// Executes `n` times with at most `depth` submissions in flight; total milliseconds. The runs use the same memory,
    /// so the device does one after another; only the host is ahead.
    ///
    /// # Errors
    /// As [`Resident::run`].
    pub fn run_pipelined(&mut self, n: usize, depth: usize) -> Result<f64, GpuError> {
        let start = Instant::now();
        if self.shared.is_interrupted() {
            for _ in 0..n {
                self.run()?;
            }
            return Ok(ms(start));
        }
        let gpu = &self.shared.gpu;
        let mut pending = VecDeque::new();
        for _ in 0..n {
            let mut encoder = new_encoder(gpu);
            let mut steps = self.resources.steps.iter();
            steps.try_for_each(|s| self.shared.encode(&mut encoder, &self.resources, s))?;
            pending.push_back(gpu.queue.submit([encoder.finish()]));
            if pending.len() >= depth.max(1)
                && let Some(index) = pending.pop_front()
            {
                gpu.wait_for(index)?;
            }
        }
        pending.into_iter().try_for_each(|index| gpu.wait_for(index))?;
        Ok(ms(start))
    }

    /// The times of each call of a host function that no branch decides about, in plan order, by the host's clock. Each
    /// is submitted and waited for alone; one on tensors counts with its tensors' way to the host and back.
    ///
    /// # Errors
    /// As [`Resident::run`].
    pub fn time_host_calls(&mut self) -> Result<Vec<HostCallTime>, GpuError> {
        let (shared, gpu) = (self.shared, &self.shared.gpu);
        let steps = self.resources.steps.clone();
        let mut out = vec![];
        self.resources.copies.clear();
        for step in steps.iter() {
            let start = Instant::now();
            self.resources.forget_copies(step);
            let (group, edges) = match step {
                BoundStep::Host(h) if h.call.is_some() => (h.group, self.host_step_by_edges(h)?),
                BoundStep::DeviceCall(h, _) => {
                    let mut encoder = new_encoder(gpu);
                    shared.encode(&mut encoder, &self.resources, step)?;
                    gpu.wait_for(gpu.queue.submit([encoder.finish()]))?;
                    (h.group, vec![])
                }
                _ => continue,
            };
            out.push(HostCallTime { group, us: microseconds(start), edges });
        }
        Ok(out)
    }

    /// Runs a host step, whose tensors are moved one after another.
    fn host_step_by_edges(&mut self, h: &HostStep) -> Result<Vec<Edge>, GpuError> {
        let (shared, mut edges, mut inputs) = (self.shared, vec![], vec![]);
        for view in &h.inputs {
            let (start, before) = (Instant::now(), self.resources.moved.so_far());
            let read = self.resources.read_operands(shared, None, std::slice::from_ref(view), Polling::Caller);
            inputs.extend(pollster::block_on(read)?);
            let bytes = self.resources.moved.so_far().read_back - before.read_back;
            edges.push(Edge { operand: true, bytes, us: microseconds(start) });
        }
        let outputs = self.shared.host_results(h, inputs)?;
        for (view, t) in h.outputs.iter().zip(&outputs) {
            let (start, before) = (Instant::now(), self.resources.moved.so_far());
            self.resources.write_result(shared, view, t)?;
            let bytes = self.resources.moved.so_far().uploaded - before.uploaded;
            edges.push(Edge { operand: false, bytes, us: microseconds(start) });
        }
        Ok(edges)
    }

    /// How often a run executes each dispatch, in plan order: those of a loop once in each iteration. It runs once.
    ///
    /// # Errors
    /// As [`Resident::run`].
    pub fn count_dispatches(&mut self) -> Result<Vec<u64>, GpuError> {
        let steps = self.resources.steps.clone();
        visit(&steps, &mut |s| {
            if let BoundStep::Loop(l) = s {
                l.ran.store(0, Ordering::Relaxed);
            }
        });
        self.run()?;
        let mut out = vec![];
        count(&steps, 1, &mut out);
        self.resources.calls.bodies().for_each(|steps| count(steps, 1, &mut out));
        Ok(out)
    }

    /// Microseconds of each dispatch in plan order: `(kernel, group, us)`. With timestamps inside passes all come from
    /// one run; otherwise each dispatch is submitted and timed alone by the host's clock.
    ///
    /// # Errors
    /// As [`Resident::run`].
    pub fn time_dispatches(&mut self) -> Result<Vec<(usize, usize, f64)>, GpuError> {
        let gpu = &self.shared.gpu;
        let all = dispatches(&self.resources);
        if has_timestamps(self.shared, all.len()) {
            return time_by_timestamps(self.shared, &all);
        }
        let mut out = Vec::new();
        for d in all {
            let mut encoder = new_encoder(gpu);
            {
                let mut pass = encoder.begin_compute_pass(&Default::default());
                self.shared.dispatch(&mut pass, d);
            }
            let start = Instant::now();
            gpu.wait_for(gpu.queue.submit([encoder.finish()]))?;
            out.push((d.kernel, d.group, start.elapsed().as_secs_f64() * 1e6));
        }
        Ok(out)
    }
}

/// Dispatches from which on timestamps are not asked for in one query set.
const MOST_TIMESTAMPS: usize = 4000;

/// True where the device writes a timestamp around each of so many dispatches of a run.
pub(crate) fn has_timestamps(shared: &Shared, dispatches: usize) -> bool {
    let inside = shared.gpu.device.features().contains(wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES);
    inside && !shared.is_interrupted() && dispatches < MOST_TIMESTAMPS
}

/// The dispatches of a run, in the plan's order.
pub(crate) fn dispatches(resources: &Resources) -> Vec<&Bound> {
    let mut all: Vec<&Bound> = vec![];
    for steps in [&resources.steps].into_iter().chain(resources.calls.bodies()) {
        visit(steps, &mut |s| {
            if let BoundStep::Gpu(list) = s {
                all.extend(list);
            }
        });
    }
    all
}

/// Appends how often each dispatch ran, where the steps themselves ran `times` times.
fn count(steps: &[BoundStep], times: u64, out: &mut Vec<u64>) {
    for step in steps {
        match step {
            BoundStep::Gpu(list) => out.extend(list.iter().map(|_| times)),
            BoundStep::Branch(_, sides) => sides.iter().for_each(|side| count(side, times, out)),
            BoundStep::Loop(l) => count(l.body(), l.ran.load(Ordering::Relaxed), out),
            _ => {}
        }
    }
}

/// Steps with those inside them, in the plan's order.
fn visit<'a>(steps: &'a [BoundStep], go: &mut dyn FnMut(&'a BoundStep)) {
    for step in steps {
        go(step);
        match step {
            BoundStep::Branch(_, sides) => sides.iter().for_each(|side| visit(side, go)),
            BoundStep::Loop(l) => visit(l.body(), go),
            _ => {}
        }
    }
}

fn time_by_timestamps(shared: &Shared, all: &[&Bound]) -> Result<Vec<(usize, usize, f64)>, GpuError> {
    let gpu = &shared.gpu;
    let stamps = Timestamps::new(gpu, all.len() as u32 + 1);
    let mut encoder = new_encoder(gpu);
    {
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.write_timestamp(&stamps.set, 0);
        for (i, d) in all.iter().enumerate() {
            shared.dispatch(&mut pass, d);
            pass.write_timestamp(&stamps.set, i as u32 + 1);
        }
    }
    stamps.resolve(&mut encoder, all.len() as u32 + 1);
    let index = gpu.queue.submit([encoder.finish()]);
    let mapped = stamps.map();
    gpu.wait_for(index)?;
    let (ticks, period) = (stamps.ticks(&mapped)?, tick_us(gpu));
    let time = |(i, d): (usize, &&Bound)| (d.kernel, d.group, ticks[i + 1].saturating_sub(ticks[i]) as f64 * period);
    Ok(all.iter().enumerate().map(time).collect())
}
