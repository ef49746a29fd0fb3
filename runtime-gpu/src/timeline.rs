//! One run as spans of time on the host's axis: upload, encoding, the queue, each kernel, readback.
//!
//! The device has its own clock. Small submissions that write a timestamp relate it to the host's clock: the timestamp
//! was written between the submission and the end of the wait for it. Many such submissions and the run itself bound
//! the offset between the clocks to an interval. Its middle is used, and half its width is reported as the uncertainty.

use crate::buffers::new_encoder;
use crate::error::GpuError;
use crate::poller::Polling;
use crate::readback::Readback;
use crate::resident::{TimeSource, dispatches, has_timestamps};
use crate::resources::{Bound, BoundStep, Resources, Shared};
use crate::session::Session;
use crate::timestamps::{Timestamps, tick_us};
use compiler::tensor::Tensor;
use std::time::Instant;

/// Submissions that find the device's clock.
const PINGS: usize = 20;

/// What went on from one moment to another, in microseconds from the beginning of the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// What.
    pub name: &'static str,
    /// Its beginning.
    pub start: f64,
    /// Its end.
    pub end: f64,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// What the host did.
    pub host: Vec<Span>,
    /// What the device did, and what its queue held, beside kernels.
    pub queue: Vec<Span>,
    /// Each dispatch in plan order: kernel, group, beginning and end.
    pub kernels: Vec<(usize, usize, f64, f64)>,
    /// What told the times of the kernels. By the host's clock each is submitted alone.
    pub source: TimeSource,
    /// How far the device's times may be off on the host's axis, in microseconds.
    pub uncertainty_us: f64,
}

/// The host's clock since a moment.
struct Clock(Instant);
impl Clock {
    fn now(&self) -> f64 {
        self.0.elapsed().as_secs_f64() * 1e6
    }
    /// Runs `work` and notes when.
    fn span<T>(&self, spans: &mut Vec<Span>, name: &'static str, work: impl FnOnce() -> T) -> T {
        let start = self.now();
        let out = work();
        spans.push(Span { name, start, end: self.now() });
        out
    }
}

/// Where the device's clock may begin on the host's axis.
#[derive(Clone, Copy)]
struct Offset {
    low: f64,
    high: f64,
}

impl Offset {
    /// A moment of the device's clock that lies between two of the host's. What contradicts the rest is left out:
    /// clocks drift.
    fn narrow(&mut self, device: f64, after: f64, before: f64) {
        let (low, high) = (self.low.max(after - device), self.high.min(before - device));
        if low <= high {
            (self.low, self.high) = (low, high);
        }
    }
    fn middle(&self) -> f64 {
        (self.low + self.high) / 2.0
    }
}

impl Session {
    /// Runs once, and says what went on when. With host steps, branches or loops, and where the device writes no
    /// timestamps inside passes, each dispatch of the plan is submitted alone instead, and the host's clock tells its
    /// time.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn timeline(&self, inputs: &[Tensor]) -> Result<Timeline, GpuError> {
        let mut resources = pollster::block_on(self.pool.take());
        match has_timestamps(&self.shared, dispatches(&resources).len() * 2) {
            true => by_timestamps(&self.shared, &mut resources, inputs),
            false => by_the_host(&self.shared, &mut resources, inputs),
        }
    }
}

fn by_timestamps(shared: &Shared, resources: &mut Resources, inputs: &[Tensor]) -> Result<Timeline, GpuError> {
    let gpu = &shared.gpu;
    let clock = Clock(Instant::now());
    let base = ping(shared, &clock)?.1;
    let mut offset = Offset { low: f64::NEG_INFINITY, high: f64::INFINITY };
    let since = |ticks: u64| ticks.wrapping_sub(base) as i64 as f64 * tick_us(gpu);
    for _ in 0..PINGS {
        let (after, ticks, before) = ping(shared, &clock)?;
        offset.narrow(since(ticks), after, before);
    }
    let begin = clock.now();
    let mut host = vec![];
    let uploads = clock.span(&mut host, "upload", || resources.write_inputs(shared, inputs))?;
    let stamps = Timestamps::new(gpu, dispatches(resources).len() as u32 * 2);
    let encoder = clock.span(&mut host, "encode", || encode(shared, resources, uploads, &stamps))?;
    let (results, mapped) = clock.span(&mut host, "submit", || {
        let results = Readback::submit(shared, resources, Some(encoder), &shared.plan.outputs);
        resources.staging.submitted();
        (results, stamps.map())
    });
    let submitted = host.last().map_or((begin, begin), |s| (s.start, s.end));
    clock.span(&mut host, "wait", || pollster::block_on(results.done(gpu, Polling::Caller)))?;
    let done = clock.now();
    clock.span(&mut host, "readback", || results.tensors(shared, resources, &mut vec![]))?;
    let ticks = stamps.ticks(&mapped)?;
    for &t in &ticks {
        offset.narrow(since(t), submitted.0, done);
    }
    let at = |t: u64| since(t) + offset.middle();
    let list = dispatches(resources).into_iter().zip(ticks.chunks_exact(2));
    let kernels: Vec<_> = list.map(|(d, t)| (d.kernel, d.group, at(t[0]), at(t[1]))).collect();
    let (first, last) = (kernels.first().map_or(done, |k| k.2), kernels.last().map_or(done, |k| k.3));
    let queue = vec![
        Span { name: "queue", start: submitted.1.min(first), end: first },
        Span { name: "copies of results", start: last, end: done.max(last) },
    ];
    let uncertainty_us = (offset.high - offset.low) / 2.0;
    let source = TimeSource::GpuTimestamps;
    Ok(Timeline { host, queue, kernels, source, uncertainty_us }.since_start(begin))
}

