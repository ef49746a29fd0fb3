//! Loops of a plan. The number of iterations is read back once, unless it is known, and in each iteration one bool if
//! the loop has a condition; otherwise iterations are encoded one after another without waiting for the device.
//!
//! A carried value has two buffers that are swapped, with the dispatches bound both ways; if there is an inner loop, it
//! is copied instead. A collected row is copied behind the earlier rows. If the number of rows is known only at run
//! time, their buffer grows; only results of the network may be such buffers, since nodes that compute with them are in
//! another part of the network.

use crate::buffers::new_encoder;
use crate::error::GpuError;
use crate::poller::Polling;
use crate::readback::Readback;
use crate::recorder::Doing;
use crate::resources::{BoundLoop, BoundSteps, Numbers, Resources, Shared};
use compiler::plan::{BufferView, Collected, Loop, Trips};
use compiler::tensor::Tensor;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Numbers of iterations that are written to the device at once.
const NUMBERS: u64 = 1024;

/// Iterations that are encoded before the device gets them.
const SUBMITTED: u64 = 64;

/// Iterations that may be under way before the host waits for them.
const IN_FLIGHT: u64 = 4096;

/// A loop that is under way.
pub(crate) struct Running {
    bound: Arc<BoundLoop>,
    trips: Option<u64>,
    done: u64,
    odd: bool,
    /// Collected rows in host memory.
    rows: Vec<Vec<Tensor>>,
}

/// Commands that are not yet submitted.
type Encoder = Option<wgpu::CommandEncoder>;

fn truth(tensors: &[Tensor]) -> bool {
    tensors.first().is_some_and(|t| t.to_i64_vec().first().is_some_and(|&c| c != 0))
}

impl Resources {
    /// Begins a loop; the steps of its first iteration, unless it has none.
    pub(crate) async fn begin_loop(
        &mut self,
        shared: &Shared,
        encoder: &mut Encoder,
        bound: &Arc<BoundLoop>,
        polling: Polling,
    ) -> Result<Option<(Running, BoundSteps)>, GpuError> {
        let l = &bound.plan;
        let views: Vec<BufferView> = l.read_before().cloned().collect();
        let mut read = match views.is_empty() {
            true => vec![],
            false => self.read(shared, encoder.take(), &views, polling).await?,
        };
        let trips = match l.trips {
            Trips::Fixed(n) => Some(n),
            Trips::Unlimited => None,
            Trips::Read(_) => {
                let said = read.remove(0).to_i64_vec().first().copied().unwrap_or(0);
                Some(u64::try_from(said).unwrap_or(0))
            }
        };
        let begins = l.begin.is_none() || truth(&read);
        let rows = vec![vec![]; l.collected.len()];
        let mut running = Running { bound: bound.clone(), trips, done: 0, odd: false, rows };
        if !begins || trips == Some(0) {
            self.finish_loop(shared, encoder, &mut running)?;
            return Ok(None);
        }
        self.number_iteration(shared, encoder, l, 0)?;
        Ok(Some((running, bound.bodies[0].clone())))
    }

    /// Ends an iteration; the steps of the next one, unless it was the last.
    pub(crate) async fn end_iteration(
        &mut self,
        shared: &Shared,
        encoder: &mut Encoder,
        running: &mut Running,
        polling: Polling,
    ) -> Result<Option<BoundSteps>, GpuError> {
        let bound = running.bound.clone();
        let l = &bound.plan;
        for (c, rows) in l.collected.iter().zip(&mut running.rows) {
            self.collect(shared, encoder, c, running.done, rows)?;
        }
        running.done += 1;
        bound.ran.fetch_add(1, Ordering::Relaxed);
        let mut more = running.trips.is_none_or(|n| running.done < n);
        if let (true, Some(go_on)) = (more, &l.go_on) {
            more = truth(&self.read(shared, encoder.take(), std::slice::from_ref(go_on), polling).await?);
        }
        self.hand_on(shared, encoder, running);
        if !more {
            self.finish_loop(shared, encoder, running)?;
            return Ok(None);
        }
        if running.done.is_multiple_of(IN_FLIGHT) {
            let submitted = Readback::submit(shared, self, encoder.take(), []);
            self.recorder.doing(|| Doing::Wait);
            submitted.done(&shared.gpu, polling).await?;
            self.recorder.doing(|| Doing::Encode);
        } else if running.done.is_multiple_of(SUBMITTED) {
            submit(shared, encoder);
        }
        self.number_iteration(shared, encoder, l, running.done)?;
        Ok(Some(bound.bodies[usize::from(running.odd)].clone()))
    }

