//! Staging memory of a run, kept for later runs: inputs are written into mapped memory that the run's first commands
//! copy from; results are copied into memory that is mapped once the device is done.
//!
//! A run at sizes that were used before allocates no staging memory. With results in the memory of earlier ones
//! (`Session::run_into`), every run makes the same number of allocations, and none is as large as a tensor
//! (`benches/tests/allocations.rs` counts over 1,000 runs). Host steps are the exception: they allocate what their
//! operators need.

use crate::error::GpuError;
use compiler::plan::BufferView;
use compiler::plan::storage::encode_portions;
use compiler::tensor::Tensor;
use compiler::tir::Encoding;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Readback buffers that are kept beyond those of the results.
const SPARE: usize = 4;

/// Staging memory of the runs that use the same resources, one after another.
#[derive(Default)]
pub(crate) struct Staging {
    /// By buffer and slice of the plan.
    uploads: BTreeMap<(usize, usize), Upload>,
    readbacks: Mutex<Vec<wgpu::Buffer>>,
}

/// Memory that the host writes and the device copies from.
struct Upload {
    buffer: wgpu::Buffer,
    /// The host may write.
    mapped: Arc<AtomicBool>,
    /// Commands that copy from it are encoded, and it has not been mapped again since.
    used: bool,
}

impl Upload {
    fn new(device: &wgpu::Device, size: u64) -> Upload {
        let buffer = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("upload"),
            size,
            usage: wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: true,
        });
        Upload { buffer, mapped: Arc::new(AtomicBool::new(true)), used: false }
    }

    /// Asks for it to be mapped again once the device has copied.
    fn map_again(&mut self) {
        if std::mem::take(&mut self.used) {
            let mapped = self.mapped.clone();
            self.buffer.map_async(wgpu::MapMode::Write, .., move |r| mapped.store(r.is_ok(), Ordering::Release));
        }
    }
}

impl Staging {
    /// Encodes an upload of `t` into `slices`, the buffers of an input. Returns false, without changes, if the staging
    /// memory is still in use by an unfinished run.
    ///
    /// # Errors
    /// A value without a storage form.
    pub(crate) fn upload(
        &mut self,
        device: &wgpu::Device,
        encoder: &mut wgpu::CommandEncoder,
        (view, slice_bytes, slices): (&BufferView, u64, &[wgpu::Buffer]),
        t: &Tensor,
    ) -> Result<bool, GpuError> {
        let bytes = view.encoding.storage_bytes(t.dtype(), t.len() as u64);
        let parts: Vec<u64> = parts(bytes, slice_bytes).collect();
        for (i, &size) in parts.iter().enumerate() {
            let key = (view.buffer, i);
            if self.uploads.get(&key).is_none_or(|u| u.buffer.size() < size) {
                self.uploads.insert(key, Upload::new(device, size));
            }
            if !self.uploads[&key].mapped.load(Ordering::Acquire) {
                return Ok(false);
            }
        }
        let staged: Vec<&wgpu::Buffer> = (0..parts.len()).map(|i| &self.uploads[&(view.buffer, i)].buffer).collect();
        let mut at = 0;
        encode_view(view, t, &mut |part| {
            copy_mapped(&staged, slice_bytes as usize, at, part)?;
            at += part.len();
            Ok(())
        })?;
        for (i, (&size, slice)) in parts.iter().zip(slices).enumerate() {
            let Some(upload) = self.uploads.get_mut(&(view.buffer, i)) else { continue };
            upload.buffer.unmap();
            upload.mapped.store(false, Ordering::Release);
            upload.used = true;
            encoder.copy_buffer_to_buffer(&upload.buffer, 0, slice, 0, size);
        }
        Ok(true)
    }

    /// To be called after submission: the staging memory is mapped again when the device is done.
    pub(crate) fn submitted(&mut self) {
        self.uploads.values_mut().for_each(Upload::map_again);
    }

    /// A buffer of at least `size` bytes that results are copied into. It comes back with [`Staging::give_back`].
    pub(crate) fn readback(&self, device: &wgpu::Device, size: u64) -> wgpu::Buffer {
        let mut kept = self.readbacks.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |b: &(usize, &wgpu::Buffer)| b.1.size() >= size;
        match kept.iter().enumerate().filter(fits).min_by_key(|b| b.1.size()).map(|b| b.0) {
            Some(at) => kept.swap_remove(at),
            None => device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("readback"),
                size,
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            }),
        }
    }

    /// Keeps a buffer that is no longer mapped. If there are more than `results` buffers and a few spare ones, the
    /// smallest is dropped.
    pub(crate) fn give_back(&self, buffer: wgpu::Buffer, results: usize) {
        let mut kept = self.readbacks.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push(buffer);
        if kept.len() > results + SPARE
            && let Some(least) = (0..kept.len()).min_by_key(|&i| kept[i].size())
        {
            kept.swap_remove(least);
        }
    }
}