/// Encodes a run with a timestamp before and behind each dispatch.
fn encode(
    shared: &Shared,
    resources: &mut Resources,
    uploads: Option<wgpu::CommandEncoder>,
    stamps: &Timestamps,
) -> Result<wgpu::CommandEncoder, GpuError> {
    resources.restore_buffers(shared);
    let mut encoder = uploads.unwrap_or_else(|| new_encoder(&shared.gpu));
    let mut next = 0;
    for step in resources.steps.clone().iter() {
        let BoundStep::Gpu(list) = step else {
            shared.encode(&mut encoder, resources, step)?;
            continue;
        };
        let mut pass = encoder.begin_compute_pass(&Default::default());
        for d in list {
            pass.write_timestamp(&stamps.set, next);
            shared.dispatch(&mut pass, d);
            pass.write_timestamp(&stamps.set, next + 1);
            next += 2;
        }
    }
    let mut encoder = Some(encoder);
    resources.copy_results(shared, &mut encoder)?;
    let mut encoder = encoder.unwrap_or_else(|| new_encoder(&shared.gpu));
    stamps.resolve(&mut encoder);
    Ok(encoder)
}

/// A timestamp of the device, between two of the host.
fn ping(shared: &Shared, clock: &Clock) -> Result<(f64, u64, f64), GpuError> {
    let gpu = &shared.gpu;
    let stamps = Timestamps::new(gpu, 1);
    let mut encoder = new_encoder(gpu);
    encoder.begin_compute_pass(&Default::default()).write_timestamp(&stamps.set, 0);
    stamps.resolve(&mut encoder);
    let commands = encoder.finish();
    let after = clock.now();
    let index = gpu.queue.submit([commands]);
    let mapped = stamps.map();
    gpu.wait_for(index)?;
    let before = clock.now();
    let ticks = stamps.ticks(&mapped)?;
    Ok((after, ticks.first().copied().unwrap_or(0), before))
}

fn by_the_host(shared: &Shared, resources: &mut Resources, inputs: &[Tensor]) -> Result<Timeline, GpuError> {
    let gpu = &shared.gpu;
    let clock = Clock(Instant::now());
    let (mut host, mut kernels) = (vec![], vec![]);
    let uploads = clock.span(&mut host, "upload", || resources.write_inputs(shared, inputs))?;
    let results = clock.span(&mut host, "run", || -> Result<Readback, GpuError> {
        let encoder = pollster::block_on(resources.execute(shared, uploads, Polling::Caller))?;
        let results = Readback::submit(shared, resources, encoder, &shared.plan.outputs);
        resources.staging.submitted();
        pollster::block_on(results.done(gpu, Polling::Caller))?;
        Ok(results)
    })?;
    clock.span(&mut host, "readback", || results.tensors(shared, resources, &mut vec![]))?;
    for d in dispatches(resources) {
        let start = clock.now();
        alone(shared, d)?;
        kernels.push((d.kernel, d.group, start, clock.now()));
    }
    Ok(Timeline { host, queue: vec![], kernels, source: TimeSource::HostClock, uncertainty_us: 0.0 })
}

/// Runs a dispatch, and waits for it.
fn alone(shared: &Shared, d: &Bound) -> Result<(), GpuError> {
    let gpu = &shared.gpu;
    let mut encoder = new_encoder(gpu);
    shared.dispatch(&mut encoder.begin_compute_pass(&Default::default()), d);
    gpu.wait_for(gpu.queue.submit([encoder.finish()]))
}

impl Timeline {
    /// The same with times from `begin` on.
    fn since_start(mut self, begin: f64) -> Timeline {
        for s in self.host.iter_mut().chain(&mut self.queue) {
            (s.start, s.end) = (s.start - begin, s.end - begin);
        }
        for k in &mut self.kernels {
            (k.2, k.3) = (k.2 - begin, k.3 - begin);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_narrow_the_offset_of_a_clock() {
        let mut offset = Offset { low: f64::NEG_INFINITY, high: f64::INFINITY };
        // The device's clock began 100 before the host's.
        for (device, after, before) in [(110.0, 4.0, 30.0), (150.0, 49.0, 70.0), (200.0, 80.0, 101.0)] {
            offset.narrow(device, after, before);
        }
        assert_eq!((offset.low, offset.high), (-101.0, -99.0));
        assert_eq!(offset.middle(), -100.0);
        offset.narrow(300.0, 0.0, 1.0);
        assert_eq!(offset.middle(), -100.0, "what contradicts the rest is left out");
    }
}
