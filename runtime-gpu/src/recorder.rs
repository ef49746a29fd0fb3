//! One run as spans of time on the host's axis: the host does one thing at a time, and beside it stand the kernels.
//!
//! A [`Recorder`] goes with a run through all of its sessions: parts, turns of loops, host steps. Kernels have
//! timestamps before and behind them, which are read once the run is over. The device has its own clock: small
//! submissions that write a timestamp relate it to the host's, since the timestamp was written between the submission
//! and the end of the wait for it. They bound the offset between the clocks to an interval: its middle is used, half
//! its width is reported as the uncertainty. Where the device writes no timestamps inside passes, each dispatch is
//! submitted alone and waited for.

use crate::buffers::new_encoder;
use crate::device::Gpu;
use crate::error::GpuError;
use crate::timestamps::{TimeSource, Timestamps, tick_us};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Submissions that find the device's clock.
const PINGS: usize = 20;

/// Dispatches with timestamps in one query set, each two: WebGPU's limit is 4096 queries.
const CHUNK: usize = 2048;

/// Spans that are kept at most, and query sets: the loops of a network may have any number of turns. The time of
/// further ones has no name.
const MOST_SPANS: usize = 1 << 21;
const MOST_SETS: usize = 512;

/// The work of a span.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Doing {
    /// Tensors are brought into the form and the memory of kernels.
    Upload,
    /// The host encodes and submits commands.
    Encode,
    /// The processor prepares a dispatch, or a loop goes on.
    Prepare,
    /// The host waits for the device.
    Wait,
    /// Tensors come back from the form of kernels.
    Readback,
    /// A buffer is copied.
    Copy,
    /// The host goes from one part of a network to the next, or between two of the above.
    Between,
    /// A host step of the plan: its name, and its group.
    Step(String, usize),
    /// A dispatch, by its place in the plan.
    Kernel(usize),
    /// A node that the interpreter computes: its name, and its op.
    Node(String, &'static str),
}

/// Work from one moment to another, in microseconds from the beginning of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The part of the network; empty for one that is not in parts.
    pub part: Arc<str>,
    /// Its work.
    pub what: Doing,
    /// The device did it, beside what the host does.
    pub on_device: bool,
    /// Its beginning.
    pub start: f64,
    /// Its end.
    pub end: f64,
}

/// A run.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// All of it, by beginning. Spans of the host do not overlap.
    pub spans: Vec<Span>,
    /// Its length in microseconds.
    pub end: f64,
    /// The clock of the kernels' times. By the host's clock each was submitted alone, or ran on the host.
    pub source: TimeSource,
    /// How far the device's times may be off on the host's axis, in microseconds.
    pub uncertainty_us: f64,
}

/// Takes notes of a run; the default one takes none. Clones share their notes.
#[derive(Clone, Default)]
pub struct Recorder(Option<Arc<Mutex<Notes>>>);

struct Notes {
    clock: Instant,
    part: Arc<str>,
    /// The host's present work, and since when.
    now: (Doing, f64),
    spans: Vec<Span>,
    stamps: Vec<Stamps>,
    gpu: Option<Arc<Gpu>>,
}

/// Timestamps of a query set, and what each two of them enclose.
struct Stamps {
    times: Timestamps,
    of: Vec<(Arc<str>, Doing)>,
}

impl Recorder {
    /// Begins a run.
    pub fn start() -> Recorder {
        let now = (Doing::Between, 0.0);
        let (clock, part) = (Instant::now(), Arc::from(""));
        Recorder(Some(Arc::new(Mutex::new(Notes { clock, part, now, spans: vec![], stamps: vec![], gpu: None }))))
    }

