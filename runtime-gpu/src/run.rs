//! Runs: inputs up, dispatches, results back; and their times.

use crate::error::GpuError;
use crate::session::{Bound, BoundStep, Session, bank_sizes};
use crate::storage::{decode_tensor, encode_tensor};
use compiler::plan::{Content, TensorSlot};
use compiler::tensor::Tensor;
use compiler::tir::Encoding;
use std::sync::PoisonError;
use std::time::Instant;

/// Where a device time comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeSource {
    /// Timestamps written by the device around each pass.
    GpuTimestamps,
    /// The host's clock around submit and wait.
    HostClock,
}

/// Times of one run, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunTimes {
    /// Inputs to device memory.
    pub upload: f64,
    /// Encoding and submitting.
    pub encode: f64,
    /// From submit until the device is done.
    pub gpu: f64,
    /// Results to host memory.
    pub readback: f64,
    /// All of it.
    pub total: f64,
}

fn ms(from: Instant) -> f64 {
    from.elapsed().as_secs_f64() * 1e3
}

impl Session {
    /// Runs once: `inputs` in the order of the plan's inputs; results in the order of its outputs.
    ///
    /// # Errors
    /// Wrong inputs, a failed host step, a lost device.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, GpuError> {
        Ok(self.run_timed(inputs)?.0)
    }

    /// Runs once without blocking a thread of its own: the future resolves when the results are on the host.
    /// (The device is polled by the first `poll` of the future; wgpu has no reactor of its own.)
    ///
    /// # Errors
    /// As [`Session::run`].
    pub async fn run_async(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, GpuError> {
        self.write_inputs(inputs)?;
        self.execute()?;
        self.plan.outputs.iter().map(|s| self.read_slot(s)).collect()
    }

    /// Runs once and says where the time went.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_timed(&self, inputs: &[Tensor]) -> Result<(Vec<Tensor>, RunTimes), GpuError> {
        let start = Instant::now();
        let mut t = RunTimes::default();
        self.write_inputs(inputs)?;
        t.upload = ms(start);
        let mark = Instant::now();
        let (staging, encoder) = self.encode_all()?;
        let Some(encoder) = encoder else {
            // Host steps split the run; they were executed while encoding.
            let outputs = self.plan.outputs.iter().map(|s| self.read_slot(s)).collect::<Result<_, _>>()?;
            t.gpu = ms(mark);
            t.total = ms(start);
            return Ok((outputs, t));
        };
        self.gpu.queue.submit([encoder.finish()]);
        t.encode = ms(mark);
        let mark = Instant::now();
        for s in staging.iter().flatten() {
            s.map_async(wgpu::MapMode::Read, .., |_| {});
        }
        self.gpu.wait()?;
        t.gpu = ms(mark);
        let mark = Instant::now();
        let outputs = self.decode_staging(&staging)?;
        t.readback = ms(mark);
        t.total = ms(start);
        Ok((outputs, t))
    }

    /// Executes with inputs and outputs left on the device; milliseconds from encoding until the device is done.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_resident(&self) -> Result<f64, GpuError> {
        let start = Instant::now();
        self.execute()?;
        Ok(ms(start))
    }

    /// Executes `n` times with at most `depth` submissions in flight; total milliseconds.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_pipelined(&self, n: usize, depth: usize) -> Result<f64, GpuError> {
        let start = Instant::now();
        if self.has_host_steps() {
            for _ in 0..n {
                self.execute()?;
            }
            return Ok(ms(start));
        }
        let mut pending = std::collections::VecDeque::new();
        for _ in 0..n {
            let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
            self.encode_steps(&mut encoder, &self.steps);
            pending.push_back(self.gpu.queue.submit([encoder.finish()]));
            if pending.len() >= depth.max(1)
                && let Some(index) = pending.pop_front()
            {
                self.gpu
                    .device
                    .poll(wgpu::PollType::Wait { submission_index: Some(index), timeout: None })
                    .map_err(|e| GpuError::Lost(e.to_string()))?;
            }
        }
        self.gpu.wait()?;
        Ok(ms(start))
    }

    /// True when the plan computes something on the host.
    pub fn has_host_steps(&self) -> bool {
        self.steps.iter().any(|s| matches!(s, BoundStep::Host(_)))
    }

    /// True when the plan computes something on the device.
    pub fn has_device_steps(&self) -> bool {
        self.steps.iter().any(|s| matches!(s, BoundStep::Gpu(_)))
    }

    /// Writes the inputs to the device.
    ///
    /// # Errors
    /// A wrong number, dtype or shape.
    pub fn write_inputs(&self, inputs: &[Tensor]) -> Result<(), GpuError> {
        if inputs.len() != self.plan.inputs.len() {
            return Err(GpuError::Input(format!(
                "the network takes {} inputs, got {}",
                self.plan.inputs.len(),
                inputs.len()
            )));
        }
        for (slot, t) in self.plan.inputs.iter().zip(inputs) {
            if t.dtype() != slot.dtype || t.shape() != slot.shape {
                return Err(GpuError::Input(format!(
                    "input `{}` is {}{:?}, got {}{:?}",
                    slot.name,
                    slot.dtype,
                    slot.shape,
                    t.dtype(),
                    t.shape()
                )));
            }
            self.write_slot(slot, t)?;
        }
        Ok(())
    }

    fn on_host(&self, slot: &TensorSlot) -> bool {
        matches!(self.plan.buffers[slot.buffer].content, Content::Host(_))
    }

    fn write_slot(&self, slot: &TensorSlot, t: &Tensor) -> Result<(), GpuError> {
        if self.on_host(slot) {
            self.host.lock().unwrap_or_else(PoisonError::into_inner)[slot.buffer] = Some(t.clone());
            return Ok(());
        }
        let bytes = encode_tensor(t, slot.encoding).map_err(|e| match slot.encoding {
            Encoding::Narrow => GpuError::TooWide(format!("`{}`: {e}", slot.name)),
            _ => GpuError::Input(format!("`{}`: {e}", slot.name)),
        })?;
        let b = &self.plan.buffers[slot.buffer];
        for (i, bank) in self.buffers[slot.buffer].iter().enumerate() {
            let start = (i as u64 * b.bank_bytes) as usize;
            let end = (start + b.bank_bytes as usize).min(bytes.len());
            if start >= end {
                continue;
            }
            let part = &bytes[start..end];
            let whole = part.len() / 4 * 4;
            if whole > 0 {
                self.gpu.queue.write_buffer(bank, 0, &part[..whole]);
            }
            if whole < part.len() {
                let mut word = [0u8; 4];
                word[..part.len() - whole].copy_from_slice(&part[whole..]);
                self.gpu.queue.write_buffer(bank, whole as u64, &word);
            }
        }
        Ok(())
    }

    /// A tensor in host memory, in the slot's shape.
    fn read_host(&self, slot: &TensorSlot) -> Result<Tensor, GpuError> {
        let t = self.host.lock().unwrap_or_else(PoisonError::into_inner)[slot.buffer].clone();
        let t = t.filter(|t| t.len() == slot.shape.iter().product::<usize>());
        let t = t.ok_or_else(|| GpuError::Internal(format!("`{}` is read before it is written", slot.name)))?;
        Ok(t.reshaped(slot.shape.clone()))
    }

    fn read_slot(&self, slot: &TensorSlot) -> Result<Tensor, GpuError> {
        if self.on_host(slot) {
            return self.read_host(slot);
        }
        let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
        let staging = self.copy_out(&mut encoder, slot);
        self.gpu.queue.submit([encoder.finish()]);
        staging.map_async(wgpu::MapMode::Read, .., |_| {});
        self.gpu.wait()?;
        decode(&staging, slot)
    }

    fn copy_out(&self, encoder: &mut wgpu::CommandEncoder, slot: &TensorSlot) -> wgpu::Buffer {
        let sizes = bank_sizes(&self.plan.buffers[slot.buffer]);
        let staging = self.gpu.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("readback"),
            size: sizes.iter().sum(),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut offset = 0;
        for (bank, size) in self.buffers[slot.buffer].iter().zip(sizes) {
            encoder.copy_buffer_to_buffer(bank, 0, &staging, offset, size);
            offset += size;
        }
        staging
    }

    fn decode_staging(&self, staging: &[Option<wgpu::Buffer>]) -> Result<Vec<Tensor>, GpuError> {
        let read = |(slot, staging): (&TensorSlot, &Option<wgpu::Buffer>)| match staging {
            Some(s) => decode(s, slot),
            None => self.read_host(slot),
        };
        self.plan.outputs.iter().zip(staging).map(read).collect()
    }

    /// Encodes the whole run and the copies of its outputs (none of those that the host holds); with host steps, executes
    /// instead and returns no encoder.
    fn encode_all(&self) -> Result<(Vec<Option<wgpu::Buffer>>, Option<wgpu::CommandEncoder>), GpuError> {
        if self.has_host_steps() {
            self.execute()?;
            return Ok((vec![], None));
        }
        let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
        self.encode_steps(&mut encoder, &self.steps);
        let copy = |s: &TensorSlot| (!self.on_host(s)).then(|| self.copy_out(&mut encoder, s));
        let staging = self.plan.outputs.iter().map(copy).collect();
        Ok((staging, Some(encoder)))
    }

    /// Executes every step and waits.
    fn execute(&self) -> Result<(), GpuError> {
        let mut rest: &[BoundStep] = &self.steps;
        while !rest.is_empty() {
            let run = rest.iter().position(|s| matches!(s, BoundStep::Host(_))).unwrap_or(rest.len());
            if run > 0 {
                let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
                self.encode_steps(&mut encoder, &rest[..run]);
                self.gpu.queue.submit([encoder.finish()]);
                rest = &rest[run..];
            } else if let BoundStep::Host(h) = &rest[0] {
                let inputs = h.inputs.iter().map(|s| self.read_slot(s)).collect::<Result<Vec<_>, _>>()?;
                let outputs = (h.run)(&inputs).map_err(|e| GpuError::Host(format!("{}: {e}", h.name)))?;
                for (slot, t) in h.outputs.iter().zip(&outputs) {
                    self.write_slot(slot, t)?;
                }
                rest = &rest[1..];
            }
        }
        self.gpu.wait()
    }

    fn encode_steps(&self, encoder: &mut wgpu::CommandEncoder, steps: &[BoundStep]) {
        for step in steps {
            match step {
                BoundStep::Gpu(list) => {
                    let mut pass = encoder.begin_compute_pass(&Default::default());
                    for d in list {
                        self.dispatch(&mut pass, d);
                    }
                }
                BoundStep::Copy(from, to) => {
                    let sizes = bank_sizes(&self.plan.buffers[*from]);
                    for ((a, b), size) in self.buffers[*from].iter().zip(&self.buffers[*to]).zip(sizes) {
                        encoder.copy_buffer_to_buffer(a, 0, b, 0, size);
                    }
                }
                BoundStep::Host(_) => {}
            }
        }
    }

    fn dispatch(&self, pass: &mut wgpu::ComputePass<'_>, d: &Bound) {
        pass.set_pipeline(&self.pipelines[d.kernel].pipeline);
        pass.set_bind_group(0, &d.bind_group, &[]);
        if !d.immediates.is_empty() {
            pass.set_immediates(0, &d.immediates);
        }
        pass.dispatch_workgroups(d.grid[0], d.grid[1], d.grid[2]);
    }

    /// Microseconds of each dispatch in plan order: `(kernel, group, us)`. With timestamps inside passes all come from
    /// one run; otherwise each dispatch is submitted and timed alone by the host's clock.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn time_dispatches(&self) -> Result<(TimeSource, Vec<(usize, usize, f64)>), GpuError> {
        let all: Vec<&Bound> = self
            .steps
            .iter()
            .filter_map(|s| if let BoundStep::Gpu(l) = s { Some(l) } else { None })
            .flatten()
            .collect();
        if self.gpu.device.features().contains(wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES)
            && !self.has_host_steps()
            && all.len() < 4000
        {
            return Ok((TimeSource::GpuTimestamps, self.time_by_timestamps(&all)?));
        }
        let mut out = Vec::new();
        for d in all {
            let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
            {
                let mut pass = encoder.begin_compute_pass(&Default::default());
                self.dispatch(&mut pass, d);
            }
            let start = Instant::now();
            self.gpu.queue.submit([encoder.finish()]);
            self.gpu.wait()?;
            out.push((d.kernel, d.group, start.elapsed().as_secs_f64() * 1e6));
        }
        Ok((TimeSource::HostClock, out))
    }

    fn time_by_timestamps(&self, all: &[&Bound]) -> Result<Vec<(usize, usize, f64)>, GpuError> {
        let count = all.len() as u32 + 1;
        let device = &self.gpu.device;
        let set =
            device.create_query_set(&wgpu::QuerySetDescriptor { label: None, ty: wgpu::QueryType::Timestamp, count });
        let size = count as u64 * 8;
        let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
        let resolved =
            device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false });
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let staging =
            device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false });
        let mut encoder = device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.write_timestamp(&set, 0);
            for (i, d) in all.iter().enumerate() {
                self.dispatch(&mut pass, d);
                pass.write_timestamp(&set, i as u32 + 1);
            }
        }
        encoder.resolve_query_set(&set, 0..count, &resolved, 0);
        encoder.copy_buffer_to_buffer(&resolved, 0, &staging, 0, size);
        self.gpu.queue.submit([encoder.finish()]);
        staging.map_async(wgpu::MapMode::Read, .., |_| {});
        self.gpu.wait()?;
        let view = staging.get_mapped_range(..).map_err(|e| GpuError::Internal(e.to_string()))?;
        let ticks: Vec<u64> =
            view.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap_or_default())).collect();
        let period = self.gpu.queue.get_timestamp_period() as f64 / 1e3;
        Ok(all
            .iter()
            .enumerate()
            .map(|(i, d)| (d.kernel, d.group, ticks[i + 1].saturating_sub(ticks[i]) as f64 * period))
            .collect())
    }
}

fn decode(staging: &wgpu::Buffer, slot: &TensorSlot) -> Result<Tensor, GpuError> {
    let view = staging.get_mapped_range(..).map_err(|e| GpuError::Internal(e.to_string()))?;
    decode_tensor(&view, slot.dtype, &slot.shape, slot.encoding).map_err(GpuError::Host)
}