/// Writes a tensor through staging memory of the queue, before the next submission.
///
/// # Errors
/// A value without a storage form, a lost device.
pub(crate) fn write_by_queue(
    queue: &wgpu::Queue,
    (view, slice_bytes, slices): (&BufferView, u64, &[wgpu::Buffer]),
    t: &Tensor,
) -> Result<(), GpuError> {
    let bytes = view.encoding.storage_bytes(t.dtype(), t.len() as u64);
    let lost = || GpuError::Lost("the queue takes no more data".into());
    let mut views = vec![];
    for (size, slice) in parts(bytes, slice_bytes).zip(slices) {
        if let Some(size) = wgpu::BufferSize::new(size) {
            views.push(queue.write_buffer_with(slice, 0, size).ok_or_else(lost)?);
        }
    }
    let slice_bytes = slice_bytes as usize;
    let mut at = 0;
    encode_view(view, t, &mut |part| {
        let mut done = 0;
        while done < part.len() {
            let (slice, from) = ((at + done) / slice_bytes, (at + done) % slice_bytes);
            let n = (slice_bytes - from).min(part.len() - done);
            let into = views.get_mut(slice).ok_or_else(|| GpuError::Internal("a tensor beyond its buffer".into()))?;
            into.slice(from..from + n).copy_from_slice(&part[done..done + n]);
            done += n;
        }
        at += part.len();
        Ok(())
    })?;
    // Bytes between the last element and the end of its word.
    if let Some(last) = views.last_mut() {
        let from = at - (views_before(bytes, slice_bytes as u64) * slice_bytes as u64) as usize;
        let end = last.len();
        last.slice(from..end).copy_from_slice(&[0; 16][..end - from]);
    }
    Ok(())
}

/// Slices before the last one of `bytes`.
fn views_before(bytes: u64, slice_bytes: u64) -> u64 {
    bytes.saturating_sub(1) / slice_bytes.max(16)
}

/// Bytes of each slice of `bytes`, in words.
fn parts(bytes: u64, slice_bytes: u64) -> impl Iterator<Item = u64> {
    let slice_bytes = slice_bytes.max(16);
    let slices = bytes.div_ceil(slice_bytes);
    (0..slices).map(move |i| slice_bytes.min(bytes - i * slice_bytes).next_multiple_of(4))
}

fn encode_view(
    view: &BufferView,
    t: &Tensor,
    write: &mut dyn FnMut(&[u8]) -> Result<(), GpuError>,
) -> Result<(), GpuError> {
    let mut failed = Ok(());
    let encoded = encode_portions(t, view.encoding, &mut |part| {
        if failed.is_ok() {
            failed = write(part);
        }
    });
    encoded.map_err(|e| match view.encoding {
        Encoding::Narrow => GpuError::TooWide(format!("`{}`: {e}", view.name)),
        _ => GpuError::Input(format!("`{}`: {e}", view.name)),
    })?;
    failed
}

/// Writes `bytes` at `offset` of the data that the mapped slices hold together.
///
/// # Errors
/// More than they hold.
pub(crate) fn copy_mapped(
    slices: &[impl std::borrow::Borrow<wgpu::Buffer>],
    slice_bytes: usize,
    offset: usize,
    bytes: &[u8],
) -> Result<(), GpuError> {
    let mut done = 0;
    while done < bytes.len() {
        let (slice, from) = ((offset + done) / slice_bytes, (offset + done) % slice_bytes);
        let n = (slice_bytes - from).min(bytes.len() - done);
        let slice =
            slices.get(slice).ok_or_else(|| GpuError::Internal("data is larger than its buffer".into()))?.borrow();
        let end = (from + n).next_multiple_of(4).min(slice.size() as usize);
        let range = from as u64..end as u64;
        let mut view = slice.get_mapped_range_mut(range).map_err(|e| GpuError::Internal(e.to_string()))?;
        view.slice(..n).copy_from_slice(&bytes[done..done + n]);
        done += n;
    }
    Ok(())
}