    /// True when it takes notes.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    fn notes(&self) -> Option<MutexGuard<'_, Notes>> {
        Some(self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on the host does this.
    pub fn doing(&self, what: impl FnOnce() -> Doing) {
        if let Some(mut notes) = self.notes() {
            notes.end_span(None);
            notes.now.0 = what();
        }
    }

    /// Since its last note the host did this; it goes on with what it did before.
    pub fn did(&self, what: impl FnOnce() -> Doing) {
        if let Some(mut notes) = self.notes() {
            notes.end_span(Some(what()));
        }
    }

    /// Runs a part of the network. `within` makes its name of that of the part around it.
    pub fn part<T>(&self, within: impl FnOnce(&str) -> String, run: impl FnOnce() -> T) -> T {
        let before = self.notes().map(|mut notes| {
            notes.end_span(None);
            notes.now.0 = Doing::Between;
            let own = within(&notes.part).into();
            std::mem::replace(&mut notes.part, own)
        });
        let out = run();
        if let (Some(before), Some(mut notes)) = (before, self.notes()) {
            notes.end_span(None);
            notes.now.0 = Doing::Between;
            notes.part = before;
        }
        out
    }

    /// Adds the spans of a run that began at the last note and is over, in microseconds from its beginning, one after
    /// the other; what lies between them is [`Doing::Between`].
    pub fn add(&self, spans: impl IntoIterator<Item = (Doing, f64, f64)>) {
        let Some(mut notes) = self.notes() else { return };
        let (part, begin) = (notes.part.clone(), notes.now.1);
        let mut last = begin;
        let push = |notes: &mut Notes, what, start: f64, end: f64| {
            let on_device = matches!(what, Doing::Kernel(_));
            notes.push(Span { part: part.clone(), what, on_device, start, end });
        };
        for (what, start, end) in spans {
            let [start, end] = [start, end].map(|t| (begin + t).max(last));
            if start > last {
                push(&mut notes, Doing::Between, last, start);
            }
            push(&mut notes, what, start, end);
            last = end;
        }
        notes.now = (Doing::Between, last);
    }

    /// Encodes dispatches, with a timestamp before and behind each if the run is recorded. `position` is the place of
    /// one in the plan.
    ///
    /// # Errors
    /// A lost device.
    pub(crate) fn dispatches<D>(
        &self,
        gpu: &Arc<Gpu>,
        encoder: &mut wgpu::CommandEncoder,
        list: &[D],
        (position, dispatch): (impl Fn(&D) -> usize, impl Fn(&mut wgpu::ComputePass<'_>, &D)),
    ) -> Result<(), GpuError> {
        let Some(mut notes) = self.notes() else {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            list.iter().for_each(|d| dispatch(&mut pass, d));
            return Ok(());
        };
        if !writes_timestamps(gpu) {
            notes.submit(gpu, encoder, Doing::Wait)?;
            return list.iter().try_for_each(|d| {
                dispatch(&mut encoder.begin_compute_pass(&Default::default()), d);
                notes.submit(gpu, encoder, Doing::Kernel(position(d)))
            });
        }
        let mut pass = encoder.begin_compute_pass(&Default::default());
        for d in list {
            let stamp = notes.stamp(gpu, Doing::Kernel(position(d)));
            stamp.iter().for_each(|(set, at)| pass.write_timestamp(set, *at));
            dispatch(&mut pass, d);
            stamp.iter().for_each(|(set, at)| pass.write_timestamp(set, at + 1));
        }
        Ok(())
    }

    /// Encodes what a host function does on the device, with timestamps around it if the run is recorded.
    ///
    /// # Errors
    /// Those of `encode`.
    pub(crate) fn device_step(
        &self,
        gpu: &Arc<Gpu>,
        encoder: &mut wgpu::CommandEncoder,
        what: impl FnOnce() -> Doing,
        encode: impl FnOnce(&mut wgpu::CommandEncoder) -> Result<(), GpuError>,
    ) -> Result<(), GpuError> {
        let stamp = self.notes().filter(|_| writes_timestamps(gpu)).and_then(|mut notes| notes.stamp(gpu, what()));
        let mark = |encoder: &mut wgpu::CommandEncoder, behind: u32| {
            if let Some((set, at)) = &stamp {
                encoder.begin_compute_pass(&Default::default()).write_timestamp(set, at + behind);
            }
        };
        mark(encoder, 0);
        encode(encoder)?;
        mark(encoder, 1);
        Ok(())
    }

    /// Ends the run, then reads what the device noted.
    ///
    /// # Errors
    /// A lost device.
    pub fn finish(&self) -> Result<Recorded, GpuError> {
        let Some(mut notes) = self.notes() else { return Ok(Recorded::default()) };
        notes.end_span(None);
        let end = notes.now.1;
        let mut out = Recorded { end, ..Recorded::default() };
        if let Some(gpu) = notes.gpu.take().filter(|_| !notes.stamps.is_empty()) {
            out.uncertainty_us = notes.read_stamps(&gpu, end)?;
            out.source = TimeSource::GpuTimestamps;
        }
        out.spans = std::mem::take(&mut notes.spans);
        out.spans.sort_by(|a, b| a.start.total_cmp(&b.start));
        Ok(out)
    }
}

/// True where the device writes timestamps between dispatches.
fn writes_timestamps(gpu: &Gpu) -> bool {
    gpu.device.features().contains(wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES)
}

impl Notes {
    fn time(&self) -> f64 {
        self.clock.elapsed().as_secs_f64() * 1e6
    }

    /// Ends what the host does; `what` says it if that was not known before.
    fn end_span(&mut self, what: Option<Doing>) {
        let (end, start) = (self.time(), self.now.1);
        let what = what.unwrap_or_else(|| self.now.0.clone());
        self.now.1 = end;
        let on_device = matches!(what, Doing::Kernel(_));
        self.push(Span { part: self.part.clone(), what, on_device, start, end });
    }

    fn push(&mut self, span: Span) {
        if self.spans.len() < MOST_SPANS {
            self.spans.push(span);
        }
    }

    /// The place of two timestamps around something on the device, if there is one left.
    fn stamp(&mut self, gpu: &Arc<Gpu>, what: Doing) -> Option<(wgpu::QuerySet, u32)> {
        if self.stamps.last().is_none_or(|s| s.of.len() == CHUNK) {
            if self.stamps.len() == MOST_SETS {
                return None;
            }
            self.gpu = Some(gpu.clone());
            self.stamps.push(Stamps { times: Timestamps::new(gpu, 2 * CHUNK as u32), of: vec![] });
        }
        let last = self.stamps.len() - 1;
        let (part, stamps) = (self.part.clone(), &mut self.stamps[last]);
        stamps.of.push((part, what));
        Some((stamps.times.set.clone(), 2 * stamps.of.len() as u32 - 2))
    }

    /// Submits what is encoded, and waits for it.
    fn submit(&mut self, gpu: &Gpu, encoder: &mut wgpu::CommandEncoder, what: Doing) -> Result<(), GpuError> {
        let commands = std::mem::replace(encoder, new_encoder(gpu)).finish();
        self.end_span(None);
        gpu.wait_for(gpu.queue.submit([commands]))?;
        self.end_span(Some(what));
        Ok(())
    }

    /// Adds the spans of all timestamps; how far they may be off. Those of a device do not overlap: what began before
    /// the one before it ended begins there.
    fn read_stamps(&mut self, gpu: &Gpu, end: f64) -> Result<f64, GpuError> {
        let base = self.ping(gpu)?.1;
        let since = |ticks: u64| ticks.wrapping_sub(base) as i64 as f64 * tick_us(gpu);
        let mut offset = Offset { low: f64::NEG_INFINITY, high: f64::INFINITY };
        for _ in 0..PINGS {
            let (after, ticks, before) = self.ping(gpu)?;
            offset.narrow(since(ticks), after, before);
        }
        let mut last = 0.0;
        for Stamps { times, of } in std::mem::take(&mut self.stamps) {
            let mut encoder = new_encoder(gpu);
            times.resolve(&mut encoder, 2 * of.len() as u32);
            let index = gpu.queue.submit([encoder.finish()]);
            let mapped = times.map();
            gpu.wait_for(index)?;
            let ticks = times.ticks(&mapped)?;
            for ((part, what), t) in of.into_iter().zip(ticks.chunks_exact(2)) {
                let at = |t: u64| (since(t) + offset.middle()).clamp(last, end.max(last));
                let start = at(t[0]);
                last = at(t[1]).max(start);
                self.spans.push(Span { part, what, on_device: true, start, end: last });
            }
        }
        Ok((offset.high - offset.low) / 2.0)
    }

    /// A timestamp of the device, between two of the host.
    fn ping(&self, gpu: &Gpu) -> Result<(f64, u64, f64), GpuError> {
        let stamps = Timestamps::new(gpu, 1);
        let mut encoder = new_encoder(gpu);
        encoder.begin_compute_pass(&Default::default()).write_timestamp(&stamps.set, 0);
        stamps.resolve(&mut encoder, 1);
        let commands = encoder.finish();
        let after = self.time();
        let index = gpu.queue.submit([commands]);
        let mapped = stamps.map();
        gpu.wait_for(index)?;
        let before = self.time();
        let ticks = stamps.ticks(&mapped)?;
        Ok((after, ticks.first().copied().unwrap_or(0), before))
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

    #[test]
    fn endless_loops_do_not_fill_the_memory() {
        let recorder = Recorder::start();
        (0..MOST_SPANS + 3).for_each(|_| recorder.did(|| Doing::Copy));
        assert_eq!(recorder.finish().expect("no device").spans.len(), MOST_SPANS);
    }

    #[test]
    fn the_host_does_one_thing_at_each_moment() {
        let recorder = Recorder::start();
        recorder.doing(|| Doing::Upload);
        recorder.part(|_| "before".into(), || recorder.part(|p| format!("{p}.body"), || recorder.did(|| Doing::Copy)));
        let run = recorder.finish().expect("no device");
        assert!(run.spans.windows(2).all(|s| s[0].end == s[1].start), "{run:?}");
        assert_eq!((run.spans[0].start, run.spans.last().expect("spans").end), (0.0, run.end));
        assert!(run.spans.iter().any(|s| (&*s.part, &s.what) == ("before.body", &Doing::Copy)), "{run:?}");
        assert!(Recorder::default().finish().expect("nothing").spans.is_empty());
    }
}