    /// Collects the rows of iteration `at`.
    fn collect(
        &mut self,
        shared: &Shared,
        encoder: &mut Encoder,
        c: &Collected,
        at: u64,
        rows: &mut Vec<Tensor>,
    ) -> Result<(), GpuError> {
        if shared.holds_tensor(c.all) {
            rows.push(self.read_host(&c.row)?);
            return Ok(());
        }
        if c.grows {
            self.grow(shared, encoder, c, at + 1)?;
        }
        let encoder = encoder.get_or_insert_with(|| new_encoder(&shared.gpu));
        let from = shared.plan.buffers[c.row.buffer].slice_bytes;
        let sizes = [from, if c.grows { u64::MAX } else { shared.plan.buffers[c.all].slice_bytes }];
        let (from, to) = (&self.buffers[c.row.buffer], &self.buffers[c.all]);
        let (mut done, start) = (0, at * c.row_bytes);
        while done < c.row_bytes {
            let ((a, offset_a), (b, offset_b)) = (place(done, sizes[0]), place(start + done, sizes[1]));
            let (Some(from), Some(to)) = (from.get(a), to.get(b)) else {
                return Err(GpuError::Internal(format!("`{}` has more rows than it was planned for", c.row.name)));
            };
            let bytes = (c.row_bytes - done).min(sizes[0] - offset_a).min(sizes[1] - offset_b);
            encoder.copy_buffer_to_buffer(from, offset_a, to, offset_b, bytes);
            self.moved.copy(bytes);
            done += bytes;
        }
        Ok(())
    }

    /// Makes room for this number of rows in a growing buffer: at least twice the old size.
    fn grow(&mut self, shared: &Shared, encoder: &mut Encoder, c: &Collected, rows: u64) -> Result<(), GpuError> {
        let gpu = &shared.gpu;
        let old = self.buffers[c.all].first().cloned();
        let (held, need) = (old.as_ref().map_or(0, wgpu::Buffer::size), rows.saturating_mul(c.row_bytes));
        if need <= held {
            return Ok(());
        }
        let limit = gpu.profile.max_buffer;
        if need > limit {
            let (what, device) = (c.row.name.to_string(), gpu.description.name.clone());
            return Err(GpuError::BufferTooLarge { what, need, device, limit });
        }
        let size = need.max(held.saturating_mul(2).min(limit / 16 * 16)).next_multiple_of(16);
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
        let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
        let new = gpu.device.create_buffer(&descriptor);
        if let Some(old) = old {
            let encoder = encoder.get_or_insert_with(|| new_encoder(gpu));
            encoder.copy_buffer_to_buffer(&old, 0, &new, 0, held);
            self.moved.copy(held);
        }
        self.buffers[c.all] = vec![new];
        Ok(())
    }

    /// Makes the carried values of one iteration the inputs of the next.
    fn hand_on(&mut self, shared: &Shared, encoder: &mut Encoder, running: &mut Running) {
        let bound = running.bound.clone();
        for c in &bound.plan.carried {
            if shared.holds_tensor(c.now) {
                self.host.swap(c.now, c.next);
            } else if bound.alternates {
                self.swap_buffers(c.now, c.next);
            } else {
                self.copy_whole(shared, encoder, c.next, c.now);
            }
        }
        running.odd ^= bound.alternates;
    }

