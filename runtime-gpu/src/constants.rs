//! Uploads constants: each is read, packed, encoded and written before the next one.
//!
//! A packer with rows (`TensorFunction::result_rows`) runs for some rows at a time, directly into mapped memory, and
//! the device takes over the mapped memory every 16 MiB. So the heap's peak stays below 1.3 times the weights
//! (`benches/tests/host_memory.rs` counts it).

use crate::buffers::{allocate, buffer_usage};
use crate::device::Gpu;
use crate::error::GpuError;
use crate::shared_parts::{DeviceConstant, Opened};
use crate::staging::copy_mapped;
use compiler::fault::FaultKind;
use compiler::fingerprint::Fingerprint;
use compiler::graph::Module;
use compiler::name::Name;
use compiler::plan::Plan;
use compiler::plan::storage::encode_tensor;
use compiler::tensor::Tensor;
use compiler::tir::{Encoding, TensorFunction};
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes that are packed at once, and bytes of mapped buffers that may wait for the device to take them.
const PORTION: usize = 16 << 20;

/// Uploads the constants of a module.
pub(crate) struct Upload<'a> {
    gpu: &'a Gpu,
    module: &'a Module,
    /// Bytes written since the device last took over mapped memory.
    waiting: usize,
    /// Constants of this session, to be added to those that sessions share.
    made: HashMap<Fingerprint, Arc<DeviceConstant>>,
    pub(crate) opened: Opened,
}

impl<'a> Upload<'a> {
    pub(crate) fn new(gpu: &'a Gpu, module: &'a Module) -> Self {
        Upload { gpu, module, waiting: 0, made: HashMap::new(), opened: Opened::default() }
    }

    /// The constant `name` of the module in the form of buffer `i`: one that a session has uploaded already; else
    /// `packed` (bytes that were packed before, and the digest of their source); else packed by `packer` if there is
    /// one.
    ///
    /// # Errors
    /// An unreadable constant, a value without a storage form, a lost device.
    pub(crate) fn constant(
        &mut self,
        plan: &Plan,
        i: usize,
        (name, packer): (Name, Option<&TensorFunction>),
        packed: Option<(&[u8], Fingerprint)>,
    ) -> Result<Arc<DeviceConstant>, GpuError> {
        let b = &plan.buffers[i];
        let source = if packed.is_none() { Some(load_constant(self.module, name)?) } else { None };
        let digest = packed
            .map(|p| p.1)
            .or(source.as_ref().map(source_digest))
            .ok_or_else(|| GpuError::Internal(format!("constant {name} has no source")))?;
        let key = constant_key(plan, i, packer, digest);
        if let Some(there) = self.made.get(&key).cloned().or_else(|| self.gpu.parts.constants.find(key)) {
            self.opened.shared_constants += 1;
            self.made.insert(key, there.clone());
            return Ok(there);
        }
        let slices = allocate(self.gpu, plan, i, b);
        let mut at = 0;
        let mut write = |bytes: &[u8]| -> Result<(), GpuError> {
            copy_mapped(&slices, b.slice_bytes as usize, at, bytes)?;
            at += bytes.len();
            Ok(())
        };
        match (packed, source) {
            (Some((bytes, _)), _) => write(bytes)?,
            (None, Some(source)) => storage_parts(source, name, packer, b.encoding, &mut write)?,
            (None, None) => {}
        }
        slices.iter().for_each(wgpu::Buffer::unmap);
        self.opened.constants += 1;
        self.opened.constant_bytes += b.bytes;
        let made = Arc::new(DeviceConstant { slices });
        self.made.insert(key, made.clone());
        self.waiting += b.bytes as usize;
        if self.waiting > PORTION {
            self.hand_over()?;
        }
        Ok(made)
    }

    /// The constants of this session, to publish them for other sessions on the device.
    pub(crate) fn made(self) -> (Opened, HashMap<Fingerprint, Arc<DeviceConstant>>) {
        (self.opened, self.made)
    }

    /// Submits, since mapped memory stays on the host until a submission.
    fn hand_over(&mut self) -> Result<(), GpuError> {
        self.waiting = 0;
        self.gpu.queue.submit([]);
        self.gpu.wait()
    }
}

/// The digest of a constant's type, shape and data.
pub fn source_digest(source: &Tensor) -> Fingerprint {
    Fingerprint::of(|w| {
        w.text(&source.dtype().to_string());
        w.list(source.shape().iter(), |w, &d| w.number(d as i64));
        w.bytes(source.bytes());
    })
}

/// The key of a constant on the device: its data, its packing and its buffer.
fn constant_key(plan: &Plan, i: usize, packer: Option<&TensorFunction>, source: Fingerprint) -> Fingerprint {
    let b = &plan.buffers[i];
    Fingerprint::of(|w| {
        w.part(source);
        w.list(packer.iter(), |w, f| w.part(f.fingerprint()));
        w.text(&format!("{:?} {:?}", b.encoding, buffer_usage(plan, i)));
        w.number(b.bytes as i64);
        w.number(b.slice_bytes as i64);
    })
}

/// Calls `write` with the bytes of `source`, which is constant `name`, in storage form and packed if there is a packer,
/// portion by portion in order.
///
/// # Errors
/// A value without a storage form, or an error of `write`.
pub(crate) fn storage_parts(
    source: Tensor,
    name: Name,
    packer: Option<&TensorFunction>,
    encoding: Option<Encoding>,
    write: &mut dyn FnMut(&[u8]) -> Result<(), GpuError>,
) -> Result<(), GpuError> {
    let host = |e: String| GpuError::Host(format!("constant {name}: {e}"));
    let mut encoded = |t: &Tensor| -> Result<(), GpuError> {
        let narrow = if t.dtype().size() == 8 { Encoding::Narrow } else { Encoding::Native };
        write(&encode_tensor(t, encoding.unwrap_or(narrow)).map_err(|e| host(e.message))?)
    };
    let Some(f) = packer else { return encoded(&source) };
    let source = [source];
    for part in portions(f) {
        let packed = compiler::interpreter::run_tensor_function(part.as_ref().unwrap_or(f), &source);
        let packed = packed.map_err(|e| host(format!("packing: {e}")))?.pop();
        encoded(&packed.ok_or_else(|| host("its packer has no result".into()))?)?;
    }
    Ok(())
}

/// Reads a constant.
///
/// # Errors
/// When its source does not give its data.
pub(crate) fn load_constant(module: &Module, name: Name) -> Result<Tensor, GpuError> {
    let c = module.constants.get(&name);
    let c = c.ok_or_else(|| GpuError::Internal(format!("constant {name} is not in the module")))?;
    c.load().map_err(|e| match e.kind {
        FaultKind::NoRoom => GpuError::HostMemory { name: name.to_string(), why: e.message },
        _ => GpuError::Host(format!("constant {name}: {e}")),
    })
}

/// Functions that compute the result of `f` portion by portion, in order; `None` means the whole result. A portion ends
/// at a multiple of 8 bytes, where mapped memory may be split.
fn portions(f: &TensorFunction) -> Vec<Option<TensorFunction>> {
    let Some((rows, row)) = f.result_rows() else { return vec![None] };
    let element = f.outputs().next().map_or(4, |b| f.buffers[b].dtype.size());
    let at_once = (PORTION / (row * element).max(1)).max(1);
    if at_once >= rows || !(row * element * at_once).is_multiple_of(8) {
        return vec![None];
    }
    (0..rows).step_by(at_once).map(|start| f.with_rows(start, at_once.min(rows - start))).collect()
}