    /// Moves the carried values to their final buffers, and joins the rows that were collected in host memory.
    fn finish_loop(&mut self, shared: &Shared, encoder: &mut Encoder, running: &mut Running) -> Result<(), GpuError> {
        let bound = running.bound.clone();
        for c in bound.plan.carried.iter().filter(|c| running.odd && !shared.holds_tensor(c.now)) {
            self.copy_whole(shared, encoder, c.now, c.next);
            self.swap_buffers(c.now, c.next);
        }
        for (c, rows) in bound.plan.collected.iter().zip(&running.rows) {
            if c.grows {
                self.rows.insert(c.all, usize::try_from(running.done).unwrap_or(usize::MAX));
            }
            if shared.holds_tensor(c.all) {
                let all = Tensor::stack(c.row.dtype, &c.row.shape, rows);
                self.host[c.all] = Some(all.map_err(|e| GpuError::Host(e.to_string()))?);
            }
        }
        Ok(())
    }

    fn copy_whole(&self, shared: &Shared, encoder: &mut Encoder, from: usize, to: usize) {
        self.copy_buffer(shared, encoder.get_or_insert_with(|| new_encoder(&shared.gpu)), from, to);
    }

    /// Lets two buffers of the plan change places; a second time undoes it.
    fn swap_buffers(&mut self, a: usize, b: usize) {
        self.buffers.swap(a, b);
        match self.swapped.iter().position(|&pair| pair == (a, b)) {
            Some(at) => drop(self.swapped.swap_remove(at)),
            None => self.swapped.push((a, b)),
        }
    }

    /// Puts buffers back that a run which was given up left in each other's places, and ends its calls.
    pub(crate) fn restore_buffers(&mut self, shared: &Shared) {
        self.restore_pairs();
        while self.end_call(shared).is_some() {
            self.restore_pairs();
        }
    }

    fn restore_pairs(&mut self) {
        for (a, b) in std::mem::take(&mut self.swapped) {
            self.buffers.swap(a, b);
        }
    }

    /// Writes the number of an iteration to the buffer that the body reads.
    fn number_iteration(
        &mut self,
        shared: &Shared,
        encoder: &mut Encoder,
        l: &Loop,
        number: u64,
    ) -> Result<(), GpuError> {
        let Some(view) = &l.index else { return Ok(()) };
        let text = || GpuError::TooWide(format!("iteration {number} has a number beyond 32 bits"));
        let value = i32::try_from(number).map_err(|_| text())?;
        if shared.on_host(view) {
            self.host[view.buffer] = Some(Tensor::scalar(i64::from(value)));
            return Ok(());
        }
        let first = number / NUMBERS * NUMBERS;
        let numbers = self.numbers.entry(view.buffer).or_insert_with(|| Numbers {
            first: None,
            buffer: shared.gpu.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("numbers of iterations"),
                size: NUMBERS * 4,
                usage: wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            }),
        });
        if numbers.first != Some(first) {
            // Submit first: the encoded commands copy from the current buffers.
            submit(shared, encoder);
            let list = first as i32..(first + NUMBERS) as i32;
            let bytes: Vec<u8> = list.flat_map(i32::to_le_bytes).collect();
            shared.gpu.queue.write_buffer(&numbers.buffer, 0, &bytes);
            numbers.first = Some(first);
        }
        let encoder = encoder.get_or_insert_with(|| new_encoder(&shared.gpu));
        let to = &self.buffers[view.buffer];
        to.iter().for_each(|to| encoder.copy_buffer_to_buffer(&numbers.buffer, (number - first) * 4, to, 0, 4));
        Ok(())
    }
}

/// The slice that byte `at` is in, and where.
fn place(at: u64, slice_bytes: u64) -> (usize, u64) {
    let slice_bytes = slice_bytes.max(16);
    ((at / slice_bytes) as usize, at % slice_bytes)
}

fn submit(shared: &Shared, encoder: &mut Encoder) {
    if let Some(e) = encoder.take() {
        shared.gpu.queue.submit([e.finish()]);
    }
}
